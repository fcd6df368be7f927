"""Bytes of device memory that one execution of a divided operation moves. No IR.

Whole sticks, padding included. Cores that load the same slices share one load (multicast), which counts once;
what each core gets is counted beside it. Where cores add up parts of a value, one of them writes it.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

from spyre_mlir.division.cores import Division
from spyre_mlir.division.slices import shares_of
from spyre_mlir.layout.space import Space


@functools.lru_cache(maxsize=1 << 12)
def hbm_bytes(space: Space, operand: int, division: Division) -> tuple[int, int]:
    """Return the bytes that move for one operand in device memory, and those of all cores; the output is the last one.

    The two differ only where several cores load the same.
    """
    dims = sorted(space.present[operand])
    sticks = {dim: _sticks_of_slices(space, operand, division, dim) for dim in dims}
    cores = _writers(space, division) if operand == len(space.views) - 1 else range(len(division.owners))
    owned = [tuple(division.owners[core][dim] for dim in dims) for core in cores]
    per_slices = {
        slices: math.prod(sticks[dim][slice_] for dim, slice_ in zip(dims, slices, strict=True))
        for slices in set(owned)
    }
    # Cores with equal slices share one load (multicast).
    once, per_core = sum(per_slices.values()), sum(per_slices[slices] for slices in owned)
    return once * space.target.stick_bytes, per_core * space.target.stick_bytes


def _writers(space: Space, division: Division) -> tuple[int, ...]:
    """The cores that have finished values; a division read from IR does not know its reduced dims."""
    return replace(division, reduced=space.reduced).finishers


def _sticks_of_slices(space: Space, operand: int, division: Division, dim: int) -> list[int]:
    """For each slice of a dim how many positions it has: rows, or sticks for the dim in the stick."""
    extent, view = space.padded[dim], space.views[operand]
    share = shares_of(space.units, division.splits)[dim] * (extent // space.units[dim])
    per_stick = view.stick_elements(dim)
    starts = range(0, division.splits[dim] * share, share)
    return [-(-max(0, min(share, extent - start)) // per_stick) for start in starts]
