# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dim flips: which divisions strategy B tries for one operation."""

from __future__ import annotations

import random

import pytest
from division_spaces import Operand, legal_splits, matmul_of, random_space, space_of

from spyre_mlir.division import Division
from spyre_mlir.division_search.strategy_b import DEFAULT_VARIANT_CAP, dim_flips
from spyre_mlir.layout import BufferView, Digit, StickLayout
from spyre_mlir.layout.space import Space
from spyre_mlir.target.target import default_target


def flips(space: Space, *seed: int, blocked: frozenset[int] = frozenset(), cap: int = 6):
    """The splits of all variants."""
    division = Division.of(seed, space.units, space.reduced)
    return [each.splits for each in dim_flips(space, division, blocked, cap)]


def in_pieces(columns: int) -> Space:
    """Return one tensor of 384 rows in 4 pieces of 96."""
    layout = StickLayout(
        default_target(),
        (384, columns),
        "f16",
        (Digit(0, 96), Digit(1, 64), Digit(0, 1, 96), Digit(1, 1, 64)),
    )
    view = BufferView.of(layout)
    return Space(view.shape, (view,), (frozenset({0, 1}),))


def test_a_split_moves_to_the_other_dim():
    """16 slices of 512 rows, or of 16 columns of sticks."""
    assert flips(space_of((512, 1024), Operand((0, 1)), Operand((0, 1))), 16, 1) == [(16, 1), (1, 16)]


def test_slices_are_whole_sticks():
    """1024 columns are 16 sticks and cannot have 32 slices."""
    assert flips(space_of((512, 1024), Operand((0, 1)), Operand((0, 1))), 32, 1) == [(32, 1)]


def test_rows_and_columns_of_a_matmul_but_not_its_sum():
    """The factor stays on output dims."""
    assert flips(matmul_of(512, 2048, 4096), 32, 1, 1) == [(32, 1, 1), (1, 32, 1)]


@pytest.mark.parametrize("seed", ((2, 2, 1), (1, 1, 4), (2, 1, 2), (1, 1, 1)))
def test_several_splits_and_split_sums_stay(seed: tuple[int, ...]):
    """ "Scratchpad (LX) optimization" flips only divisions with one split, of a dim of the result."""
    assert flips(matmul_of(512, 512, 512), *seed) == [seed]


def test_blocked_dims_get_no_split_and_keep_their_own():
    """A mask requires a whole dim; a pinned dim keeps its slices."""
    space = space_of((64, 64, 64), Operand((0, 1, 2)), Operand((0, 1, 2)))
    assert flips(space, 4, 1, 1, blocked=frozenset({1})) == [(4, 1, 1)]
    assert flips(space_of((64, 64), Operand((0, 1)), Operand((0, 1))), 4, 1, blocked=frozenset({0})) == [
        (4, 1)
    ]


def test_no_core_spans_too_much():
    """Columns of sticks lie outside rows, so slices of 16384 x 16384 by rows span 512 MiB, those by columns less."""
    operands = (Operand((0, 1)), Operand((0, 1)))
    assert flips(space_of((16384, 16384), *operands), 1, 32) == [(1, 32)]
    assert flips(space_of((4096, 4096), *operands), 1, 32) == [(1, 32), (32, 1)]


def test_what_a_core_touches_is_a_region():
    """The rows are 4 pieces of 96, on which 4 slices of them fall, but not 3."""
    assert flips(in_pieces(3 * 64), 1, 3) == [(1, 3)]
    assert flips(in_pieces(4 * 64), 1, 4) == [(1, 4), (4, 1)]


def test_at_most_six_variants():
    """The seed counts, and comes first; the others are by rising dim."""
    space = space_of((4,) * 8 + (64,), Operand(tuple(range(9))), Operand(tuple(range(9))))
    seed = (1, 1, 1, 4, 1, 1, 1, 1, 1)
    found = flips(space, *seed)
    assert len(found) == DEFAULT_VARIANT_CAP == 6
    assert found[0] == seed
    assert [splits.index(4) for splits in found[1:]] == [0, 1, 2, 4, 5]
    assert flips(space, *seed, cap=1) == [seed]


@pytest.mark.parametrize("number", range(40))
def test_random_spaces_against_all_divisions(number: int):
    """All legal divisions with the factor of the seed on one output dim, where regions allow them."""
    rng = random.Random(number)
    space = random_space(rng, [rng.choice((1, 4, 8, 64, 128, 256)) for _ in range(3)])
    factor, outputs = rng.choice((2, 4, 8)), [dim for dim in range(3) if dim not in space.reduced]
    legal = [
        splits
        for splits in legal_splits(space.units, factor)
        if sorted(splits) == [1, 1, factor] and splits.index(factor) in outputs
    ]
    for seed in legal:
        assert sorted(flips(space, *seed)) == sorted(legal)
