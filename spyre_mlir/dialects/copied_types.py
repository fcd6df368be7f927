# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Types of the operand and the result of operations that copy one tensor, for their verifiers."""

from __future__ import annotations

from spyre_mlir.mlir import ir


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
