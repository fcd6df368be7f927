# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A picture of the time of a program, as SVG: the work of each engine, with all steps on one axis.

The x axis is device time. Host functions, whose time is not predicted, are gaps of a fixed width between the steps.
The same program gives the same text, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from spyre_mlir.records import dataclass
from spyre_mlir.report.html import fitting, time_text
from spyre_mlir.report.svg import CHARACTER, MARGIN, Page
from spyre_mlir.report.tracks import Bar, tracks
from spyre_mlir.timeline import Timeline

#: Pixels: width of the bars' part, of the names of engines, height of a row and its bar, host gap, tick distance.
_WIDTH, _LABELS, _ROW, _BAR, _GAP, _TICK = 960, 110, 22, 16, 64, 120
#: Maximum fraction of the width for gaps.
_MOST_GAPS = 0.5

#: Fills of the bars by engine.
FILLS = {
    "load": "#9ecae1",
    "compute": "#85cc87",
    "store": "#fdae6b",
    "memory read": "#6baed6",
    "memory write": "#fd8d3c",
    "ring": "#bcbddc",
    "repeated": "#a3a3a3",
}

#: Text for a program without device operations.
NOTHING = "The program takes no time on the device."

_STYLE = """
.step { fill: #f0f0f0; stroke: #767676; stroke-width: 0.8; }
.host { fill: url(#hatch); stroke: #767676; stroke-width: 0.8; }
.tick { stroke: #d9d9d9; stroke-width: 0.8; }
"""


@dataclass(frozen=True)
class DeviceSegment:
    """Consecutive bundles: their names, each with its part of the time in picoseconds."""

    shares: tuple[tuple[str, int], ...]
    timeline: Timeline

    @property
    def total(self) -> int:
        """Picoseconds of all bundles."""
        return self.timeline.run.total


@dataclass(frozen=True)
class HostSegment:
    """A host function, and the number of operations in it."""

    name: str
    operations: int


Segment = DeviceSegment | HostSegment


def picture(segments: Sequence[Segment], name: str = "") -> str:
    """Return the picture as the text of an SVG file; ``name`` is the name of the program, for the title."""
    title = f"Timeline of {name}" if name else "Timeline"
    page = Page(_STYLE)
    page.text(MARGIN, MARGIN, title, "heading")
    axis = _TimeAxis.of(segments)
    total = time_text(axis.total / 1000)
    if not axis.total:
        page.text(MARGIN, MARGIN + _ROW, NOTHING)
        return page.svg(title, NOTHING)
    description = f"{total} on the device, predicted to rank plans."
    if axis.gap:
        description += " Hatched: functions of the host, whose time is not predicted."
    page.text(MARGIN, MARGIN + _ROW, description)
    axis.draw(page)
    return page.svg(title, description)


@dataclass(frozen=True)
class _TimeAxis:
    """Segments with their first pixels; ``scale`` is pixels per picosecond, ``gap`` the pixels of a host function."""

    segments: Sequence[Segment]
    starts: tuple[float, ...]
    total: int
    scale: float
    gap: float

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> _TimeAxis:
        total = sum(segment.total for segment in segments if isinstance(segment, DeviceSegment))
        hosts = sum(isinstance(segment, HostSegment) for segment in segments)
        gap = min(_GAP, _MOST_GAPS * _WIDTH / hosts) if hosts else 0
        scale = (_WIDTH - hosts * gap) / max(total, 1)
        starts, x = [], float(MARGIN + _LABELS)
        for segment in segments:
            starts.append(x)
            x += segment.total * scale if isinstance(segment, DeviceSegment) else gap
        return cls(segments, tuple(starts), total, scale, gap)

    def draw(self, page: Page) -> None:
        """Append the steps, the bars of each engine and the axis."""
        top = MARGIN + 2 * _ROW
        bars = [dict(self._bars(segment)) for segment in self.segments]
        names = [name for name in FILLS if any(name in of_segment for of_segment in bars)]
        bottom = top + (len(names) + 1) * _ROW
        self._draw_ticks(page, top + _ROW, bottom)
        for row, name in enumerate(names):
            page.text(MARGIN, top + (row + 1) * _ROW + _BAR - 3, name)
        for start, segment, of_segment in zip(self.starts, self.segments, bars, strict=True):
            if isinstance(segment, HostSegment):
                self._draw_host(page, segment, start, top, bottom)
                continue
            self._draw_names(page, segment, start, top)
            for row, name in enumerate(names):
                if name in of_segment:
                    page.add(self._path(name, of_segment[name], start, top + (row + 1) * _ROW))

    def _bars(self, segment: Segment) -> Iterator[tuple[str, tuple[Bar, ...]]]:
        if isinstance(segment, DeviceSegment):
            # Bars within one pixel are merged.
            for track in tracks(segment.timeline, round(1 / self.scale)):
                yield track.name, track.bars

    def _path(self, name: str, bars: Iterable[Bar], start: float, y: float) -> str:
        boxes = (
            f"M{start + bar.begin * self.scale:.1f} {y}h{max((bar.end - bar.begin) * self.scale, 0.3):.1f}v{_BAR}"
            f"H{start + bar.begin * self.scale:.1f}z"
            for bar in bars
        )
        return f'<path class="{name.replace(" ", "-")}" fill="{FILLS[name]}" d="{"".join(boxes)}"/>'

    def _draw_names(self, page: Page, segment: DeviceSegment, start: float, top: float) -> None:
        x = start
        for name, share in segment.shares:
            width = share * self.scale
            page.add(
                f"<g><title>{escape(name)}: {escape(time_text(share / 1000))}</title>"
                f'<rect class="step" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{_BAR}"/></g>',
                x + width,
            )
            if width > 3 * CHARACTER:
                page.text(round(x + 4, 1), top + _BAR - 4, fitting(name, width - 6))
            x += width

    def _draw_host(self, page: Page, segment: HostSegment, start: float, top: float, bottom: float) -> None:
        text = f"{segment.name}: {segment.operations:,} operations on the host, whose time is not predicted"
        page.add(
            f"<g><title>{escape(text)}</title>"
            f'<rect class="host" x="{start:.1f}" y="{top}" width="{self.gap:.1f}" height="{bottom - top}"/></g>',
            start + self.gap,
            bottom,
        )
        if self.gap > 3 * CHARACTER:
            page.text(round(start + 4, 1), top + _BAR - 4, fitting(segment.name, self.gap - 6))

    def _draw_ticks(self, page: Page, top: float, bottom: float) -> None:
        """Append lines at round device times, each with its time."""
        step = _round_step(self.total, _WIDTH // _TICK)
        passed = 0
        for start, segment in zip(self.starts, self.segments, strict=True):
            if not isinstance(segment, DeviceSegment):
                continue
            for time in range(-(-passed // step) * step, passed + segment.total, step):
                x = round(start + (time - passed) * self.scale, 1)
                page.add(f'<path class="tick" d="M{x:g} {top:g}V{bottom:g}"/>')
                page.text(x, bottom + 14, f"{time / 1_000_000:g} µs")
            passed += segment.total


def _round_step(total: int, most: int) -> int:
    """Return the least step of 1, 2, 5, 10, .. picoseconds with at most ``most`` steps in ``total``."""
    step, factors = 1, (2, 2.5, 2)
    for count in range(3 * len(str(total)) + 3):
        if total <= step * most:
            break
        step = int(step * factors[count % 3])
    return step
