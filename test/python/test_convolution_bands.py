# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Convolutions in bands of rows: the numbers of any division are exact, and taps read their rows from LX."""

from __future__ import annotations

import math
import random

import pytest
import torch
from suite_checks import check_traffic
from test_convolution import check_exact, whole_numbers
from torch import Tensor, nn

import spyre_mlir
from spyre_mlir.bundle.model import Execute
from spyre_mlir.rewriting import window_forms


def bands(program: spyre_mlir.Program) -> list[str]:
    """Return the remarks on ops with windows that are cut into bands."""
    return [
        each.reason
        for each in program.remarks
        if each.pass_name == "unroll-windows" and "bands" in each.reason
    ]


def random_convolution(rng: random.Random) -> tuple[nn.Module, tuple[int, ...]]:
    """Return a convolution with stride 1 and padding that keeps the number of rows; other parameters are random."""
    kernel = (rng.choice((1, 3, 3, 5)), rng.choice((1, 2, 3, 5)))
    dilation = (rng.choice((1, 1, 2)), rng.choice((1, 1, 2)))
    groups = rng.choice((1, 1, 2, 64))
    inputs = groups if groups == 64 else groups * rng.choice((3, 16, 64, 65))
    outputs = inputs if groups == 64 else groups * rng.choice((1, 32, 64, 96))
    padding = (dilation[0] * (kernel[0] - 1) // 2, rng.randint(0, kernel[1]))
    model = nn.Conv2d(inputs, outputs, kernel, 1, padding, dilation, groups, bias=rng.random() < 0.5)
    least = dilation[1] * (kernel[1] - 1) + 1
    rows = rng.choice((4, 6, 8, 12)) if kernel[0] < 5 else 16
    return model, (rng.choice((1, 1, 2)), inputs, rows, rng.randint(least, least + 9))


@pytest.mark.parametrize("seed", range(24))
def test_random_convolutions_are_exact(seed, monkeypatch):
    """Kernels, dilation, padding, groups, channels that fill no stick, batches, whether bands are worth it or not."""
    monkeypatch.setattr(window_forms, "_GAIN", math.inf)
    rng = random.Random(seed)
    model, shape = random_convolution(rng)
    cores = rng.choice((2, 4, 8, 32))
    program = check_exact(*whole_numbers(model, *shape, seed=seed), sencores=cores, native_windows=False)
    check_traffic(program)
    assert bands(program) or max(model.kernel_size) == 1 or shape[0] * shape[2] < 2


class Chain(nn.Module):
    """Two convolutions and a sum with what went in."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.clamp(self.first(x), -1, 1)) + x


@pytest.mark.parametrize("cores", (7, 32))
def test_taps_read_bands_in_lx(cores):
    """Device memory has each argument and result once, and the rows that two bands read: no tap reads it nine times."""
    model, x = whole_numbers(Chain(64), 1, 64, 56, 56)
    program = check_exact(model, x, sencores=cores, native_windows=False)
    check_traffic(program)
    assert bands(program) == ["a window of 3 x 3; each image in 7 bands of 8 rows, with halos"] * 2
    facts = program.facts()
    assert facts.traffic < 1.5 * facts.argument_bytes
    read = [each.read_bytes for each in program.timeline().executions if each.work.opcode == "batchmatmul"]
    assert len(read) == 18 and max(read) == 64 * 64 * 2
    assert _offsets(program, "batchmatmul") == {
        128 * (58 * row + column) for row in range(3) for column in range(3)
    }


def _offsets(program: spyre_mlir.Program, opcode: str) -> set[int]:
    """Bytes from where a buffer begins in LX to where operations read their first operand."""
    bundle = program.bundle
    buffers = {buffer.name: buffer for buffer in bundle.manifest.buffers}
    executes = [each for each in bundle.statements if isinstance(each, Execute)]
    found = set()
    for statement, names in zip(executes, bundle.manifest.uses, strict=True):
        design = bundle.designs[statement.filename]
        if design.opcode == opcode:
            found |= {start - buffers[names[0]].offset for start in design.operands[0].start}
    return found


@pytest.mark.parametrize(
    "model",
    [
        nn.Conv2d(64, 64, 3, stride=2, padding=1),
        nn.Conv2d(64, 64, 3),
        nn.Conv2d(64, 64, 1),
        nn.Conv2d(512, 512, 3, padding=1),
    ],
    ids=["steps", "fewer rows", "one position", "too little to read"],
)
def test_other_convolutions_are_in_one_piece(model):
    """Steps, results of another height, one tap; and where many cores are worth more than what taps read."""
    found = whole_numbers(model, 1, model.in_channels, 7, 7)
    assert not bands(spyre_mlir.compile(found[0], (found[1],)))
