# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses divisions and placements of buffers jointly: which buffers stay in LX, their slices, and relayouts."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from spyre_mlir.analysis.aliasing import all_ops, functions, is_compute
from spyre_mlir.analysis.buffer_uses import BufferAccesses, BufferUse, Usage
from spyre_mlir.analysis.core_ownership import SHUFFLE, Divided
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.loops import ancestor_in, block_of, executions
from spyre_mlir.analysis.plan_pins import pins_of
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.cost.cost_model import compute_ns, lx_saving_ns, operation_cost, ring_ns, stream_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.ownership import CoreView, local_bytes
from spyre_mlir.division_search.division_candidates import (
    BufferAccess,
    BufferPlacement,
    BufferSource,
    DividedOp,
    DivisionCandidate,
    Placements,
    SharedBuffer,
    division_candidates,
    is_resident,
    one_core_candidates,
    placements_of,
)
from spyre_mlir.division_search.joint_choice import JointProblem, JointTable, JointTimes, Table, joint_states
from spyre_mlir.layout import ViewError
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator, NoEvaluator
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remarks
from spyre_mlir.rewriting import clones
from spyre_mlir.rewriting.divider import Divider, work_of
from spyre_mlir.target.ops import KINDS, Kind
from spyre_mlir.timing import scope

# Joint division: neighbouring operations slice a buffer in the same way if that keeps the buffer on chip.
#
# Work division considers one operation at a time, so two operations may need different parts of the buffer between
# them, which must then go through device memory. Here each operation has a few *candidates*
# and each buffer has a *placement*: either views that its writer and readers share, possibly with a relayout over the
# ring between them, or device memory (both in ``division_candidates.py``). Both are chosen jointly, for the shortest
# program. The default search is in ``joint_choice.py``.


@dataclass(frozen=True)
class JointDivision:
    """The division of each operation and the placement of each buffer (None: device memory).

    ``before`` and ``after`` are nanoseconds: with the original divisions and the best placements of buffers, and with
    this choice. No choice of these candidates takes less than ``bound``.
    """

    candidates: tuple[DivisionCandidate, ...]
    placements: tuple[BufferPlacement | None, ...]
    before: float
    after: float
    bound: float


class DivisionProblem:
    """Operations with their division candidates, the present division first, and buffers with their accesses.

    The problem does not depend on limits such as the capacity.
    """

    def __init__(
        self,
        ops: Sequence[DividedOp],
        buffers: Sequence[SharedBuffer],
        candidates: Sequence[tuple[DivisionCandidate, ...]],
    ) -> None:
        self.ops, self.buffers = ops, buffers
        # Equal tuples become one object, so that cache keys are cheap to compare.
        unique: dict[tuple[DivisionCandidate, ...], tuple[DivisionCandidate, ...]] = {}
        self.candidates = [unique.setdefault(options, options) for options in candidates]

        def access(buffer: SharedBuffer, index: int, operand: int) -> BufferAccess:
            writes = not buffer.from_host and operand == len(ops[index].space.views) - 1
            return BufferAccess(ops[index], operand, writes, self.candidates[index])

        self.accesses = [
            tuple(access(buffer, index, operand) for index, operand in buffer.accesses) for buffer in buffers
        ]

    def divide(
        self,
        capacity: int,
        relayouts: bool,
        algorithm: str = "lagrangian",
        limit_ns: float = math.inf,
        *,
        together: bool = False,
    ) -> JointDivision:
        """Return the best choice with buffers of at most ``capacity`` bytes per core; ``relayouts`` allows the ring.

        If no choice takes less than ``limit_ns``, the search may end with another choice. The search places each buffer
        independently. With ``together``, it is repeated without the buffers for which LX has no room at once.
        """
        search = _JointSearch(self, capacity, relayouts)
        joint = search.solve(algorithm, limit_ns)
        crowded = search.crowded() if together else frozenset[int]()
        if not crowded:
            return joint
        # A relayout needs room for its result, so a buffer loses its relayouts before its place.
        moved = frozenset(number for number in crowded if _is_relayout(joint.placements[number]))
        search = _JointSearch(self, capacity, relayouts, moved, crowded - moved)
        return replace(search.solve(algorithm, limit_ns), before=joint.before, bound=joint.bound)


