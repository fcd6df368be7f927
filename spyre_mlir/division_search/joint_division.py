# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Joint division: neighbouring operations slice a buffer alike where that keeps it on chip.

Work division looks at one operation at a time, so two of them may want other parts of the buffer between them, and it
has to go through device memory. Here each operation has a few *variants* (``division_candidates.py``), and each
buffer a *placement* (``placements.py``): views that its writer and readers share, maybe with a relayout over the ring
between them, or device memory. Both are chosen at once, for the shortest program. The search is that of
``joint_choice.py``, or another.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from spyre_mlir.cost.cost_model import compute_ns, lx_saving_ns, operation_cost, ring_ns, stream_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.division.ownership import CoreView
from spyre_mlir.division_search.division_candidates import (
    DividedOp,
    DivisionCandidate,
    SharedBuffer,
    division_candidates,
)
from spyre_mlir.division_search.joint_choice import JointProblem, JointTable, JointTimes, Table, joint_states
from spyre_mlir.division_search.placements import (
    BufferAccess,
    BufferPlacement,
    BufferSource,
    is_resident,
    placements_of,
)
from spyre_mlir.layout.space import Space
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class JointDivision:
    """The division of each operation and the placement of each buffer, None in device memory.

    Nanoseconds ``before``, with the divisions as they came and buffers in their best placements, and ``after``; no
    choice of these candidates takes less than ``bound``.
    """

    candidates: tuple[DivisionCandidate, ...]
    placements: tuple[BufferPlacement | None, ...]
    before: float
    after: float
    bound: float


def divide_jointly(
    ops: Sequence[DividedOp],
    buffers: Sequence[SharedBuffer],
    capacity: int,
    limit: int = 8,
    relayouts: bool = True,
) -> JointDivision:
    """Return the best choice; each operation has at most ``limit`` candidates, ``capacity`` is that of LX in bytes."""
    return DivisionProblem.of(ops, buffers, limit).divide(capacity, relayouts)


@dataclass(frozen=True)
class DivisionProblem:
    """Operations with their division candidates, and buffers with their accesses; to be divided under any limits."""

    ops: Sequence[DividedOp]
    buffers: Sequence[SharedBuffer]
    candidates: Sequence[tuple[DivisionCandidate, ...]]
    accesses: Sequence[tuple[BufferAccess, ...]]

    @classmethod
    def of(cls, ops: Sequence[DividedOp], buffers: Sequence[SharedBuffer], limit: int) -> DivisionProblem:
        """Return the problem in which each operation has at most ``limit`` candidates."""
        # Equal tuples become one object, which makes keys of caches cheap to compare.
        unique: dict[tuple[DivisionCandidate, ...], tuple[DivisionCandidate, ...]] = {}
        candidates = [
            unique.setdefault(options, options) for options in division_candidates(ops, buffers, limit)
        ]

        def access(buffer: SharedBuffer, index: int, operand: int) -> BufferAccess:
            writes = not buffer.from_host and operand == len(ops[index].space.views) - 1
            return BufferAccess(ops[index], operand, writes, candidates[index])

        accesses = [
            tuple(access(buffer, index, operand) for index, operand in buffer.accesses) for buffer in buffers
        ]
        return cls(ops, buffers, candidates, accesses)

    def divide(self, capacity: int, relayouts: bool, algorithm: str = "lagrangian") -> JointDivision:
        """Return the best choice with buffers of at most ``capacity`` bytes per core, over the ring or not."""
        return _JointSearch(self, capacity, relayouts).solve(algorithm)


