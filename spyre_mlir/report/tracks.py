# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bars of the engines of a program over time, merged to the resolution of a picture. Times are picoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spyre_mlir.records import dataclass
from spyre_mlir.timeline import Timeline
from spyre_mlir.timeline.events import Event

#: The engines of each core.
_OF_A_CORE = ("load", "compute", "store")


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


@dataclass(frozen=True)
class Track:
    """An engine and its bars, in order."""

    name: str
    bars: tuple[Bar, ...]


def tracks(timeline: Timeline, least: int, group: int = 0) -> list[Track]:
    """Return the tracks of the engines of a core, the device memory and the ring; idle engines are omitted.

    ``group`` is the index of the core's group in the timeline's ``core_groups``. A bar shorter than ``least`` that
    begins less than ``least`` after the begin of another bar is merged into it.
    """
    bars: dict[str, list[Bar]] = {name: [] for name in (*_OF_A_CORE, "memory read", "memory write", "ring")}
    for event in timeline.run.events:
        position = event.job.position
        execution = timeline.executions[position]
        is_used = timeline.core_groups[group][0] < execution.work.cores
        for name, begin, end in _stretches(event, execution.core_ps[group]):
            if end > begin and (is_used or name not in _OF_A_CORE):
                bars[name].append(Bar(begin, end, position, position, 1, end - begin))
    repeated = [
        Bar(skip.begin, skip.end, min(skip.positions), max(skip.positions), skip.times, skip.end - skip.begin)
        for skip in timeline.run.skips
    ]
    drawn = [Track(name, tuple(_merged(members, least))) for name, members in bars.items() if members]
    return [*drawn, *([Track("repeated", tuple(repeated))] if repeated else [])]


def _stretches(event: Event, computing: int) -> Iterator[tuple[str, int, int]]:
    """Yield (engine, begin, end) of an event; ``computing`` is the compute time of the core."""
    job = event.job
    if job.loads:
        yield "load", event.load_begin, event.load_end
    yield "compute", event.body_begin, event.body_begin + computing
    if job.target is not None:
        yield "store", event.body_begin, event.body_end
    if job.stream:
        yield "memory read", event.stream_begin, event.load_end
    if job.store:
        yield "memory write", event.body_begin, event.memory_end
    yield "ring", event.body_end, event.ring_end


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
