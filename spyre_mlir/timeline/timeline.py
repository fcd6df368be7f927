# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle's time: of the whole, of each execution, between all overlapped and all serial.

It promises the ranking of plans, never microseconds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.bundle.context import Context, ExecuteStep, Tree
from spyre_mlir.bundle.model import Buffer, Bundle, Design, Operand, Origin
from spyre_mlir.cost.cost_model import compute_ns, least_ns, memory_ns, ring_ns, stream_ns
from spyre_mlir.cost.ring_traffic import LinkLoads
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import Kind
from spyre_mlir.target.target import Target
from spyre_mlir.timeline.events import (
    Job,
    OperandLoad,
    Program,
    Repeat,
    Shares,
    TimelineRun,
    counted,
    lower,
    simulate,
    upper,
)
from spyre_mlir.timeline.links import LinkUse, link_uses
from spyre_mlir.timeline.of_design import DesignWork, core_groups, work_of_designs

#: The cores of each group, which do equal work.
CoreGroups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Execution:
    """One execute of the program text and all its runs.

    Attributes:
        position: Its position in the program.
        filename: The file of its design.
        origin: Where it comes from.
        buffers: Those of its operands, the result last.
        work: Its operation, as the cost model sees it.
        operations: Operations of all cores in one run.
        lanes: Those of the vector unit.
        links: What one run loads the links of the ring with, None if nothing goes over it.
        core_ps: Picoseconds that a core of each group computes.
        shares: Its part of the program's time, all runs together.
        alone_ps: Picoseconds that it takes alone, all runs together.
        moved_bytes: Bytes that move, all runs together, which are less than the plan says where the backend still has
            what it needs.
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
        """``file:line:column`` that it comes from, empty where the bundle does not know."""
        return self.origin.source

    @property
    def runs(self) -> int:
        """How often it runs: the iterations of the loops around it."""
        return self.shares.runs

    @property
    def is_restickify(self) -> bool:
        """Return whether the execution only changes the stick of a tensor."""
        return self.work.kind is Kind.RESTICKIFY

    @property
    def read_bytes(self) -> int:
        """Bytes of device memory read by the plan, all runs together."""
        return self.runs * self.work.read_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes of device memory written by the plan, all runs together."""
        return self.runs * self.work.written_bytes

    @property
    def total_ns(self) -> float:
        """Nanoseconds of the program's time that go into it, all runs together."""
        return self.shares.total / 1000

    @property
    def bound_by(self) -> str:
        """Return the part of the machine that most of its time goes into."""
        return self.shares.bound_by


@dataclass(frozen=True)
class Timeline:
    """The time of a bundle.

    Attributes:
        executions: Each execute of the program text, in order.
        core_groups: Cores that do alike.
        run: The events.
        target: The device of the bundle.
        lower_ps: Picoseconds if all overlaps.
        upper_ps: Picoseconds if nothing does.
    """

    executions: tuple[Execution, ...]
    core_groups: CoreGroups
    run: TimelineRun
    target: Target
    lower_ps: int
    upper_ps: int

    @property
    def total_ns(self) -> float:
        """The predicted nanoseconds of the program."""
        return self.run.total / 1000

    @property
    def lower_ns(self) -> float:
        """The nanoseconds if all overlaps."""
        return self.lower_ps / 1000

    @property
    def upper_ns(self) -> float:
        """The nanoseconds if nothing overlaps."""
        return self.upper_ps / 1000

    @functools.cached_property
    def read_bytes(self) -> int:
        """Bytes of device memory that the program reads by the plan."""
        return sum(execution.read_bytes for execution in self.executions)

    @functools.cached_property
    def written_bytes(self) -> int:
        """Bytes of device memory that the program writes by the plan."""
        return sum(execution.written_bytes for execution in self.executions)

    @functools.cached_property
    def shares(self) -> Shares:
        """The time of the program by the part of the machine that it goes into."""
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
        """'memory', 'compute', 'ring' or 'overhead': what most of the time goes into."""
        return self.shares.bound_by

    def __str__(self) -> str:
        if not self.executions:
            return "0.0 us, no operation"
        total, low, high = (time / 1000 for time in (self.total_ns, self.lower_ns, self.upper_ns))
        return f"{total:.1f} us ({low:.1f} .. {high:.1f}), bound by {self.bound_by}"


def timeline(bundle: Bundle, lx_backend_fraction: float | None = None) -> Timeline:
    """Return the timeline of a bundle.

    Args:
        bundle: The bundle, whoever wrote it.
        lx_backend_fraction: The part of LX, 0 to 1, that the backend keeps, by default that of the bundle's target.

    Raises:
        CompileError: The parts of the bundle do not belong together.
    """
    # The compiler times what it has checked itself, without the rules for bundles of others.
    from spyre_mlir.bundle.validate import sound_context

    return timeline_of(sound_context(bundle, lx_backend_fraction), work_of_designs(bundle))


