# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Program cost: the cost of a placed program according to the cost model."""

from __future__ import annotations

import math
from collections.abc import Iterator

from spyre_mlir.analysis.aliasing import is_in_lx
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.core_ownership import Divided
from spyre_mlir.cost.cost_model import operation_cost
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.records import dataclass

#: Smallest relative difference of times or bytes that counts: the cost model is not more exact than this.
_RESOLUTION = 0.01


@dataclass(frozen=True)
class ProgramCost:
    """The predicted nanoseconds of all executions, and the bytes that they move through device memory."""

    nanoseconds: float
    bytes: int

    def is_better_than(self, other: ProgramCost) -> bool:
        """Return whether this cost has less time; if times are equal within the model's resolution, fewer bytes."""
        if _differ(self.nanoseconds, other.nanoseconds) or not _differ(self.bytes, other.bytes):
            return self.nanoseconds < other.nanoseconds
        return self.bytes < other.bytes

    def __str__(self) -> str:
        return f"{self.nanoseconds / 1000:.1f} us, {self.bytes:,} bytes"


def cost_of_program(usage: Usage) -> ProgramCost:
    """Return the cost of a function with the current placements of its buffers."""
    costs = [cost for _, cost in operation_costs(usage)]
    # fsum is exact: the order of the operations does not affect the comparison of two programs.
    return ProgramCost(math.fsum(cost.nanoseconds for cost in costs), sum(cost.bytes for cost in costs))


def operation_costs(usage: Usage) -> Iterator[tuple[Divided, ProgramCost]]:
    """Yield the operations of a function, each with the cost of all its executions."""
    for user in usage.ops:
        in_lx = frozenset(operand for operand, value in enumerate(user.values) if is_in_lx(usage.root(value)))
        work = operation_work(user.opcode, user.space, user.division, in_lx, usage.relayout(user))
        moved = user.executions * (work.read_bytes + work.written_bytes)
        yield user, ProgramCost(user.executions * operation_cost(work).total_ns, moved)


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > _RESOLUTION * max(one, other)
