# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decomposes ``linalg.softmax`` into the ops of a softmax from PyTorch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import Map, element_of, filled, shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import (
    Body,
    constant,
    element_type,
    empty,
    empty_like,
    generic_op,
    scalar_op,
    with_body,
)

#: Element types with an exponential, and the 16-bit element types, whose sums are in f32.
_FLOATS, _NARROW = {"f16", "bf16", "f32", "f64"}, {"f16", "bf16"}


@dataclass(frozen=True)
class DecomposeSoftmax(Pass):
    """Decompose each softmax into a maximum, the exponentials of the differences to it, their sum, and a division.

        linalg.softmax dimension(d) ins(%x)  ->  m = max over d of x;  e = exp(x - m);  s = sum over d of e;  e / s

    The sum of 16-bit elements is in f32. This pass exists because upstream does not lower this named op. Before: linalg
    on tensors of static shape.
    """

    name: ClassVar[str] = "decompose-softmax"

    def run_on(self, func: ir.Operation) -> None:
        for op in [op.operation for op in func.regions[0].blocks[0].operations]:
            if op.name == "linalg.softmax":
                with ir.InsertionPoint(op), op.location:
                    _decompose(op)


def _decompose(op: ir.Operation) -> None:
    """Replace ``linalg.softmax`` by max, subtract, exp, sum and divide; a softmax of 16-bit numbers sums in f32."""
    source = op.operands[0]
    if not op.results:
        raise error_at(op, "this softmax is on memrefs; a program uses tensors")
    if element_of(source) not in _FLOATS or source.type != op.results[0].type:
        raise error_at(op, f"a softmax of {source.type} to {op.results[0].type} has no device operation")
    if not ir.RankedTensorType(source.type).has_static_shape:
        raise error_at(
            op, f"type {source.type} has no static shape; the device needs all sizes at compile time"
        )
    # Iteration dims are the dims of the tensor, with the normalised dim last.
    shape = shape_of(source)
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    element = element_type(source)
    order = [*(row for row in range(len(shape)) if row != dim), dim]
    every: Map = tuple(map(order.index, range(len(shape))))
    rows: Map = tuple(range(len(shape) - 1))
    row_shape = [shape[row] for row in order[:-1]]
    sum_element = ir.F32Type.get() if str(element) in _NARROW else element

    def reduced(value: ir.Value, neutral: float, type_: ir.Type, body: Body) -> ir.Value:
        output = filled(constant(ir.FloatAttr.get(type_, neutral)), empty(row_shape, type_))
        return with_body(generic_op([value], output, [every, rows], len(shape), 1), body)

    def pointwise(by_row: ir.Value, value: ir.Value, body: Body) -> ir.Value:
        maps = [every, rows, every]
        return with_body(generic_op([value, by_row], empty_like(source), maps, len(shape), 0), body)

    def added(read: Sequence[ir.Value]) -> ir.Value:
        is_wide = read[0].type == read[1].type
        term = read[0] if is_wide else scalar_op("arith.extf", read[:1], sum_element)
        return scalar_op("arith.addf", [term, read[1]])

    # The maximum is subtracted first, because exponentials of numbers up to 0 cannot overflow.
    largest = reduced(source, -math.inf, element, lambda read: scalar_op("arith.maximumf", read))
    exponentials = pointwise(
        largest, source, lambda read: scalar_op("math.exp", [scalar_op("arith.subf", read[:2])])
    )
    total = reduced(exponentials, 0.0, sum_element, added)
    # The complete sum is rounded, so that the quotient has the element type of the tensor.
    if sum_element != element:
        rounding = generic_op([total], empty(row_shape, element), [rows] * 2, len(rows), 0)
        total = with_body(rounding, lambda read: scalar_op("arith.truncf", read[:1], element))
    result = pointwise(total, exponentials, lambda read: scalar_op("arith.divf", read[:2]))
    op.results[0].replace_all_uses_with(result)
    op.erase()
