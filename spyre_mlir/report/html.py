# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of the panels of a page: tables, figures, formatted numbers, and SVG pictures. The page is also XML."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from html import escape
from importlib import resources
from itertools import chain, repeat
from typing import Any

from spyre_mlir.records import dataclass

#: Pixels: margin of the page, and width of a character (a little more than a digit).
MARGIN, CHARACTER = 32, 7.3

_STYLE = """
text { font: 12px 'DejaVu Sans', Verdana, Arial, sans-serif; fill: #1a1a1a; }
.heading { font-size: 17px; font-weight: bold; }
.name { font-weight: bold; }
.label { font-size: 11px; fill: #404040; }
.id { text-anchor: middle; }
.partly .id { paint-order: stroke; stroke: #ffffff; stroke-width: 3.5px; stroke-opacity: 0.9; }
.elsewhere .id { fill: #595959; }
.box { stroke: none; }
.outline { fill: none; stroke: #595959; stroke-width: 0.8; }
.lane { stroke: #595959; stroke-width: 0.4; }
.padding { fill: url(#hatch); }
.dot { fill: #767676; }
""".strip()

_HATCH = (
    '<pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#ffffff" fill-opacity="0.6"/>'
    '<path d="M 0 0 V 6" stroke="#4d4d4d" stroke-width="1.4"/></pattern>'
)


@dataclass
class Page:
    """Collects elements and their extent in pixels; ``style`` are CSS rules in addition to the rules of all pages."""

    style: str = ""
    elements: list[str] = field(default_factory=list)
    right: float = 0
    bottom: float = 0

    def add(self, element: str, right: float = 0, bottom: float = 0) -> None:
        """Append an element of SVG."""
        self.elements.append(element)
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)

    def text(self, x: float, y: float, text: str, kind: str = "label", anchor: str = "start") -> None:
        """Append a text."""
        width = len(text) * (10.5 if kind == "heading" else CHARACTER)
        reach = {"start": x + width, "middle": x + width / 2, "end": x}[anchor]
        placed = "" if anchor == "start" else f' text-anchor="{anchor}"'
        self.add(f'<text class="{kind}" x="{x:g}" y="{y:g}"{placed}>{escape(text)}</text>', reach, y)

    def rectangle(self, kind: str, x: float, y: float, width: float, height: float, fill: str = "") -> None:
        """Append a rectangle."""
        filled = f' fill="{fill}"' if fill else ""
        size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self.add(f'<rect class="{kind}" {size}{filled}/>', x + width, y + height)

    def dots(self, x: float, y: float, across: bool) -> None:
        """Append three dots, for omitted positions."""
        for step in (-5, 0, 5):
            position = (x + step, y) if across else (x, y + step)
            self.add(f'<circle class="dot" cx="{position[0]:g}" cy="{position[1]:g}" r="1.4"/>')

    def svg(self, title: str, description: str) -> str:
        """Return the page as an SVG document."""
        width, height = round(self.right + MARGIN), round(self.bottom + MARGIN)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title description">'
        )
        meta = [
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="description">{escape(description)}</desc>',
        ]
        base = [f"<style>{_STYLE}{self.style}</style>", f"<defs>{_HATCH}</defs>"]
        ground = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
        return "\n".join([head, *meta, *base, ground, *self.elements, "</svg>"]) + "\n"


@dataclass(frozen=True)
class LogPlot:
    """A plot with logarithmic axes: its pixels, and the powers of ten at the ends of both axes."""

    left: float
    top: float
    width: float
    height: float
    x_powers: tuple[float, float]
    y_powers: tuple[float, float]

    def x(self, number: float) -> float:
        """Return the pixel of a number on the x axis."""
        low, high = self.x_powers
        return self.left + self.width * (math.log10(number) - low) / (high - low)

    def y(self, number: float) -> float:
        """Return the pixel of a number on the y axis."""
        low, high = self.y_powers
        return self.top + self.height * (high - math.log10(number)) / (high - low)

    def draw(
        self,
        page: Page,
        x_ticks: Iterable[float],
        y_ticks: Iterable[float],
        names: tuple[str, str],
        beyond: float = 0,
    ) -> None:
        """Draw the axes with their ``names``, and a line at each tick; lines across reach ``beyond`` the plot."""
        right, bottom = self.left + self.width, self.top + self.height
        for number in x_ticks:
            page.add(f'<path class="tick" d="M {self.x(number):.2f} {self.top:g} V {bottom:g}"/>')
            page.text(self.x(number), bottom + 16, f"{number:,g}", anchor="middle")
        for number in y_ticks:
            page.add(f'<path class="tick" d="M {self.left:g} {self.y(number):.2f} H {right + beyond:g}"/>')
            page.text(self.left - 8, self.y(number) + 4, f"{number:,g}", anchor="end")
        page.add(
            f'<path class="axis" d="M {self.left:g} {self.top:g} V {bottom:g} H {right:g}"/>', right, bottom
        )
        page.text(self.left + self.width / 2, bottom + 36, names[0], "name", "middle")
        turned = f'transform="translate({self.left - 70:g} {self.top + self.height / 2:g}) rotate(-90)"'
        page.add(f'<text class="name" text-anchor="middle" {turned}>{escape(names[1])}</text>')


