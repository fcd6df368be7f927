# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pictures of the page: frame of the graph, divisions, ring, roofline, times of passes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from spyre_mlir.bundle.model import Design
from spyre_mlir.records import dataclass
from spyre_mlir.report import html
from spyre_mlir.report.lx_map import FILLS
from spyre_mlir.report.program_facts import Operation, ProgramFacts
from spyre_mlir.target.target import Target
from spyre_mlir.timeline.of_design import ranges_text
from spyre_mlir.timeline.roofline import Roofline
from spyre_mlir.timeline.timeline import busiest

_NO_OPERATION = "<p>The program has no operation.</p>"

# -- graph of modules and operations, which the script draws ---------------------------------------------------

#: Names and colours of the memories of a buffer, for the lines of the graph.
_MEMORIES = (("LX", "#2171b5"), ("device memory", "#c2410c"), ("both", "#8b94a1"))

#: Buttons of the graph of modules: their actions and names.
_BUTTONS = (
    ("level", "open a level"), ("close", "close all"), ("in", "zoom in +"), ("out", "zoom out -"), ("all", "fit 0"),
)  # fmt: skip


def graph(facts: ProgramFacts) -> str:
    """Return the frame of the graph of modules and operations."""
    if not facts.operations:
        return _NO_OPERATION
    buttons = "".join(f'<button type="button" data-do="{do}">{name}</button>' for do, name in _BUTTONS)
    keys = "arrow keys go and open, Enter opens, plus and minus zoom"
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
            f'{buttons}<label>Find <input type="search"/></label> <span class="matches" role="status"></span></p>',
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


def division(facts: ProgramFacts) -> str:
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
            name = escape(f"{operation.position}: {operation.opcode}")
            options += (
                f'<option value="{operation.position}" data-division="{number}"{chosen}>{name}</option>'
            )
    left_out = len(facts.operations) - len(of_operation)
    lines = [
        "<p>A cell is a part of the result, along the two dims with the most slices; colour and numbers show the cores"
        " that own the cell; the cells of the chosen core have a bold frame."
        f" The initial operation, step {shown.position}, {escape(shown.opcode)}, takes the most time.</p>",
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


def ring(facts: ProgramFacts) -> str:
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
            fill = _link_fill(use.bytes / most.bytes)
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


def _link_fill(part: float) -> str:
    """Return the fill of a link that is busy for ``part`` of the busiest link's time; only idle links are white."""
    part = 0.1 + 0.9 * part if part else 0
    red, green, blue = (round(255 + part * (dark - 255)) for dark in (8, 81, 156))
    return f"#{red:02x}{green:02x}{blue:02x}"


# -- roofline: attained and attainable rate of each operation, over its operations per byte --------------------

#: Pixels: left and top margin of the plot, its height, and the width of the right column, where nothing moves.
_PLOT_LEFT, _PLOT_TOP, _PLOT_HEIGHT, _NOTHING = 90, 40, 360, 110
_PLOT_WIDTH = html.WIDTH - _PLOT_LEFT - _NOTHING - 20


def roofline(facts: ProgramFacts) -> str:
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
    least, fastest = (
        math.floor(math.log10(min(intensities))),
        math.ceil(math.log10(max(*rates, peaks["array"]))),
    )
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


def passes(facts: ProgramFacts) -> str:
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
