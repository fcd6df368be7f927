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
    rows, used = [], np.ones(1, np.int64)
    for dim, size in enumerate(units):
        options = (least[dim],) if dim in blocked else slice_counts(size, cores, uneven)
        counts = np.array([count for count in options if count >= least[dim]], np.int64)
        grown = np.multiply.outer(used, counts)
        # ``nonzero`` returns indices row by row, which keeps the lexicographic order.
        before, option = np.nonzero(grown <= cores)
        rows = [*(row[before] for row in rows), counts[option]]
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


@functools.lru_cache(maxsize=1 << 12)
def work_distribution(
    units: tuple[int, ...],
    reduced: frozenset[int],
    cores: int,
    committed: tuple[int, ...] | None = None,
    blocked: frozenset[int] = frozenset(),
    uneven: bool = False,
) -> tuple[int, ...]:
    """Return the slices per dim of ``units``, whose product is at most ``cores``.

    Output dims are split first, the largest first, each by the largest divisor that fits the remaining cores. Then at
    most one reduction dim is split, the one with the largest such divisor. ``committed`` splits (from span reduction)
    are lower bounds: a dim gets a multiple of its committed split, and a reduction dim with a committed split is the
    only reduction dim that is split. ``blocked`` dims keep their committed splits.

    With ``uneven``, slices need not be equal. The largest slice, the product of ``ceil(units / slices)`` over the
    output dims, is then the smallest possible, and no slice exceeds its size under the committed splits. Of divisions
    with this largest slice the one with the fewest cores is chosen: an even one if there is any. No slice is empty.

    Raises ``ValueError`` if committed splits need more cores, or if they are uneven and slices have to be equal.
    """
    splits = list(checked(units, cores, committed))
    output_dims = [dim for dim in range(len(units)) if dim not in reduced and dim not in blocked]
    output_dims.sort(key=lambda dim: (-units[dim], dim))
    if uneven:
        _distribute_unevenly(units, splits, output_dims, cores)
    for dim in output_dims if not uneven else ():
        if units[dim] % splits[dim]:
            raise ValueError(
                f"{splits[dim]} committed slices do not divide the {units[dim]} units of dim {dim}."
            )
        splits[dim] *= divisors(units[dim] // splits[dim], cores // math.prod(splits))[-1]
    # If span reduction has split a reduction dim, no other one is split, as in "Work Division Planning".
    parts = [dim for dim in reduced if splits[dim] > 1]
    cores_left, most = cores // math.prod(splits), dict[int, int]()
    for dim in sorted(frozenset(parts or reduced) - blocked):
        if uneven:
            most[dim] = max(splits[dim], filled(units[dim], splits[dim] * cores_left))
        else:
            most[dim] = splits[dim] * divisors(units[dim] // splits[dim], cores_left)[-1]
    if most:
        # The dim that allows the most slices is split; ties go to the first dim.
        dim = max(most, key=lambda dim: (most[dim], -dim))
        splits[dim] = most[dim]
    return tuple(splits)


def _distribute_unevenly(
    units: tuple[int, ...], splits: list[int], output_dims: list[int], cores: int
) -> None:
    """Split output dims unevenly, by the best choice for each number of used cores, dim by dim.

    A choice is its largest share and its slices, negated so that ties split the first dims most.
    """
    budget = cores // math.prod(split for dim, split in enumerate(splits) if dim not in output_dims)
    best: dict[int, tuple[int, tuple[int, ...]]] = {1: (1, ())}
    for dim in output_dims:
        # A count that leaves slices empty is equivalent to a smaller count.
        options = {filled(units[dim], count) for count in range(splits[dim], budget + 1)}
        grown: dict[int, tuple[int, tuple[int, ...]]] = {}
        for used, (share, chosen) in best.items():
            for slices in options:
                total = used * slices
                if total <= budget:
                    choice = (share * -(-units[dim] // slices), (*chosen, -slices))
                    grown[total] = min(choice, grown.get(total, choice))
        best = grown
    # Of choices with equal largest shares take the fewest cores: an even division if there is one.
    _, _, chosen = min((share, used, chosen) for used, (share, chosen) in best.items())
    for dim, slices in zip(output_dims, chosen, strict=True):
        splits[dim] = -slices
