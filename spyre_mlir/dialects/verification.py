# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of the verifiers of operations, which run on arbitrary generic form, before names or types are checked."""

from __future__ import annotations

from typing import Any

from spyre_mlir.mlir import ir


def required(op: ir.OpView | ir.Operation, is_met: object, message: str) -> bool:
    """Return whether a requirement is met; emit an error at the operation if it is not."""
    if not is_met:
        op.location.emit_error(message)
    return bool(is_met)


def attribute_of(op: ir.Operation, name: str) -> Any:
    """Return an attribute of any kind; None if the operation does not have it."""
    return op.attributes[name] if name in op.attributes else None


def copied_types(op: ir.OpView) -> tuple[ir.RankedTensorType, ir.RankedTensorType] | None:
    """Return the types of the only operand and the only result of a copy; None if their number or types differ.

    The declaration of the op rejects such operands and results, but only after ``verify_invariants``.
    """
    values = (*op.operands, *op.results)
    if (len(op.operands), len(op.results)) != (1, 1) or not all(
        isinstance(value.type, ir.RankedTensorType) for value in values
    ):
        return None
    source, result = (ir.RankedTensorType(value.type) for value in values)
    return source, result


def keeps_elements(op: ir.OpView, message: str) -> bool:
    """Require shape and element type of the operand for the result of a copy; the layout may change."""
    types = copied_types(op)
    if types is None:
        return True
    source, result = types
    is_kept = list(source.shape) == list(result.shape) and source.element_type == result.element_type
    return required(op, is_kept, message)