class _JointSearch:
    """Operations with candidates and buffers with placements; the first state of a buffer is device memory."""

    def __init__(self, problem: DivisionProblem, capacity: int, relayouts: bool) -> None:
        self.ops, self.buffers = problem.ops, problem.buffers
        self.candidates, self.accesses = problem.candidates, problem.accesses
        self.placements = [
            placements_of(
                accesses,
                BufferSource(buffer.from_host, buffer.result, buffer.space, buffer.holder),
                capacity,
                relayouts,
            )
            for buffer, accesses in zip(self.buffers, self.accesses, strict=True)
        ]
        # A choice is asked for its placements and its work several times before the next one.
        self._placements: dict[tuple[int, ...], list[BufferPlacement | None]] = {}
        self._times: dict[tuple[int, ...], JointTimes] = {}
        self._work: dict[tuple[int, ...], list[OperationWork]] = {}

    def solve(self, algorithm: str) -> JointDivision:
        """Return the choice of an algorithm, with its bound."""
        problem = self._problem()
        states, bound = joint_states(algorithm, problem)
        # What there is without a joint division, to compare with.
        before, after = (self._measured(chosen).total_ns for chosen in (problem.as_is, states))
        return JointDivision(
            tuple(options[state] for options, state in zip(self.candidates, states, strict=False)),
            tuple(self._placements_of(states)),
            before,
            after,
            min(bound, after),
        )

    def _problem(self) -> JointProblem:
        """The choice as plain data."""
        splits = [tuple(candidate.division.splits for candidate in options) for options in self.candidates]
        return JointProblem(
            tuple(map(len, (*self.candidates, *self.placements))),
            (*(1 for _ in self.ops), *map(_without_relayouts, self.placements)),
            tuple(splits),
            tuple(self._tables()),
            self._measured,
        )

    def _placements_of(self, states: tuple[int, ...]) -> list[BufferPlacement | None]:
        """The placement of each buffer."""
        if states not in self._placements:
            self._placements[states] = [
                self._placement(number, states) for number in range(len(self.buffers))
            ]
        return self._placements[states]

    def _placement(self, number: int, states: Sequence[int]) -> BufferPlacement | None:
        """The placement of a buffer, without copies and relayouts that no reader needs.

        A clone of an argument for one reader mostly takes longer than reading it, but by the model the bus need not
        turn round then; ``clone-inputs`` makes none.
        """
        placement = self.placements[number][states[len(self.ops) + number]]
        if placement is None:
            return None
        if placement.in_hbm and not self._clone_pays(number, placement, states):
            return None
        if placement.relayout_view is None or self._relayouts(number, placement, states):
            return placement
        return replace(placement, relayout_view=None, relayout_ns=0.0)

    def _clone_pays(self, number: int, placement: BufferPlacement, states: Sequence[int]) -> bool:
        """Return whether the reads of a buffer that find it on chip pay for its clone."""
        buffer, reads, saved = self.buffers[number], 0, 0.0
        for access, (index, operand) in zip(self.accesses[number], buffer.accesses, strict=True):
            if access.writes or not placement.accepts_reader(self._view(access, index, states)):
                continue
            op, division = self.ops[index], self.candidates[index][states[index]].division
            work = operation_work(op.opcode, op.space, division)
            reads += op.executions
            saved += op.executions * lx_saving_ns(work, work.operands[operand])
        if not buffer.from_host:
            return reads > 0
        return reads >= 2 * buffer.copies or saved > buffer.copies * placement.copy_ns

    # -- the sum ---------------------------------------------------------------------------------------

    def _tables(self) -> Iterator[JointTable]:
        """Yield the tables; the planes of equal ones are one object."""
        shared = frozenset(access for buffer in self.buffers for access in buffer.accesses)
        for index, op in enumerate(self.ops):
            unshared = tuple(
                operand for operand in range(len(op.space.views)) if (index, operand) not in shared
            )
            yield JointTable(
                (index,),
                index,
                _operation_table(op.opcode, op.space, op.executions, self.candidates[index], unshared),
            )
        for number, (buffer, placements) in enumerate(zip(self.buffers, self.placements, strict=True)):
            variable = len(self.ops) + number
            for position, access in enumerate(self.accesses[number]):
                index, _ = buffer.accesses[position]
                yield JointTable(
                    (index, variable),
                    index,
                    _access_table(access, buffer.share(position), placements),
                )
            yield JointTable((variable,), None, _placement_table(buffer.copies, placements))

    # -- real times ------------------------------------------------------------------------------------

    def _measured(self, states: tuple[int, ...]) -> JointTimes:
        """The time that a choice takes: compute and memory of each operation overlapped."""
        if states not in self._times:
            self._times[states] = self._computed_times(states)
        return self._times[states]

    def _computed_times(self, states: tuple[int, ...]) -> JointTimes:
        work_of_ops = self._work_of_ops(states)
        costs = [
            (op.executions, operation_cost(work)) for op, work in zip(self.ops, work_of_ops, strict=True)
        ]
        spent = [runs * cost.total_ns for runs, cost in costs]
        for number, placement in enumerate(self._placements_of(states)):
            if placement is not None:
                buffer = self.buffers[number]
                spent.append(buffer.copies * placement.copy_ns)
                spent.append(placement.relayout_ns * self._relayouts(number, placement, states))
        compute, memory = (
            tuple(getattr(cost, part) for _, cost in costs) for part in ("compute_ns", "memory_ns")
        )
        return JointTimes(math.fsum(spent), compute, memory)

    def _relayouts(self, number: int, placement: BufferPlacement, states: Sequence[int]) -> int:
        """Count the relayouts of a buffer that run: one of each value that a reader needs so."""
        buffer = self.buffers[number]
        values = {
            buffer.value(position)
            for position, access in enumerate(self.accesses[number])
            if not access.writes
            and placement.needs_relayout(self._view(access, buffer.accesses[position][0], states))
        }
        return sum(runs for _, runs in values)

    def _view(self, access: BufferAccess, index: int, states: Sequence[int]) -> CoreView | None:
        return access.view(self.candidates[index][states[index]])

    def _work_of_ops(self, states: tuple[int, ...]) -> list[OperationWork]:
        """The work of each operation, with its operands in LX."""
        if states not in self._work:
            self._work[states] = self._computed_work(states)
        return self._work[states]

    def _computed_work(self, states: tuple[int, ...]) -> list[OperationWork]:
        in_lx: list[set[int]] = [set() for _ in self.ops]
        for number, placement in enumerate(self._placements_of(states)):
            if placement is None:
                continue
            accesses = self.buffers[number].accesses
            for access, (index, operand) in zip(self.accesses[number], accesses, strict=True):
                if access.writes or placement.accepts_reader(self._view(access, index, states)):
                    in_lx[index].add(operand)
        return [
            operation_work(op.opcode, op.space, options[states[index]].division, frozenset(in_lx[index]))
            for index, (op, options) in enumerate(zip(self.ops, self.candidates, strict=True))
        ]


