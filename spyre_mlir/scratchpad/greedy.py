# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Placement in the order of time, as by an allocator at run time."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.fitting import fit, outermost
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement


@dataclass(frozen=True)
class GreedyLayoutSolver(MemoryPlanSolver):
    """Place each buffer at its first use: in place of a parent, at address 0, above all buffers, or in a gap.

    All buffers placed earlier began earlier, so bytes that are free at the first use stay free. The solver ignores
    later buffers: a small buffer at address 0 can block a large buffer that begins when all others are dead.
    """

    name: ClassVar[str] = "greedy"
    most_buffers: ClassVar[int] = 20_000

    def place(self, instance: Instance) -> Placement:
        """Return addresses for an ``instance``, in the order of the first use, ties as given."""
        return Placement(fit(instance, range(len(instance)), outermost), work=len(instance))