class _JointSearch:
    """The search over division candidates and placements of buffers; the first state of a buffer is device memory.

    Buffers ``in_place`` have no relayouts, and ``excluded`` buffers no place in LX.
    """

    def __init__(
        self,
        problem: DivisionProblem,
        capacity: int,
        relayouts: bool,
        in_place: frozenset[int] = frozenset(),
        excluded: frozenset[int] = frozenset(),
    ) -> None:
        self.ops, self.buffers = problem.ops, problem.buffers
        self.candidates, self.accesses = problem.candidates, problem.accesses
        self.placements = [
            placements_of(
                accesses,
                BufferSource(buffer.from_host, buffer.result, buffer.space, buffer.holder),
                0 if number in excluded else capacity,
                relayouts and number not in in_place,
            )
            for number, (buffer, accesses) in enumerate(zip(self.buffers, self.accesses, strict=True))
        ]
        self._chosen: tuple[int, ...] = ()
        # Placements and times of a choice are requested several times before the next choice.
        self._evaluated: dict[tuple[int, ...], tuple[list[BufferPlacement | None], JointTimes]] = {}

    def solve(self, algorithm: str, limit_ns: float) -> JointDivision:
        """Return the choice of an algorithm, with its bound."""
        counted = [placements.options for placements in self.placements]
        # Per buffer the number of placements before the first one with a relayout.
        without_relayouts = [
            next((i for i, each in enumerate(options) if _is_relayout(each)), len(options))
            for options in counted
        ]
        problem = JointProblem(
            tuple(map(len, (*self.candidates, *counted))),
            (*(1 for _ in self.ops), *without_relayouts),
            tuple(tuple(candidate.division.splits for candidate in options) for options in self.candidates),
            tuple(self._tables()),
            lambda states: self._evaluate(states)[1],
        )
        states, bound = joint_states(algorithm, problem, limit_ns)
        # The choice without a joint division is measured for comparison.
        before, after = (self._evaluate(chosen)[1].total_ns for chosen in (problem.as_is, states))
        candidates = (options[state] for options, state in zip(self.candidates, states, strict=False))
        placements = self._evaluate(states)[0]
        self._chosen = tuple(states)
        return JointDivision(tuple(candidates), tuple(placements), before, after, min(bound, after))

    def crowded(self) -> frozenset[int]:
        """Return the buffers for which LX has no room with the last choice, the largest for the longest time.

        A result of a pointwise operation may take the place of an operand of equal size that nothing reads later.
        """
        if not self.ops:
            return frozenset()
        sizes = {
            number: self._bytes_of(number, placement, self._chosen)
            for number, placement in enumerate(self._evaluate(self._chosen)[0])
            if placement is not None
        }
        made = {
            buffer.accesses[0][0]: sizes[number]
            for number, buffer in enumerate(self.buffers)
            if number in sizes and not buffer.from_host
        }
        ends = list[tuple[int, int, int]]()
        for number, size in sizes.items():
            positions = [index for index, _ in self.buffers[number].accesses]
            first, last = min(positions), max(positions)
            is_replaced = KINDS[self.ops[last].opcode] is Kind.POINTWISE and made.get(last) == size
            ends.append((first, last if is_replaced and last > first else last + 1, number))
        used, room = np.zeros(len(self.ops), np.int64), self.ops[0].space.target.usable_lx_bytes
        crowded = set[int]()
        for first, end, number in sorted(ends, key=lambda each: sizes[each[2]] * (each[1] - each[0])):
            if used[first:end].max() + sizes[number] > room:
                crowded.add(number)
            else:
                used[first:end] += sizes[number]
        return frozenset(crowded)

    def _bytes_of(self, number: int, placement: BufferPlacement, states: Sequence[int]) -> int:
        """Return the bytes per core of a buffer in LX, with its copy if a relayout makes one."""
        total = 0
        views = {placement.view, placement.relayout_view} - {None}
        for access, (index, operand) in zip(
            self.accesses[number], self.buffers[number].accesses, strict=True
        ):
            view = self._view(access, index, states)
            if view in views:
                views.discard(view)
                division = self.candidates[index][states[index]].division
                total += local_bytes(self.ops[index].space, operand, division)
        return total

    def _placement(self, number: int, states: Sequence[int]) -> BufferPlacement | None:
        """Return the placement of a buffer, without copies and relayouts that no reader needs.

        A clone of an argument for a single reader usually takes longer than reading the argument, but the model credits
        the clone for avoiding a turnaround of the bus; ``clone-inputs`` does not make such clones.
        """
        placement = self.placements[number].options[states[len(self.ops) + number]]
        if placement is None:
            return None
        if placement.in_hbm and not self._clone_pays(number, placement, states):
            return None
        if placement.relayout_view is None or self._relayouts(number, placement, states):
            return placement
        return replace(placement, relayout_view=None, relayout_ns=0.0)

    def _clone_pays(self, number: int, placement: BufferPlacement, states: Sequence[int]) -> bool:
        """Return whether the on-chip reads of a buffer's clone save more time than the clone costs."""
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
        """Yield the tables; equal tables share one array."""
        shared = frozenset(access for buffer in self.buffers for access in buffer.accesses)
        for index, op in enumerate(self.ops):
            unshared = tuple(
                operand for operand in range(len(op.space.views)) if (index, operand) not in shared
            )
            table = _operation_table(op.opcode, op.space, op.executions, self.candidates[index], unshared)
            yield JointTable((index,), index, table)
        for number, (buffer, placements) in enumerate(zip(self.buffers, self.placements, strict=True)):
            variable = len(self.ops) + number
            for position, access in enumerate(self.accesses[number]):
                index, _ = buffer.accesses[position]
                table = _access_table(access, buffer.share(position), placements)
                yield JointTable((index, variable), index, table)
            yield JointTable((variable,), None, _placement_table(buffer.copies, placements))

    # -- real times ------------------------------------------------------------------------------------

    def _evaluate(self, states: tuple[int, ...]) -> tuple[list[BufferPlacement | None], JointTimes]:
        """Return the placement of each buffer, and the time with compute and memory of each operation overlapped."""
        if states in self._evaluated:
            return self._evaluated[states]
        placements = [self._placement(number, states) for number in range(len(self.buffers))]
        in_lx: list[set[int]] = [set() for _ in self.ops]
        spent = []
        for number, (buffer, placement) in enumerate(zip(self.buffers, placements, strict=True)):
            if placement is None:
                continue
            for access, (index, operand) in zip(self.accesses[number], buffer.accesses, strict=True):
                if access.writes or placement.accepts_reader(self._view(access, index, states)):
                    in_lx[index].add(operand)
            spent.append(buffer.copies * placement.copy_ns)
            spent.append(placement.relayout_ns * self._relayouts(number, placement, states))
        costs = []
        for index, (op, options) in enumerate(zip(self.ops, self.candidates, strict=True)):
            division = options[states[index]].division
            costs.append(
                operation_cost(operation_work(op.opcode, op.space, division, frozenset(in_lx[index])))
            )
            spent.append(op.executions * costs[-1].total_ns)
        compute, memory = tuple(cost.compute_ns for cost in costs), tuple(cost.memory_ns for cost in costs)
        self._evaluated[states] = placements, JointTimes(math.fsum(spent), compute, memory)
        return self._evaluated[states]

    def _relayouts(self, number: int, placement: BufferPlacement, states: Sequence[int]) -> int:
        """Count the executions of a buffer's relayouts: one per value that a reader needs in another distribution."""
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


