# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page about a compiled program, in one HTML file.

The page supports windows from 380 pixels on, and the light or dark mode of the system. It loads nothing from elsewhere.
It is also XML, so that tools can read it; without its script it has the numbers, roofline and tables.
"""

from __future__ import annotations

import functools
import math
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from spyre_mlir.bundle.model import Bundle, Design
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remark
from spyre_mlir.report import html, lx_map
from spyre_mlir.report.findings import finding_list
from spyre_mlir.report.lx_map import FILLS
from spyre_mlir.report.modules import ModuleNode, module_tree
from spyre_mlir.report.page_data import json_text, page_data, remark_steps
from spyre_mlir.report.program_facts import Operation, ProgramFacts
from spyre_mlir.target.target import Target
from spyre_mlir.timeline.events import PARTS, Shares
from spyre_mlir.timeline.of_design import ranges_text
from spyre_mlir.timeline.roofline import Roofline
from spyre_mlir.timeline.timeline import busiest
from spyre_mlir.version import VERSION

# Pictures: frame of the graph, divisions, ring, roofline, times of passes.


_NO_OPERATION = "<p>The program has no operation.</p>"

# -- graph of modules and operations, which the script draws ---------------------------------------------------

#: Names and colours of the memories of a buffer, for the lines of the graph.
_MEMORIES = (("LX", "#2171b5"), ("device memory", "#c2410c"), ("both", "#8b94a1"))

#: Buttons of the graph of modules: their actions and names.
_BUTTONS = (
    ("level", "open a level"), ("close", "close all"), ("in", "zoom in +"), ("out", "zoom out -"), ("all", "fit 0"),
)  # fmt: skip


def _graph(facts: ProgramFacts) -> str:
    """Return the frame of the graph of modules and operations."""
    if not facts.operations:
        return _NO_OPERATION
    buttons = "".join(f'<button type="button" data-do="{do}">{name}</button>' for do, name in _BUTTONS)
    keys = "arrow keys go and open, Enter opens, plus and minus zoom"
    choices = ["kind", "time", "bytes", *(["error"] if facts.errors else [])]
    options = "".join(f"<option>{choice}</option>" for choice in choices)
    colours = html.legend_line([*FILLS.items(), *((f"line: {name}", colour) for name, colour in _MEMORIES)])
    return "\n".join(
        [
            "<p>Data flows from top to bottom. A box is a module of the model and opens with a click; equal layers are"
            " one box with their number. A line is a buffer that one box writes and another box reads; the bar at the"
            " bottom of a box is its share of the time. Hover over an operation for its buffers, over a line for"
            " layouts, addresses and reasons. Ctrl and the wheel zoom, drag moves.</p>",
            colours,
            '<div class="graph" id="module-graph"><noscript><p>Without its script the page does not draw this graph.'
            '</p></noscript><p class="tools scripted" hidden="hidden">',
            f'{buttons}<button type="button" data-do="save">save as SVG</button>'
            f"<label>Colour by <select>{options}</select></label>",
            ' <label>Find <input type="search"/></label> <span class="matches" role="status"></span></p>',
            f'<div class="picture"><svg xmlns="http://www.w3.org/2000/svg" role="tree" aria-label="Modules: {keys}">'
            "</svg></div></div>",
        ]
    )


# -- division: cores that own the parts of an operation's result, over the two dims with the most slices --------

#: Pixels: width of row labels, top of the cells, minimum width of a cell, height of a cell.
_CELL_LEFT, _CELL_TOP, _CELL_WIDTH, _CELL_HEIGHT = 70, 40, 30, 24

#: Maximum number of pictures of divisions in a page, so that it stays small; further pictures are omitted.
_MOST_DIVISIONS = 200


@dataclass(frozen=True)
class ResultAxis:
    """A dim of the result: its name, elements with padding, slices and elements per slice."""

    dim: str
    size: int
    slices: int
    share: int

    def __str__(self) -> str:
        return f"{self.dim}: {self.size:,} elements in {self.slices} slices of {self.share:,}"


@dataclass(frozen=True)
class Owners:
    """``cells[row][column]`` are the cores that own this slice of the two dims; an axis that is None is not split.

    ``others`` are further split dims, whose slices the cores of a cell share among them. ``reduced`` are split
    reduction dims: the cores of a cell add up their partial sums.
    """

    rows: ResultAxis | None
    columns: ResultAxis | None
    cells: tuple[tuple[tuple[int, ...], ...], ...]
    others: tuple[ResultAxis, ...]
    reduced: tuple[ResultAxis, ...]


def owners(design: Design) -> Owners:
    """Return the owners of the result of a design; of equally split dims the inner one is horizontal."""
    result = design.operands[-1]
    split = [
        ResultAxis(dim, design.sizes[dim], slices, design.shares[dim])
        for dim, slices in design.slices.items()
        if slices > 1
    ]
    inner_first = [dim for dim in result.dim_order if result.scale[dim] == 1]
    dims = sorted(
        (axis for axis in split if axis.dim in inner_first),
        key=lambda axis: (-axis.slices, inner_first.index(axis.dim)),
    )
    # A page has two directions, so further dims are described in words.
    columns, rows = (*dims[:2], None, None)[:2]
    cores: dict[tuple[int, ...], list[int]] = {}
    for core, slices in enumerate(design.core_slices):
        cores.setdefault(tuple(slices[axis.dim] if axis else 0 for axis in (rows, columns)), []).append(core)
    down, across = (range(axis.slices if axis else 1) for axis in (rows, columns))
    return Owners(
        rows=rows,
        columns=columns,
        cells=tuple(tuple(tuple(cores.get((row, column), ())) for column in across) for row in down),
        others=tuple(dims[2:]),
        reduced=tuple(axis for axis in split if axis.dim not in inner_first),
    )


def _division(facts: ProgramFacts) -> str:
    """Return a selection of operations and a picture for each division; initially the longest operation is shown."""
    if not facts.operations:
        return _NO_OPERATION
    cores = facts.timeline.target.device_cores
    shown = max(facts.operations, key=lambda op: (op.execution.total_ns, -op.position))
    numbers: dict[Owners, int] = {}
    of_operation: dict[int, int] = {}
    of_design = {operation.design.filename: operation.design for operation in facts.operations}
    owners_of = {filename: owners(design) for filename, design in of_design.items()}
    for operation in (shown, *facts.operations):
        divided = owners_of[operation.design.filename]
        if divided in numbers or len(numbers) < _MOST_DIVISIONS:
            of_operation[operation.position] = numbers.setdefault(divided, len(numbers))
    options = ""
    for operation in facts.operations:
        if (number := of_operation.get(operation.position)) is not None:
            chosen = ' selected="selected"' if operation is shown else ""
            name = escape(operation.name.removeprefix("step "))
            options += (
                f'<option value="{operation.position}" data-division="{number}"{chosen}>{name}</option>'
            )
    left_out = len(facts.operations) - len(of_operation)
    lines = [
        "<p>A cell is a part of the result, along the two dims with the most slices; colour and numbers show the cores"
        " that own the cell; the cells of the chosen core have a bold frame."
        f" The initial operation, {escape(shown.name)}, takes the most time.</p>",
        '<p class="tools scripted" hidden="hidden">',
        f'<label>Operation <select id="divided">{options}</select></label>',
        f" {html.count(left_out, 'operation')} omitted." if left_out else "",
        f"{html.core_choice(cores)}</p>",
    ]
    for divided, number in numbers.items():
        hidden = ' hidden="hidden"' if number else ""
        words = [] if divided.rows or divided.columns else ["The whole result is one part."]
        words += [f"Cores of a cell also split {axis}, which is not shown." for axis in divided.others]
        words += [
            f"The reduced dim {axis} is split too: the cores of a cell add up their partial sums."
            for axis in divided.reduced
        ]
        inside = "".join(f"<p>{escape(sentence)}</p>" for sentence in words) + _owner_grid(divided, cores)
        lines.append(f'<div class="division" data-division="{number}"{hidden}>{inside}</div>')
    return "\n".join(lines)


def _owner_grid(owners: Owners, device_cores: int) -> str:
    """Draw a grid of the slices of an operation, with the cores of each slice."""
    page = html.Page()
    texts = [[ranges_text(cores, "-", " ") for cores in row] for row in owners.cells]
    longest = max(len(text) for row in texts for text in row)
    across = len(owners.cells[0])
    width = min(max(_CELL_WIDTH, longest * html.CHARACTER + 10), (html.WIDTH - _CELL_LEFT) / across)
    if owners.columns is not None:
        page.text(_CELL_LEFT, 14, f"{owners.columns} →", "name")
    if owners.rows is not None:
        page.text(0, _CELL_TOP + len(texts) * _CELL_HEIGHT + 18, f"↓ {owners.rows}", "name")
    for column in range(across if owners.columns else 0):
        page.text(_CELL_LEFT + (column + 0.5) * width, _CELL_TOP - 8, str(column), anchor="middle")
    for row, line in enumerate(owners.cells):
        y = _CELL_TOP + row * _CELL_HEIGHT
        if owners.rows is not None:
            page.text(_CELL_LEFT - 10, y + 16, str(row), anchor="end")
        for column, cores in enumerate(line):
            x, text, owning = _CELL_LEFT + column * width, texts[row][column], " ".join(map(str, cores))
            # Text that does not fit into the cell is in its tooltip.
            title = "" if len(text) * html.CHARACTER <= width else f"<title>cores {owning}</title>"
            page.add(f'<g class="cell" data-cores="{owning}">{title}')
            hue = 360 / device_cores * cores[0] if cores else 0
            fill = f"hsl({hue:.0f},65%,{78 if cores[0] % 2 else 86}%)" if cores else "#ffffff"
            page.rectangle("owner", x, y, width, _CELL_HEIGHT, fill)
            if not title:
                page.text(x + width / 2, y + 16, text, "inside", "middle")
            page.add("</g>")
    return html.figure(page, "Division map")


# -- ring ----------------------------------------------------------------------------------------------------


def _ring(facts: ProgramFacts) -> str:
    """Return a row of clockwise links and a row of counter-clockwise links, with the cores between the rows."""
    left, top, height, between = 150, 4, 22, 20
    uses, total, page = facts.timeline.links, max(facts.timeline.run.total, 1), html.Page()
    nodes, most = len(uses) // 2, busiest(uses)
    width = (html.WIDTH - 8 - left) / nodes
    for name, is_clockwise, y in (
        ("clockwise →", True, top),
        ("counter-clockwise ←", False, top + height + between),
    ):
        page.text(left - 12, y + 15, name, "name", "end")
        for use in uses:
            if use.clockwise is not is_clockwise:
                continue
            tip = f"{use.name}: {use.bytes:,} bytes, {use.busy_ps / total:.1%} of the time"
            page.add(f'<g class="item link"><title>{escape(tip)}</title>')
            part = use.bytes / most.bytes
            part = 0.1 + 0.9 * part if part else 0
            red, green, blue = (round(255 + part * (dark - 255)) for dark in (8, 81, 156))
            fill = f"#{red:02x}{green:02x}{blue:02x}"
            page.rectangle("sample", left + use.link * width, y, width, height, fill)
            page.add("</g>")
    for core in range(nodes):
        page.text(left + core * width, top + height + 15, str(core), anchor="middle")
    page.text(html.WIDTH - 4, top + height + 15, "0", anchor="end")
    note = (
        f"<p>{escape(facts.ring_text)}.</p><p>The darker a link between two cores, the longer it is busy with"
        " bytes of the program; the darkest is the busiest. Data for several cores in one direction crosses a link"
        " once.</p>"
    )
    return note + html.figure(page, "Links of the ring", walk=True)


# -- roofline: attained and attainable rate of each operation, over its operations per byte --------------------

#: Pixels: left and top margin of the plot, its height, and the width of the right column, where nothing moves.
_PLOT_LEFT, _PLOT_TOP, _PLOT_HEIGHT, _NOTHING = 90, 40, 360, 110
_PLOT_WIDTH = html.WIDTH - _PLOT_LEFT - _NOTHING - 20


def _roofline(facts: ProgramFacts) -> str:
    """Return the plot, without operations that compute nothing."""
    points = [operation for operation in facts.operations if operation.roofline.attained_per_ns]
    if not points:
        return "<p>No operation of the program computes.</p>"
    target = facts.timeline.target
    # Operations per nanosecond of all cores, by unit.
    vector = target.device_cores * target.vector_sticks_per_ns * (target.stick_bytes // 2)
    peaks = {
        "array": target.device_cores * 2 * target.array.multiply_adds_per_ns,
        "vector unit, 2-byte elements": vector,
    }
    plotted = [*(operation.roofline for operation in points), facts.roofline]
    intensities = [each.intensity for each in plotted if not math.isinf(each.intensity)] or [1.0]
    rates = [each.attained_per_ns for each in plotted]
    # After the last ridge there is space for the name of its roof.
    greatest = math.ceil(math.log10(max(*intensities, 4 * peaks["array"] / target.one_way_bytes_per_ns)))
    least = math.floor(math.log10(min(intensities)))
    fastest = math.ceil(math.log10(max(*rates, peaks["array"])))
    slowest = math.floor(math.log10(min(rates)))
    frame = _PLOT_LEFT, _PLOT_TOP, _PLOT_WIDTH, _PLOT_HEIGHT
    plot = html.LogPlot(*frame, (least, greatest), (slowest, fastest))
    nothing_x = _PLOT_LEFT + _PLOT_WIDTH + _NOTHING / 2

    def pixel(intensity: float) -> float:
        """Return the pixel of an intensity (operations per byte)."""
        return nothing_x if math.isinf(intensity) else plot.x(intensity)

    page = html.Page()
    html.legend(page, 8, 16, [*FILLS.items(), ("the program", "currentColor")])
    x_ticks = [10.0**power for power in range(least, greatest + 1)]
    y_ticks = [10.0**power for power in range(slowest, fastest + 1)]
    names = "operations per byte of device memory", "operations per ns"
    plot.draw(page, x_ticks, y_ticks, names, beyond=_NOTHING)
    page.add(f'<path class="axis" d="M {_PLOT_LEFT + _PLOT_WIDTH} {_PLOT_TOP} v {_PLOT_HEIGHT}"/>')
    page.text(nothing_x, _PLOT_TOP + _PLOT_HEIGHT + 36, "nothing moves", "name", "middle")
    _roofs(page, plot, peaks, target)
    places: dict[tuple[int, int], list[Operation]] = {}
    for point in points:
        # Operations in one pixel would hide each other, so they are one point.
        place = round(pixel(point.roofline.intensity)), round(plot.y(point.roofline.attained_per_ns))
        places.setdefault(place, []).append(point)
    for (x, y), sharing in places.items():
        lines = [f"{operation.name}: {_rates(operation.roofline)}" for operation in sharing[:5]]
        lines += [f"and {len(sharing) - 5:,} more here"] if len(sharing) > 5 else []
        tip, first = escape("\n".join(lines)), sharing[0]
        page.add(f'<a class="item point" href="#{html.anchor(first.position)}"><title>{tip}</title>')
        fill = FILLS[first.category]
        page.add(f'<circle class="dotted" cx="{x}" cy="{y}" r="5" fill="{fill}"/></a>', x, y)
    if facts.roofline.attained_per_ns:
        diamond_x, diamond_y = pixel(facts.roofline.intensity), plot.y(facts.roofline.attained_per_ns)
        page.add(f'<g class="item point"><title>the program: {escape(_rates(facts.roofline))}</title>')
        start = f"M {diamond_x:.2f} {diamond_y - 7:.2f}"
        page.add(f'<path class="program" d="{start} l 7 7 l -7 7 l -7 -7 Z"/></g>')
    note = (
        "<p>A point is one operation without contention, by the cost model. A multiply-add counts as two operations,"
        " any other calculation as one per element. The roofs are for all cores; hover for the rate that is attainable"
        " on the cores in use.</p>"
    )
    return note + html.figure(page, "Roofline", walk=True)


def _roofs(page: html.Page, plot: html.LogPlot, peaks: Mapping[str, float], target: Target) -> None:
    """Draw the slope of the memory up to the highest roof, and the roofs from there on."""
    bandwidth, right = target.one_way_bytes_per_ns, _PLOT_LEFT + _PLOT_WIDTH
    for name, peak in peaks.items():
        start, y = max(plot.x(peak / bandwidth), _PLOT_LEFT), plot.y(peak)
        page.add(f'<path class="roof" d="M {start:.2f} {y:.2f} H {right + _NOTHING}"/>')
        page.text(right - 6, y - 6, f"{name}: {peak:,.0f} per ns", anchor="end")
    least = max(10.0 ** plot.x_powers[0], 10.0 ** plot.y_powers[0] / bandwidth)
    ridge = max(peaks.values()) / bandwidth
    begin = f"M {plot.x(least):.2f} {plot.y(least * bandwidth):.2f}"
    page.add(f'<path class="roof" d="{begin} L {plot.x(ridge):.2f} {plot.y(ridge * bandwidth):.2f}"/>')
    intensity = least * (ridge / least) ** 0.4
    x, y = plot.x(intensity) - 8, plot.y(intensity * bandwidth) - 8
    page.text(x, y, f"device memory: {bandwidth:g} bytes per ns", anchor="end")


def _rates(roofline: Roofline) -> str:
    intensity = "nothing moves" if math.isinf(roofline.intensity) else f"{roofline.intensity:,.3g} per byte"
    return (
        f"{roofline.attained_per_ns:,.4g} of {roofline.attainable_per_ns:,.4g} operations per ns, {intensity},"
        f" {html.time_text(roofline.nanoseconds)}, under the roof of {roofline.bound_by}"
    )


# -- times of passes -----------------------------------------------------------------------------------------


def _passes(facts: ProgramFacts) -> str:
    """Return a bar for each pass, in pass order."""
    total = sum(seconds for _, seconds in facts.passes)
    longest = max(seconds for _, seconds in facts.passes)
    names, row = 290, 20
    page = html.Page()
    for number, (name, seconds) in enumerate(facts.passes):
        top = number * row + 4
        page.text(names, top + 13, name.partition("{")[0], anchor="end")
        width = max(seconds / (longest or 1) * (html.WIDTH - names - 160), 0.5)
        page.rectangle("time", names + 10, top + 3, width, row - 8)
        page.text(names + 16 + width, top + 13, f"{1000 * seconds:,.1f} ms, {seconds / (total or 1):.0%}")
    return f"<p>{total:.2f} seconds in all passes.</p>{html.figure(page, 'Compile time per pass')}"


#: Maximum number of rows of a table of buffers or remarks, so that the page stays small.
_MOST = 2000

# -- summary -----------------------------------------------------------------------------------------------

#: A name, a number and its meaning.
_Card = tuple[str, str, str]


def _summary(facts: ProgramFacts) -> str:
    """Return the most important figures in large type, and the others below them."""
    lists = []
    for kind, cards in (("figures", _figures(facts)), ("cards", _cards(facts))):
        inside = "\n".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd><dd>{escape(meaning)}</dd></div>"
            for name, value, meaning in cards
        )
        lists.append(f'<dl class="{kind}">\n{inside}\n</dl>')
        if kind == "figures" and facts.timeline.shares.total:
            lists.append(_bound_bar(facts.timeline.shares))
    return "\n".join(lists)


#: Colours of the parts of the time, by limiting resource.
_PART_FILLS = {"memory": "#2171b5", "compute": "#238b45", "ring": "#6a51a3", "overhead": "#a3a3a3"}


def _bound_bar(shares: Shares) -> str:
    """Return one bar of the time, divided by what bounds it, with a legend."""
    parts = sorted(
        ((part, getattr(shares, part) / shares.total) for part in PARTS), key=lambda part: -part[1]
    )
    bars = "".join(
        f'<span style="width:{100 * share:.2f}%;background:{_PART_FILLS[part]}"></span>'
        for part, share in parts
    )
    words = ", ".join(f"{part} {share:.0%}" for part, share in parts)
    names = html.legend_line((f"bound by {part} {share:.0%}", _PART_FILLS[part]) for part, share in parts)
    return f'<div class="bound" role="img" aria-label="time bound by {words}">{bars}</div>{names}'


def _figures(facts: ProgramFacts) -> Iterator[_Card]:
    """Yield the rates that the program attains, with their peaks."""
    rates, target = facts.rates, facts.timeline.target
    low, high = html.time_text(facts.timeline.lower_ns), html.time_text(facts.timeline.upper_ns)
    sequential = f"{facts.timeline.overlap}; sequential {html.time_text(facts.timeline.sequential_ns)}"
    bracket = f"{sequential}; {low} with full overlap, {high} with none; ranks plans, is not a promise"
    yield "predicted time", html.time_text(facts.timeline.total_ns), bracket
    yield "calls per second", _rate_text(rates.calls_per_second), "one after the other, without the host"
    if (rows := rates.rows) is not None:
        shape = "x".join(map(str, rows.shape))
        meaning = f"{html.count(rows.count, 'row')} of {rows.argument} ({shape}) in a call"
        yield "rows per second", _rate_text(rows.count * rates.calls_per_second), meaning
    peak = f"multiply-adds of all {target.device_cores} cores in that time, at the rate of their format"
    yield "of the card's peak", f"{rates.array_part:.1%}", peak
    bandwidth = f"{target.peak_bytes_per_ns:g} GB/s of device memory"
    yield "of its bandwidth", f"{rates.memory_part:.1%}", bandwidth
    cores = f"{rates.mean_cores:.1f} of {html.count(rates.device_cores, 'core')}"
    used = [operation.cores for operation in facts.operations]
    least = f"; least {min(used)}, most {max(used)}" if used else ""
    yield "cores at work", cores, f"mean over the time{least}"


def _rate_text(per_second: float) -> str:
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:,.3g}"


def _cards(facts: ProgramFacts) -> Iterator[_Card]:
    map_, shares = facts.map, facts.timeline.shares
    yield (
        "operations",
        f"{len(facts.operations):,}",
        _first_six(
            [f"{number} {name}" for name, number in facts.opcodes],
            sum(number for _, number in facts.opcodes[6:]),
        ),
    )
    if map_.loops:
        nests = [f"{lx_map.iterations_text(nest)} iterations" for nest in map_.nests()]
        yield "loops", f"{len(map_.loops):,}", _first_six(nests, len(nests) - 6)
    moved = f"{facts.read_bytes:,} bytes read, {facts.written_bytes:,} written"
    yield "device memory traffic", html.bytes_text(facts.traffic), moved
    least = facts.argument_bytes
    over = f"; the program moves {facts.traffic / least:.2f} times that" if least else ""
    yield "lower bound", html.bytes_text(least), f"each argument once, {least:,} bytes{over}"
    share = f"{map_.peak:,} of {map_.capacity:,} bytes per core, {map_.peak / max(map_.capacity, 1):.0%}"
    yield (
        "LX high water",
        html.bytes_text(map_.peak),
        f"{share}; {html.count(len(map_.placed), 'buffer')} in LX",
    )
    spilled = f"buffers in device memory, which move {map_.spilled_traffic:,} bytes"
    yield "spills", f"{len(map_.spilled):,}", spilled
    yield "restickifies", f"{facts.restickifies:,}", "operations that only change the stick of a tensor"
    parts = (f"{part} {getattr(shares, part) / max(shares.total, 1):.0%}" for part in PARTS)
    yield "bound by", facts.timeline.bound_by if facts.operations else "nothing", ", ".join(parts)


def _first_six(names: Sequence[str], others: int) -> str:
    return ", ".join([*names[:6], *([f"{others} others"] if len(names) > 6 else [])])


# -- modules, LX and timeline, which the script of the page draws ------------------------------------------


def _modules(facts: ProgramFacts) -> str:
    """Return a row for each module, with equal layers merged, and a selection of the order."""
    root = module_tree(facts.operations)
    rows = "" if root is None else "".join(_module_rows(root, root.work.picoseconds or 1, 0))
    names = ("operations", "time (µs)", "share (%)", "bytes", "work")
    heads = "".join(f'<th scope="col" class="number">{name}</th>' for name in names)
    return "\n".join(
        [
            "<p>A module opens here, in the graph and in the timeline at the same time. Time, bytes of device memory"
            " and work (two operations per multiply-add, else one per element) are sums over the equal modules of a"
            " row.</p>",
            '<p class="scripted" hidden="hidden"><label>Order <select><option value="program">of the program</option>'
            '<option value="time">by time</option></select></label></p>',
            '<div class="scroll" tabindex="0" role="region" aria-label="table of modules">',
            '<table id="modules-table" class="n2 n3 n4 n5 n6" style="min-width:760px"><colgroup>'
            '<col style="width:34%"/><col style="width:10%"/><col style="width:12%"/><col style="width:9%"/>'
            '<col style="width:13%"/><col style="width:14%"/><col style="width:8%"/></colgroup>',
            f'<thead><tr><th scope="col">module</th>{heads}<td></td></tr></thead><tbody>{rows}</tbody></table></div>',
        ]
    )


def _module_rows(node: ModuleNode, total_ps: int, depth: int) -> Iterator[str]:
    for child in node.children:
        work, times = child.work, f" x {child.times}" if child.times > 1 else ""
        cells = (
            f"{work.executes:,}", f"{work.picoseconds / 1e6:,.3f}", f"{100 * work.picoseconds / total_ps:.1f}",
            f"{work.bytes:,}", f"{work.operations:,}",
        )  # fmt: skip
        name = f'<th scope="row" style="padding-left:{8 + 18 * depth}px">{escape(child.label)}{times}</th>'
        yield f"<tr>{name}{''.join(f'<td>{cell}</td>' for cell in cells)}<td></td></tr>"
        yield from _module_rows(child, total_ps, depth + 1)


def _lx(facts: ProgramFacts) -> str:
    """Return the chart, and below it the buffers in device memory and the buffers in LX."""
    map_ = facts.map
    if not map_.steps:
        return "<p>The program has no operation, so nothing is in the scratchpads.</p>"

    def writer(buffer: lx_map.PlacedBuffer | lx_map.SpilledBuffer) -> html.Cell:
        text = lx_map.writer_text(map_, buffer.writer)
        return text if buffer.writer is None else html.Steps((buffer.writer,), text)

    def source(buffer: lx_map.PlacedBuffer) -> str:
        return "" if buffer.writer is None else facts.operations[buffer.writer].source

    def table(note: str, identifier: str, columns: Sequence[html.Column], buffers: Sequence[Any]) -> str:
        omitted = f" The first {_MOST:,} of {len(buffers):,} buffers." if len(buffers) > _MOST else ""
        return f"<p>{note}{omitted}</p>\n{html.listing(identifier, columns, buffers[:_MOST])}"

    spilled = "<p>Every buffer of this program that is not an argument or a result is in LX.</p>"
    if map_.spilled:
        note = (
            "Bytes are for all cores. Bytes read and written are for one run; a load that several cores share counts"
            " once."
        )
        columns = (
            html.Column("buffer", 11, lambda buffer: buffer.name),
            html.Column("written by", 12, writer),
            html.Column("steps", 8, lambda buffer: f"{buffer.first} to {buffer.last}"),
            html.Column("bytes", 9, lambda buffer: buffer.bytes, is_number=True),
            html.Column("read (B)", 9, lambda buffer: buffer.read_bytes, is_number=True),
            html.Column("written (B)", 9, lambda buffer: buffer.written_bytes, is_number=True),
            html.Column(
                "why it is not in LX",
                42,
                lambda buffer: "; ".join(buffer.reasons) or "the bundle does not say",
            ),
        )
        spilled = table(note, "spilled-table", columns, map_.spilled_by_traffic)
    placed = f"<p>{lx_map.NOTHING}</p>"
    if map_.chains:
        note = "Bytes and addresses are for one core; they are equal on all cores that hold the buffer."
        columns = (
            html.Column("buffer", 18, lambda buffer: buffer.name),
            html.Column("written by", 14, writer),
            html.Column("steps", 10, lambda buffer: f"{buffer.first} to {buffer.last}"),
            html.Column("address", 11, lambda buffer: buffer.address, is_number=True),
            html.Column("bytes", 11, lambda buffer: buffer.bytes, is_number=True),
            html.Column("cores", 7, lambda buffer: buffer.cores, is_number=True),
            html.Column("in place of", 15, lambda buffer: map_.parents.get(buffer.name, "")),
            html.Column("source", 14, source),
        )
        placed = table(note, "placed-table", columns, map_.placed)
    return "\n".join(
        [
            f"<p>{' '.join(lx_map.map_sentences(map_))} Boxes are the buffers of the chosen core, over the steps of the"
            " program; a box that overlaps half a step of another box takes its address. Ctrl and the wheel zoom, drag"
            " moves, a click on a box shows the operation that writes it.</p>",
            html.legend_line((f"written by: {name}", fill) for name, fill in lx_map.FILLS.items()),
            html.chart("lx-chart", "LX map", facts.timeline.target.device_cores, stretches=True),
            "<h3>Not in LX</h3>",
            spilled,
            "<h3>In LX</h3>",
            placed,
        ]
    )


def _timeline(facts: ProgramFacts) -> str:
    """Return the chart of a core's engines, the memory and the ring, with an explanation."""
    if not facts.timeline.run.total:
        return "<p>The program takes no time.</p>"
    note = (
        "<p>A load waits for its first byte before the memory reads. Adjacent bars are merged if the view cannot"
        " separate them; a merged bar is paler if the engine is idle in between. Zoom in with Ctrl and the wheel, drag"
        " to move, click on a bar for its operation. <code>spyre-run --timeline trace.json</code> writes the timeline"
        " for Perfetto, with counters.</p>"
    )
    # Bars of several operations belong to no category.
    fills = html.legend_line([*lx_map.FILLS.items(), ("several operations", "#a3a3a3")])
    return note + fills + html.chart("timeline-chart", "Timeline", facts.timeline.target.device_cores)


