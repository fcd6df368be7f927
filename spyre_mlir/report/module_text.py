# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The modules of a program as a table for the terminal: share of the time, time, traffic, number of operations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spyre_mlir.report.modules import ModuleRow, ModuleWork, module_rows, module_tree
from spyre_mlir.report.program_facts import Operation

#: Maximum number of rows of a table.
MOST_ROWS = 10

#: Maximum ratio of the longest to the shortest time of equal modules that are reported as one number.
_SAME = 1.05

_HEAD = ("", "share", "us", "us each", "HBM bytes", "operations")


def module_lines(operations: Iterable[Operation], most: int = MOST_ROWS) -> list[str]:
    """Return the lines of the table, with a header; no lines if no module is known.

    The rows contain each operation once. Modules are opened as long as the table has at most ``most`` rows.
    """
    root = module_tree(operations)
    if root is None:
        return []
    rows = module_rows(root, most)
    kept = sorted(rows, key=lambda row: -row.work.picoseconds)[: most - 1] if len(rows) > most else rows
    cells = [_HEAD, *(_cells(row, root.work) for row in rows if row in kept)]
    others = [row for row in rows if row not in kept]
    if others:
        cells.append(_rest(others, root.work))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [_line(row, widths) for row in cells]


def _cells(row: ModuleRow, whole: ModuleWork) -> tuple[str, ...]:
    label = f"{row.label}  x {row.times:,}" if row.times > 1 else row.label
    return _numbers(label, row.work, whole, _each(row) if row.times > 1 else "")


def _each(row: ModuleRow) -> str:
    """Format the time of one of equal modules; as a range if the times differ."""
    times = [work.picoseconds for work in row.work_of_each()]
    least, most = _microseconds(min(times)), _microseconds(max(times))
    mean = _microseconds(row.work.picoseconds / row.times)
    return mean if max(times) <= _SAME * min(times) or least == most else f"{least} .. {most}"


def _rest(rows: Sequence[ModuleRow], whole: ModuleWork) -> tuple[str, ...]:
    work = ModuleWork()
    for row in rows:
        work = work.plus(row.work)
    return _numbers(f"{len(rows):,} others", work, whole, "")


def _numbers(label: str, work: ModuleWork, whole: ModuleWork, apiece: str) -> tuple[str, ...]:
    time = _microseconds(work.picoseconds)
    return label, f"{work.share(whole):.0%}", time, apiece, f"{work.bytes:,}", f"{work.executes:,}"


def _microseconds(picoseconds: float) -> str:
    return f"{picoseconds / 1e6:,.1f}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    label, *numbers = cells
    others = (f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True))
    return "  ".join((f"{label:<{widths[0]}}", *others)).rstrip()
