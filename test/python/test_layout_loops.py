# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layouts through loops: the offsets of slices, slices that move, whole programs."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from aliasing import run_with_aliases
from cpu_reference import CpuReference
from loop_programs import random_loop_program

from spyre_mlir import dialects
from spyre_mlir.layout import BufferView, StickLayout, ViewError
from spyre_mlir.layout.view_transforms import Offsets, Slice, collapse
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import run_pipeline
from spyre_mlir.target.target import default_target


def numbers(offsets: Offsets) -> set[int]:
    return {offsets.first + k * offsets.step for k in range(offsets.count)}


@pytest.mark.parametrize("seed", range(50))
def test_arithmetic_leaves_no_offset_out(seed: int) -> None:
    """The value of an expression for any two offsets is one of the offsets of the expression."""
    rng = random.Random(seed)
    left, right = (Offsets(rng.randrange(20), rng.randrange(1, 9), rng.randrange(1, 9)) for _ in range(2))
    factor, divisor = rng.randrange(-4, 5), rng.randrange(1, 9)
    assert {a + b for a, b in itertools.product(numbers(left), numbers(right))} <= numbers(left + right)
    assert {a * factor for a in numbers(left)} <= numbers(left * factor)
    assert {a // divisor for a in numbers(left)} <= numbers(left // divisor)
    assert {a % divisor for a in numbers(left)} <= numbers(left % divisor)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (Offsets(0, 1, 8) * 64, Offsets(0, 64, 8)),
        (Offsets(0, 256, 2) + Offsets(0, 64, 4), Offsets(0, 64, 8)),
        (Offsets(0, 1, 8) % 4 * 64, Offsets(0, 64, 4)),
        (Offsets(0, 1, 8) // 4 * 128, Offsets(0, 128, 2)),
        (Offsets(0, 0, 0) * 64, Offsets(0)),
    ],
)
def test_what_tiles_need_is_known_exactly(expression: Offsets, expected: Offsets) -> None:
    """Multiples, sums of two loops, and a loop variable that represents two of them are exact."""
    assert expression == expected


@pytest.mark.parametrize("seed", range(200))
def test_a_moving_slice_is_a_view_if_it_lies_alike_everywhere(seed: int) -> None:
    """The slice is a view exactly if the slices at all its offsets are views that differ only in their offset."""
    rng = random.Random(seed)
    view, dim = random_view(rng)
    size = rng.choice([s for s in (1, 16, 32, 64, 96, 128) if s <= view.shape[dim]])
    step = rng.choice((1, 16, 32, 64, 96, 128))
    moves = Offsets(rng.choice((0, 0, 64, 32)) % (view.shape[dim] - size + 1), step, 1)
    moves = Offsets(moves.first, step, 1 + (view.shape[dim] - size - moves.first) // step)
    places = [at_offset(view, dim, offset, size) for offset in sorted(numbers(moves))]
    moving = Slice(*placed(view, dim, moves.first, size), moves=((dim, moves),))
    if None in places or len({(p.axes, p.stick_dim, p.shape) for p in places}) > 1:
        with pytest.raises(ViewError):
            moving.apply(view)
    else:
        assert moving.apply(view) == places[0]


def random_view(rng: random.Random) -> tuple[BufferView, int]:
    """A tensor of rank 2, or one of rank 3 with two dims made one, and a dim of it."""
    shape = rng.choice([(256, 192), (128, 320), (4, 96, 128), (3, 128, 64)])
    order = rng.sample(range(len(shape)), len(shape))
    view = BufferView.of(StickLayout.for_tensor(default_target(), shape, "f16", order))
    try:
        view = collapse(view, [[0, 1], [2]]) if len(shape) == 3 else view
    except ViewError:
        view = view.transpose([2, 1, 0])
    return view, rng.randrange(len(view.shape))


def placed(view: BufferView, dim: int, offset: int, size: int):
    offsets = tuple(offset if at == dim else 0 for at in range(len(view.shape)))
    sizes = tuple(size if at == dim else extent for at, extent in enumerate(view.shape))
    return offsets, sizes, (1,) * len(sizes)


def at_offset(view: BufferView, dim: int, offset: int, size: int) -> BufferView | None:
    try:
        return view.slice(*placed(view, dim, offset, size))
    except ViewError:
        return None


@pytest.mark.parametrize("seed", range(60))
def test_buffers_hold_what_their_readers_expect(seed: int) -> None:
    """A random program of loops, with the memory shared as in its laid-out form, has the right results."""
    program, inputs = random_loop_program(random.Random(seed))
    module = ir.Module.parse(program, dialects.context())
    expected = CpuReference(module)(*inputs.values())
    run_pipeline(module, "verify-device-ops,choose-layouts,verify-laid-out")
    results = run_with_aliases(module.body.operations[0].operation, inputs)
    for array, right in zip(results, expected, strict=True):
        np.testing.assert_allclose(array, right, atol=0.02)
