# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulation of the machine that runs a bundle: its engines and their order of work. No bundle; integers only.

All cores run one program in order, so the engines of all cores work on the same operation: a job is one operation on
all its cores. Times are picoseconds. The rules are the setting ``overlapped`` of docs/concurrency.md; in the setting
``sequential`` a job begins when the previous job has ended and its result is visible.

load     The loads of one job at a time, which wait for their first bytes one after another and then stream. A load
         begins when its source is visible: *early*, while the previous job computes, if LX has capacity next to that
         job's data, else after that job. No load begins two jobs ahead: half of LX is in use, the other half is filled.
compute  The *body* of one job at a time; it begins when the first bytes of all loads have arrived. Tiles stream in and
         out meanwhile, and each slows the other: a body takes hypot(compute, remaining stream time).
ring     The partial sums of a split reduction, after the body; a shuffle, whose body is empty.
store    A stored result is visible one wait after its last byte; stores are in order.
memory   The streams of one job at a time, which share the memory fairly, then the turnarounds of its bus. Bytes that
         need not stream move whenever the memory is idle, but the total time covers all bytes at the peak rate.

Each time grows with every duration that it depends on, by at most this duration. So a shorter duration never delays
anything, one job alone takes the time of the cost model, and a loop becomes periodic and is not simulated to its end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import field, replace

from spyre_mlir.records import dataclass

#: The settings of overlap between jobs: which loads may begin before the previous job has ended.
OVERLAPPED, SEQUENTIAL = OVERLAPS = ("overlapped", "sequential")

#: The parts of a time.
PARTS = ("compute", "memory", "ring", "overhead")


@dataclass(frozen=True)
class OperandLoad:
    """A load of an operand in device memory: stream time alone, whether it may begin early, bytes moved.

    ``sources`` are the stores of bytes that it reads, by the ``target`` of their jobs: it begins when all are visible.
    ``reuses`` names the buffer in use because of which it does not begin early, if any.
    """

    sources: tuple[Hashable, ...]
    stream: int
    early: bool = True
    bytes: int = 0
    reuses: str = ""


@dataclass(frozen=True)
class Job:
    """One operation, at a ``position`` of the program text.

    ``target`` identifies the store of the job to device memory, if any; ``store`` is the stream time of this write.
    ``access`` is the wait for the first byte of a load, and for a store to be visible. ``least`` is the minimum time of
    the memory for all bytes that the job moves under the plan, at any time. No time depends on the fields in bytes.
    """

    position: int
    loads: tuple[OperandLoad, ...] = ()
    compute: int = 0
    ring: int = 0
    target: Hashable | None = None
    store: int = 0
    turnaround: int = 0
    access: int = 0
    store_bytes: int = 0
    least: int = 0

    @property
    def load_bytes(self) -> int:
        """Bytes that all loads of the job move."""
        return sum(load.bytes for load in self.loads)

    @property
    def stream(self) -> int:
        """Stream time of all loads of the job."""
        return sum(load.stream for load in self.loads)

    @property
    def memory(self) -> int:
        """Time that the job occupies the memory."""
        return self.stream + self.store + self.turnaround

    @property
    def overhead(self) -> int:
        """Sum of the job's waits."""
        return self.access * (len(self.loads) + (self.target is not None))

    @property
    def alone(self) -> int:
        """Time of the job if nothing else runs."""
        return _overlapped(self.compute, self.memory) + self.ring + self.overhead

    @property
    def serial(self) -> int:
        """Time of the job if nothing overlaps."""
        return self.compute + self.memory + self.ring + self.overhead


@dataclass(frozen=True)
class Repeat:
    """A body that runs ``count`` times."""

    count: int
    body: tuple[Job | Repeat, ...]


Program = Sequence["Job | Repeat"]


@dataclass(frozen=True)
class Event:
    """The times of one run of a job.

    The loads begin at ``load_begin``, stream from ``stream_begin`` and end at ``load_end``; ``loaded_early`` is the
    part of the stream time before the body begins. ``memory_end`` is the time of the last byte, in or out. The cores
    are free at ``ring_end``; a result in device memory is ``visible`` later.
    """

    job: Job
    load_begin: int
    stream_begin: int
    load_end: int
    loaded_early: int
    body_begin: int
    memory_end: int
    body_end: int
    ring_end: int
    visible: int


