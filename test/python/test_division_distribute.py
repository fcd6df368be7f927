# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Work distribution: output dims by size, one reduction dim, slices that are equal or as equal as can be."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from division_spaces import matmul_of

from spyre_mlir.division import required_splits, work_distribution

NONE: frozenset[int] = frozenset()
COUNTS = (1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 31, 32, 33, 48, 64, 65, 100, 127)


def _largest_share(units: tuple[int, ...], splits: tuple[int, ...]) -> int:
    return math.prod(math.ceil(size / split) for size, split in zip(units, splits, strict=True))


def test_a_product_whose_reduction_is_split_for_its_span():
    """A[8192, 32768] x W[32768, 4096] on 32 cores: K = 2 for the span, then M = 16, and N is whole."""
    space = matmul_of(8192, 4096, 32768)
    committed = required_splits(space, 32)
    assert work_distribution(space.units, space.reduced, 32, committed) == (16, 1, 2)


@pytest.mark.parametrize(
    ("units", "reduced", "cores", "splits"),
    [
        ((512, 64, 64), {2}, 32, (32, 1, 1)),
        ((8, 2, 64), {2}, 32, (8, 2, 2)),  # the output dims leave two cores
        ((8, 4, 64), {2}, 32, (8, 4, 1)),
        ((1, 6, 9, 10), {2, 3}, 32, (1, 6, 1, 5)),  # of 9 and 10 the one with the larger divisor up to 5
        ((1, 10, 10), {1, 2}, 32, (1, 10, 1)),  # only one, the first of equals
        ((7, 31), NONE, 30, (7, 1)),  # prime: 31 does not fit
        ((3,), NONE, 32, (3,)),  # fewer sticks than cores
        ((65,), NONE, 32, (13,)),
        ((), NONE, 32, ()),
    ],
)
def test_output_dims_come_first_then_one_reduction(units, reduced, cores, splits):
    assert work_distribution(units, frozenset(reduced), cores) == splits


@pytest.mark.parametrize(
    ("committed", "splits"),
    [
        ((1, 1, 1), (24, 1, 1)),
        ((1, 2, 1), (12, 2, 1)),
        ((8, 1, 1), (24, 1, 1)),  # a multiple of 8
        ((1, 5, 1), (6, 5, 1)),
        ((1, 1, 3), (8, 1, 3)),  # a committed reduction does not grow, and is the only one
    ],
)
def test_committed_splits_are_included(committed, splits):
    """[24, 10] sticks and a reduction of 9 over 32 cores."""
    assert work_distribution((24, 10, 9), frozenset({2}), 32, committed) == splits


def test_a_committed_reduction_is_the_only_one():
    """Output dims cannot use the remaining cores, and 4 would divide either reduction: the committed one grows."""
    assert work_distribution((3, 4, 4), frozenset({1, 2}), 32) == (3, 4, 1)
    assert work_distribution((3, 4, 4), frozenset({1, 2}), 32, (1, 1, 2)) == (3, 1, 4)


def test_blocked_dims_are_not_split_further():
    """Neither output dims nor reductions are split further, evenly or not; committed splits stay."""
    for uneven in (False, True):
        blocked = {"blocked": frozenset({0, 2}), "uneven": uneven}
        assert work_distribution((64, 4, 64), frozenset({2}), 32, **blocked) == (1, 4, 1)
        assert work_distribution((64, 4, 64), frozenset({2}), 32, (2, 1, 1), **blocked) == (2, 4, 1)


@pytest.mark.parametrize(
    ("committed", "message"),
    [
        ((8, 8), "Committed splits .8, 8. need more than 32 cores"),
        ((7, 1), "7 committed slices do not divide the 64 units of dim 0"),
        ((2,), "1 splits are committed for 2 dims"),
    ],
)
def test_committed_splits_that_cannot_be(committed, message):
    with pytest.raises(ValueError, match=message):
        work_distribution((64, 64), NONE, 32, committed)
    with pytest.raises(ValueError, match="at least one core, not 0"):
        work_distribution((64, 64), NONE, 0)


