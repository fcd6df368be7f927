"""Buffers to plan as a table (CSV): one per line, below a line with the names of the columns.

    id,lower,upper,size,in_place_parent,uses
    query,0,3,4096,,0 2
    scores,2,5,4096,query,2 3 4

A buffer is live at the operations from ``lower`` to before ``upper``. ``size`` is in bytes. Columns that may be left
out, whole or in a line: ``alignment`` (bytes; it must divide the one of the memory), ``in_place_parent`` (names
separated by blanks), ``uses`` (operations separated by blanks, the first and the last one if left out), ``copies``.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spyre_mlir.errors import CompileError
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer
from spyre_mlir.scratchpad.plan import MemoryPlan

_REQUIRED = ("id", "lower", "upper", "size")
_COLUMNS = (*_REQUIRED, "alignment", "in_place_parent", "uses", "copies")


def read_buffers(text: str, path: str, alignment: int) -> list[LifetimeBoundBuffer]:
    """The buffers of a table; ``CompileError`` with the place in the file at ``path`` for what is wrong."""
    rows = _rows(text, path)
    lines: dict[str, int] = {}
    found = []
    for row in rows:
        buffer = _buffer(row, alignment)
        if buffer.name in lines:
            raise row.error("id", f"Line {lines[buffer.name]} has a buffer '{buffer.name}' already.")
        lines[buffer.name] = row.line
        found.append(buffer)
    for row in rows:
        missing = next((name for name in row.names("in_place_parent") if name not in lines), None)
        if missing is not None:
            raise row.error("in_place_parent", f"There is no buffer '{missing}'.")
    return found


def offsets_table(buffers: Sequence[LifetimeBoundBuffer], plan: MemoryPlan) -> str:
    """A table of the columns id and offset (bytes), in the order of ``buffers``; no offset where spilled."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("id", "offset"))
    writer.writerows((buffer.name, plan.addresses.get(buffer.name, "")) for buffer in buffers)
    return table.getvalue()


@dataclass(frozen=True)
class _Row:
    """The cells of a line by column, and the text position where each begins."""

    path: str
    line: int
    cells: Mapping[str, str]
    positions: Mapping[str, int]

    def error(self, column: str, message: str) -> CompileError:
        return CompileError(message, f"{self.path}:{self.line}:{self.positions.get(column, 1)}")

    def names(self, column: str) -> list[str]:
        return self.cells.get(column, "").split()

    def numbers(self, column: str) -> list[int]:
        words = self.names(column)
        wrong = next((word for word in words if not re.fullmatch(r"-?[0-9]+", word)), None)
        if wrong is not None:
            raise self.error(column, f"The column '{column}' has whole numbers, not '{wrong}'.")
        return [int(word) for word in words]

    def number(self, column: str, default: int | None = None) -> int:
        numbers = self.numbers(column)
        if not numbers and default is not None:
            return default
        if len(numbers) != 1:
            raise self.error(column, f"The column '{column}' has one number per line.")
        return numbers[0]

    def at_least_1(self, column: str, default: int | None = None) -> int:
        number = self.number(column, default)
        if number < 1:
            raise self.error(column, f"The column '{column}' has numbers from 1, not {number}.")
        return number


def _rows(text: str, path: str) -> list[_Row]:
    lines = _lines(text, path)
    number, header = next(lines, (1, [""]))
    header = [name.strip() for name in header]
    first = _Row(path, number, {}, dict(zip(header, _positions(header), strict=True)))
    missing = [name for name in _REQUIRED if name not in header]
    if missing:
        raise first.error("", f"The first line has to name the columns; there is no '{missing[0]}'.")
    for at, name in enumerate(header):
        if name not in _COLUMNS:
            raise first.error(name, f"There is no column '{name}'; there are {', '.join(_COLUMNS)}.")
        if name in header[:at]:
            raise first.error(name, f"There are two columns '{name}'.")
    rows = []
    for number, cells in lines:
        if len(cells) != len(header):
            where = CompileError(
                f"The line has {len(cells)} cells for {len(header)} columns.", f"{path}:{number}:1"
            )
            raise where
        named = dict(zip(header, (cell.strip() for cell in cells), strict=True))
        rows.append(_Row(path, number, named, dict(zip(header, _positions(cells), strict=True))))
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


def _positions(cells: Sequence[str]) -> list[int]:
    """Where cells begin in their line, from 1; quotes do not count."""
    positions = [1]
    for cell in cells[:-1]:
        positions.append(positions[-1] + len(cell) + 1)
    return positions


def _buffer(row: _Row, alignment: int) -> LifetimeBoundBuffer:
    if not row.cells["id"]:
        raise row.error("id", "The buffer has no name.")
    own = row.at_least_1("alignment", 1)
    if alignment % own:
        raise row.error("alignment", f"The alignment {own} does not divide that of the memory, {alignment}.")
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
