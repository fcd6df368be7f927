"""Divisions that agree: neighbouring operations slice a buffer alike where that keeps it on chip.

Work division looks at one operation at a time, so two of them may want other parts of the buffer between
them, and it has to go through device memory. Here each operation has a few *variants* (``variants.py``), and each
buffer a *home* (``homes.py``): views that its writer and readers share, maybe with a relayout over the ring between
them, or device memory. Both are chosen at once, for the shortest program.

An operation takes the longer of its compute and its memory time. For any weights ``w`` between 0 and 1 that is at
least ``w * compute + (1 - w) * memory``, which is a sum over operands, so homes make every cost a table of two
variables and ``layout/elimination.py`` finds the smallest sum. It bounds what any choice takes. Weights that follow
what binds each operation of the choice before (a subgradient of the Lagrangian dual) raise the bound and better the
choice; the best choice by its real time is kept. Whether all homes fit the scratchpads at once is left to their
planner, so the bound holds for every plan with these variants.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.model import compute_ns, least_stream_ns, memory_ns, operation_cost, ring_ns, transfer_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.division.cores import Division
from spyre_mlir.division.homes import Home, homes_of
from spyre_mlir.division.ownership import CoreView
from spyre_mlir.division.variants import Shared, Variant, Work, left_view, read_view, variants_of
from spyre_mlir.layout.elimination import Sum
from spyre_mlir.layout.space import Space
from spyre_mlir.target.device import device

Table = NDArray[np.float64]

#: How far the weights follow what binds, from one round to the next.
_STEPS = (0.4, 0.25, 0.15)


@dataclass(frozen=True)
class Agreement:
    """The variant of each work and the home of each buffer, None in device memory.

    Nanoseconds ``before``, with the divisions as they came and buffers in their best homes, and ``after``; no choice
    of these variants takes less than ``bound``.
    """

    variants: tuple[Variant, ...]
    homes: tuple[Home | None, ...]
    before: float
    after: float
    bound: float

    @property
    def proven(self) -> bool:
        """Whether no choice takes less."""
        return self.after <= self.bound


def agree(
    works: Sequence[Work], buffers: Sequence[Shared], capacity: int, most: int = 8, relayouts: bool = True
) -> Agreement:
    """The best choice found; each work has at most ``most`` variants, ``capacity`` is that of LX in bytes."""
    return _Problem(works, buffers, capacity, most, relayouts).solved()


@dataclass(frozen=True)
class _Choice:
    """States of all works, then of all buffers, and the time that they take."""

    states: tuple[int, ...]
    nanoseconds: float


class _Problem:
    """Works with variants and buffers with homes; the last state of a buffer is device memory."""

    def __init__(
        self, works: Sequence[Work], buffers: Sequence[Shared], capacity: int, most: int, relayouts: bool
    ) -> None:
        self.works, self.buffers = works, buffers
        self.variants = variants_of(works, buffers, most)
        self.homes = [homes_of(works, self.variants, each, capacity, relayouts) for each in buffers]
        touched = frozenset(access for buffer in buffers for access in buffer.accesses)
        self.untouched = [
            tuple(operand for operand in range(len(work.space.views)) if (at, operand) not in touched)
            for at, work in enumerate(works)
        ]

    def solved(self) -> Agreement:
        """The best of all rounds, and the largest bound."""
        weights = np.full(len(self.works), 0.5)
        start = self._timed(self._minimum(weights, fixed=True)[0])
        best, bound = start, 0.0
        for step in (*_STEPS, None):
            states, least = self._minimum(weights, fixed=False)
            bound = max(bound, least)
            found = self._timed(states)
            best = min(best, found, key=lambda choice: choice.nanoseconds)
            if step is None or best.nanoseconds <= bound:
                break
            weights = self._followed(weights, found.states, step)
        works = len(self.works)
        return Agreement(
            tuple(some[state] for some, state in zip(self.variants, best.states, strict=False)),
            tuple(
                some[state] if state < len(some) else None
                for some, state in zip(self.homes, best.states[works:], strict=True)
            ),
            start.nanoseconds,
            best.nanoseconds,
            min(bound, best.nanoseconds),
        )

    # -- the sum ---------------------------------------------------------------------------------------

    def _minimum(self, weights: NDArray[np.float64], fixed: bool) -> tuple[tuple[int, ...], float]:
        """The states of the smallest weighted sum, ``fixed`` with the divisions as they came, and a bound in ns."""
        works = len(self.works)
        sizes = [1 if fixed else len(some) for some in self.variants] + [len(some) + 1 for some in self.homes]
        total = Sum(sizes)
        for at, work in enumerate(self.works):
            own = _own_table(work.opcode, work.space, work.executions, self.variants[at], self.untouched[at])
            total.add((at,), _weighted(own[:, : sizes[at]], weights[at]))
        for number, (buffer, homes) in enumerate(zip(self.buffers, self.homes, strict=True)):
            for position, (at, operand) in enumerate(buffer.accesses):
                access = _Access(
                    self.works[at], operand, self._writes(buffer, at, operand), buffer.share(position)
                )
                table = _access_table(access, self.variants[at], homes, self.untouched[at])
                total.add((at, works + number), _weighted(table[:, : sizes[at]], weights[at]))
            at, operand = buffer.accesses[0]
            first = self.works[at], operand, self.variants[at][0].division
            total.add((works + number,), _whole(_home_costs(*first, buffer.copies, homes)))
        found = total.minimize()
        if found.cost == math.inf:
            start = [0] * works + [len(some) for some in self.homes]
            return tuple(start), found.bound / PICOSECONDS
        return found.states, found.bound / PICOSECONDS

    # -- real times ------------------------------------------------------------------------------------

    def _timed(self, states: tuple[int, ...]) -> _Choice:
        """The time that a choice takes: the longer of compute and memory of each operation."""
        spent = [
            work.executions * operation_cost(done).total_ns
            for work, done in zip(self.works, self._done(states), strict=True)
        ]
        for number, (buffer, homes) in enumerate(zip(self.buffers, self.homes, strict=True)):
            at, operand = buffer.accesses[0]
            division = self.variants[at][states[at]].division
            costs = _home_costs(self.works[at], operand, division, buffer.copies, homes)
            state = states[len(self.works) + number]
            spent.append(costs[state])
            if state < len(homes):
                spent.append(homes[state].relayout_ns * self._relayouts(buffer, homes[state], states))
        return _Choice(states, math.fsum(spent))

    def _relayouts(self, buffer: Shared, home: Home, states: tuple[int, ...]) -> int:
        """How many relayouts of a buffer run: one of each value that a reader wants so."""
        wanted = {
            buffer.value(position)
            for position, (at, operand) in enumerate(buffer.accesses)
            if not self._writes(buffer, at, operand) and home.relays(self._read(at, operand, states))
        }
        return sum(runs for _, runs in wanted)

    def _writes(self, buffer: Shared, at: int, operand: int) -> bool:
        return not buffer.given and operand == len(self.works[at].space.views) - 1

    def _read(self, at: int, operand: int, states: tuple[int, ...]) -> CoreView | None:
        return read_view(self.works[at], operand, self.variants[at][states[at]])

    def _done(self, states: tuple[int, ...]) -> list[OperationWork]:
        """What each operation does, with the operands in LX that are there."""
        in_lx: list[set[int]] = [set() for _ in self.works]
        for number, (buffer, homes) in enumerate(zip(self.buffers, self.homes, strict=True)):
            state = states[len(self.works) + number]
            if state == len(homes):
                continue
            for at, operand in buffer.accesses:
                view = self._read(at, operand, states)
                if self._writes(buffer, at, operand) or homes[state].serves(view):
                    in_lx[at].add(operand)
        return [
            operation_work(work.opcode, work.space, some[states[at]].division, frozenset(in_lx[at]))
            for at, (work, some) in enumerate(zip(self.works, self.variants, strict=True))
        ]

    def _followed(
        self, weights: NDArray[np.float64], states: tuple[int, ...], step: float
    ) -> NDArray[np.float64]:
        """Weights nearer to what binds each operation: compute (1) or memory (0)."""
        binds = [float(compute_ns(done) >= memory_ns(done)) for done in self._done(states)]
        return np.clip(weights + step * (2 * np.array(binds) - 1), 0.0, 1.0)


# -- tables: waits that nothing overlaps, compute, memory; one plane each --------------------------------


@functools.lru_cache(maxsize=1 << 12)
def _own_table(
    opcode: str, space: Space, executions: int, variants: tuple[Variant, ...], untouched: tuple[int, ...]
) -> Table:
    """[3, variants]: what an operation costs apart from the buffers that could be on chip."""
    table = np.zeros((3, len(variants)))
    for at, variant in enumerate(variants):
        done = operation_work(opcode, space, variant.division)
        table[0, at] = ring_ns(done) + device().hbm_access_ns * len(untouched)
        table[1, at] = compute_ns(done)
        table[2, at] = sum(least_stream_ns(done, operand, untouched) for operand in untouched)
    return executions * table


@dataclass(frozen=True)
class _Access:
    """An operand of a work that is written or read, which pays for so many relayouts."""

    work: Work
    operand: int
    writes: bool
    relayouts: float


@functools.lru_cache(maxsize=1 << 13)
def _access_table(
    access: _Access, variants: tuple[Variant, ...], homes: tuple[Home, ...], untouched: tuple[int, ...]
) -> Table:
    """[3, variants, homes + 1]: nothing, or a relayout, where they agree; else device memory, or impossible."""
    work, operand = access.work, access.operand
    table = np.zeros((3, len(variants), len(homes) + 1))
    for row, variant in enumerate(variants):
        done = operation_work(work.opcode, work.space, variant.division)
        moved = device().hbm_access_ns, 0.0, least_stream_ns(done, operand, untouched)
        there = np.array(moved) * work.executions
        table[:, row, -1] = there
        view = left_view(work, variant) if access.writes else read_view(work, operand, variant)
        for column, home in enumerate(homes):
            if home.view == view if access.writes else home.serves(view):
                table[0, row, column] = access.relayouts * home.relayout_ns * home.relays(view)
                continue
            table[:, row, column] = there if home.copied and not access.writes else (math.inf, 0.0, 0.0)
    return table


def _home_costs(
    work: Work, operand: int, division: Division, copies: int, homes: Sequence[Home]
) -> list[float]:
    """What copies of a buffer to or from device memory cost in each home."""
    return [copies * _copies_ns(work, operand, division, home) for home in homes] + [0.0]


def _copies_ns(work: Work, operand: int, division: Division, home: Home) -> float:
    if not home.copied:
        return 0.0
    touched = operation_work(work.opcode, work.space, division).operands[operand]
    cores = len(home.view.regions)
    moved = replace(touched, core_bytes=touched.bytes // cores)
    stream = transfer_ns(moved, cores, device().one_way_bytes_per_ns)
    return device().hbm_access_ns + stream


def _weighted(table: Table, weight: float) -> Table:
    """Waits, and compute and memory by weights that add up to 1."""
    return _whole(table[0] + weight * table[1] + (1 - weight) * table[2])


def _whole(costs: Sequence[float] | Table) -> Table:
    """Nanoseconds as whole picoseconds: their sums are exact in any order, so equal ones are equal."""
    return np.rint(np.asarray(costs) * PICOSECONDS)