# -- tables with one plane each for waits that nothing overlaps, compute, and memory ---------------------


@functools.lru_cache(maxsize=1 << 12)
def _operation_table(
    opcode: str,
    space: Space,
    executions: int,
    candidates: tuple[DivisionCandidate, ...],
    unshared: tuple[int, ...],
) -> Table:
    """Return [3, candidates]: the cost of an operation without the operands that could be on chip."""
    table = np.zeros((3, len(candidates)))
    for column, candidate in enumerate(candidates):
        work = operation_work(opcode, space, candidate.division)
        table[0, column] = ring_ns(work) + space.target.hbm_access_ns * len(unshared)
        table[1, column] = compute_ns(work)
        table[2, column] = sum(stream_ns(work, work.operands[operand]) for operand in unshared)
    return executions * table


@functools.lru_cache(maxsize=1 << 13)
def _access_table(access: BufferAccess, relayouts: float, placements: Placements) -> Table:
    """Return [3, candidates, placements]: 0 or the relayouts if both match; else device memory, or infinity."""
    op, (resident, moved, in_hbm, relayout_ns) = access.op, placements.columns
    table = np.zeros((3, len(access.candidates), len(resident)))
    for row, candidate in enumerate(access.candidates):
        work = operation_work(op.opcode, op.space, candidate.division)
        transfer = op.space.target.hbm_access_ns, 0.0, stream_ns(work, work.operands[access.operand])
        table[:, row] = op.executions * np.array(transfer)[:, None]
        view = access.view(candidate)
        holds = np.array([is_resident(other, view, writes=access.writes) for other in placements.views])
        is_there, comes = holds[resident], ~holds[resident] & holds[moved]
        if access.writes:
            comes[:] = False
            table[0, row, 1:] = math.inf
            table[1:, row, 1:] = 0.0
        else:
            table[0, row, ~in_hbm] = math.inf
            table[1:, row, ~in_hbm] = 0.0
        table[:, row, is_there] = 0.0
        table[0, row, comes] = relayouts * relayout_ns[comes]
        table[1:, row, comes] = 0.0
    return table


