"""What the panels of a page are made of: tables, figures and numbers as texts. The page is XML too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from spyre_mlir.report.svg import CHARACTER, Page

#: A cell: a text, or a number that is written with separators and sorted by its value.
Cell = str | int | float

#: Below a table in a listing: shows more rows of a large one.
MORE = '<p><button type="button" class="more" hidden="hidden">Show more rows</button></p>'

#: Pixels across a panel, so that the page fits a screen that is 1280 pixels wide.
WIDTH = 1200


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its part of the width, whether it holds numbers, which are put to the right."""

    name: str
    percent: float
    is_number: bool = False


def table(identifier: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> str:
    """A table that the script of the page can sort by any column.

    Its columns have widths, for a browser measures every cell of a table without, which takes seconds of a large one.
    """
    widths = "".join(f'<col style="width:{column.percent:g}%"/>' for column in columns)
    heads = "".join(_head(column) for column in columns)
    return "\n".join(
        [
            f'<div class="scroll" tabindex="0"><table id="{identifier}">',
            f"<colgroup>{widths}</colgroup><thead><tr>{heads}</tr></thead><tbody>",
            *(f"<tr>{''.join(map(_cell, columns, row))}</tr>" for row in rows),
            "</tbody></table></div>",
        ]
    )


def _head(column: Column) -> str:
    return f'<th{_kind(column)} aria-sort="none"><button type="button">{escape(column.name)}</button></th>'


def _cell(column: Column, value: Cell) -> str:
    return f"<td{_kind(column)}>{escape(cell_text(value))}</td>"


def _kind(column: Column) -> str:
    return ' class="number"' if column.is_number else ""


def cell_text(value: Cell) -> str:
    """A number with separators, one that is no integer with three decimals."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def figure(page: Page, label: str, walk: bool = False) -> str:
    """What was drawn on a page, as a picture inside HTML; with ``walk`` arrow keys go from one item to the next."""
    width, height = round(page.right + 8), round(page.bottom + 8)
    reachable = ' class="walk" tabindex="0"' if walk else ""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img"'
    view = f'viewBox="0 0 {width} {height}" aria-label="{escape(label)}"'
    return "\n".join([f"{head} {view}{reachable}>", *page.elements, "</svg>"])


def legend(page: Page, x: float, y: float, fills: Iterable[tuple[str, str]]) -> float:
    """Boxes with what their colours mean, from ``x`` on; where the next text may begin."""
    for name, fill in fills:
        page.rectangle("sample", x, y - 11, 20, 14, fill)
        page.text(x + 26, y, name)
        x += 26 + len(name) * CHARACTER + 18
    return x


def fitting(text: str, room: float) -> str:
    """A text, cut where ``room`` pixels end."""
    characters = int(room / CHARACTER)
    return text if len(text) <= characters else text[: max(characters - 1, 0)] + "…"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def bytes_text(number: int) -> str:
    """Bytes in the unit that reads best, powers of 1024."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.4g} {unit}" if number / size < 1000 else f"{number / size:,.0f} {unit}"
    return f"{number} B"


def time_text(nanoseconds: float) -> str:
    """A time in microseconds."""
    return f"{nanoseconds / 1000:,.3f} µs" if nanoseconds < 100_000 else f"{nanoseconds / 1000:,.1f} µs"
