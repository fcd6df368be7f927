# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evicts buffers from the scratchpads after a use and reloads them before a later use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.buffer_uses import BufferUse, Usage
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loads import module_of
from spyre_mlir.analysis.loops import block_of
from spyre_mlir.analysis.lx_candidates import Candidate
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.relayout import CopyDivision
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Evaluator
from spyre_mlir.passes.scratchpad_planning import BeforePlanning, fit, replace_function
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting import clones
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.solver import Residency


@dataclass(frozen=True)
class EvictAndReload(BeforePlanning):
    """Spill and reload buffers that cannot stay in LX for their whole live range ("Scratchpad (LX) optimization").

    If the eligible buffers do not fit in LX together, a spill-and-reload plan (``scratchpad/spill_and_reload.py``)
    determines between which uses each buffer is in LX. A spilled buffer is written to device memory after its writer.
    Readers between two residencies read that copy, and a clone of the copy is made before the first use of each later
    residency. Data that is already in device memory, as inputs, is only cloned again. The clones are optional:
    ``scratchpad-planning`` decides finally. They are kept only if the planned program then moves fewer bytes and
    takes less time by the cost model. Only buffers whose uses are all in the block that defines them are moved, not
    iter_args or buffers that a loop reads. ``steps`` bounds the search, so the plan need not be optimal.

    Before, level *divided*:
        %a = exp(%x); %b = abs(%a); ..; %c = add(%a, %y); %d = mul(%a, %c)
    After:
        %a = exp(%x); %h = "sdsc.clone"(%a) {sdsc.optional, sdsc.evicted}; %b = abs(%a); ..
        %r = "sdsc.clone"(%h) {sdsc.optional}; %c = add(%r, %y); %d = mul(%r, %c)
    """

    name: ClassVar[str] = "evict-and-reload"
    steps: int = 10_000

    def decide_on(self, func: ir.Operation, evaluator: Evaluator) -> None:
        """Plan LX with buffers that may be spilled and reloaded between uses; keep them if bytes and time fall."""
        usage = usage_of(func)
        eligible, space = self.eligible(usage, evaluator), MemorySpace.of_lx(usage.memory.target)
        # All buffers fit, so none is spilled.
        if fit(eligible, space):
            return
        moving = _movable_buffers(usage, eligible)
        buffers = []
        for buffer in (candidate.buffer for candidate in eligible):
            saving = max(0, buffer.saving)
            if buffer.name in moving:
                buffer = moving[buffer.name].planned
            elif buffer.first != buffer.last:
                # The buffer is in LX for its whole live range or not at all, with the same saving.
                if saving:
                    ends, moved = (buffer.first, buffer.last), (buffer.traffic_if_spilled - saving, saving)
                    buffer = replace(buffer, uses=ends, traffic_of_uses=moved)
                else:
                    buffer = replace(buffer, uses=(buffer.first,), spilled_traffic=0, placed_traffic=0)
            buffers.append(buffer)
        # Imported on use: most programs have nothing to spill.
        from spyre_mlir.scratchpad.spill_and_reload import SpillAndReloadSolver

        solver = SpillAndReloadSolver(selection_steps=3 * self.steps, steps_per_selection=self.steps)
        plan = solver.plan(buffers, space)
        # The residencies of the buffers that the plan keeps in LX for only a part of their live range.
        moved = {}
        for buffer in buffers:
            residencies = plan.of(buffer.name)
            ranges = [(residency.first, residency.last) for residency in residencies]
            if buffer.name in moving and ranges and ranges != [(buffer.first, buffer.last)]:
                moved[buffer.name] = residencies
        if not moved:
            return
        module = module_of(func)
        (changed,) = functions(module.operation)
        usage = Usage(changed)
        for name, movable in _movable_buffers(usage, self.eligible(usage, evaluator)).items():
            if name in moved:
                self._clone(movable, moved[name])
        before, after = evaluator.cost(module_of(func)), evaluator.cost(module_of(changed))
        if before is None or after is None:
            return
        # Both must improve: fewer bytes in more copies can take longer, because each copy waits for its first byte.
        if after.bytes >= before.bytes or after.nanoseconds >= before.nanoseconds:
            text = f"{before} without spills of {len(moved)} buffers, {after} with them"
            self.remark(func, "no moves", text)
            return
        text = f"buffers that are spilled or reloaded: {len(moved)}; {before} without that, {after} with it"
        self.remark(func, "moves", text, before=before.bytes, after=after.bytes)
        replace_function(func, module)

    def _clone(self, moving: _MovableBuffer, residencies: Sequence[Residency]) -> None:
        first, op = moving.accesses[0].position, moving.writer.user.op
        source = moving.outside
        if source is None:
            point, reason = ir.InsertionPoint.after(op), "it is spilled from LX and reloaded"
            source = clones.insert_clone(moving.root, moving.division, point, op.location, self.name, reason)
            maker_of(source).attributes[sdsc.EVICTED] = ir.UnitAttr.get()
        between = list(moving.readers)
        for residency in residencies:
            inside = range(residency.first, residency.last + 1)
            readers = [access for access in moving.readers if access.position in inside]
            between = [access for access in between if access.position not in inside]
            if residency.first > first:
                reader = readers[0].user.op
                reason = f"{len(readers)} of {len(moving.readers)} readers read a reload of it in LX"
                point = ir.InsertionPoint(reader)
                clone = clones.insert_clone(
                    source, moving.division, point, reader.location, self.name, reason
                )
                clones.read_instead(clone, moving.root, readers)
        clones.read_instead(source, moving.root, between)
        # The buffer was a clone itself, and all its readers now read later clones.
        if not list(moving.root.uses):
            op.erase()


