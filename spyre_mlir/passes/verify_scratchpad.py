# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the buffers in the scratchpads, on the final plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import (
    AliasAnalysis,
    all_ops,
    argument_attributes,
    functions,
    is_in_lx,
)
from spyre_mlir.analysis.core_ownership import MOVING, NO_HOLDER, Divided, partial_accesses_of
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.live_scopes import ScopedLiveRange, ScopedLiveRanges
from spyre_mlir.analysis.lx_candidates import pairs_of, second_at
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import MemorySpace
from spyre_mlir.target.ops import DEVICE_OPS, Kind


@dataclass(frozen=True)
class VerifyScratchpad(Pass):
    """Check that every buffer in LX is eligible, and that no other buffer uses its bytes during its live range.

    The checks use only the final IR, independently of planning. A buffer in LX is not an argument, constant or result.
    One operation accesses the whole buffer, which determines its bytes per core, and no operation accesses a part that
    moves with a loop. Its address is aligned, and its bytes per core end inside the usable LX. No restickify across
    cores reads it. Source and result of a shuffle and copies of a part are in LX. Ping-pong buffers are adjacent.
    Buffers that are live at the same operation are disjoint, unless a pointwise operation overwrites an operand with
    its result: at the same address, no larger, element for element, and without later readers of the operand.
    ``verify-ownership`` checks that readers own their data, and reports mismatches in device memory. After both passes
    each core finds its operands in its LX.
    """

    name: ClassVar[str] = "verify-scratchpad"
    is_evaluated: ClassVar[bool] = False

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            _ScratchpadCheck(func).run()


@dataclass(frozen=True)
class _LiveBuffer:
    """A buffer in LX, ``[start, end)`` on each core, with a live range per iteration of its loop."""

    root: ir.Value
    writer: Divided
    start: int
    end: int
    live_ranges: tuple[ScopedLiveRange, ...]

    @property
    def described(self) -> str:
        return f"the result of '{self.writer.opcode}' at {location_of(self.writer.op.location)}"


