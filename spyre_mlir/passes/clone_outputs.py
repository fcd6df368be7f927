"""Copies to device memory what some readers, or the host, need there, so that the others find it in LX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.division import mismatch
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.mlir import ir
from spyre_mlir.options import from_environment
from spyre_mlir.passes._clones import copy_division, insert_clone, read_instead, replace_operand
from spyre_mlir.passes._memory import functions, usable_lx_bytes
from spyre_mlir.passes._usage import Access, Touched, Usage
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device
from spyre_mlir.target.ops import DEVICE_OPS, Kind


@dataclass(frozen=True)
class CloneOutputs(Pass):
    """Let a buffer stay in LX for the readers that agree with its writer, and give the others a clone.

    Those are readers whose cores want other parts, and the host. ``scratchpad-planning`` removes the clone again
    if it does not place the buffer. ``lx_frac_avail`` is the part of LX that the backend keeps.

    Before, level *divided*:
        %0 = exp(%x); %1 = add(%0, %x); return %0, %1
    After:
        %0 = exp(%x); %c = "sdsc.clone"(%0) {sdsc.optional}; %1 = add(%0, %x); return %c, %1
    """

    name: ClassVar[str] = "clone-outputs"
    lx_frac_avail: float = from_environment("DXP_LX_FRAC_AVAIL", device().lx_backend_fraction)

    def run(self, module: ir.Operation) -> None:
        room = usable_lx_bytes(self.lx_frac_avail)
        for func in functions(module):
            usage = Usage(func)
            for touched in list(usage.buffers.values()):
                if _made_at_once(touched) and _bytes(touched.writes[0]) <= room:
                    self._clone(usage, touched)

    def _clone(self, usage: Usage, touched: Touched) -> None:
        (writer,) = touched.writes
        here = [access for access in touched.reads if _stays(writer, access)]
        there = [access for access in touched.reads if access not in here]
        if not here or not (there or touched.root in usage.results):
            return
        view = view_of(writer.user.space, writer.operand, writer.user.division)
        division = None if view is None else copy_division(usage.memory, touched.root, view)
        if division is None:
            return
        host = " and the host" if touched.root in usage.results else ""
        what = f"{len(there)} of {len(touched.reads)} readers{host}"
        point = ir.InsertionPoint.after(maker_of(touched.root))
        reason = f"{what} need it in device memory"
        clone = insert_clone(touched.root, division, point, writer.user.op.location, self.name, reason)
        read_instead(clone, touched.root, there)
        end = usage.end
        for value in list(end.operands):
            if usage.root(value) == touched.root:
                replace_operand(clone, touched.root, end, value)
        self.remark(writer.user.op, "clone", f"{what} take a clone in device memory")


def _made_at_once(touched: Touched) -> bool:
    """Whether one operation makes the buffer, as its own result."""
    return len(touched.writes) == 1 and touched.writes[0].user.values[-1] == touched.root


def _stays(writer: Access, reader: Access) -> bool:
    """Whether a reader finds in LX what the writer left there."""
    if DEVICE_OPS[reader.user.opcode].kind is Kind.RESTICKIFY and reader.user.division.cores > 1:
        return False
    views = [view_of(each.user.space, each.operand, each.user.division) for each in (writer, reader)]
    written, read = views
    return written is not None and read is not None and mismatch(written, read) is None


def _bytes(access: Access) -> int:
    return local_bytes(access.user.space, access.operand, access.user.division)
