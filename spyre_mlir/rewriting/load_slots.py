"""Where loads of a loop's body can go: behind operations that compute while the memory is idle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
from spyre_mlir.rewriting.clones import (
    division_of_copy,
    has_known_padding,
    insert_clone,
    read_instead,
    whole_of,
)
from spyre_mlir.target.device import device
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
    """One for each load that gains by one: long loads first, each behind what is computing longest."""
    ops = [op for op in usage.ops if op.op.block == body_block(loop)]
    loads = {index: _memory_ns(op) for index, op in enumerate(ops) if _is_load(usage, loop, op)}
    idle = {index: _idle_ns(usage, op) for index, op in enumerate(ops) if index not in loads}
    chosen = []
    for index in sorted(loads, key=lambda index: -loads[index]):
        hidden = {slot: min(idle_ns, loads[index]) for slot, idle_ns in idle.items()}
        best = max(hidden, key=lambda slot: (hidden[slot], slot < index), default=None)
        now = hidden.get((index or len(ops)) - 1, 0)
        if best is None or hidden[best] - now < device().hbm_access_ns:
            continue  # what is in front of it computes as long, or nothing that counts
        del idle[best]
        chosen.append(Slot(ops[index].op, ops[best].op, ahead=best > index))
    return chosen


def _is_load(usage: Usage, loop: ir.Operation, user: Divided) -> bool:
    """Whether an operation only loads a tile of what nobody writes, for this iteration alone."""
    work, result = work_of(user), user.op.results[0]
    if work is None or not only_loads(usage, user, work):
        return False
    written = any(usage.buffers[usage.root(value)].writes for value in user.values[:-1])
    return not written and _moves(usage, loop, user.values[:-1]) and usage.root(result) == result


def _moves(usage: Usage, loop: ir.Operation, values: Sequence[ir.Value]) -> bool:
    """Whether one of some values is another tile in each iteration."""
    variable = body_block(loop).arguments[0]
    return any(variable in usage.memory.place(value).moves for value in values)


def _memory_ns(user: Divided) -> float:
    work = work_of(user)
    assert work is not None
    return memory_ns(work)


def _idle_ns(usage: Usage, user: Divided) -> float:
    """How long an operation computes while the memory is idle if what is made for it is in LX; 0 for a shuffle."""
    if user.opcode == SHUFFLE:
        return 0.0
    in_lx = frozenset(index for index, value in enumerate(user.values) if not _is_outside_of_lx(usage, value))
    work = operation_work(user.opcode, user.space, user.division, in_lx)
    return max(0.0, compute_ns(work) - memory_ns(work))


def _is_outside_of_lx(usage: Usage, value: ir.Value) -> bool:
    """Whether a value is in device memory for sure: of the host, or a part of a larger buffer."""
    root = usage.root(value)
    return usage.buffers[root].from_host or root in usage.results or not usage.memory.is_whole(value)


# -- clones --------------------------------------------------------------------------------------------


def clone_streams(usage: Usage, loop: ir.Operation, room: int, name: str) -> list[ir.Operation]:
    """Give operations of a loop's body that wait for device memory clones of the tiles that they stream."""
    clones = []
    for touched in list(usage.buffers.values()):
        if not touched.from_host or touched.writes or not is_convertible(element_of(touched.root)):
            continue
        if has_known_padding(touched, usage.func):
            continue
        for access in touched.reads:
            if access.user.op.block == body_block(loop) and _streams(usage, loop, access):
                clones += _clone(usage, access, room, name)
    return clones


def _streams(usage: Usage, loop: ir.Operation, access: BufferUse) -> bool:
    """Whether an operation takes a tile from device memory for longer than it computes."""
    user = access.user
    if user.op.name in COPIES or access.operand in DEVICE_OPS[user.opcode].indirect:
        return False
    work = work_of(user)
    assert work is not None
    return _moves(usage, loop, [user.values[access.operand]]) and memory_ns(work) > compute_ns(work)


def _clone(usage: Usage, access: BufferUse, room: int, name: str) -> Iterator[ir.Operation]:
    user = access.user
    view = view_of(user.space, access.operand, user.division)
    whole = whole_of(usage.memory, user.values[access.operand])
    division = None if view is None else division_of_copy(usage.memory, whole, view)
    if division is None or 2 * local_bytes(user.space, access.operand, user.division) > room:
        return
    point, reason = ir.InsertionPoint(user.op), f"'{user.opcode}' waits for it"
    clone = insert_clone(whole, division, point, user.op.location, name, reason)
    read_instead(clone, whole, [access])
    yield maker_of(clone)


def drop_clones(clones: Sequence[ir.Operation], chosen: Sequence[Slot]) -> list[ir.Operation]:
    """Take back the clones that have no slot; the others."""
    used = [slot.load for slot in chosen]
    kept = [clone for clone in clones if clone in used]
    for clone in clones:
        if clone not in kept:
            clone.results[0].replace_all_uses_with(clone.operands[0])
            clone.erase()
    return kept
