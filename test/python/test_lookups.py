# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lookups by a number that is known, and of what pointwise operations compute."""

from __future__ import annotations

import pytest
import torch
from programs import Apply, check_close
from torch import Tensor

import spyre_mlir


def test_a_lookup_of_one_row_everywhere_is_no_gather():
    torch.manual_seed(9)

    def model(x: Tensor, table: Tensor) -> Tensor:
        return x + torch.nn.functional.embedding(torch.full((2, 5), 1), table)

    inputs = torch.randn(2, 5, 65).half(), torch.randn(3, 65).half()
    program = spyre_mlir.compile(model, inputs)
    check_close("lookup", program(*inputs), Apply(model), inputs)
    assert [opcode for opcode, *_ in program.traffic().by_op] == ["add"]


def _log_probability(x: Tensor, token: Tensor) -> Tensor:
    return torch.log_softmax(x, -1).gather(-1, token[..., None])[..., 0]


def _scaled(x: Tensor, scale: Tensor, columns: Tensor) -> Tensor:
    return (x * scale + 1).gather(1, columns)


def _drawn(x: Tensor, columns: Tensor) -> Tensor:
    return torch.nn.functional.relu(x).gather(1, columns) + x.exp().sum()


_ROWS, _TOKENS = torch.randn(8, 700).half(), torch.randint(0, 700, (8, 1))


@pytest.mark.parametrize(
    ("function", "inputs", "limit"),
    [
        # All logits are read once, and of the log probabilities none is written.
        (torch.nn.functional.cross_entropy, (_ROWS, _TOKENS[:, 0]), 8 * 704 * 2 * 1.5),
        (_log_probability, (_ROWS, _TOKENS[:, 0]), 8 * 704 * 2 * 1.5),
        (_log_probability, (_ROWS.view(2, 4, 700), _TOKENS.view(2, 4)), 8 * 704 * 2 * 1.5),
        # One factor per row: the device computes the looked up elements alone.
        (_scaled, (_ROWS, torch.randn(8, 1).half(), _TOKENS), 8 * 128 * 4),
        (_drawn, (_ROWS, _TOKENS), 8 * 704 * 2 * 1.5),
    ],
)
def test_elements_are_looked_up_before_they_are_computed(function, inputs, limit):
    """A gather after pointwise operations becomes a gather of their operands."""
    program = spyre_mlir.compile(Apply(function), inputs)
    check_close("lookup", program(*inputs), Apply(function), inputs)
    assert sum(step.facts().traffic for step in program.bundles) < limit


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        # A factor per column would have to be looked up in another shape, and one of part of the rows, too.
        (_scaled, (_ROWS, torch.randn(700).half(), _TOKENS)),
        (_scaled, (_ROWS, torch.randn(1, 700).half(), _TOKENS)),
        (_scaled, (_ROWS, torch.randn(8, 1).half(), _TOKENS[:3])),
        # More lookups than there are elements.
        (_scaled, (_ROWS[:, :2], torch.randn(8, 1).half(), _TOKENS.expand(8, 5) % 2)),
    ],
)
def test_lookups_that_stay_behind(function, inputs):
    """Lookups after computed values run, and the numbers are right."""
    program = spyre_mlir.compile(Apply(function), inputs)
    check_close("lookup", program(*inputs), Apply(function), inputs)
    assert type(program.steps[-1]).__name__ == "HostStep"
