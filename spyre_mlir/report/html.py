# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of the panels of a page: tables, figures and numbers as texts. The page is XML too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import chain, repeat

from spyre_mlir.records import dataclass
from spyre_mlir.report.svg import CHARACTER, Page


@dataclass(frozen=True)
class Steps:
    """A cell with links to operations, the first few of ``positions``."""

    positions: tuple[int, ...]


#: A cell: a text, or a number that is written with separators and sorted by its value, or links.
Cell = str | int | float | Steps

#: Links in a cell.
_MOST_LINKS = 2

#: Above a table in a listing: shows the rows that have some words.
FILTER = '<label>Filter <input type="search"/></label> <span class="found"></span>'

#: Below a table in a listing: shows more rows of a large one.
MORE = '<p><button type="button" class="more" hidden="hidden">Show more rows</button></p>'

#: Pixels across a drawing, which scrolls in a window that is smaller.
WIDTH = 1200


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its part of the width, whether it holds numbers, which are put to the right.

    ``order`` is that of the rows as they come, in the words of ``aria-sort``.
    """

    name: str
    percent: float
    is_number: bool = False
    order: str = "none"


def table(
    identifier: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    anchors: Iterable[str] = (),
    width: int = 900,
) -> str:
    """A table that the script of the page can sort by any column; ``anchors`` name the rows that links find.

    Its columns have widths, for a browser measures every cell of a table without, which takes seconds of a large one.
    It is at least so many pixels wide; in a smaller window it scrolls.
    """
    widths = "".join(f'<col style="width:{column.percent:g}%"/>' for column in columns)
    heads = "".join(_head(column) for column in columns)
    # The style of a column, for a class in each of ten thousand cells makes a page large.
    numeric = " ".join(f"n{place}" for place, column in enumerate(columns, 1) if column.is_number)
    # Rows of a table without anchors have no identifier.
    named = zip(chain(anchors, repeat("")), rows)  # noqa: B905
    return "\n".join(
        [
            f'<div class="scroll" tabindex="0" role="region" aria-label="{_label(identifier)}">',
            f'<table id="{identifier}" class="{numeric}" style="min-width:{width}px">',
            f"<colgroup>{widths}</colgroup><thead><tr>{heads}</tr></thead><tbody>",
            *(f"<tr{_identifier(name)}>{''.join(map(_cell, row))}</tr>" for name, row in named),
            "</tbody></table></div>",
        ]
    )


def _label(identifier: str) -> str:
    """The name of a table for screen readers."""
    return f"{identifier.removesuffix('-table')}: arrow keys go from row to row"


def _identifier(name: str) -> str:
    return f' id="{name}"' if name else ""


def anchor(position: int) -> str:
    """The identifier of an operation in the page."""
    return f"op-{position}"


def _head(column: Column) -> str:
    button = f'<button type="button">{escape(column.name)}</button>'
    return f'<th scope="col"{_kind(column)} aria-sort="{column.order}">{button}</th>'


def _cell(value: Cell) -> str:
    inside = _links(value.positions) if isinstance(value, Steps) else escape(cell_text(value))
    return f"<td>{inside}</td>"


def _links(positions: Sequence[int]) -> str:
    shown = [f'<a href="#{anchor(position)}">{position}</a>' for position in positions[:_MOST_LINKS]]
    more = len(positions) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def _kind(column: Column) -> str:
    return ' class="number"' if column.is_number else ""


def cell_text(value: str | int | float) -> str:
    """A number with separators, one that is no integer with three decimals."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def figure(page: Page, label: str, walk: bool = False) -> str:
    """Return a drawn page as a picture inside HTML; with ``walk`` arrow keys go from one item to the next."""
    width, height = round(page.right + 8), round(page.bottom + 8)
    # The items of a group are there for screen readers, those of an image are not.
    reachable = 'role="group" class="walk" tabindex="0"' if walk else 'role="img"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {reachable}'
    view = f'viewBox="0 0 {width} {height}" aria-label="{escape(label)}"'
    picture = "\n".join([f"{head} {view}>", *page.elements, "</svg>"])
    # Where it scrolls, it does so by keys too.
    frame = "" if walk else f' tabindex="0" role="group" aria-label="{escape(label)}, scrolls"'
    return f'<div class="picture"{frame}>{picture}</div>'


def chart(identifier: str, label: str, cores: int, stretches: bool = False) -> str:
    """A picture that the script of the page draws, with the buttons that change what part of it is shown.

    One that ``stretches`` has a view in both directions. ``cores`` are those of the device.
    """
    across = (("in", "zoom in +"), ("out", "zoom out -"), ("left", "←"), ("right", "→"))
    upwards = (("taller", "stretch ]"), ("flatter", "shrink ["), ("up", "↑"), ("down", "↓"))
    buttons = (*across, *(upwards if stretches else ()), ("all", "all 0"))
    keys = "plus and minus zoom, arrows move, 0 shows all, N and P go from item to item, Enter opens the operation"
    return "\n".join(
        [
            f'<div class="chart" id="{identifier}"><noscript><p>Without its script the page does not draw this picture;'
            " the table of operations has the numbers.</p></noscript>",
            '<p class="tools scripted" hidden="hidden">',
            *(f'<button type="button" data-do="{do}">{escape(text)}</button>' for do, text in buttons),
            core_choice(cores),
            "</p>",
            f'<div class="picture"><svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}"'
            f' tabindex="0" role="application" aria-label="{escape(label)}: {keys}"></svg></div></div>',
        ]
    )


def core_choice(cores: int) -> str:
    """The choice of one of the cores of a device; all of a page show the same one."""
    slider = f'<input class="core" type="range" min="0" max="{cores - 1}" value="0"/>'
    return f'<label class="scripted" hidden="hidden">Core {slider}<output>0</output></label>'


def legend_line(fills: Iterable[tuple[str, str]]) -> str:
    """Boxes with what their colours mean, above a picture that the script draws."""
    samples = (f'<span><i style="background:{fill}"></i>{escape(name)}</span>' for name, fill in fills)
    return f'<p class="legend">{"".join(samples)}</p>'


def legend(page: Page, x: float, y: float, fills: Iterable[tuple[str, str]]) -> float:
    """Boxes with what their colours mean, from ``x`` on; where the next text may begin."""
    for name, fill in fills:
        page.rectangle("sample", x, y - 11, 20, 14, fill)
        page.text(x + 26, y, name)
        x += 26 + len(name) * CHARACTER + 18
    return x


def fitting(text: str, room: float) -> str:
    """A text, cut where ``room`` pixels end."""
    # By the width of a digit, since the fonts of browsers differ too little to matter.
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
