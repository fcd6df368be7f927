# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models on the meta device: the plan and the figures of the model with numbers, and refusals of what needs numbers."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.frontend import decomposed


class Rotated(nn.Module):
    """A linear layer whose result is turned by a table that is computed of a buffer; its weights are tied."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(128, 128, bias=False), nn.Linear(128, 128, bias=False)
        self.second.weight = self.first.weight
        self.norm = nn.RMSNorm(128)
        self.register_buffer(
            "frequencies", 10000.0 ** -(torch.arange(0, 128).float() / 128), persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[0])[:, None] * self.frequencies
        return self.second(self.norm(self.first(x)) * angles.cos().half())


def _compiled(model: nn.Module, x: Tensor) -> spyre_mlir.Program:
    program = spyre_mlir.compile(model, (x,))
    assert isinstance(program, spyre_mlir.Program)
    return program


def test_the_plan_is_that_of_the_model_with_numbers() -> None:
    """Design for design; the model stays on the meta device."""
    numbers = Rotated().half().eval()
    nn.init.uniform_(numbers.norm.weight)  # ones would need no operation
    numbers.frequencies = numbers.frequencies.float()
    model, x = copy.deepcopy(numbers).to("meta"), torch.randn(64, 128).half()
    model.second.weight = model.first.weight  # PyTorch moves each for itself
    by_shapes = _compiled(model, x)
    assert all(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    with_numbers = _compiled(numbers, x)
    assert by_shapes.metrics()["predicted_us"] == with_numbers.metrics()["predicted_us"] > 0
    assert [step.name for step in by_shapes.steps] == [step.name for step in with_numbers.steps]
    assert by_shapes.timeline().executions == with_numbers.timeline().executions


@pytest.fixture(scope="module")
def program() -> spyre_mlir.Program:
    with torch.device("meta"):
        model = nn.Linear(64, 128).half()
    return _compiled(model, torch.zeros(32, 64, device="meta").half())


@pytest.mark.parametrize(
    "use",
    [
        lambda program, _: program(torch.zeros(32, 64).half()),
        lambda program, _: program.run({name: None for name in ("x", "weight", "bias")}),
        lambda program, folder: program.save(folder / "program"),
        lambda program, _: program.lay_out_weights(),
        lambda program, _: pickle.dumps(program),
    ],
)
def test_what_needs_numbers_is_refused(
    program: spyre_mlir.Program, use: Callable[[spyre_mlir.Program, Path], object], tmp_path: Path
) -> None:
    with pytest.raises(
        spyre_mlir.CompileError, match="compile the model with its weights to run or save the program"
    ):
        use(program, tmp_path)
    assert not list(tmp_path.iterdir())


def test_figures_and_pages_need_none(program: spyre_mlir.Program, tmp_path: Path) -> None:
    assert "predicted time" in program.summary()
    assert program.report(tmp_path / "page.html").stat().st_size > 0
    assert program.plan()


def test_an_exported_program() -> None:
    """The graph of the program contains the meta device, so the module must be given."""
    with torch.device("meta"):
        exported = torch.export.export(nn.Linear(64, 64), (torch.zeros(32, 64),))
    with pytest.raises(spyre_mlir.CompileError, match="'weight' is on the meta device, without numbers"):
        spyre_mlir.compile(exported)


def test_the_check_of_writes_through_views_needs_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check runs the model in PyTorch, which a model without numbers may be too large for."""
    runs, run = [], decomposed._results_of
    monkeypatch.setattr(decomposed, "_unproven_view", lambda program: next(iter(program.graph.nodes)))
    monkeypatch.setattr(decomposed, "_results_of", lambda *call: runs.append(call) or run(*call))
    _compiled(nn.Linear(64, 128, device="meta").half(), torch.zeros(32, 64).half())
    assert not runs
    _compiled(nn.Linear(64, 128).half(), torch.zeros(32, 64).half())
    assert len(runs) == 2
