"""Buffers to plan as a table (CSV): one per line, below a line with the names of the columns.

    id,lower,upper,size,in_place_parent,uses
    query,0,3,4096,,0 2
    scores,2,5,4096,query,2 3 4

A buffer is live at the operations from ``lower`` to before ``upper``. ``size`` is in bytes. Columns that may be left
out, whole or in a line: ``alignment`` (bytes; it must divide the one of the memory), ``in_place_parent`` (names
separated by blanks), ``uses`` (operations separated by blanks, the first and the last one if left out), ``copies`` (2
for ping-pong), ``scope`` (the name of the memory, empty if there is one).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer
from spyre_mlir.tables import TableRow, read_rows

_REQUIRED = ("id", "lower", "upper", "size")
_COLUMNS = (*_REQUIRED, "alignment", "in_place_parent", "uses", "copies", "scope")


@dataclass(frozen=True, slots=True)
class ScopedBuffer:
    """A buffer of the memory ``scope``, which is empty in a table of one memory."""

    scope: str
    buffer: LifetimeBoundBuffer


def read_buffers(
    text: str, path: str, alignment: int, limit: int, scopes: Collection[str]
) -> list[ScopedBuffer]:
    """The buffers of a table; ``CompileError`` with the place in the file at ``path`` for what is wrong.

    ``limit`` is the number of buffers beyond which the table is refused; no more lines than that are read. ``scopes``
    are the names of the memories, the empty one for a memory without a name.
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
            raise row.error("scope", _unknown_scope(scope, scopes))
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
    """A table of the columns id and offset (bytes), in the order of ``names``; no offset where spilled."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("id", "offset"))
    writer.writerows((name, addresses.get(name, "")) for name in names)
    return table.getvalue()


def _unknown_scope(scope: str, scopes: Collection[str]) -> str:
    if not scope:
        return f"The buffer has no scope; there are {', '.join(scopes)}."
    return f"The scope '{scope}' has no capacity; give it one by --capacity {scope}=BYTES."


def _buffer(row: TableRow, alignment: int) -> LifetimeBoundBuffer:
    if not row.cells["id"]:
        raise row.error("id", "The buffer has no name.")
    alignment_of_buffer = row.at_least_1("alignment", 1)
    if alignment % alignment_of_buffer:
        raise row.error(
            "alignment",
            f"The alignment {alignment_of_buffer} does not divide that of the memory, {alignment}.",
        )
    return LifetimeBoundBuffer(
        row.cells["id"],
        row.at_least_1("size"),
        _uses(row),
        in_place_parents=tuple(dict.fromkeys(row.names("in_place_parent"))),
        copies=row.at_least_1("copies", 1),
    )


def _uses(row: TableRow) -> tuple[int, ...]:
    lower, upper = row.number("lower"), row.number("upper")
    if lower >= upper:
        raise row.error("upper", f"The buffer is never live: upper is {upper}, lower {lower}.")
    uses = row.numbers("uses") or sorted({lower, upper - 1})
    if uses != sorted(uses):
        raise row.error("uses", f"The uses {uses} do not rise.")
    if (uses[0], uses[-1]) != (lower, upper - 1):
        raise row.error(
            "uses", f"The uses are to begin at {lower} and to end at {upper - 1}, as the life does."
        )
    return tuple(uses)