def _without_relayouts(placements: Sequence[BufferPlacement | None]) -> int:
    """Count the placements before the first one with a relayout."""
    return next(
        (
            index
            for index, placement in enumerate(placements)
            if placement is not None and placement.relayout_view
        ),
        len(placements),
    )


# -- tables: waits that nothing overlaps, compute, memory; one plane each --------------------------------


@functools.lru_cache(maxsize=1 << 12)
def _operation_table(
    opcode: str,
    space: Space,
    executions: int,
    candidates: tuple[DivisionCandidate, ...],
    unshared: tuple[int, ...],
) -> Table:
    """[3, candidates]: cost of an operation without its operands that could be on chip."""
    table = np.zeros((3, len(candidates)))
    for column, candidate in enumerate(candidates):
        work = operation_work(opcode, space, candidate.division)
        table[0, column] = ring_ns(work) + space.target.hbm_access_ns * len(unshared)
        table[1, column] = compute_ns(work)
        table[2, column] = sum(stream_ns(work, work.operands[operand]) for operand in unshared)
    return executions * table


@functools.lru_cache(maxsize=1 << 13)
def _access_table(
    access: BufferAccess,
    relayouts: float,
    placements: tuple[BufferPlacement | None, ...],
) -> Table:
    """[3, candidates, placements]: nothing, or ``relayouts``, where they match; else device memory, or impossible."""
    op, table = access.op, np.zeros((3, len(access.candidates), len(placements)))
    for row, candidate in enumerate(access.candidates):
        work = operation_work(op.opcode, op.space, candidate.division)
        transfer = op.space.target.hbm_access_ns, 0.0, stream_ns(work, work.operands[access.operand])
        from_hbm = np.array(transfer) * op.executions
        view = access.view(candidate)
        # The placements of a buffer share few views.
        accepts = functools.cache(functools.partial(is_resident, view=view))
        for column, placement in enumerate(placements):
            if placement is None:
                table[:, row, column] = from_hbm
                continue
            is_there = accepts(placement.view)
            comes = not is_there and accepts(placement.relayout_view)
            if placement.accepts_writer(view) if access.writes else is_there or comes:
                table[0, row, column] = relayouts * placement.relayout_ns * comes
            else:
                table[:, row, column] = (
                    from_hbm if placement.in_hbm and not access.writes else (math.inf, 0.0, 0.0)
                )
    return table


@functools.lru_cache(maxsize=1 << 13)
def _placement_table(copies: int, placements: tuple[BufferPlacement | None, ...]) -> Table:
    """[3, placements]: cost of the copies of a buffer to or from device memory."""
    table = np.zeros((3, len(placements)))
    table[0] = [0.0 if placement is None else copies * placement.copy_ns for placement in placements]
    return table