@dataclass(frozen=True)
class _MovableBuffer:
    """A buffer that may be spilled and reloaded.

    ``outside`` is an existing copy in device memory: the source or the clone of the buffer; None if there is none.
    ``division`` is the division of the copies to insert.
    """

    buffer: LifetimeBoundBuffer
    root: ir.Value
    writer: BufferUse
    readers: Sequence[BufferUse]
    outside: ir.Value | None
    division: CopyDivision

    @property
    def accesses(self) -> list[BufferUse]:
        """The accesses that remain even if the buffer is never in LX, in program order."""
        return [*(() if self.writer.optional else (self.writer,)), *self.readers]

    @property
    def planned(self) -> LifetimeBoundBuffer:
        """The buffer in the form of the solver, with the traffic of each use."""
        moved: dict[int, int] = {}
        for access in self.accesses:
            moved[access.position] = moved.get(access.position, 0) + access.hbm_bytes
        uses, traffic = tuple(moved), tuple(moved.values())
        return replace(
            self.buffer, uses=uses, first_use_is_read=self.writer.optional, traffic_of_uses=traffic
        )


def _movable_buffers(usage: Usage, eligible: Sequence[Candidate]) -> dict[str, _MovableBuffer]:
    """Return the eligible buffers that may also be spilled and have enough uses for that, by name."""
    roots, movables = {candidate.root for candidate in eligible}, {}
    for candidate in eligible:
        buffer, block = usage.buffers[candidate.root], block_of(candidate.root)
        writer, *others = buffer.writes
        is_elsewhere = any(access.user.op.block != block for access in buffer.accesses)
        if others or is_elsewhere or clones.has_known_padding(buffer):
            continue
        # Readers read views of the buffer itself, so that they can read views of a copy instead.
        read = (access.user.values[access.operand] for access in buffer.reads)
        if any(clones.whole_of(usage.memory, value) != buffer.root for value in read):
            continue
        copies = [access.user for access in buffer.accesses if access.optional]
        if len(copies) > 1 or any(copy.op.name != "sdsc.clone" for copy in copies):
            continue
        outside = next((copy.values[0 if writer.optional else 1] for copy in copies), None)
        # The source may be in LX itself, where a clone of it saves nothing.
        if outside is not None and usage.root(outside) in roots:
            continue
        view = view_of(writer.user.space, writer.operand, writer.user.division)
        source = candidate.root if outside is None else outside
        division = None if view is None else clones.division_of_copy(usage.memory, source, view)
        if division is None:
            continue
        readers = [access for access in buffer.reads if not access.optional]
        movable = _MovableBuffer(candidate.buffer, candidate.root, writer, readers, outside, division)
        if len(movable.planned.uses) > 2:
            movables[candidate.buffer.name] = movable
    return movables
