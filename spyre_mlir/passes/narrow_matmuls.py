# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lets matmuls read 16-bit and 8-bit operands directly, without casts to f32 before the matmul."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.dialects.structured import Map, defining_op, element_of, selection, shape_of
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import generic_op, transposed

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

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
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
        self.remark(op, "rewrite", f"its operands are cast from {bits.pop()} bits: it takes them as they are")
        inputs = [_narrowed(value) for value in list(op.operands)[:2]]
        product = _product(inputs, op.operands[2], [dims for dims in maps if dims is not None])
        op.results[0].replace_all_uses_with(product)
        op.erase()


def _is_matmul(op: ir.Operation) -> bool:
    """Return whether an op sums products of two f32 operands."""
    if len(op.operands) != 3 or any(element_of(value) != "f32" for value in op.operands):
        return False
    body = [op_view.operation.name for op_view in op.regions[0].blocks[0].operations]
    return body == ["arith.mulf", "arith.addf", "linalg.yield"] and "reduction" in _iterators(op)


def _iterators(op: ir.Operation) -> str:
    return str(op.attributes["iterator_types"]) if op.name == "linalg.generic" else "reduction"


def _source(value: ir.Value) -> ir.Value | None:
    """Return the narrow tensor that a value is computed from by one cast and data movement; None if there is none."""
    op = defining_op(value)
    if op is None:
        return None
    if element_of(value) in _NARROW:
        return value
    moves = op.name in _VIEWS or op.name in ("linalg.transpose", "linalg.broadcast")
    if op.name == "linalg.generic":
        moves = _is_move(op)
    return _cast_or(op.operands[0]) if moves else None


def _cast_or(value: ir.Value) -> ir.Value | None:
    return value if element_of(value) in _NARROW else _source(value)


def _is_move(op: ir.Operation) -> bool:
    """Return whether a generic op has one input and at most casts its elements."""
    body = [op_view.operation.name for op_view in op.regions[0].blocks[0].operations]
    return len(op.operands) == 2 and body in (["arith.extf", "linalg.yield"], ["linalg.yield"])


def _narrowed(value: ir.Value) -> ir.Value:
    """Rebuild a value that has a narrow source in the element type of the source."""
    if element_of(value) in _NARROW:
        return value
    op = defining_op(value)
    assert op is not None
    source = _narrowed(op.operands[0])
    if op.name == "linalg.transpose":
        return transposed(source, list(ir.DenseI64ArrayAttr(op.attributes["permutation"])))
    element = ir.RankedTensorType(source.type).element_type
    type_ = ir.RankedTensorType.get(shape_of(value), element)
    if op.name in _VIEWS:
        copy = op.clone().operation
        copy.operands[0] = source
        copy.results[0].set_type(type_)
        return copy.results[0]
    maps = [selection(map_) for map_ in indexing_maps(op)]
    # The op was only the cast.
    if maps[0] == maps[1]:
        return source
    empty = ir.Operation.create("tensor.empty", results=[type_]).result
    moved = generic_op([source], empty, [dims for dims in maps if dims is not None], len(shape_of(value)), 0)
    block = ir.Block.create_at_start(moved.regions[0], [element, element])
    with ir.InsertionPoint(block):
        ir.Operation.create("linalg.yield", operands=[block.arguments[0]])
    return moved.results[0]


def _product(inputs: list[ir.Value], output: ir.Value, maps: list[Map]) -> ir.Value:
    """Return the f32 sum of the products of narrow numbers."""
    rank = 1 + max(dim for dims in maps for dim in dims if dim is not None)
    reduced = [dim for dim in range(rank) if dim not in maps[-1]]
    order = [*(dim for dim in range(rank) if dim not in reduced), *reduced]
    ordered = [tuple(None if dim is None else order.index(dim) for dim in dims) for dims in maps]
    generic = generic_op(inputs, output, ordered, rank, len(reduced))
    wide = ir.F32Type.get()
    elements = [ir.RankedTensorType(value.type).element_type for value in inputs]
    block = ir.Block.create_at_start(generic.regions[0], [*elements, wide])
    with ir.InsertionPoint(block):
        # Casts in the body are exact, so the products are the same as in the f32 matmul.
        factors = [
            ir.Operation.create("arith.extf", results=[wide], operands=[argument]).result
            for argument in list(block.arguments)[:2]
        ]
        product = ir.Operation.create("arith.mulf", results=[wide], operands=factors).result
        total = ir.Operation.create(
            "arith.addf", results=[wide], operands=[block.arguments[2], product]
        ).result
        ir.Operation.create("linalg.yield", operands=[total])
    return generic.results[0]
