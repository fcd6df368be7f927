# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Chooses divisions and placements of buffers together: which stay in LX, how sliced, and which go over the ring."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from spyre_mlir.analysis.aliasing import all_ops, functions, is_compute
from spyre_mlir.analysis.buffer_uses import BufferAccesses, BufferUse, Usage
from spyre_mlir.analysis.core_ownership import SHUFFLE, Divided, PartialAccesses
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.loops import ancestor_in, block_of, executions
from spyre_mlir.analysis.plan_pins import pins_of
from spyre_mlir.analysis.program_cost import ProgramCost
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.division.matching import view_of
from spyre_mlir.division_search.division_candidates import DividedOp, DivisionCandidate, SharedBuffer
from spyre_mlir.division_search.joint_division import DivisionProblem, JointDivision
from spyre_mlir.division_search.placements import BufferPlacement
from spyre_mlir.layout import ViewError
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remarks
from spyre_mlir.rewriting.clones import (
    clone_saves_time,
    copy_space,
    division_of_copy,
    insert_clone,
    read_instead,
    whole_of,
)
from spyre_mlir.rewriting.divider import Divider, work_of
from spyre_mlir.target.ops import KINDS, Kind
from spyre_mlir.timing import scope

#: A plan, and the cost of the function with it; None where that is not known, or the rest of the pipeline refuses it.
_Attempt = tuple[JointDivision, ProgramCost | None]


