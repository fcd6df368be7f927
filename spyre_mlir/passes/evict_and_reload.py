"""Lets buffers leave the scratchpads after a use and come back before a later one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.buffer_uses import BufferAccesses, BufferUse, Usage
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.loops import block_of
from spyre_mlir.analysis.lx_candidates import Candidate
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.division.copies import CopyDivision
from spyre_mlir.division.matching import view_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Evaluator
from spyre_mlir.passes.before_planning import BeforePlanning, replace_function
from spyre_mlir.rewriting.clones import (
    division_of_copy,
    has_known_padding,
    insert_clone,
    read_instead,
    whole_of,
)
from spyre_mlir.scratchpad import LifetimeBoundBuffer
from spyre_mlir.scratchpad.memory_plan import Residency
from spyre_mlir.scratchpad.spill_and_reload import SpillAndReloadSolver


@dataclass(frozen=True)
class EvictAndReload(BeforePlanning):
    """Copy buffers back into LX late where they cannot stay there all the time ("Scratchpad (LX) optimization").

    Where all that could be in LX does not fit, a moving plan (``scratchpad/spill_and_reload.py``) says from which use
    to which each buffer is there. One that leaves is written to device memory behind its writer, readers in between
    take that copy, and a clone of it is made before the first use of each later residency; of what device memory has
    already, as inputs, the clone is made once more. The clones are optional: ``scratchpad-planning`` decides in the
    end. They stay only if the planned program then moves fewer bytes and takes less time by the cost model.

    Only buffers move whose uses are all in the block that makes them: none that a loop carries or reads. ``steps``
    bounds the search for what to keep; its plan need not be the best.

    Before, level *divided*:
        %a = exp(%x); %b = abs(%a); ..; %c = add(%a, %y); %d = mul(%a, %c)
    After:
        %a = exp(%x); %h = "sdsc.clone"(%a) {sdsc.optional, sdsc.evicted}; %b = abs(%a); ..
        %r = "sdsc.clone"(%h) {sdsc.optional}; %c = add(%r, %y); %d = mul(%r, %c)
    """

    name: ClassVar[str] = "evict-and-reload"
    steps: int = 10_000

    def decide(self, module: ir.Operation, evaluator: Evaluator) -> None:
        """Rewrite ``module`` in place."""
        for func in functions(module):
            self._move(func, evaluator)

    def _move(self, func: ir.Operation, evaluator: Evaluator) -> None:
        usage = Usage(func)
        able = self.able(usage, evaluator)
        if self.load(able) <= self.space.capacity:
            return
        moving = {each.buffer.name: each for each in _all_moving(usage, able)}
        buffers = [
            moving[each.buffer.name].planned if each.buffer.name in moving else _whole(each.buffer)
            for each in able
        ]
        solver = SpillAndReloadSolver(selection_steps=3 * self.steps, steps_per_selection=self.steps)
        plan = solver.plan(buffers, self.space)
        moved = [each for each in buffers if each.name in moving and _moves(each, plan.of(each.name))]
        if not moved:
            return
        changed = func.clone().operation
        self._apply(changed, {each.name: plan.of(each.name) for each in moved}, evaluator)
        before, after = evaluator.cost(module_of(func)), evaluator.cost(module_of(changed))
        if before is None or after is None:
            return
        if after.bytes >= before.bytes or after.nanoseconds >= before.nanoseconds:
            self.remark(
                func, "no moves", f"{before} without moves of {len(moved)} buffers, {after} with them"
            )
            return
        text = f"buffers that leave LX or come back: {len(moved)}; {before} without that, {after} with it"
        self.remark(func, "moves", text, before=before.bytes, after=after.bytes)
        replace_function(func, changed)

    def _apply(
        self, func: ir.Operation, residencies: Mapping[str, Sequence[Residency]], evaluator: Evaluator
    ) -> None:
        """Makes the clones for buffers by name, in a clone of the function that was planned."""
        usage = Usage(func)
        for each in _all_moving(usage, self.able(usage, evaluator)):
            if each.buffer.name in residencies:
                self._clone(each, residencies[each.buffer.name])

    def _clone(self, moving: _Moving, residencies: Sequence[Residency]) -> None:
        first, op = moving.accesses[0].position, moving.writer.user.op
        later = [each for each in residencies if each.first > first]
        source = moving.outside
        if source is None:
            point, reason = ir.InsertionPoint.after(op), "it leaves LX and comes back"
            source = insert_clone(moving.root, moving.division, point, op.location, self.name, reason)
            maker_of(source).attributes[sdsc.EVICTED] = ir.UnitAttr.get()
        for residency in later:
            readers = [each for each in moving.readers if residency.first <= each.position <= residency.last]
            point = ir.InsertionPoint(readers[0].user.op)
            reason = f"{len(readers)} of {len(moving.readers)} readers find it in LX again"
            made = insert_clone(
                source, moving.division, point, readers[0].user.op.location, self.name, reason
            )
            read_instead(made, moving.root, readers)
        between = [
            each
            for each in moving.readers
            if not any(some.first <= each.position <= some.last for some in residencies)
        ]
        read_instead(source, moving.root, between)
        if not list(moving.root.uses):
            op.erase()


@dataclass(frozen=True)
class _Moving:
    """A buffer that may leave LX and come back.

    ``outside`` is what device memory has of it already, if it has: what it is a clone of, or its clone. ``division``
    is that of its copies.
    """

    buffer: LifetimeBoundBuffer
    root: ir.Value
    writer: BufferUse
    readers: Sequence[BufferUse]
    outside: ir.Value | None
    division: CopyDivision

    @property
    def accesses(self) -> list[BufferUse]:
        """Those that are there even if it is never in LX, in program order."""
        return [*(() if self.writer.optional else (self.writer,)), *self.readers]

    @property
    def planned(self) -> LifetimeBoundBuffer:
        """It as the solver takes it, with the traffic of each of its uses."""
        moved: dict[int, int] = {}
        for access in self.accesses:
            moved[access.position] = moved.get(access.position, 0) + access.hbm_bytes
        return replace(
            self.buffer,
            uses=tuple(moved),
            first_use_is_read=self.writer.optional,
            traffic_of_uses=tuple(moved.values()),
        )


def _all_moving(usage: Usage, able: Sequence[Candidate]) -> list[_Moving]:
    """Those of the buffers that may be in LX that may leave it, too, and are read often enough for that."""
    roots = {each.root for each in able}
    found = (_moving(usage, each, roots) for each in able)
    return [each for each in found if each is not None and len(each.planned.uses) > 2]


def _moving(usage: Usage, candidate: Candidate, able: Collection[ir.Value]) -> _Moving | None:
    touched, block = usage.buffers[candidate.root], block_of(candidate.root)
    writer, *others = touched.writes
    apart = any(access.user.op.block != block for access in touched.accesses)
    if others or apart or has_known_padding(touched, usage.func) or not _reads_are_whole(usage, touched):
        return None
    copies = [access.user for access in touched.accesses if access.optional]
    if len(copies) > 1 or any(copy.op.name != "sdsc.clone" for copy in copies):
        return None
    outside = next((copy.values[0 if writer.optional else 1] for copy in copies), None)
    if outside is not None and usage.root(outside) in able:
        return None
    view = view_of(writer.user.space, writer.operand, writer.user.division)
    source = candidate.root if outside is None else outside
    division = None if view is None else division_of_copy(usage.memory, source, view)
    if division is None:
        return None
    readers = [access for access in touched.reads if not access.optional]
    return _Moving(candidate.buffer, candidate.root, writer, readers, outside, division)


def _reads_are_whole(usage: Usage, touched: BufferAccesses) -> bool:
    """Whether readers take views of the buffer itself, which they can take of a copy as well."""
    values = (access.user.values[access.operand] for access in touched.reads)
    return all(whole_of(usage.memory, value) == touched.root for value in values)


def _whole(buffer: LifetimeBoundBuffer) -> LifetimeBoundBuffer:
    """A buffer that stays for its whole life or is not there, with the same saving."""
    if buffer.first == buffer.last:
        return buffer
    saving = max(0, buffer.saving)
    if not saving:
        return replace(buffer, uses=(buffer.first,), spilled_traffic=0, placed_traffic=0)
    moved = (buffer.traffic_if_spilled - saving, saving)
    return replace(buffer, uses=(buffer.first, buffer.last), traffic_of_uses=moved)


def _moves(buffer: LifetimeBoundBuffer, residencies: Sequence[Residency]) -> bool:
    """Whether a plan keeps a buffer for a part of its life."""
    whole = [(buffer.first, buffer.last)]
    return bool(residencies) and [(each.first, each.last) for each in residencies] != whole
