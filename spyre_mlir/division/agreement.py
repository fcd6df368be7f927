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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.model import compute_ns, least_stream_ns, memory_ns, operation_cost, ring_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.division.homes import Home, Kept, Touch, homes_of
from spyre_mlir.division.ownership import CoreView
from spyre_mlir.division.variants import Shared, Variant, Work, variants_of
from spyre_mlir.layout.elimination import Sum
from spyre_mlir.layout.space import Space
from spyre_mlir.target.device import device

Table = NDArray[np.float64]

#: How far the weights follow what binds, from one round to the next.
_STEPS = (0.4, 0.25, 0.15)

#: What the shorter of compute and memory counts for, too: where memory binds, few cores are as fast as many, but
#: they leave no room for an error of the model.
_HIDDEN = 0.05


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


def agree(
    works: Sequence[Work], buffers: Sequence[Shared], capacity: int, most: int = 8, relayouts: bool = True
) -> Agreement:
    """The best choice found; each work has at most ``most`` variants, ``capacity`` is that of LX in bytes."""
    return _Problem(works, buffers, capacity, most, relayouts).solved()


@dataclass(frozen=True)
class _Choice:
    """States of all works, then of all buffers, the time that they take, and what overlaps of compute and memory."""

    states: tuple[int, ...]
    nanoseconds: float
    hidden: float

    @property
    def price(self) -> float:
        """By what choices are compared."""
        return self.nanoseconds + _HIDDEN * self.hidden


class _Problem:
    """Works with variants and buffers with homes; the first state of a buffer is device memory."""

    def __init__(
        self, works: Sequence[Work], buffers: Sequence[Shared], capacity: int, most: int, relayouts: bool
    ) -> None:
        self.works, self.buffers = works, buffers
        same: dict[tuple[Variant, ...], tuple[Variant, ...]] = {}
        self.variants = [same.setdefault(some, some) for some in variants_of(works, buffers, most)]
        self.touches = [
            tuple(self._touch(buffer, at, operand) for at, operand in buffer.accesses) for buffer in buffers
        ]
        self.homes = [
            homes_of(
                touches, Kept(buffer.given, buffer.result, buffer.space, buffer.holder), capacity, relayouts
            )
            for buffer, touches in zip(buffers, self.touches, strict=True)
        ]
        self.tables = list(self._tables())

    def solved(self) -> Agreement:
        """The best of all rounds, and the largest bound."""
        weights = np.full(len(self.works), 0.5)
        start = self._timed(self._minimum(weights, fixed=True)[0])
        best, bound = start, 0.0
        for step in (*_STEPS, None):
            states, least = self._minimum(weights, fixed=False)
            bound = max(bound, least)
            found = self._timed(states)
            best = min(best, found, key=lambda choice: choice.price)
            if step is None:
                break
            weights = self._followed(weights, found.states, step)
        return Agreement(
            tuple(some[state] for some, state in zip(self.variants, best.states, strict=False)),
            tuple(self._home(number, best.states) for number in range(len(self.buffers))),
            start.nanoseconds,
            best.nanoseconds,
            min(bound, best.nanoseconds),
        )

    def _home(self, number: int, states: Sequence[int]) -> Home | None:
        """The home of a buffer, without copies and relayouts that nobody wants.

        A clone for one reader of what is given takes longer than reading it, but by the model the bus need not turn
        round then; ``clone-inputs`` makes none.
        """
        home, buffer = self.homes[number][states[len(self.works) + number]], self.buffers[number]
        if home is None:
            return None
        if home.copied and self._served(number, home, states) < (2 * buffer.copies if buffer.given else 1):
            return None
        if home.relaid is None or self._relayouts(number, home, states):
            return home
        return replace(home, relaid=None, relayout_ns=0.0)

    def _served(self, number: int, home: Home, states: Sequence[int]) -> int:
        """How many reads of a buffer find it on chip."""
        accesses = zip(self.touches[number], self.buffers[number].accesses, strict=True)
        return sum(
            touch.work.executions
            for touch, (at, _) in accesses
            if not touch.writes and home.serves(self._view(touch, at, states))
        )

    def _touch(self, buffer: Shared, at: int, operand: int) -> Touch:
        writes = not buffer.given and operand == len(self.works[at].space.views) - 1
        return Touch(self.works[at], operand, writes, self.variants[at])

    # -- the sum ---------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[tuple[tuple[int, ...], int | None, Table]]:
        """The variables, the work whose weight counts and the planes of each table; equal ones are the same object."""
        touched = frozenset(access for buffer in self.buffers for access in buffer.accesses)
        apart = [
            tuple(operand for operand in range(len(work.space.views)) if (at, operand) not in touched)
            for at, work in enumerate(self.works)
        ]
        for at, work in enumerate(self.works):
            yield (
                (at,),
                at,
                _own_table(work.opcode, work.space, work.executions, self.variants[at], apart[at]),
            )
        for number, (buffer, homes) in enumerate(zip(self.buffers, self.homes, strict=True)):
            variable = len(self.works) + number
            for position, touch in enumerate(self.touches[number]):
                at, _ = buffer.accesses[position]
                yield (at, variable), at, _access_table(touch, buffer.share(position), homes, apart[at])
            yield (variable,), None, _home_table(buffer.copies, homes)

    def _minimum(self, weights: NDArray[np.float64], fixed: bool) -> tuple[tuple[int, ...], float]:
        """The states of the smallest weighted sum and a bound in nanoseconds.

        ``fixed``: with the divisions as they came, and without relayouts.
        """
        works, made = len(self.works), {}
        sizes = [1 if fixed else len(some) for some in self.variants]
        sizes += [_plain(some) if fixed else len(some) for some in self.homes]
        total = Sum(sizes)
        for scope, at, planes in self.tables:
            key = id(planes), None if at is None else weights[at]
            if key not in made:
                table = _weighted(planes, 0.5 if at is None else weights[at])
                made[key] = table[tuple(slice(0, sizes[variable]) for variable in scope)]
            total.add(scope, made[key])
        found = total.minimize()
        if found.cost == math.inf:
            return (0,) * (works + len(self.homes)), found.bound / PICOSECONDS
        return found.states, found.bound / PICOSECONDS

    # -- real times ------------------------------------------------------------------------------------

    def _timed(self, states: tuple[int, ...]) -> _Choice:
        """The time that a choice takes: the longer of compute and memory of each operation."""
        costs = [
            (work.executions, operation_cost(done))
            for work, done in zip(self.works, self._done(states), strict=True)
        ]
        spent = [runs * cost.total_ns for runs, cost in costs]
        hidden = math.fsum(runs * min(cost.compute_ns, cost.memory_ns) for runs, cost in costs)
        for number, buffer in enumerate(self.buffers):
            home = self._home(number, states)
            if home is not None:
                spent.append(buffer.copies * home.copy_ns)
                spent.append(home.relayout_ns * self._relayouts(number, home, states))
        return _Choice(states, math.fsum(spent), hidden)

    def _relayouts(self, number: int, home: Home, states: Sequence[int]) -> int:
        """How many relayouts of a buffer run: one of each value that a reader wants so."""
        buffer = self.buffers[number]
        wanted = {
            buffer.value(position)
            for position, touch in enumerate(self.touches[number])
            if not touch.writes and home.relays(self._view(touch, buffer.accesses[position][0], states))
        }
        return sum(runs for _, runs in wanted)

    def _view(self, touch: Touch, at: int, states: Sequence[int]) -> CoreView | None:
        return touch.view(self.variants[at][states[at]])

    def _done(self, states: tuple[int, ...]) -> list[OperationWork]:
        """What each operation does, with the operands in LX that are there."""
        in_lx: list[set[int]] = [set() for _ in self.works]
        for number, buffer in enumerate(self.buffers):
            home = self._home(number, states)
            if home is None:
                continue
            for touch, (at, operand) in zip(self.touches[number], buffer.accesses, strict=True):
                if touch.writes or home.serves(self._view(touch, at, states)):
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
        return np.clip(weights + step * (2 * np.array(binds) - 1), _HIDDEN, 1 - _HIDDEN)


