# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Single passes on handwritten IR that no other pass of ours has run on, without attributes of arguments."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from pathlib import Path

import pytest

import spyre_mlir.passes
from spyre_mlir.dialects import sdsc
from spyre_mlir.language_server.text_index import LEVELS
from spyre_mlir.passes.base import PASSES
from spyre_mlir.pipelines import Pipeline, SpyrePipeline
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

#: An example with two operations.
PROGRAM = str(Path(__file__).parents[1] / "tools" / "spyre-compile" / "Inputs" / "exp-over-sum.mlir")

BEFORE = (
    "",
    "span-reduction,work-distribution,",
    "span-reduction,work-distribution,scratchpad-planning,place-in-hbm,",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("first", ["", '{spyre.name = "x"}'])
def test_laid_out_ir_without_attributes_of_arguments(name, first, tmp_path, capsys):
    """Each pass alone, and after division and planning: it works, or reports in one sentence which IR is missing."""
    program = tmp_path / "program.mlir"
    program.write_text(LAID_OUT.replace("FIRST", first))
    for before in BEFORE:
        status = main(
            [str(program), f"--pass-pipeline=builtin.module({before}{name})", "-o", str(tmp_path / "out")]
        )
        errors = capsys.readouterr().err
        assert "Internal error" not in errors
        assert (status == 0) == ("error:" not in errors)


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return a program of host tensors at each level of the pipeline."""
    out = str(tmp_path_factory.mktemp("levels") / "out.mlir")
    texts = {}
    for level in LEVELS:
        assert main([PROGRAM, "--spyre-pipeline", f"--to-level={level}", "-o", out]) == 0
        texts[level] = Path(out).read_text(encoding="utf-8")
    return texts


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("level", LEVELS)
def test_ir_of_every_level(level, name, levels, tmp_path, capsys):
    """A pass that runs too early, too late or twice works, or reports an error."""
    program = tmp_path / "program.mlir"
    program.write_text(levels[level])
    main([str(program), f"--{name}", "-o", str(tmp_path / "out")])
    assert "Internal error" not in capsys.readouterr().err


def test_the_number_of_cores_comes_from_the_environment(monkeypatch, tmp_path):
    """SENCORES is the default of each pass that divides, and of the pipeline."""
    monkeypatch.setenv("SENCORES", "4")
    program, out = tmp_path / "program.mlir", tmp_path / "out.mlir"
    program.write_text(LAID_OUT.replace("FIRST", ""))
    assert main([str(program), "--span-reduction", "--work-distribution", "-o", str(out)]) == 0
    assert f"{sdsc.DIVISION} = #sdsc.division<[4, 1]" in out.read_text()


#: A handwritten divided and placed program, and the error for an edit of it in a single pass.
PLACED = """
#rows = affine_map<(d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)>
#id = affine_map<(d0, d1) -> (d0, d1)>
#alone = affine_map<(d0) -> (0, 0)>
!t = tensor<256x128xf16, #stick.layout<#rows>>
func.func @main(%x: !t {sdsc.host = #sdsc.host<"x", "input", "f16">})
    -> (!t {sdsc.host = #sdsc.host<"result0", "result", "f16">}) {
  %e = tensor.empty() : !t
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : !t) outs(%e : !t) attrs = {sdsc.op = #sdsc.op<"exp", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>,
      sdsc.placement = #sdsc.lx<0 : i64>} {
  ^bb0(%a: f16, %o: f16):
    %r = math.exp %a : f16
    linalg.yield %r : f16
  } -> !t
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x : !t) outs(%e : !t) attrs = {sdsc.op = #sdsc.op<"abs", {}>, sdsc.division = #sdsc.division<[1, 1], #alone>,
      sdsc.placement = #sdsc.lx<65536 : i64>} {
  ^bb0(%a: f16, %o: f16):
    %r = math.absf %a : f16
    linalg.yield %r : f16
  } -> !t
  %2 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel", "parallel"]}
      ins(%0, %1 : !t, !t) outs(%e : !t) attrs = {sdsc.op = #sdsc.op<"add", {}>,
      sdsc.division = #sdsc.division<[1, 1], #alone>, sdsc.placement = #sdsc.hbm<"result0", 0 : i64>} {
  ^bb0(%a: f16, %b: f16, %o: f16):
    %r = arith.addf %a, %b : f16
    linalg.yield %r : f16
  } -> !t
  return %2 : !t
}
"""
LOWER = "--convert-sdsc-to-sdscbundle"
WRONG = {
    "overlap": (("65536", "32768"), LOWER, "overlap"),
    "odd address": (("65536", "65600"), LOWER, "the LX address 65600 is not a multiple of 128 bytes"),
    "outside of LX": (("65536", "2097152"), LOWER, "LX"),
    "spans": (("256x128", "65536x4096"), "--scratchpad-planning", "the limit is 268431360"),
    "owners": (
        ("<[1, 1], #alone>", "<[2, 1], #alone>"),
        "--place-in-hbm",
        "does not give each of the 2 slices one core",
    ),
}


def optimised(text: str, *flags: str, folder: Path) -> int:
    """Return the exit status of spyre-opt for a program."""
    (folder / "program.mlir").write_text(text)
    return main([str(folder / "program.mlir"), *flags, "-o", str(folder / "out.mlir")])


@pytest.mark.parametrize("name", WRONG)
def test_what_enters_at_a_level_is_checked(name, tmp_path, capsys):
    """A single pass reports one diagnostic for IR that breaks a rule of its input level, and writes nothing."""
    (old, new), flag, message = WRONG[name]
    assert optimised(PLACED.replace(old, new), flag, folder=tmp_path) == 1
    errors = capsys.readouterr().err
    assert errors.count("error:") == 1 and message in errors, errors
    assert not (tmp_path / "out.mlir").exists()


def test_what_holds_is_lowered(tmp_path):
    """The unedited program of the test before is valid; without checks a wrong program is lowered."""
    assert optimised(PLACED, LOWER, folder=tmp_path) == 0
    wrong = PLACED.replace("65536", "32768")
    assert optimised(wrong, LOWER, "--verify-each=false", folder=tmp_path) == 0


@pytest.mark.parametrize(
    ("passes", "checked"),
    (
        ("place-in-hbm,convert-sdsc-to-sdscbundle", 2),  # each takes another level
        ("clone-inputs,scratchpad-planning,place-in-hbm", 1),
        ("canonicalize,clone-inputs,unknown-pass,scratchpad-planning", 2),  # anything may have happened
        ("choose-layouts,resolve-padding", 0),
    ),
)
def test_checks_run_once_per_level(passes, checked):
    """The check of a level runs once, before the first pass that reads it."""
    steps = [step.name for step in SpyrePipeline().with_checks(Pipeline.parse(passes)).steps]
    is_check = [name.startswith("verify-") for name in steps]
    checks = [check and not following for check, following in itertools.pairwise(is_check)]
    assert sum(checks) == checked


def test_the_pipeline_has_no_more_checks():
    """Checks are not repeated within the pipeline, nor for a pass that continues it."""
    whole = SpyrePipeline().pipeline("placed") + Pipeline.parse("convert-sdsc-to-sdscbundle")
    assert SpyrePipeline().with_checks(whole) == whole
