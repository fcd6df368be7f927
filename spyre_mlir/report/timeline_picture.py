# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A picture of the time of a program, as SVG: the work of each engine, with all steps on one axis.

The x axis is device time. Host functions, whose time is not predicted, are gaps of a fixed width between the steps.
The same program gives the same text, byte for byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from spyre_mlir.records import dataclass
from spyre_mlir.report.html import CHARACTER, MARGIN, Page, fitting, time_text
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
        bars: list[dict[str, tuple[Bar, ...]]] = []
        for segment in self.segments:
            # Bars within one pixel are merged.
            is_host = isinstance(segment, HostSegment)
            bars.append({} if is_host else tracks(segment.timeline, round(1 / self.scale)))
        names = [name for name in FILLS if any(name in of_segment for of_segment in bars)]
        bottom = top + (len(names) + 1) * _ROW
        self._draw_ticks(page, top + _ROW, bottom)
        for row, name in enumerate(names):
            page.text(MARGIN, top + (row + 1) * _ROW + _BAR - 3, name)
        for start, segment, of_segment in zip(self.starts, self.segments, bars, strict=True):
            if isinstance(segment, HostSegment):
                text = f"{segment.name}: {segment.operations:,} operations on the host, whose time is not predicted"
                self._draw_step(page, "host", segment.name, text, start, self.gap, bottom - top)
                continue
            x = start
            for name, share in segment.shares:
                text = f"{name}: {time_text(share / 1000)}"
                self._draw_step(page, "step", name, text, x, share * self.scale, _BAR)
                x += share * self.scale
            for row, name in enumerate(names):
                if name in of_segment:
                    page.add(self._path(name, of_segment[name], start, top + (row + 1) * _ROW))

    def _path(self, name: str, bars: Iterable[Bar], start: float, y: float) -> str:
        boxes = ""
        for bar in bars:
            x, width = start + bar.begin * self.scale, max((bar.end - bar.begin) * self.scale, 0.3)
            boxes += f"M{x:.1f} {y}h{width:.1f}v{_BAR}H{x:.1f}z"
        return f'<path class="{name.replace(" ", "-")}" fill="{FILLS[name]}" d="{boxes}"/>'

    def _draw_step(
        self, page: Page, kind: str, name: str, text: str, x: float, width: float, height: float
    ) -> None:
        top = MARGIN + 2 * _ROW
        page.add(
            f"<g><title>{escape(text)}</title>"
            f'<rect class="{kind}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{height}"/></g>',
            x + width,
            top + height if kind == "host" else 0,
        )
        if width > 3 * CHARACTER:
            page.text(round(x + 4, 1), top + _BAR - 4, fitting(name, width - 6))

    def _draw_ticks(self, page: Page, top: float, bottom: float) -> None:
        """Append lines at round device times, each with its time."""
        step, factors = 1, itertools.cycle((2, 2.5, 2))
        # The least step of 1, 2, 5, 10, .. picoseconds with few enough steps.
        while self.total > step * (_WIDTH // _TICK):
            step = int(step * next(factors))
        passed = 0
        for start, segment in zip(self.starts, self.segments, strict=True):
            if not isinstance(segment, DeviceSegment):
                continue
            for time in range(-(-passed // step) * step, passed + segment.total, step):
                x = round(start + (time - passed) * self.scale, 1)
                page.add(f'<path class="tick" d="M{x:g} {top:g}V{bottom:g}"/>')
                page.text(x, bottom + 14, f"{time / 1_000_000:g} µs")
            passed += segment.total


# Bars of the engines of a program over time, merged to the resolution of a picture. Times are picoseconds.


@dataclass(frozen=True)
class Bar:
    """From ``begin`` to ``end`` an engine works on the operations ``first`` to ``last``; ``busy`` excludes gaps.

    ``bars`` is the number of merged bars; for skipped iterations of a loop, the number of iterations.
    """

    begin: int
    end: int
    first: int
    last: int
    bars: int
    busy: int


def tracks(timeline: Timeline, least: int, group: int = 0) -> dict[str, tuple[Bar, ...]]:
    """Return the bars of the engines of a core, the device memory and the ring, in order; idle engines are omitted.

    ``group`` is the index of the core's group in the timeline's ``core_groups``. A bar shorter than ``least`` that
    begins less than ``least`` after the begin of another bar is merged into it.
    """
    bars: dict[str, list[Bar]] = {name: [] for name in FILLS}
    for event in timeline.run.events:
        job, position = event.job, event.job.position
        execution = timeline.executions[position]
        computed = event.body_begin + execution.core_ps[group]
        is_used = timeline.core_groups[group][0] < execution.work.cores
        stretches = (
            ("load", is_used and bool(job.loads), event.load_begin, event.load_end),
            ("compute", is_used, event.body_begin, computed),
            ("store", is_used and job.target is not None, event.body_begin, event.body_end),
            ("memory read", job.stream > 0, event.stream_begin, event.load_end),
            ("memory write", job.store > 0, event.body_begin, event.memory_end),
            ("ring", True, event.body_end, event.ring_end),
        )
        for name, is_busy, begin, end in stretches:
            if is_busy and end > begin:
                bars[name].append(Bar(begin, end, position, position, 1, end - begin))
    drawn = {name: tuple(_merged(members, least)) for name, members in bars.items()}
    drawn["repeated"] = tuple(
        Bar(skip.begin, skip.end, min(skip.positions), max(skip.positions), skip.times, skip.end - skip.begin)
        for skip in timeline.run.skips
    )
    return {name: members for name, members in drawn.items() if members}


def _merged(bars: Iterable[Bar], least: int) -> Iterator[Bar]:
    """Yield the bars in order of their begin; short bars are merged into a bar shortly before them."""
    pending: Bar | None = None
    for bar in sorted(bars, key=lambda item: item.begin):
        if pending is None:
            pending = bar
        elif max(bar.begin - pending.begin, bar.end - bar.begin) < least:
            pending = Bar(
                pending.begin,
                max(pending.end, bar.end),
                min(pending.first, bar.first),
                max(pending.last, bar.last),
                pending.bars + bar.bars,
                pending.busy + bar.busy,
            )
        else:
            yield pending
            pending = bar
    if pending is not None:
        yield pending
