# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A timeline as Chrome trace events, for ui.perfetto.dev and chrome://tracing.

The trace has one process per group of cores that do equal work, with a track per engine and the use of LX; and one
process each for the device memory, the ring, loops, and the modules of the model (submodules on the track below). Times
are microseconds with three decimals. Skipped iterations of a loop are one bar on the track of loops.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from spyre_mlir.timeline.events import Event
from spyre_mlir.timeline.of_design import ranges_text
from spyre_mlir.timeline.timeline import Execution, Timeline

Json = dict[str, Any]

#: Tracks of a process of cores, in the order of the page.
LOAD, COMPUTE, STORE, WAIT = 1, 2, 3, 4
_ENGINES = {LOAD: "load", COMPUTE: "compute", STORE: "store", WAIT: "store, until visible"}
READ, WRITE = 1, 2
CLOCKWISE, COUNTERCLOCKWISE = 1, 2


#: A measured bar: name, begin and length in microseconds, and details.
MeasuredBar = tuple[str, float, float, Json]


def trace_text(
    timeline: Timeline, lx_bytes: Sequence[Sequence[int]] = (), measured: Sequence[MeasuredBar] = ()
) -> str:
    """Return the trace as the text of a JSON file, the same bytes for the same timeline.

    ``lx_bytes`` are, for each group of cores, the occupied bytes of LX at each execute of the program text;
    ``measured`` are kernels of a trace of a card, which have a process of their own.
    """
    events = [*trace_events(timeline, lx_bytes), *_measured_events(len(timeline.core_groups) + 5, measured)]
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in events)
    return f'{{"displayTimeUnit":"ns","traceEvents":[\n{lines}\n]}}\n'


def trace_events(timeline: Timeline, lx_bytes: Sequence[Sequence[int]] = ()) -> list[Json]:
    """Return all events: names of tracks first, then track by track in order of time."""
    writer = _TraceWriter(timeline)
    return [
        *writer.names(),
        *writer.cores(),
        *writer.memory(),
        *writer.ring(),
        *writer.loops(),
        *writer.modules(),
        *writer.flows(),
        *writer.lx_use(lx_bytes),
    ]


def _measured_events(process: int, bars: Sequence[MeasuredBar]) -> Iterator[Json]:
    """Yield the names of the process and its track, and the bars; nothing without bars."""
    if bars:
        yield from _named(process, "measured", {1: "kernels"})
    for name, begin, length, details in bars:
        yield {"ph": "X", "name": name, "pid": process, "tid": 1, "ts": begin, "dur": length, "args": details}


