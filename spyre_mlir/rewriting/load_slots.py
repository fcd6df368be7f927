# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Slots for loads of a loop's body: behind operations that compute while the memory is idle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spyre_mlir.analysis.aliasing import COPIES
from spyre_mlir.analysis.buffer_uses import BufferUse, Usage
from spyre_mlir.analysis.core_ownership import SHUFFLE, Divided
from spyre_mlir.analysis.loads import only_loads, work_of
from spyre_mlir.analysis.loops import body_block
from spyre_mlir.cost.cost_model import compute_ns, memory_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.dialects.structured import element_of, maker_of
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.layout.stick_layout import is_convertible
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.clones import (
    division_of_copy,
    has_known_padding,
    insert_clone,
    read_instead,
    whole_of,
)
from spyre_mlir.target.ops import DEVICE_OPS


@dataclass(frozen=True)
class Slot:
    """A load of a loop's body and the operation, ``behind`` which it can go.

    It is that of the next iteration if it is ``ahead``, else of the same one.
    """

    load: ir.Operation
    behind: ir.Operation
    ahead: bool


def slots(usage: Usage, loop: ir.Operation) -> list[Slot]:
    """Choose a slot for each load that gains by one: long loads first, each behind the longest idle time."""
    ops = [op for op in usage.ops if op.op.block == body_block(loop)]
    loads = {index: _memory_ns(op) for index, op in enumerate(ops) if _is_load(usage, loop, op)}
    idle = {index: _idle_ns(usage, op) for index, op in enumerate(ops) if index not in loads}
    chosen = []
    # Long loads choose first, for they have most to hide.
    for index in sorted(loads, key=lambda index: -loads[index]):
        hidden = {slot: min(idle_ns, loads[index]) for slot, idle_ns in idle.items()}
        best = max(hidden, key=lambda slot: (hidden[slot], slot < index), default=None)
        now = hidden.get((index or len(ops)) - 1, 0)
        if best is None or hidden[best] - now < usage.memory.target.hbm_access_ns:
            continue  # the operation in front of it hides as much, but for less than the latency of one access
        del idle[best]
        chosen.append(Slot(ops[index].op, ops[best].op, ahead=best > index))
    return chosen


def _is_load(usage: Usage, loop: ir.Operation, user: Divided) -> bool:
    """Return whether an operation only loads a tile that no operation writes, for this iteration alone."""
    work, result = work_of(user), user.op.results[0]
    if work is None or not only_loads(usage, user, work):
        return False
    written = any(usage.buffers[usage.root(value)].writes for value in user.values[:-1])
    return not written and _moves(usage, loop, user.values[:-1]) and usage.root(result) == result


def _moves(usage: Usage, loop: ir.Operation, values: Sequence[ir.Value]) -> bool:
    """Return whether one of some values is another tile in each iteration."""
    variable = body_block(loop).arguments[0]
    return any(variable in usage.memory.place(value).moves for value in values)


def _memory_ns(user: Divided) -> float:
    work = work_of(user)
    assert work is not None
    return memory_ns(work)


def _idle_ns(usage: Usage, user: Divided) -> float:
    """Nanoseconds of compute without memory traffic, with all that can be in LX there; 0 for a shuffle."""
    if user.opcode == SHUFFLE:
        return 0.0
    in_lx = frozenset(index for index, value in enumerate(user.values) if not _is_outside_of_lx(usage, value))
    work = operation_work(user.opcode, user.space, user.division, in_lx)
    return max(0.0, compute_ns(work) - memory_ns(work))


def _is_outside_of_lx(usage: Usage, value: ir.Value) -> bool:
    """Return whether a value is in device memory for sure: of the host, or a slice of a larger buffer."""
    root = usage.root(value)
    return usage.buffers[root].from_host or root in usage.results or not usage.memory.is_whole(value)


# -- clones --------------------------------------------------------------------------------------------


def clone_streams(usage: Usage, loop: ir.Operation, name: str) -> list[ir.Operation]:
    """Give operations of a loop's body that wait for device memory clones of the tiles that they stream."""
    clones = []
    for buffer in list(usage.buffers.values()):
        if not buffer.from_host or buffer.writes or not is_convertible(element_of(buffer.root)):
            continue
        if has_known_padding(buffer):
            continue
        for access in buffer.reads:
            if access.user.op.block == body_block(loop) and _streams(usage, loop, access):
                clones += _clone(usage, access, name)
    return clones


def _streams(usage: Usage, loop: ir.Operation, access: BufferUse) -> bool:
    """Return whether an operation loads a tile from device memory for longer than it computes."""
    user = access.user
    if user.op.name in COPIES or access.operand in DEVICE_OPS[user.opcode].indirect:
        return False
    work = work_of(user)
    assert work is not None
    return _moves(usage, loop, [user.values[access.operand]]) and memory_ns(work) > compute_ns(work)


def _clone(usage: Usage, access: BufferUse, name: str) -> Iterator[ir.Operation]:
    user = access.user
    view = view_of(user.space, access.operand, user.division)
    whole = whole_of(usage.memory, user.values[access.operand])
    division = None if view is None else division_of_copy(usage.memory, whole, view)
    # Twice the bytes: the next tile is loaded while the operation reads this one.
    if (
        division is None
        or 2 * local_bytes(user.space, access.operand, user.division) > usage.memory.target.usable_lx_bytes
    ):
        return
    point, reason = ir.InsertionPoint(user.op), f"'{user.opcode}' waits for it"
    clone = insert_clone(whole, division, point, user.op.location, name, reason)
    read_instead(clone, whole, [access])
    yield maker_of(clone)


def drop_clones(clones: Sequence[ir.Operation], chosen: Sequence[Slot]) -> list[ir.Operation]:
    """Remove the clones that have no slot; return the others."""
    used = [slot.load for slot in chosen]
    used_clones = [clone for clone in clones if clone in used]
    for clone in clones:
        if clone not in used_clones:
            clone.results[0].replace_all_uses_with(clone.operands[0])
            clone.erase()
    return used_clones
