# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel of the attained and the attainable rate of each operation, over its operations per byte."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from spyre_mlir.records import dataclass
from spyre_mlir.report.html import WIDTH, anchor, figure, legend, time_text
from spyre_mlir.report.lx_picture import FILLS
from spyre_mlir.report.program_facts import Operation, ProgramFacts
from spyre_mlir.report.svg import Page
from spyre_mlir.target.target import Target
from spyre_mlir.timeline.roofline import Roofline

#: Pixels: left and top margin of the plot, its height, and the width of the right column, where nothing moves.
_LEFT, _TOP, _HEIGHT, _NOTHING = 90, 40, 360, 110
_PLOT = WIDTH - _LEFT - _NOTHING - 20


@dataclass(frozen=True)
class _Scale:
    """Powers of ten at the ends of the axes."""

    least: int
    greatest: int
    slowest: int
    fastest: int

    def x(self, intensity: float) -> float:
        """Return the pixel of an intensity (operations per byte)."""
        if math.isinf(intensity):
            return _LEFT + _PLOT + _NOTHING / 2
        return _LEFT + _PLOT * (math.log10(intensity) - self.least) / (self.greatest - self.least)

    def y(self, rate: float) -> float:
        """Return the pixel of a rate (operations per ns)."""
        return _TOP + _HEIGHT * (self.fastest - math.log10(rate)) / (self.fastest - self.slowest)


def panel(facts: ProgramFacts) -> str:
    """Return the plot, without operations that compute nothing."""
    points = [operation for operation in facts.operations if operation.roofline.attained_per_ns]
    if not points:
        return "<p>No operation of the program computes.</p>"
    target = facts.timeline.target
    scale = _scale([*(operation.roofline for operation in points), facts.roofline], target)
    page = Page()
    legend(page, 8, 16, [*FILLS.items(), ("the program", "currentColor")])
    _axes(page, scale)
    _roofs(page, scale, target)
    for (x, y), sharing in _by_place(points, scale).items():
        _point(page, x, y, sharing)
    _program(page, scale, facts.roofline)
    note = (
        "<p>Of each operation alone, as the cost model prices it; an operation is two per multiply-add, else one per"
        " element. The roofs are those of all cores; hover for what is attainable on the cores that are used.</p>"
    )
    return note + figure(page, "Roofline", walk=True)


def _scale(shown: Sequence[Roofline], target: Target) -> _Scale:
    intensities = [roofline.intensity for roofline in shown if not math.isinf(roofline.intensity)] or [1.0]
    rates = [roofline.attained_per_ns for roofline in shown]
    array = _peaks(target)["array"]
    ridge = array / target.one_way_bytes_per_ns
    return _Scale(
        least=math.floor(math.log10(min(intensities))),
        # After the last ridge there is space for the name of its roof.
        greatest=math.ceil(math.log10(max(*intensities, 4 * ridge))),
        slowest=math.floor(math.log10(min(rates))),
        fastest=math.ceil(math.log10(max(*rates, array))),
    )


