# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The timeline of a bundle: predicted time in total and of each execution, with a lower and an upper bound.

The times are meant to rank plans, not to predict microseconds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.context import Context, ExecuteStep, Tree
from spyre_mlir.bundle.core_slices import core_regions
from spyre_mlir.bundle.model import Buffer, Bundle, Design, Operand, Origin
from spyre_mlir.bundle.sequence import LX
from spyre_mlir.cost.cost_model import compute_ns, least_ns, memory_ns, ring_ns, stream_ns
from spyre_mlir.cost.ring_traffic import LinkLoads, link_ns
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.division.ownership import CoreRegion
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import Kind
from spyre_mlir.target.target import Target
from spyre_mlir.timeline.events import (
    OVERLAPPED,
    Job,
    OperandLoad,
    Repeat,
    Shares,
    TimelineRun,
    counted,
    least,
    lower,
    simulate,
    upper,
    with_second_buffers,
)
from spyre_mlir.timeline.of_design import DesignWork, core_groups, work_of_designs

# Load of each link of the ring while a program runs: its bytes and its busy time.


@dataclass(frozen=True)
class LinkUse:
    """A link of a ring of ``nodes`` in one direction.

    In the program ``bytes`` cross the link, which takes ``busy_ps`` at the rate of the link.

    Clockwise, link ``l`` leads from core ``l`` to the next core; counter-clockwise, it leads back.
    """

    link: int
    nodes: int
    clockwise: bool
    bytes: int
    busy_ps: int

    @property
    def cores(self) -> tuple[int, int]:
        """The cores (from, to) that the link connects."""
        following = (self.link + 1) % self.nodes
        return (self.link, following) if self.clockwise else (following, self.link)

    @property
    def name(self) -> str:
        return "core {} to {}".format(*self.cores)


def link_uses(target: Target, runs: Iterable[tuple[LinkLoads | None, int]]) -> tuple[LinkUse, ...]:
    """Return the use of each link clockwise, then of each counter-clockwise; empty if nothing uses the ring.

    ``runs`` has for each operation its link loads (None if it has none) and the number of its runs.
    """
    loading = [(loads, times) for loads, times in runs if loads is not None and loads.busiest_bytes]
    if not loading:
        return ()
    return tuple(
        LinkUse(link, target.device_cores, clockwise, bytes_, picoseconds(link_ns(target, bytes_)))
        for clockwise in (True, False)
        for link in range(target.device_cores)
        for bytes_ in [sum(times * loads.of(clockwise)[link] for loads, times in loading)]
    )


def busiest(uses: Iterable[LinkUse]) -> LinkUse:
    """Return the link use with the most bytes, the first one in a tie."""
    return max(uses, key=lambda use: use.bytes)


#: The cores of each group, which do equal work.
CoreGroups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Execution:
    """One execute of the program text and all its runs.

    Attributes:
        position: Its position in the program.
        filename: The file of its design.
        origin: The source location that it comes from.
        buffers: The buffers of its operands, the result last.
        work: Its operation as input of the cost model.
        operations: Operations of all cores in one run.
        lanes: Element slots of the vector unit.
        links: Loads of the ring's links in one run; None if the execution does not use the ring.
        core_ps: Picoseconds that a core of each group computes.
        shares: Its part of the program's time, all runs together.
        alone_ps: Picoseconds that it takes alone, all runs together.
        moved_bytes: Bytes that move, all runs together: fewer than in the plan if the backend still has the data that
            it needs.
    """

    position: int
    filename: str
    origin: Origin
    buffers: tuple[str, ...]
    work: OperationWork
    operations: int
    lanes: int
    links: LinkLoads | None
    core_ps: tuple[int, ...]
    shares: Shares
    alone_ps: int
    moved_bytes: int

    @property
    def opcode(self) -> str:
        """The device operation."""
        return self.work.opcode

    @property
    def source(self) -> str:
        """``file:line:column`` that the execution comes from; empty if the bundle does not know it."""
        return self.origin.source

    @property
    def runs(self) -> int:
        """Number of runs: the iterations of the loops around the execution."""
        return self.shares.runs

    @property
    def is_restickify(self) -> bool:
        """Return whether the execution only changes the stick dim of a tensor."""
        return self.work.kind is Kind.RESTICKIFY

    @property
    def read_bytes(self) -> int:
        """Bytes read from device memory under the plan, all runs together."""
        return self.runs * self.work.read_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes written to device memory under the plan, all runs together."""
        return self.runs * self.work.written_bytes

    @property
    def total_ns(self) -> float:
        """Nanoseconds of the program's time that the execution accounts for, all runs together."""
        return self.shares.total / 1000

    @property
    def bound_by(self) -> str:
        """Return the part of the machine that accounts for most of the execution's time."""
        return self.shares.bound_by


