"""Writes chosen layouts into the types of a function, and makes restickifies of converting clones."""

from __future__ import annotations

from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.mlir import ir
from spyre_mlir.passes._loops import LOOP, carried_values, nested_ops, terminator
from spyre_mlir.passes._view_ops import VIEWS, view_of

#: On a clone that converts: why. It becomes a stick.restickify when types are written.
RESTICKIFY = "stick.restickify"

#: Ops whose last operand says where the result goes, and is not read.
DESTINATION = ("linalg.generic", "linalg.transpose", "linalg.fill")


_EMPTY = ("tensor.empty", "linalg.fill")


def apply_layouts(func: ir.Operation, layouts: dict[ir.Value, StickLayout]) -> None:
    """Sets the type of every value: ``layouts`` for buffers, composition for views.

    Destinations, and what a loop fills, get an empty tensor of their own: two ops of one shape may differ in
    layout.
    """
    block = func.regions[0].blocks[0]
    views: dict[ir.Value, BufferView] = {}
    for argument in block.arguments:
        _set(argument, layouts[argument], views)
    for op in nested_ops(block):
        with ir.InsertionPoint(op), op.location:
            _apply(op, layouts, views)
    for op in reversed(nested_ops(block)):
        if op.name in _EMPTY and not any(True for _ in op.results[0].uses):
            op.erase()
    results = [value.type for value in terminator(block).operands]
    inputs = [argument.type for argument in block.arguments]
    func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


def _set(value: ir.Value, layout: StickLayout, views: dict[ir.Value, BufferView]) -> None:
    value.set_type(stick.with_layout(value.type, layout))
    views[value] = BufferView.of(layout)


def _apply(op: ir.Operation, layouts: dict[ir.Value, StickLayout], views: dict[ir.Value, BufferView]) -> None:
    if op.name == LOOP:
        _apply_to_carried(op, layouts, views)
        return
    if op.name in (*_EMPTY, "func.return") or not op.results:
        return
    result = op.results[0]
    if not isinstance(result.type, ir.RankedTensorType):
        return
    if op.name == "tensor.insert_slice":
        _own_destination(op, 1, stick.with_layout(result.type, layouts[result]))
    if op.name in VIEWS:
        view = view_of(op, views[op.operands[0]])
        result.set_type(stick.with_layout(result.type, view.layout))
        views[result] = view
    else:
        _set(result, layouts[result], views)
    if op.name in DESTINATION:
        _own_destination(op, len(op.operands) - 1, result.type)
    if op.name == "arith.constant":
        _retype_constant(op)
    if RESTICKIFY in op.attributes:
        made = ir.Operation.create("stick.restickify", results=[result.type], operands=[op.operands[0]])
        sdsc.record(made, "remap", "choose-layouts", ir.StringAttr(op.attributes[RESTICKIFY]).value)
        views[made.result] = views[result]
        layouts[made.result] = layouts[result]
        result.replace_all_uses_with(made.result)
        op.erase()


def _apply_to_carried(
    loop: ir.Operation, layouts: dict[ir.Value, StickLayout], views: dict[ir.Value, BufferView]
) -> None:
    for each in carried_values(loop):
        _set(each.argument, layouts[each.argument], views)
        _set(each.result, layouts[each.result], views)
        _own_destination(loop, each.operand, each.result.type)


def _own_destination(op: ir.Operation, index: int, type_: ir.Type) -> None:
    """A fresh tensor.empty (and fill) of a type, where there is one."""
    old = defining_op(op.operands[index])
    if old is None or old.name not in _EMPTY:
        return
    empty = ir.Operation.create("tensor.empty", results=[type_]).result
    if old.name == "linalg.fill":
        fill = old.clone().operation
        fill.operands[1] = empty
        fill.results[0].set_type(type_)
        empty = fill.results[0]
    op.operands[index] = empty


def _retype_constant(op: ir.Operation) -> None:
    """A constant's value carries its type, layout included."""
    type_, attr = op.results[0].type, op.attributes["value"]
    if attr.is_splat:
        op.attributes["value"] = ir.DenseElementsAttr.get_splat(type_, attr.get_splat_value())
        return
    text = str(attr)
    op.attributes["value"] = ir.Attribute.parse(text[: text.rindex(" : ")] + f" : {type_}")