def _peaks(target: Target) -> dict[str, float]:
    """Return the peak operations per nanosecond of all cores, by unit."""
    return {
        "array": target.device_cores * 2 * target.array.multiply_adds_per_ns,
        "vector unit, 2-byte elements": target.device_cores
        * target.vector_sticks_per_ns
        * (target.stick_bytes // 2),
    }


def _axes(page: Page, scale: _Scale) -> None:
    bottom, right = _TOP + _HEIGHT, _LEFT + _PLOT
    for power in range(scale.least, scale.greatest + 1):
        x = scale.x(10.0**power)
        page.add(f'<path class="tick" d="M {x:.2f} {_TOP} V {bottom}"/>')
        page.text(x, bottom + 16, f"{10.0**power:,g}", anchor="middle")
    for power in range(scale.slowest, scale.fastest + 1):
        y = scale.y(10.0**power)
        page.add(f'<path class="tick" d="M {_LEFT} {y:.2f} H {right + _NOTHING}"/>')
        page.text(_LEFT - 8, y + 4, f"{10.0**power:,g}", anchor="end")
    page.add(f'<path class="axis" d="M {_LEFT} {_TOP} V {bottom} H {right} M {right} {_TOP} V {bottom}"/>')
    page.text(right + _NOTHING / 2, bottom + 36, "nothing moves", "name", "middle")
    page.text(_LEFT + _PLOT / 2, bottom + 36, "operations per byte of device memory", "name", "middle")
    middle = _TOP + _HEIGHT / 2
    turned = f'transform="translate(20 {middle:g}) rotate(-90)"'
    page.add(f'<text class="name" text-anchor="middle" {turned}>operations per ns</text>')


def _roofs(page: Page, scale: _Scale, target: Target) -> None:
    """Draw the slope of the memory up to the highest roof, and the roofs from there on."""
    bandwidth = target.one_way_bytes_per_ns
    right = _LEFT + _PLOT
    for name, peak in _peaks(target).items():
        start, y = max(scale.x(peak / bandwidth), _LEFT), scale.y(peak)
        page.add(f'<path class="roof" d="M {start:.2f} {y:.2f} H {right + _NOTHING}"/>')
        page.text(right - 6, y - 6, f"{name}: {peak:,.0f} per ns", anchor="end")
    least = max(10.0**scale.least, 10.0**scale.slowest / bandwidth)
    ridge = max(_peaks(target).values()) / bandwidth
    x, y = scale.x(least), scale.y(least * bandwidth)
    page.add(
        f'<path class="roof" d="M {x:.2f} {y:.2f} L {scale.x(ridge):.2f} {scale.y(ridge * bandwidth):.2f}"/>'
    )
    intensity = least * (ridge / least) ** 0.4
    page.text(
        scale.x(intensity) - 8,
        scale.y(intensity * bandwidth) - 8,
        f"device memory: {bandwidth:g} bytes per ns",
        anchor="end",
    )


def _by_place(points: Sequence[Operation], scale: _Scale) -> dict[tuple[int, int], list[Operation]]:
    """Return the operations at each pixel, which become one point."""
    places: dict[tuple[int, int], list[Operation]] = {}
    for point in points:
        # Operations in one pixel would hide each other.
        place = round(scale.x(point.roofline.intensity)), round(scale.y(point.roofline.attained_per_ns))
        places.setdefault(place, []).append(point)
    return places


def _point(page: Page, x: float, y: float, sharing: Sequence[Operation]) -> None:
    lines = [_point_text(other) for other in sharing[:5]]
    lines += [f"and {len(sharing) - 5:,} more here"] if len(sharing) > 5 else []
    text = escape("\n".join(lines))
    page.add(f'<a class="item point" href="#{anchor(sharing[0].position)}"><title>{text}</title>')
    page.add(
        f'<circle class="dotted" cx="{x}" cy="{y}" r="5" fill="{FILLS[sharing[0].category]}"/></a>', x, y
    )


def _point_text(operation: Operation) -> str:
    return f"{operation.name}: {_rates(operation.roofline)}"


def _rates(roofline: Roofline) -> str:
    intensity = "nothing moves" if math.isinf(roofline.intensity) else f"{roofline.intensity:,.3g} per byte"
    return (
        f"{roofline.attained_per_ns:,.4g} of {roofline.attainable_per_ns:,.4g} operations per ns, {intensity},"
        f" {time_text(roofline.nanoseconds)}, under the roof of {roofline.bound_by}"
    )


def _program(page: Page, scale: _Scale, roofline: Roofline) -> None:
    """Draw the whole program as a diamond."""
    if not roofline.attained_per_ns:
        return
    x, y = scale.x(roofline.intensity), scale.y(roofline.attained_per_ns)
    page.add(f'<g class="item point"><title>the program: {escape(_rates(roofline))}</title>')
    page.add(f'<path class="program" d="M {x:.2f} {y - 7:.2f} l 7 7 l -7 7 l -7 -7 Z"/></g>')
