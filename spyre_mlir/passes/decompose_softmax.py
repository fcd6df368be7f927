# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decomposes ``linalg.softmax`` into the ops of a softmax from PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import Map, element_of, filled, shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import empty_like, generic_op

#: Element types with an exponential, and the 16-bit element types, whose sums are in f32.
_FLOATS, _NARROW = {"f16", "bf16", "f32", "f64"}, {"f16", "bf16"}

#: A function that builds the body of an op from its block arguments and returns the value to yield.
Body = Callable[[Sequence[ir.Value]], ir.Value]


@dataclass(frozen=True)
class DecomposeSoftmax(Pass):
    """Decompose each softmax into a maximum, the exponentials of the differences to it, their sum, and a division.

        linalg.softmax dimension(d) ins(%x)  ->  m = max over d of x;  e = exp(x - m);  s = sum over d of e;  e / s

    The sum of 16-bit elements is in f32. This pass exists because upstream does not lower this named op. Before: linalg
    on tensors of static shape.
    """

    name: ClassVar[str] = "decompose-softmax"

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            for op in [op.operation for op in func.regions[0].blocks[0].operations]:
                if op.name == "linalg.softmax":
                    with ir.InsertionPoint(op), op.location:
                        _decompose(op)


def _decompose(op: ir.Operation) -> None:
    source = op.operands[0]
    if not op.results:
        raise error_at(op, "this softmax is on memrefs; a program works on tensors")
    if element_of(source) not in _FLOATS or source.type != op.results[0].type:
        raise error_at(op, f"a softmax of {source.type} to {op.results[0].type} has no device operation")
    if not ir.RankedTensorType(source.type).has_static_shape:
        raise error_at(
            op, f"type {source.type} has no static shape; the device needs all sizes at compile time"
        )
    softmax = _Softmax(source, ir.IntegerAttr(op.attributes["dimension"]).value)
    op.results[0].replace_all_uses_with(softmax.run())
    op.erase()


class _Softmax:
    """Builder of the ops of one softmax. Iteration dims are the dims of the tensor, with the normalised dim last."""

    def __init__(self, source: ir.Value, dim: int) -> None:
        self.source = source
        shape = shape_of(source)
        self.rank = len(shape)
        rows = [row for row in range(self.rank) if row != dim]
        self.row_shape = [shape[row] for row in rows]
        order = [*rows, dim]
        self.every: Map = tuple(map(order.index, range(self.rank)))
        self.rows: Map = tuple(range(self.rank - 1))
        self.element = ir.RankedTensorType(source.type).element_type
        self.sum_element = ir.F32Type.get() if str(self.element) in _NARROW else self.element

    def run(self) -> ir.Value:
        def exponential(read: Sequence[ir.Value]) -> ir.Value:
            return _scalar("math.exp", [_scalar("arith.subf", read[:2])])

        def added(read: Sequence[ir.Value]) -> ir.Value:
            term = read[0] if read[0].type == read[1].type else _cast("arith.extf", read[0], self.sum_element)
            return _scalar("arith.addf", [term, read[1]])

        # The maximum is subtracted first, because exponentials of numbers up to 0 cannot overflow.
        largest = self._reduced(
            self.source, -math.inf, self.element, lambda read: _scalar("arith.maximumf", read)
        )
        exponentials = self._pointwise(largest, self.source, exponential)
        total = self._reduced(exponentials, 0.0, self.sum_element, added)
        # The complete sum is rounded, so that the quotient has the element type of the tensor.
        if self.sum_element != self.element:
            total = self._narrowed(total)
        return self._pointwise(total, exponentials, lambda read: _scalar("arith.divf", read[:2]))

    def _reduced(self, value: ir.Value, neutral: float, element: ir.Type, body: Body) -> ir.Value:
        attributes = {"value": ir.FloatAttr.get(element, neutral)}
        constant = ir.Operation.create("arith.constant", results=[element], attributes=attributes).result
        output = filled(constant, self._empty_rows(element))
        return _with_body(generic_op([value], output, [self.every, self.rows], self.rank, 1), body)

    def _pointwise(self, rows: ir.Value, value: ir.Value, body: Body) -> ir.Value:
        maps = [self.every, self.rows, self.every]
        return _with_body(generic_op([value, rows], empty_like(self.source), maps, self.rank, 0), body)

    def _narrowed(self, rows: ir.Value) -> ir.Value:
        generic = generic_op([rows], self._empty_rows(self.element), [self.rows] * 2, self.rank - 1, 0)
        return _with_body(generic, lambda read: _cast("arith.truncf", read[0], self.element))

    def _empty_rows(self, element: ir.Type) -> ir.Value:
        return ir.Operation.create(
            "tensor.empty", results=[ir.RankedTensorType.get(self.row_shape, element)]
        ).result


def _with_body(generic: ir.Operation, body: Body) -> ir.Value:
    elements = [ir.RankedTensorType(operand.type).element_type for operand in generic.operands]
    block = ir.Block.create_at_start(generic.regions[0], elements)
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[body(list(block.arguments))])
    return generic.results[0]


def _scalar(name: str, operands: Sequence[ir.Value]) -> ir.Value:
    return ir.Operation.create(name, results=[operands[0].type], operands=list(operands)).result


def _cast(name: str, operand: ir.Value, element: ir.Type) -> ir.Value:
    return ir.Operation.create(name, results=[element], operands=[operand]).result