@dataclass(frozen=True)
class BufferWait:
    """Copies into LX that wait for the previous operation, because it uses the bytes of their result.

    Attributes:
        position: The position of the copy in the program.
        buffer: The buffer of its result.
        used: The buffer of the previous operation that has bytes of the result.
        bytes: The bytes of the result on a core: the size of a second buffer.
        saved_ps: The picoseconds by which the program is shorter with a second buffer.
    """

    position: int
    buffer: str
    used: str
    bytes: int
    saved_ps: int

    @property
    def saved_us(self) -> float:
        """The microseconds that a second buffer saves."""
        return self.saved_ps / 1e6


@dataclass(frozen=True)
class Timeline:
    """The time of a bundle.

    Attributes:
        executions: Each execute of the program text, in order.
        core_groups: Groups of cores that do equal work.
        run: The events.
        target: The device of the bundle.
        lower_ps: Picoseconds if everything overlaps.
        upper_ps: Picoseconds if nothing overlaps.
        overlap: The setting of the events, "overlapped" or "sequential" (docs/concurrency.md).
        sequential_ps: Picoseconds in the setting "sequential".
        jobs: The jobs of the executions, in order.
        sizes: The bytes of each buffer; in LX, on a core.
    """

    executions: tuple[Execution, ...]
    core_groups: CoreGroups
    run: TimelineRun
    target: Target
    lower_ps: int
    upper_ps: int
    overlap: str
    sequential_ps: int
    jobs: tuple[Job | Repeat, ...] = field(repr=False)
    sizes: Mapping[str, int] = field(repr=False)

    @functools.cached_property
    def buffer_waits(self) -> tuple[BufferWait, ...]:
        """The copies that wait for a buffer in use, each with the price of the wait, the largest price first."""
        if self.overlap != OVERLAPPED:
            return ()
        waiting = dict[int, str]()
        for job, _ in counted(self.jobs):
            waiting.update((job.position, load.reuses) for load in job.loads if load.reuses)
        found = []
        for position, used in waiting.items():
            saved = self.run.total - simulate(with_second_buffers(self.jobs, {position})).total
            buffer = self.executions[position].buffers[-1]
            found.append(BufferWait(position, buffer, used, self.sizes[buffer], saved))
        return tuple(sorted(found, key=lambda wait: (-wait.saved_ps, wait.position)))

    @functools.cached_property
    def buffer_wait_ns(self) -> float:
        """The nanoseconds by which the program is shorter if no copy waits for a buffer in use."""
        positions = {wait.position for wait in self.buffer_waits}
        return (self.run.total - simulate(with_second_buffers(self.jobs, positions)).total) / 1000

    @property
    def total_ns(self) -> float:
        """The predicted nanoseconds of the program."""
        return self.run.total / 1000

    @property
    def lower_ns(self) -> float:
        """The nanoseconds if everything overlaps."""
        return self.lower_ps / 1000

    @property
    def upper_ns(self) -> float:
        """The nanoseconds if nothing overlaps."""
        return self.upper_ps / 1000

    @property
    def sequential_ns(self) -> float:
        """The nanoseconds if each operation waits for the previous one."""
        return self.sequential_ps / 1000

    @functools.cached_property
    def read_bytes(self) -> int:
        """Bytes that the program reads from device memory under the plan."""
        return sum(execution.read_bytes for execution in self.executions)

    @functools.cached_property
    def written_bytes(self) -> int:
        """Bytes that the program writes to device memory under the plan."""
        return sum(execution.written_bytes for execution in self.executions)

    @functools.cached_property
    def shares(self) -> Shares:
        """The time of the program, broken down by part of the machine."""
        total = Shares()
        for execution in self.executions:
            total = total.plus(execution.shares)
        return total

    @functools.cached_property
    def links(self) -> tuple[LinkUse, ...]:
        """Use of the links of the ring, in each direction; empty if no operation uses the ring."""
        return link_uses(self.target, [(execution.links, execution.runs) for execution in self.executions])

    @property
    def bound_by(self) -> str:
        """The part that accounts for most of the time: 'memory', 'compute', 'ring' or 'overhead'."""
        return self.shares.bound_by

    def __str__(self) -> str:
        if not self.executions:
            return "0.0 us, no operation"
        total, low, high = (time / 1000 for time in (self.total_ns, self.lower_ns, self.upper_ns))
        return f"{total:.1f} us ({low:.1f} .. {high:.1f}), bound by {self.bound_by}"


