# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the level *placed*."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, is_compute, updated_arguments
from spyre_mlir.analysis.carried_buffers import is_read_from, updated_slices, why_not_in_place, why_not_over
from spyre_mlir.analysis.loops import LOOP, carried_values
from spyre_mlir.analysis.view_ops import place_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.verify_scratchpad import ScopedLiveRanges, simultaneous
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class VerifyPlaced(Pass):
    """Check that every buffer has a placement that no other buffer uses during its live range.

    The checks use only the final IR, independently of planning: each operation writes a placed buffer, never an
    argument; pool buffers are aligned and inside the pool, and no two buffers that are live at one op overlap; each
    result has one buffer; the contents of a buffer are not overwritten by another insertion, by an iter_arg or by a
    result that is written over an operand.
    """

    name: ClassVar[str] = "verify-placed"
    is_evaluated: ClassVar[bool] = False

    def run_on(self, func: ir.Operation) -> None:
        _PlacementCheck(func).run()


class _PlacementCheck:
    def __init__(self, func: ir.Operation) -> None:
        self.func = func
        self.memory = AliasAnalysis(func)
        self.ops = all_ops(func)
        self.updated = updated_arguments(func)
        self.position = {op: index for index, op in enumerate(self.ops)}

    def run(self) -> None:
        for op in filter(is_compute, self.ops):
            values = self.memory.operands(op)
            for value in values:
                root = self.memory.place(value).buffer
                owner = defining_op(root)
                is_constant = owner.name == "arith.constant" if owner else root not in self.updated
                if value == values[-1] and is_constant:
                    raise error_at(op, "this operation writes an argument or a constant")
                if owner is not None and owner.name != "arith.constant":
                    if sdsc.PLACEMENT not in owner.attributes:
                        raise error_at(owner, "this buffer has no sdsc.placement")
            overwritten = sdsc.overwritten_operand(op)
            problem = None if overwritten is None else why_not_over(op, overwritten)
            if problem is not None:
                raise error_at(op, f"this operation cannot write over its operand: {problem}")
        results = self._results()
        self._insertions()
        # Each iter_arg stays in one buffer, which is not read after the next value is written.
        for loop in self.ops:
            for iter_arg in carried_values(loop) if loop.name == LOOP else ():
                problem = why_not_in_place(loop, iter_arg)
                if is_read_from(iter_arg.initial, loop, [loop]):
                    problem = "its initial value is read later"
                if problem is not None:
                    text = f"the loop cannot carry operand {iter_arg.operand} in one buffer: {problem}"
                    raise error_at(loop, text)
        self._overlaps(results)

    def _results(self) -> set[ir.Value]:
        """Return the buffers of the results, each of which must be placed in the kernel argument of its result."""
        roots = set()
        for index, value in enumerate(self.ops[-1].operands):
            root = self.memory.place(value).buffer
            if root in updated_arguments(self.func, index):
                continue
            owner = defining_op(root)
            placement = None if owner is None else sdsc.placement_of(owner)
            base = ir.StringAttr(placement.base).value if isinstance(placement, sdsc.HbmAttr) else None
            if base != f"result{index}":
                raise error_at(self.ops[-1], f"result {index} is not placed in its own kernel argument")
            roots.add(root)
        return roots

    def _insertions(self) -> None:
        """Check that only an insertion reads its destination, and that a part is written after what it overlaps."""
        for op in self.ops:
            if op.name != "tensor.insert_slice":
                continue
            producer = defining_op(op.operands[0])
            ours = [op, *(updated_slices(producer, op) if producer is not None else [])]
            readers = [user for use in op.operands[1].uses if (user := use.owner.operation) not in ours]
            if readers:
                raise error_at(op, "the buffer that is filled here has another reader; a clone is missing")
            written, before = self._writer(op.operands[0]), op.operands[1]
            while (earlier := defining_op(before)) is not None and earlier.name == "tensor.insert_slice":
                if (
                    place_of(op).may_overlap(place_of(earlier))
                    and self._writer(earlier.operands[0]) > written
                ):
                    raise error_at(op, "this part is written before another part that it overlaps")
                before = earlier.operands[1]
            if earlier is not None and is_compute(earlier) and self.position[earlier] > written:
                raise error_at(op, "this part is written before the buffer that it is inserted into")

    def _writer(self, value: ir.Value) -> int:
        owner = defining_op(value)
        if owner is None or not is_compute(owner):
            raise error_at(self.func, "an operation must write a part that is inserted into a buffer")
        return self.position[owner]

    def _overlaps(self, results: set[ir.Value]) -> None:
        """Check that pool buffers that are live at the same time are disjoint."""
        size, live_ranges = sdsc.pool_bytes_of(self.func), []
        pool: dict[ir.Value, tuple[int, int, ir.Operation]] = {}
        for live_range in ScopedLiveRanges.of(self.memory).all:
            owner = defining_op(live_range.root)
            if live_range.root in results or owner is None or owner.name == "arith.constant":
                continue
            placement = owner.attributes[sdsc.PLACEMENT]
            if not isinstance(placement, sdsc.HbmAttr) or ir.StringAttr(placement.base).value != "pool":
                continue
            start = ir.IntegerAttr(placement.offset).value
            end = start + self.memory.layout(live_range.root).bytes
            if start % self.memory.target.hbm_alignment_bytes or end > size or start < 0:
                text = f"bytes {start} to {end} are not an aligned part of the pool of {size} bytes"
                raise error_at(owner, text)
            pool[live_range.root] = start, end, owner
            live_ranges.append(live_range)
        for earlier, later in simultaneous(live_ranges):
            begin, finish, _ = pool[earlier.root]
            start, end, owner = pool[later.root]
            if begin < end and start < finish:
                text = f"bytes {start} to {end} of the pool hold another live buffer"
                raise error_at(owner, text)
