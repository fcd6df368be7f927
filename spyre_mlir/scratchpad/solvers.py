# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All solvers by name."""

from __future__ import annotations

from typing import Any

from spyre_mlir.algorithms import register
from spyre_mlir.scratchpad.annealing import AnnealingSolver
from spyre_mlir.scratchpad.cp_sat import CpSatSolver
from spyre_mlir.scratchpad.exact import ExactSolver
from spyre_mlir.scratchpad.fits import BestFitLayoutSolver, FirstFitLayoutSolver, LargestFirstSolver
from spyre_mlir.scratchpad.greedy import GreedyLayoutSolver
from spyre_mlir.scratchpad.portfolio import PortfolioSolver
from spyre_mlir.scratchpad.solver import MemoryPlanSolver

#: The solver where none is named.
DEFAULT = MemoryPlanSolver.registry.default

#: All solvers that are imported.
SOLVERS: dict[str, type[MemoryPlanSolver]] = MemoryPlanSolver.registry.classes

for cls in (
    GreedyLayoutSolver,
    FirstFitLayoutSolver,
    BestFitLayoutSolver,
    LargestFirstSolver,
    AnnealingSolver,
    CpSatSolver,
    ExactSolver,
    PortfolioSolver,
):
    register(cls)


def solver(name: str, **options: Any) -> MemoryPlanSolver:
    """Return the solver of a name.

    Args:
        name: One of ``spyre-plan --solver``, or that of a solver of yours.
        **options: Fields of its class.

    Raises:
        PlanError: There is no solver of that name.
    """
    return MemoryPlanSolver.registry.make(name, **options)


__all__ = ["DEFAULT", "SOLVERS", "register", "solver"]