@functools.lru_cache(maxsize=1 << 13)
def _placement_table(copies: int, placements: Placements) -> Table:
    """Return [3, placements]: the cost of the copies of a buffer to or from device memory."""
    table = np.zeros((3, len(placements.options)))
    table[0] = [0.0 if each is None else copies * each.copy_ns for each in placements.options]
    return table


#: A plan, and the cost of the function with it; None if it is unknown, or if the rest of the pipeline refuses it.
_Attempt = tuple[JointDivision, ProgramCost | None]


@dataclass(frozen=True)
class _PlannedFunction:
    """A function and its problem; ``buffers`` has the index of each shared buffer among the buffers of the usage."""

    usage: Usage
    problem: DivisionProblem
    buffers: tuple[int, ...]

    @scope("joint division")
    def divide(
        self, algorithm: str, relayouts: bool, limit_ns: float, parts: int = 1, *, together: bool = False
    ) -> JointDivision:
        """Return the joint division in which each buffer is at most 1 / ``parts`` of LX, or all fit ``together``."""
        capacity = self.usage.memory.target.usable_lx_bytes // parts
        return self.problem.divide(capacity, relayouts, algorithm, limit_ns, together=together)


@dataclass(frozen=True)
class JointPlanning(EvaluatingPass):
    """Change divisions, and redistribute buffers over the ring, if the program then takes less time.

    ``work-distribution`` divides each operation separately. A buffer that is sliced differently by its readers and its
    writer goes through device memory (core division mismatch). This pass gives operations other divisions, either their
    neighbours' or other good ones, or inserts a shuffle that copies the buffer from LX to LX. It chooses the best plan
    for the whole program by the cost model, which includes lost parallelism. A remark reports a lower bound on the time
    of any such plan. Choices that a plan file pins are kept.

    ``variants`` is the maximum number of divisions to try per operation; ``relayouts`` allows the ring;
    ``matmul=specified`` keeps the slices of matmuls; ``compare`` accepts the new plan only if the timeline of the whole
    program, planned to its end, is shorter than with the old plan; ``joint_division`` is the name of another search
    (docs/writing-an-algorithm.md).

    Before, level *divided*:
        %0 = max .. division<[2, 16]>
        %1 = sub .. division<[32, 1]>
    After:
        %0 = max .. division<[1, 16]>
        %1 = sub .. division<[1, 16]>
    """

    name: ClassVar[str] = "joint-planning"
    is_evaluated: ClassVar[bool] = True
    variants: int = 12
    relayouts: bool = True
    matmul: Literal["cost", "specified"] = "cost"
    compare: bool = True
    joint_division: str = "lagrangian"

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        for func in functions(module):
            self._plan(func, evaluator)

    def candidates(self, func: ir.Operation) -> list[tuple[Divided, tuple[DivisionCandidate, ...]]]:
        """Return each operation of a divided function with its division candidates, the present division first."""
        plan = self._planned_function(usage_of(func))
        return list(zip(plan.usage.ops, plan.problem.candidates, strict=True))

    def _plan(self, func: ir.Operation, evaluator: Evaluator) -> None:
        """Apply the best joint division if it is an improvement. A function that already uses the ring is kept."""
        usage = usage_of(func)
        # Existing shuffles come from an earlier run or from a plan file.
        if any(user.opcode == SHUFFLE for user in usage.ops):
            return
        plan = self._planned_function(usage)
        # Relayouts that a plan file pins need no comparison: they were better when the plan was made.
        is_pinned = any(pins_of(user.op).relayout for user in usage.ops)
        attempts: list[_Attempt] = []
        unplanned: ProgramCost | None = None
        is_evaluated = self.compare and not is_pinned and not isinstance(evaluator, NoEvaluator)
        # The search is not exact, and the timeline overlaps times that the cost model adds: a search without the ring
        # can find a better plan.
        for relayouts in (True, False) if self.relayouts else (False,):
            if unplanned is None:
                limit_ns = math.inf
            else:
                costs = (cost for _, cost in attempts if cost is not None and cost.is_better_than(unplanned))
                limit_ns = min((cost.nanoseconds for cost in costs), default=math.inf)
            # The bound holds for the plans without the ring, too.
            if attempts and attempts[0][0].bound >= limit_ns:
                break
            joint = plan.divide(self.joint_division, relayouts, limit_ns, together=not is_evaluated)
            planned = None
            changes = any(
                candidate.division.owners != user.division.owners
                for user, candidate in zip(usage.ops, joint.candidates, strict=True)
            )
            if not (changes or _uses_ring(joint)) or joint.after >= limit_ns:
                break
            if unplanned is None and self.compare and not is_pinned:
                unplanned = self._evaluated(plan, None, evaluator)
            if unplanned is not None:
                joint, planned = self._fitted(plan, joint, relayouts, evaluator)
            attempts.append((joint, planned))
            # By the cost model alone, a plan that may use the ring is not worse.
            if not _uses_ring(joint) or unplanned is None:
                break
        if self.compare and not is_pinned and (single := one_core_candidates(plan.problem.ops)):
            unplanned = unplanned or self._evaluated(plan, None, evaluator)
            small = replace(plan, problem=DivisionProblem(plan.problem.ops, plan.problem.buffers, single))
            joint = small.divide(self.joint_division, False, math.inf)
            if any(len(options) > 1 for options in single):
                attempts.append((joint, self._evaluated(small, joint, evaluator)))
        if not attempts:
            return
        joint, planned = functools.reduce(_better, attempts)
        if unplanned is None:
            is_better = joint.after < joint.before  # by the cost model alone, without a timeline
        else:
            is_better = planned is not None and planned.is_better_than(unplanned)
        if is_better:
            self._apply(func, plan, joint)
            gap = f"no plan with these divisions takes less than {round(joint.bound):,}"
            text = f"the operations in sequence take {round(joint.after):,} ns by the cost model; {gap}"
            self.remark(func, "divisions", text, before=round(joint.before), after=round(joint.after))
            return
        prices = "; ".join(f"joint: {price or 'not possible'}" for _, price in attempts)
        text = "unchanged: no candidate has a shorter timeline"
        self.remark(func, "divisions", f"{text}: {unplanned or 'unchanged'}; {prices}")

    @scope("joint division")
    def _planned_function(self, usage: Usage) -> _PlannedFunction:
        """Return a function with the candidates of its operations, which are shared by all attempts."""
        shared = [
            (number, shared)
            for number, buffer in enumerate(usage.buffers.values())
            for shared in _shared(buffer, usage)
        ]
        ops = [work_of(user) for user in usage.ops]
        if self.matmul == "specified":
            ops = [
                replace(work, blocked=frozenset(range(len(work.space.units))))
                if KINDS[work.opcode] is Kind.MATMUL
                else work
                for work in ops
            ]
        buffers = [buffer for _, buffer in shared]
        problem = DivisionProblem(ops, buffers, division_candidates(ops, buffers, self.variants))
        return _PlannedFunction(usage, problem, tuple(number for number, _ in shared))

    def _fitted(
        self, plan: _PlannedFunction, joint: JointDivision, relayouts: bool, evaluator: Evaluator
    ) -> tuple[JointDivision, ProgramCost | None]:
        """Return a joint division and its cost, or a better joint division with smaller buffers."""
        planned = self._evaluated(plan, joint, evaluator)
        if planned is None or planned.nanoseconds <= joint.after:
            return joint, planned
        # It takes longer than predicted: placements are chosen independently, and LX had no capacity for all.
        best: _Attempt = (joint, planned)
        for smaller in (
            plan.divide(self.joint_division, relayouts, planned.nanoseconds, parts=2),
            plan.divide(self.joint_division, relayouts, planned.nanoseconds, together=True),
        ):
            if smaller.after < planned.nanoseconds and not _has_equal_changes(joint, smaller):
                attempt = replace(smaller, bound=joint.bound), self._evaluated(plan, smaller, evaluator)
                best = _better(best, attempt)
        return best

    def _evaluated(
        self, plan: _PlannedFunction, joint: JointDivision | None, evaluator: Evaluator
    ) -> ProgramCost | None:
        """Evaluate a function with a plan, or without one; None if the rest of the pipeline refuses it."""
        module = module_of(plan.usage.func)
        if joint is not None:
            with Remarks().collecting():
                self._apply(functions(module.operation)[0], plan, joint)
        return evaluator.time(module)

    def _apply(self, func: ir.Operation, plan: _PlannedFunction, joint: JointDivision) -> None:
        """Write divisions and shuffles into the planned function or a clone of it."""
        ops = [op for op in all_ops(func) if is_compute(op)]
        divider = Divider()
        for op, user, candidate in zip(ops, plan.usage.ops, joint.candidates, strict=True):
            if candidate.division.owners != user.division.owners:
                splits, order = candidate.mapping or (candidate.division.splits, None)
                divider.divide(op, user.opcode, user.space, splits, order)
                before, after = list(user.division.splits), list(candidate.division.splits)
                change = f"become {after}" if before != after else "are assigned to other cores"
                self.remark(op, "division", f"slices {before} {change} to match other operations")
        if not _uses_ring(joint):
            return
        usage = Usage(func)
        buffers = list(usage.buffers.values())
        for number, placement in zip(plan.buffers, joint.placements, strict=True):
            if placement is not None and placement.relayout_view is not None:
                self._insert_relayouts(usage, buffers[number], placement, placement.relayout_view)

    def _insert_relayouts(
        self, usage: Usage, buffer: BufferAccesses, placement: BufferPlacement, goal: CoreView
    ) -> None:
        """Shuffle each value of a buffer before the first reader whose cores need parts that they do not have."""
        readers_of: dict[ir.Value, list[BufferUse]] = {}
        for access in buffer.reads:
            view = view_of(access.user.space, access.operand, access.user.division)
            if placement.needs_relayout(view):
                whole = clones.whole_of(usage.memory, access.user.values[access.operand])
                readers_of.setdefault(whole, []).append(access)
        for whole, readers in readers_of.items():
            division = clones.division_of_copy(usage.memory, whole, goal, over_the_ring=True)
            if division is None:
                continue
            first = min(readers, key=lambda access: access.position).user.op
            point = ir.InsertionPoint(ancestor_in(block_of(whole), first))
            reason = f"{len(readers)} of {len(buffer.reads)} readers need it on other cores"
            clone = clones.insert_clone(
                whole, division, point, first.location, self.name, reason, over_the_ring=True
            )
            clones.read_instead(clone, whole, readers)
            self.remark(first, "relayout", f"{reason}, {placement.relayout_ns:.0f} ns over the ring")


