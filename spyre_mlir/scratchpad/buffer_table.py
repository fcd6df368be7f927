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
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spyre_mlir.errors import CompileError
from spyre_mlir.scratchpad.buffers import LIMIT, LifetimeBoundBuffer

_REQUIRED = ("id", "lower", "upper", "size")
_COLUMNS = (*_REQUIRED, "alignment", "in_place_parent", "uses", "copies", "scope")
_INTEGER = re.compile(r"-?[0-9]+")


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
    rows = _rows(text, path, limit)
    lines: dict[str, _Row] = {}
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


@dataclass(frozen=True, slots=True)
class _Row:
    """The cells of a line, stripped by column and as they stand there."""

    path: str
    line: int
    cells: Mapping[str, str]
    raw: Sequence[str]

    def error(self, column: str, message: str) -> CompileError:
        """An error about a column; quotes do not count in the place where its cell begins."""
        index = list(self.cells).index(column) if column in self.cells else 0
        position = 1 + sum(len(cell) + 1 for cell in self.raw[:index])
        return CompileError(message, f"{self.path}:{self.line}:{position}")

    def names(self, column: str) -> list[str]:
        """Return the words of a cell."""
        return self.cells.get(column, "").split()

    def numbers(self, column: str) -> list[int]:
        """Return the whole numbers of a cell; ``CompileError`` for other words."""
        words = self.names(column)
        wrong = next((word for word in words if not _INTEGER.fullmatch(word)), None)
        if wrong is not None:
            raise self.error(column, f"The column '{column}' has whole numbers, not {_quoted(wrong)}.")
        # The length first: Python refuses to convert thousands of digits.
        large = next((word for word in words if len(word) > 40 or abs(int(word)) >= LIMIT), None)
        if large is not None:
            raise self.error(
                column, f"The column '{column}' has numbers of less than 2^60, not {_quoted(large)}."
            )
        return [int(word) for word in words]

    def number(self, column: str, default: int | None = None) -> int:
        """Return the one number of a cell, ``default`` if it is empty."""
        numbers = self.numbers(column)
        if not numbers and default is not None:
            return default
        if len(numbers) != 1:
            raise self.error(column, f"The column '{column}' has one number per line.")
        return numbers[0]

    def at_least_1(self, column: str, default: int | None = None) -> int:
        """Return the one number of a cell, from 1 on."""
        number = self.number(column, default)
        if number < 1:
            raise self.error(column, f"The column '{column}' has numbers from 1, not {number}.")
        return number


def _rows(text: str, path: str, limit: int) -> list[_Row]:
    lines = _lines(text, path)
    number, header = next(lines, (1, [""]))
    header = [name.strip() for name in header]
    first = _Row(path, number, dict.fromkeys(header, ""), header)
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        raise first.error("", f"The first line has to name the columns; there is no '{missing[0]}'.")
    for column, name in enumerate(header):
        if name not in _COLUMNS:
            raise first.error(name, f"There is no column '{name}'; there are {', '.join(_COLUMNS)}.")
        if name in header[:column]:
            raise first.error(name, f"There are two columns '{name}'.")
    rows = []
    for number, cells in lines:
        if len(cells) != len(header):
            where = CompileError(
                f"The line has {len(cells)} cells for {len(header)} columns.", f"{path}:{number}:1"
            )
            raise where
        if len(rows) == limit:
            raise first.error(
                "",
                f"The table has more than {limit} buffers, the most that this solver plans in reasonable time.",
            )
        rows.append(_Row(path, number, dict(zip(header, map(str.strip, cells), strict=True)), cells))
    return rows


def _lines(text: str, path: str) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of the lines that are not empty; files of spreadsheets begin with a mark."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise CompileError(f"The file is not valid CSV: {error}.", f"{path}:{reader.line_num}:1") from None


def _quoted(word: str) -> str:
    return f"'{word}'" if len(word) <= 40 else f"'{word[:37]}...'"


def _buffer(row: _Row, alignment: int) -> LifetimeBoundBuffer:
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


def _uses(row: _Row) -> tuple[int, ...]:
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
