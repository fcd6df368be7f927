"""Optional clones: copies between device memory and LX, which scratchpad planning keeps or removes."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import defining_op, maker_of
from spyre_mlir.division import CoreView
from spyre_mlir.division.matching import Mapping, matching_division
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import refined
from spyre_mlir.mlir import ir
from spyre_mlir.passes._dividing import core_map
from spyre_mlir.passes._memory import Memory
from spyre_mlir.passes._usage import Access
from spyre_mlir.passes._view_ops import VIEWS


def copy_division(memory: Memory, root: ir.Value, view: CoreView) -> Mapping | None:
    """The slices and the core order of a copy whose cores own of a buffer what ``view`` says; None without any."""
    whole = BufferView.of(memory.layout(root))
    return matching_division(refined([whole, whole]), 0, view)


def insert_clone(
    root: ir.Value, division: Mapping, point: ir.InsertionPoint, location: ir.Location, name: str, reason: str
) -> ir.Value:
    """An optional clone of a buffer at a point of the program; its history names the pass and the reason."""
    with point:
        made = sdsc.clone(root, location)
        made.set_type(root.type)
        op = maker_of(made)
        op.attributes[sdsc.DIVISION] = sdsc.division_attr(division[0], core_map(*division))
        op.attributes[sdsc.OPTIONAL] = ir.UnitAttr.get()
        sdsc.record(op, "clone", name, reason)
    return made


def read_instead(clone: ir.Value, root: ir.Value, accesses: Sequence[Access]) -> None:
    """Gives readers of a buffer the clone, through the views that they had of the buffer."""
    for access in accesses:
        replace_operand(clone, root, access.user.op, access.user.values[access.operand])


def replace_operand(clone: ir.Value, root: ir.Value, user: ir.Operation, value: ir.Value) -> None:
    """Replaces ``value``, a view of the buffer, by the same view of the clone."""
    for number, operand in enumerate(user.operands):
        if operand == value:
            user.operands[number] = _viewed(clone, value, root, user)


def _viewed(clone: ir.Value, value: ir.Value, root: ir.Value, user: ir.Operation) -> ir.Value:
    if value == root:
        return clone
    op = defining_op(value)
    assert op is not None and op.name in VIEWS, (
        "a buffer that one operation makes is read through views alone"
    )
    source = _viewed(clone, op.operands[0], root, user)
    with ir.InsertionPoint(user):
        made = op.clone()
    made.operands[0] = source
    return made.results[0]