def _plain(homes: Sequence[Home | None]) -> int:
    """How many homes there are before the first one with a relayout."""
    return next((at for at, home in enumerate(homes) if home is not None and home.relaid), len(homes))


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


@functools.lru_cache(maxsize=1 << 13)
def _access_table(
    touch: Touch, relayouts: float, homes: tuple[Home | None, ...], apart: tuple[int, ...]
) -> Table:
    """[3, variants, homes]: nothing, or ``relayouts``, where they agree; else device memory, or impossible.

    ``apart`` are the operands of the work that are in device memory in any case.
    """
    work, table = touch.work, np.zeros((3, len(touch.variants), len(homes)))
    for row, variant in enumerate(touch.variants):
        done = operation_work(work.opcode, work.space, variant.division)
        moved = device().hbm_access_ns, 0.0, least_stream_ns(done, touch.operand, apart)
        there = np.array(moved) * work.executions
        view = touch.view(variant)
        for column, home in enumerate(homes):
            if home is None:
                table[:, row, column] = there
            elif home.takes(view) if touch.writes else home.serves(view):
                table[0, row, column] = relayouts * home.relayout_ns * home.relays(view)
            else:
                table[:, row, column] = there if home.copied and not touch.writes else (math.inf, 0.0, 0.0)
    return table


@functools.lru_cache(maxsize=1 << 13)
def _home_table(copies: int, homes: tuple[Home | None, ...]) -> Table:
    """[3, homes]: what copies of a buffer to or from device memory cost in each home."""
    table = np.zeros((3, len(homes)))
    table[0] = [0.0 if home is None else copies * home.copy_ns for home in homes]
    return table


def _weighted(table: Table, weight: float) -> Table:
    """Waits, and compute and memory by weights that add up to 1."""
    return _whole(table[0] + weight * table[1] + (1 - weight) * table[2])


def _whole(costs: Table) -> Table:
    """Nanoseconds as whole picoseconds: their sums are exact in any order, so equal ones are equal."""
    return np.rint(costs * PICOSECONDS)