class _TraceWriter:
    """Writer of the trace. Processes: the groups of cores (from 1 on), then memory, ring, loops and modules."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.events = timeline.run.events
        self.executions = {execution.position: execution for execution in timeline.executions}
        count = len(timeline.core_groups)
        self.memory_process, self.ring_process, self.loop_process = count + 1, count + 2, count + 3
        self.module_process = count + 4
        self.paths = {
            execution.position: tuple(filter(None, execution.origin.module.split(".")))
            for execution in timeline.executions
        }

    def names(self) -> Iterator[Json]:
        for process, group in enumerate(self.timeline.core_groups, 1):
            cores = f"{'core' if len(group) == 1 else 'cores'} {ranges_text(group, '-')}"
            yield from _named(process, cores, _ENGINES)
        yield from _named(self.memory_process, "device memory", {READ: "read", WRITE: "write"})
        yield from _named(
            self.ring_process, "ring", {CLOCKWISE: "clockwise", COUNTERCLOCKWISE: "counter-clockwise"}
        )
        yield from _named(self.loop_process, "loops", {1: "repeated iterations"})
        if depths := max(map(len, self.paths.values()), default=0):
            tracks = {depth: f"depth {depth}" for depth in range(1, depths + 1)}
            yield from _named(self.module_process, "modules", tracks)

    def cores(self) -> Iterator[Json]:
        """Yield bars of the engines of each group of cores."""
        for process, group in enumerate(self.timeline.core_groups, 1):
            for event in self.events:
                execution = self._of(event)
                if group[0] < execution.work.cores:
                    yield from self._engines(process, event, execution)

    def _engines(self, process: int, event: Event, execution: Execution) -> Iterator[Json]:
        job, work = event.job, execution.work
        # A click on a bar shows these.
        details: Json = {
            "operation": execution.position,
            "design": execution.filename,
            "source": execution.source,
            "module": execution.origin.module,
            "cores": work.cores,
            "read bytes": work.read_bytes,
            "written bytes": work.written_bytes,
            "bound by": execution.bound_by,
        }
        computed = event.body_begin + execution.core_ps[process - 1]
        if job.loads:
            yield from _bar(process, LOAD, execution.opcode, event.load_begin, event.load_end, details)
        yield from _bar(process, COMPUTE, execution.opcode, event.body_begin, computed, details)
        if job.store:
            yield from _bar(process, STORE, execution.opcode, event.body_begin, event.body_end, details)
        if job.target is not None:
            yield from _bar(
                process, WAIT, execution.opcode, event.visible - job.access, event.visible, details
            )

    def memory(self) -> Iterator[Json]:
        """Yield bars of the streams of device memory, and its bandwidth."""
        for event in self.events:
            execution, job = self._of(event), event.job
            moved = {"bytes": job.load_bytes, "operation": event.job.position}
            if job.stream:
                yield from _bar(
                    self.memory_process, READ, execution.opcode, event.stream_begin, event.load_end, moved
                )
            if job.store:
                moved = {**moved, "bytes": job.store_bytes}
                yield from _bar(
                    self.memory_process, WRITE, execution.opcode, event.body_begin, event.memory_end, moved
                )
        for time, read, written in _steps(self._bandwidth()):
            rates = {"read": round(read, 3), "written": round(written, 3)}
            yield _counter(self.memory_process, "GB/s", time, rates)

    def _bandwidth(self) -> Iterator[tuple[int, int, float, float]]:
        """Yield (begin, end, bytes per nanosecond in, out) before each body, and during it."""
        for event in self.events:
            job = event.job
            # A job without loads has no stream to divide by.
            early = job.load_bytes * event.loaded_early / max(job.stream, 1)
            yield from _rates(event.stream_begin, min(event.load_end, event.body_begin), early, 0)
            yield from _rates(event.body_begin, event.memory_end, job.load_bytes - early, job.store_bytes)

    def ring(self) -> Iterator[Json]:
        """Yield bars of the ring in each direction, and the rate of its busiest link."""
        for event in self.events:
            execution = self._of(event)
            for track, link_bytes in _busiest(execution):
                details: Json = {"relayout of": execution.buffers[0]}
                if execution.work.relayout is None:
                    work = execution.work
                    details = {"partial sums": work.parts, "elements per core": work.outputs_per_core}
                details["bytes of the busiest link"] = link_bytes
                begin, end = event.body_end, event.ring_end
                yield from _bar(self.ring_process, track, execution.opcode, begin, end, details)
        if not self.timeline.links:
            return
        for time, up, down in _steps(self._link_rates()):
            rates = {"clockwise": round(up, 3), "counter-clockwise": round(down, 3)}
            yield _counter(self.ring_process, "busiest link, GB/s", time, rates)

    def _link_rates(self) -> Iterator[tuple[int, int, float, float]]:
        """Yield (begin, end, bytes per nanosecond clockwise, counter-clockwise) of the busiest link."""
        for event in self.events:
            by_track = dict(_busiest(self._of(event)))
            yield from _rates(
                event.body_end, event.ring_end, by_track.get(CLOCKWISE, 0), by_track.get(COUNTERCLOCKWISE, 0)
            )

    def loops(self) -> Iterator[Json]:
        for skip in self.timeline.run.skips:
            details = {"operations": list(skip.positions), "bytes": skip.bytes}
            yield from _bar(self.loop_process, 1, f"{skip.times} times more", skip.begin, skip.end, details)

    def modules(self) -> Iterator[Json]:
        """Yield bars of the modules, each from the body of its first operation to the next operation outside it."""
        begins = [*(event.body_begin for event in self.events), self.timeline.run.total]
        for depth in range(1, max(map(len, self.paths.values()), default=0) + 1):
            ancestors = [self.paths[event.job.position][:depth] for event in self.events]
            for prefix, group in itertools.groupby(range(len(ancestors)), key=ancestors.__getitem__):
                indices = list(group)
                begin, end = begins[indices[0]], begins[indices[-1] + 1]
                if len(prefix) == depth:
                    details = {"module": ".".join(prefix), "operations": len(indices)}
                    # A name that is only a number has the name of the enclosing module before it.
                    name = ".".join(prefix[-2:] if prefix[-1].isdecimal() else prefix[-1:])
                    yield from _bar(self.module_process, depth, name, begin, end, details)

    def flows(self) -> Iterator[Json]:
        """Yield arrows from the computation that defines a buffer to the loads or computations that use it."""
        writers: dict[str, Event] = {}
        number = 0
        for event in self.events:
            *sources, result = self._of(event).buffers
            for operand, source in enumerate(sources):
                maker = writers.get(source)
                # Viewers drop an arrow that begins or ends outside of a bar.
                if maker is None or not (self._is_seen(maker) and self._is_seen(event)):
                    continue
                number += 1
                yield _flow("s", number, source, COMPUTE, maker.body_begin)
                # bp e: the arrow ends at the bar around its time, not at the next one.
                yield {**_flow("f", number, source, *self._taking(event, operand, maker)), "bp": "e"}
            writers[result] = event

    def _is_seen(self, event: Event) -> bool:
        """Return whether a computation is long enough for a bar."""
        computed = event.body_begin + self._of(event).core_ps[0]
        return _nanoseconds(computed) > _nanoseconds(event.body_begin)

    def _taking(self, event: Event, operand: int, maker: Event) -> tuple[int, int]:
        """Return the track of the bar that reads another job's result, and the earliest time of the read."""
        if self._of(event).work.operands[operand].in_lx:
            return COMPUTE, event.body_begin
        return LOAD, max(event.load_begin, maker.visible)

    def lx_use(self, lx_bytes: Sequence[Sequence[int]]) -> Iterator[Json]:
        """Yield a counter of the occupied bytes of LX of each group of cores."""
        for process, taken_bytes in enumerate(lx_bytes, 1):
            last = None
            for event in self.events:
                now = taken_bytes[event.job.position]
                # A counter keeps its value until the next event, so only changes are written.
                if now != last:
                    yield _counter(process, "LX bytes", event.body_begin, {"taken": now})
                last = now
            yield _counter(process, "LX bytes", self.timeline.run.total, {"taken": 0})

    def _of(self, event: Event) -> Execution:
        return self.executions[event.job.position]