# -- tables of operations, sources and remarks -------------------------------------------------------------


def _operations(facts: ProgramFacts) -> str:
    """Return the table of operations, the longest first."""
    shown = sorted(
        facts.operations, key=lambda operation: (-operation.execution.total_ns, operation.position)
    )
    total = max(facts.timeline.total_ns, 1e-9)
    columns = (
        html.Column("step", 4, lambda operation: html.Steps((operation.position,)), is_number=True),
        html.Column("operation", 9.5, lambda operation: operation.opcode),
        html.Column("module", 10, lambda operation: operation.module),
        html.Column("shape", 10, lambda operation: operation.shape),
        html.Column("dtype", 5, lambda operation: operation.dtype),
        html.Column(
            "time (µs)",
            6.5,
            lambda operation: operation.execution.total_ns / 1000,
            is_number=True,
            order="descending",
        ),
        html.Column(
            "share (%)",
            5,
            lambda operation: f"{100 * operation.execution.total_ns / total:.1f}",
            is_number=True,
        ),
        html.Column("cores", 4, lambda operation: operation.cores, is_number=True),
        html.Column("slices", 9.5, lambda operation: operation.slices),
        html.Column("runs", 4, lambda operation: operation.runs, is_number=True),
        html.Column("bound by", 5.5, lambda operation: operation.execution.bound_by),
        html.Column("read (B)", 6.25, lambda operation: operation.read_bytes, is_number=True),
        html.Column("written (B)", 6.5, lambda operation: operation.written_bytes, is_number=True),
        html.Column("spill (B)", 5.75, lambda operation: operation.spilled_bytes, is_number=True),
        html.Column("source", 8.5, lambda operation: operation.source),
    )
    note = (
        "<p>Operations are sorted by time, the longest first. A click on <em>step</em> sorts them in program order, a"
        " click on another column sorts by this column, and a click on a row shows the operation. Time, bytes read and"
        " written and spill are sums over all runs. Share is the part of the program's time; spill is the part of the"
        " bytes that moves to and from buffers that are neither arguments nor in LX.</p>\n"
    )
    anchors = (html.anchor(operation.position) for operation in shown)
    return note + html.listing("operations-table", columns, shown, anchors, width=1400)