@dataclass(frozen=True)
class Steps:
    """A cell with links to operations: the first few of ``positions`` by number, or one operation by its ``text``."""

    positions: tuple[int, ...]
    text: str = ""


#: A cell: a text, a number (written with separators, sorted by value), or links.
Cell = str | int | float | Steps

#: Maximum number of links in a cell.
_MOST_LINKS = 2

#: Width of a drawing in pixels; it scrolls in a narrower window.
WIDTH = 1200


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, its part of the width, its cell of an item, and whether cells are numbers.

    Numbers are aligned right. ``order`` is the initial order of the rows, as a value of ``aria-sort``.
    """

    name: str
    percent: float
    cell: Callable[[Any], Cell]
    is_number: bool = False
    order: str = "none"


def resource(name: str) -> str:
    """Return the text of a style or a script of the pages."""
    return resources.files("spyre_mlir.report").joinpath(name).read_text(encoding="utf-8")


def shell(title: str, parts: Iterable[str]) -> str:
    """Return a page that loads nothing from elsewhere, of lines of HTML."""
    lines = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"/><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<style>{resource('page.css')}</style></head><body>",
        *parts,
        "</body></html>",
    ]
    return "\n".join(lines) + "\n"


class Markup(str):
    """A cell of a table that is HTML; all other cells are texts."""


def table(identifier: str, heads: Sequence[str], rows: Iterable[Sequence[str]], sides: str) -> str:
    """Return a table; the columns are aligned left (<) or right (>) as ``sides`` says, as in ``tables.aligned``."""

    def line(tag: str, cells: Sequence[str]) -> str:
        """Return a row of cells."""
        number = f'<{tag} class="number">'
        return "".join(
            f"{number if side == '>' else f'<{tag}>'}{cell if isinstance(cell, Markup) else escape(cell)}</{tag}>"
            for cell, side in zip(cells, sides, strict=True)
        )

    head = f"<thead><tr>{line('th', heads)}</tr></thead>" if any(heads) else ""
    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f'<div class="wide"><table id="{identifier}">{head}<tbody>{body}</tbody></table></div>'


def listing(
    identifier: str,
    columns: Sequence[Column],
    items: Iterable[Any],
    anchors: Iterable[str] = (),
    width: int = 900,
    chooser: str = "",
) -> str:
    """Return a table that the script of the page can sort by any column, and filter by words.

    The columns have widths, because otherwise a browser measures every cell, which takes seconds for a large table.
    The table is at least ``width`` pixels wide; it scrolls in a narrower window.

    Args:
        identifier: Identifier of the table, which names it for screen readers.
        columns: The columns.
        items: What the rows are about.
        anchors: Targets of links, by row.
        width: Least width in pixels.
        chooser: HTML of another filter.
    """
    widths = "".join(f'<col style="width:{column.percent:g}%"/>' for column in columns)
    heads = ""
    for column in columns:
        kind = ' class="number"' if column.is_number else ""
        button = f'<button type="button">{escape(column.name)}</button>'
        heads += f'<th scope="col"{kind} aria-sort="{column.order}">{button}</th>'
    # Style whole columns, because a class in each of ten thousand cells makes a page large.
    numeric = " ".join(f"n{place}" for place, column in enumerate(columns, 1) if column.is_number)
    label = f"{identifier.removesuffix('-table')}: arrow keys go from row to row"
    lines = [
        '<div class="listing">',
        f'<p class="scripted" hidden="hidden">{chooser}<label>Filter <input type="search"/></label>'
        ' <span class="found"></span></p>',
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">',
        f'<table id="{identifier}" class="{numeric}" style="min-width:{width}px">',
        f"<colgroup>{widths}</colgroup><thead><tr>{heads}</tr></thead><tbody>",
    ]
    # Rows of a table without anchors have no identifier.
    for name, item in zip(chain(anchors, repeat("")), items):  # noqa: B905
        named = f' id="{name}"' if name else ""
        lines.append(f"<tr{named}>{''.join(_cell(column.cell(item)) for column in columns)}</tr>")
    more = '<p><button type="button" class="more" hidden="hidden">Show more rows</button></p>'
    return "\n".join([*lines, "</tbody></table></div>", more, "</div>"])


def anchor(position: int) -> str:
    """Return the identifier of an operation in the page."""
    return f"op-{position}"


def _cell(value: Cell) -> str:
    """Return a cell; a number has separators, a float three decimals."""
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    if not isinstance(value, Steps):
        return f"<td>{value:,}</td>" if isinstance(value, int) else f"<td>{value:,.3f}</td>"
    # A name of several words may go on in the next line after an underscore.
    text = escape(value.text).replace("_", Markup("_<wbr/>"))
    links = ", ".join(
        f'<a href="#{anchor(position)}">{text or position}</a>' for position in value.positions[:_MOST_LINKS]
    )
    more = len(value.positions) - _MOST_LINKS
    return f"<td>{links}{f' and {more:,} more' if more > 0 else ''}</td>"


def figure(page: Page, label: str, walk: bool = False) -> str:
    """Return a drawn page as a picture in HTML; with ``walk`` the arrow keys move from one item to the next."""
    width, height = round(page.right + 8), round(page.bottom + 8)
    # Screen readers see the items of a group, but not the items of an image.
    reachable = 'role="group" class="walk" tabindex="0"' if walk else 'role="img"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {reachable}'
    view = f'viewBox="0 0 {width} {height}" aria-label="{escape(label)}"'
    picture = "\n".join([f"{head} {view}>", *page.elements, "</svg>"])
    # A picture that scrolls can also scroll by keys.
    frame = "" if walk else f' tabindex="0" role="group" aria-label="{escape(label)}, scrolls"'
    return f'<div class="picture"{frame}>{picture}</div>'


def chart(identifier: str, label: str, cores: int, stretches: bool = False) -> str:
    """Return a picture that the script of the page draws, with buttons that change the displayed part.

    With ``stretches``, the view can change in both directions. ``cores`` is the number of cores of the device.
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
    """Return a slider that chooses a core of the device; all sliders of a page show the same core."""
    slider = f'<input class="core" type="range" min="0" max="{cores - 1}" value="0"/>'
    return f'<label class="scripted" hidden="hidden">Core {slider}<output>0</output></label>'