class _ScratchpadCheck:
    def __init__(self, func: ir.Operation) -> None:
        self.func = func
        self.memory = AliasAnalysis(func)
        self.space = MemorySpace.of_lx(self.memory.target)
        self.body = all_ops(func)

    def run(self) -> None:
        for number, attributes in enumerate(argument_attributes(self.func)):
            if isinstance(attributes.get(sdsc.PLACEMENT), sdsc.LxAttr):
                raise error_at(
                    self.func, f"argument {number} is in device memory, where the host puts it, not in LX"
                )
        for op in self.body:
            _check_relayout(self.memory, op)
        placed = [op for op in self.body if isinstance(sdsc.placement_of(op), sdsc.LxAttr)]
        # Ownership is costly to compute, and only buffers in LX need it.
        if not placed:
            return
        usage = usage_of(self.func)
        self.memory, self.ops = usage.memory, usage.ops
        self.accesses = self._accesses()
        self.live_ranges = ScopedLiveRanges.of(self.memory)
        residents = [self._resident(op) for op in placed]
        for resident in residents:
            self._check_place(resident)
            self._check_readers(resident)
        self._check_overlaps(residents)
        self._check_pairs({resident.root: resident for resident in residents})

    def _accesses(self) -> dict[ir.Value, list[tuple[int, int]]]:
        """Map each buffer to its accesses in program order, as index of the operation and of the operand."""
        accesses: dict[ir.Value, list[tuple[int, int]]] = {}
        for position, user in enumerate(self.ops):
            for operand, value in enumerate(user.values):
                accesses.setdefault(self._root(value), []).append((position, operand))
        return accesses

    def _root(self, value: ir.Value) -> ir.Value:
        return self.memory.place(value).buffer

    def _bytes(self, value: ir.Value) -> int:
        """Return the bytes of the buffer of a value, on all cores."""
        return self.memory.layout(self._root(value)).bytes

    def _resident(self, op: ir.Operation) -> _LiveBuffer:
        """Return the buffer that an op with a placement in LX defines."""
        if op.name == "arith.constant":
            raise error_at(op, "a constant is in device memory, where the host puts it, not in LX")
        root = op.results[0]
        for number, value in enumerate(self.body[-1].operands):
            if self._root(value) == root:
                raise error_at(op, f"result {number} is in device memory, where the host reads it, not in LX")
        accesses = self.accesses.get(root, [])
        writers = [self.ops[position] for position, operand in accesses if self._writes(position, operand)]
        if not writers:
            raise error_at(op, "this buffer is in LX, and no operation writes it")
        for position, operand in accesses:
            if operand in self.ops[position].moving:
                raise error_at(self.ops[position].op, f"operand {operand} is in LX: {MOVING}")
        start = ir.IntegerAttr(op.attributes[sdsc.PLACEMENT].address).value
        size = self._size(op, root, writers)
        return _LiveBuffer(
            root, writers[0], start, start + size, tuple(self.live_ranges.of_root.get(root, ()))
        )

    def _size(self, op: ir.Operation, root: ir.Value, writers: Sequence[Divided]) -> int:
        """Return the bytes per core, given by the operation that accesses the whole buffer if others access parts."""
        pieces = partial_accesses_of(
            root, [(self.ops[position], operand) for position, operand in self.accesses[root]]
        )
        if pieces is None:
            return max(local_bytes(user.space, user.output, user.division) for user in writers)
        if pieces.holder is None:
            raise error_at(op, f"this buffer is in LX: {NO_HOLDER}")
        user, operand = pieces.holder
        return local_bytes(user.space, operand, user.division)

    def _writes(self, position: int, operand: int) -> bool:
        return operand == len(self.ops[position].values) - 1

    def _check_place(self, resident: _LiveBuffer) -> None:
        start, end, op = resident.start, resident.end, resident.writer.op
        if start % self.space.alignment:
            raise error_at(op, f"the LX address {start} is not a multiple of {self.space.alignment} bytes")
        if start < 0 or end > self.space.capacity:
            raise error_at(
                op, f"bytes {start} to {end} are not inside the {self.space.capacity} usable bytes of LX"
            )

    def _check_readers(self, resident: _LiveBuffer) -> None:
        for position, operand in self.accesses[resident.root]:
            user = self.ops[position]
            across = DEVICE_OPS[user.opcode].kind.takes_sticks_apart and user.division.cores > 1
            if across and not self._writes(position, operand):
                raise error_at(
                    user.op, f"a restickify across {user.division.cores} cores cannot read from LX"
                )

    def _check_pairs(self, residents: Mapping[ir.Value, _LiveBuffer]) -> None:
        """Check that the second buffer of a ping-pong pair directly follows the first."""
        for (first, _), *others in pairs_of(residents):
            size = max(residents[root].end - residents[root].start for root in (first, *dict(others)))
            for root, second in others:
                start = residents[first].start + second * second_at(size, self.space.alignment)
                if residents[root].start != start:
                    raise error_at(
                        residents[root].writer.op,
                        f"its buffer of a ping-pong pair is at {residents[root].start} of LX, not at {start}",
                    )

    def _check_overlaps(self, residents: list[_LiveBuffer]) -> None:
        """Check by a sweep over time that live buffers are disjoint, or that one is written in place of the other."""
        live_ranges = [
            (live_range, resident) for resident in residents for live_range in resident.live_ranges
        ]
        alive: list[tuple[ScopedLiveRange, _LiveBuffer]] = []
        for live_range, child in sorted(live_ranges, key=lambda pair: pair[0].first):
            alive = [entry for entry in alive if entry[0].last >= live_range.first]
            for other, parent in alive:
                if parent.end <= child.start or child.end <= parent.start:
                    continue
                problem = self._why_not_in_place(other, parent, live_range, child)
                if problem is not None:
                    text = (
                        f"bytes {child.start} to {child.end} of LX overlap {parent.described}, which is alive"
                    )
                    raise error_at(child.writer.op, f"{text}: {problem}")
            alive.append((live_range, child))

    def _why_not_in_place(
        self, before: ScopedLiveRange, parent: _LiveBuffer, live_range: ScopedLiveRange, child: _LiveBuffer
    ) -> str | None:
        """Return why a buffer cannot be written in place of a live buffer; None if it can."""
        return next(self._obstacles(before, parent, live_range, child), None)

    def _obstacles(
        self, before: ScopedLiveRange, parent: _LiveBuffer, live_range: ScopedLiveRange, child: _LiveBuffer
    ) -> Iterator[str]:
        user = child.writer
        if before.last > live_range.first:
            yield "it is read later"
        if self.live_ranges.order[live_range.first] != user.op:
            yield "another operation touches it first"
        if parent.start != child.start:
            yield f"it begins at {parent.start}, and in place both begin at one address"
        if child.end > parent.end:
            yield "it is smaller than what takes its place"
        if DEVICE_OPS[user.opcode].kind is not Kind.POINTWISE:
            yield f"'{user.opcode}' does not work element by element"
        result_order = _order(user, len(user.values) - 1)
        read = [operand for operand, value in enumerate(user.values[:-1]) if self._root(value) == parent.root]
        if self._bytes(parent.root) != self._bytes(child.root) or not user.fills:
            yield f"'{user.opcode}' touches a part of a buffer"
        if any(_order(user, operand) != result_order for operand in read):
            yield f"'{user.opcode}' does not read it element for element where it writes"


def _check_relayout(memory: AliasAnalysis, op: ir.Operation) -> None:
    """Check that shuffles and copies of a part are in LX, because in device memory a part exists only once."""
    if op.name == "sdsc.shuffle" and not is_in_lx(memory.place(op.operands[0]).buffer):
        raise error_at(op, "a shuffle takes what it copies from LX, but its source is in device memory")
    if (op.name == "sdsc.shuffle" or sdsc.copies_of(op) > 1) and not is_in_lx(
        memory.place(op.results[0]).buffer
    ):
        raise error_at(op, "what is copied to other cores is in LX, but this copy is in device memory")


def _order(user: Divided, operand: int) -> tuple:
    """Return the order of an operand in LX: the dims of its sticks, outermost first, and of the elements in a stick.

    Operands of one operation with equal orders have each element at the same offset, because a dim has the same
    share in all operands.
    """
    view = user.space.views[operand]
    return tuple(axis.dim for axis in view.axes), view.stick_dim, view.elements_per_stick