def _kinds(facts: ProgramFacts) -> str:
    """Return the table of operations by opcode, shape and format."""
    total = max(facts.timeline.shares.total, 1)
    columns = (
        html.Column("operation", 16, lambda kind: kind.opcode),
        html.Column("shape", 24, lambda kind: kind.shape),
        html.Column("dtype", 8, lambda kind: kind.dtype),
        html.Column("count", 7, lambda kind: kind.runs, is_number=True),
        html.Column("total (µs)", 9, lambda kind: kind.microseconds, is_number=True, order="descending"),
        html.Column("mean (µs)", 9, lambda kind: kind.microseconds / kind.runs, is_number=True),
        html.Column("share (%)", 7, lambda kind: f"{100 * kind.shares.total / total:.1f}", is_number=True),
        html.Column("bound by", 8, lambda kind: kind.shares.bound_by),
        html.Column("modules", 12, lambda kind: kind.modules),
    )
    note = "<p>Operations of equal opcode, shape and format, equal layers together. Count is the number of runs.</p>\n"
    return note + html.listing("kinds-table", columns, facts.kinds[:_MOST], width=1000)


def _provenance(facts: ProgramFacts) -> str:
    """Return three lists that the script fills, and below them the bundle's data about the chosen operation."""
    # Every bundle has the program text as a level.
    levels = "".join(f"<option>{escape(level)}</option>" for level in (*facts.levels, "bundle.mlir"))
    unknown = " The other levels are known if the report is written right after the compilation."
    panes = (("source-lines", "Source"), ("level-lines", "IR"), ("device-lines", "Device operations"))
    return "\n".join(
        [
            "<p>Choose a line in a list, with a click or the arrow keys: the other lists show its origin and its"
            f" result. The IR of equal layers is the IR of the first layer.{'' if facts.levels else unknown}</p>",
            f'<p class="scripted" hidden="hidden"><label>File <select id="source-file"></select></label>'
            f' <label>Level <select id="level">{levels}</select></label></p>',
            "<noscript><p>Without its script the page does not fill these lists.</p></noscript>",
            '<div class="panes scripted" hidden="hidden">',
            *(
                f'<div><h3 id="{identifier}-name">{name}</h3><div class="lines" id="{identifier}" role="listbox"'
                f' tabindex="0" aria-labelledby="{identifier}-name"></div></div>'
                for identifier, name in panes
            ),
            '</div><div id="chosen" class="chosen" role="status"></div>',
        ]
    )


