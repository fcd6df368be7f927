# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A picture of the scratchpad of core 0, which holds all buffers, over time as SVG; ``lx_map`` has the data.

The x axis is time, in steps; the y axis is addresses. The same map gives the same text, byte for byte. Every buffer in
LX is one box, with its name as ``data-buffer`` and a tooltip; buffers that take one address in turn share an outline.
Curves below show the bytes in use.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from html import escape

from spyre_mlir.records import dataclass
from spyre_mlir.report.html import CHARACTER, MARGIN, Page, count, legend
from spyre_mlir.report.lx_map import CATEGORIES, LxMap, MapStep, PlacedBuffer, iterations_text

#: Pixels: a line of text, the labels of an axis, and sizes with which the picture fits a laptop's screen.
_LINE, _LABELS, _WIDTH, _MAP_HEIGHT, _CURVE_HEIGHT = 18, 72, 1070, 330, 96
#: Pixels: the backend's part, the omitted free part, the minimum height of a buffer, the left end of the plot.
_BACKEND, _BREAK, _LEAST, _LEFT = 22, 20, 2, MARGIN + _LABELS
#: If a map fills less than this part of the capacity, the free part above the highest buffer is omitted.
_LOW = 0.7
#: Maximum number of ticks of an axis, and minimum distance of two labels in pixels.
_TICKS, _APART = 6, 15

#: Fills by category: neighbours also differ in luminance, and dark text has a contrast of at least 7 on each fill.
FILLS: dict[str, str] = dict(
    zip(CATEGORIES, ("#dadaeb", "#fc9f83", "#9ecae1", "#85cc87", "#ffeda0"), strict=True)
)

#: The curves: CSS class, name, and the path of a sample.
_CURVES = (
    ("load", "load", "h 24 v -9 h -24 Z"),
    ("high", "high water", "m 0 -4 h 24"),
    ("fragmentation", "fragmentation (high water - load)", "m 0 -4 h 24"),
)

#: Text for a map without buffers.
NOTHING = "No buffer of this program is in LX."

_STYLE = """
.column { fill: #000000; fill-opacity: 0; }
.step:hover .column, .moment:hover .column { fill-opacity: 0.08; }
.edge { fill: none; stroke: #333333; stroke-width: 0.9; pointer-events: none; }
.shape:hover .edge { stroke-width: 2.4; }
.handover { stroke: #333333; stroke-width: 0.8; stroke-dasharray: 2 2; pointer-events: none; }
.inside { font-size: 11px; pointer-events: none; }
.axis { stroke: #595959; stroke-width: 1; fill: none; }
.tick { stroke: #d9d9d9; stroke-width: 0.8; }
.capacity { stroke: #a50f15; stroke-width: 1.6; }
.backend { fill: #e6e6e6; }
.break { fill: url(#hatch); }
.load { fill: #9ecae1; stroke: #2171b5; stroke-width: 1.2; }
.high { fill: none; stroke: #1a1a1a; stroke-width: 1.6; }
.fragmentation { fill: none; stroke: #a63603; stroke-width: 1.6; stroke-dasharray: 5 3; }
"""


def picture(map_: LxMap, name: str = "") -> str:
    """Return the picture of a map as the text of an SVG file; ``name`` is the name of the bundle, for the title."""
    page = Page(_STYLE)
    page.text(MARGIN, MARGIN, title_of(name), "heading")
    sentences = map_sentences(map_)
    for line, sentence in enumerate(sentences):
        page.text(MARGIN, MARGIN + (line + 1.2) * _LINE, sentence)
    bottom = MARGIN + (len(sentences) + 2.2) * _LINE
    x = legend(page, MARGIN, bottom, FILLS.items(), outlined=True)
    page.text(x, bottom, "Boxes in one outline have one address in turn; each overwrites the previous one.")
    depths = 1 + max((loop.depth for loop in map_.loops), default=-1)
    plot = _Plot(map_, bottom + 14 + depths * (_LINE + 2))
    for loop in map_.loops:
        # A bracket over the steps of each loop, the outermost on top.
        y = plot.top - 4 - (depths - 1 - loop.depth) * (_LINE + 2)
        begin, right, words = plot.x(loop.first), plot.x(loop.last + 1), f"{loop.count:,} times"
        tip = escape(f"steps {loop.first} to {loop.last} run {words}")
        page.add(f'<g class="loop"><title>{tip}</title>')
        page.add(f'<path class="axis" d="M {begin:.2f} {y:.2f} v -5 H {right:.2f} v 5"/>')
        if len(words) * CHARACTER + 8 <= right - begin:
            page.text((begin + right) / 2, y - 7, words, "label", "middle")
        page.add("</g>")
    _addresses(page, plot)
    bottom = _steps(page, plot)
    for chain in map_.chains:
        _chain(page, plot, chain)
    if not map_.chains:
        page.text(_LEFT + _WIDTH / 2, plot.bottom / 2 + plot.top / 2, NOTHING, "name", "middle")
    _curves(page, plot, bottom + 2.4 * _LINE)
    return page.svg(title_of(name), " ".join(sentences))