@dataclass(frozen=True)
class Skip:
    """From ``begin`` to ``end`` the jobs at ``positions`` repeat ``times`` times the period just before.

    ``bytes`` are the bytes that move during the skip.
    """

    begin: int
    end: int
    times: int
    positions: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Shares:
    """Breakdown of the program's time into parts, every picosecond counted once; ``runs`` is the number of job runs."""

    memory: int = 0
    compute: int = 0
    ring: int = 0
    overhead: int = 0
    runs: int = 0

    @property
    def total(self) -> int:
        return self.memory + self.compute + self.ring + self.overhead

    @property
    def bound_by(self) -> str:
        """Return the longest part: 'compute', 'memory', 'ring' or 'overhead'; the first one in a tie."""
        return max(PARTS, key=lambda part: getattr(self, part))

    def plus(self, other: Shares, times: int = 1) -> Shares:
        """Return the shares plus ``times`` times ``other``."""
        return Shares(
            self.memory + times * other.memory,
            self.compute + times * other.compute,
            self.ring + times * other.ring,
            self.overhead + times * other.overhead,
            self.runs + times * other.runs,
        )


@dataclass
class TimelineRun:
    """Result of a simulation: events, skipped periods, and shares by position in the program text."""

    events: list[Event] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    shares: dict[int, Shares] = field(default_factory=dict)
    total: int = 0


def simulate(program: Program, overlap: str = OVERLAPPED) -> TimelineRun:
    """Run a program on the machine; ``overlap`` is one of ``OVERLAPS``."""
    machine = _Engines(is_sequential=overlap == SEQUENTIAL)
    machine.run(program)
    return machine.finished(least(program))


def lower(program: Program) -> int:
    """Return the time if everything overlaps: nothing waits, and the busier of compute and memory is never idle."""
    jobs = list(counted(program))
    memory = sum(count * job.memory for job, count in jobs)
    return max(sum(count * job.compute for job, count in jobs), memory, least(program))


def upper(program: Program) -> int:
    """Return the time if nothing overlaps."""
    return max(sum(count * job.serial for job, count in counted(program)), least(program))


def least(program: Program) -> int:
    """Return the floor: the time of all bytes of the plan at the memory's peak rate."""
    return sum(count * job.least for job, count in counted(program))


def counted(program: Program, times: int = 1) -> Iterator[tuple[Job, int]]:
    """Yield each job of a program and the number of its runs."""
    for node in program:
        if isinstance(node, Job):
            yield node, times
        else:
            yield from counted(node.body, times * node.count)


def with_second_buffers(program: Program, positions: Collection[int]) -> tuple[Job | Repeat, ...]:
    """Return the program whose loads at these positions do not wait for a buffer in use."""

    def changed(node: Job | Repeat) -> Job | Repeat:
        if isinstance(node, Repeat):
            return Repeat(node.count, tuple(map(changed, node.body)))
        if node.position not in positions:
            return node
        return replace(
            node, loads=tuple(replace(load, early=load.early or bool(load.reuses)) for load in node.loads)
        )

    return tuple(map(changed, program))


def _overlapped(compute: int, memory: int) -> int:
    """Return ``cost_model.overlapped`` in picoseconds, rounded down; it still grows by at most its arguments."""
    return math.isqrt(compute * compute + memory * memory)