def _remarks(facts: ProgramFacts) -> str:
    """Return the table of remarks, or a sentence for a folder without remarks."""
    if not facts.remarks:
        return "<p>There are no decisions: the folder has no remarks.jsonl, or no pass made a decision.</p>"
    # Equal decisions, as of equal layers, are one row; the key has no place.
    groups: dict[tuple[Any, ...], tuple[Remark, list[int], list[int]]] = {}
    for remark, steps in zip(facts.remarks, remark_steps(facts), strict=True):
        key = remark.pass_name, remark.kind, remark.op_name, remark.reason, remark.before, remark.after
        _, counts, positions = groups.setdefault(key, (remark, [], []))
        counts.append(1)
        positions += [step for step in steps if step not in positions]
    items, left_out = list(groups.values())[:_MOST], len(groups) - _MOST

    def cost(number: int | None) -> str:
        return "" if number is None else f"{number:,}"

    # Each item is a remark, its repetitions and their steps.
    columns = (
        html.Column("pass", 14, lambda item: item[0].pass_name),
        html.Column("decision", 8, lambda item: item[0].kind),
        html.Column("operation", 10, lambda item: item[0].op_name),
        html.Column("reason", 31, lambda item: item[0].reason),
        html.Column("count", 5, lambda item: len(item[1]), is_number=True),
        html.Column("before", 7, lambda item: cost(item[0].before), is_number=True),
        html.Column("after", 7, lambda item: cost(item[0].after), is_number=True),
        html.Column("steps", 8, lambda item: html.Steps(tuple(item[2]))),
        html.Column("source", 10, lambda item: item[0].op_location.rpartition("/")[2]),
    )
    shown = [remark for remark, *_ in items]
    passes = dict.fromkeys(remark.pass_name for remark in shown)
    options = "".join(f"<option>{escape(name)}</option>" for name in passes)
    chooser = f'<label>Pass <select><option value="">all</option>{options}</select></label> '
    return "\n".join(
        [
            "<p>Steps are the operations from the same line of the source, or only the operations with the opcode at"
            " the start of the reason. Costs before and after are in the unit of the pass, mostly bytes.</p>",
            f"<p>The first {_MOST:,}; {left_out:,} more are in remarks.jsonl.</p>" if left_out > 0 else "",
            html.listing("remarks-table", columns, items, width=1250, chooser=chooser),
        ]
    )