def title_of(name: str) -> str:
    """Return the title of the map of a bundle."""
    return f"LX map{f' of {name}' if name else ''}"


def map_sentences(map_: LxMap) -> tuple[str, str]:
    """Return the number of steps and buffers, and the traffic, as sentences."""
    placed, places = count(len(map_.placed), "buffer"), count(len(map_.chains), "place")
    return (
        f"{count(len(map_.steps), 'step')}. {placed} in LX, in {places}; {len(map_.spilled):,} spilled to device"
        f" memory. The highest ends at {map_.peak:,} of {map_.capacity:,} bytes per core.",
        f"A run moves {map_.argument_traffic + map_.spilled_traffic:,} bytes of device memory:"
        f" {map_.argument_traffic:,} of arguments and results, {map_.spilled_traffic:,} of spilled buffers.",
    )


def writer_text(map_: LxMap, writer: int | None) -> str:
    """Format the operation that writes a buffer, with its step."""
    return "never written" if writer is None else f"{map_.steps[writer].opcode} (step {writer})"


def runs_text(step: MapStep) -> str:
    """Return the number of runs of a step in loops as text."""
    nested = f", in {iterations_text(step.loops)} iterations" if len(step.loops) > 1 else ""
    return f"runs {count(step.runs, 'time')}{nested}"


# -- scales ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plot:
    """Mapping of steps (x) and addresses (y) to pixels; the backend's part is above them, not to scale."""

    map: LxMap
    top: float

    @property
    def column(self) -> float:
        """The width of a step in pixels."""
        return _WIDTH / max(len(self.map.steps), 1)

    @property
    def bottom(self) -> float:
        return self.top + _BACKEND + _MAP_HEIGHT

    @functools.cached_property
    def shown_bytes(self) -> int:
        """The highest address that is drawn to scale; beyond the capacity if a map is invalid."""
        if 0 < self.map.peak < _LOW * self.map.capacity:
            return _rounded(self.map.peak)
        return max(self.map.peak, self.map.capacity)

    @functools.cached_property
    def scale_top(self) -> float:
        """The pixel of the highest address that is drawn to scale."""
        return self.top + _BACKEND + (_BREAK if self.shown_bytes < self.map.capacity else 0)

    def x(self, step: float) -> float:
        return _LEFT + step * self.column

    def y(self, address: float) -> float:
        return self.bottom - address / max(self.shown_bytes, 1) * (self.bottom - self.scale_top)

    def extent(self, buffer: PlacedBuffer) -> tuple[float, float]:
        """Return top and height of a buffer; very small buffers are drawn with a minimum height."""
        height = max(self.y(buffer.address) - self.y(buffer.end), _LEAST)
        return self.y(buffer.address) - height, height


def _tick(end: int) -> int:
    """Return the bytes between ticks: a power of two."""
    tick = 128
    while end > _TICKS * tick:
        tick *= 2
    return tick


