# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets matmuls read 16-bit and 8-bit operands directly, without casts to f32 before the matmul."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from spyre_mlir.dialects.structured import Map, defining_op, element_of, selection, shape_of
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import (
    element_type,
    empty,
    generic_op,
    scalar_op,
    transposed,
    with_body,
)

_FP8 = "f8E4M3FN"
_NARROW = {"f16", "bf16", _FP8}
_MATMULS = {"linalg.matmul", "linalg.batch_matmul", "linalg.generic"}
_VIEWS = {"tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice"}


@dataclass(frozen=True)
class NarrowMatmuls(Pass):
    """Fold the casts to f32 of both operands of a matmul into the matmul.

        %a = extf %x : f16 to f32            linalg.generic ins(%x, %y : f16, f16) outs(.. : f32) {
        %b = extf %y : f16 to f32     ->       %p = mulf (extf x), (extf y)
        linalg.matmul ins(%a, %b)              addf %p, acc
                                             }

    A product of two such numbers is exact in f32, so results do not change, and the device supports this matmul, also
    for fp8. Casts are found through views, transposes and broadcasts.
    """

    name: ClassVar[str] = "narrow-matmuls"

    def run_on(self, func: ir.Operation) -> None:
        for op in [op.operation for op in func.regions[0].blocks[0].operations]:
            if op.name in _MATMULS and _is_matmul(op):
                with ir.InsertionPoint(op), op.location:
                    self._narrow(op)

    def _narrow(self, op: ir.Operation) -> None:
        # Both or none, because the device does not support a matmul of a narrow and a wide operand.
        sources = [_source(value) for value in list(op.operands)[:2]]
        if any(source is None for source in sources):
            return
        bits = {8 if element_of(source) == _FP8 else 16 for source in sources if source is not None}
        if len(bits) > 1:
            return  # no matmul supports fp8 with 16 bits
        maps = [selection(map_) for map_ in indexing_maps(op)]
        if any(dims is None for dims in maps):
            return
        self.remark(op, "rewrite", f"its operands are cast from {bits.pop()} bits: the casts are folded")
        inputs = [_narrowed(value) for value in list(op.operands)[:2]]
        product = _product(inputs, op.operands[2], [dims for dims in maps if dims is not None])
        op.results[0].replace_all_uses_with(product)
        op.erase()


def _is_matmul(op: ir.Operation) -> bool:
    """Return whether an op sums products of two f32 operands."""
    if len(op.operands) != 3 or any(element_of(value) != "f32" for value in op.operands):
        return False
    if op.name == "linalg.generic" and "reduction" not in str(op.attributes["iterator_types"]):
        return False
    return _body(op) == ["arith.mulf", "arith.addf", "linalg.yield"]


def _body(op: ir.Operation) -> list[str]:
    return [inner.operation.name for inner in op.regions[0].blocks[0].operations]


def _source(value: ir.Value) -> ir.Value | None:
    """Return the narrow tensor that a value is computed from by one cast and data movement; None if there is none."""
    op = defining_op(value)
    if op is None:
        return None
    if element_of(value) in _NARROW:
        return value
    moves = op.name in _VIEWS or op.name in ("linalg.transpose", "linalg.broadcast")
    if op.name == "linalg.generic":
        # One input, whose elements are at most cast.
        moves = len(op.operands) == 2 and _body(op) in (["arith.extf", "linalg.yield"], ["linalg.yield"])
    if not moves:
        return None
    source = op.operands[0]
    return source if element_of(source) in _NARROW else _source(source)


def _narrowed(value: ir.Value) -> ir.Value:
    """Rebuild a value that has a narrow source in the element type of the source."""
    if element_of(value) in _NARROW:
        return value
    op = defining_op(value)
    assert op is not None
    source = _narrowed(op.operands[0])
    if op.name == "linalg.transpose":
        return transposed(source, list(ir.DenseI64ArrayAttr(op.attributes["permutation"])))
    shape, element = shape_of(value), element_type(source)
    if op.name in _VIEWS:
        copy = op.clone().operation
        copy.operands[0] = source
        copy.results[0].set_type(ir.RankedTensorType.get(shape, element))
        return copy.results[0]
    maps = [selection(map_) for map_ in indexing_maps(op)]
    # The op was only the cast.
    if maps[0] == maps[1]:
        return source
    output = empty(shape, element)
    moved = generic_op([source], output, [dims for dims in maps if dims is not None], len(shape), 0)
    return with_body(moved, lambda read: read[0])


def _product(inputs: list[ir.Value], output: ir.Value, maps: list[Map]) -> ir.Value:
    """Return the f32 sum of the products of narrow numbers."""
    rank = 1 + max(dim for dims in maps for dim in dims if dim is not None)
    reduced = [dim for dim in range(rank) if dim not in maps[-1]]
    order = [*(dim for dim in range(rank) if dim not in reduced), *reduced]
    ordered = [tuple(None if dim is None else order.index(dim) for dim in dims) for dims in maps]

    def sum_of_products(read: Sequence[ir.Value]) -> ir.Value:
        # Casts in the body are exact, so the products are the same as in the f32 matmul.
        factors = [scalar_op("arith.extf", [argument], ir.F32Type.get()) for argument in read[:2]]
        return scalar_op("arith.addf", [read[2], scalar_op("arith.mulf", factors)])

    return with_body(generic_op(inputs, output, ordered, rank, len(reduced)), sum_of_products)
