# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Casts the operands of f32 products to a type in which the device supports products."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.dialects.structured import element_of, maker_of, shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import empty, generic_op, scalar_op, with_body

#: Types that operands may be cast to, by the names that the option accepts.
_ELEMENTS = {
    "float16": "f16", "fp16": "f16", "f16": "f16", "dl16": "f16",
    "bfloat16": "bf16", "bf16": "bf16",
}  # fmt: skip


@dataclass(frozen=True)
class AutocastProducts(Pass):
    """Cast the operands of every f32 matmul and convolution to 16 bits, and round the result to 16 bits.

        matmul(a: f32, b: f32) : f32  ->  f32(f16(matmul(f16(a), f16(b)) : f32))

    PyTorch's autocast does the same for products. Everything else stays f32, including results and arguments of the
    program. ``dtype`` is float16 or bfloat16. Before: linalg on tensors.
    """

    name: ClassVar[str] = "autocast-products"
    dtype: str = "float16"

    def run(self, module: ir.Operation) -> None:
        if self.dtype not in _ELEMENTS:
            raise CompileError(
                f"Products are cast to float16 or bfloat16 and not to '{self.dtype}'; fp16, dl16 and bf16 are the same."
            )
        with module.context:
            element = ir.Type.parse(_ELEMENTS[self.dtype])
        for func in functions(module):
            for op in [op.operation for op in func.regions[0].blocks[0].operations]:
                if _is_product(op):
                    with op.location:
                        _cast(op, element)


def _is_product(op: ir.Operation) -> bool:
    """Return whether an operation adds up products of two f32 tensors."""
    if not op.name.startswith("linalg.") or len(op.operands) != 3 or len(op.results) != 1:
        return False
    if any(element_of(value) != "f32" for value in op.operands):
        return False
    if op.name == "linalg.generic" and "reduction" not in str(op.attributes["iterator_types"]):
        return False
    left, right, out = op.regions[0].blocks[0].arguments
    body = [inner.operation for inner in op.regions[0].blocks[0].operations]
    if [inner.name for inner in body] != ["arith.mulf", "arith.addf", "linalg.yield"]:
        return False
    product, total, _ = body
    return {*product.operands} == {left, right} and {*total.operands} == {out, product.results[0]}


def _cast(op: ir.Operation, element: ir.Type) -> None:
    """Cast both inputs of a product before the product, and the result after it."""
    wide = ir.F32Type.get()
    with ir.InsertionPoint(op):
        for index in (0, 1):
            op.operands[index] = _converted(op.operands[index], "arith.truncf", element)
    body = op.regions[0].blocks[0]
    for argument in list(body.arguments)[:2]:
        argument.set_type(element)
        with ir.InsertionPoint.at_block_begin(body):
            widened = scalar_op("arith.extf", [argument], wide)
        argument.replace_all_uses_except(widened, maker_of(widened))
    with ir.InsertionPoint.after(op):
        rounded = _converted(op.results[0], "arith.truncf", element)
        result = _converted(rounded, "arith.extf", wide)
    op.results[0].replace_all_uses_except(result, maker_of(rounded))


def _converted(value: ir.Value, cast: str, element: ir.Type) -> ir.Value:
    """Build a cast of all elements of a tensor."""
    shape = shape_of(value)
    every = tuple(range(len(shape)))
    generic = generic_op([value], empty(shape, element), [every, every], len(shape), 0)
    return with_body(generic, lambda read: scalar_op(cast, read[:1], element))