# -- the page ----------------------------------------------------------------------------------------------

Panel = Callable[[ProgramFacts], str]

#: Identifier, heading and panel, in the order of the page.
PANELS: tuple[tuple[str, str, Panel], ...] = (
    ("findings", "Findings", lambda facts: finding_list(facts.findings)),
    ("summary", "Summary", _summary),
    ("graph", "Program graph", _graph),
    ("modules", "Modules", _modules),
    ("division", "Division map", _division),
    ("lx", "LX map", _lx),
    ("timeline", "Timeline", _timeline),
    ("ring", "Ring", _ring),
    ("roofline", "Roofline", _roofline),
    ("kinds", "Kinds of operations", _kinds),
    ("operations", "Operations", _operations),
    ("provenance", "Provenance", _provenance),
    ("remarks", "Remarks", _remarks),
    ("passes", "Compile time per pass", _passes),
)

#: The scripts of the page, in the order of their dependencies.
_SCRIPTS = (
    "charts.js", "modules.js", "graph.js", "module_table.js", "provenance.js", "timeline.js", "scratchpad.js",
    "page.js", "tables.js", "pane.js",
)  # fmt: skip

#: Comments and indentation of a script, two thirds of its size; no script has multi-line strings.
_NO_CODE = re.compile(r"^ +|^ *//.*\n|^\n", re.MULTILINE)

