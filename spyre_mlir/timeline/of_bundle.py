# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A bundle as jobs for the machine of ``events.py``: how long each operation takes, what it waits for.

The first iteration of a loop stands by itself, since it finds other things than those behind it: what the job before
has in LX, and what has been fetched already.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from spyre_mlir.bundle.context import Context, ExecuteStep, Tree
from spyre_mlir.bundle.model import Buffer
from spyre_mlir.cost.cost_model import compute_ns, least_ns, memory_ns, ring_ns, stream_ns
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.target.target import Target
from spyre_mlir.timeline.events import Job, OperandLoad, Repeat
from spyre_mlir.timeline.of_design import DesignWork
from spyre_mlir.timeline.reuse import Visit, reused

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
