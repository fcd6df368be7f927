# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A picture of the scratchpads over time, as SVG.

The x axis is time, in steps; the y axis is addresses. The same map gives the same text, byte for byte. Every buffer in
LX is one box, with its name as ``data-buffer`` and a tooltip; buffers that take one address in turn share an outline.
Curves below show the bytes in use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from html import escape

from spyre_mlir.records import dataclass
from spyre_mlir.report.lx_map import CATEGORIES, LxMap, MapStep, Occupancy, PlacedBuffer, iterations_text
from spyre_mlir.report.svg import CHARACTER, MARGIN, Page

#: Pixels: a line of text, the labels of an axis, and sizes with which the picture fits a laptop's screen.
_LINE, _LABELS, _WIDTH, _MAP_HEIGHT, _CURVE_HEIGHT = 18, 72, 1070, 330, 96
#: Pixels: the backend's part, the omitted free part, the minimum height of a buffer.
_BACKEND, _BREAK, _LEAST = 22, 20, 2
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

_Words = Callable[[int], str]


def picture(map_: LxMap, name: str = "", every_core: bool = False) -> str:
    """Return the picture of a map as the text of an SVG file.

    The picture shows core 0, which holds all buffers; with ``every_core`` it also has the curves of the other cores,
    which are not displayed. ``name`` is the name of the bundle, for the title.
    """
    page = Page(_STYLE)
    text = title(name)
    page.text(MARGIN, MARGIN, text, "heading")
    facts = [*_facts(map_)]
    for line, fact in enumerate(facts):
        page.text(MARGIN, MARGIN + (line + 1.2) * _LINE, fact)
    bottom = MARGIN + (len(facts) + 2.2) * _LINE
    _legend(page, bottom)
    depths = 1 + max((loop.depth for loop in map_.loops), default=-1)
    plot = _Plot(map_, bottom + 14 + depths * (_LINE + 2))
    _loops(page, map_, plot)
    _addresses(page, map_, plot)
    bottom = _steps(page, map_, plot)
    for chain in map_.chains:
        _shape(page, map_, plot, chain)
    if not map_.chains:
        page.text(plot.x0 + _WIDTH / 2, plot.bottom / 2 + plot.top / 2, NOTHING, "name", "middle")
    curves = _CurvePlot(plot, bottom + 2.4 * _LINE, max(map_.occupancy(0).high_water, default=0))
    _curve_legend(page, curves)
    for first, last in map_.core_groups()[: None if every_core else 1]:
        _occupancy(page, map_, curves, first, last)
    return page.svg(text, " ".join(facts))


def title(name: str) -> str:
    """Return the title of the picture of a bundle."""
    return f"LX map{f' of {name}' if name else ''}"


def _facts(map_: LxMap) -> Iterator[str]:
    placed, places = _count(len(map_.placed), "buffer"), _count(len(map_.chains), "place")
    yield (
        f"{_count(len(map_.steps), 'step')}. {placed} in LX, in {places}; {len(map_.spilled):,} spilled to device"
        f" memory. The highest ends at {map_.peak:,} of {map_.capacity:,} bytes per core."
    )
    yield (
        f"A run moves {map_.argument_traffic + map_.spilled_traffic:,} bytes of device memory:"
        f" {map_.argument_traffic:,} of arguments and results, {map_.spilled_traffic:,} of spilled buffers."
    )


def _legend(page: Page, y: float) -> None:
    x = MARGIN
    for category, fill in FILLS.items():
        page.rectangle("box", x, y - 11, 20, 14, fill)
        page.rectangle("outline", x, y - 11, 20, 14)
        page.text(x + 26, y, category)
        x += 26 + len(category) * CHARACTER + 18
    page.text(x, y, "Boxes in one outline lie in one place in turn, each written over the one before.")


# -- scales ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Plot:
    """Mapping of steps (x) and addresses (y) to pixels; the backend's part is above them, not to scale."""

    map: LxMap
    top: float

    @property
    def x0(self) -> float:
        return MARGIN + _LABELS

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
        return self.x0 + step * self.column

    def y(self, address: float) -> float:
        return self.bottom - address / max(self.shown_bytes, 1) * (self.bottom - self.scale_top)


@dataclass(frozen=True)
class _CurvePlot:
    """Mapping of the curves to pixels: the x axis is the steps of the map, the y axis bytes up to the peak."""

    map: _Plot
    top: float
    peak: int

    @property
    def bottom(self) -> float:
        return self.top + _CURVE_HEIGHT

    def y(self, count: float) -> float:
        return self.bottom - count / _rounded(self.peak) * _CURVE_HEIGHT


