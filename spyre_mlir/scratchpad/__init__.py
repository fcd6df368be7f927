# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory planning: choose the buffers that get an address in a memory of limited size, and the addresses. No IR."""

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.fitting import BestFitLayoutSolver, FirstFitLayoutSolver, GreedyLayoutSolver
from spyre_mlir.scratchpad.solver import MemoryPlan, MemoryPlanSolver
from spyre_mlir.scratchpad.solvers import solver

__all__ = [
    "BestFitLayoutSolver", "FirstFitLayoutSolver", "GreedyLayoutSolver", "LifetimeBoundBuffer",
    "MemoryPlan", "MemoryPlanSolver", "MemorySpace", "PlanError", "solver",
]  # fmt: skip
