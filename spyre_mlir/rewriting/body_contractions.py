# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Contractions in the body of a ``linalg`` op: a reduced product of two inputs as one matmul of the device."""

from __future__ import annotations

from collections.abc import Mapping

from spyre_mlir.analysis.quantized_matmuls import PRODUCTS
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import Structured, device_op
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.linalg_values import device_element
from spyre_mlir.rewriting.node_builder import Node
from spyre_mlir.target.element_types import ONE_BYTE

_MULTIPLY = ("arith.mulf", "arith.muli")


def contraction(
    generic: Structured,
    nodes: Mapping[ir.Value, Node],
    ops: list[ir.Operation],
    source: ir.Value,
) -> Node | None:
    """``sum_k a[.., k] * b[.., k]`` of two inputs as one batchmatmul; None if it is something else."""
    product = next((op for op in ops if op.results[0] == source), None)
    if product is None or product.name not in _MULTIPLY or len(generic.reduced) != 1:
        return None
    if generic.extents[generic.reduced[0]] == 1:
        return None  # one product, no sum
    factors = [_uncast(nodes, ops, operand) for operand in product.operands]
    if any(factor is None for factor in factors):
        return None
    lhs, rhs = (factor for factor in factors if factor is not None)
    contracted = generic.reduced[0]
    if lhs.element != rhs.element or lhs.element not in PRODUCTS:
        return _no_contraction(generic.op, lhs, rhs, contracted)
    if lhs.element in ONE_BYTE:
        if not set(lhs.dims) ^ set(rhs.dims):
            raise error_at(generic.op, f"a matmul of {lhs.element} needs rows or columns")
    elif not _is_matmul(lhs, rhs, contracted):
        return None
    element = device_element(str(source.type), generic.op.location)
    return _matmul(generic, lhs, rhs, contracted, element)


def _no_contraction(op: ir.Operation, lhs: Node, rhs: Node, contracted: int) -> None:
    if _is_matmul(lhs, rhs, contracted) and set(lhs.dims) - set(rhs.dims) and set(rhs.dims) - set(lhs.dims):
        raise error_at(
            op,
            f"a matmul takes fp16, fp8 or int8, not {lhs.element} x {rhs.element}; cast the operands",
        )


def _uncast(nodes: Mapping[ir.Value, Node], ops: list[ir.Operation], value: ir.Value) -> Node | None:
    """An input of the body, through casts that widen it."""
    producer = next((op for op in ops if op.results[0] == value), None)
    if producer is not None and producer.name in ("arith.extf", "arith.extsi"):
        value = producer.operands[0]
    node = nodes.get(value)
    return node if node is not None and node.value is not None else None


def _matmul(generic: Structured, lhs: Node, rhs: Node, contracted: int, element: str) -> Node:
    dims = sorted({dim for node in (lhs, rhs) for dim in node.dims if dim is not None})
    where = {dim: position for position, dim in enumerate(dims)}
    if lhs.value is None or rhs.value is None:
        raise CompileError("a matmul needs two tensors")
    result = device_op(
        PRODUCTS[lhs.element],
        [lhs.value, rhs.value],
        [tuple(None if dim is None else where[dim] for dim in node.dims) for node in (lhs, rhs)],
        [generic.extents[dim] for dim in dims],
        element,
        location=generic.op.location,
        reduced=[where[contracted]],
    )
    return Node(result, tuple(dim for dim in dims if dim != contracted))


def _is_matmul(lhs: Node, rhs: Node, contracted: int) -> bool:
    """Return whether both have the contracted dim and their contraction is more than a sum over rows."""
    if contracted not in lhs.dims or contracted not in rhs.dims:
        return False
    rows, columns = set(lhs.dims) - set(rhs.dims), set(rhs.dims) - set(lhs.dims)
    if rows and columns:
        return True
    # Matrix times vector: along the stick, product and sum of the device are enough.
    wide = rhs if columns else lhs
    return bool(rows or columns) and wide.dims[-1] != contracted
