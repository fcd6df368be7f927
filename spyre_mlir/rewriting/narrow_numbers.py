# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rounding of f32 numbers to fewer digits, in f32: the casts that follow are exact, so that numbers are rounded once.

The device casts f32 to 8 bits through DL16, and does not have a rounding to integers. Here both are sums and products,
each of which the device rounds to nearest, ties to even.
"""

from __future__ import annotations

from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Structured, device_op, element_of, shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.node_builder import Node, NodeBuilder
from spyre_mlir.target.formats import FP8_MAX, FP8_NORMAL, FP8_STEP

#: x * 2^20 + x - x * 2^20 keeps the first 4 of 24 bits: the bits of an FP8 number (Dekker 1971, Veltkamp's splitting).
_SPLITTER = 2.0**20 + 1

#: In f32 the last place of numbers from 2^23 to 2^24 is 1, and larger numbers are integers.
_INTEGERS = 2.0**23
#: The sum of ``_UNIT`` and a number of a magnitude below 2^22 lies between 2^23 and 2^24.
_UNIT = 1.5 * _INTEGERS


def representable(builder: NodeBuilder, node: Node, element: str, op: ir.Operation) -> Node:
    """Return a node rounded, as in PyTorch, to numbers that an element type of one byte represents."""
    if element == "i8":
        # Towards zero, as for any integer type.
        return builder.cast(node, "i32", op)
    if node.value is None or node.element not in ("f32", "i32"):
        return node  # the cast of the device rounds once
    return rounded_to_fp8(builder, builder.cast(node, "f32", op))


def recast(cast: Structured, value: ir.Value) -> ir.Value:
    """Apply the same cast as ``cast`` to another value."""
    shape = shape_of(value)
    return device_op(
        cast.opcode,
        [value],
        [tuple(range(len(shape)))],
        shape,
        element_of(cast.result),
        location=cast.op.location,
        constants=sdsc.constants_of(cast.op),
    )


def rounded(builder: NodeBuilder, node: Node, op: ir.Operation) -> Node:
    """Return a node rounded to integers, computed in f32."""
    wide = builder.cast(node, "f32", op)
    if node.element == "f32":
        return rounded_to_integer(builder, wide)
    # Numbers of 16 bits are integers from 2^22 on.
    return builder.cast(
        _below(builder, wide, _INTEGERS / 2, _to_multiple(builder, wide, 1.0), wide), node.element, op
    )


def rounded_to_fp8(builder: NodeBuilder, x: Node) -> Node:
    """Round an f32 node to the numbers of FP8, ties to even; larger numbers saturate to the largest number."""
    x = builder.emit("maximum", [x, Node(None, constant=-FP8_MAX)])
    x = builder.emit("minimum", [x, Node(None, constant=FP8_MAX)])
    scaled = builder.emit("mul", [x, Node(None, constant=_SPLITTER)])
    normal = builder.emit("sub", [scaled, builder.emit("sub", [scaled, x])])
    return _below(builder, x, FP8_NORMAL, _to_multiple(builder, x, FP8_STEP), normal)


def rounded_to_integer(builder: NodeBuilder, x: Node) -> Node:
    """Round an f32 node to integers, ties to even.

    The magnitude is rounded, because the last place of ``_INTEGERS`` plus a number is 1 only for positive numbers.
    """
    integers, zero = Node(None, constant=_INTEGERS), Node(None, constant=0.0)
    size = builder.emit("abs", [x])
    rounded = builder.emit("sub", [builder.emit("add", [size, integers]), integers])
    is_negative = builder.emit("lesserthan", [x, zero])
    signed = builder.emit("where3", [is_negative, builder.emit("neg", [rounded]), rounded])
    return builder.emit("where3", [builder.emit("lesserthan", [size, integers]), signed, x])


def _to_multiple(builder: NodeBuilder, x: Node, step: float) -> Node:
    """Round small numbers to multiples of a power of two: adding a large number rounds off all smaller digits."""
    large = Node(None, constant=_UNIT * step)
    return builder.emit("sub", [builder.emit("add", [x, large]), large])


def _below(builder: NodeBuilder, x: Node, limit: float, inner: Node, outer: Node) -> Node:
    """Return ``inner`` where the magnitude of x is below a limit, ``outer`` elsewhere."""
    size = builder.emit("abs", [x])
    return builder.emit(
        "where3", [builder.emit("lesserthan", [size, Node(None, constant=limit)]), inner, outer]
    )