def timeline_of(context: Context, work_by_file: Mapping[str, DesignWork]) -> Timeline:
    """The timeline of a bundle whose structure is sound and whose ``work_by_file`` are known."""
    groups = core_groups(work_by_file.values())
    program = JobBuilder(context, work_by_file).build()
    run = simulate(program)
    executions = _executions(context, work_by_file, groups, program, run)
    return Timeline(tuple(executions), groups, run, context.target, lower(program), upper(program))


def _executions(
    context: Context,
    work_by_file: Mapping[str, DesignWork],
    groups: CoreGroups,
    program: Program,
    run: TimelineRun,
) -> Iterator[Execution]:
    alone, moved = Counter[int](), Counter[int]()
    for job, runs in counted(program):
        # A loop has several jobs for one execute: its first iteration stands by itself.
        alone[job.position] += runs * job.alone
        moved[job.position] += runs * (job.load_bytes + job.store_bytes)
    for step in context.steps:
        design = work_by_file[step.execute.filename]
        yield Execution(
            position=step.position,
            filename=step.execute.filename,
            origin=step.origin,
            buffers=context.uses(step),
            work=design.work,
            operations=design.operations,
            lanes=design.lanes,
            links=design.links,
            core_ps=_core_ps(design, groups),
            shares=run.shares.get(step.position, Shares()),
            alone_ps=alone[step.position],
            moved_bytes=moved[step.position],
        )


def _core_ps(design: DesignWork, groups: CoreGroups) -> tuple[int, ...]:
    """Compute time of a core of each group; 0 for a group that is not used."""
    used = design.design.cores
    return tuple(
        picoseconds(compute_ns(design.work_of_core(group[0]))) if group[0] < used else 0 for group in groups
    )


# A bundle as jobs for the machine of ``events.py``: how long each operation takes, what it waits for.
#
# The first iteration of a loop stands by itself, since it finds other things than those behind it: what the job before
# has in LX, and what has been fetched already.

_COPY = "identity"

#: The program with its loops taken apart: a visit, or how often the visits in it are repeated.
Visits = list["Visit | tuple[int, Visits]"]


class JobBuilder:
    """Makes the jobs of a bundle whose structure is sound; ``works`` are those of its designs by file."""

    def __init__(self, context: Context, work_by_file: Mapping[str, DesignWork]) -> None:
        self.context = context
        self.work_by_file = work_by_file
        self.prefetch_bytes = _prefetch_bytes(context.target)

    def build(self) -> tuple[Job | Repeat, ...]:
        """The jobs in order."""
        visits = _peeled(self.context.tree, ())
        flat = list(_flat(visits))
        operations = [self.work_by_file[visit.step.execute.filename].work for visit in flat]
        again = reused(self.context, self._results, flat, operations)
        before: list[Visit | None] = [None, *flat]
        jobs = iter(
            [self._job(*arguments) for arguments in zip(flat, operations, again, before, strict=False)]
        )
        return _with_jobs(visits, jobs)

    @property
    def _results(self) -> set[str]:
        """The buffers that the host or the next bundle reads in the end."""
        manifest = self.context.bundle.manifest
        parameters = {argument.parameter for argument in manifest.arguments if argument.kind == "result"}
        results = {buffer.name for buffer in manifest.buffers if buffer.base in parameters}
        return results | {resident.buffer for resident in manifest.leaves}

    def _job(self, visit: Visit, work: OperationWork, again: Collection[int], before: Visit | None) -> Job:
        names = self.context.uses(visit.step)
        fetched = [not (operand.in_lx or number in again) for number, operand in enumerate(work.operands)]
        streams = [
            picoseconds(stream_ns(work, operand)) if moves else 0
            for operand, moves in zip(work.operands, fetched, strict=True)
        ]
        sizes = [operand.bytes if moves else 0 for operand, moves in zip(work.operands, fetched, strict=True)]
        output = work.operands[-1]
        loaded = [number for number, operand in enumerate(work.operands[:-1]) if not operand.in_lx]
        load_bytes = [work.operands[number].core_bytes if fetched[number] else 0 for number in loaded]
        early = self._begins_early(visit, load_bytes, output, before)
        loads = tuple(
            OperandLoad(names[number], streams[number], begins, sizes[number])
            for number, begins in zip(loaded, early, strict=True)
        )
        return Job(
            visit.step.position,
            loads,
            compute=picoseconds(compute_ns(work)),
            ring=picoseconds(ring_ns(work)),
            target=None if output.in_lx else names[-1],
            store=streams[-1],
            # Streams are rounded one by one, so together they may exceed the whole by a picosecond.
            turnaround=max(0, picoseconds(memory_ns(_without(work, again))) - sum(streams)),
            access=picoseconds(work.target.hbm_access_ns),
            store_bytes=sizes[-1],
            # Rounded up, so that no program is faster than its bytes at the peak.
            least=math.ceil(1000 * least_ns(work)),
        )

    def _begins_early(
        self, visit: Visit, load_bytes: Sequence[int], output: OperandWork, before: Visit | None
    ) -> list[bool]:
        """Return whether LX has capacity for each load beside what the job before uses, small loads first.

        A copy into LX needs no bytes but those of its result, which the job before must not access. No load begins
        early if the device loads nothing ahead.
        """
        if not self.context.target.loads_begin_early:
            return [False] * len(load_bytes)
        # Its load goes straight to the result, not to a tile of the backend's part.
        if output.in_lx and visit.step.design.opcode == _COPY:
            return [before is None or not self._overlaps(visit, before)] * len(load_bytes)
        free, early = self.prefetch_bytes, [False] * len(load_bytes)
        # Small ones first, so that as many loads as possible begin early.
        for index in sorted(range(len(load_bytes)), key=load_bytes.__getitem__):
            early[index] = load_bytes[index] <= free
            free -= load_bytes[index] if early[index] else 0
        return early

    def _overlaps(self, visit: Visit, before: Visit) -> bool:
        """Return whether the result of a step takes bytes of LX that the step before accesses."""
        result = self.context.buffers[self.context.uses(visit.step)[-1]]
        accessed = (self.context.buffers[name] for name in self.context.uses(before.step))
        return any(buffer.base == "lx" and _share_bytes(buffer, result) for buffer in accessed)


