# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Placement in the order of time, as an allocator at run time would do it."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.fitting import fit, outermost
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement


@dataclass(frozen=True)
class GreedyLayoutSolver(MemoryPlanSolver):
    """Each buffer at its first use: in place of a parent, at address 0, above the high water or in a gap.

    Whatever is placed before a buffer has begun before it, so what is free at its first use stays free. It
    looks at no later buffer: a small one at address 0 can bar a large one that comes when all else is dead.
    """

    name: ClassVar[str] = "greedy"
    most_buffers: ClassVar[int] = 20_000

    def place(self, instance: Instance) -> Placement:
        """Return addresses for an ``instance``, in the order of the first use, ties as given."""
        return Placement(fit(instance, range(len(instance)), outermost), work=len(instance))
