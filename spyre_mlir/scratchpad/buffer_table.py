# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables (CSV) of buffers to plan: a line with the column names, then one line per buffer.

    id,lower,upper,size,in_place_parent,uses
    query,0,3,4096,,0 2
    scores,2,5,4096,query,2 3 4

A buffer is live at the operations from ``lower`` to before ``upper``. ``size`` is in bytes. Optional columns, which may
also be empty in a line: ``alignment`` (bytes; must divide the memory's alignment), ``in_place_parent`` (names separated
by blanks), ``uses`` (operations separated by blanks, by default the first and the last one), ``copies`` (2 for
ping-pong), ``scope`` (the name of the memory, empty if there is only one), and the traffic fields of
``LifetimeBoundBuffer``: ``first_use_is_read`` (0 or 1), ``spilled_traffic``, ``placed_traffic``, ``traffic_of_uses``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer
from spyre_mlir.tables import TableRow, read_rows

_REQUIRED = ("id", "lower", "upper", "size")
_TRAFFIC = ("first_use_is_read", "spilled_traffic", "placed_traffic", "traffic_of_uses")
_COLUMNS = (*_REQUIRED, "alignment", "in_place_parent", "uses", "copies", "scope", *_TRAFFIC)


@dataclass(frozen=True)
class ScopedBuffer:
    """A buffer of the memory ``scope``; the scope is empty in a table of one memory."""

    scope: str
    buffer: LifetimeBoundBuffer


def read_buffers(
    text: str, path: str, alignment: int, limit: int, scopes: Collection[str]
) -> list[ScopedBuffer]:
    """Return the buffers of a table; raise ``CompileError`` with the place in the file ``path`` for an error.

    A table of more than ``limit`` buffers is refused, and no more lines are read. ``scopes`` are the names of the
    memories; the empty name is for a memory without a name.
    """
    too_many = f"The table has more than {limit} buffers, the most that this solver plans in reasonable time."
    rows = read_rows(text, path, _REQUIRED, _COLUMNS, limit, too_many)
    lines: dict[str, TableRow] = {}
    buffers = []
    for row in rows:
        buffer, scope = _buffer(row, alignment), row.cells.get("scope", "")
        if buffer.name in lines:
            raise row.error("id", f"Line {lines[buffer.name].line} has a buffer '{buffer.name}' already.")
        if scope not in scopes:
            if not scope:
                raise row.error("scope", f"The buffer has no scope; there are {', '.join(scopes)}.")
            raise row.error(
                "scope", f"The scope '{scope}' has no capacity; give it one by --capacity {scope}=BYTES."
            )
        lines[buffer.name] = row
        buffers.append(ScopedBuffer(scope, buffer))
    for row in rows:
        for name in row.names("in_place_parent"):
            if name not in lines:
                raise row.error("in_place_parent", f"There is no buffer '{name}'.")
            if lines[name].cells.get("scope") != row.cells.get("scope"):
                raise row.error("in_place_parent", f"The buffer '{name}' is in another scope.")
    return buffers


def offsets_table(names: Iterable[str], addresses: Mapping[str, int]) -> str:
    """Return a table of the columns id and offset (bytes), in the order of ``names``; no offset for spilled buffers."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("id", "offset"))
    writer.writerows((name, addresses.get(name, "")) for name in names)
    return table.getvalue()


def buffers_table(by_scope: Mapping[str, Sequence[LifetimeBoundBuffer]]) -> str:
    """Return a table for ``read_buffers``; if there are several memories, buffer names are prefixed with them."""
    table = io.StringIO()
    has_scopes = len(by_scope) > 1
    columns = (*_REQUIRED, "in_place_parent", "uses", "copies", *_TRAFFIC)
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow((*columns, "scope") if has_scopes else columns)
    for scope, buffers in by_scope.items():
        prefix = f"{scope}." if has_scopes else ""
        for buffer in buffers:
            cells = {
                "id": f"{prefix}{buffer.name}",
                "lower": buffer.uses[0],
                "upper": buffer.uses[-1] + 1,
                "size": buffer.size,
                "in_place_parent": " ".join(f"{prefix}{name}" for name in buffer.in_place_parents),
                "uses": " ".join(map(str, buffer.uses)),
                "copies": buffer.copies,
                "first_use_is_read": int(buffer.first_use_is_read),
                "spilled_traffic": buffer.spilled_traffic,
                "placed_traffic": buffer.placed_traffic,
                "traffic_of_uses": " ".join(map(str, buffer.traffic_of_uses or ())),
            }
            row = [cells[column] for column in columns]
            writer.writerow([*row, scope] if has_scopes else row)
    return table.getvalue()


def _buffer(row: TableRow, alignment: int) -> LifetimeBoundBuffer:
    """Return the buffer of a line; only the traffic fields that the line has are set."""
    if not row.cells["id"]:
        raise row.error("id", "The buffer has no name.")
    alignment_of_buffer = row.at_least_1("alignment", 1)
    if alignment % alignment_of_buffer:
        text = f"The alignment {alignment_of_buffer} does not divide the alignment {alignment} of the memory."
        raise row.error("alignment", text)
    size, lower, upper = row.at_least_1("size"), row.number("lower"), row.number("upper")
    if lower >= upper:
        raise row.error("upper", f"The buffer is never live: upper is {upper}, lower {lower}.")
    uses = row.numbers("uses") or sorted({lower, upper - 1})
    if uses != sorted(uses):
        raise row.error("uses", f"The uses {uses} do not rise.")
    if (uses[0], uses[-1]) != (lower, upper - 1):
        text = f"The uses must begin at {lower} and end at {upper - 1}, as the live range does."
        raise row.error("uses", text)
    fields: dict[str, Any] = {
        "in_place_parents": tuple(dict.fromkeys(row.names("in_place_parent"))),
        "copies": row.at_least_1("copies", 1),
    }
    if row.names("first_use_is_read"):
        is_read = row.number("first_use_is_read")
        if is_read not in (0, 1):
            raise row.error("first_use_is_read", f"The column 'first_use_is_read' has 0 or 1, not {is_read}.")
        fields["first_use_is_read"] = bool(is_read)
    for column in ("spilled_traffic", "placed_traffic"):
        if row.names(column):
            fields[column] = row.number(column)
            if fields[column] < 0:
                raise row.error(column, f"The column '{column}' has numbers from 0, not {fields[column]}.")
    if row.names("traffic_of_uses"):
        fields["traffic_of_uses"] = tuple(row.numbers("traffic_of_uses"))
    return LifetimeBoundBuffer(row.cells["id"], size, tuple(uses), **fields)
