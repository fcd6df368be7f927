# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Run lengths of tiles against the sticks that a tile touches, marked one by one."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from layout_cases import addresses, random_form, random_layout, random_step, view_step, with_pieces

from spyre_mlir.layout import BufferView, Digit, StickLayout, ViewError
from spyre_mlir.target.target import default_target


def shortest_run(view: BufferView, tile: tuple[int, ...]) -> int:
    """The shortest maximal run, in bytes, of adjacent sticks that any whole tile touches."""
    where = addresses(view)
    touched = np.zeros(where.max() // view.elements_per_stick + 2, bool)
    sizes = [min(size, extent) for size, extent in zip(tile, view.shape, strict=True)]
    begins = [range(0, extent - size + 1, size) for size, extent in zip(sizes, view.shape, strict=True)]
    shortest = None
    for begin in itertools.product(*begins):
        part = where[tuple(slice(b, b + size) for b, size in zip(begin, sizes, strict=True))]
        touched[:] = False
        touched[part // view.elements_per_stick] = True
        edges = np.flatnonzero(np.diff(touched.astype(np.int8), prepend=0))
        run = int((edges[1::2] - edges[::2]).min())
        shortest = run if shortest is None else min(shortest, run)
    assert shortest is not None
    return 128 * shortest


def random_view(rng: random.Random) -> BufferView:
    """A random layout of any form, every other with a dim in pieces, after a few view operations."""
    layout = random_form(rng, 300) if rng.random() < 0.5 else with_pieces(rng, random_layout(rng, 300))
    view = BufferView.of(layout)
    for _ in range(rng.randrange(4)):
        name, arguments = random_step(rng, view.shape)
        try:
            view = view_step(view, name, arguments)
        except ViewError:
            continue
    return view


def random_tile(rng: random.Random, view: BufferView) -> tuple[int, ...]:
    """Any sizes, often the whole dim or one that divides it."""
    return tuple(rng.choice([1, rng.randint(1, size), size, size // 2 or 1, size + 1]) for size in view.shape)


@pytest.mark.parametrize("seed", range(500))
def test_no_run_is_shorter_than_promised(seed):
    """Every tile has runs of at least the bound; of exactly the bound where each dim is in one piece."""
    rng = random.Random(seed)
    view = random_view(rng)
    tile = random_tile(rng, view)
    run = view.run_bytes(tile)
    assert run >= 128 and run % 128 == 0
    assert run <= shortest_run(view, tile)
    if len({axis.dim for axis in view.axes}) == len(view.axes) and all(
        axis.divisor == view.stick_elements(axis.dim) for axis in view.axes
    ):
        assert run == shortest_run(view, tile)


def test_runs_of_dims_in_pieces_are_seldom_underestimated():
    """The test above would hold for one stick always; of views in pieces nine in ten are exact."""
    exact = longer = 0
    for seed in range(3000):
        rng = random.Random(seed)
        view = random_view(rng)
        tile = random_tile(rng, view)
        if len({axis.dim for axis in view.axes}) == len(view.axes):
            continue
        run = view.run_bytes(tile)
        exact += run == shortest_run(view, tile)
        longer += run != shortest_run(view, tile)
    assert exact > 9 * longer > 0


#: Of [4, 12, 200] fp16, default order: device size (12, 4, 4, 64), dim 0 innermost before the stick.
RUNS = [
    ((4, 12, 200), 12 * 4 * 4),
    ((4, 6, 200), 6 * 4 * 4),
    ((4, 6, 199), 6 * 4 * 4),
    ((4, 6, 128), 4 * 2),
    ((4, 6, 65), 4 * 2),
    ((4, 6, 64), 4),
    ((4, 1, 1), 4),
    ((3, 12, 200), 3),
    ((1, 12, 200), 1),
    ((99, 1, 999), 4 * 4),
]


@pytest.mark.parametrize(("tile", "sticks"), RUNS)
def test_runs_grow_from_the_innermost_dim(tile, sticks):
    """A run extends into the next dim only if the tile has the whole previous dim, in whole sticks."""
    assert (
        BufferView.of(StickLayout.for_tensor(default_target(), (4, 12, 200), "f16")).run_bytes(tile)
        == 128 * sticks
    )


def test_runs_end_at_gaps():
    """A slice of the inner rows leaves gaps; padding after the rows is a gap as well; a sparse tensor has none."""
    view = BufferView.of(StickLayout.for_tensor(default_target(), (8, 128), "f16"))
    assert view.run_bytes((8, 128)) == 16 * 128
    assert view.slice([0, 0], [6, 128], [1, 1]).run_bytes((6, 128)) == 6 * 128
    assert view.slice([0, 0], [4, 128], [2, 1]).run_bytes((4, 128)) == 128
    padded = BufferView.of(StickLayout.for_tensor(default_target(), (8, 128), "f16").padded(0, 64))
    assert padded.run_bytes((8, 128)) == 8 * 128
    sparse = BufferView.of(StickLayout.for_tensor(default_target(), (8, 6), "f16", [1, 0, -1]))
    assert sparse.run_bytes((8, 6)) == 48 * 128 and sparse.run_bytes((1, 3)) == 3 * 128


def test_runs_of_dims_in_pieces():
    """Rows in pieces of 4: tiles of 2, 4 and 8 fall on them, tiles of 3 and 6 only on parts of 1 and 2."""
    digits = (Digit(0, 4), Digit(1, 64), Digit(0, 1, 4), Digit(1, 1, 64))
    view = BufferView.of(StickLayout(default_target(), (24, 128), "f16", digits))
    runs = [view.run_bytes((rows, 128)) // 128 for rows in (1, 2, 3, 4, 6, 8, 24)]
    assert runs == [1, 2, 1, 8, 2, 16, 48]
    assert view.run_bytes((8, 64)) == 4 * 128


def test_runs_of_several_stick_dims():
    """int8 [K=8, N=128] in sticks of 2 x 64: four sticks of K are adjacent; one K takes a stick as two do."""
    view = BufferView.of(StickLayout.for_tensor(default_target(), (8, 128), "i8", sticks=((0, 2), (1, 64))))
    runs = [view.run_bytes(tile) // 128 for tile in ((8, 128), (8, 64), (4, 128), (3, 64), (2, 64), (1, 1))]
    assert runs == [8, 4, 2, 2, 1, 1]
