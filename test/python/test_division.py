# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Work division: divided dims, numbers of slices, and owners."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from spyre_mlir.division import Division, work_distribution


def distribute(units, divisible, cores):
    """The slices of an operation without reduced dims, of which some may not be divided."""
    blocked = frozenset(dim for dim, may in enumerate(divisible) if not may)
    return work_distribution(tuple(units), frozenset(), cores, blocked=blocked)


@pytest.mark.parametrize("seed", range(300))
def test_slices_are_equal_whole_and_few_enough(seed):
    """Random spaces: every split divides its dim, dims that must stay whole do, the cores suffice."""
    rng = random.Random(seed)
    units = [
        rng.choice((1, 2, 3, 4, 7, 12, 16, 31, 32, 33, 48, 64, 100, 4096)) for _ in range(rng.randrange(6))
    ]
    divisible = [rng.random() < 0.7 for _ in units]
    cores = rng.randint(1, 32)
    splits = distribute(units, divisible, cores)
    assert len(splits) == len(units) and 1 <= math.prod(splits) <= cores
    for size, split, may in zip(units, splits, divisible, strict=True):
        assert size % split == 0 and (may or split == 1)
    left = cores // math.prod(splits)
    for size, split, may in zip(units, splits, divisible, strict=True):
        assert not may or all((size // split) % more for more in range(2, left + 1)), "cores are left over"


@pytest.mark.parametrize("size", range(1, 130))
def test_one_dim_takes_its_largest_divisor(size):
    for cores in range(1, 33):
        best = max(count for count in range(1, cores + 1) if size % count == 0)
        assert distribute([size], [True], cores) == (best,)
        assert distribute([size], [False], cores) == (1,)


@pytest.mark.parametrize(
    ("units", "divisible", "cores", "splits"),
    [
        ([512, 16], [True, True], 32, (32, 1)),  # the rows of [512, 1024]
        ([1024, 512], [True, False], 32, (32, 1)),
        ([16, 512], [True, False], 32, (16, 1)),  # a reduction over 512 rows keeps 16 sticks
        ([3, 65, 2], [True, True, True], 32, (3, 13, 1) if 39 <= 32 else (1, 13, 2)),
        ([8, 4], [True, True], 32, (8, 4)),
        ([64, 64], [True, True], 12, (1, 8)[::-1]),
        ([5, 5], [True, True], 31, (5, 5)),
        ([31, 33], [True, True], 32, (1, 11)),
        ([64, 1, 128], [True, True, False], 7, (4, 1, 1)),
        ([], [], 32, ()),
        ([1, 1], [True, True], 32, (1, 1)),
    ],
)
def test_the_largest_dim_comes_first(units, divisible, cores, splits):
    """Each dim uses the cores that larger dims left; of equal dims the first has priority."""
    assert distribute(units, divisible, cores) == splits


@pytest.mark.parametrize("splits", list(itertools.product((1, 2, 3, 4), repeat=3)))
def test_each_slice_has_one_owner(splits):
    """Core ids are a mixed radix, the first dim fastest: a bijection between cores and slices."""
    division = Division.mixed_radix(splits)
    owned = list(division.owners)
    assert sorted(owned) == sorted(itertools.product(*(range(split) for split in splits)))
    for core, slices in enumerate(owned):
        weights = (math.prod(splits[:dim]) for dim in range(len(splits)))
        assert core == sum(own * weight for own, weight in zip(slices, weights, strict=True))


def test_neighbours_differ_in_the_first_dim():
    """Mixed radix: slice_0 = core mod s0, slice_1 = (core floordiv s0) mod s1."""
    division = Division.mixed_radix((4, 8))
    assert [division.owners[core] for core in (0, 1, 3, 4, 31)] == [(0, 0), (1, 0), (3, 0), (0, 1), (3, 7)]
