# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The debug handle and the origin of an operation: source line, ATen op and module, from the location it carries."""

from __future__ import annotations

from spyre_mlir.bundle.model import DebugHandle, Origin
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir, location_of, source_note


def origin_of(location: ir.Location) -> Origin:
    """Return the origin that a location carries."""
    # From the right: a path may contain colons.
    place = location_of(location).rsplit(":", 2)
    file, line, column = (place[0], int(place[1]), int(place[2])) if len(place) == 3 else ("", 0, 0)
    return Origin(file, line, column, source_note(location, "aten"), source_note(location, "module"))


def debug_handle(op: ir.Operation, opcode: str) -> DebugHandle:
    """Return the debug handle that the bundle records for the origin of an operation."""
    origin = origin_of(op.location)
    place = (origin.file, str(origin.line), str(origin.column)) if origin.file else ()
    chain = (note for note in (origin.module, origin.aten_op) if note)
    return DebugHandle(
        id=":".join((*place, opcode)),
        file=origin.file or None,
        line=origin.line,
        column=origin.column,
        aten_op=origin.aten_op or None,
        ir_chain=(*chain, op.name, opcode),
        transforms=sdsc.history_of(op),
    )
