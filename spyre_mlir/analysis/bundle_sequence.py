# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bundle numbers: the bundle of a sequence to which an operation is assigned."""

from __future__ import annotations

from spyre_mlir.analysis.loops import LOOP
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir


def bundle_number(op: ir.Operation) -> int | None:
    """Return the number that ``cut-bundles`` assigned to an operation, or to the loop around it; None without one."""
    # A loop nest runs within one bundle, so its outermost loop has the number.
    while op.parent is not None and op.parent.operation.name == LOOP:
        op = op.parent.operation
    if sdsc.BUNDLE not in op.attributes:
        return None
    number = op.attributes[sdsc.BUNDLE]
    if not isinstance(number, ir.IntegerAttr):
        raise error_at(op, f"'{sdsc.BUNDLE}' must be an integer")
    return number.value


def put_in_bundle(op: ir.Operation, number: int) -> None:
    """Set the bundle number of an operation or a loop of a function."""
    op.attributes[sdsc.BUNDLE] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64, op.context), number)


def put_beside(op: ir.Operation, other: ir.Operation) -> None:
    """Put a new operation ``op`` into the bundle of ``other``, if ``other`` has a bundle number."""
    number = bundle_number(other)
    if number is not None:
        put_in_bundle(op, number)
