"""Passes one by one, on IR that no other pass of ours has seen: written by hand, without attributes of arguments."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import spyre_mlir.passes
from spyre_mlir.dialects import sdsc
from spyre_mlir.passes.base import PASSES
from spyre_mlir.passes.span_reduction import SpanReduction
from spyre_mlir.passes.work_distribution import WorkDistribution
from spyre_mlir.tools.spyre_opt import main

for module in pkgutil.iter_modules(spyre_mlir.passes.__path__):
    if not module.name.startswith("_"):
        importlib.import_module(f"spyre_mlir.passes.{module.name}")

NAMES = sorted(name for name, each in PASSES.items() if each.__module__.startswith("spyre_mlir."))

LAID_OUT = """
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
!t = tensor<256x128xf16, #stick.layout<#rows>>
func.func @main(%x: !t FIRST, %y: !t) -> !t {
  %e = tensor.empty() : !t
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : !t, !t) outs(%e : !t) attrs = {sdsc.op = #sdsc.op<"add", {}>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %1 = arith.addf %a, %b : f16
    linalg.yield %1 : f16
  } -> !t
  return %0 : !t
}
"""

BEFORE = (
    "",
    "span-reduction,work-distribution,",
    "span-reduction,work-distribution,scratchpad-planning,place-in-hbm,",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", ["", '{spyre.name = "x"}'])
def test_laid_out_ir_without_attributes_of_arguments(name, first, tmp_path, capsys):
    """Each pass alone, and after division and planning: it works, or says what is missing in one sentence."""
    program = tmp_path / "program.mlir"
    program.write_text(LAID_OUT.replace("FIRST", first))
    for before in BEFORE:
        status = main(
            [str(program), f"--pass-pipeline=builtin.module({before}{name})", "-o", str(tmp_path / "out")]
        )
        errors = capsys.readouterr().err
        assert "Internal error" not in errors
        assert (status == 0) == ("error:" not in errors)


def test_the_number_of_cores_comes_from_the_environment(monkeypatch, tmp_path):
    """SENCORES is the default of each pass that divides, as it is of the pipeline."""
    monkeypatch.setenv("SENCORES", "4")
    assert SpanReduction().sencores == WorkDistribution().sencores == 4
    program, out = tmp_path / "program.mlir", tmp_path / "out.mlir"
    program.write_text(LAID_OUT.replace("FIRST", ""))
    assert main([str(program), "--span-reduction", "--work-distribution", "-o", str(out)]) == 0
    assert f"{sdsc.DIVISION} = #sdsc.division<[4, 1]" in out.read_text()
