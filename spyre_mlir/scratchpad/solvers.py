# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All solvers by name."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from spyre_mlir.algorithms import register
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import PlanError
from spyre_mlir.scratchpad.fitting import (
    BestFitLayoutSolver,
    FirstFitLayoutSolver,
    Fitting,
    GreedyLayoutSolver,
    LargestFirstSolver,
    by_lifetime,
    by_size,
    by_worth,
)
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.portfolio import AnnealingSolver, ExactSolver, PortfolioSolver
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement

if TYPE_CHECKING:
    from ortools.sat.python import cp_model


# Placement as a constraint program, for CP-SAT of OR-Tools: an optional dependency.

#: Steps of ``work`` per unit of deterministic time.
_WORK_PER_TIME = 1000


@dataclass(frozen=True)
class CpSatSolver(MemoryPlanSolver):
    """Minimise the lost savings with CP-SAT; optimal if the search ends within ``deterministic_time``.

    The search has one worker with a fixed seed and no clock: the same version of OR-Tools gives the same plan. A unit
    of deterministic time takes about a second on easy sets and 20 seconds on hard packings of 150 buffers. The search
    starts with the best of three orders of first fit, so it is never worse than these; it is skipped if one of them
    places everything.
    """

    name: ClassVar[str] = "cp-sat"
    deterministic_time: float = 1.0
    seed: int = 0

    def place(self, instance: Instance) -> Placement:
        """Return the best addresses found and the bound; ``PlanError`` without OR-Tools."""
        try:
            from ortools.sat.python import cp_model
        except ImportError:
            raise PlanError(
                "The solver 'cp-sat' needs OR-Tools, which is not installed; the extra 'cp-sat' of spyre-mlir has it."
            ) from None
        solver = cp_model.CpSolver()
        # Several workers would race against each other; one worker gives the same plan on every machine.
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = self.seed
        solver.parameters.max_deterministic_time = self.deterministic_time

        def saved(addresses: Iterable[int]) -> int:
            return int(instance.savings[list(addresses)].sum())

        fitting = Fitting(instance)
        hint = max((fitting.fit(order(instance)) for order in (by_lifetime, by_size, by_worth)), key=saved)
        if len(hint) == len(instance):
            return Placement(hint)
        program = PackingModel(instance)
        program.hint(hint)
        best = max(hint, program.solve(solver), key=saved)
        work = round(solver.deterministic_time * _WORK_PER_TIME)
        return Placement(best, bound=program.bound(solver), work=work)


class PackingModel:
    """Constraint program: optional rectangles in time and addresses that do not overlap, with the least lost savings.

    A child that shares has the address of its parent and a rectangle that begins one operation later (no rectangle if
    it is live at only one operation), because the parent's rectangle covers both. So the parent must have a rectangle
    there, and a second child may share with the parent only if it could also share with the first child. This covers
    all possible plans: buffers with one address at one operation are partners in pairs, and the first of them can be
    the parent of all.

    The unit of addresses is the common divisor of the sizes: moved down, each buffer stands on others or on 0.
    """

    def __init__(self, instance: Instance) -> None:
        from ortools.sat.python import cp_model

        self.model = cp_model.CpModel()
        self._instance = instance
        self._unit = math.gcd(*instance.sizes.tolist())
        # In units of the common divisor, the bound of the search can be rounded up further.
        self._saving_unit = math.gcd(*instance.savings.tolist())
        self._heights: list[int] = (instance.sizes // self._unit).tolist()
        self._capacity = instance.space.capacity // self._unit
        self._placed = [self.model.new_bool_var("") for _ in self._heights]
        self._floors = [self.model.new_int_var(0, self._capacity - height, "") for height in self._heights]
        self._alone: dict[int, cp_model.IntVar] = {}
        self._shares: list[dict[int, cp_model.IntVar]] = [{} for _ in self._heights]
        self._times: list[cp_model.IntervalVar] = []
        self._addresses: list[cp_model.IntervalVar] = []
        for index in range(len(instance)):
            self._add(index)
        self.model.add_no_overlap_2d(self._times, self._addresses)
        for parent, shares in enumerate(self._shares):
            # The parent has a rectangle at the operation where children share.
            if parent in self._alone and instance.starts[parent] == instance.ends[parent]:
                for share in shares.values():
                    self.model.add_implication(share, self._alone[parent])
            # Two children of one parent are partners.
            for one, other in itertools.combinations(shares, 2):
                if one not in instance.parents[other] and other not in instance.parents[one]:
                    self.model.add_at_most_one(shares[one], shares[other])
        savings = (instance.savings // self._saving_unit).tolist()
        self.model.minimize(
            sum(saving * ~placed for saving, placed in zip(savings, self._placed, strict=True))
        )

    def hint(self, addresses: Mapping[int, int]) -> None:
        """Start the search with a plan."""
        for index, placed in enumerate(self._placed):
            self.model.add_hint(placed, index in addresses)
            if index in addresses:
                self.model.add_hint(self._floors[index], addresses[index] // self._unit)
        for parent, children in enumerate(self._shares):
            for child, share in children.items():
                same = parent in addresses and addresses[parent] == addresses.get(child)
                self.model.add_hint(share, same)

    def solve(self, solver: cp_model.CpSolver) -> dict[int, int]:
        """Return the best plan that the solver finds; empty if it finds none."""
        if solver.status_name(solver.solve(self.model)) not in ("OPTIMAL", "FEASIBLE"):
            return {}
        placed = (index for index, placed in enumerate(self._placed) if solver.boolean_value(placed))
        return {index: solver.value(self._floors[index]) * self._unit for index in placed}

    def bound(self, solver: cp_model.CpSolver) -> int:
        """Return a lower bound of the bytes of savings that every plan loses."""
        bound = solver.best_objective_bound
        # The bound is a float: slightly above an integer, by rounding, must not become the next integer.
        return math.ceil(bound - 1e-6) * self._saving_unit if 0 < bound < math.inf else 0

    def _add(self, index: int) -> None:
        """Add a buffer: its rectangle, or the remaining rectangle if it shares with one of its parents."""
        first, last = int(self._instance.starts[index]), int(self._instance.ends[index])
        shares = []
        for parent in self._instance.parents[index]:
            share = self.model.new_bool_var("")
            self.model.add_implication(share, self._placed[parent])
            self.model.add(self._floors[parent] == self._floors[index]).only_enforce_if(share)
            self._shares[parent][index] = share
            shares.append(share)
        if not shares:
            self._add_rectangle(index, first, last, self._placed[index])
            return
        alone, shared = self.model.new_bool_var(""), self.model.new_bool_var("")
        self._alone[index] = alone
        self.model.add(sum(shares) == shared)
        self.model.add(alone + shared == self._placed[index])
        self._add_rectangle(index, first, last, alone)
        # At the operation where the buffer begins, its bytes are inside the parent's rectangle.
        if first < last:
            self._add_rectangle(index, first + 1, last, shared)

    def _add_rectangle(self, index: int, first: int, last: int, present: cp_model.IntVar) -> None:
        make, height = self.model.new_optional_fixed_size_interval_var, self._heights[index]
        self._times.append(make(first, last + 1 - first, present, ""))
        self._addresses.append(make(self._floors[index], height, present, ""))


#: The default solver.
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
    """Return the solver with a ``name`` of ``spyre-plan --solver``, or a user-defined one; ``options`` are its fields.

    Raises:
        PlanError: No solver has this name.
    """
    return MemoryPlanSolver.registry.make(name, **options)
