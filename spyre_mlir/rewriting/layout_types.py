# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes chosen layouts into the types of a function, and makes restickifies of converting clones."""

from __future__ import annotations

import numpy as np

from spyre_mlir.analysis.layout_views import Views
from spyre_mlir.analysis.loops import LOOP, carried_values, nested_ops, terminator
from spyre_mlir.analysis.view_ops import VIEWS
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.stick import RESTICKIFY
from spyre_mlir.dialects.structured import DESTINATION, defining_op, use_empty
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import ir

#: Elements that numpy has, too.
_BUFFERS = ("f16", "f32")

_EMPTY = ("tensor.empty", "linalg.fill")


def apply_layouts(func: ir.Operation, layouts: dict[ir.Value, StickLayout], views: Views) -> None:
    """Set the type of every value: ``layouts`` for buffers, ``views`` for views of them.

    Destinations of ops and loops get an empty tensor of their own: two ops of one shape may differ in layout.
    """
    _Types(layouts, views).write(func.regions[0].blocks[0])
    block = func.regions[0].blocks[0]
    results = [value.type for value in terminator(block).operands]
    inputs = [argument.type for argument in block.arguments]
    func.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))


class _Types:
    """Writes the types of a block; ``_types`` caches those built so far, of which a program has few."""

    def __init__(self, layouts: dict[ir.Value, StickLayout], views: Views) -> None:
        self.layouts = layouts
        self.views = views
        self._types: dict[tuple[ir.Type, StickLayout], ir.Type] = {}

    def write(self, block: ir.Block) -> None:
        for argument in block.arguments:
            self._set(argument, self.layouts[argument])
        for op in nested_ops(block):
            with ir.InsertionPoint(op), op.location:
                self._op(op)
        # In reverse, so that a fill is erased before the empty tensor that it fills.
        for op in reversed(nested_ops(block)):
            if op.name in _EMPTY and use_empty(op.results[0]):
                op.erase()

    def _type(self, value: ir.Value, layout: StickLayout) -> ir.Type:
        key = (value.type, layout)
        if key not in self._types:
            self._types[key] = stick.with_layout(value.type, layout)
        return self._types[key]

    def _set(self, value: ir.Value, layout: StickLayout) -> None:
        value.set_type(self._type(value, layout))

    def _op(self, op: ir.Operation) -> None:
        if op.name == LOOP:
            for iter_arg in carried_values(op):
                self._set(iter_arg.argument, self.layouts[iter_arg.argument])
                self._set(iter_arg.result, self.layouts[iter_arg.result])
                _set_destination(op, iter_arg.operand, iter_arg.result.type)
            return
        if op.name in (*_EMPTY, "func.return") or not op.results:
            return
        result = op.results[0]
        if not isinstance(result.type, ir.RankedTensorType):
            return
        if op.name == "tensor.insert_slice":
            _set_destination(op, 1, self._type(result, self.layouts[result]))
        self._set(result, self.views[result].layout if op.name in VIEWS else self.layouts[result])
        if op.name in DESTINATION:
            _set_destination(op, len(op.operands) - 1, result.type)
        if op.name == "arith.constant":
            _retype_constant(op)
        if RESTICKIFY in op.attributes:
            self._restickify(op)

    def _restickify(self, op: ir.Operation) -> None:
        """Replace a clone that changes the stick by a ``stick.restickify``."""
        result = op.results[0]
        restickify = ir.Operation.create("stick.restickify", results=[result.type], operands=[op.operands[0]])
        sdsc.record(restickify, "remap", "choose-layouts", ir.StringAttr(op.attributes[RESTICKIFY]).value)
        self.layouts[restickify.result] = self.layouts[result]
        result.replace_all_uses_with(restickify.result)
        op.erase()


def _set_destination(op: ir.Operation, index: int, type_: ir.Type) -> None:
    """Replace an empty (and filled) destination by a new one of a type."""
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
    """Write the type of a constant, layout included, into its value."""
    type_, attr = op.results[0].type, op.attributes["value"]
    if attr.is_splat:
        op.attributes["value"] = ir.DenseElementsAttr.get_splat(type_, attr.get_splat_value())
        return
    if str(attr.type.element_type) in _BUFFERS:
        # Masks have millions of elements, whose text takes much longer than the rest of the pass.
        op.attributes["value"] = ir.DenseElementsAttr.get(np.array(attr), type=type_)
        return
    text = str(attr)
    op.attributes["value"] = ir.Attribute.parse(text[: text.rindex(" : ")] + f" : {type_}")