@pytest.mark.parametrize("cores", range(1, 33))
def test_even_slices_on_every_number_of_cores(cores):
    """Random spaces: equal slices, multiples of the committed, no output dim that could take more."""
    rng = random.Random(cores)
    for _ in range(30):
        units = tuple(rng.choice(COUNTS) for _ in range(rng.randint(1, 4)))
        reduced = frozenset(dim for dim in range(len(units)) if rng.random() < 0.3)
        committed = _random_committed(rng, units, reduced, cores)
        splits = work_distribution(units, reduced, cores, committed)
        assert math.prod(splits) <= cores
        for size, split, least in zip(units, splits, committed, strict=True):
            assert size % split == 0 and split % least == 0
        assert sum(splits[dim] > 1 for dim in reduced) <= 1
        left = cores // math.prod(splits)
        for dim in set(range(len(units))) - reduced:
            assert all(units[dim] // splits[dim] % more for more in range(2, left + 1)), "cores are left over"


def _random_committed(
    rng: random.Random, units: tuple[int, ...], reduced: frozenset[int], cores: int
) -> tuple[int, ...]:
    """Return one dim in two or three slices, if it has enough units."""
    dim, split = rng.randrange(len(units)), rng.choice((1, 2, 3))
    legal = units[dim] % split == 0 and split <= cores and (dim not in reduced or split > 1)
    return tuple(split if legal and at == dim else 1 for at in range(len(units)))


# -- slices that need not be equal --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("units", "cores", "splits"),
    [
        ((65,), 32, (22,)),  # shares of 3; 32 slices would leave ten cores without work
        ((64,), 32, (32,)),
        ((33,), 32, (17,)),
        ((31,), 16, (16,)),
        ((127, 1), 32, (32, 1)),
        ((64, 64), 32, (32, 1)),  # even, of the first of equals
        ((7, 5), 32, (4, 5)),  # shares of 2 on 20 cores; shares of 1 would need 35
    ],
)
def test_uneven_slices(units, cores, splits):
    """The smallest largest share, with the fewest cores; 65 sticks do not fall back to 13 slices."""
    assert work_distribution(units, NONE, cores, uneven=True) == splits


def test_uneven_slices_of_a_reduction():
    """65 sticks on all 32 cores: 22 shares of 3; on 10: shares of 7; a committed reduction grows."""
    assert work_distribution((1, 65), frozenset({1}), 32, uneven=True) == (1, 22)
    assert work_distribution((3, 65), frozenset({1}), 32, uneven=True) == (3, 10)
    assert work_distribution((3, 65), frozenset({1}), 32, (1, 5), uneven=True) == (3, 10)
    assert work_distribution((7, 5, 8), frozenset({2}), 32, (1, 1, 4), uneven=True) == (7, 1, 4)


@pytest.mark.parametrize("seed", range(200))
def test_uneven_slices_are_the_best_over_two_dims(seed):
    """Exhaustive search: the smallest largest share, then the fewest cores; equal slices where possible."""
    rng = random.Random(seed)
    units = tuple(rng.choice((*COUNTS, rng.randint(1, 200))) for _ in range(rng.randint(1, 2)))
    cores = rng.randint(1, 32)
    splits = work_distribution(units, NONE, cores, uneven=True)
    tried = [
        (_largest_share(units, trial), math.prod(trial))
        for trial in itertools.product(*(range(1, cores + 1) for _ in units))
        if math.prod(trial) <= cores
    ]
    assert (_largest_share(units, splits), math.prod(splits)) == min(tried)
    assert all(
        (split - 1) * math.ceil(size / split) < size for size, split in zip(units, splits, strict=True)
    )
    even = work_distribution(units, NONE, cores)
    if _largest_share(units, even) == _largest_share(units, splits):
        assert all(size % split == 0 for size, split in zip(units, splits, strict=True))


@pytest.mark.parametrize("seed", range(30))
def test_uneven_slices_of_three_dims_respect_what_is_committed(seed):
    """Exhaustive search from the committed splits on; never worse than the best over two dims."""
    rng = random.Random(seed)
    units = tuple(rng.choice(COUNTS) for _ in range(3))
    cores = rng.randint(2, 24)
    committed = _random_committed(rng, units, NONE, cores)
    splits = work_distribution(units, NONE, cores, committed, uneven=True)
    assert all(mine >= least for mine, least in zip(splits, committed, strict=True))
    options = (range(least, cores + 1) for least in committed)
    tried = [trial for trial in itertools.product(*options) if math.prod(trial) <= cores]
    assert _largest_share(units, splits) == min(_largest_share(units, trial) for trial in tried)
