"""What an operation costs under a division, in nanoseconds: to rank plans, not to predict times."""

from __future__ import annotations

import bisect
import math

import numpy as np

from spyre_mlir.division.cores import Division
from spyre_mlir.division.matmul import Matmul, split_cost_us
from spyre_mlir.division.slices import shares_of
from spyre_mlir.layout.space import Space
from spyre_mlir.target.device import device
from spyre_mlir.target.ops import DEVICE_OPS, Kind


def memory_ns(bytes_: int, cores: int) -> float:
    """Time to move one operand between device memory and so many cores, few of which cannot saturate it.

    Every access waits for the memory once, however short it is (hardware.md, the stages of softmax).
    """
    memory = device()
    at = bisect.bisect_right(memory.saturation_cores, cores) - 1
    return memory.hbm_access_ns + bytes_ / (memory.matmul.bytes_per_ns * memory.saturation[at])


def compute_ns(opcode: str, space: Space, division: Division) -> float:
    """Time of the busiest core, operands at hand: sticks of its share over the rate of the vector unit.

    Of a matmul the split cost of work-division.md. Cores that add up parts of a value pay for every hop.
    """
    if DEVICE_OPS[opcode].kind is Kind.MATMUL:
        splits = np.array([[split] for split in division.splits], np.int64)
        return float(split_cost_us(Matmul.of(space), splits)[0]) * 1000
    shares = shares_of(space.units, division.splits)
    elements = math.prod(
        share * (extent // units)
        for share, extent, units in zip(shares, space.padded, space.units, strict=True)
    )
    lanes = max((view.elements_per_stick for view in space.views if view.lane is not None), default=1)
    parts = math.prod(division.splits[dim] for dim in space.reduced)
    outputs = math.prod(
        share * (space.padded[dim] // space.units[dim])
        for dim, share in enumerate(shares)
        if dim not in space.reduced
    )
    hops = (parts - 1) * outputs * device().partial_sum_ns
    return elements / lanes / device().vector_sticks_per_ns + hops
