# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A picture of measured over predicted times as SVG, both axes logarithmic.

The same points give the same text, byte for byte. Each point has its numbers as a tooltip. On the diagonal both times
are equal; on the dashed lines they differ by a factor of two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from spyre_mlir.report.svg import CHARACTER, MARGIN, Page

#: Pixels: the side of the plot, the space for the labels of its axes, a line of the legend.
_SIDE, _LABELS, _LINE = 520, 64, 18

#: Fill and shape of a series; the second shape follows after six colours.
_FILLS = ("#2171b5", "#d94801", "#238b45", "#6a51a3", "#a50f15", "#737373")
_SHAPES = ("M -4 0 a 4 4 0 1 0 8 0 a 4 4 0 1 0 -8 0 Z", "M -4 -4 H 4 V 4 H -4 Z", "M 0 -5 L 5 4 H -5 Z")

_STYLE = """
.axis { stroke: #595959; stroke-width: 1; fill: none; }
.tick { stroke: #e0e0e0; stroke-width: 0.8; }
.equal { stroke: #1a1a1a; stroke-width: 1.4; }
.twice { stroke: #595959; stroke-width: 1; stroke-dasharray: 5 4; }
.point { stroke: #ffffff; stroke-width: 0.7; fill-opacity: 0.85; }
.point:hover { stroke: #000000; stroke-width: 2.4; }
"""

#: Series, name, predicted and measured time (us).
Point = tuple[str, str, float, float]


def picture(name: str, points: Sequence[Point], quality: str) -> str:
    """Return the picture of the points of the table ``name``, with the line ``quality`` about the fit."""
    page = Page(_STYLE)
    title = f"Measured over predicted time of {name}"
    page.text(MARGIN, MARGIN, title, "heading")
    page.text(MARGIN, MARGIN + 1.4 * _LINE, quality)
    plot = _LogLogPlot(points)
    _axes(page, plot)
    series = list(dict.fromkeys(point[0] for point in points))
    for kind, text, predicted, measured in points:
        tooltip = f"{text}: measured {measured:.5g} us, predicted {predicted:.5g} us"
        _point(page, series.index(kind), plot.x(predicted), plot.y(measured), tooltip)
    for number, kind in enumerate(series):
        x, y = plot.left + _SIDE + MARGIN, plot.top + 12 + number * _LINE
        _point(page, number, x, y - 4, kind)
        page.text(x + 12, y, kind)
    return page.svg(title, quality)


class _LogLogPlot:
    """Mapping of times to pixels: both axes span the same times, so equal times are on the diagonal."""

    def __init__(self, points: Sequence[Point]) -> None:
        times = [time for point in points for time in point[2:]]
        # A little space around the points, also around a single point.
        self.low, self.high = math.log10(min(times)) - 0.1, math.log10(max(times)) + 0.1
        self.left, self.top = MARGIN + _LABELS, MARGIN + 2.6 * _LINE

    @property
    def bottom(self) -> float:
        return self.top + _SIDE

    def x(self, time: float) -> float:
        """Return the pixel of a predicted time."""
        return self.left + _SIDE * (math.log10(time) - self.low) / (self.high - self.low)

    def y(self, time: float) -> float:
        """Return the pixel of a measured time."""
        return self.bottom - _SIDE * (math.log10(time) - self.low) / (self.high - self.low)

    def ticks(self) -> Iterator[float]:
        """Yield the times 1, 2 and 5 of each power of ten in range."""
        for power in range(math.floor(self.low), math.ceil(self.high)):
            for time in (digit * 10.0**power for digit in (1, 2, 5)):
                if self.low <= math.log10(time) <= self.high:
                    yield time


def _axes(page: Page, plot: _LogLogPlot) -> None:
    left, top, right, bottom = plot.left, plot.top, plot.left + _SIDE, plot.bottom
    for time in plot.ticks():
        x, y = plot.x(time), plot.y(time)
        _line(page, "tick", x, top, x, bottom)
        _line(page, "tick", left, y, right, y)
        page.text(x, bottom + _LINE, f"{time:g}", anchor="middle")
        page.text(left - 6, y + 4, f"{time:g}", anchor="end")
    _line(page, "equal", left, bottom, right, top)
    # A factor of two moves the diagonal by this much.
    step = _SIDE * math.log10(2) / (plot.high - plot.low)
    if step < _SIDE:
        _line(page, "twice", left + step, bottom, right, top + step)
        _line(page, "twice", left, bottom - step, right - step, top)
    page.add(f'<path class="axis" d="M {left:g} {top:g} V {bottom:g} H {right:g}"/>', right, bottom)
    page.text(left + _SIDE / 2, bottom + 2.2 * _LINE, "predicted (us)", "name", "middle")
    x, y = MARGIN + 6, top + _SIDE / 2
    page.add(
        f'<text class="name" x="{x:g}" y="{y:g}" text-anchor="middle" transform="rotate(-90 {x:g} {y:g})">'
        "measured (us)</text>"
    )
    label = "predicted twice as long"
    # Below the end of its line, which falls by as much as the text is wide.
    page.text(right - 6, top + step + len(label) * CHARACTER + 16, label, anchor="end")


def _line(page: Page, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    page.add(f'<line class="{kind}" x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>')


def _point(page: Page, number: int, x: float, y: float, tooltip: str) -> None:
    fill, shape = _FILLS[number % len(_FILLS)], _SHAPES[number // len(_FILLS) % len(_SHAPES)]
    page.add(
        f'<path class="point" transform="translate({x:.2f} {y:.2f})" d="{shape}" fill="{fill}">'
        f"<title>{escape(tooltip)}</title></path>",
        x + CHARACTER,
        y + CHARACTER,
    )
