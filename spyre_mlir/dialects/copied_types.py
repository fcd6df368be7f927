# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands and results of the operations that copy one tensor, for their verifiers."""

from __future__ import annotations

from spyre_mlir.mlir import ir


def copied_types(op: ir.OpView) -> tuple[ir.RankedTensorType, ir.RankedTensorType] | None:
    """Return the types of the one operand and the one result of a copy; None if it has others.

    Those are refused by the declaration of the op, but only after ``verify_invariants``.
    """
    values = (*op.operands, *op.results)
    if (len(op.operands), len(op.results)) != (1, 1) or not all(
        isinstance(value.type, ir.RankedTensorType) for value in values
    ):
        return None
    source, result = (ir.RankedTensorType(value.type) for value in values)
    return source, result
