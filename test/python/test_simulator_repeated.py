# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Repeated runs: results, counters, losses and errors equal an ordinary run."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir.simulator import SimulationError, run, sequence_run
from spyre_mlir.simulator.sequence_run import prepared_runs

SHAPES = {"x": (48, 200), "y": (200,)}


def normalised(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x * y, -1) @ x.T


def gathered(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x[(y[:8].abs() * 4).long().clamp(0, 47)] + 1


def summed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y).float().sum(-1)


def operands(seed: int, dtype: torch.dtype, scale: float = 1.0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple((scale * torch.randn(shape, generator=generator)).to(dtype) for shape in SHAPES.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("model", [normalised, summed])
def test_a_repeated_run_is_an_ordinary_one(model: Any, dtype: torch.dtype):
    program = spyre_mlir.compile(model, operands(0, dtype))
    for seed in range(5):
        inputs = operands(seed, dtype, 1.0 + seed)
        made = program(*inputs)
        kept, runs = [step.bundle for step in program.bundles], [step.last_run for step in program.bundles]
        for step in program.bundles:
            step.bundle = copy.deepcopy(step.bundle)
        expected = program(*inputs)
        for step, bundle, last in zip(program.bundles, kept, runs, strict=True):
            assert last is not None and step.last_run is not None
            assert last.statistics == step.last_run.statistics
            step.bundle = bundle
        assert torch.equal(made, expected)
    choices = (program.numerics, None)
    assert all(prepared_runs.find(step.bundle, choices) is not None for step in program.bundles)


def test_losses_are_of_each_run():
    program = spyre_mlir.compile(lambda x: x * x, (torch.ones(8, 64).half(),))
    for _ in range(2):
        for number, is_lost in ((2.0, False), (1000.0, True), (3.0, False)):
            x = torch.full((8, 64), number).half()
            if is_lost:
                with pytest.warns(spyre_mlir.RangeWarning):
                    program(x)
            else:
                assert torch.equal(program(x), x * x)
            assert program.last_run is not None and bool(program.last_run.losses) == is_lost


def test_errors_are_those_of_an_ordinary_run():
    program = spyre_mlir.compile(lambda x: x + 1, (torch.ones(8, 64).half(),))
    bundle, (name,) = (
        program.bundle,
        [argument.array_name for argument in program.bundle.manifest.arguments if argument.kind == "input"],
    )
    constants = {key: value for key, value in program.arrays.items()}
    for _ in range(3):
        run(bundle, {**constants, name: np.ones((8, 64), np.float16)})
    with pytest.raises(SimulationError, match="has shape"):
        run(bundle, {**constants, name: np.ones((8, 65), np.float16)})
    with pytest.raises(SimulationError, match="no array was given"):
        run(bundle, constants)


def test_gathers_are_not_kept():
    inputs = operands(0, torch.float16)
    program = spyre_mlir.compile(gathered, inputs)
    for seed in range(4):
        inputs = operands(seed, torch.float16)
        assert torch.equal(program(*inputs), gathered(*inputs))


def test_kept_runs_are_bounded(monkeypatch: pytest.MonkeyPatch):
    before = prepared_runs.nbytes
    monkeypatch.setattr(sequence_run, "_MOST_BYTES_OF_ALL", before + 100_000)
    programs = [spyre_mlir.compile(lambda x: x + 1, (torch.ones(rows, 64).half(),)) for rows in range(1, 9)]
    for rows, program in enumerate(programs, 1):
        for _ in range(3):
            assert torch.equal(program(torch.ones(rows, 64).half()), torch.full((rows, 64), 2.0).half())
    assert prepared_runs.nbytes <= before + 100_000