def legend_line(fills: Iterable[tuple[str, str]]) -> str:
    """Return a legend of colours, for above a picture that the script draws."""
    samples = (f'<span><i style="background:{fill}"></i>{escape(name)}</span>' for name, fill in fills)
    return f'<p class="legend">{"".join(samples)}</p>'


def legend(page: Page, x: float, y: float, fills: Iterable[tuple[str, str]], outlined: bool = False) -> float:
    """Draw a legend of colours from ``x`` on; return the x position at which the next text may begin."""
    for name, fill in fills:
        page.rectangle("box" if outlined else "sample", x, y - 11, 20, 14, fill)
        if outlined:
            page.rectangle("outline", x, y - 11, 20, 14)
        page.text(x + 26, y, name)
        x += 26 + len(name) * CHARACTER + 18
    return x


def fitting(text: str, room: float) -> str:
    """Cut a text to ``room`` pixels."""
    # The width of a digit is precise enough, because the fonts of browsers differ little.
    characters = int(room / CHARACTER)
    return text if len(text) <= characters else text[: max(characters - 1, 0)] + "…"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def bytes_text(number: int) -> str:
    """Format bytes in the most readable unit, a power of 1024."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size:
            return f"{number / size:.4g} {unit}" if number / size < 1000 else f"{number / size:,.0f} {unit}"
    return f"{number} B"


def time_text(nanoseconds: float) -> str:
    """Format a time in microseconds."""
    return f"{nanoseconds / 1000:,.3f} µs" if nanoseconds < 100_000 else f"{nanoseconds / 1000:,.1f} µs"
