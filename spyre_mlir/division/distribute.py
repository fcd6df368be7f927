# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How many slices each dim of an operation has: output dims by size, then one reduction dim.

The greedy distribution of "Work Division Planning" (``prioritize_dimensions``, ``multi_dim_iteration_space_split``),
and beyond it slices that need not be equal.
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
    """Slices per dim of ``units``, together at most ``cores``.

    Output dims come first, the largest first; each takes its largest divisor that fits the cores left. Then
    at most one reduction dim does, the one with the largest such divisor. ``committed`` splits (those of span
    reduction) are lower bounds: a dim takes a multiple of its own, and a reduction dim that has one is the only
    one that is split. ``blocked`` dims keep their committed splits.

    With ``uneven`` slices need not be equal: the largest one, the product of ``ceil(units / slices)`` over the
    output dims, is the smallest possible, and none is larger than committed splits make it; of divisions that
    reach that the one with the fewest cores, which is an even one if there is any. No slice is empty.

    ``ValueError`` if the committed splits need more cores, or if slices have to be equal and those are not.
    """
    splits = list(checked(units, cores, committed))
    output_dims = [dim for dim in range(len(units)) if dim not in reduced and dim not in blocked]
    output_dims.sort(key=lambda dim: (-units[dim], dim))
    if uneven:
        _distribute_unevenly(units, splits, output_dims, cores)
    else:
        _distribute_evenly(units, splits, output_dims, cores)
    # A reduction that span reduction has split is the only one, as in "Work Division Planning".
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
    """The best choice for each number of cores used, one dim after the other.

    A choice is its largest share and its slices, negative so that of equals the first dims are split most.
    """
    budget = cores // math.prod(split for dim, split in enumerate(splits) if dim not in output_dims)
    best: dict[int, tuple[int, tuple[int, ...]]] = {1: (1, ())}
    for dim in output_dims:
        # A count that leaves slices empty is the same as a smaller one.
        options = {filled(units[dim], count) for count in range(splits[dim], budget + 1)}
        grown: dict[int, tuple[int, tuple[int, ...]]] = {}
        for used, (share, chosen) in best.items():
            for slices in options:
                total = used * slices
                if total <= budget:
                    choice = (share * -(-units[dim] // slices), (*chosen, -slices))
                    grown[total] = min(choice, grown.get(total, choice))
        best = grown
    # Of equal largest shares the fewest cores: an even division if there is one.
    _, _, chosen = min((share, used, chosen) for used, (share, chosen) in best.items())
    for dim, slices in zip(output_dims, chosen, strict=True):
        splits[dim] = -slices


def _split_one_reduction(
    units: tuple[int, ...], splits: list[int], candidates: list[int], cores: int, uneven: bool
) -> None:
    """Several slices of the candidate that takes the most; one with slices already has a multiple of them."""
    cores_left = cores // math.prod(splits)
    slices = {
        dim: max(splits[dim], filled(units[dim], splits[dim] * cores_left))
        if uneven
        else splits[dim] * divisors(units[dim] // splits[dim], cores_left)[-1]
        for dim in candidates
    }
    if slices:
        # Of equal counts the first dim.
        dim = max(slices, key=lambda dim: (slices[dim], -dim))
        splits[dim] = slices[dim]
