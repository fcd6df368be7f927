# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Solvers that place all buffers in one order by one policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.fitting import (
    Policy,
    by_first_use,
    by_lifetime,
    by_size,
    fit,
    lowest,
    outermost,
    tightest,
)
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement


@dataclass(frozen=True)
class OneOrderSolver(MemoryPlanSolver):
    """Place the buffers in the ``order`` of the class, by default the first uses, in gaps that ``policy`` chooses."""

    most_buffers: ClassVar[int] = 20_000
    order: ClassVar[Callable[[Instance], Iterable[int]]] = staticmethod(by_first_use)
    policy: ClassVar[Policy] = staticmethod(lowest)

    def place(self, instance: Instance) -> Placement:
        """Return addresses of the buffers of an ``instance`` that find a gap."""
        return Placement(fit(instance, self.order(instance), self.policy), work=len(instance))


@dataclass(frozen=True)
class GreedyLayoutSolver(OneOrderSolver):
    """Place each buffer at its first use: in place of a parent, at address 0, above all buffers, or in a gap.

    This is the order of an allocator at run time. All buffers placed earlier began earlier, so bytes that are free at
    the first use stay free. The solver ignores later buffers: a small buffer at address 0 can block a large buffer
    that begins when all others are dead.
    """

    name: ClassVar[str] = "greedy"
    policy = staticmethod(outermost)


@dataclass(frozen=True)
class FirstFitLayoutSolver(OneOrderSolver):
    """Place by rising lifetime, ties by the first use, in the lowest gap that is free over the whole live range."""

    name: ClassVar[str] = "firstfit"
    order = staticmethod(by_lifetime)


@dataclass(frozen=True)
class BestFitLayoutSolver(OneOrderSolver):
    """Place in the order of first fit, but in the gap with the smallest remainder."""

    name: ClassVar[str] = "bestfit"
    order = staticmethod(by_lifetime)
    policy = staticmethod(tightest)


@dataclass(frozen=True)
class LargestFirstSolver(OneOrderSolver):
    """Place by falling size, ties by the first use, in the lowest gap: ``order-by-size`` of other planners.

    The copies of a buffer count as one block, so they stay together. This order is not better than others in
    general: unlike for bin packing, no bound is known for blocks with lifetimes, and some sets need more memory.
    """

    name: ClassVar[str] = "largest-first"
    order = staticmethod(by_size)
