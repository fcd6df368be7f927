"""What a placed program costs, by the cost model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spyre_mlir.analysis.aliasing import is_in_lx
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.cost.model import operation_cost
from spyre_mlir.cost.of_space import operation_work

#: The part by which times or bytes differ at least: what is nearer is less than the cost model resolves.
_RESOLUTION = 0.01


@dataclass(frozen=True)
class Price:
    """Predicted nanoseconds of all executions, and the bytes that they move through device memory."""

    nanoseconds: float
    bytes: int

    def is_better_than(self, other: Price) -> bool:
        """Whether it takes less time; of times that the cost model cannot tell apart, whether it moves less."""
        if _differ(self.nanoseconds, other.nanoseconds) or not _differ(self.bytes, other.bytes):
            return self.nanoseconds < other.nanoseconds
        return self.bytes < other.bytes

    def __str__(self) -> str:
        return f"{self.nanoseconds / 1000:.1f} us, {self.bytes:,} bytes"


def price_of(usage: Usage) -> Price:
    """The price of a function, what is in LX being there."""
    spent, moved = [], 0
    for each in usage.ops:
        in_lx = frozenset(at for at, value in enumerate(each.values) if is_in_lx(usage.root(value)))
        work = operation_work(each.opcode, each.space, each.division, in_lx, usage.relayout(each))
        spent.append(each.executions * operation_cost(work).total_ns)
        moved += each.executions * (work.read_bytes + work.written_bytes)
    return Price(math.fsum(spent), moved)


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > _RESOLUTION * max(one, other)