def _rounded(end: int) -> int:
    """Return the end of an axis for ``end`` bytes: a multiple of the tick."""
    return max(-(-end // _tick(end)), 1) * _tick(end)


def _tick_line(page: Page, y: float, bytes_: int) -> None:
    """Draw a line across the plot, with its bytes in the largest unit that they have."""
    _line(page, "tick", _LEFT, y, _LEFT + _WIDTH, y)
    units = (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
    unit, size = next(((unit, size) for unit, size in units if bytes_ >= size), ("B", 1))
    page.text(_LEFT - 8, y + 4, f"{bytes_ / size:g} {unit}", "label", "end")


def _line(page: Page, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    page.add(f'<path class="{kind}" d="M {x1:.2f} {y1:.2f} L {x2:.2f} {y2:.2f}"/>', max(x1, x2), max(y1, y2))


def _column(page: Page, x: float, y: float, width: float, height: float) -> None:
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    page.add(f'<rect class="column" {place}/>', x + width, y + height)


def _upright(page: Page, kind: str, x: float, y: float, text: str, anchor: str) -> None:
    """Draw vertical text, centred at (x, y) or ending there."""
    turned = f'transform="translate({x:.2f} {y:.2f}) rotate(-90)"'
    reach = len(text) * CHARACTER if anchor == "end" else 0
    page.add(f'<text class="{kind}" text-anchor="{anchor}" {turned}>{escape(text)}</text>', x, y + reach)


# -- the map ---------------------------------------------------------------------------------------------


def _addresses(page: Page, plot: _Plot) -> None:
    """Draw the axis of addresses, the capacity, the backend's part and the omitted part."""
    map_, ground, middle = plot.map, plot.top + _BACKEND, _LEFT + _WIDTH / 2
    page.rectangle("backend", _LEFT, plot.top, _WIDTH, _BACKEND)
    reserved = f"the backend keeps {map_.capacity:,} to {map_.lx_bytes:,} (not to scale)"
    page.text(middle, plot.top + 15, reserved, "label", "middle")
    capacity = plot.y(map_.capacity)
    if plot.scale_top > ground:
        capacity = ground
        page.rectangle("break", _LEFT, ground, _WIDTH, _BREAK)
        free = f"{plot.shown_bytes:,} to {map_.capacity:,}: free at all times (not to scale)"
        page.rectangle("box", middle - 210, ground + 2, 420, _BREAK - 4, "#ffffff")
        page.text(middle, ground + 14, free, "label", "middle")
    for address in range(0, plot.shown_bytes + 1, _tick(plot.shown_bytes)):
        if abs(plot.y(address) - capacity) > _APART:
            _tick_line(page, plot.y(address), address)
    page.text(_LEFT - 8, capacity + 4, "capacity", "label", "end")
    _line(page, "capacity", _LEFT, capacity, _LEFT + _WIDTH, capacity)
    _line(page, "axis", _LEFT, plot.top, _LEFT, plot.bottom)


def _steps(page: Page, plot: _Plot) -> float:
    """Draw columns with tooltips, and the step labels that have space; return the bottom of the labels."""
    steps = plot.map.steps
    names = [f"{step.position} {step.opcode}" for step in steps]
    longest = max(map(len, names), default=0) * CHARACTER
    upright = longest + 6 > plot.column
    every = -(-_APART // plot.column) if upright else 1
    for step, name in zip(steps, names, strict=True):
        lines = [f"step {step.position}: {step.opcode} on {count(step.cores, 'core')}"]
        lines += [runs_text(step)] if step.loops else []
        lines += [step.source] if step.source else []
        tip = escape("\n".join(lines))
        page.add(f'<g class="step" data-step="{step.position}"><title>{tip}</title>')
        x, middle = plot.x(step.position), plot.x(step.position + 0.5)
        _column(page, x, plot.top, plot.column, plot.bottom - plot.top)
        if step.position % every == 0 and upright:
            _upright(page, "label", middle + 4, plot.bottom + 6, name, "end")
        elif step.position % every == 0:
            page.text(middle, plot.bottom + 15, name, "label", "middle")
        page.add("</g>")
    _line(page, "axis", _LEFT, plot.bottom, _LEFT + _WIDTH, plot.bottom)
    return plot.bottom + (longest + 6 if upright else 15)


def _chain(page: Page, plot: _Plot, chain: Sequence[PlacedBuffer]) -> None:
    """Draw the buffers of one chain: a box for each, and an outline around all."""
    bottom = plot.y(chain[0].address)
    outline = f"M {plot.x(chain[0].first):.2f} {bottom:.2f}"
    page.add(f'<g class="shape" data-cores="{chain[0].cores}">')
    for number, buffer in enumerate(chain):
        parent = chain[number - 1] if number else None
        # The parent has the first half of the step in which the child takes the address, and the bytes after the child.
        first = plot.x(buffer.first + (0.5 if parent else 0))
        last = plot.x(buffer.last + 1)
        top, height = plot.extent(buffer)
        page.add(f'<g class="buffer" data-buffer="{escape(buffer.name)}">')
        page.add(f"<title>{escape(_buffer_text(plot.map, buffer, parent))}</title>")
        place = f'x="{first:.2f}" y="{top:.2f}" width="{last - first:.2f}" height="{height:.2f}"'
        writer = "other" if buffer.writer is None else plot.map.steps[buffer.writer].category
        page.add(f'<rect class="box" {place} fill="{FILLS[writer]}"/></g>', last, top + height)
        outline += f" V {top:.2f} H {last:.2f}"
    for number, buffer in enumerate(chain):
        first = plot.x(buffer.first + (0.5 if number else 0))
        last = plot.x(buffer.last + (0.5 if number + 1 < len(chain) else 1))
        top, height = plot.extent(buffer)
        if number and plot.column >= 6:
            _line(page, "handover", first, top, first, top + height)
        _label(page, plot.map, buffer, (first, top, last - first, height))
    page.add(f'<path class="edge" d="{outline} V {bottom:.2f} Z"/></g>')


def _label(page: Page, map_: LxMap, buffer: PlacedBuffer, place: tuple[float, float, float, float]) -> None:
    """Draw name and operation of a buffer if they have space: in two lines, in one, or vertically."""

    def fits(room: float, *texts: str) -> bool:
        return max(map(len, texts)) * CHARACTER + 6 <= room

    x, y, width, height = place
    opcode = "" if buffer.writer is None else map_.steps[buffer.writer].opcode
    middle = x + width / 2, y + height / 2 + 4
    if height >= 32 and fits(width, opcode, buffer.name):
        page.text(middle[0], middle[1] - 7, opcode, "inside", "middle")
        page.text(middle[0], middle[1] + 7, buffer.name, "inside", "middle")
        return
    texts = (f"{buffer.name} {opcode}", buffer.name, opcode)
    for text in texts:
        if height >= 14 and fits(width, text):
            page.text(*middle, text, "inside", "middle")
            return
    for text in texts:
        if width >= 14 and fits(height, text):
            _upright(page, "inside", middle[0] + 4, y + height / 2, text, "middle")
            return


def _buffer_text(map_: LxMap, buffer: PlacedBuffer, parent: PlacedBuffer | None) -> str:
    lines = [
        f"{buffer.name}: {writer_text(map_, buffer.writer)}",
        f"{buffer.bytes:,} bytes at {buffer.address:,} to {buffer.end:,}",
        f"live from step {buffer.first} to {buffer.last}, on {count(buffer.cores, 'core')}",
    ]
    lines += [f"in place of {parent.name}"] if parent else []
    if buffer.writer is not None and map_.steps[buffer.writer].source:
        lines.append(map_.steps[buffer.writer].source)
    return "\n".join(lines)


def _curves(page: Page, plot: _Plot, top: float) -> None:
    """Draw the curves of core 0 with an axis of bytes and a sample of each, and their numbers by step."""
    occupancy, bottom = plot.map.occupancy(0), top + _CURVE_HEIGHT
    end = _rounded(occupancy.peak)

    def y(bytes_: float) -> float:
        return bottom - bytes_ / end * _CURVE_HEIGHT

    def stairs(bytes_by_step: Sequence[int]) -> str:
        ends = ((y(bytes_), plot.x(step + 1)) for step, bytes_ in enumerate(bytes_by_step))
        return " ".join(f"V {y:.2f} H {x:.2f}" for y, x in ends)

    x = _LEFT
    page.text(x, top - 12, "Bytes in use over time:", "name")
    x += 180
    for kind, words, sample in _CURVES:
        page.add(f'<path class="{kind}" d="M {x:.2f} {top - 12:.2f} {sample}"/>')
        page.text(x + 30, top - 12, words)
        x += 30 + len(words) * CHARACTER + 22
    for bytes_ in range(0, end + 1, 2 * _tick(occupancy.peak)):
        _tick_line(page, y(bytes_), bytes_)
    _line(page, "axis", _LEFT, top, _LEFT, bottom)
    if not plot.map.steps:
        return
    page.add('<g class="occupancy" data-core="0">')
    loads = stairs(occupancy.load)[1:]
    page.add(f'<path class="load" d="M {_LEFT:.2f} {bottom:.2f} V{loads} V {bottom:.2f} Z"/>')
    for kind, curve in (("high", occupancy.high_water), ("fragmentation", occupancy.fragmentation)):
        page.add(f'<path class="{kind}" d="M {_LEFT:.2f} {stairs(curve)[1:]}"/>')
    moments = zip(plot.map.steps, occupancy.load, occupancy.high_water, occupancy.fragmentation, strict=True)
    for step, load, high_water, fragmentation in moments:
        tip = (
            f"step {step.position}: {step.opcode}\nload {load:,} bytes\nhigh water {high_water:,} bytes\n"
            f"fragmentation {fragmentation:,} bytes"
        )
        page.add(f'<g class="moment"><title>{escape(tip)}</title>')
        _column(page, plot.x(step.position), top, plot.column, _CURVE_HEIGHT)
        page.add("</g>")
    _, last = plot.map.core_groups()[0]
    cores = f"Cores 0 to {last}" if last else "Core 0"
    total = (
        f"{cores}: load at most {max(occupancy.load):,} bytes, high water {occupancy.peak:,} bytes,"
        f" fragmentation at most {max(occupancy.fragmentation):,} bytes"
    )
    page.text(_LEFT, bottom + _LINE, total)
    page.add("</g>")
