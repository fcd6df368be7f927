# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order of the accesses of a bundle to memory: which runs of operations must wait for which, and races.

A back end may overlap operations; docs/concurrency.md defines which. A *wait* is an order that the data flow requires:
a read waits for the write of the value, a write waits for the earlier writes of its bytes and for the reads of the
values that it overwrites. Data that is written through a buffer is read through the same buffer, so the buffer of a
read identifies the value. If another buffer overwrites a value before its last read, neither order of the overwriting
operation and the read is right: a *race*, as is an operation that reads on one core what it writes on another core.

Accesses are sets of sticks, exact for affine regions: a strided view of one array per memory, with an entry for each
stick. An entry is the number of a ``StickState``; equal states have equal numbers, so an access of any size costs one
comparison per stick, and few Python objects. Cores at equal distances share one view.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.context import Context, ExecuteStep, Linear, LoopRange, Tree
from spyre_mlir.bundle.core_slices import (
    core_regions,
    finishing_cores,
    memory_counts,
    memory_strides,
    reduced_dims,
)
from spyre_mlir.bundle.model import Design, KernelArgument, Operand
from spyre_mlir.bundle.sequence import LX
from spyre_mlir.division.ownership import CoreRegion, Steps
from spyre_mlir.records import dataclass
from spyre_mlir.target.formats import FORMATS
from spyre_mlir.target.ops import DEVICE_OPS

#: The number of runs up to which each iteration of a loop is a run; beyond, the first iteration and all others are.
WALKED_EXECUTES = 4096

NOBODY, HOST, PARTIAL, FIRST_BUFFER = 0, 1, 2, 3

#: The ranges of the induction variables: one value for each loop that is walked iteration by iteration.
Iterations = dict[str, LoopRange]


@dataclass(frozen=True)
class Run:
    """A run of an execute: the step, and the iterations of the loops around it."""

    step: ExecuteStep
    iterations: Iterations


class StickState(NamedTuple):
    """The last writers of a stick, the buffer through which they wrote, and the runs that read it since.

    Several writers are possible if some of them write at an index that only the host knows.
    """

    writers: tuple[int, ...]
    buffer: int
    readers: tuple[int, ...] = ()


@dataclass(frozen=True)
class RaceAccess:
    """An access that takes part in a race: ``operand`` of ``step`` on ``core``."""

    step: ExecuteStep
    operand: int
    core: int

    @property
    def text(self) -> str:
        design, source = self.step.design, self.step.origin.source
        text = f"execute {self.step.position} of {design.filename} ({design.opcode})"
        return f"Tensor{self.operand} of {text}{f' from {source}' if source else ''}"


@dataclass(frozen=True)
class Race:
    """Two accesses of a stick without an order, of which ``write`` is a write; None if no run writes the stick.

    ``begin`` is the byte of ``base`` at which the stick begins; in LX, of the LX of the core of the read.
    """

    write: RaceAccess | None
    other: RaceAccess
    base: str
    begin: int
    reads: bool = True

    def __str__(self) -> str:
        verb = "reads" if self.reads else "writes"
        text = f"core {self.other.core} {verb} byte {self.begin} of {self.base} as {self.other.text}"
        if self.write is None:
            return f"{text}; no other operation writes it"
        return f"{text}; core {self.write.core} writes it as {self.write.text}, in no order with the access"


@dataclass(frozen=True)
class _Accesses:
    """Rectangles of an operand at equal distances: ``cores``, the address of the first one, and all their steps.

    ``finished`` is True if the rectangles hold a result after the operation, False if they hold partial sums. In LX
    an address includes the offset of the core in the memory of all cores.
    """

    cores: tuple[int, ...]
    address: Linear
    steps: Steps
    finished: bool


