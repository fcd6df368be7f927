# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranges of integers: random models never leave them, and simple models reach both ends."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from spyre_mlir.analysis.integer_ranges import IntegerRanges, Interval
from spyre_mlir.dialects import context as new_context
from spyre_mlir.frontend import import_torch
from spyre_mlir.frontend.padding_masks import GENERALIZE
from spyre_mlir.mlir import PassManager, ir

Model = Callable[[torch.Tensor], torch.Tensor]
SIZE = 7
POSITIONS = torch.arange(SIZE)


def range_of(model: Model, x: torch.Tensor) -> Interval | None:
    """The range of the first result of a model of truth values."""
    context = new_context()
    imported = import_torch(model, (x,), context=context)
    assert imported.module is not None
    with context:
        PassManager.parse(GENERALIZE).run(imported.module.operation)
    function = imported.module.operation.regions[0].blocks[0].operations[0].operation
    block = function.regions[0].blocks[0]
    data = ((value, given.tensor) for value, given in zip(block.arguments, imported.arguments, strict=True))
    known = {value: Interval(int(t.min()), int(t.max())) for value, t in data if t is not None}
    return IntegerRanges(known).of(block.operations[-1].operation.operands[0])


#: Models and the exact ranges of their results, over all inputs.
EXACT: dict[str, tuple[Model, Interval | None]] = {
    "truth values": (lambda x: x.long(), Interval(0, 1)),
    "negative": (lambda x: -3 * x.long(), Interval(-3, 0)),
    "positions": (lambda x: torch.where(x, POSITIONS, -POSITIONS), Interval(-6, 6)),
    "running sum": (lambda x: x.long().cumsum(0), Interval(0, SIZE)),
    "parts": (lambda x: torch.cat([x.long()[2:] + 5, x.long()[:2]]), Interval(0, 6)),
    "limits": (lambda x: (x.long() * 20 + POSITIONS).clamp(3, 9), Interval(3, 9)),
    "never negative": (lambda x: torch.where((x.long() + 1) < 0, 100, x.long()), Interval(0, 1)),
    "a sum": (lambda x: x.long().sum(0, keepdim=True) + 0 * POSITIONS, None),
    "a number that fits no more": (lambda x: x.long() * (1 << 62) * 4, None),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_ranges(name: str) -> None:
    model, expected = EXACT[name]
    assert range_of(model, torch.zeros(SIZE, dtype=torch.bool)) == expected


STEPS: list[Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = [
    lambda value, x: value + POSITIONS,
    lambda value, x: value * 3 - x.long(),
    lambda value, x: value.minimum(POSITIONS) * 2,
    lambda value, x: value.clamp(-4, 11),
    lambda value, x: value.cumsum(0),
    lambda value, x: torch.where(value < POSITIONS, value, -value),
    lambda value, x: torch.where(x, value, 5),
    lambda value, x: torch.cat([value[3:], value[:3]]),
    lambda value, x: value.to(torch.int32).long(),
    lambda value, x: value * value.maximum(POSITIONS),
]


@pytest.mark.parametrize("seed", range(12))
def test_random_models(seed: int) -> None:
    """No element of 20 random inputs is outside of the range."""
    draw, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    steps = draw.choices(STEPS, k=5)

    def model(x: torch.Tensor) -> torch.Tensor:
        value = x.long()
        for step in steps:
            value = step(value, x)
        return value

    found = range_of(model, torch.zeros(SIZE, dtype=torch.bool))
    assert found is not None
    for _ in range(20):
        result = model(torch.rand(SIZE, generator=generator) > 0.5)
        assert found.lower <= result.min() and result.max() <= found.upper


def test_signed_operations_on_truth_values_have_no_range() -> None:
    """``arith.extsi`` of true is -1."""
    text = """
    func.func @f(%x: i1) -> (i64, i64) {
      %signed = arith.extsi %x : i1 to i64
      %unsigned = arith.extui %x : i1 to i64
      return %signed, %unsigned : i64, i64
    }"""
    with new_context():
        module = ir.Module.parse(text)
        end = module.operation.regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[-1]
        signed, unsigned = end.operation.operands
        assert IntegerRanges({}).of(signed) is None and IntegerRanges({}).of(unsigned) == Interval(0, 1)
