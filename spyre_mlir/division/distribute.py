# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Greedy choice of the number of slices of each dim: output dims by size, then one reduction dim.

The algorithm is the greedy distribution of "Work Division Planning" (``prioritize_dimensions``,
``multi_dim_iteration_space_split``), extended by slices that need not be equal.
"""

from __future__ import annotations

import functools
import math

from spyre_mlir.division.slices import checked, divisors, filled


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
    else:
        _distribute_evenly(units, splits, output_dims, cores)
    # If span reduction has split a reduction dim, no other one is split, as in "Work Division Planning".
    parts = [dim for dim in reduced if splits[dim] > 1]
    _split_one_reduction(units, splits, sorted(frozenset(parts or reduced) - blocked), cores, uneven)
    return tuple(splits)


def _distribute_evenly(units: tuple[int, ...], splits: list[int], output_dims: list[int], cores: int) -> None:
    for dim in output_dims:
        if units[dim] % splits[dim]:
            raise ValueError(
                f"{splits[dim]} committed slices do not divide the {units[dim]} units of dim {dim}."
            )
        splits[dim] *= divisors(units[dim] // splits[dim], cores // math.prod(splits))[-1]


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


def _split_one_reduction(
    units: tuple[int, ...], splits: list[int], candidates: list[int], cores: int, uneven: bool
) -> None:
    """Split the candidate that allows the most slices; a dim with slices gets a multiple of them."""
    cores_left = cores // math.prod(splits)
    slices = {
        dim: max(splits[dim], filled(units[dim], splits[dim] * cores_left))
        if uneven
        else splits[dim] * divisors(units[dim] // splits[dim], cores_left)[-1]
        for dim in candidates
    }
    if slices:
        # Ties go to the first dim.
        dim = max(slices, key=lambda dim: (slices[dim], -dim))
        splits[dim] = slices[dim]
