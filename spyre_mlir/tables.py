# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tables: user-written CSV with a header line and one entry per line, and aligned columns of text for a terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass

#: The largest number in a table, below 2^60: sums of a few of them do not overflow 64 bits.
MAX_NUMBER = (1 << 60) - 1

_INTEGER = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?|[-+]?\.[0-9]+([eE][-+]?[0-9]{1,3})?")


@dataclass(frozen=True)
class TableRow:
    """One line of a table: ``cells`` by column without surrounding blanks, and ``raw``, the cells as written."""

    path: str
    line: int
    cells: Mapping[str, str]
    raw: Sequence[str]

    def error(self, column: str, message: str) -> CompileError:
        """Create an error at the cell of a column; quotes in earlier cells are not counted in the position."""
        index = list(self.cells).index(column) if column in self.cells else 0
        position = 1 + sum(len(cell) + 1 for cell in self.raw[:index])
        return CompileError(message, f"{self.path}:{self.line}:{position}")

    def names(self, column: str) -> list[str]:
        """Return the words of a cell."""
        return self.cells.get(column, "").split()

    def numbers(self, column: str) -> list[int]:
        """Return the integers in a cell; raise ``CompileError`` for other words."""
        words = self.names(column)
        wrong = next((word for word in words if not _INTEGER.fullmatch(word)), None)
        if wrong is not None:
            raise self.error(column, f"The column '{column}' has whole numbers, not {quoted(wrong)}.")
        # Check the length first: Python refuses to convert thousands of digits.
        large = next((word for word in words if len(word) > 40 or abs(int(word)) > MAX_NUMBER), None)
        if large is not None:
            raise self.error(
                column, f"The column '{column}' has numbers of less than 2^60, not {quoted(large)}."
            )
        return [int(word) for word in words]

    def number(self, column: str, default: int | None = None) -> int:
        """Return the only integer in a cell, or ``default`` if the cell is empty."""
        numbers = self.numbers(column)
        if not numbers and default is not None:
            return default
        if len(numbers) != 1:
            raise self.error(column, f"The column '{column}' has one number per line.")
        return numbers[0]

    def at_least_1(self, column: str, default: int | None = None) -> int:
        """Return the only integer in a cell, which must be at least 1."""
        number = self.number(column, default)
        if number < 1:
            raise self.error(column, f"The column '{column}' has numbers from 1, not {number}.")
        return number

    def decimal(self, column: str) -> float:
        """Return the only decimal number in a cell."""
        text = self.cells[column]
        if not _DECIMAL.fullmatch(text):
            raise self.error(column, f"The column '{column}' has a decimal number, not {quoted(text)}.")
        return float(text)


def read_rows(
    text: str, path: str, required: Sequence[str], columns: Sequence[str], limit: int, too_many: str
) -> list[TableRow]:
    """Read the rows of a table whose header names some of the ``columns``, all ``required`` ones among them.

    Raise ``CompileError`` for an invalid line, and with the text ``too_many`` for more than ``limit`` rows.
    """
    lines = _lines(text, path)
    number, header = _header(lines)
    first = TableRow(path, number, dict.fromkeys(header, ""), header)
    missing = [name for name in required if name not in header]
    if missing:
        raise first.error("", f"The first line has to name the columns; there is no '{missing[0]}'.")
    for column, name in enumerate(header):
        if name not in columns:
            raise first.error(name, f"There is no column '{name}'; there are {', '.join(columns)}.")
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
            raise first.error("", too_many)
        rows.append(TableRow(path, number, dict(zip(header, map(str.strip, cells), strict=True)), cells))
    return rows


def column_names(text: str, path: str) -> list[str]:
    """Return the names in the first line of a table."""
    return _header(_lines(text, path))[1]


def _header(lines: Iterator[tuple[int, list[str]]]) -> tuple[int, list[str]]:
    number, header = next(lines, (1, [""]))
    return number, [name.strip() for name in header]


def _lines(text: str, path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield number and cells of the lines that are not empty; a byte order mark of a spreadsheet is skipped."""
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise CompileError(f"The file is not valid CSV: {error}.", f"{path}:{reader.line_num}:1") from None


def quoted(word: str) -> str:
    return f"'{word}'" if len(word) <= 40 else f"'{word[:37]}...'"


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Format rows as lines: columns as wide as their widest cell, aligned left (<) or right (>) as ``sides`` says."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in rows
    )
    return [line.rstrip() for line in lines]
