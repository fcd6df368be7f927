# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes of device memory that one execution of a divided operation moves. No IR.

Bytes are of whole sticks, padding included. Cores that load the same slices share one load (multicast), which counts
once; the bytes that each core gets are counted in addition. If cores add up parts of a value, one core writes it.
"""

from __future__ import annotations

import functools
import math

from spyre_mlir.division.cores import Division, finishers_of
from spyre_mlir.layout.space import Space


@functools.lru_cache(maxsize=1 << 12)
def hbm_bytes(space: Space, operand: int, division: Division) -> tuple[int, int]:
    """Return the bytes that move for one operand, and the sum of all cores' bytes; the output is the last operand.

    The two differ only if several cores load the same slices.
    """
    dims, view = sorted(space.present[operand]), space.views[operand]
    windows = dict(space.slid(operand)) if operand == 0 else {}
    kernels = {window.kernel for window in space.windows} if operand == 0 else ()
    sticks = []
    for dim, share in enumerate(division.slice_elements(space.units, space.granules)):
        extent, per_stick = space.padded[dim], view.stick_elements(dim)
        ranges = [
            (first, max(0, min(share, extent - first)))
            for first in range(0, share * division.splits[dim], share)
        ]
        if dim in windows:
            ranges = [windows[dim].accessed(*range_) if range_[1] else range_ for range_ in ranges]
        # Positions that windows access are counted with the dim that the windows slide along.
        sticks.append([1] if dim in kernels else [-(-count // per_stick) for _, count in ranges])
    # A division read from IR does not know its reduced dims.
    is_output = operand == len(space.views) - 1
    cores = finishers_of(division, space.reduced) if is_output else range(len(division.owners))
    owned = [tuple(division.owners[core][dim] for dim in dims) for core in cores]
    # Cores with equal slices share one load (multicast).
    of_slices = {
        slices: math.prod(sticks[dim][index] for dim, index in zip(dims, slices, strict=True))
        for slices in set(owned)
    }
    once, per_core = sum(of_slices.values()), sum(of_slices[slices] for slices in owned)
    return once * space.target.stick_bytes, per_core * space.target.stick_bytes
