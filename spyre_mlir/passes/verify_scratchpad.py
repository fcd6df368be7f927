# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks the buffers in the scratchpads, on the final plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import ClassVar

from spyre_mlir.analysis import aliasing
from spyre_mlir.analysis.aliasing import AliasAnalysis, is_compute
from spyre_mlir.analysis.core_ownership import Divided, MovingSlice, partial_accesses_of
from spyre_mlir.analysis.kept_usage import usage_of
from spyre_mlir.analysis.loops import LOOP, block_of, body_block
from spyre_mlir.analysis.lx_candidates import pairs_of, second_at
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import MemorySpace
from spyre_mlir.scratchpad.eligibility import NoHolder
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

    def run_on(self, func: ir.Operation) -> None:
        _ScratchpadCheck(func).run()


@dataclass(frozen=True)
class _LiveBuffer:
    """A buffer in LX, ``[start, end)`` on each core."""

    root: ir.Value
    writer: Divided
    start: int
    end: int

    @property
    def described(self) -> str:
        return f"the result of '{self.writer.opcode}' at {location_of(self.writer.op.location)}"


class _ScratchpadCheck:
    def __init__(self, func: ir.Operation) -> None:
        self.func = func
        self.memory = aliasing.AliasAnalysis(func)
        self.space = MemorySpace.of_lx(self.memory.target)
        self.body = aliasing.all_ops(func)

    def run(self) -> None:
        for number, attributes in enumerate(aliasing.argument_attributes(self.func)):
            if isinstance(attributes.get(sdsc.PLACEMENT), sdsc.LxAttr):
                text = f"argument {number} is in device memory, where the host puts it, not in LX"
                raise error_at(self.func, text)
        # Shuffles and copies of a part are in LX, because in device memory a part exists only once.
        for op in self.body:
            is_shuffle = op.name == "sdsc.shuffle"
            if is_shuffle and not aliasing.is_in_lx(self.memory.place(op.operands[0]).buffer):
                raise error_at(op, "the source of a shuffle must be in LX, but it is in device memory")
            is_copied = is_shuffle or sdsc.copies_of(op) > 1
            if is_copied and not aliasing.is_in_lx(self.memory.place(op.results[0]).buffer):
                raise error_at(op, "the result of a shuffle must be in LX, but it is in device memory")
        placed = [op for op in self.body if isinstance(sdsc.placement_of(op), sdsc.LxAttr)]
        # Ownership is costly to compute, and only buffers in LX need it.
        if not placed:
            return
        usage = usage_of(self.func)
        self.memory, self.ops = usage.memory, usage.ops
        # The accesses to each buffer in program order, as index of the operation and of the operand.
        accesses: dict[ir.Value, list[tuple[int, int]]] = {}
        for position, user in enumerate(self.ops):
            for operand, value in enumerate(user.values):
                accesses.setdefault(self._root(value), []).append((position, operand))
        residents = {op.results[0]: self._resident(op, accesses.get(op.results[0], [])) for op in placed}
        for root, resident in residents.items():
            self._check_place(resident, accesses[root])
        live_ranges = ScopedLiveRanges.of(self.memory)
        in_lx = [live for root in residents for live in live_ranges.of_root.get(root, ())]
        for earlier, later in simultaneous(in_lx):
            parent, child = residents[earlier.root], residents[later.root]
            if parent.end <= child.start or child.end <= parent.start:
                continue
            problem = "it is read later" if earlier.last > later.first else None
            if problem is None and live_ranges.order[later.first] != child.writer.op:
                problem = "another operation accesses it first"
            problem = problem or self._why_not_in_place(parent, child)
            if problem is not None:
                text = f"bytes {child.start} to {child.end} of LX overlap {parent.described}, which is live"
                raise error_at(child.writer.op, f"{text}: {problem}")
        # Check that the second buffer of a ping-pong pair directly follows the first.
        for (first, _), *others in pairs_of(residents):
            size = max(residents[root].end - residents[root].start for root in (first, *dict(others)))
            for root, second in others:
                start = residents[first].start + second * second_at(size, self.space.alignment)
                if residents[root].start != start:
                    raise error_at(
                        residents[root].writer.op,
                        f"its buffer of a ping-pong pair is at {residents[root].start} of LX, not at {start}",
                    )

    def _resident(self, op: ir.Operation, accesses: Sequence[tuple[int, int]]) -> _LiveBuffer:
        """Return the buffer that an op with a placement in LX defines."""
        if op.name == "arith.constant":
            raise error_at(op, "a constant is in device memory, where the host puts it, not in LX")
        root = op.results[0]
        for number, value in enumerate(self.body[-1].operands):
            if self._root(value) == root:
                raise error_at(op, f"result {number} is in device memory, where the host reads it, not in LX")
        writers = [self.ops[position] for position, operand in accesses if self._writes(position, operand)]
        if not writers:
            raise error_at(op, "this buffer is in LX, and no operation writes it")
        for position, operand in accesses:
            if operand in self.ops[position].moving:
                raise error_at(self.ops[position].op, f"operand {operand} is in LX: {MovingSlice()}")
        start = ir.IntegerAttr(op.attributes[sdsc.PLACEMENT].address).value
        # If operations access parts, the operation that accesses the whole buffer determines its bytes per core.
        pieces = partial_accesses_of(root, [(self.ops[position], operand) for position, operand in accesses])
        if pieces is None:
            size = max(local_bytes(user.space, user.output, user.division) for user in writers)
        elif pieces.holder is None:
            raise error_at(op, f"this buffer is in LX: {NoHolder()}")
        else:
            user, operand = pieces.holder
            size = local_bytes(user.space, operand, user.division)
        return _LiveBuffer(root, writers[0], start, start + size)

    def _check_place(self, resident: _LiveBuffer, accesses: Sequence[tuple[int, int]]) -> None:
        start, end, op = resident.start, resident.end, resident.writer.op
        if start % self.space.alignment:
            raise error_at(op, f"the LX address {start} is not a multiple of {self.space.alignment} bytes")
        if start < 0 or end > self.space.capacity:
            usable = f"the {self.space.capacity} usable bytes of LX"
            raise error_at(op, f"bytes {start} to {end} are not inside {usable}")
        for position, operand in accesses:
            user = self.ops[position]
            across = DEVICE_OPS[user.opcode].kind.takes_sticks_apart and user.division.cores > 1
            if across and not self._writes(position, operand):
                text = f"a restickify across {user.division.cores} cores cannot read from LX"
                raise error_at(user.op, text)

    def _why_not_in_place(self, parent: _LiveBuffer, child: _LiveBuffer) -> str | None:
        """Return why a buffer cannot be written in place of a live buffer; None if it can."""
        user = child.writer
        if parent.start != child.start:
            return f"it begins at {parent.start}, and in place both begin at one address"
        if child.end > parent.end:
            return "it is smaller than the buffer that takes its address"
        if DEVICE_OPS[user.opcode].kind is not Kind.POINTWISE:
            return f"'{user.opcode}' does not work element by element"
        bytes_of_both = {self.memory.layout(root).bytes for root in (parent.root, self._root(child.root))}
        if len(bytes_of_both) > 1 or not user.fills:
            return f"'{user.opcode}' accesses a part of a buffer"

        def order(operand: int) -> tuple:
            """Return the dims of the sticks of an operand, outermost first, and of the elements in a stick.

            Operands with equal orders have each element at the same offset, because a dim has the same share in all
            operands.
            """
            view = user.space.views[operand]
            return tuple(axis.dim for axis in view.axes), view.stick_dim, view.elements_per_stick

        read = (operand for operand, value in enumerate(user.values[:-1]) if self._root(value) == parent.root)
        if any(order(operand) != order(len(user.values) - 1) for operand in read):
            return f"'{user.opcode}' does not read it element for element where it writes"
        return None

    def _root(self, value: ir.Value) -> ir.Value:
        return self.memory.place(value).buffer

    def _writes(self, position: int, operand: int) -> bool:
        return operand == len(self.ops[position].values) - 1


