# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes of device memory that one execution of a divided operation moves. No IR.

Bytes are of whole sticks, padding included. Cores that load the same slices share one load (multicast), which counts
once; the bytes that each core gets are counted in addition. If cores add up parts of a value, one core writes it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

from spyre_mlir.division.cores import Division, finishers_of
from spyre_mlir.division.slices import shares_of
from spyre_mlir.layout.space import Space


@functools.lru_cache(maxsize=1 << 12)
def hbm_bytes(space: Space, operand: int, division: Division) -> tuple[int, int]:
    """Return the bytes that move for one operand, and the sum of all cores' bytes; the output is the last operand.

    The two differ only if several cores load the same slices.
    """
    dims = sorted(space.present[operand])
    units, view = shares_of(space.units, division.splits), space.views[operand]
    shares = [share * (space.padded[dim] // space.units[dim]) for dim, share in enumerate(units)]
    windows = {window.output: window for window in space.windows} if operand == 0 else {}
    kernels = {window.kernel for window in windows.values()}
    sticks = []
    for dim in dims:
        ranges = slice_ranges(space.padded[dim], shares[dim], division.splits[dim])
        if dim in windows:
            window = windows[dim]
            sticks.append([window.accessed(first, count)[1] if count else 0 for first, count in ranges])
        elif dim in kernels:
            # Positions that windows access are counted with the dim that the windows slide along.
            sticks.append([1])
        else:
            per_stick = view.stick_elements(dim)
            sticks.append([-(-count // per_stick) for _, count in ranges])
    cores: Sequence[int] = range(len(division.owners))
    if operand == len(space.views) - 1:
        # A division read from IR does not know its reduced dims.
        cores = finishers_of(division, space.reduced)
    owned = [tuple(division.owners[core][dim] for dim in dims) for core in cores]
    per_slices = shared_sticks(sticks, owned)
    once, per_core = sum(per_slices.values()), sum(per_slices[slices] for slices in owned)
    return once * space.target.stick_bytes, per_core * space.target.stick_bytes


def slice_ranges(extent: int, share: int, slices: int) -> list[tuple[int, int]]:
    """Return the first element and the number of elements of each slice of a dim of ``extent`` elements."""
    return [(index * share, max(0, min(share, extent - index * share))) for index in range(slices)]


def shared_sticks(
    sticks: Sequence[Sequence[int]], owned: Iterable[tuple[int, ...]]
) -> dict[tuple[int, ...], int]:
    """Return the sticks of each distinct tuple of ``owned`` slices, given the ``sticks`` of each slice of each dim.

    Cores with equal slices share one load (multicast).
    """
    return {
        slices: math.prod(counts[index] for counts, index in zip(sticks, slices, strict=True))
        for slices in set(owned)
    }
