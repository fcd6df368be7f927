# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The place of a fault inside of a pass: the operation of the program that the pass was at."""

from __future__ import annotations

import traceback
from collections.abc import Iterator

from spyre_mlir.diagnostics import error_at
from spyre_mlir.faults import FaultPlace
from spyre_mlir.mlir import ir


def fault_place(error: Exception, pass_name: str, module: ir.Operation) -> FaultPlace:
    """Return the place of an exception of a pass: the last operation that the innermost function of the pass names.

    Operations that contain all others, as functions, are a place where nothing else is.
    """
    operations: list[ir.Operation] = []
    module.walk(lambda op: operations.append(op.operation) or ir.WalkResult.ADVANCE)
    # What a variable still names may have been erased: only what the module has is asked for anything.
    named = (op for op in _named_operations(error) for known in operations if known == op)
    found = next((op for op in named if op.name not in ("builtin.module", "func.func")), module)
    place = error_at(found, "")
    kind = "" if found == module else found.name
    return FaultPlace(pass_name, kind, place.location, place.operation, place.module)


def _named_operations(error: Exception) -> Iterator[ir.Operation]:
    """Yield the operations that variables of the functions on the way to an exception are or hold, innermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in reversed(list(frame.f_locals.values())):
            held = getattr(value, "__dict__", {}).get("op", value)
            if isinstance(held, ir.OpView | ir.Operation):
                yield held.operation