def walk(tree: Tree, outer: Iterations, at_once: bool) -> Iterator[Run]:
    """Yield the runs in program order; with ``at_once`` the first iteration of a loop, then all others together."""
    for node in tree:
        if isinstance(node, ExecuteStep):
            yield Run(node, outer)
            continue
        loop, body = node
        values, second = range(loop.lower, loop.upper, loop.step), loop.lower + loop.step
        parts = (LoopRange(loop.atom, value, value + 1, 1) for value in values)
        if at_once:
            bounds = [(loop.lower, second), (second, loop.upper)]
            parts = (LoopRange(loop.atom, *ends, loop.step) for ends in bounds if ends[0] < loop.upper)
        for part in parts:
            yield from walk(body, {**outer, loop.atom: part}, at_once)


class MemoryOrder:
    """The order of a bundle whose accesses are inside of its memories.

    Attributes:
        runs: The runs in program order.
        waits: For each run, the indices of earlier runs that it must wait for; orders that others imply may be absent.
        races: The races, of each operand of an execute the first one between runs and the first one inside of a run.
        problems: Reads of sticks that do not hold the value, as (operand, sentence) by run.
    """

    def __init__(self, context: Context) -> None:
        self.context, self.target = context, context.target
        self.numbers = {buffer: i for i, buffer in enumerate(context.buffers, FIRST_BUFFER)}
        self.names = list(self.numbers)
        self.lx_sticks = -(-self.target.usable_lx_bytes // self.target.stick_bytes)
        self.indices = {range_.atom: range_ for range_ in context.indices}
        self.accesses, self._regions = functools.cache(self._accesses_of), functools.cache(self._regions_of)
        self.runs: list[Run] = []
        self.waits: list[set[int]] = []
        self.problems: list[tuple[ExecuteStep, int, str]] = []
        #: By position and operand of the second access, and whether both are of one run.
        self._races: dict[tuple[int, int, bool], Race] = {}
        #: Reads of a stick before any write through the buffer, until some run writes the stick through it.
        self._early: dict[tuple[int, int, bool], tuple[Race, int]] = {}
        self._last_writes: dict[int, int] = {}
        self._checked = set[int]()
        self._states = list[StickState]()
        self._ids: dict[StickState, int] = {}
        self._prepare()
        for run in walk(context.tree, {}, sum(step.runs for step in context.steps) > WALKED_EXECUTES):
            self._execute(run)

    @property
    def races(self) -> list[Race]:
        """The races in program order."""
        early = {key: race for key, (race, _) in self._early.items()}
        return [race for _, race in sorted((self._races | early).items(), key=lambda item: item[0])]

    def _prepare(self) -> None:
        """Allocate the arrays: the host is the first writer of a base in which it passes an input."""
        context, unit, ends = self.context, self.target.stick_bytes, defaultdict[str, int](int)
        for buffer in context.buffers.values():
            ends[buffer.base] = max(ends[buffer.base], buffer.offset + buffer.bytes)
        for argument in context.bundle.manifest.arguments:
            ends[argument.parameter] = max(ends[argument.parameter], argument.bytes)
        sticks = {base: -(-end // unit) for base, end in ends.items()}
        sticks[LX] = self.lx_sticks * self.target.device_cores
        # State 0 stands for the first writer of a base, so that memory pages without accesses cost nothing.
        self._states.append(StickState((), NOBODY))
        self._first = {
            base: HOST if any(each.kind != "result" for each in context.arguments.get(base, ())) else NOBODY
            for base in sticks
        }
        self.arrays: dict[str, NDArray[Any]] = {
            base: np.zeros(count, np.int32) for base, count in sticks.items()
        }
        # Reads of a base that only the host writes need neither checks nor waits.
        written = {context.buffers[context.uses(step)[-1]].base for step in context.steps}
        self._constant = {
            base for base, first in self._first.items() if first == HOST and base not in written
        }
        # Previous bundles wrote all of these buffers. The rule of sequences checks the details.
        for resident in context.bundle.manifest.expects:
            buffer = context.buffers[resident.buffer]
            for core in resident.cores if buffer.base == LX else (0,):
                start = buffer.offset // unit + core * self.lx_sticks
                end = start + -(-buffer.bytes // unit)
                self.arrays[buffer.base][start:end] = self._id(StickState((), self.numbers[buffer.name]))

    # -- accesses --------------------------------------------------------------------------------------

    def _regions_of(self, filename: str, index: int) -> list[tuple[int, CoreRegion, bool]]:
        """Return the rectangle of an operand on each core, and whether it is finished."""
        design = self.context.bundle.designs[filename]
        operand, reads = design.operands[index], index < len(design.operands) - 1
        finishing = finishing_cores(design) if operand.memory == LX and not reads else range(design.cores)
        # Padding need not have been written: no valid result depends on it.
        regions = core_regions(design, operand, valid=reads)
        return [(core, region, core in finishing) for core, region in regions.items()]

    def _accesses_of(self, position: int, index: int) -> list[_Accesses]:
        """Join the distinct rectangles of an operand that are equal and at equal distances from core to core."""
        step, unit = self.context.steps[position], self.target.stick_bytes
        operand, row = step.design.operands[index], self.lx_sticks * unit
        found = dict[tuple, tuple[int, Linear]]()
        for core, region, finished in self._regions(step.execute.filename, index):
            start = operand.start[core]
            if operand.memory == LX:
                found[start + core * row, region, finished] = core, Linear(start + core * row)
            else:
                found.setdefault((start, region, True), (core, step.values[start]))
        joined, rectangles = list[_Accesses](), list(found.items())
        begin = 0
        while begin < len(rectangles):
            (_, *key), (_, address) = rectangles[begin]
            end, distance = begin + 1, 0
            for (_, *other), (_, following) in rectangles[end:]:
                gap = following.offset - address.offset
                distance = distance or gap
                is_like = other == key and following.terms == address.terms
                if not is_like or gap != distance * (end - begin) or gap < 0:
                    break
                end += 1
            cores = tuple(core for _, (core, _) in rectangles[begin:end])
            region, finished = key
            steps = (*region.steps, (distance // unit, len(cores)))
            joined.append(_Accesses(cores, address, steps, finished))
            begin = end
        return joined

    def _locate(
        self, run: Run, index: int, access: _Accesses, indices: Iterations
    ) -> tuple[int, NDArray[Any]]:
        """Return the first stick in its base and the view of an access, with one more dim per loop taken at once.

        ``indices`` are the ranges of the program's indices, whose value is otherwise 0.
        """
        ranges, unit = {**run.iterations, **indices}, self.target.stick_bytes
        bytes_, steps = access.address.offset, access.steps
        for atom, factor in access.address.terms:
            if atom in ranges:
                bytes_ += factor * ranges[atom].lower
                if ranges[atom].count > 1:
                    steps = (*steps, (factor * ranges[atom].step // unit, ranges[atom].count))
        start = bytes_ // unit
        return start, CoreRegion(start, steps).view(self.arrays[self.base(run.step, index)], 0)

    def base(self, step: ExecuteStep, index: int) -> str:
        return self.context.buffers[self.context.uses(step)[index]].base

    # -- runs ------------------------------------------------------------------------------------------

    def _execute(self, run: Run) -> None:
        """Add a run: check its reads, and record its reads and writes."""
        step, number = run.step, len(self.runs)
        self.runs.append(run)
        self.waits.append(set())
        result = len(step.design.operands) - 1
        for index in range(result):
            if self.base(step, index) not in self._constant:
                for access in self.accesses(step.position, index):
                    self._read(run, index, access)
        for race in self._conflicts(run):
            self._races.setdefault((step.position, race.other.operand, True), race)
        base, buffer = self.base(step, result), self.numbers[self.context.uses(step)[result]]
        for access in self.accesses(step.position, result):
            # The value of an index is unknown: a write may be at each value, and is not known to be at any one value.
            if any(atom in self.indices for atom, _ in access.address.terms):
                _, view = self._locate(run, result, access, self.indices)
                self._replace(view, base, lambda state: state._replace(writers=(*state.writers, number)))
            _, view = self._locate(run, result, access, {})
            state = StickState((number,), buffer if access.finished else PARTIAL)
            self._replace(view, base, lambda _, state=state: state)
        self._last_writes[buffer] = number
        if self._early:
            self._resolve_early(run)

    def _read(self, run: Run, index: int, access: _Accesses) -> None:
        """Check a read: each stick has to be written by the host or through the buffer of the operand."""
        start, view = self._locate(run, index, access, self.indices)
        name, number = self.context.uses(run.step)[index], len(self.runs) - 1
        buffer, base = self.numbers[name], self.base(run.step, index)

        def seen(state: StickState) -> StickState:
            is_known = state.readers[-1:] == (number,)
            return state if is_known else state._replace(readers=(*state.readers, number))

        bad = self._replace(view, base, seen, (buffer, HOST))
        if not bad:
            return
        if buffer in self._last_writes:
            self.waits[-1].add(self._last_writes[buffer])
        first = tuple(int(i) for i in np.unravel_index(int(np.argmax(np.isin(view, bad))), view.shape))
        strides = (stride // view.itemsize for stride in view.strides)
        stick = start + sum(i * stride for i, stride in zip(first, strides, strict=True))
        core = access.cores[first[len(access.steps) - 1]]
        state = self._state(int(view[first]), base)
        cause = {
            NOBODY: "which nothing wrote before",
            PARTIAL: "where a split reduction left parts of sums",
        }.get(state.buffer) or f"which the buffer {self.names[state.buffer - FIRST_BUFFER]} overwrote before"
        begin = stick * self.target.stick_bytes - self._row(base, core)
        where = f"Tensor{index} (buffer {name}) at byte {begin} of {base}"
        self.problems.append((run.step, index, f"Core {core} reads {where}, {cause}."))
        key = run.step.position, index, False
        race = Race(None, RaceAccess(run.step, index, core), base, begin)
        if state.writers:
            race = replace(race, write=self._writer(self.runs[state.writers[-1]], stick))
        if buffer in self._last_writes:
            self._races.setdefault(key, race)
        else:
            self._early.setdefault(key, (race, stick))

    def _replace(
        self,
        view: NDArray[Any],
        base: str,
        change: Callable[[StickState], StickState],
        accepted: tuple[int, ...] = (),
    ) -> list[int]:
        """Let the last run wait for earlier accesses of sticks, and change their states; return the bad states.

        A read, which names the buffers that it accepts as writers, waits for the writers, a write also for the readers.
        A read of another state is bad: the state does not change, and the run does not wait.
        """
        if not view.size:
            return []
        first = view[(0,) * view.ndim]
        is_uniform = bool((view == first).all())
        following, bad, waits = dict[int, int](), list[int](), self.waits[-1]
        ids = [int(first)]
        if not is_uniform:
            # Far faster than to sort the sticks.
            is_present = np.zeros(len(self._states), np.bool_)
            is_present[view] = True
            ids = np.flatnonzero(is_present).tolist()
        for id_ in ids:
            state = self._state(id_, base)
            if accepted and state.buffer not in accepted:
                bad.append(id_)
                following[id_] = id_
                continue
            waits.update(state.writers, () if accepted else state.readers)
            following[id_] = self._id(change(state))
        waits.discard(len(self.waits) - 1)
        if is_uniform:
            view[...] = following[ids[0]]
        else:
            table = np.zeros(ids[-1] + 1, np.int32)
            table[ids] = list(following.values())
            view[...] = table[view]
        return bad

    def _state(self, id_: int, base: str) -> StickState:
        """Return a state; 0 is the state of a stick that only the first writer of its base has written."""
        return self._states[id_] if id_ else StickState((), self._first.get(base, NOBODY))

    def _id(self, state: StickState) -> int:
        if state not in self._ids:
            self._ids[state] = len(self._states)
            self._states.append(state)
        return self._ids[state]

    def _writer(self, run: Run, stick: int) -> RaceAccess:
        """Return the access of a run that wrote a stick, by its place in the array of the base."""
        index = len(run.step.design.operands) - 1
        for access in self.accesses(run.step.position, index):
            for indices in ({}, self.indices):
                start, view = self._locate(run, index, access, indices)
                strides = [stride // view.itemsize for stride in view.strides]
                places = CoreRegion(0, tuple(zip(strides, view.shape, strict=True))).positions(start)
                if (hits := np.flatnonzero(places == stick)).size:
                    core = np.unravel_index(int(hits[0]), view.shape)[len(access.steps) - 1]
                    return RaceAccess(run.step, index, access.cores[int(core)])
        raise AssertionError(stick)

    def _resolve_early(self, run: Run) -> None:
        """Find the reads before the first write through their buffer whose stick this run writes."""
        for key, (race, stick) in list(self._early.items()):
            state = self._state(int(self.arrays[race.base][stick]), race.base)
            name = self.context.uses(race.other.step)[race.other.operand]
            is_other = run.step is not race.other.step and state.buffer == self.numbers[name]
            if is_other and state.writers[-1:] == (len(self.runs) - 1,):
                self._races.setdefault(key, replace(race, write=self._writer(run, stick)))
                del self._early[key]

    def _row(self, base: str, core: int) -> int:
        """Return the bytes from the begin of a base to the memory of a core, which is not 0 in LX."""
        return core * self.lx_sticks * self.target.stick_bytes if base == LX else 0

    # -- conflicts inside of one operation, whose cores run in any order --------------------------------

    def _conflicts(self, run: Run) -> Iterator[Race]:
        """Yield the first conflict of the writes of a run with each other, and of the reads of each operand with them.

        Cores that differ only in their slice of a reduced dim write parts of one sum to one address: this is how
        a division declares partial sums. Cores that differ in a dim that no operand has write copies: a conflict.
        An elementwise operation may read what the core writes itself, element by element.
        """
        step, (*sources, output) = run.step, run.step.design.operands
        result, base = len(sources), self.base(step, -1)
        inputs = [index for index in range(result) if self.base(step, index) == base]
        # All cores advance by the same step in each iteration: one run shows all conflicts of equal steps.
        starts = [step.design.operands[index].start[0] for index in (*inputs, result)]
        is_fixed = base == LX or len({step.values[start].terms for start in starts}) == 1
        if step.position in self._checked and is_fixed:
            return
        if base == LX:
            # Only the memory of the same core can overlap.
            *buffers, own = (self.context.buffers[self.context.uses(step)[i]] for i in (*inputs, -1))
            if not any(own.overlaps(buffer) for buffer in buffers):
                return
        self._checked.add(step.position)
        reduced = reduced_dims(step.design)
        written = dict[tuple[int, ...], tuple[int, int, CoreRegion]]()
        for core, start, region in self._starts(run, result):
            slices = (i for dim, i in step.design.core_slices[core].items() if dim not in reduced)
            written.setdefault((start, *slices), (core, start, region))
        ends = {core: (start, start + region.span) for core, start, region in written.values()}
        lowest, end = min(begin for begin, _ in ends.values()), max(end for _, end in ends.values())
        reads = dict[int, list[tuple[int, int, CoreRegion, bool]]]()
        is_elementwise = DEVICE_OPS[step.design.opcode].kind.is_elementwise
        for index in inputs:
            aligned = is_elementwise and same_places(step.design, sources[index], output)
            for core, start, region in self._starts(run, index):
                # No other core writes to the LX of the core.
                begin, stop = ends.get(core, (0, 0)) if base == LX else (lowest, end)
                is_apart = start >= stop or begin >= start + region.span or not min(region.counts, default=1)
                in_place = aligned and core in ends and ends[core][0] == start
                if not (is_apart or (in_place and base == LX)):
                    reads.setdefault(index, []).append((core, start, region, in_place))
        ordered = sorted(ends.values())
        if not reads and all(stop <= begin for (_, stop), (begin, _) in itertools.pairwise(ordered)):
            return

        def race(core: int, other: int, index: int, stick: int) -> Race:
            begin = (lowest + stick) * self.target.stick_bytes - self._row(base, core)
            accesses = RaceAccess(step, result, other), RaceAccess(step, index, core)
            return Race(*accesses, base, begin, reads=index < result)

        owners = np.zeros(end - lowest, np.int16)
        for core, start, region in written.values():
            view = region.view(owners, start - lowest)
            if view.any():
                places = region.positions(start - lowest)
                place = int(places[np.argmax(owners[places] != 0)])
                yield race(core, int(owners[place]) - 1, result, place)
                return
            view[...] = core + 1
        for index, accesses in reads.items():
            for core, start, region, in_place in accesses:
                places = region.positions(start - lowest)
                places = places[(places >= 0) & (places < len(owners))]
                found = owners[places]
                if in_place:
                    found[found == core + 1] = 0
                if found.any():
                    place = int(np.argmax(found != 0))
                    yield race(core, int(found[place]) - 1, index, int(places[place]))
                    break

    def _starts(self, run: Run, index: int) -> Iterator[tuple[int, int, CoreRegion]]:
        """Yield for each core the first stick of its part of an operand in the base, and its region."""
        step, unit = run.step, self.target.stick_bytes
        operand, row = step.design.operands[index], self.lx_sticks
        for core, region, _ in self._regions(step.execute.filename, index):
            if operand.memory == LX:
                yield core, operand.start[core] // unit + core * row, region
                continue
            value = step.values[operand.start[core]]
            moved = (
                factor * run.iterations[atom].lower for atom, factor in value.terms if atom in run.iterations
            )
            yield core, (value.offset + sum(moved)) // unit, region

    def is_written(self, argument: KernelArgument) -> bool:
        """Return whether every stick that the host reads of a result was written."""
        lanes = FORMATS[argument.data_format].stick_elements(self.target.stick_bytes)
        ranges = list(argument.transfer.ranges)
        for loops, weights, size in argument.transfer.bounds:
            # Shortening the outermost loop of a bound leaves exactly the sticks that the dim reaches.
            weight, loop = max(zip(weights, loops, strict=True))
            ranges[loop] = min(ranges[loop], -(-size // weight))
        steps, reach = [], 0
        for count, stride in zip(ranges, argument.transfer.device_strides, strict=True):
            # Such a stride steps inside of sticks, so the loop only lengthens the run.
            if stride % lanes:
                reach += (count - 1) * stride
            else:
                steps.append((stride // lanes, count))
        region = CoreRegion(0, (*steps, (1, reach // lanes + 1)))
        if self._first[argument.parameter] == HOST:
            return True
        view = region.view(self.arrays[argument.parameter], 0)
        return all(self._states[id_].buffer != NOBODY for id_ in np.unique(view).tolist())


def memory_order(context: Context) -> MemoryOrder:
    """Return the order of a context, which is computed once."""
    if MemoryOrder not in context.analyses:
        context.analyses[MemoryOrder] = MemoryOrder(context)
    return context.analyses[MemoryOrder]


def same_places(design: Design, one: Operand, other: Operand) -> bool:
    """Return whether two operands have each element at the same distance from their start."""
    same_stick = (one.stick_elements, one.stick_dim, one.other_elements) == (
        other.stick_elements,
        other.stick_dim,
        other.other_elements,
    )
    # A sparse stick holds one value where a dense stick holds many.
    same_lanes = one.scale[one.stick_dim] == other.scale[other.stick_dim]
    return same_stick and same_lanes and _steps(design, one) == _steps(design, other)


def _steps(design: Design, operand: Operand) -> dict[str, tuple[int, int]]:
    """Return the number of positions and the stride in sticks of each dim with several positions."""
    counts, strides = memory_counts(design, operand), memory_strides(design, operand)
    steps = zip(operand.dim_order, counts, strides, strict=True)
    return {dim: (count, stride) for dim, count, stride in steps if count > 1}