def _without(work: OperationWork, numbers: Collection[int]) -> OperationWork:
    """An operation whose operands of these numbers move nothing."""
    operands = enumerate(work.operands)
    return replace(
        work,
        operands=tuple(
            replace(operand, in_lx=operand.in_lx or number in numbers) for number, operand in operands
        ),
    )


def _share_bytes(one: Buffer, other: Buffer) -> bool:
    return one.offset < other.offset + other.bytes and other.offset < one.offset + one.bytes


# -- loops ---------------------------------------------------------------------------------------------


def _peeled(tree: Tree, firsts: tuple[bool, ...]) -> Visits:
    """The steps in order, of each loop the first iteration and then, so many times, the others."""
    visits: Visits = []
    for node in tree:
        if isinstance(node, ExecuteStep):
            visits.append(Visit(node, firsts))
            continue
        loop, body = node
        if loop.count:
            visits += _peeled(body, (*firsts, True))
        if loop.count > 1:
            visits.append((loop.count - 1, _peeled(body, (*firsts, False))))
    return visits


def _flat(visits: Visits) -> Iterator[Visit]:
    for node in visits:
        if isinstance(node, Visit):
            yield node
        else:
            yield from _flat(node[1])


def _with_jobs(visits: Visits, jobs: Iterable[Job]) -> tuple[Job | Repeat, ...]:
    """Visits with a job in the place of each."""
    jobs = iter(jobs)
    return tuple(
        next(jobs) if isinstance(node, Visit) else Repeat(node[0], _with_jobs(node[1], jobs))
        for node in visits
    )


def _prefetch_bytes(target: Target) -> int:
    """Bytes of LX for what is loaded early: half of what the backend keeps, the other half being computed on."""
    return (target.lx_bytes - target.usable_lx_bytes) // 2


# Operands that the backend need not fetch again: the operation directly before left them in LX of the same core.
#
# The anchors ask for it: softmax of 512 x 1024 without LX planning takes 32.5 us for a plan of 8.4 MB, 258 GB/s. So
# its stages differ by less than their bytes take. The memory cannot deliver more than its peak of 204.8 GB/s whoever
# keeps what, so a program takes at least its planned bytes at the peak (``events.py``).


@dataclass(frozen=True, eq=False)
class Visit:
    """A step in one of the passes over a loop's body that differ: ``first`` of each loop around it, or all later.

    No two visits are equal.
    """

    step: ExecuteStep
    firsts: tuple[bool, ...]


@dataclass(frozen=True)
class _DeviceAccess:
    """An operand in device memory: the part of a buffer that each core has of it, with the most bytes of one."""

    buffer: str
    part: Hashable
    bytes: int
    writes: bool


