# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaceable joint division: choose a division of each operation and a placement of each buffer by tables of times.

The time of an operation is hypot(compute, memory), its overlapped compute and memory time. For any angle ``a`` the time
is at least ``cos(a) * compute + sin(a) * memory``. This is a sum over operands, so with placements every cost is a
table of two variables, and ``optimization/elimination.py`` finds the smallest sum, a lower bound for any choice. Angles
that follow the ratio of memory to compute of each operation in the previous choice (a subgradient of the Lagrangian
dual) raise the bound and improve the choice; the result is the best choice by its real time. The memory planner decides
whether all placements fit the scratchpads together, so the bound holds for every plan with these candidates.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir import problems
from spyre_mlir.algorithms import REGISTRIES, Algorithm, Registry, register
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.optimization.elimination import Sum
from spyre_mlir.records import dataclass

Table = NDArray[np.float64]

#: Step sizes with which the angles follow the ratio of memory to compute, per round.
_STEPS = (0.8, 0.5, 0.3)

#: Minimum distance of an angle from compute alone and memory alone, so that the other one decides between ties.
_LEAST_ANGLE = 0.05


@dataclass(frozen=True, eq=False)
class JointTable:
    """Times of one or two variables, [3, states..], in nanoseconds: waits that nothing overlaps, compute, memory.

    Compute and memory belong to ``operation``, which may be None. Times of incompatible states are infinite.
    """

    scope: tuple[int, ...]
    operation: int | None
    planes: Table


@dataclass(frozen=True)
class JointTimes:
    """Nanoseconds of a choice in total, and the compute and memory nanoseconds of each operation."""

    total_ns: float
    compute_ns: tuple[float, ...]
    memory_ns: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class JointProblem:
    """Operations with division candidates, and buffers with placements; variables are operations, then buffers.

    Candidate 0 is the original division, placement 0 is device memory; they are compatible. The time of a function is
    the sum of the waits of all tables and of hypot(compute, memory) of each operation.

    Attributes:
        counts: The numbers of candidates of the operations and of placements of the buffers.
        counts_as_is: The numbers of first candidates and placements that keep the division and need no relayout.
        splits: The slices of each candidate of each operation.
        tables: The times in nanoseconds of states of one or two variables.
        measure: Computes the compiler's exact times of a choice; None for a problem read from a file.
    """

    counts: tuple[int, ...]
    counts_as_is: tuple[int, ...]
    splits: tuple[tuple[tuple[int, ...], ...], ...]
    tables: tuple[JointTable, ...]
    measure: Callable[[tuple[int, ...]], JointTimes] | None = field(default=None, repr=False)

    @property
    def operations(self) -> int:
        """The number of operations, which are the first variables."""
        return len(self.splits)

    def times(self, states: Sequence[int]) -> JointTimes:
        """Return the times of a choice by the tables; infinite if states are incompatible.

        The compiler's exact times (``measured``) also include bus turnarounds and relayouts that readers share.

        Args:
            states: The state of each variable.
        """
        spent = np.zeros((3, self.operations))
        waits = []
        for table in self.tables:
            entry = table.planes[(slice(None), *(states[variable] for variable in table.scope))]
            waits.append(float(entry[0]))
            if table.operation is not None:
                spent[:, table.operation] += entry
        compute, memory = spent[1].tolist(), spent[2].tolist()
        total = math.fsum([*waits, *map(math.hypot, compute, memory)])
        return JointTimes(total, tuple(compute), tuple(memory))

    def measured(self, states: tuple[int, ...]) -> JointTimes:
        """Return the compiler's exact times of ``states``; the times of the tables for a problem of a file."""
        return self.times(states) if self.measure is None else self.measure(states)

    def minimum(self, angles: NDArray[np.float64], *, as_is: bool) -> tuple[tuple[int, ...], float]:
        """Return the states of the smallest weighted sum and a bound in nanoseconds.

        Args:
            angles: For each operation the angle in radians of the weights, cos of compute and sin of memory.
            as_is: Keep the original divisions, without relayouts.
        """
        sizes = self.counts_as_is if as_is else self.counts
        weighted, total = {}, Sum(sizes)
        for table in self.tables:
            # Equal tables are one object, so the elimination recognises equal sums by identity.
            angle = None if table.operation is None else angles[table.operation]
            key = id(table.planes), angle
            if key not in weighted:
                # Libraries differ in the last digit of a sine; rounding gives equal plans on all machines.
                cosine, sine = round(math.cos(angle or 0.0), 9), round(math.sin(angle or 0.0), 9)
                waits, compute, memory = table.planes
                # Sums of whole picoseconds are exact in any order, so equal sums compare equal.
                sums = np.rint((waits + cosine * compute + sine * memory) * PICOSECONDS)
                weighted[key] = sums[tuple(slice(0, sizes[variable]) for variable in table.scope)]
            total.add(table.scope, weighted[key])
        minimum = total.minimize()
        # States 0 are the original divisions and device memory, which are always compatible.
        if minimum.cost == math.inf:
            return (0,) * len(sizes), minimum.bound / PICOSECONDS
        return minimum.states, minimum.bound / PICOSECONDS

    @functools.cached_property
    def as_is(self) -> tuple[int, ...]:
        """The states with the original divisions and the best placements of buffers."""
        return self.minimum(np.full(self.operations, math.pi / 4), as_is=True)[0]

    def unchangeable(self) -> JointProblem:
        """Return the problem with read-only tables, because the tables are in caches."""
        tables = []
        for table in self.tables:
            view = table.planes.view()
            view.setflags(write=False)
            tables.append(replace(table, planes=view))
        return replace(self, tables=tuple(tables))


