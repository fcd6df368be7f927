"""The debug handle of an operation: its source line, ATen op and module, from the location it carries."""

from __future__ import annotations

from spyre_mlir.bundle.model import DebugHandle
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir, location_of


def debug_handle(op: ir.Operation, opcode: str) -> DebugHandle:
    """Return the debug handle that the bundle records for the origin of an operation."""
    # From the right: a path may contain colons.
    place = location_of(op.location).rsplit(":", 2)
    facts = _metadata(op.location)
    file, line, column = (place[0], int(place[1]), int(place[2])) if len(place) == 3 else (None, 0, 0)
    chain = [facts[key] for key in ("module", "aten") if key in facts]
    return DebugHandle(
        id=":".join((*place, opcode)) if file else opcode,
        file=file,
        line=line,
        column=column,
        aten_op=facts.get("aten"),
        ir_chain=(*chain, op.name, opcode),
        transforms=sdsc.history_of(op),
    )


def _metadata(location: ir.Location) -> dict[str, str]:
    """Return the strings of the first metadata dictionary in a location tree."""
    if isinstance(location, ir.FusedLoc):
        if location.metadata is not None:
            # The bindings give metadata by its base class.
            entries = [(entry.name, entry.attr) for entry in ir.DictAttr(location.metadata)]
            return {name: attr.value for name, attr in entries if isinstance(attr, ir.StringAttr)}
        return next((metadata for part in location.locations if (metadata := _metadata(part))), {})
    if isinstance(location, ir.CallSiteLoc):
        return _metadata(location.callee) or _metadata(location.caller)
    return _metadata(location.child_loc) if isinstance(location, ir.NameLoc) else {}
