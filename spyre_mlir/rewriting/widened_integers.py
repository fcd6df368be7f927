# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""int8 numbers as fp16: a product with the unit matrix, for the device has no cast but multiplies int8 into fp16.

    w : [rows, inner] i8  ->  sum over k of eye[b, j, k] * w[n, b, k] : [b, j, n] f16, where inner = b * block

Exact, as each sum has one product, and the array multiplies int8 faster than memory gives it. Columns come out as rows,
which is how a matmul wants the weight of a linear layer.
"""

from __future__ import annotations

import numpy as np

from spyre_mlir.analysis.quantized_matmuls import narrowing_cast
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import device_op, shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.body_operations import READS_SIGN
from spyre_mlir.rewriting.node_builder import Node, NodeBuilder
from spyre_mlir.rewriting.tensor_builders import collapsed, expanded
from spyre_mlir.target.element_types import widening_block


def widened(node: Node, op: ir.Operation) -> Node:
    """Return a node of int8 in fp16; ``CompileError`` for a shape that the product does not suit."""
    assert node.value is not None
    if narrowing_cast(node.value) is not None:
        # Its columns are not in pairs, and the integers that came into the cast may be no 8-bit ones.
        raise error_at(op, "a cast from i8 that the device has cast to i8 has no device operation")
    shape = shape_of(node.value)
    block = widening_block(shape, target_of(op).stick_bytes)
    if block is None:
        text = f"a cast from i8 to f16 has no device operation for the shape {list(shape)}"
        raise error_at(op, text)
    *batches, rows, inner = shape
    rank, count = len(batches), inner // block
    groups = [*([dim] for dim in range(rank + 1)), [rank + 1, rank + 2]]
    source = expanded(node.value, groups, [*batches, rows, count, block])
    batch = range(rank + 1)
    product = device_op(
        "batchmatmulint8",
        [_unit_matrices([*batches, count], block, op.location), source],
        [(*batch, rank + 1, rank + 3), (*range(rank), rank + 2, rank, rank + 3)],
        [*batches, count, block, rows, block],
        "f16",
        location=op.location,
        reduced=[rank + 3],
    )
    merged = collapsed(product, [*([dim] for dim in range(rank)), [rank, rank + 1], [rank + 2]])
    *lead, row, column = node.dims
    return Node(merged, (*lead, column, row))


def as_read(builder: NodeBuilder, node: Node, op: ir.Operation) -> Node:
    """Return what a cast reads: integers with a sign or without one, of those that the device has, or other numbers.

    Booleans are 0 and 1 there, other integers have a sign: bytes by now as 16-bit floats, which hold 0 to 255.
    """
    element, reads_sign = str(op.operands[0].type), READS_SIGN.get(op.name)
    if reads_sign is None or reads_sign == (element != "i1"):
        return node
    if element == "i1":
        return builder.emit("neg", [node])
    if element != "i8":
        text = (
            f"'{op.name}' of {element} has no device operation: the device's integers have 32 bits and a sign"
        )
        raise error_at(op, text)
    is_negative = builder.emit("lesserthan", [node, Node(None, constant=0.0)])
    lacking = builder.emit("mul", [is_negative, Node(None, constant=256.0)])
    return builder.emit("add", [node, lacking])


def _unit_matrices(batches: list[int], size: int, location: ir.Location) -> ir.Value:
    """One unit matrix per batch, copied from one that the host gives."""
    i8 = ir.IntegerType.get_signless(8)
    dense = ir.DenseElementsAttr.get(
        np.eye(size, dtype=np.int8), type=ir.RankedTensorType.get([size, size], i8)
    )
    one = ir.Operation.create("arith.constant", results=[dense.type], attributes={"value": dense}).result
    rank = len(batches)
    return device_op("identity", [one], [(rank, rank + 1)], [*batches, size, size], "i8", location=location)