#: The accesses of a visit to device memory, by the number of the operand.
_Accesses = Mapping[int, _DeviceAccess]

#: The work of a visit, its accesses, and the bytes of LX that the plan occupies meanwhile.
_Visited = tuple[OperationWork, _Accesses, int]


def reused(
    context: Context, results: Collection[str], visits: Sequence[Visit], operations: Sequence[OperationWork]
) -> list[frozenset[int]]:
    """The numbers of the operands that each visit, in order, does not stream; ``operations`` are those of the visits.

    A read is reused by the vector unit if the visit before has accessed the same part on the same core, and the part
    fits beside what the plan has in LX until then. A write is if all that reads it reuses it; one of ``results``
    never is.
    """
    accesses = [dict(_accesses(context, visit, work)) for visit, work in zip(visits, operations, strict=True)]
    visited = list(zip(operations, accesses, _occupied(context, visits), strict=True))
    # Nothing is before the first visit, so it fetches all.
    reads = [frozenset[int]()] * min(1, len(visits))
    reads += itertools.starmap(_still_there, itertools.pairwise(visited))
    # Results have to be in device memory whoever reads them on the way.
    lost = _lost(accesses, reads) | set(results)
    return [
        again
        | {number for number, access in visit_accesses.items() if access.writes and access.buffer not in lost}
        for visit_accesses, again in zip(accesses, reads, strict=True)
    ]


def _still_there(before: _Visited, visit: _Visited) -> frozenset[int]:
    """The numbers of what a visit reads and the one before has left."""
    _, earlier, occupied = before
    work, accesses, _ = visit
    # The anchor is a program of the vector unit; no measurement shows reuse by the array.
    if work.on_array:
        return frozenset()
    parts = {(access.buffer, access.part) for access in earlier.values()}
    free = work.target.with_backend_fraction(0).usable_lx_bytes - occupied
    return frozenset(
        number
        for number, access in accesses.items()
        if not access.writes and (access.buffer, access.part) in parts and access.bytes <= free
    )


def _lost(accesses: Sequence[_Accesses], reads: Sequence[Collection[int]]) -> set[str]:
    """The buffers that something fetches or nothing reads, so they have to be written."""
    fetched, read, written = set[str](), set[str](), set[str]()
    for visit_accesses, again in zip(accesses, reads, strict=True):
        for number, access in visit_accesses.items():
            (written if access.writes else read).add(access.buffer)
            if not access.writes and number not in again:
                fetched.add(access.buffer)
    return fetched | (written - read)


def _accesses(context: Context, visit: Visit, work: OperationWork) -> Iterator[tuple[int, _DeviceAccess]]:
    design, names = visit.step.design, context.uses(visit.step)
    for number, (name, operand) in enumerate(zip(names, work.operands, strict=True)):
        if not operand.in_lx:
            part = _part(context, visit, design.operands[number]), _cores(design, design.operands[number])
            yield number, _DeviceAccess(name, part, operand.core_bytes, operand.writes)


def _part(context: Context, visit: Visit, operand: Operand) -> Hashable:
    """Return a key of the start of an operand, and of the iteration of the loops and the indices that move it."""
    begin = visit.step.values[operand.start[0]]
    factors = dict(begin.terms)
    moves = tuple((loop.atom, factors.get(loop.atom, 0)) for loop in visit.step.loops)
    indices = tuple(
        (range_.atom, factors[range_.atom]) for range_ in context.indices if range_.atom in factors
    )
    # Inner loops that do not move the operand leave it the same part.
    while moves and not moves[-1][1]:
        moves = moves[:-1]
    return begin.offset, moves, visit.firsts[: len(moves)], indices


def _cores(design: Design, operand: Operand) -> Hashable:
    """Return a key of the distribution of an operand over the cores."""
    labels = [label for label in operand.dim_order if operand.scale[label] == 1]
    dims = tuple((design.sizes[label], design.slices[label]) for label in labels)
    return dims, tuple(tuple(slices[label] for label in labels) for slices in design.core_slices)


def _occupied(context: Context, visits: Sequence[Visit]) -> list[int]:
    """Bytes of LX that the plan needs during each visit, with all that is used before and behind it too."""
    live_ranges: dict[str, tuple[int, int]] = {}
    for index, visit in enumerate(visits):
        for name in context.uses(visit.step):
            if context.buffers[name].base == "lx":
                live_ranges[name] = live_ranges.get(name, (index, index))[0], index
    change = [0] * (len(visits) + 1)
    for name, (first, last) in live_ranges.items():
        change[first] += context.buffers[name].bytes
        change[last + 1] -= context.buffers[name].bytes
    return list(itertools.accumulate(change[:-1]))
