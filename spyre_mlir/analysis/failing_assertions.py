# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Assertions of a program (``cf.assert``), which the host checks before a call returns or changes anything."""

from __future__ import annotations

from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.errors import ALWAYS_FAILS, FailedAssertionError
from spyre_mlir.mlir import ir, location_of

ASSERT = "cf.assert"


def check_assertion(op: ir.Operation) -> None:
    """Raise ``FailedAssertionError`` with the text of an assertion if its condition is the constant false."""
    condition = defining_op(op.operands[0])
    if condition is None or condition.name != "arith.constant":
        return
    if not ir.IntegerAttr(condition.attributes["value"]).value:
        text = ir.StringAttr(op.attributes["msg"]).value
        raise FailedAssertionError(f"{ALWAYS_FAILS}: {text.rstrip('.')}.", location_of(op.location))
