"""What a placed program costs, by the cost model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spyre_mlir.cost.model import operation_cost
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.passes._memory import is_in_lx
from spyre_mlir.passes._usage import Usage


@dataclass(frozen=True)
class Price:
    """Predicted nanoseconds of all executions, and the bytes that they move through device memory."""

    nanoseconds: float
    bytes: int

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
