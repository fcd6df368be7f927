# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optional clones: copies between device memory and LX, which scratchpad planning keeps or removes."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.analysis.aliasing import AliasAnalysis, attributes_of
from spyre_mlir.analysis.buffer_uses import BufferAccesses, BufferUse
from spyre_mlir.analysis.core_ownership import SHUFFLE
from spyre_mlir.analysis.view_ops import VIEWS
from spyre_mlir.cost.cost_model import lx_saving_ns, operation_cost
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import defining_op, maker_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import CoreView
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.relayout import CopyDivision, copy_division, ring_division
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.padding import UNDEFINED, uniform
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.divider import digits_map


def copy_space(memory: AliasAnalysis, whole: ir.Value) -> Space:
    """Return the space of a copy of a value into a separate buffer."""
    return memory.copy_space(whole, [memory.place(whole).view, BufferView.of(memory.layout(whole))])


def division_of_copy(
    memory: AliasAnalysis, whole: ir.Value, view: CoreView, *, over_the_ring: bool = False
) -> CopyDivision | None:
    """Return the division of a copy with which the cores own the parts given by ``view``; None if there is none."""
    return (ring_division if over_the_ring else copy_division)(copy_space(memory, whole), view)


def whole_of(memory: AliasAnalysis, value: ir.Value) -> ir.Value:
    """Return the source of a chain of views: an argument, or the result of an operation or of the last insertion.

    In a loop, return the slice of the source that one iteration reads.
    """
    op = defining_op(value)
    if op is None or op.name not in VIEWS:
        return value
    # A slice that moves with a loop is another tile in each iteration, and only the tile is cloned.
    moves = memory.place(value).moves != memory.place(op.operands[0]).moves
    return value if moves else whole_of(memory, op.operands[0])


def insert_clone(
    whole: ir.Value,
    division: CopyDivision,
    point: ir.InsertionPoint,
    location: ir.Location,
    name: str,
    reason: str,
    *,
    over_the_ring: bool = False,
) -> ir.Value:
    """Insert an optional clone of a buffer: a shuffle if ``over_the_ring``, from LX to LX.

    Its history contains the pass ``name`` and the ``reason``. Its padding is undefined, like the padding of results.
    """
    with point:
        clone = (sdsc.shuffle if over_the_ring else sdsc.clone)(whole, location)
        clone.set_type(whole.type)
        op = maker_of(clone)
        op.attributes[sdsc.DIVISION] = sdsc.division_attr(division.splits, digits_map(division.digits))
        if division.copies > 1:
            i64 = ir.IntegerType.get_signless(64)
            op.attributes[sdsc.COPIES] = ir.IntegerAttr.get(i64, division.copies)
        if division.halos:
            op.attributes[sdsc.HALOS] = sdsc.halos_attr(division.halos)
        op.attributes[sdsc.OPTIONAL] = ir.UnitAttr.get()
        layout = stick.layout_of(whole.type, target_of(op))
        assert layout is not None
        states = uniform(layout, UNDEFINED)
        if states:
            op.attributes[stick.PADDING] = stick.padding_attr(states)
        sdsc.record(op, "clone", name, reason)
    return clone


def clone_saves_time(memory: AliasAnalysis, whole: ir.Value, readers: Sequence[BufferUse], runs: int) -> bool:
    """Return whether readers that own equal parts of a value save more time with a clone in LX than the clone takes.

    They can save time if they read the value in shorter runs than a copy does. ``runs``: executions of the clone.
    """
    first = readers[0]
    view = view_of(first.user.space, first.operand, first.user.division)
    division = None if view is None else division_of_copy(memory, whole, view)
    if division is None:
        return False
    space = copy_space(memory, whole).repeated(division.copies)
    clone = operation_work("identity", space, division.division, frozenset({1}))
    burst, copied = clone.target.burst_bytes, clone.operands[0].run_bytes
    saved = 0.0
    for access in readers:
        # A shuffle reads only LX: without the clone the shuffle is removed, too.
        if access.user.opcode == SHUFFLE:
            continue
        work = operation_work(access.user.opcode, access.user.space, access.user.division)
        operand = work.operands[access.operand]
        # Other reasons for a slow stream, such as turnarounds, also apply to a clone.
        if operand.run_bytes < min(burst, copied):
            saved += access.user.executions * lx_saving_ns(work, operand)
    return saved > runs * operation_cost(clone).total_ns


def has_known_padding(buffer: BufferAccesses) -> bool:
    """Return whether the host writes numbers, on which readers rely, into the padding of a buffer."""
    owner = defining_op(buffer.root)
    states = stick.padding_of(attributes_of(buffer.root) if owner is None else owner.attributes)
    return any(state is not UNDEFINED for state in states.values())


def read_instead(clone: ir.Value, whole: ir.Value, accesses: Sequence[BufferUse]) -> None:
    """Let readers of ``whole`` read its clone, through the same views."""
    for access in accesses:
        replace_operand(clone, whole, access.user.op, access.user.values[access.operand])


def replace_operand(clone: ir.Value, whole: ir.Value, user: ir.Operation, value: ir.Value) -> None:
    """Replace an operand, which is a view of ``whole``, with the same view of the clone."""

    def viewed(value: ir.Value) -> ir.Value:
        if value == whole:
            return clone
        op = maker_of(value)
        source = viewed(op.operands[0])
        with ir.InsertionPoint(user):
            view = op.clone()
        view.operands[0] = source
        return view.results[0]

    for number, operand in enumerate(user.operands):
        if operand == value:
            user.operands[number] = viewed(value)
