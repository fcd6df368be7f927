# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bars of the engines of a program over time, as many as a picture has room for. Times are picoseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spyre_mlir.records import dataclass
from spyre_mlir.timeline import Timeline
from spyre_mlir.timeline.events import Event

#: The engines that each core has.
_OF_A_CORE = ("load", "compute", "store")


@dataclass(frozen=True)
class Bar:
    """From ``begin`` to ``end`` an engine works on the operations ``first`` to ``last``; ``busy`` is without gaps.

    ``bars`` are how many were put together, of what a loop repeats how often.
    """

    begin: int
    end: int
    first: int
    last: int
    bars: int
    busy: int


@dataclass(frozen=True)
class Track:
    """An engine and what it does, in order."""

    name: str
    bars: tuple[Bar, ...]


def tracks(timeline: Timeline, least: int, group: int = 0) -> list[Track]:
    """The engines of a core of a group, the device memory and the ring; those that do nothing are left out.

    ``group`` is one of the timeline's ``core_groups``. Bars shorter than ``least`` that begin closer than that behind
    another are one with it.
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
    """Engine, begin and end; ``computing`` is how long the core computes."""
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
    """The bars in order of their begin, short ones together with the one that they are close behind."""
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