class JointDivider(Algorithm):
    """Divisions of all operations and placements of all buffers of a function, chosen together."""

    registry: ClassVar[Registry[JointDivider]] = REGISTRIES["joint_division"]

    @abc.abstractmethod
    def choose(self, problem: JointProblem) -> Sequence[int]:
        """Return the index of a candidate for each operation, then the index of a placement for each buffer.

        Args:
            problem: The operations and buffers of a function.
        """

    def solve(self, problem: JointProblem, limit_ns: float = math.inf) -> tuple[tuple[int, ...], float]:
        """Return the checked answer, and a lower bound in nanoseconds of every choice.

        Choices of ``limit_ns`` or more are not needed: a search may end as soon as its bound reaches the limit.
        """
        text = f"{problem.operations} operations and {len(problem.counts) - problem.operations} buffers"
        with self.guarded(text):
            answer = self.choose(problem.unchangeable())
        states = self.checked_states(answer, problem.counts, text)
        if not problem.times(states).total_ns < math.inf:
            self.reject("it has incompatible states, whose time is infinite", text)
        return states, 0.0


@register
class LagrangianDivider(JointDivider):
    """Rounds of weighted sums, each the smallest by elimination; the best choice of all rounds by its real time."""

    name: ClassVar[str] = "lagrangian"

    def choose(self, problem: JointProblem) -> Sequence[int]:
        """Return the best choice."""
        return self.solve(problem)[0]

    def solve(self, problem: JointProblem, limit_ns: float = math.inf) -> tuple[tuple[int, ...], float]:
        """Return the best choice of all rounds, with the largest bound."""
        angles = np.full(problem.operations, math.pi / 4)
        best, bound = problem.as_is, 0.0
        least_ns = problem.measured(best).total_ns
        for step in (*_STEPS, None):
            states, least = problem.minimum(angles, as_is=False)
            bound, times = max(bound, least), problem.measured(states)
            if times.total_ns < least_ns:
                best, least_ns = states, times.total_ns
            # No round follows the last one, so it needs no new angles.
            if step is None or bound >= limit_ns:
                break
            # Move each angle towards the angle at which the weighted sum of the operation equals its time.
            own = np.array(list(map(math.atan2, times.memory_ns, times.compute_ns)))
            turned = np.round(angles + step * (own - angles), 9)
            angles = np.clip(turned, _LEAST_ANGLE, math.pi / 2 - _LEAST_ANGLE)
        return best, bound


def joint_states(
    name: str, problem: JointProblem, limit_ns: float = math.inf
) -> tuple[tuple[int, ...], float]:
    """Return the states that the joint divider ``name`` chooses, and a lower bound in nanoseconds."""
    problems.offer("joint", problem)
    return JointDivider.registry.make(name).solve(problem, limit_ns)