# Live ranges of buffers from the scopes of their values: for verifiers, which do not trust the planner's ranges.


@dataclass
class ScopedLiveRange:
    """The first and last position at which a buffer is accessed, in one execution of the block that defines it."""

    root: ir.Value
    first: int
    last: int


@dataclass
class ScopedLiveRanges:
    """The live ranges of buffers, as positions in ``order``: the operations in execution order, each loop twice.

    A buffer that is defined in a loop is a new buffer in each iteration, because values do not outlive their block;
    an iter_arg is defined before the loop.
    """

    memory: AliasAnalysis
    order: list[ir.Operation] = field(default_factory=list)
    all: list[ScopedLiveRange] = field(default_factory=list)
    of_root: dict[ir.Value, list[ScopedLiveRange]] = field(default_factory=dict)

    @classmethod
    def of(cls, memory: AliasAnalysis) -> ScopedLiveRanges:
        """Compute the live ranges of the buffers of a function."""
        live_ranges = cls(memory)
        live_ranges._run(memory.block, {})
        return live_ranges

    def _run(self, block: ir.Block, alive: dict[ir.Block, dict[ir.Value, ScopedLiveRange]]) -> None:
        alive = {**alive, block: {}}
        for op in (item.operation for item in block.operations):
            if op.name == LOOP:
                # Two iterations show every overlap: a third iteration does not add any.
                for _ in range(2):
                    self._run(body_block(op), alive)
            elif is_compute(op):
                for value in self.memory.operands(op):
                    self._access(self.memory.place(value).buffer, alive)
                self.order.append(op)

    def _access(self, root: ir.Value, alive: dict[ir.Block, dict[ir.Value, ScopedLiveRange]]) -> None:
        known = alive[block_of(root)]
        if root not in known:
            known[root] = ScopedLiveRange(root, len(self.order), len(self.order))
            self.all.append(known[root])
            self.of_root.setdefault(root, []).append(known[root])
        known[root].last = len(self.order)


def simultaneous(live_ranges: Iterable[ScopedLiveRange]) -> Iterator[tuple[ScopedLiveRange, ScopedLiveRange]]:
    """Yield all pairs of live ranges that overlap, the earlier one first, by a sweep over time."""
    alive: list[ScopedLiveRange] = []
    for live_range in sorted(live_ranges, key=lambda live_range: live_range.first):
        alive = [other for other in alive if other.last >= live_range.first]
        yield from ((other, live_range) for other in alive)
        alive.append(live_range)