@dataclass
class _Engines:
    """The times when engines are free: ``cores`` from now on; ``before`` is the value of ``cores`` one job earlier.

    ``moved`` is the number of bytes moved so far. If ``is_sequential``, nothing begins before the previous job ends.
    """

    memory: int = 0
    cores: int = 0
    before: int = 0
    store: int = 0
    moved: int = 0
    is_sequential: bool = False
    visible: dict[Hashable, int] = field(default_factory=dict)
    result: TimelineRun = field(default_factory=TimelineRun)

    def run(self, program: Iterable[Job | Repeat]) -> None:
        for node in program:
            if isinstance(node, Job):
                self._job(node)
            else:
                self._repeat(node)

    def finished(self, least: int) -> TimelineRun:
        """Return the run, including the wait for the last store and for the memory to move all bytes."""
        run = self.result
        stored = max(self.cores, self.store)
        run.total = max(stored, least)
        if run.events:
            last = run.events[-1].job.position
            # This time counts for the last operation, so that the shares add up to the total.
            behind = Shares(overhead=stored - self.cores, memory=run.total - stored)
            run.shares[last] = run.shares[last].plus(behind)
        return run

    # -- jobs ------------------------------------------------------------------------------------------

    def _job(self, job: Job) -> None:
        """Append the event of a job: when its loads, body, ring transfer and stores begin and end."""
        begun, waited, streamed = self._loads(job)
        body = max(self.cores, waited, self.store if self.is_sequential else 0)
        outgoing = job.store + job.turnaround
        # No byte is stored before the body begins, and loads and stores share the memory.
        memory = max(streamed, body) + outgoing if outgoing else streamed
        end = body + _overlapped(job.compute, max(0, memory - body))
        free = end + job.ring
        visible = free if job.target is None else max(free, self.store) + job.access
        self.result.events.append(
            Event(
                job,
                load_begin=begun,
                stream_begin=begun + job.access,
                # Loads that stream during the body share the memory with the store, so both end together.
                load_end=streamed if streamed <= body else memory,
                loaded_early=job.stream - min(job.stream, max(0, streamed - body)),
                body_begin=body,
                memory_end=memory,
                body_end=end,
                ring_end=free,
                visible=visible,
            )
        )
        self._count(job, body, end, free, by_memory=memory > body + job.compute)
        self.before, self.cores, self.memory = self.cores, free, memory
        self.moved += job.load_bytes + job.store_bytes
        if job.target is not None:
            self.store = self.visible[job.target] = visible

    def _loads(self, job: Job) -> tuple[int, int, int]:
        """Return when the loads begin, when all have their first byte, and when they end if nothing is stored.

        The loads are in the order in which their sources are ready, which is the fastest order.
        """
        waited = streamed = self.memory
        begins = []
        for ready, stream in sorted((self._ready(load), load.stream) for load in job.loads):
            begins.append(max(ready, waited))
            waited = begins[-1] + job.access
            streamed = max(begins[-1], streamed) + job.access + stream
        return (begins[0] if begins else self.cores), waited, streamed

    def _ready(self, load: OperandLoad) -> int:
        if self.is_sequential:
            return max(self.cores, self.store)
        visible = max((self.visible.get(source, 0) for source in load.sources), default=0)
        return max(visible, self.before if load.early else self.cores)

    def _count(self, job: Job, body: int, end: int, free: int, *, by_memory: bool) -> None:
        shares = Shares(
            memory=end - body if by_memory else 0,
            compute=0 if by_memory else end - body,
            ring=free - end,
            overhead=body - self.cores,
            runs=1,
        )
        self.result.shares[job.position] = self.result.shares.get(job.position, Shares()).plus(shares)

    # -- loops -----------------------------------------------------------------------------------------

    def _repeat(self, repeat: Repeat) -> None:
        """Run a body until the state of the machine before an iteration recurs, then skip the remaining periods."""
        positions = tuple(dict.fromkeys(job.position for job, runs in counted(repeat.body) if runs))
        seen: dict[Hashable, tuple[int, int, int, dict[int, Shares]]] = {}
        remaining = repeat.count
        while remaining:
            state = self._state()
            if state in seen:
                # Popped: the state after the skip is the same, and finding it again would never end.
                before, begun, moved, shares = seen.pop(state)
                times, remaining = divmod(remaining, before - remaining)
                self._skip(times, self.cores - begun, self.moved - moved, positions, shares)
                continue
            shares = {position: self.result.shares.get(position, Shares()) for position in positions}
            seen[state] = remaining, self.cores, self.moved, shares
            self.run(repeat.body)
            remaining -= 1

    def _state(self) -> Hashable:
        """Return the state that later times depend on, relative to now; times in the past make no difference."""
        return (
            # No load begins before ``before``, so a memory that is free earlier is free then.
            max(self.memory, self.before) - self.cores,
            self.before - self.cores,
            max(self.store, self.cores) - self.cores,
            frozenset(
                (store, time - self.cores) for store, time in self.visible.items() if time > self.before
            ),
        )

    def _skip(
        self, times: int, period: int, moved: int, positions: tuple[int, ...], since: dict[int, Shares]
    ) -> None:
        """Advance the time by ``times`` periods; ``since`` are the shares at the begin of the last period.

        ``moved`` is the number of bytes of a period.
        """
        if not times:
            return
        shift = times * period
        self.result.skips.append(Skip(self.cores, self.cores + shift, times, positions, times * moved))
        self.moved += times * moved
        for position in positions:
            now = self.result.shares[position]
            self.result.shares[position] = now.plus(now.plus(since[position], -1), times)
        self.memory, self.cores, self.before, self.store = (
            time + shift for time in (self.memory, self.cores, self.before, self.store)
        )
        self.visible = {store: time + shift for store, time in self.visible.items()}