@dataclass(frozen=True)
class _PlannedFunction:
    """A function and its problem; of each shared buffer the number among the ``buffers`` of the usage."""

    usage: Usage
    problem: DivisionProblem
    buffers: tuple[int, ...]

    @scope("joint division")
    def divide(self, algorithm: str, relayouts: bool, parts: int = 1) -> JointDivision:
        """Return the joint division with buffers that each take at most one of the ``parts`` of LX."""
        return self.problem.divide(self.usage.memory.target.usable_lx_bytes // parts, relayouts, algorithm)


@dataclass(frozen=True)
class JointPlanning(EvaluatingPass):
    """Change divisions, and relay buffers over the ring, where the program then takes less time.

    ``work-distribution`` divides each operation for itself. A buffer that its readers slice in another way than its
    writer goes through device memory (core division mismatch). Here operations take other divisions, their
    neighbours' or good ones of their own, or a shuffle carries the buffer from LX to LX, whatever is best for the
    whole program by the cost model (``division_search/joint_division.py``); lost parallelism is part of the cost. A
    remark tells how much less time no such plan takes. What a plan file pins stays.

    ``variants`` is the largest number of divisions to try per operation; ``relayouts`` allows the ring;
    ``matmul=specified`` leaves the slices of matmuls as they are; ``compare`` takes the new plan only if the timeline
    of the whole program, planned to its end, is shorter than with the old one; ``joint_division`` is the name of
    another search (docs/writing-an-algorithm.md).

    Before, level *divided*:
        %0 = max .. division<[2, 16]>
        %1 = sub .. division<[32, 1]>
    After:
        %0 = max .. division<[1, 16]>
        %1 = sub .. division<[1, 16]>
    """

    name: ClassVar[str] = "joint-planning"
    is_evaluated: ClassVar[bool] = True
    variants: int = 10
    relayouts: bool = True
    matmul: Literal["cost", "specified"] = "cost"
    compare: bool = True
    joint_division: str = "lagrangian"

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        for func in functions(module):
            self._plan(func, evaluator)

    def candidates(self, func: ir.Operation) -> list[tuple[Divided, tuple[DivisionCandidate, ...]]]:
        """Return each operation of a divided function with the divisions to choose from, its present one first."""
        plan = self._planned_function(usage_of(func))
        return list(zip(plan.usage.ops, plan.problem.candidates, strict=True))

    def _plan(self, func: ir.Operation, evaluator: Evaluator) -> None:
        """Apply the best joint division if it is better than none; a function that uses the ring already stays."""
        usage = usage_of(func)
        # Shuffles are those of an earlier run or of a plan file.
        if any(user.opcode == SHUFFLE for user in usage.ops):
            return
        plan = self._planned_function(usage)
        attempts: list[_Attempt] = []
        unplanned: ProgramCost | None = None
        # The search is not exact, and the timeline overlaps what the cost model adds up: without the ring it can find
        # a better plan.
        for relayouts in (True, False) if self.relayouts else (False,):
            joint, planned = plan.divide(self.joint_division, relayouts), None
            if not _changes(joint, usage) or not _may_win(joint, attempts, unplanned):
                break
            unplanned = unplanned or self._unplanned_cost(plan, evaluator)
            if unplanned is not None:
                joint, planned = self._fitted(plan, joint, relayouts, evaluator)
            attempts.append((joint, planned))
            # By the cost model alone what may use the ring is no worse.
            if not _uses_ring(joint) or unplanned is None:
                break
        if not attempts:
            return
        joint, planned = functools.reduce(_better, attempts)
        if self._is_better(joint, unplanned, planned):
            self._apply(func, plan, joint)
            self._report(func, joint)
            return
        prices = "; ".join(f"together {price or 'not possible'}" for _, price in attempts)
        text = "stay as they are: by the timeline nothing else takes less time"
        self.remark(func, "divisions", f"{text}: {unplanned or 'as they are'}; {prices}")

    @scope("joint division")
    def _planned_function(self, usage: Usage) -> _PlannedFunction:
        """Return a function with the candidates of its operations, which all attempts share."""
        shared = [
            (number, shared)
            for number, buffer in enumerate(usage.buffers.values())
            for shared in _shared(buffer, usage)
        ]
        ops = [self._work(user) for user in usage.ops]
        problem = DivisionProblem.of(ops, [buffer for _, buffer in shared], self.variants)
        return _PlannedFunction(usage, problem, tuple(number for number, _ in shared))

    def _fitted(
        self, plan: _PlannedFunction, joint: JointDivision, relayouts: bool, evaluator: Evaluator
    ) -> tuple[JointDivision, ProgramCost | None]:
        """Return a joint division and its cost, or one with smaller buffers that is better."""
        planned = self._evaluated(plan, joint, evaluator)
        if planned is None or planned.nanoseconds <= joint.after:
            return joint, planned
        # It takes longer than its placements say: they are chosen each for itself, and LX had no room for all.
        smaller = replace(plan.divide(self.joint_division, relayouts, parts=2), bound=joint.bound)
        if _changes_alike(joint, smaller):
            return joint, planned
        return _better((joint, planned), (smaller, self._evaluated(plan, smaller, evaluator)))

    def _work(self, user: Divided) -> DividedOp:
        work = work_of(user)
        if self.matmul == "specified" and KINDS[work.opcode] is Kind.MATMUL:
            return replace(work, blocked=frozenset(range(len(work.space.units))))
        return work

    def _unplanned_cost(self, plan: _PlannedFunction, evaluator: Evaluator) -> ProgramCost | None:
        """Return the cost of a function without a plan; None if there is nothing to compare with.

        So it is where a plan file wants relayouts, which it had when they were found to be better.
        """
        pinned = any(pins_of(user.op).relayout for user in plan.usage.ops)
        return self._evaluated(plan, None, evaluator) if self.compare and not pinned else None

    def _is_better(
        self, joint: JointDivision, unplanned: ProgramCost | None, planned: ProgramCost | None
    ) -> bool:
        """Return whether a function is better with a plan; by the cost model alone if it is no whole program."""
        if unplanned is None:
            return joint.after < joint.before
        return planned is not None and planned.is_better_than(unplanned)

    def _evaluated(
        self, plan: _PlannedFunction, joint: JointDivision | None, evaluator: Evaluator
    ) -> ProgramCost | None:
        """Evaluate a function with a plan, or with none; None where the rest of the pipeline refuses it."""
        module = module_of(plan.usage.func)
        if joint is not None:
            with Remarks().collecting():
                self._apply(functions(module.operation)[0], plan, joint)
        return evaluator.time(module)

    def _apply(self, func: ir.Operation, plan: _PlannedFunction, joint: JointDivision) -> None:
        """Write divisions and shuffles into the function that was planned, or a clone of it."""
        ops = [op for op in all_ops(func) if is_compute(op)]
        divider = Divider()
        for op, user, candidate in zip(ops, plan.usage.ops, joint.candidates, strict=True):
            if candidate.division.owners != user.division.owners:
                splits, order = candidate.mapping or (candidate.division.splits, None)
                divider.divide(op, user.opcode, user.space, splits, order)
                self.remark(op, "division", f"{_change(user, candidate)} to agree with others")
        if not _uses_ring(joint):
            return
        usage = Usage(func)
        buffers = list(usage.buffers.values())
        for number, placement in zip(plan.buffers, joint.placements, strict=True):
            if placement is not None and placement.relayout_view is not None:
                self._insert_relayouts(usage, buffers[number], placement)

    def _insert_relayouts(self, usage: Usage, buffer: BufferAccesses, placement: BufferPlacement) -> None:
        """Shuffle each value of a buffer before the first reader whose cores need other parts than they have."""
        readers_of: dict[ir.Value, list[BufferUse]] = {}
        for access in buffer.reads:
            view = view_of(access.user.space, access.operand, access.user.division)
            if placement.needs_relayout(view):
                whole = whole_of(usage.memory, access.user.values[access.operand])
                readers_of.setdefault(whole, []).append(access)
        for whole, readers in readers_of.items():
            division = (
                None
                if placement.relayout_view is None
                else division_of_copy(usage.memory, whole, placement.relayout_view, over_the_ring=True)
            )
            if division is None:
                continue
            first = min(readers, key=lambda access: access.position).user.op
            point = ir.InsertionPoint(ancestor_in(block_of(whole), first))
            reason = f"{len(readers)} of {len(buffer.reads)} readers want it on other cores"
            clone = insert_clone(
                whole, division, point, first.location, self.name, reason, over_the_ring=True
            )
            read_instead(clone, whole, readers)
            self.remark(first, "relayout", f"{reason}, {placement.relayout_ns:.0f} ns over the ring")

    def _report(self, func: ir.Operation, joint: JointDivision) -> None:
        gap = f"no plan with these divisions takes less than {round(joint.bound):,}"
        text = f"all operations one after the other take {round(joint.after):,} ns by the cost model; {gap}"
        self.remark(func, "divisions", text, before=round(joint.before), after=round(joint.after))


def _changes(joint: JointDivision, usage: Usage) -> bool:
    """Return whether a plan changes any division or relays any buffer."""
    pairs = zip(usage.ops, joint.candidates, strict=True)
    if any(candidate.division.owners != user.division.owners for user, candidate in pairs):
        return True
    return _uses_ring(joint)


def _changes_alike(joint: JointDivision, other: JointDivision) -> bool:
    """Return whether two plans write the same divisions and relayouts; which buffers stay in LX is planned later."""
    rings = (
        [(number, placement) for number, placement in enumerate(plan.placements) if _is_relayout(placement)]
        for plan in (joint, other)
    )
    return joint.candidates == other.candidates and next(rings) == next(rings)


def _is_relayout(placement: BufferPlacement | None) -> bool:
    return placement is not None and placement.relayout_view is not None


def _uses_ring(joint: JointDivision) -> bool:
    return any(map(_is_relayout, joint.placements))


def _may_win(joint: JointDivision, attempts: Sequence[_Attempt], unplanned: ProgramCost | None) -> bool:
    """Return whether a plan is worth a run: no attempt before is better than none, or it should take less time."""
    return all(
        planned is None
        or unplanned is None
        or not planned.is_better_than(unplanned)
        or joint.after < planned.nanoseconds
        for _, planned in attempts
    )


def _better(one: _Attempt, other: _Attempt) -> _Attempt:
    """Return the attempt that takes less time, the first of equal ones; by the cost model where neither was run."""
    (joint, planned), (other_joint, other_planned) = one, other
    if planned is None or other_planned is None:
        wins = other_planned is not None or (planned is None and other_joint.after < joint.after)
    else:
        wins = other_planned.is_better_than(planned)
    return other if wins else one


def _change(user: Divided, candidate: DivisionCandidate) -> str:
    before, after = list(user.division.splits), list(candidate.division.splits)
    return f"slices {before} become {after}" if before != after else f"slices {before} go to other cores"


def _shared(buffer: BufferAccesses, usage: Usage) -> Iterator[SharedBuffer]:
    """Yield a buffer that could be in LX if divisions allow it; of one that the host fills, each value to clone."""
    if buffer.from_host:
        read: dict[ir.Value, list[BufferUse]] = {}
        for access in buffer.reads:
            whole = whole_of(usage.memory, access.user.values[access.operand])
            read.setdefault(whole, []).append(access)
        for whole, accesses in read.items():
            first = min(accesses, key=lambda access: access.position).user.op
            copies = executions(ancestor_in(block_of(whole), first))
            # As in clone-inputs: fewer reads do not pay for the clone, unless they take long.
            times = sum(access.user.executions for access in accesses)
            if times >= 2 * copies or clone_saves_time(usage.memory, whole, accesses, copies):
                space = _space(usage, whole)
                yield SharedBuffer(_numbers(accesses), from_host=True, copies=copies, space=space)
    elif buffer.reads and not any(access.moving for access in buffer.accesses):
        pieces = buffer.partial_accesses
        # No access covers the buffer, so none says how many bytes a core needs.
        if pieces is not None and pieces.holder is None:
            return
        copies = buffer.accesses[0].user.executions
        space = _space(usage, buffer.root) if _allows_relayout(buffer, pieces) else None
        values = _values(usage, buffer)
        result, holder = buffer.root in usage.results, _holder(buffer, pieces)
        in_parts = pieces is not None
        yield SharedBuffer(_numbers(buffer.accesses), False, result, copies, space, values, holder, in_parts)


def _holder(buffer: BufferAccesses, pieces: PartialAccesses | None) -> int:
    """Return the index of the access that says how LX holds a buffer."""
    if pieces is None or pieces.holder is None:
        return 0
    user, operand = pieces.holder
    uses = ((access.user.op, access.operand) for access in buffer.accesses)
    return list(uses).index((user.op, operand))


def _allows_relayout(buffer: BufferAccesses, pieces: PartialAccesses | None) -> bool:
    """Return whether a buffer is written as a whole and no plan file keeps it on its cores or in device memory."""
    # Parts are written one by one: there is no moment at which one shuffle has all.
    if pieces is not None and pieces.written:
        return False
    pins = pins_of(maker_of(buffer.root))
    return pins.relayout is not False and (pins.placement is None or pins.placement.memory == "lx")


def _values(usage: Usage, buffer: BufferAccesses) -> tuple[tuple[int, int], ...]:
    """Return for each access the index of the value that it takes, and how often a copy before it would run."""
    numbers: dict[ir.Value, int] = {}
    values = []
    for access in buffer.accesses:
        whole = whole_of(usage.memory, access.user.values[access.operand])
        runs = 0 if access.writes else executions(ancestor_in(block_of(whole), access.user.op))
        values.append((numbers.setdefault(whole, len(numbers)), runs))
    return tuple(values)


def _space(usage: Usage, whole: ir.Value) -> Space | None:
    """Return the space of a copy; None if the buffer lies in pieces that are no slices."""
    try:
        return copy_space(usage.memory, whole)
    except ViewError:
        return None


def _numbers(accesses: Sequence[BufferUse]) -> tuple[tuple[int, int], ...]:
    return tuple((access.position, access.operand) for access in accesses)