#: Keys and their actions.
_KEYS = (
    ("/", "filter the table on the screen"),
    ("?", "these keys"),
    ("Tab", "the next table, picture or button"),
    ("↑ ↓ Home End", "in a table the next row, in the graph and the roofline the next item"),
    ("Enter Space", "open the operation of a row or an item; on the name of a column, sort"),
    ("+ - 0", "in the timeline and the LX map: zoom in, out, show all"),
    ("← →", "there: move; in the LX map ↑ ↓ too"),
    ("] [", "in the LX map: stretch and shrink the addresses"),
    ("N P", "there: the next and the previous bar or box"),
    ("Esc", "close the operation, leave a picture, empty a filter"),
)


def page(facts: ProgramFacts, bundle: Bundle, name: str = "") -> str:
    """Return the page of a bundle and its facts as the text of an HTML file. ``name`` is the name of the program.

    A panel is omitted if it would be empty: most panels need an operation, and the panels of findings, modules, pass
    times and ring use need at least one such item. The page has lines of source files if the files can be read.
    """
    needed = {
        "findings": facts.findings,
        "modules": any(operation.module for operation in facts.operations),
        "provenance": facts.operations,
        "kinds": facts.operations,
        "passes": facts.passes,
        "ring": facts.timeline.links,
    }
    panels = [panel for panel in PANELS if needed.get(panel[0], True)]
    return _page(f"Report of {name}" if name else "Report", facts, bundle, panels)


