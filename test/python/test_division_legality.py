# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Legality of divisions that a user writes."""

from __future__ import annotations

import itertools
import random

import pytest
from division_spaces import Operand, legal_splits, matmul_of, random_space, space_of

from spyre_mlir.division.spans import core_order_problem, division_problem


@pytest.mark.parametrize("seed", range(20))
def test_exactly_the_legal_splits_are_taken(seed: int):
    """All splits without an empty slice with at most one reduced dim, and no others."""
    rng = random.Random(seed)
    space = random_space(rng, [rng.choice((1, 3, 6, 128)) for _ in range(rng.randint(1, 3))])
    legal = {
        splits
        for splits in legal_splits(space.units, 6, uneven=True)
        if sum(splits[dim] > 1 for dim in space.reduced) <= 1
    }
    for splits in itertools.product(range(8), repeat=len(space.units)):
        assert (division_problem(space, splits, 6) is None) == (splits in legal)


@pytest.mark.parametrize(
    ("splits", "options", "reason"),
    [
        ((31, 1, 1), {}, "dim 0 has 64 rows or sticks, so the last of 31 slices has no work"),
        ((2, 2), {}, "the operation has 3 dims, of [64, 4, 8] rows or sticks"),
        ((0, 1, 1), {}, "dim 0 has 0 slices; it has at least 1"),
        ((16, 4, 1), {}, "it needs 64 cores, there are 32"),
        ((1, 1, 2), {"blocked": frozenset({2})}, "dim 2 stays whole, because the operation does not form"),
        ((1, 1, 2), {"combines": False}, "dim 2 is reduced, and partial results"),
        ((1, 3, 1), {}, "dim 1 has 4 rows or sticks, so the last of 3 slices has no work"),
    ],
)
def test_reasons(splits, options, reason):
    """A matmul of 64 x 256 x 512: one sentence for each rule."""
    assert reason in (division_problem(matmul_of(64, 256, 512), splits, 32, **options) or "")


def test_slices_that_differ():
    """All but the last are equal."""
    assert division_problem(matmul_of(64, 256, 512), (5, 1, 1), 32) is None


def test_a_core_that_reaches_too_far():
    """Half of 1 GiB is more than a core can span, an eighth is not."""
    space = space_of((1 << 15, 1 << 14), Operand((0, 1), (1, 0)), Operand((0, 1), (1, 0)))
    assert "a core would span" in (division_problem(space, (2, 1), 32) or "")
    assert division_problem(space, (8, 1), 32) is None


def test_core_orders():
    """Each dim in several slices once, no other."""
    assert core_order_problem((4, 1, 2), (2, 0)) is None
    assert [core_order_problem((4, 1, 2), order) is None for order in [(0,), (0, 1, 2), (0, 0), ()]] == [
        False
    ] * 4