def timeline(bundle: Bundle, lx_backend_fraction: float | None = None, overlap: str = OVERLAPPED) -> Timeline:
    """Return the timeline of a bundle.

    Args:
        bundle: The bundle, written by any compiler.
        lx_backend_fraction: The part of LX, 0 to 1, that the backend keeps; by default the part of the bundle's target.
        overlap: "overlapped" if loads may begin before the previous operation has ended, else "sequential".

    Raises:
        CompileError: The parts of the bundle are inconsistent.
    """
    # The compiler calls ``timeline_of`` for its own bundles, without the checks for foreign bundles.
    from spyre_mlir.bundle.validate import sound_context

    return timeline_of(sound_context(bundle, lx_backend_fraction), work_of_designs(bundle), overlap)


def timeline_of(
    context: Context, work_by_file: Mapping[str, DesignWork], overlap: str = OVERLAPPED
) -> Timeline:
    """Return the timeline of a bundle whose structure is sound, given its ``work_by_file``."""
    groups = core_groups(work_by_file.values())
    program = _jobs(context, work_by_file)
    run = simulate(program, overlap)
    alone, moved = Counter[int](), Counter[int]()
    for job, runs in counted(program):
        # A loop has several jobs for one execute, because its first iteration is separate.
        alone[job.position] += runs * job.alone
        moved[job.position] += runs * (job.load_bytes + job.store_bytes)
    executions = []
    for step in context.steps:
        design = work_by_file[step.execute.filename]
        using = [group[0] for group in groups if group[0] < design.design.cores]
        core_ps = [picoseconds(compute_ns(design.work_of_core(core))) for core in using]
        executions.append(
            Execution(
                position=step.position,
                filename=step.execute.filename,
                origin=step.origin,
                buffers=context.uses(step),
                work=design.work,
                operations=design.operations,
                lanes=design.lanes,
                links=design.links,
                # Groups are in order of their cores, so those that the design does not use are last.
                core_ps=(*core_ps, *[0] * (len(groups) - len(core_ps))),
                shares=run.shares.get(step.position, Shares()),
                alone_ps=alone[step.position],
                moved_bytes=moved[step.position],
            )
        )
    bounds, sequential = (lower(program), upper(program)), max(alone.total(), least(program))
    sizes = {name: buffer.bytes for name, buffer in context.buffers.items()}
    return Timeline(
        tuple(executions), groups, run, context.target, *bounds, overlap, sequential, program, sizes
    )


# Jobs of a bundle for the machine of ``events.py``: the duration of each operation, and the data that it waits for.

_COPY = "identity"


@dataclass(frozen=True, eq=False)
class _Visit:
    """A step in one of the differing iterations of its loops: ``firsts`` says for each loop whether it is the first.

    Visits are compared by identity.
    """

    step: ExecuteStep
    firsts: tuple[bool, ...]

    @property
    def store(self) -> _Store:
        """The key of the store of the visit."""
        return self.step.position, self.firsts


#: A visit that stores: its position, and for each loop whether it is the first iteration.
_Store = tuple[int, tuple[bool, ...]]

#: The program with peeled loops: visits, or a repeat count with the visits that are repeated.
_Visits = list["_Visit | tuple[int, _Visits]"]


def _jobs(context: Context, work_by_file: Mapping[str, DesignWork]) -> tuple[Job | Repeat, ...]:

    def flat(visits: _Visits) -> Iterator[_Visit]:
        for node in visits:
            if isinstance(node, _Visit):
                yield node
            else:
                yield from flat(node[1])

    def with_jobs(visits: _Visits) -> tuple[Job | Repeat, ...]:
        return tuple(
            next(jobs) if isinstance(node, _Visit) else Repeat(node[0], with_jobs(node[1])) for node in visits
        )

    peeled = _peeled(context.tree, ())
    visits = list(flat(peeled))
    operations = [work_by_file[visit.step.execute.filename].work for visit in visits]
    again, stores = _reused(context, visits, operations), _Stores(context, visits)
    jobs = iter(
        [
            _job(context, stores, *each)
            for each in zip(visits, operations, again, [None, *visits], strict=False)
        ]
    )
    return with_jobs(peeled)


