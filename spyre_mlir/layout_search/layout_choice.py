# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The replaceable layout choice: choose a state for each tensor of a program from tables of costs."""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir import problems
from spyre_mlir.algorithms import REGISTRIES, Algorithm, Registry, register
from spyre_mlir.optimization.elimination import Minimum, Sum
from spyre_mlir.records import dataclass


@dataclass(frozen=True, eq=False)
class LayoutProblem:
    """The graph of a program: each tensor has a state, and tables contain the costs of states.

    Attributes:
        counts: The number of states of each tensor.
        tables: Costs in picoseconds, infinite for incompatible states: arrays with an axis for each tensor of the key.
            A key is one tensor (the cost of its state: relayouts) or two ascending tensors (the cost of reading
            one for the other); a tensor with only one state is not in a key.
        names: The names of tensors in the program, mostly empty.
        limit_entries: The number of entries in the largest table that a search may create.
        width: The beam width of a search.
    """

    counts: tuple[int, ...]
    tables: Mapping[tuple[int, ...], NDArray[np.float64]]
    names: tuple[str, ...] = ()
    limit_entries: int = 1 << 20
    width: int = 200

    def cost(self, states: Sequence[int]) -> float:
        """Return the cost in picoseconds of ``states``, one state for each tensor."""
        return self.sum().cost(states)

    def sum(self) -> Sum:
        """Return the tables as a sum to be minimised."""
        total = Sum(self.counts)
        total.tables = dict(self.tables)
        return total

    def unchangeable(self) -> LayoutProblem:
        """Return the problem with read-only tables, because caches share the tables."""
        views = {scope: table.view() for scope, table in self.tables.items()}
        for view in views.values():
            view.setflags(write=False)
        return LayoutProblem(self.counts, views, self.names, self.limit_entries, self.width)


class LayoutChoice(Algorithm):
    """Choose the states of all tensors of a program; relayouts and op layouts follow from the states."""

    registry: ClassVar[Registry[LayoutChoice]] = REGISTRIES["layout_choice"]

    @abc.abstractmethod
    def choose(self, problem: LayoutProblem) -> Sequence[int] | None:
        """Return the index of a state for each tensor; None if no states are compatible.

        Args:
            problem: The tensors of a program, and the costs of their states.
        """

    def minimum(self, problem: LayoutProblem) -> Minimum:
        """Return the checked answer with its cost; the cost is infinite if no states are compatible."""
        text = f"{len(problem.counts)} tensors"
        with self.guarded(text):
            answer = self.choose(problem.unchangeable())
        if answer is None:
            least = problem.sum().minimize(problem.limit_entries, problem.width)
            if least.cost < math.inf:
                self.reject(f"it is None, but the best states cost {least.cost:,.0f} ps", text)
            return least
        states = self.checked_states(answer, problem.counts, text)
        cost = problem.cost(states)
        if not cost < math.inf:
            self.reject("it has incompatible states, whose cost is infinite", text)
        return Minimum(states, cost, 0.0)


@register
class EliminationChoice(LayoutChoice):
    """Minimise the sum by eliminating tensors; exact unless tables grow too large (``optimization/elimination.py``)."""

    name: ClassVar[str] = "elimination"

    def choose(self, problem: LayoutProblem) -> Sequence[int] | None:
        """Return the states of the smallest sum."""
        least = self.minimum(problem)
        return least.states if least.cost < math.inf else None

    def minimum(self, problem: LayoutProblem) -> Minimum:
        """Return the smallest sum with a lower bound."""
        return problem.sum().minimize(problem.limit_entries, problem.width)


def cheapest_layouts(name: str, problem: LayoutProblem) -> Minimum:
    """Return the states that the layout choice ``name`` chooses."""
    problems.offer("layout", problem)
    return LayoutChoice.registry.make(name).minimum(problem)
