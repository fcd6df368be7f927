# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies buffers that are read more than once from device memory into the scratchpads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import AliasAnalysis, functions
from spyre_mlir.analysis.buffer_uses import BufferAccesses, BufferUse, Usage
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loops import ancestor_in, block_of, bundle_number, executions, put_beside
from spyre_mlir.analysis.lx_candidates import ineligibility_reasons
from spyre_mlir.dialects.structured import element_of, maker_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import CoreView, same_owners
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.layout.stick_layout import is_convertible
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting import clones
from spyre_mlir.target.ops import DEVICE_OPS


@dataclass(frozen=True)
class CloneInputs(Pass):
    """Clone data that is read more than once from device memory, so that scratchpad planning may place the clone in LX.

    Data that is read once is also cloned if its bursts are so short that a copy and a read of the copy take less time.
    Candidates are inputs of the program and buffers that cannot be in LX where they are computed. The clone reads
    device memory once, before the loops that read the clone; a part that moves with a loop is cloned per iteration.
    The readers of a clone are readers whose cores own equal parts, and the clone is divided in the same way.
    ``scratchpad-planning`` removes a clone that it does not place, because a clone in device memory only adds cost.

    Before, level *divided*:
        %0 = max(%x); %1 = sub(%x, %0)
    After:
        %c = "sdsc.clone"(%x) {sdsc.optional}; %0 = max(%c); %1 = sub(%c, %0)
    """

    name: ClassVar[str] = "clone-inputs"

    def run(self, module: ir.Operation) -> None:
        lx_bytes = target_of(module).usable_lx_bytes
        for func in functions(module):
            usage = usage_of(func)
            for buffer in list(usage.buffers.values()):
                is_candidate = buffer.from_host or ineligibility_reasons(buffer, usage)
                # No operation copies elements that the device cannot convert.
                if not is_candidate or not is_convertible(element_of(buffer.root)):
                    continue
                if clones.has_known_padding(buffer):
                    reason = "its readers depend on the padding that the host writes"
                    self.remark(buffer.reads[0].user.op, "no clone", reason)
                    continue
                self._clone(usage, buffer, lx_bytes)

    def _clone(self, usage: Usage, buffer: BufferAccesses, lx_bytes: int) -> None:
        for view, whole, readers in _by_core_view(usage.memory, buffer.reads):
            first = min(readers, key=lambda access: access.position).user.op
            point = ancestor_in(block_of(whole), first)
            times, runs = sum(access.user.executions for access in readers), executions(point)
            # A clone is a read itself: it saves time only if each run serves two reads, or one read in short bursts.
            if times < 2 * runs and not clones.clone_saves_time(usage.memory, whole, readers, runs):
                continue
            what = f"{len(readers)} of {len(buffer.reads)} readers of one {'input' if buffer.from_host else 'buffer'}"
            division = clones.division_of_copy(usage.memory, whole, view)
            if division is None:
                self.remark(first, "no clone", f"{what}: their cores share parts of it")
                continue
            users = ((access.user, access.operand) for access in readers)
            size = max(local_bytes(user.space, operand, user.division) for user, operand in users)
            if size > lx_bytes:
                self.remark(first, "no clone", f"{what}: {size} bytes per core, LX has {lx_bytes}")
                continue
            clone = clones.insert_clone(
                whole, division, ir.InsertionPoint(point), first.location, self.name, what
            )
            put_beside(maker_of(clone), first)
            clones.read_instead(clone, whole, readers)
            self.remark(first, "clone", f"{what} read a clone of {size} bytes per core")


def _by_core_view(
    memory: AliasAnalysis, reads: Sequence[BufferUse]
) -> list[tuple[CoreView, ir.Value, list[BufferUse]]]:
    """Group reads by bundle, core view and value that they read: a buffer can be read while it is being filled.

    Groups are in the order of their first reads. Reads without a region per core are excluded, and so are indirect
    reads, which access device memory.
    """
    groups: list[tuple[CoreView, ir.Value, list[BufferUse]]] = []
    for access in reads:
        core_view = view_of(access.user.space, access.operand, access.user.division)
        if access.operand in DEVICE_OPS[access.user.opcode].indirect or core_view is None:
            continue
        whole = clones.whole_of(memory, access.user.values[access.operand])
        bundle = bundle_number(access.user.op)
        for view, value, accesses in groups:
            is_same = value == whole and bundle_number(accesses[0].user.op) == bundle
            if is_same and same_owners(view, core_view):
                accesses.append(access)
                break
        else:
            groups.append((core_view, whole, [access]))
    return groups
