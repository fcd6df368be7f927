# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arbitrary exceptions in the middle of every entry point: one diagnostic with the place, and nothing half done."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch

import spyre_mlir
from spyre_mlir.experiments import task as task_module
from spyre_mlir.experiments import tuning
from spyre_mlir.faults import InternalError
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.target import packaged_target

X = torch.randn(4, 64).half()
MLIR = """func.func @main(%x: tensor<4x64xf16>) -> tensor<4x64xf16> {
  %e = tensor.empty() : tensor<4x64xf16>
  %0 = linalg.exp ins(%x : tensor<4x64xf16>) outs(%e : tensor<4x64xf16>) -> tensor<4x64xf16>
  return %0 : tensor<4x64xf16>
}
"""

#: Parts of the compiler, and the diagnostic of a fault there.
PARTS = {
    "a pass": ("spyre_mlir.passes.decompose_to_device_ops.DecomposeToDeviceOps.run", "in the pass"),
    "the layout search": (
        "spyre_mlir.passes.choose_layouts.ChooseLayouts.decide",
        "in the pass 'choose-layouts'",
    ),
    "the division search": ("spyre_mlir.passes.work_distribution.WorkDistribution.run", "in the pass"),
    "the memory planner": ("spyre_mlir.passes.scratchpad_planning.ScratchpadPlanning.run", "in the pass"),
    "the designs": ("spyre_mlir.driver.build.export", "Internal error: "),
}
SIMULATOR = "spyre_mlir.driver.steps.run_sequence"


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a function of the compiler raise an exception, by the dotted name of the function."""
    monkeypatch.setenv("SPYRE_CACHE", "0")
    monkeypatch.delenv("SPYRE_TRACEBACK", raising=False)

    def replace(name: str, error: type[Exception] = KeyError) -> None:
        def fails(*_: object, **__: object) -> None:
            raise error("an arbitrary exception")

        monkeypatch.setattr(name, fails)

    return replace


def check_text(text: str) -> None:
    """Assert one line that names the remedy."""
    assert len(text.strip().splitlines()) == 1 and len(text) < 300
    assert "Internal error" in text and "KeyError: 'an arbitrary exception'" in text
    assert "Please report the program and the traceback that SPYRE_TRACEBACK=1 shows." in text


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("program", ["model", "MLIR", "sizes"])
def test_compile(part: str, program: str, fail) -> None:
    fail(PARTS[part][0])
    with pytest.raises(InternalError) as raised:
        if program == "MLIR":
            spyre_mlir.compile(MLIR)
        elif program == "model":
            spyre_mlir.compile(torch.exp, (X,))
        else:
            dims = {"x": {0: torch.export.Dim("n", max=8)}}
            spyre_mlir.compile(lambda x: torch.exp(x), (X,), dynamic=dims)(X)
    check_text(str(raised.value))
    assert PARTS[part][1] in str(raised.value)
    assert raised.value.__cause__ is None and raised.value.__suppress_context__


def test_the_place_is_the_operation_of_the_program(fail) -> None:
    fail("spyre_mlir.rewriting.window_unrolling.Unrolling._source")
    text = """func.func @main(%x: tensor<1x8x8x64xf32>, %k: tensor<2x2xf32>) -> tensor<1x7x7x64xf32> {
  %e = tensor.empty() : tensor<1x7x7x64xf32>
  %0 = linalg.pooling_nhwc_sum ins(%x, %k : tensor<1x8x8x64xf32>, tensor<2x2xf32>) outs(%e : tensor<1x7x7x64xf32>)
      -> tensor<1x7x7x64xf32>
  return %0 : tensor<1x7x7x64xf32>
}
"""
    with pytest.raises(
        InternalError, match=r"in the pass 'unroll-windows' at 'linalg.pooling_nhwc_sum'"
    ) as raised:
        spyre_mlir.compile(text)
    assert raised.value.location == "-:3:8"


def test_the_exception_itself_with_a_traceback(fail, monkeypatch) -> None:
    fail(PARTS["a pass"][0])
    monkeypatch.setenv("SPYRE_TRACEBACK", "1")
    with pytest.raises(KeyError, match="arbitrary") as raised:
        spyre_mlir.compile(MLIR)
    assert raised.value.__notes__[0].startswith("while running the pass 'decompose-to-device-ops")


@dataclass(frozen=True)
class Mine(Pass):
    """A user-defined pass with a mistake."""

    name: ClassVar[str] = "test-faults-mine"

    def run(self, module) -> None:
        raise ZeroDivisionError("mine")


def test_exceptions_of_the_user_stay(fail) -> None:
    with pytest.raises(ZeroDivisionError, match="mine"):
        spyre_mlir.compile(MLIR, passes={"laid-out": [Mine()]})

    def refuses(x):
        if x.sum() > 0:
            raise ValueError("my sentence")
        return x

    with pytest.raises(ValueError, match="my sentence"):
        spyre_mlir.compile(refuses, (-X.abs(),))(X.abs())


METHODS = {
    "call": (SIMULATOR, lambda program, folder: program(X)),
    "save": ("spyre_mlir.bundle.folder.to_json", lambda program, folder: program.save(folder / "new")),
    "report": (
        "spyre_mlir.driver.program.write_report",
        lambda program, folder: program.report(folder / "new.html"),
    ),
    "summary": ("spyre_mlir.driver.program.summarize", lambda program, folder: program.summary()),
    "plan": ("spyre_mlir.driver.build.run_pipeline", lambda program, folder: program.plan()),
    "load": ("spyre_mlir.driver.program.read_program", lambda program, folder: program.load(folder / "old")),
    "run of a folder": (SIMULATOR, lambda program, folder: program.load(folder / "old")(X.numpy())),
}


@pytest.mark.parametrize("method", METHODS)
def test_methods_of_a_program(method: str, fail, tmp_path: Path) -> None:
    program = spyre_mlir.compile(torch.exp, (X,), cache=False)
    program.save(tmp_path / "old")
    name, call = METHODS[method]
    fail(name)
    with pytest.raises(InternalError) as raised:
        call(program, tmp_path)
    check_text(str(raised.value))
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_a_model_in_pieces(fail) -> None:
    def decides(x):
        return x * 2 if x.sum() > 0 else x - 1

    program = spyre_mlir.compile(decides, (X,), cache=False)
    fail(SIMULATOR)
    with pytest.raises(InternalError):
        program(X)


@pytest.mark.parametrize("part", ["a pass", "the simulator"])
def test_torch_compile_and_tensors_of_the_device(part: str, fail) -> None:
    tensor = spyre_mlir.to_device(X)
    fail(SIMULATOR if part == "the simulator" else PARTS[part][0])
    torch._dynamo.reset()
    for call in (
        lambda: torch.compile(lambda x: torch.exp(x) + 3, backend="spyre")(X),
        lambda: tensor * 2.5,
        lambda: X.to("spyre") * 2.5,
    ):
        with pytest.raises(InternalError) as raised:
            call()
        check_text(str(raised.value))


SWEEP = 'programs = ["x.mlir"]\nstore = "store.sqlite"\n[axes]\nsencores = [1, 2]\n'

TOOLS = {
    "opt": (
        ["x.mlir", "--spyre-pipeline", "-o", "new"],
        "spyre_mlir.passes.choose_layouts.ChooseLayouts.decide",
    ),
    "compile": (["x.mlir", "-o", "new"], "spyre_mlir.bundle.folder.to_json"),
    "translate": (["x.mlir", "--to-bundle", "new"], "spyre_mlir.dialects.parsed"),
    "run": (["old", "--timeline", "new"], "spyre_mlir.tools.spyre_run.trace_text"),
    "validate": (["old"], "spyre_mlir.tools.spyre_validate.validate"),
    "report": (["old", "-o", "new.html"], "spyre_mlir.report.page.page"),
    "plan": (["x.csv", "--capacity", "9", "-o", "new"], "spyre_mlir.scratchpad.buffer_table.read_buffers"),
    "diff": (["old", "old"], "spyre_mlir.report.difference.facts_difference"),
    "calibrate": (["x.csv"], "spyre_mlir.calibration.fit.read_measurements"),
    "sweep": (["x.toml", "--csv", "new"], "spyre_mlir.experiments.sweeping.sweep"),
    "tune": (["x.mlir", "--trials", "2"], "spyre_mlir.experiments.tuning.compile"),
    "lsp": ([], "spyre_mlir.language_server.server.SpyreServer.serve"),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools(tool: str, fail, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.mlir").write_text(MLIR, encoding="utf-8")
    Path("x.toml").write_text(SWEEP, encoding="utf-8")
    Path("x.csv").write_text("id,lower,upper,size\n0,0,1,2\n", encoding="utf-8")
    spyre_mlir.compile(MLIR, cache=False).save("old")
    arguments, name = TOOLS[tool]
    fail(name)
    capsys.readouterr()
    assert importlib.import_module(f"spyre_mlir.tools.spyre_{tool}").main(arguments) == 1
    printed = capsys.readouterr()
    check_text(printed.err.splitlines()[0] if tool in ("opt", "compile") else printed.err)
    assert (
        not Path("new").exists()
        and not Path("new.html").exists()
        and "Traceback" not in printed.err + printed.out
    )


def test_points_of_a_sweep_and_of_a_tuning_fail_alone(fail) -> None:
    fail("spyre_mlir.experiments.task.compile")
    fail("spyre_mlir.experiments.tuning.compile")
    task = SimpleNamespace(options={}, device=json.dumps(packaged_target().sections()))
    outcome = task_module._compiled(task, (MLIR, ()))
    assert outcome.kind == task_module.FAILED and not outcome.metrics
    check_text(outcome.error)
    value, reason = tuning._TuningCall(MLIR, (), {}, "predicted_us").evaluate({}, None)
    assert value is None
    check_text(reason)