def _has_equal_changes(joint: JointDivision, other: JointDivision) -> bool:
    """Return whether two plans have the same divisions and relayouts; which buffers stay in LX is planned later."""
    rings = (
        [(number, placement) for number, placement in enumerate(plan.placements) if _is_relayout(placement)]
        for plan in (joint, other)
    )
    return joint.candidates == other.candidates and next(rings) == next(rings)


def _is_relayout(placement: BufferPlacement | None) -> bool:
    return placement is not None and placement.relayout_view is not None


def _uses_ring(joint: JointDivision) -> bool:
    return any(map(_is_relayout, joint.placements))


def _better(one: _Attempt, other: _Attempt) -> _Attempt:
    """Return the faster attempt, or the first of equal ones; by the cost model if neither was evaluated."""
    (joint, planned), (other_joint, other_planned) = one, other
    if planned is None or other_planned is None:
        wins = other_planned is not None or (planned is None and other_joint.after < joint.after)
    else:
        wins = other_planned.is_better_than(planned)
    return other if wins else one


def _shared(buffer: BufferAccesses, usage: Usage) -> Iterator[SharedBuffer]:
    """Yield a buffer that could be in LX if divisions allow it; for a buffer of the host, yield each value to clone."""
    if buffer.from_host:
        read: dict[ir.Value, list[BufferUse]] = {}
        for access in buffer.reads:
            whole = clones.whole_of(usage.memory, access.user.values[access.operand])
            read.setdefault(whole, []).append(access)
        for whole, accesses in read.items():
            first = min(accesses, key=lambda access: access.position).user.op
            copies = executions(ancestor_in(block_of(whole), first))
            # As in clone-inputs, fewer reads do not pay for the clone unless the reads are slow.
            times = sum(access.user.executions for access in accesses)
            if times >= 2 * copies or clones.clone_saves_time(usage.memory, whole, accesses, copies):
                space = _space(usage, whole)
                yield SharedBuffer(_numbers(accesses), from_host=True, copies=copies, space=space)
    elif buffer.reads and not any(access.moving for access in buffer.accesses):
        pieces, holder = buffer.partial_accesses, 0
        if pieces is not None:
            # No access covers the buffer, so the bytes per core are unknown.
            if pieces.holder is None:
                return
            # The access that determines how the buffer is stored in LX.
            user, operand = pieces.holder
            uses = [(access.user.op, access.operand) for access in buffer.accesses]
            holder = uses.index((user.op, operand))
        pins = pins_of(maker_of(buffer.root))
        stays = pins.relayout is False or (pins.placement is not None and pins.placement.memory != "lx")
        # Parts are written one by one, so a single shuffle cannot copy them all.
        is_written_in_parts = pieces is not None and pieces.written
        space = None if stays or is_written_in_parts else _space(usage, buffer.root)
        # For each access the index of the accessed value, and the number of executions of a copy before it.
        numbers: dict[ir.Value, int] = {}
        values = []
        for access in buffer.accesses:
            whole = clones.whole_of(usage.memory, access.user.values[access.operand])
            runs = 0 if access.writes else executions(ancestor_in(block_of(whole), access.user.op))
            values.append((numbers.setdefault(whole, len(numbers)), runs))
        copies, result = buffer.accesses[0].user.executions, buffer.root in usage.results
        yield SharedBuffer(
            _numbers(buffer.accesses), False, result, copies, space, tuple(values), holder, pieces is not None
        )


def _space(usage: Usage, whole: ir.Value) -> Space | None:
    """Return the space of a copy; None if the pieces of the buffer are not slices."""
    try:
        return clones.copy_space(usage.memory, whole)
    except ViewError:
        return None


def _numbers(accesses: Sequence[BufferUse]) -> tuple[tuple[int, int], ...]:
    return tuple((access.position, access.operand) for access in accesses)
