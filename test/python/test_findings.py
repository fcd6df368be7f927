# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Findings: the first finding names a planted problem and its remedy, and predicts the saved time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from planted_problems import PROBLEMS, Planted
from programs import PROGRAMS
from torch import nn

import spyre_mlir
from spyre_mlir.findings.search import InputKey
from spyre_mlir.frontend import model_compilation

pytestmark = [
    pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


def device_us(program: spyre_mlir.Program) -> float:
    return program.metrics()["predicted_us"]


@pytest.mark.parametrize("plant", PROBLEMS, ids=lambda plant: plant.__name__)
def test_a_planted_problem_is_the_first_finding(plant: Callable[[], Planted]) -> None:
    """The finding names problem, module and change; the timeline of the change saves the predicted time within 10 %."""
    torch.manual_seed(0)
    planted = plant()
    program = planted.program()
    # Options that make a program slower are a finding of their own, which may come first.
    findings = [each for each in program.findings if not any(name in each.change for name in planted.planned)]
    finding = findings[0]
    assert planted.problem in finding.problem
    assert planted.module in finding.module
    assert planted.change in finding.change
    saved = device_us(program) - device_us(planted.changed()) / planted.samples
    if "Times count the host" in finding.problem:
        # The time of the host at the assumed rates is known for both programs; other time is device time.
        assert finding.before_us > device_us(program)
        assert saved == pytest.approx(finding.saved_us, rel=0.1) or saved < finding.saved_us
    else:
        assert saved == pytest.approx(finding.saved_us, rel=0.1)
    assert finding.problem.split(".")[0] in " ".join(program.summary().split())


#: Programs of the tests without a planted problem, of each kind one.
PLAIN = ("softmax_dim_0_512x1024", "layernorm", "gelu_mlp", "llama_block", "sdpa", "embedding", "matmul_4d")


@pytest.mark.parametrize("name", PLAIN)
def test_no_finding_is_refuted(name: str) -> None:
    """Each finding saves at least a hundredth; one whose change is a call of compile does so when that is called."""
    model, inputs = PROGRAMS[name]()
    program = spyre_mlir.compile(model, inputs)
    for finding in program.findings:
        assert finding.saved_us >= 0.01 * finding.before_us
        if finding.change.startswith("spyre_mlir.compile("):
            names = {"spyre_mlir": spyre_mlir, "torch": torch, "model": model, "inputs": inputs}
            assert device_us(eval(finding.change, names)) == pytest.approx(finding.after_us)


def test_options_that_cost_time_are_told() -> None:
    """The compiler tries the default of an option that the caller changed, for a module in MLIR too."""
    text = """
    func.func @main(%x: tensor<512x512xf16>, %y: tensor<512x512xf16>) -> tensor<512x512xf16> {
      %zero = arith.constant 0.0 : f16
      %empty = tensor.empty() : tensor<512x512xf16>
      %fill = linalg.fill ins(%zero : f16) outs(%empty : tensor<512x512xf16>) -> tensor<512x512xf16>
      %0 = linalg.matmul ins(%x, %y : tensor<512x512xf16>, tensor<512x512xf16>)
             outs(%fill : tensor<512x512xf16>) -> tensor<512x512xf16>
      %1 = linalg.exp ins(%0 : tensor<512x512xf16>) outs(%empty : tensor<512x512xf16>) -> tensor<512x512xf16>
      return %1 : tensor<512x512xf16>
    }"""
    program = spyre_mlir.compile(text, lx_planning=False)
    finding = next(finding for finding in program.findings if "lx_planning" in finding.problem)
    assert finding.change == "leave out lx_planning=False"
    assert finding.after_us == pytest.approx(device_us(spyre_mlir.compile(text)))
    assert not any("lx_planning" in finding.problem for finding in spyre_mlir.compile(text).findings)


def test_padding_that_changes_numbers_is_no_change() -> None:
    """Rows that all others read cannot be padded; a change that the model refuses is not reported."""

    class Centred(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(0)

    program = spyre_mlir.compile(Centred(), (torch.randn(197, 1024).half(),))
    assert not any("pad the" in finding.change for finding in program.findings)


def test_compiling_tries_nothing(monkeypatch) -> None:
    """Trials are made when findings are asked for, once, and not of a program that was read."""
    calls, export = [], torch.export.export

    def counted(*args: Any, **named: Any) -> Any:
        calls.append(1)
        return export(*args, **named)

    monkeypatch.setattr(torch.export, "export", counted)
    layer = nn.Linear(1024, 1024).half()
    program = spyre_mlir.compile(layer, (torch.randn(1, 1024).half(),), cache=False)
    compiled = len(calls)
    text = program.summary()
    assert "may save time: summary(findings=True)" in " ".join(text.split())
    assert "may save" not in program.summary(findings=False)
    assert compiled and len(calls) == compiled
    assert program.findings and len(calls) > compiled
    tried = len(calls)
    assert program.findings is program.findings and "finding 1" in program.summary()
    assert len(calls) == tried


def test_a_program_that_was_read_has_none(tmp_path) -> None:
    model, inputs = PROGRAMS["softmax_dim_0_64x64"]()
    spyre_mlir.compile(model, inputs).save(tmp_path / "program")
    assert spyre_mlir.Program.load(tmp_path / "program").findings == ()


def test_wide_types_are_told() -> None:
    """Float32 operations of the device take less time in float16, in a function too."""
    x = torch.randn(512, 1024)
    program = spyre_mlir.compile(lambda x: torch.relu(x + 1) * x, (x,))
    finding = program.findings[0]
    assert "wider than fp16" in finding.problem
    changed = spyre_mlir.compile(lambda x: torch.relu(x + 1) * x, (x.half(),))
    assert finding.after_us == pytest.approx(device_us(changed))


def test_a_program_that_cannot_be_made_again_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials under another target or other options than the program are not valid for it."""
    layer, x = nn.Linear(1024, 1024).half(), torch.randn(1, 1024).half()
    program = spyre_mlir.compile(layer, (x,))
    monkeypatch.setenv("SENCORES", "8")
    assert program.findings == ()
    monkeypatch.delenv("SENCORES")
    assert spyre_mlir.compile(layer, (x,)).findings


@pytest.mark.parametrize("is_mapping", (True, False))
def test_edits_find_their_inputs(is_mapping: bool) -> None:
    """Numbers are not inputs of a program; a mapping may have another order than the model."""

    def model(x: torch.Tensor, scale: float, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return x * scale + 2 * y + 3 * z

    x, y, z = torch.randn(3, 4, 64).half().unbind(0)
    inputs = {"z": z, "scale": 2.0, "y": y, "x": x} if is_mapping else (x, 2.0, y, z)
    program = spyre_mlir.compile(model, inputs)
    keys = [InputKey(place, value.name) for place, value in enumerate(program.inputs) if value.name == "y"]
    edited, rest = model_compilation.frozen(model, inputs, keys)
    result = edited(**rest) if is_mapping else edited(*rest)
    assert torch.equal(result, model(x, 2.0, y, z)) and len(rest) == 3

    device = {**inputs, "y": spyre_mlir.to_device(y)} if is_mapping else (x, 2.0, spyre_mlir.to_device(y), z)
    _, moved = model_compilation.with_stick_dim(model, device, keys[0], 0)
    tensor = moved["y"] if is_mapping else moved[2]
    assert tensor.layout.stick_dims == (0,) and (tensor.numpy() == y.numpy()).all()
    assert len(model_compilation.places_on_device(device)) == 1


def _sum_with_a_transpose(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y.T


@pytest.mark.parametrize(("device", "change"), [("cpu", "batch of 8 samples"), ("spyre", "stick_dims=[0]")])
def test_the_program_of_a_graph_does_not_keep_the_inputs_of_its_call(device: str, change: str) -> None:
    """Trials use other inputs of the same form."""
    torch._dynamo.reset()
    x = torch.randn(1, 1024).half().to(device)
    model, others = nn.Linear(1024, 1024).half().to(device), ()
    if device == "spyre":
        # The layouts of both differ in the sum, so one of them is converted.
        x, others = torch.randn(1024, 1024).half().to(device), (torch.randn(1024, 1024).half().to(device),)
        model = _sum_with_a_transpose
    with torch.no_grad():
        torch.compile(model, backend="spyre")(x, *others)
    memory = weakref.ref(cast(Any, x).device_tensor.storage if device == "spyre" else x)
    del x
    gc.collect()
    assert memory() is None
    program = spyre_mlir.torch_backend.programs[-1]
    assert isinstance(program, spyre_mlir.Program)
    assert change in program.findings[0].change


def test_trials_end_with_the_budget() -> None:
    program = PROBLEMS[0]().program()
    assert "change" in program.summary() and "findings" not in vars(program)
    text = program.summary(findings=0.0)
    assert program.findings == () and " tried in 0 s, none saves 1%" in text