def lx_page(facts: ProgramFacts, bundle: Bundle, name: str = "") -> str:
    """Return the page with the LX map, and the operations that its tables refer to."""
    return _page(
        lx_map.title_of(name), facts, bundle, [panel for panel in PANELS if panel[0] in ("lx", "operations")]
    )


def made_text(facts: ProgramFacts, bundle: Bundle) -> str:
    """Return what made a program: versions of compiler and source, device, cores, options, and the date of the page."""
    made, target = bundle.manifest.made, bundle.target
    changed = ", ".join(
        f"{section}.{name}" for section, values in target.differences().items() for name in values
    )
    source = next((operation.origin.file for operation in facts.operations if operation.origin.file), "")
    commit = _commit(Path(source).parent) if source else ""
    parts = (
        f"spyre-mlir {made.get('version', VERSION)}",
        f"packaged device file{f' with other {changed}' if changed else ''}",
        html.count(target.device_cores, "core"),
        f"options {made['options']}" if "options" in made else "default options" if made else "",
        time.strftime("%Y-%m-%d", time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH") or time.time()))),
        f"source at commit {commit}" if commit else "",
    )
    return " · ".join(filter(None, parts))


@functools.cache
def _commit(folder: Path) -> str:
    """Return the short hash of the commit that is checked out in a folder; empty outside of a repository of git."""
    try:
        command = ["git", "rev-parse", "--short", "HEAD"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _page(title: str, facts: ProgramFacts, bundle: Bundle, panels: Sequence[tuple[str, str, Panel]]) -> str:
    sections = (
        f'<section id="{identifier}" aria-labelledby="{identifier}-heading">'
        f'<h2 id="{identifier}-heading">{heading}</h2>\n{panel(facts)}\n</section>'
        for identifier, heading, panel in panels
    )
    links = "".join(f'<a href="#{identifier}">{heading}</a>' for identifier, heading, _ in panels)
    rows = ""
    for keys, meaning in _KEYS:
        caps = " ".join(f"<kbd>{escape(key)}</kbd>" for key in keys.split())
        rows += f"<tr><td>{caps}</td><td>{escape(meaning)}</td></tr>"
    close = '<form method="dialog"><button>close</button></form>'
    scripts = "\n".join(_NO_CODE.sub("", html.resource(name)) for name in _SCRIPTS)
    parts = [
        f'<header><h1>{escape(title)}</h1><p class="made">{escape(made_text(facts, bundle))}</p>',
        f'<nav aria-label="Panels">{links}<button type="button" id="help" class="scripted" hidden="hidden">keys: ?'
        "</button></nav></header>",
        "<main>",
        *sections,
        "</main>",
        '<aside id="pane" aria-label="Operation" tabindex="-1" hidden="hidden"></aside>',
        '<p id="details" role="status" hidden="hidden"></p>',
        '<div id="hint" aria-hidden="true" hidden="hidden"></div>',
        f'<dialog id="keys" aria-label="Keys"><h3>Keys</h3><table><tbody>{rows}</tbody></table>{close}</dialog>',
        f'<script type="application/json" id="data">{json_text(page_data(facts, bundle))}</script>',
        f"<script>//<![CDATA[\n{{{scripts}}}\n//]]></script>",
    ]
    return html.shell(title, parts)
