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
    """A host function, and the number of operations in it; None for a collective."""

    name: str
    operations: int | None


Segment = DeviceSegment | HostSegment


def picture(segments: Sequence[Segment], name: str = "") -> str:
    """Return the picture as the text of an SVG file; ``name`` is the name of the program, for the title."""
    title = f"Timeline of {name}" if name else "Timeline"
    page = Page(_STYLE)
    page.text(MARGIN, MARGIN, title, "heading")
    total = sum(segment.total for segment in segments if isinstance(segment, DeviceSegment))
    hosts = sum(isinstance(segment, HostSegment) for segment in segments)
    if not total:
        page.text(MARGIN, MARGIN + _ROW, NOTHING)
        return page.svg(title, NOTHING)
    description = f"{time_text(total / 1000)} on the device, predicted to rank plans."
    if hosts:
        description += " Hatched: functions of the host, whose time is not predicted."
    page.text(MARGIN, MARGIN + _ROW, description)

    gap = min(_GAP, _MOST_GAPS * _WIDTH / hosts) if hosts else 0
    scale = (_WIDTH - hosts * gap) / total
    # The least distance of ticks of 1, 2, 5, 10, .. picoseconds with few enough ticks.
    tick, factors = 1, itertools.cycle((2, 2.5, 2))
    while total > tick * (_WIDTH // _TICK):
        tick = int(tick * next(factors))
    # Bars within one pixel are merged.
    bars: list[dict[str, tuple[Bar, ...]]] = [
        tracks(segment.timeline, round(1 / scale)) if isinstance(segment, DeviceSegment) else {}
        for segment in segments
    ]
    names = [name for name in FILLS if any(name in of_segment for of_segment in bars)]
    top, x, passed = MARGIN + 2 * _ROW, float(MARGIN + _LABELS), 0
    bottom = top + (len(names) + 1) * _ROW
    for row, name in enumerate(names, 1):
        page.text(MARGIN, top + row * _ROW + _BAR - 3, name)
    for segment, of_segment in zip(segments, bars, strict=True):
        if isinstance(segment, HostSegment):
            work = (
                "on the link"
                if segment.operations is None
                else f"{segment.operations:,} operations on the host"
            )
            text = f"{segment.name}: {work}, whose time is not predicted"
            _step(page, "host", segment.name, text, x, gap, bottom - top)
            x += gap
            continue
        for time in range(-(-passed // tick) * tick, passed + segment.total, tick):
            at = round(x + (time - passed) * scale, 1)
            page.add(f'<path class="tick" d="M{at:g} {top + _ROW:g}V{bottom:g}"/>')
            page.text(at, bottom + 14, f"{time / 1_000_000:g} µs")
        begin = x
        for name, share in segment.shares:
            _step(page, "step", name, f"{name}: {time_text(share / 1000)}", begin, share * scale, _BAR)
            begin += share * scale
        for row, name in enumerate(names, 1):
            boxes = "".join(
                f"M{x + bar.begin * scale:.1f} {top + row * _ROW}h{max((bar.end - bar.begin) * scale, 0.3):.1f}v{_BAR}"
                f"H{x + bar.begin * scale:.1f}z"
                for bar in of_segment.get(name, ())
            )
            if boxes:
                page.add(f'<path class="{name.replace(" ", "-")}" fill="{FILLS[name]}" d="{boxes}"/>')
        x += segment.total * scale
        passed += segment.total
    return page.svg(title, description)


def _step(page: Page, kind: str, name: str, text: str, x: float, width: float, height: float) -> None:
    """Draw the box of a bundle, or of a host function, with its tooltip and its name."""
    top = MARGIN + 2 * _ROW
    box = f'<rect class="{kind}" x="{x:.1f}" y="{top}" width="{width:.1f}" height="{height}"/>'
    page.add(f"<g><title>{escape(text)}</title>{box}</g>", x + width, top + height if kind == "host" else 0)
    if width > 3 * CHARACTER:
        page.text(round(x + 4, 1), top + _BAR - 4, fitting(name, width - 6))


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
