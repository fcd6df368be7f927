# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The mapping of cores to slices: reductions fastest, who adds up what, and who holds the finished value."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from spyre_mlir.division import Division
from spyre_mlir.division.cores import core_order, core_steps

M, N, K = 0, 1, 2


def test_partners_of_a_partial_sum_are_neighbours():
    """M8 x K4 as torch-spyre #1986: cores 0 to 3 add up the first rows, and 3, 7, .., 31 finish."""
    division = Division.of((8, 1, 4), (512, 16, 64), frozenset({K}))
    assert division.groups == tuple(tuple(range(first, first + 4)) for first in range(0, 32, 4))
    assert division.finishers == tuple(range(3, 32, 4))
    assert [division.owners[core] for core in (0, 1, 3, 4, 31)] == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 0, 3),
        (1, 0, 0),
        (7, 0, 3),
    ]
    assert division.shares == (64, 16, 16)


def test_without_a_split_reduction_every_core_finishes_its_own():
    """m4 n8: the first dim fastest, groups of one core each."""
    division = Division.of((4, 8, 1), (64, 64, 64), frozenset({K}))
    assert division.owners == Division.mixed_radix((4, 8, 1)).owners
    assert division.finishers == tuple(range(32)) and division.groups == tuple((core,) for core in range(32))


def test_the_order_of_dims():
    """Split reductions come first, then the dims in order; a whole reduction has no factor."""
    assert core_order((8, 1, 4), frozenset({K})) == (K, M, N)
    assert core_order((8, 4, 1), frozenset({K})) == (M, N, K)
    assert core_order((2, 2, 2, 2), frozenset({1, 3})) == (1, 3, 0, 2)


def test_several_reductions_of_one_group_are_counted_like_cores():
    """Two reductions of 2: groups of four neighbours, by rising core."""
    division = Division.of((2, 2, 2, 2), (4, 4, 4, 4), frozenset({1, 3}))
    assert division.groups == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15))


def test_the_mapping_says_who_finishes():
    """Cores in falling order: the last reduction slice is on the first core of each group."""
    falling = Division((2, 1, 3), Division.mixed_radix((2, 1, 3)).owners[::-1], reduced=frozenset({K}))
    assert falling.groups == ((4, 2, 0), (5, 3, 1))
    assert falling.finishers == (0, 1)


def test_slices_of_unequal_size_have_the_largest_share():
    """65 sticks in 22 slices: 3 each, 2 in the last."""
    assert Division.of((22,), (65,)).shares == (3,)


@pytest.mark.parametrize("splits", list(itertools.product((1, 2, 3), (1, 4), (1, 2, 5))))
def test_each_slice_has_one_core_whatever_the_order(splits):
    """The map is a bijection, and each slice is the digit of its step."""
    for order in itertools.permutations(range(3)):
        division = Division.mixed_radix(splits, order)
        assert sorted(division.owners) == sorted(itertools.product(*map(range, splits)))
        steps = core_steps(splits, order)
        for core, own in enumerate(division.owners):
            assert core == sum(index * step for index, step in zip(own, steps, strict=True))


@pytest.mark.parametrize("seed", range(50))
def test_groups_are_the_cores_with_the_same_output(seed):
    """Random mappings in any order: each group has all reduction slices, and its last core the last ones."""
    rng = random.Random(seed)
    splits = tuple(rng.choice((1, 2, 3)) for _ in range(3))
    reduced = frozenset(dim for dim in range(3) if rng.random() < 0.5)
    plain = Division.mixed_radix(splits, rng.sample(range(3), 3))
    division = Division(splits, plain.owners, reduced=reduced)
    assert sorted(core for group in division.groups for core in group) == list(range(math.prod(splits)))
    parts = math.prod(splits[dim] for dim in reduced)
    for group, finisher in zip(division.groups, division.finishers, strict=True):
        outputs = {tuple(division.owners[core][dim] for dim in {0, 1, 2} - reduced) for core in group}
        assert len(outputs) == 1 and len(group) == parts and finisher in group
        assert all(division.owners[finisher][dim] == splits[dim] - 1 for dim in reduced)
