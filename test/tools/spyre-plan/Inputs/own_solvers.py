# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Solvers of a user: one that stacks buffers, and one whose plans are wrong."""

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.scratchpad import MemoryPlanSolver
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import Placement
from spyre_mlir.scratchpad.solvers import register


@register
@dataclass(frozen=True)
class Stack(MemoryPlanSolver):
    """Each buffer above the one before."""

    name: ClassVar[str] = "test-stack"

    def place(self, instance: Instance) -> Placement:
        ends = instance.sizes.cumsum()
        return Placement({at: int(end - instance.sizes[at]) for at, end in enumerate(ends)})


@register
@dataclass(frozen=True)
class OnTopOfEachOther(MemoryPlanSolver):
    """All buffers at address 0."""

    name: ClassVar[str] = "test-overlap"

    def place(self, instance: Instance) -> Placement:
        return Placement(dict.fromkeys(range(len(instance)), 0))
