# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matmuls of 8-bit operands: their forms in linalg, and where their results may be rounded.

    int8 x int8 -> i32     the device accumulates in more than 16 bits and rounds the sum to DL16: it cannot return i32
    fp8 x fp8   -> f32     likewise, as for a matmul of fp16

So ``batchmatmulint8`` denotes a sum in i32, ``batchmatmulfp8`` a sum in f32, until its readers are known. A sum
that is scaled and ends in fp16 may be rounded to DL16 under any precision policy; the device cannot compute other
sums. Apart from these matmuls, only casts and copies read or write 8-bit elements.
"""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.analysis.view_ops import VIEWS
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import (
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    shape_of,
    structured,
)
from spyre_mlir.mlir import ir
from spyre_mlir.target.element_types import ONE_BYTE
from spyre_mlir.target.ops import DEVICE_OPS, Kind

#: The opcode of a matmul by the element type of its operands.
PRODUCTS = {"f16": "batchmatmul", "f8E4M3FN": "batchmatmulfp8", "i8": "batchmatmulint8"}

_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")

#: Ops other than views that do not read elements.
_UNREAD = ("stick.pin", "sdsc.clone", "tensor.empty", "arith.constant", "linalg.fill", "func.return")

_RULE = "only matmuls, casts and copies read 8-bit tensors"


def is_integer_product(op: ir.Operation) -> bool:
    """Return whether a linalg op accumulates products of int8 in i32, according to its types."""
    elements = [element_of(value) for value in op.operands]
    return op.name.startswith("linalg.") and elements == ["i8", "i8", "i32"]


def is_narrowed_for_others(op: ir.Operation) -> bool:
    """Return whether a linalg op casts to int8, and its result has readers other than int8 matmuls and the host.

    The device widens int8 with a matmul, whose second operand the device cannot lay out itself.
    """
    if element_of(op.results[0]) != "i8" or element_of(op.operands[0]) == "i8":
        return False
    return any(
        reader.name != "func.return" and not is_integer_product(reader) for reader in _readers(op.results[0])
    )


def check_one_byte(op: ir.Operation) -> None:
    """Raise ``CompileError`` for an op with 8-bit tensors that is not a view, matmul, cast, copy or return."""
    if op.name in VIEWS or op.name in _UNREAD:
        return
    opcode = sdsc.opcode_of(op)
    if opcode in PRODUCTS.values() and element_of(op.results[0]) not in ONE_BYTE:
        return
    if opcode in DEVICE_OPS and (DEVICE_OPS[opcode].kind is Kind.CAST or DEVICE_OPS[opcode].is_copy):
        return
    dtypes = map(element_of, (*op.operands, *op.results))
    dtype = next((name for name in dtypes if name in ONE_BYTE), "")
    if dtype:
        raise error_at(op, f"'{opcode or op.name}' does not support {dtype}: {_RULE}")


def narrowing_cast(value: ir.Value) -> Structured | None:
    """Return the cast to 8 bits that defines a value, if it does not permute dims; None for another value."""
    op = defining_op(value)
    if op is None or element_of(value) not in ONE_BYTE or sdsc.opcode_of(op) not in DEVICE_OPS:
        return None
    generic = structured(op)
    is_cast = generic is not None and DEVICE_OPS[generic.opcode].kind is Kind.CAST
    return generic if generic is not None and is_cast and generic.maps[0] == generic.maps[-1] else None


def wide_sums(block: ir.Block) -> Iterator[ir.Operation]:
    """Yield the matmuls of 8-bit operands whose results are read only by casts to f32, and these casts."""
    for op in (op_view.operation for op_view in block.operations):
        if sdsc.opcode_of(op) not in PRODUCTS.values() or element_of(op.operands[0]) not in ONE_BYTE:
            continue
        readers = list(_readers(op.results[0]))
        if readers and all(sdsc.opcode_of(reader) == "dl16tofp32" for reader in readers):
            yield from (op, *readers)


def _readers(value: ir.Value) -> Iterator[ir.Operation]:
    """Yield the ops that read a value, directly or through views."""
    for reader in (use.owner.operation for use in value.uses):
        if reader.name in VIEWS:
            yield from _readers(reader.results[0])
        else:
            yield reader


def rounded_sum(root: Structured) -> ir.Value | None:
    """Return a sum of 8-bit products in the format of the device, if the program cannot observe the difference.

    int32tofp32(batchmatmulint8(x, y) : i32)  ->  dl16tofp32(batchmatmulint8(x, y) : f16)
    batchmatmulfp8(x, y) : f32                ->  dl16tofp32(batchmatmulfp8(x, y) : f16)
    fp32todl16(dl16tofp32(batchmatmulint8(x, y)))  ->  batchmatmulint8(x, y)
    """
    if root.opcode == "batchmatmulfp8":
        # The sum has readers that do not round it immediately, and ends in fp16.
        readers = {sdsc.opcode_of(use.owner.operation) for use in root.result.uses}
        is_kept = (
            element_of(root.result) == "f32" and readers != {"fp32todl16"} and _ends_in_fp16(root.result)
        )
        return _cast_up(_in_fp16(root), root.op.location) if is_kept else None
    if root.opcode == "fp32todl16":
        source = defining_op(root.inputs[0])
        if source is None or sdsc.opcode_of(source) != "dl16tofp32":
            return None
        # The casts of an int8 matmul to f32 and back cancel if neither of them transposes.
        cast, matmul = structured(source), defining_op(source.operands[0])
        moves = cast is None or cast.maps[0] != cast.maps[1] or root.maps[0] != root.maps[1]
        return None if moves or matmul is None or not is_integer_sum(matmul) else matmul.results[0]
    inner, views = _integer_sum(root)
    if inner is None:
        return None
    value = _in_fp16(inner)
    for view in reversed(views):
        copy = view.clone().operation
        copy.operands[0] = value
        element = ir.RankedTensorType(value.type).element_type
        value = copy.results[0]
        value.set_type(ir.RankedTensorType.get(shape_of(view.results[0]), element))
    return _cast_up(value, root.op.location, root)


def _in_fp16(matmul: Structured) -> ir.Value:
    *maps, result = matmul.maps
    operands = matmul.opcode, matmul.inputs, maps, matmul.extents, "f16"
    location, reduced = matmul.op.location, matmul.reduced
    product = device_op(*operands, location=location, reduced=reduced, result_map=result)
    sdsc.inherit(maker_of(product), matmul.op)
    return product


def _cast_up(value: ir.Value, location: ir.Location, like: Structured | None = None) -> ir.Value:
    """Cast an fp16 value to f32, with the dims of another cast ``like``."""
    shape = shape_of(value) if like is None else like.extents
    dims = tuple(range(len(shape)))
    maps, result = ([dims], dims) if like is None else (like.maps[:1], like.maps[-1])
    return device_op("dl16tofp32", [value], maps, shape, "f32", location=location, result_map=result)


def is_integer_sum(op: ir.Operation | None) -> bool:
    """Return whether an op is a matmul of int8, except with a unit matrix."""
    return op is not None and sdsc.opcode_of(op) == "batchmatmulint8" and not widens(op)


def widens(op: ir.Operation) -> bool:
    """Return whether an op converts 8-bit to 16-bit numbers: a cast, or the product of int8 with a unit matrix.

    The unit matrix is a copy of a constant (``passes/decompose_to_device_ops.py``).
    """
    if sdsc.opcode_of(op) != "batchmatmulint8":
        return sdsc.opcode_of(op) == "fp8todl16"
    copy = defining_op(op.operands[0])
    is_copy = copy is not None and sdsc.opcode_of(copy) == "identity"
    constant = defining_op(copy.operands[0]) if copy is not None and is_copy else None
    return constant is not None and constant.name == "arith.constant"


def _integer_sum(root: Structured) -> tuple[Structured | None, list[ir.Operation]]:
    """Return the int8 matmul that a cast converts to f32 for operations that end in fp16; and the views between."""
    views: list[ir.Operation] = []
    if root.opcode != "int32tofp32" or not _ends_in_fp16(root.result):
        return None, views
    source = defining_op(root.inputs[0])
    # The views are in reverse order. A sum of one row, or with batches as one dim, has its other dims in a view.
    while source is not None and source.name in _RESHAPES and _has_one_use(source):
        views.append(source)
        source = defining_op(source.operands[0])
    is_sum = source is not None and is_integer_sum(source) and _has_one_use(source)
    return structured(source) if source is not None and is_sum else None, views


def _has_one_use(op: ir.Operation) -> bool:
    return sum(1 for _ in op.results[0].uses) == 1


def _ends_in_fp16(value: ir.Value) -> bool:
    """Return whether all values computed from an f32 value are rounded to fp16 before the program returns them."""
    waiting, seen = [value], {value}
    while waiting:
        uses = [use.owner.operation for use in waiting.pop().uses]
        if any(not op.results or sdsc.opcode_of(op) == "fp32toint32" for op in uses):
            return False
        results = {op.results[0] for op in uses if element_of(op.results[0]) == "f32"} - seen
        seen |= results
        waiting += results
    return True
