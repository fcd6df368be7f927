# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Copies buffers to device memory for readers or the host that need them there; other readers use LX."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.buffer_uses import BufferAccesses, BufferUse, Usage
from spyre_mlir.analysis.core_ownership import read_mismatch, written_distribution
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loops import LOOP, body_block, bundle_number, put_beside, terminator
from spyre_mlir.dialects.structured import maker_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.layout import ViewError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting import clones
from spyre_mlir.target.ops import DEVICE_OPS


@dataclass(frozen=True)
class CloneOutputs(Pass):
    """Let a buffer stay in LX for readers whose cores read the parts that they wrote, and give other users a clone.

    Other users are readers whose cores read other parts, readers in a later bundle, the host, and, for a tile in a
    loop, the buffer that the tile is inserted into.
    A sum that a loop carries is cloned after the loop.
    ``scratchpad-planning`` removes the clone if it does not place the buffer.

    Before, level *divided*:
        %0 = exp(%x); %1 = add(%0, %x); return %0, %1
    After:
        %0 = exp(%x); %c = "sdsc.clone"(%0) {sdsc.optional}; %1 = add(%0, %x); return %c, %1
    """

    name: ClassVar[str] = "clone-outputs"

    def run(self, module: ir.Operation) -> None:
        lx_bytes = target_of(module).usable_lx_bytes
        for func in functions(module):
            usage = usage_of(func)
            for buffer in list(usage.buffers.values()):
                for access in buffer.writes:
                    size = local_bytes(access.user.space, access.operand, access.user.division)
                    if size <= lx_bytes:
                        self._clone(usage, buffer, access)

    def _clone(self, usage: Usage, buffer: BufferAccesses, writer: BufferUse) -> None:
        """Insert a clone of a result for readers that cannot find it in LX, so that the others read it from LX."""
        result = writer.user.values[-1]
        carried, final = _carried(result)
        # The op in a loop that inserts a tile into a buffer, if any.
        users = ((use.owner.operation, use.operand_number) for use in final.uses)
        insertion = next(
            (user for user, number in users if user.name == "tensor.insert_slice" and number == 0), None
        )
        if insertion is not None and insertion.parent.operation.name != LOOP:
            insertion = None
        writers = [access for access in buffer.writes if access.user.values[-1] in carried]
        # Other operations write parts of the buffer, so a clone here would be incomplete.
        if insertion is None and not (result == buffer.root and len(buffer.writes) == len(writers)):
            return
        readers = [access for access in buffer.reads if _source(usage, access) in carried]
        lx_readers = [access for access in readers if all(_finds_in_lx(write, access) for write in writers)]
        other_readers = [access for access in readers if access not in lx_readers]
        if any(_source(usage, access) != final for access in other_readers):
            return  # all values of an iter_arg share one buffer
        returned = insertion is None and buffer.root in usage.results
        # Without a reader in LX nothing is saved, and without another reader no clone is needed.
        if not lx_readers or not (other_readers or returned or insertion is not None):
            return
        view = view_of(writer.user.space, writer.operand, writer.user.division)
        division = None if view is None else clones.division_of_copy(usage.memory, result, view)
        if division is None:
            return
        has_readers = other_readers or insertion is None
        others = [f"{len(other_readers)} of {len(readers)} readers"] if has_readers else []
        others += ["the host"] if returned else []
        others += ["the buffer that it is a part of"] if insertion is not None else []
        what = " and ".join(others)
        # After the last loop, so that a sum is copied once and not in every iteration.
        point = ir.InsertionPoint.after(maker_of(final))
        reason = f"{what} need it in device memory"
        clone = clones.insert_clone(final, division, point, writer.user.op.location, self.name, reason)
        put_beside(maker_of(clone), writer.user.op)
        clones.read_instead(clone, final, other_readers)
        if insertion is not None:
            insertion.operands[0] = clone
        for value in list(usage.end.operands) if returned else ():
            if usage.root(value) == buffer.root:
                clones.replace_operand(clone, final, usage.end, value)
        self.remark(writer.user.op, "clone", f"{what} read a clone in device memory")


def _carried(initial: ir.Value) -> tuple[set[ir.Value], ir.Value]:
    """Return the values that share a buffer with ``initial`` through iter_args, and the value after the last loop."""
    values, final, pending = {initial}, initial, [initial]
    while pending:
        value = pending.pop()
        for loop, index in ((use.owner.operation, use.operand_number - 3) for use in value.uses):
            if loop.name != LOOP:
                continue
            body = body_block(loop)
            inside = [body.arguments[index + 1], terminator(body).operands[index]]
            final = loop.results[index] if value == final else final
            pending += [other for other in (*inside, loop.results[index]) if other not in values]
            values.update((*inside, loop.results[index]))
    return values, final


def _source(usage: Usage, access: BufferUse) -> ir.Value:
    """Return the value that an operand is a view of, in the same iteration."""
    return clones.whole_of(usage.memory, access.user.values[access.operand])


def _finds_in_lx(writer: BufferUse, reader: BufferUse) -> bool:
    """Return whether each core of a reader finds in LX the parts that it reads."""
    # If bundles are cut before planning, nothing is kept in LX across a cut.
    if bundle_number(writer.user.op) != bundle_number(reader.user.op):
        return False
    # A restickify reads the sticks of other cores, which is possible only in device memory.
    if DEVICE_OPS[reader.user.opcode].kind.takes_sticks_apart and reader.user.division.cores > 1:
        return False
    try:
        distribution = written_distribution(writer.user.space, writer.operand, writer.user.division)
    except ViewError:
        return False
    return read_mismatch(distribution, reader.user, reader.operand) is None