def _peeled(tree: Tree, firsts: tuple[bool, ...]) -> _Visits:
    """Return the steps in order; each loop is its first iteration and then the repeated other iterations.

    The first iteration is separate, because its initial state differs from later iterations: the data that the previous
    job has in LX, and the data that has already been fetched.
    """
    visits: _Visits = []
    for node in tree:
        if isinstance(node, ExecuteStep):
            visits.append(_Visit(node, firsts))
            continue
        loop, body = node
        if loop.count:
            visits += _peeled(body, (*firsts, True))
        if loop.count > 1:
            visits.append((loop.count - 1, _peeled(body, (*firsts, False))))
    return visits


#: Sticks of a buffer: the first, the end, and a mask of the sticks between them, or None for all of them.
_Sticks = tuple[int, int, "NDArray[np.bool_] | None"]


class _Stores:
    """The visits that store the sticks that a load reads, exact for affine regions."""

    def __init__(self, context: Context, visits: Iterable[_Visit]) -> None:
        self._context, self._unit = context, context.target.stick_bytes
        self._ranges = {range_.atom: range_ for range_ in context.indices}
        self._positions, self._sticks = _storing(context), functools.cache(self._sticks_of)
        self._visits = dict[int, list[_Store]]()
        for visit in visits:
            self._visits.setdefault(visit.step.position, []).append(visit.store)

    def of(self, visit: _Visit, operand: int) -> tuple[_Store, ...]:
        """Return the visits whose stores an operand of a visit waits for."""
        positions = self._positions[self._context.uses(visit.step)[operand]]
        return tuple(
            store
            for position in positions
            for store in self._visits.get(position, ())
            if self._meet((*visit.store, operand), (*store, -1))
        )

    def _meet(self, one: tuple[int, tuple[bool, ...], int], other: tuple[int, tuple[bool, ...], int]) -> bool:
        (first, end, mask), (other_first, other_end, other_mask) = self._sticks(*one), self._sticks(*other)
        low, high = max(first, other_first), min(end, other_end)
        masks = [
            each[low - begin : high - begin]
            for each, begin in ((mask, first), (other_mask, other_first))
            if each is not None
        ]
        return low < high and (not masks or bool(np.logical_and.reduce(masks).any()))

    def _sticks_of(self, position: int, firsts: tuple[bool, ...], index: int) -> _Sticks:
        """Return the sticks of an operand, -1 for the result, in a visit; a run-time index has any value."""
        step = self._context.steps[position]
        operand, ranges = step.design.operands[index], dict(self._ranges)
        for loop, is_first in zip(step.loops, firsts, strict=True):
            second = loop.lower + loop.step
            ends = (loop.lower, second) if is_first else (second, loop.upper)
            ranges[loop.atom] = replace(loop, lower=ends[0], upper=ends[1])
        parts = list[tuple[int, CoreRegion]]()
        for core, region in core_regions(step.design, operand, valid=index >= 0).items():
            start, steps = step.values[operand.start[core]], region.steps
            begin = start.offset
            for atom, factor in start.terms:
                if atom in ranges:
                    begin += factor * ranges[atom].lower
                    steps = (*steps, (factor * ranges[atom].step // self._unit, ranges[atom].count))
            parts.append((begin // self._unit, CoreRegion(0, steps)))
        parts = list(dict.fromkeys(part for part in parts if min(part[1].counts, default=1)))
        if not parts:
            return 0, 0, None
        first, end = min(start for start, _ in parts), max(start + region.span for start, region in parts)
        mask = np.zeros(end - first, bool)
        for start, region in parts:
            region.view(mask, start - first)[...] = True
        return first, end, None if mask.all() else mask


def _storing(context: Context) -> dict[str, tuple[int, ...]]:
    """Return for each buffer the positions of the executes that store to bytes of the buffer in device memory."""
    stored = dict[str, list[int]]()
    for step in context.steps:
        stored.setdefault(context.uses(step)[-1], []).append(step.position)
    clusters, ends = dict[str, list[list[Buffer]]](), dict[str, int]()
    # Buffers in the order of their addresses: a buffer that begins before all earlier ones end joins their cluster.
    for buffer in sorted(context.buffers.values(), key=lambda each: each.offset):
        if buffer.base == LX:
            continue
        if buffer.offset >= ends.get(buffer.base, 0):
            clusters.setdefault(buffer.base, []).append([])
        clusters[buffer.base][-1].append(buffer)
        ends[buffer.base] = max(ends.get(buffer.base, 0), buffer.offset + buffer.bytes)
    return {
        buffer.name: tuple(
            position
            for other in cluster
            if other.name in stored and buffer.overlaps(other)
            for position in stored[other.name]
        )
        for of_base in clusters.values()
        for cluster in of_base
        for buffer in cluster
    }


def _job(
    context: Context,
    stores: _Stores,
    visit: _Visit,
    work: OperationWork,
    again: Collection[int],
    before: _Visit | None,
) -> Job:
    """Return the job of a visit after the visit ``before``; the operands ``again`` need not move."""
    output = work.operands[-1]
    fetched = [not (operand.in_lx or number in again) for number, operand in enumerate(work.operands)]
    operands = list(zip(work.operands, fetched, strict=True))
    streams = [picoseconds(stream_ns(work, operand)) if moves else 0 for operand, moves in operands]
    sizes = [operand.bytes if moves else 0 for operand, moves in operands]
    loaded = [number for number, operand in enumerate(work.operands[:-1]) if not operand.in_lx]
    load_bytes = [work.operands[number].core_bytes if fetched[number] else 0 for number in loaded]
    early, reuses = _begins_early(context, visit, load_bytes, output, before)
    moving = replace(
        work,
        operands=tuple(
            replace(operand, in_lx=operand.in_lx or number in again)
            for number, operand in enumerate(work.operands)
        ),
    )
    return Job(
        visit.step.position,
        tuple(
            OperandLoad(stores.of(visit, number), streams[number], begins, sizes[number], reuses)
            for number, begins in zip(loaded, early, strict=True)
        ),
        compute=picoseconds(compute_ns(work)),
        ring=picoseconds(ring_ns(work)),
        target=None if output.in_lx else visit.store,
        store=streams[-1],
        # Streams are rounded one by one, so together they may exceed the whole by a picosecond.
        turnaround=max(0, picoseconds(memory_ns(moving)) - sum(streams)),
        access=picoseconds(work.target.hbm_access_ns),
        store_bytes=sizes[-1],
        # Rounded up, so that no program is faster than its bytes at the memory's peak rate.
        least=math.ceil(1000 * least_ns(work)),
    )


def _begins_early(
    context: Context, visit: _Visit, load_bytes: Sequence[int], output: OperandWork, before: _Visit | None
) -> tuple[list[bool], str]:
    """Return whether LX has capacity for each load next to the previous job's data, small loads first.

    A copy into LX needs only the bytes of its result, which the previous job must not access: the second result is the
    name of the buffer for which it waits, else empty. No load begins early if the device loads nothing ahead.
    """
    target = context.target
    if not target.loads_begin_early:
        return [False] * len(load_bytes), ""
    # The load of a copy writes the result directly, not a tile in the backend's part of LX.
    if output.in_lx and visit.step.design.opcode == _COPY:
        result = context.buffers[context.uses(visit.step)[-1]]
        accessed = context.uses(before.step) if before else ()
        used = next((name for name in accessed if result.overlaps(context.buffers[name])), "")
        return [not used] * len(load_bytes), used
    # Half of the backend's part; the operation in progress uses the rest.
    free, early = (target.lx_bytes - target.usable_lx_bytes) // 2, [False] * len(load_bytes)
    # Small ones first, so that as many loads as possible begin early.
    for index in sorted(range(len(load_bytes)), key=load_bytes.__getitem__):
        early[index] = load_bytes[index] <= free
        free -= load_bytes[index] if early[index] else 0
    return early, ""


# Operands that the backend need not fetch again: the previous operation left them in LX of the same core.
#
# The anchor measurements require this: softmax of 512 x 1024 without LX planning takes 32.5 us for a plan of 8.4 MB,
# 258 GB/s. So its stages differ by less than the time of their bytes. The memory cannot deliver more than its peak of
# 204.8 GB/s in any case, so a program takes at least the time of its planned bytes at the peak (``events.py``).


@dataclass(frozen=True)
class _DeviceAccess:
    """An operand in device memory: the part of a buffer that each core accesses, and the most bytes of any core."""

    buffer: str
    part: Hashable
    bytes: int
    writes: bool


def _reused(
    context: Context, visits: Sequence[_Visit], operations: Sequence[OperationWork]
) -> list[frozenset[int]]:
    """Return the indices of the operands that each visit does not stream; ``operations`` is the work of each visit.

    The vector unit reuses a read if the previous visit accessed the same part on the same core, and the part fits next
    to the plan's buffers in LX until then. A write need not stream if all its readers reuse it, and neither the host
    nor the next bundle reads it.
    """
    accesses: list[dict[int, _DeviceAccess]] = []
    for visit, work in zip(visits, operations, strict=True):
        design, names, by_operand = visit.step.design, context.uses(visit.step), dict[int, _DeviceAccess]()
        for number, operand in enumerate(work.operands):
            if not operand.in_lx:
                part = _part(context, visit, design, design.operands[number])
                by_operand[number] = _DeviceAccess(names[number], part, operand.core_bytes, operand.writes)
        accesses.append(by_operand)
    # No visit precedes the first one, so it fetches all its operands.
    reads = [frozenset[int]()] * min(1, len(visits))
    live_ranges: dict[str, tuple[int, int]] = {}
    for index, visit in enumerate(visits):
        for name in context.uses(visit.step):
            if context.buffers[name].base == "lx":
                live_ranges[name] = live_ranges.get(name, (index, index))[0], index
    change = [0] * (len(visits) + 1)
    for name, (first, last) in live_ranges.items():
        change[first] += context.buffers[name].bytes
        change[last + 1] -= context.buffers[name].bytes
    occupied = list(itertools.accumulate(change[:-1]))
    for index, work in enumerate(operations[1:]):
        # The anchor measurement is of the vector unit; no measurement shows reuse by the array.
        if work.on_array:
            reads.append(frozenset())
            continue
        parts = {(access.buffer, access.part) for access in accesses[index].values()}
        free = work.target.with_backend_fraction(0).usable_lx_bytes - occupied[index]
        reads.append(
            frozenset(
                number
                for number, access in accesses[index + 1].items()
                if not access.writes and (access.buffer, access.part) in parts and access.bytes <= free
            )
        )
    # Buffers have to be written if some visit fetches them, or no visit reads them.
    fetched, read, written = set[str](), set[str](), set[str]()
    for by_operand, again in zip(accesses, reads, strict=True):
        for number, access in by_operand.items():
            (written if access.writes else read).add(access.buffer)
            if not access.writes and number not in again:
                fetched.add(access.buffer)
    manifest = context.bundle.manifest
    parameters = {argument.parameter for argument in manifest.arguments if argument.kind == "result"}
    results = {buffer.name for buffer in manifest.buffers if buffer.base in parameters}
    results |= {resident.buffer for resident in manifest.leaves}
    lost = fetched | (written - read) | results
    return [
        again
        | {number for number, access in by_operand.items() if access.writes and access.buffer not in lost}
        for by_operand, again in zip(accesses, reads, strict=True)
    ]


def _part(context: Context, visit: _Visit, design: Design, operand: Operand) -> Hashable:
    """Return a key of the accessed part of an operand on each core.

    It has the operand's start, the loop iterations and indices that move the start, and the distribution over the
    cores.
    """
    begin = visit.step.values[operand.start[0]]
    factors = dict(begin.terms)
    moves = tuple((loop.atom, factors.get(loop.atom, 0)) for loop in visit.step.loops)
    indices = tuple(
        (range_.atom, factors[range_.atom]) for range_ in context.indices if range_.atom in factors
    )
    # Inner loops that do not move the operand access the same part.
    while moves and not moves[-1][1]:
        moves = moves[:-1]
    labels = [label for label in operand.dim_order if operand.scale[label] == 1]
    dims = tuple((design.sizes[label], design.slices[label]) for label in labels)
    owners = tuple(tuple(slices[label] for label in labels) for slices in design.core_slices)
    return begin.offset, moves, visit.firsts[: len(moves)], indices, dims, owners