def _busiest(execution: Execution) -> Iterator[tuple[int, int]]:
    """Yield the tracks of the ring that an execution uses, with the bytes of the busiest link in the direction."""
    if execution.links is None:
        return
    for track, loads in (
        (CLOCKWISE, execution.links.clockwise),
        (COUNTERCLOCKWISE, execution.links.counterclockwise),
    ):
        if max(loads):
            yield track, max(loads)


def _named(process: int, name: str, tracks: dict[int, str]) -> Iterator[Json]:
    yield _name("process_name", process, 0, {"name": name})
    yield _name("process_sort_index", process, 0, {"sort_index": process})
    for track, title in tracks.items():
        yield _name("thread_name", process, track, {"name": title})
        yield _name("thread_sort_index", process, track, {"sort_index": track})


def _name(kind: str, process: int, track: int, details: Json) -> Json:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "ts": 0, "args": details}


def _microseconds(picoseconds: int) -> float:
    """Convert picoseconds to microseconds, rounded to whole nanoseconds."""
    return _nanoseconds(picoseconds) / 1000


def _nanoseconds(picoseconds: int) -> int:
    return (picoseconds + 500) // 1000


def _bar(process: int, track: int, name: str, begin: int, end: int, details: Json) -> Iterator[Json]:
    """Yield a bar from begin to end; nothing if it is too short to see."""
    length = _nanoseconds(end) - _nanoseconds(begin)
    if length:
        yield {
            "ph": "X",
            "name": name,
            "pid": process,
            "tid": track,
            "ts": _microseconds(begin),
            "dur": length / 1000,
            "args": details,
        }


def _flow(kind: str, number: int, buffer: str, track: int, time: int) -> Json:
    """Return one end of an arrow between bars of the first group of cores."""
    return {
        "ph": kind,
        "cat": "buffer",
        "name": buffer,
        "id": number,
        "pid": 1,
        "tid": track,
        "ts": _microseconds(time),
    }


def _counter(process: int, name: str, time: int, values: Json) -> Json:
    return {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": _microseconds(time), "args": values}


def _rates(begin: int, end: int, read: float, written: float) -> Iterator[tuple[int, int, float, float]]:
    """Yield the bytes of an interval as bytes per nanosecond."""
    # An interval that rounds to zero would have an unbounded rate.
    if _nanoseconds(end) > _nanoseconds(begin) and (read or written):
        nanoseconds = (end - begin) / 1000
        yield begin, end, read / nanoseconds, written / nanoseconds


def _steps(rates: Iterable[tuple[int, int, float, float]]) -> Iterator[tuple[int, float, float]]:
    """Yield the times at which rates change, with the rates from then on; intervals are in order."""
    last = 0
    for begin, end, read, written in rates:
        if _nanoseconds(last) < _nanoseconds(begin):
            yield last, 0.0, 0.0
        yield begin, read, written
        last = end
    yield last, 0.0, 0.0
