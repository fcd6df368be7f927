# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Solvers that place all buffers in one order by one policy."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.fitting import by_lifetime, by_size, fit, lowest, tightest
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement


@dataclass(frozen=True)
class FirstFitLayoutSolver(MemoryPlanSolver):
    """Place by rising lifetime, ties by the first use, in the lowest gap that is free over the whole live range."""

    name: ClassVar[str] = "firstfit"
    most_buffers: ClassVar[int] = 20_000

    def place(self, instance: Instance) -> Placement:
        """Return addresses of the buffers of an ``instance`` that find a gap."""
        return Placement(fit(instance, by_lifetime(instance), lowest), work=len(instance))


@dataclass(frozen=True)
class BestFitLayoutSolver(MemoryPlanSolver):
    """Place in the order of first fit, but in the gap with the smallest remainder."""

    name: ClassVar[str] = "bestfit"
    most_buffers: ClassVar[int] = 20_000

    def place(self, instance: Instance) -> Placement:
        """Return addresses of the buffers of an ``instance`` that find a gap."""
        return Placement(fit(instance, by_lifetime(instance), tightest), work=len(instance))


@dataclass(frozen=True)
class LargestFirstSolver(MemoryPlanSolver):
    """Place by falling size, ties by the first use, in the lowest gap: ``order-by-size`` of other planners.

    The copies of a buffer count as one block, so they stay together. This order is not better than others in
    general: unlike for bin packing, no bound is known for blocks with lifetimes, and some sets need more memory.
    """

    name: ClassVar[str] = "largest-first"
    most_buffers: ClassVar[int] = 20_000

    def place(self, instance: Instance) -> Placement:
        """Return addresses of the buffers of an ``instance`` that find a gap."""
        return Placement(fit(instance, by_size(instance), lowest), work=len(instance))
