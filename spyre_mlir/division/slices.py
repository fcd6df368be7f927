# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slices of one dim: the possible slice counts, and the size of each slice. All sizes are in units.

A unit cannot be divided: a whole stick, or a row of a dim that is not a stick dim (``layout/space.py``).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: Slices of each dim in every compared split: [dims, splits].
Splits = NDArray[np.int64]


@functools.lru_cache(maxsize=1 << 14)
def divisors(units: int, limit: int) -> tuple[int, ...]:
    """Return the slice counts up to ``limit`` that give every slice the same number of units, ascending."""
    return tuple(count for count in range(1, min(units, limit) + 1) if units % count == 0)


def shares_of(units: Sequence[int], splits: Sequence[int]) -> tuple[int, ...]:
    """Return the units of the largest slice of each dim; only the last slices can be smaller."""
    return tuple(-(-count // split) for count, split in zip(units, splits, strict=True))


def filled(units: int, slices: int) -> int:
    """Count the nonempty slices if each has the largest share: 65 units in 32 slices make 22 slices of 3."""
    # Shares are rounded up, so the last slices may be empty.
    share = -(-units // slices)
    return -(-units // share)


@functools.lru_cache(maxsize=1 << 14)
def slice_counts(units: int, limit: int, uneven: bool) -> tuple[int, ...]:
    """Return the slice counts up to ``limit``, ascending: divisors, or, if ``uneven``, all without empty slices."""
    if not uneven:
        return divisors(units, limit)
    return tuple(count for count in range(1, min(units, limit) + 1) if filled(units, count) == count)


@functools.lru_cache(maxsize=1 << 12)
def legal_splits(
    units: tuple[int, ...],
    cores: int,
    least: tuple[int, ...],
    blocked: frozenset[int] = frozenset(),
    uneven: bool = False,
) -> Splits:
    """Return all splits whose counts are in ``slice_counts`` and whose product is at most ``cores``, lexicographically.

    Each dim has at least its ``least`` slices; ``blocked`` dims have exactly these.
    """
    options = (
        (least[dim],)
        if dim in blocked
        else tuple(count for count in slice_counts(size, cores, uneven) if count >= least[dim])
        for dim, size in enumerate(units)
    )
    rows, used = [], np.ones(1, np.int64)
    for counts in options:
        grown = np.multiply.outer(used, np.array(counts, np.int64))
        # ``nonzero`` returns indices row by row, which keeps the lexicographic order.
        before, option = np.nonzero(grown <= cores)
        rows = [*(row[before] for row in rows), np.array(counts, np.int64)[option]]
        used = grown[before, option]
    splits = np.array(rows, np.int64).reshape(len(units), -1)
    # The array is in a cache: a change by a caller would change all later results.
    splits.setflags(write=False)
    return splits


def checked(units: Sequence[int], cores: int, committed: Sequence[int] | None) -> tuple[int, ...]:
    """Return the committed splits, by default all 1; ``ValueError`` if they are not legal on ``cores`` cores."""
    if cores < 1:
        raise ValueError(f"An operation needs at least one core, not {cores}.")
    if committed is None:
        return (1,) * len(units)
    if len(committed) != len(units):
        raise ValueError(f"{len(committed)} splits are committed for {len(units)} dims.")
    if math.prod(committed) > cores:
        raise ValueError(f"Committed splits {list(committed)} need more than {cores} cores.")
    return tuple(committed)


def splits_text(splits: Sequence[int], units: Sequence[int]) -> str:
    """Format the slices of each split dim; ``units`` are the rows or sticks of the whole dim."""
    cut = [
        f"dim {dim} of {size} in {count} slices"
        for dim, (count, size) in enumerate(zip(splits, units, strict=True))
        if count > 1
    ]
    return ", ".join(cut) or "no dim is cut"
