"""All solvers by name."""

from __future__ import annotations

from typing import Any, TypeVar

from spyre_mlir.scratchpad.annealing import AnnealingSolver
from spyre_mlir.scratchpad.buffers import PlanError
from spyre_mlir.scratchpad.cp_sat import CpSatSolver
from spyre_mlir.scratchpad.exact import ExactSolver
from spyre_mlir.scratchpad.fits import BestFitLayoutSolver, FirstFitLayoutSolver, LargestFirstSolver
from spyre_mlir.scratchpad.greedy import GreedyLayoutSolver
from spyre_mlir.scratchpad.portfolio import PortfolioSolver
from spyre_mlir.scratchpad.solver import MemoryPlanSolver

Solver = TypeVar("Solver", bound=type[MemoryPlanSolver])

#: The solver where none is named.
DEFAULT = "portfolio"

SOLVERS: dict[str, type[MemoryPlanSolver]] = {
    cls.name: cls
    for cls in (
        GreedyLayoutSolver,
        FirstFitLayoutSolver,
        BestFitLayoutSolver,
        LargestFirstSolver,
        AnnealingSolver,
        CpSatSolver,
        ExactSolver,
        PortfolioSolver,
    )
}


def register(solver: Solver) -> Solver:
    """Makes a solver known by its name, from a file of anybody: a decorator of its class."""
    # Compared by name: a file that is loaded again defines the same class as another object.
    known = SOLVERS.setdefault(solver.name, solver)
    if (known.__module__, known.__qualname__) != (solver.__module__, solver.__qualname__):
        raise PlanError(f"Two solvers are named '{solver.name}'.")
    SOLVERS[solver.name] = solver
    return solver


def solver(name: str, **options: Any) -> MemoryPlanSolver:
    """The solver of a name, with options that are fields of its class; ``PlanError`` if there is none."""
    if name not in SOLVERS:
        raise PlanError(f"There is no solver '{name}'; there are {', '.join(SOLVERS)}.")
    return SOLVERS[name](**options)
