"""A bundle as jobs for the machine of ``events.py``: how long each operation takes, what it waits for.

The first iteration of a loop stands by itself, since it finds other things than those behind it: what the job before
has in LX, and what has been fetched already.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spyre_mlir.bundle.context import Context, Range, Step, Tree
from spyre_mlir.bundle.model import Buffer
from spyre_mlir.cost.model import compute_ns, memory_ns, ring_ns, stream_ns
from spyre_mlir.cost.reuse import with_reuse
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.target.device import device
from spyre_mlir.timeline.events import Job, Load, Repeat
from spyre_mlir.timeline.of_design import DesignWork

_COPY = "identity"


@dataclass(frozen=True, eq=False)
class Visit:
    """A step in one of the passes over a loop's body that differ: ``first`` of each loop around it, or all later.

    No two visits are equal.
    """

    step: Step
    firsts: tuple[bool, ...]


#: The program with its loops taken apart: a visit, or how often the visits in it are repeated.
Visits = list["Visit | tuple[int, Visits]"]


class Touches:
    """Names for what operands touch, equal ones where the backend may still have what was touched before.

    That is a part of a buffer, told by where it begins, that was read, or the buffer that it is of if the program
    has written that. What a loop moves over is another part in each iteration: of what was touched before the loop,
    or in another iteration of a loop around it, all parts of a core have to fit its LX. ``leaving`` are the names of
    what has to reach device memory: ``results``, and what does not fit when a loop has written it part by part.
    """

    def __init__(self, context: Context, results: Collection[str]) -> None:
        self.context = context
        self.results = results
        self.leaving: set[Hashable] = set()
        self.touched: dict[Hashable, list[tuple[Visit, Hashable]]] = defaultdict(list)

    def names(self, visit: Visit, work: OperationWork) -> tuple[Hashable, ...]:
        """The names of all operands of a visit."""
        *inputs, output = self.context.uses(visit.step)
        parts = [_part(visit, number, buffer) for number, buffer in enumerate(inputs)]
        reads = [
            self._known(visit, number, (part, buffer), work)
            for number, (part, buffer) in enumerate(zip(parts, inputs, strict=True))
        ]
        written = visit, len(inputs)
        for part, name in (*zip(parts, reads, strict=True), (output, written)):
            self.touched[part].append((visit, name))
        size = work.operands[-1].core_bytes * _iterations(_moving(*written))
        if output in self.results or size > device().lx_bytes:
            self.leaving.add(written)
        return *reads, written

    def _known(self, visit: Visit, number: int, things: Iterable[Hashable], work: OperationWork) -> Hashable:
        """The name of the last touch of one of some things that is still there, else a new one."""
        most = device().lx_bytes // max(work.operands[number].core_bytes, 1)
        if not most:
            return visit, number
        moving = _moving(visit, number)
        for before, name in (touch for thing in things for touch in reversed(self.touched[thing])):
            common = _common_loops(before, visit)
            if _iterations(loop for loop in visit.step.loops[common:] if loop in moving) <= most:
                return name
        return visit, number


class JobBuilder:
    """Makes the jobs of a bundle whose structure is sound; ``works`` are those of its designs by file."""

    def __init__(self, context: Context, works: Mapping[str, DesignWork], room_bytes: int) -> None:
        self.context = context
        self.works = works
        self.room_bytes = room_bytes

    def build(self) -> tuple[Job | Repeat, ...]:
        """The jobs in order."""
        visits = _taken_apart(self.context.tree, ())
        flat = list(_flat(visits))
        works = self._reused(flat)
        before: list[Visit | None] = [None, *flat]
        jobs = iter([self._job(*each) for each in zip(flat, works, before, strict=False)])
        return _put_together(visits, jobs)

    def _reused(self, visits: Sequence[Visit]) -> list[OperationWork]:
        """The work of each visit, without the bytes that the backend need not fetch again."""
        manifest = self.context.bundle.manifest
        parameters = {each.parameter for each in manifest.arguments if each.kind == "result"}
        results = {buffer.name for buffer in manifest.buffers if buffer.base in parameters}
        works = [self.works[visit.step.execute.filename].work for visit in visits]
        touches = Touches(self.context, results)
        names = [touches.names(visit, work) for visit, work in zip(visits, works, strict=True)]
        return with_reuse(works, names, touches.leaving)

    def _job(self, visit: Visit, work: OperationWork, before: Visit | None) -> Job:
        names = self.context.uses(visit.step)
        *inputs, output = work.operands
        moving = [(name, each) for name, each in zip(names, inputs, strict=False) if not each.in_lx]
        early = self._begins_early(visit, [each for _, each in moving], output, before)
        loads = tuple(
            Load(name, _stream(work, each), begins, _fetched_bytes(each))
            for (name, each), begins in zip(moving, early, strict=True)
        )
        streams = sum(_stream(work, each) for each in work.operands)
        return Job(
            visit.step.position,
            loads,
            compute=picoseconds(compute_ns(work)),
            ring=picoseconds(ring_ns(work)),
            target=None if output.in_lx else names[-1],
            store=_stream(work, output),
            turnaround=max(0, picoseconds(memory_ns(work)) - streams),
            access=picoseconds(device().hbm_access_ns),
            store_bytes=_fetched_bytes(output),
        )

    def _begins_early(
        self, visit: Visit, loads: Sequence[OperandWork], output: OperandWork, before: Visit | None
    ) -> list[bool]:
        """Whether there is room for each load beside what the job before uses, small ones first.

        A copy into LX needs no room but its result's, which the job before must not touch.
        """
        if output.in_lx and visit.step.design.opcode == _COPY:
            return [before is None or not self._overlaps(visit, before)] * len(loads)
        room, early = self.room_bytes, [False] * len(loads)
        for at in sorted(range(len(loads)), key=lambda at: loads[at].core_bytes):
            size = 0 if loads[at].reused else loads[at].core_bytes
            early[at] = size <= room
            room -= size if early[at] else 0
        return early

    def _overlaps(self, visit: Visit, before: Visit) -> bool:
        """Whether a step's result takes bytes of LX that the one before touches."""
        result = self.context.buffers[self.context.uses(visit.step)[-1]]
        touched = (self.context.buffers[name] for name in self.context.uses(before.step))
        return any(each.base == "lx" and _share_bytes(each, result) for each in touched)