def _tick(end: int) -> int:
    """Return the bytes between ticks: a power of two."""
    tick = 128
    while end > _TICKS * tick:
        tick *= 2
    return tick


def _rounded(end: int) -> int:
    """Return the end of an axis for ``end`` bytes: a multiple of the tick."""
    return max(-(-end // _tick(end)), 1) * _tick(end)


def _bytes_text(count: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:g} {unit}"
    return f"{count} B"


# -- the map ---------------------------------------------------------------------------------------------


def _addresses(page: Page, map_: LxMap, plot: _Plot) -> None:
    """Draw the axis of addresses, the capacity, the backend's part and the omitted part."""
    x, ground = plot.x0, plot.top + _BACKEND
    page.rectangle("backend", x, plot.top, _WIDTH, _BACKEND)
    reserved = f"the backend keeps {map_.capacity:,} to {map_.lx_bytes:,} (not to scale)"
    page.text(x + _WIDTH / 2, plot.top + 15, reserved, "label", "middle")
    if plot.scale_top > ground:
        page.rectangle("break", x, ground, _WIDTH, _BREAK)
        free = f"{plot.shown_bytes:,} to {map_.capacity:,}: free at all times (not to scale)"
        page.rectangle("box", x + _WIDTH / 2 - 210, ground + 2, 420, _BREAK - 4, "#ffffff")
        page.text(x + _WIDTH / 2, ground + 14, free, "label", "middle")
    capacity = ground if plot.scale_top > ground else plot.y(map_.capacity)
    for address in range(0, plot.shown_bytes + 1, _tick(plot.shown_bytes)):
        if abs(plot.y(address) - capacity) > _APART:
            _tick_line(page, plot.x0, plot.y(address), _bytes_text(address))
    page.text(x - 8, capacity + 4, "capacity", "label", "end")
    _line(page, "capacity", x, capacity, x + _WIDTH, capacity)
    _line(page, "axis", x, plot.top, x, plot.bottom)


def _tick_line(page: Page, x: float, y: float, text: str) -> None:
    _line(page, "tick", x, y, x + _WIDTH, y)
    page.text(x - 8, y + 4, text, "label", "end")


def _line(page: Page, kind: str, x1: float, y1: float, x2: float, y2: float) -> None:
    page.add(f'<path class="{kind}" d="M {x1:.2f} {y1:.2f} L {x2:.2f} {y2:.2f}"/>', max(x1, x2), max(y1, y2))


def _loops(page: Page, map_: LxMap, plot: _Plot) -> None:
    """Draw a bracket over the steps of each loop, the outermost on top."""
    depths = 1 + max((loop.depth for loop in map_.loops), default=-1)
    for loop in map_.loops:
        y = plot.top - 4 - (depths - 1 - loop.depth) * (_LINE + 2)
        begin, right = plot.x(loop.first), plot.x(loop.last + 1)
        words = f"{loop.count:,} times"
        tip = escape(f"steps {loop.first} to {loop.last} run {words}")
        page.add(f'<g class="loop"><title>{tip}</title>')
        page.add(f'<path class="axis" d="M {begin:.2f} {y:.2f} v -5 H {right:.2f} v 5"/>')
        if len(words) * CHARACTER + 8 <= right - begin:
            page.text((begin + right) / 2, y - 7, words, "label", "middle")
        page.add("</g>")


def _steps(page: Page, map_: LxMap, plot: _Plot) -> float:
    """Draw columns with tooltips, and the step labels that have space; return the bottom of the labels."""
    names = [f"{step.position} {step.opcode}" for step in map_.steps]
    longest = max(map(len, names), default=0) * CHARACTER
    upright = longest + 6 > plot.column
    every = -(-_APART // plot.column) if upright else 1
    for step, name in zip(map_.steps, names, strict=True):
        page.add(f'<g class="step" data-step="{step.position}"><title>{escape(_step_text(step))}</title>')
        x, middle = plot.x(step.position), plot.x(step.position + 0.5)
        _column(page, x, plot.top, plot.column, plot.bottom - plot.top)
        if step.position % every == 0 and upright:
            _upright(page, "label", middle + 4, plot.bottom + 6, name, "end")
        elif step.position % every == 0:
            page.text(middle, plot.bottom + 15, name, "label", "middle")
        page.add("</g>")
    _line(page, "axis", plot.x0, plot.bottom, plot.x0 + _WIDTH, plot.bottom)
    return plot.bottom + (longest + 6 if upright else 15)


def _column(page: Page, x: float, y: float, width: float, height: float) -> None:
    place = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    page.add(f'<rect class="column" {place}/>', x + width, y + height)


def _upright(page: Page, kind: str, x: float, y: float, text: str, anchor: str) -> None:
    """Draw vertical text, centred at (x, y) or ending there."""
    turned = f'transform="translate({x:.2f} {y:.2f}) rotate(-90)"'
    reach = len(text) * CHARACTER if anchor == "end" else 0
    page.add(f'<text class="{kind}" text-anchor="{anchor}" {turned}>{escape(text)}</text>', x, y + reach)


def _step_text(step: MapStep) -> str:
    lines = [f"step {step.position}: {step.opcode} on {_count(step.cores, 'core')}"]
    lines += [runs_text(step)] if step.loops else []
    lines += [step.source] if step.source else []
    return "\n".join(lines)


def runs_text(step: MapStep) -> str:
    """Return the number of runs of a step in loops as text."""
    nested = f", in {iterations_text(step.loops)} iterations" if len(step.loops) > 1 else ""
    return f"runs {_count(step.runs, 'time')}{nested}"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# -- buffers ---------------------------------------------------------------------------------------------


def _shape(page: Page, map_: LxMap, plot: _Plot, chain: Sequence[PlacedBuffer]) -> None:
    """Draw the buffers of one chain: a box for each, and an outline around all."""
    page.add(f'<g class="shape" data-cores="{chain[0].cores}">')
    for number, buffer in enumerate(chain):
        parent = chain[number - 1] if number else None
        # In the step where the child takes the address, the parent has the first half, and the bytes after the child.
        first = plot.x(buffer.first + (0.5 if parent else 0))
        last = plot.x(buffer.last + 1)
        top, height = _extent(plot, buffer)
        page.add(f'<g class="buffer" data-buffer="{escape(buffer.name)}">')
        page.add(f"<title>{escape(_buffer_text(map_, buffer, parent))}</title>")
        place = f'x="{first:.2f}" y="{top:.2f}" width="{last - first:.2f}" height="{height:.2f}"'
        page.add(f'<rect class="box" {place} fill="{_fill(map_, buffer)}"/></g>', last, top + height)
    for number, buffer in enumerate(chain):
        first = plot.x(buffer.first + (0.5 if number else 0))
        last = plot.x(buffer.last + (0.5 if number + 1 < len(chain) else 1))
        top, height = _extent(plot, buffer)
        if number and plot.column >= 6:
            _line(page, "handover", first, top, first, top + height)
        _label(page, map_, buffer, (first, top, last - first, height))
    page.add(f'<path class="edge" d="{_outline(plot, chain)}"/></g>')


def _extent(plot: _Plot, buffer: PlacedBuffer) -> tuple[float, float]:
    """Return top and height of a buffer; very small buffers are drawn with a minimum height."""
    height = max(plot.y(buffer.address) - plot.y(buffer.end), _LEAST)
    return plot.y(buffer.address) - height, height


def _outline(plot: _Plot, chain: Sequence[PlacedBuffer]) -> str:
    bottom = plot.y(chain[0].address)
    path = f"M {plot.x(chain[0].first):.2f} {bottom:.2f}"
    for buffer in chain:
        path += f" V {_extent(plot, buffer)[0]:.2f} H {plot.x(buffer.last + 1):.2f}"
    return f"{path} V {bottom:.2f} Z"


def _fill(map_: LxMap, buffer: PlacedBuffer) -> str:
    return FILLS["other" if buffer.writer is None else map_.steps[buffer.writer].category]


def _label(page: Page, map_: LxMap, buffer: PlacedBuffer, place: tuple[float, float, float, float]) -> None:
    """Draw name and operation of a buffer if they have space: in two lines, in one, or vertically."""
    x, y, width, height = place
    opcode = "" if buffer.writer is None else map_.steps[buffer.writer].opcode
    middle = x + width / 2, y + height / 2 + 4
    if height >= 32 and _fits(width, opcode, buffer.name):
        page.text(middle[0], middle[1] - 7, opcode, "inside", "middle")
        page.text(middle[0], middle[1] + 7, buffer.name, "inside", "middle")
        return
    texts = (f"{buffer.name} {opcode}", buffer.name, opcode)
    for text in texts:
        if height >= 14 and _fits(width, text):
            page.text(*middle, text, "inside", "middle")
            return
    for text in texts:
        if width >= 14 and _fits(height, text):
            _upright(page, "inside", middle[0] + 4, y + height / 2, text, "middle")
            return


def _fits(room: float, *texts: str) -> bool:
    return max(map(len, texts)) * CHARACTER + 6 <= room


def _buffer_text(map_: LxMap, buffer: PlacedBuffer, parent: PlacedBuffer | None) -> str:
    lines = [
        f"{buffer.name}: {writer_text(map_, buffer.writer)}",
        f"{buffer.bytes:,} bytes at {buffer.address:,} to {buffer.end:,}",
        f"live from step {buffer.first} to {buffer.last}, on {_count(buffer.cores, 'core')}",
    ]
    lines += [f"in place of {parent.name}"] if parent else []
    if buffer.writer is not None and map_.steps[buffer.writer].source:
        lines.append(map_.steps[buffer.writer].source)
    return "\n".join(lines)


def writer_text(map_: LxMap, writer: int | None) -> str:
    """Format the operation that writes a buffer, with its step."""
    return "never written" if writer is None else f"{map_.steps[writer].opcode} (step {writer})"


# -- curves ----------------------------------------------------------------------------------------------


def _curve_legend(page: Page, curves: _CurvePlot) -> None:
    """Draw the axis of bytes, and a sample of each curve above it."""
    x, y = curves.map.x0, curves.top - 12
    page.text(x, y, "Bytes in use over time:", "name")
    x += 180
    for kind, words, sample in _CURVES:
        page.add(f'<path class="{kind}" d="M {x:.2f} {y:.2f} {sample}"/>')
        page.text(x + 30, y, words)
        x += 30 + len(words) * CHARACTER + 22
    for count in range(0, _rounded(curves.peak) + 1, 2 * _tick(curves.peak)):
        _tick_line(page, curves.map.x0, curves.y(count), _bytes_text(count))
    _line(page, "axis", curves.map.x0, curves.top, curves.map.x0, curves.bottom)


def _occupancy(page: Page, map_: LxMap, curves: _CurvePlot, first: int, last: int) -> None:
    """Draw the curves of the cores ``first`` to ``last``, which hold the same buffers; only core 0 is displayed."""
    occupancy = map_.occupancy(first)
    hidden = ' style="display:none"' if first else ""
    page.add(f'<g class="occupancy" data-core="{first}"{hidden}>')
    x, bottom = curves.map.x, curves.bottom
    path = _staircase(curves, occupancy.load)
    page.add(f'<path class="load" d="M {x(0):.2f} {bottom:.2f} V{path[1:]} V {bottom:.2f} Z"/>')
    for kind, counts in (("high", occupancy.high_water), ("fragmentation", occupancy.fragmentation)):
        page.add(f'<path class="{kind}" d="M {x(0):.2f} {_staircase(curves, counts)[1:]}"/>')
    for step in map_.steps:
        page.add(f'<g class="moment"><title>{escape(_moment_text(step, occupancy))}</title>')
        _column(page, x(step.position), curves.top, curves.map.column, _CURVE_HEIGHT)
        page.add("</g>")
    page.text(curves.map.x0, bottom + _LINE, _occupancy_text(occupancy, first, last))
    page.add("</g>")


def _staircase(curves: _CurvePlot, counts: Sequence[int]) -> str:
    """Return ``V y H x`` for each step."""
    ends = ((curves.y(count), curves.map.x(step + 1)) for step, count in enumerate(counts))
    return " ".join(f"V {y:.2f} H {x:.2f}" for y, x in ends)


def _moment_text(step: MapStep, occupancy: Occupancy) -> str:
    position = step.position
    return "\n".join(
        [
            f"step {position}: {step.opcode}",
            f"load {occupancy.load[position]:,} bytes",
            f"high water {occupancy.high_water[position]:,} bytes",
            f"fragmentation {occupancy.fragmentation[position]:,} bytes",
        ]
    )


def _occupancy_text(occupancy: Occupancy, first: int, last: int) -> str:
    return (
        f"{cores_text(first, last)}: load at most {max(occupancy.load, default=0):,} bytes, high water"
        f" {occupancy.peak:,} bytes, fragmentation at most {max(occupancy.fragmentation, default=0):,} bytes"
    )


def cores_text(first: int, last: int) -> str:
    """Return a range of cores as text."""
    return f"Core {first}" if first == last else f"Cores {first} to {last}"
