# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle's time: of the whole, of each execution, between all overlapped and all serial.

It promises the ranking of plans, never microseconds.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping

from spyre_mlir.bundle.context import Context
from spyre_mlir.bundle.model import Bundle, Origin
from spyre_mlir.cost.cost_model import compute_ns
from spyre_mlir.cost.ring_traffic import LinkLoads
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import Kind
from spyre_mlir.target.target import Target
from spyre_mlir.timeline.events import Program, Shares, TimelineRun, counted, lower, simulate, upper
from spyre_mlir.timeline.links import LinkUse, link_uses
from spyre_mlir.timeline.of_bundle import JobBuilder
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