def _part(visit: Visit, number: int, buffer: str) -> Hashable:
    """Where an operand begins, and for each loop that moves it whether this is the first iteration.

    Loops side by side that move in the same way go over the same parts.
    """
    operand = visit.step.design.operands[number]
    if operand.memory == "lx":
        return buffer, operand.start[0]
    begin = visit.step.values[operand.start[0]]
    factors = dict(begin.terms)
    passes = zip(visit.step.loops, visit.firsts, strict=True)
    moves = (
        (factors[loop.atom], loop.lower, loop.upper, loop.step, first)
        for loop, first in passes
        if loop.atom in factors
    )
    return buffer, begin.offset, *moves


def _moving(visit: Visit, number: int) -> list[Range]:
    """The loops that move an operand."""
    operand = visit.step.design.operands[number]
    if operand.memory == "lx":
        return []
    atoms = {atom for atom, _ in visit.step.values[operand.start[0]].terms}
    return [loop for loop in visit.step.loops if loop.atom in atoms]


def _iterations(loops: Iterable[Range]) -> int:
    return math.prod(loop.count for loop in loops)


def _common_loops(one: Visit, other: Visit) -> int:
    """How many loops around two visits are the same and in the same iteration."""
    places = (zip(visit.step.loops, visit.firsts, strict=True) for visit in (one, other))
    pairs = zip(*places, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _stream(work: OperationWork, operand: OperandWork) -> int:
    """How long an operand streams if nothing else does."""
    if operand.in_lx or operand.reused:
        return 0
    return picoseconds(stream_ns(work, operand))


def _fetched_bytes(operand: OperandWork) -> int:
    """Bytes that move, not counting what is there already."""
    return 0 if operand.reused else operand.moved_bytes


def _share_bytes(one: Buffer, other: Buffer) -> bool:
    return one.offset < other.offset + other.bytes and other.offset < one.offset + one.bytes


# -- loops ---------------------------------------------------------------------------------------------


def _taken_apart(tree: Tree, firsts: tuple[bool, ...]) -> Visits:
    """The steps in order, of each loop the first iteration and then, so many times, the others."""
    made: Visits = []
    for node in tree:
        if isinstance(node, Step):
            made.append(Visit(node, firsts))
            continue
        loop, body = node
        if loop.count:
            made += _taken_apart(body, (*firsts, True))
        if loop.count > 1:
            made.append((loop.count - 1, _taken_apart(body, (*firsts, False))))
    return made


def _flat(visits: Visits) -> Iterator[Visit]:
    for node in visits:
        if isinstance(node, Visit):
            yield node
        else:
            yield from _flat(node[1])


def _put_together(visits: Visits, jobs: Iterable[Job]) -> tuple[Job | Repeat, ...]:
    """Visits with a job in the place of each."""
    jobs = iter(jobs)
    return tuple(
        next(jobs) if isinstance(node, Visit) else Repeat(node[0], _put_together(node[1], jobs))
        for node in visits
    )


def room_bytes(usable_lx_bytes: int) -> int:
    """Bytes of LX for what is loaded early: half of what the backend keeps, the other half being computed on."""
    return (device().lx_bytes - usable_lx_bytes) // 2
