# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Operands that the backend need not fetch again: the operation directly before left them in LX of the same core.

The anchors ask for it: softmax of 512 x 1024 without LX planning takes 32.5 us for a plan of 8.4 MB, 258 GB/s. So
its stages differ by less than their bytes take. The memory cannot deliver more than its peak of 204.8 GB/s whoever
keeps what, so a program takes at least its planned bytes at the peak (``events.py``).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

from spyre_mlir.bundle.context import Context, ExecuteStep
from spyre_mlir.bundle.model import Design, Operand
from spyre_mlir.cost.work import OperationWork
from spyre_mlir.records import dataclass


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
