# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on the contents of memory over time, checked by walking the program with the last writer of each stick.

Every base (parameter, allocation, LX of a core) has one array with the index of the buffer that last wrote
each stick. An access of a core is a strided view of this array, so a read is a comparison and a write is a fill.
In a split reduction into LX only the finishing cores have the result; the other cores have partial sums.
A written stick of LX does not identify the element of the tensor: ``elements.py`` checks the elements.

Loops are walked iteration by iteration. A program of more than ``WALKED_EXECUTES`` executions walks the first
iteration of every loop and then all other iterations at once, as one more dim of the view. This accepts a read of
data that only a later one of these iterations writes; the simulator, which runs every iteration, finds that case.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.context import Context, Diagnostic, ExecuteStep, Linear, LoopRange, Tree
from spyre_mlir.bundle.core_slices import StickRegion, core_region, finishing_cores, holders, reduced_dims
from spyre_mlir.bundle.elements import Elements
from spyre_mlir.bundle.model import KernelArgument, Operand, Resident
from spyre_mlir.bundle.sequence import LX
from spyre_mlir.records import dataclass
from spyre_mlir.target.formats import FORMATS
from spyre_mlir.target.target import Target

WALKED_EXECUTES = 4096

NOBODY, HOST, PARTIAL, FIRST_BUFFER = 0, 1, 2, 3

# The ranges of the induction variables: one value for each loop that is walked iteration by iteration.
Iterations = dict[str, LoopRange]


def write_conflicts(context: Context) -> Iterator[Diagnostic]:
    """Check that different cores write different sticks, except for partial sums of one result.

    Cores that differ only in their slice of a reduced dim write parts of one sum to one address: this is how
    a division declares partial sums. Cores that differ in a dim that no operand has write copies, which is a conflict.
    """
    for step in context.steps:
        output = step.design.operands[-1]
        if output.memory != "hbm":
            continue
        # All cores advance by the same step in each iteration, so the first iteration shows every conflict.
        iterations = {loop.atom: LoopRange(loop.atom, loop.lower, loop.lower + 1, 1) for loop in step.loops}
        core = _conflicting_core(step, output, iterations)
        if core is not None:
            tensor = len(step.design.operands) - 1
            yield f"Core {core} writes bytes of Tensor{tensor} that another core writes too.", step.where


def _conflicting_core(step: ExecuteStep, output: Operand, iterations: Iterations) -> int | None:
    parts: dict[tuple, tuple[int, int, StickRegion]] = {}
    reduced = reduced_dims(step.design)
    for core, symbol in enumerate(output.start):
        start = _sticks(step.values[symbol], iterations, step.design.target)
        output_slices = [index for dim, index in step.design.core_slices[core].items() if dim not in reduced]
        parts.setdefault((start, *output_slices), (core, start, core_region(step.design, output, core)))
    lowest = min(start for _, start, _ in parts.values())
    end = max(start + region.span_sticks for _, start, region in parts.values())
    is_written = np.zeros(end - lowest, np.bool_)
    for core, start, region in parts.values():
        view = _view(is_written, start - lowest, region)
        if view.any():
            return core
        view[...] = True
    return None


def _sticks(value: Linear, iterations: Iterations, target: Target) -> int:
    """Return the sticks from the base to the address in the first of the iterations."""
    bytes_ = value.offset
    for atom, factor in value.terms:
        if atom in iterations:
            bytes_ += factor * iterations[atom].lower
    return bytes_ // target.stick_bytes


def _view(array: NDArray[Any], start: int, region: StickRegion) -> NDArray[Any]:
    # The stride of a single position may exceed all memory, but it is never used.
    steps = zip(region.counts, region.strides, strict=True)
    strides = tuple(stride * array.itemsize if count > 1 else 0 for count, stride in steps)
    return np.ndarray(region.counts, array.dtype, array, start * array.itemsize, strides)


def initialised(context: Context) -> Iterator[Diagnostic]:
    """Check that everything that is read was written through the same buffer and not overwritten since."""
    memory = _LastWriters(context)
    executions = sum(step.runs for step in context.steps)
    reported: set[tuple[int, int]] = set()
    for step, iterations in _walk(context.tree, {}, executions > WALKED_EXECUTES):
        for index, problem in memory.execute(step, iterations):
            # One message per tensor, whatever the number of cores and iterations.
            if (step.position, index) not in reported:
                reported.add((step.position, index))
                yield problem, step.where
    for argument in context.bundle.manifest.arguments:
        if argument.kind == "result" and not memory.is_written(argument):
            yield f"The host reads sticks of {argument.name} that nothing wrote.", "manifest.json"


def elements(context: Context) -> Iterator[Diagnostic]:
    """Check that a read in LX yields the elements of the tensor that the reader's slices denote."""
    placed = Elements(context.target)
    reported: set[tuple[int, int]] = set()
    # Addresses in LX are the same in all iterations, so the second iteration leaves the same state as all later ones.
    for step, _ in _walk(context.tree, {}, at_once=True):
        for index in range(len(step.design.operands) - 1):
            problem = placed.problem(step.position, step.design, index)
            if problem and (step.position, index) not in reported:
                reported.add((step.position, index))
                yield problem, step.where
        placed.write(step.position, step.design)


def _walk(tree: Tree, outer: Iterations, at_once: bool) -> Iterator[tuple[ExecuteStep, Iterations]]:
    for node in tree:
        if isinstance(node, ExecuteStep):
            yield node, outer
            continue
        loop, body = node
        for part in _parts(loop, at_once):
            yield from _walk(body, {**outer, loop.atom: part}, at_once)


def _parts(loop: LoopRange, at_once: bool) -> Iterator[LoopRange]:
    """Yield the iterations of a loop: each by itself, or the first and then all others together."""
    if not at_once:
        for value in range(loop.lower, loop.upper, loop.step):
            yield LoopRange(loop.atom, value, value + 1, 1)
        return
    second = loop.lower + loop.step
    yield LoopRange(loop.atom, loop.lower, second, loop.step)
    if second < loop.upper:
        yield LoopRange(loop.atom, second, loop.upper, loop.step)


@dataclass(frozen=True)
class _RegionAccess:
    """One rectangle of an operand, and the first core that accesses it; in LX each core has its own rectangle.

    ``finished`` is True if the rectangle holds a result after the operation, False if it holds partial sums.
    """

    core: int
    address: Linear
    region: StickRegion
    finished: bool = True


class _LastWriters:
    """The last writer of every stick of every base."""

    def __init__(self, context: Context) -> None:
        self.context, self.target = context, context.target
        self.numbers = {buffer: i for i, buffer in enumerate(context.buffers, FIRST_BUFFER)}
        self.names = {number: f"the buffer {buffer}" for buffer, number in self.numbers.items()}
        self.lx_sticks = -(-self.target.usable_lx_bytes // self.target.stick_bytes)
        self.arrays = {base: self._array(base, sticks) for base, sticks in self._sticks_of_bases().items()}
        self.accesses = functools.cache(self._accesses_of)
        self.indices = {range_.atom: range_ for range_ in context.indices}
        for resident in context.bundle.manifest.expects:
            self._find(resident)

    def _sticks_of_bases(self) -> dict[str, int]:
        ends: dict[str, int] = defaultdict(int)
        for buffer in self.context.buffers.values():
            ends[buffer.base] = max(ends[buffer.base], buffer.offset + buffer.bytes)
        for argument in self.context.bundle.manifest.arguments:
            ends[argument.parameter] = max(ends[argument.parameter], argument.bytes)
        sticks = {base: -(-end // self.target.stick_bytes) for base, end in ends.items()}
        return {**sticks, "lx": self.lx_sticks * self.target.device_cores}

    def _array(self, base: str, sticks: int) -> NDArray[Any]:
        """Return the writers of a base: initially the host, if the host passes an input in it."""
        has_input = any(argument.kind != "result" for argument in self.context.arguments.get(base, ()))
        # The smallest type that holds all numbers: device memory has many sticks.
        kind = np.min_scalar_type(len(self.numbers) + FIRST_BUFFER)
        return np.full(sticks, HOST if has_input else NOBODY, kind)

    def _find(self, resident: Resident) -> None:
        """Record the writes of previous bundles: all of the buffer. The rule of sequences checks the details."""
        buffer, unit = self.context.buffers[resident.buffer], self.target.stick_bytes
        cores = resident.cores if buffer.base == LX else (0,)
        for core in cores:
            start = buffer.offset // unit + core * self.lx_sticks
            end = start + -(-buffer.bytes // unit)
            self.arrays[buffer.base][start:end] = self.numbers[buffer.name]

    def execute(self, step: ExecuteStep, iterations: Iterations) -> Iterator[tuple[int, str]]:
        """Check the reads of one execution and record its writes; yields (operand, problem)."""
        *sources, result = range(len(step.design.operands))
        for index in sources:
            if problem := self._unwritten(step, index, iterations):
                yield index, problem
        number = self.numbers[self.context.uses(step)[result]]
        for access in self.accesses(step.position, result):
            _, view = self._locate(step, result, access, iterations)
            view[...] = number if access.finished else PARTIAL

    def _unwritten(self, step: ExecuteStep, index: int, iterations: Iterations) -> str | None:
        """Describe the first stick of an operand that neither its buffer nor the host wrote last, or None."""
        buffer = self.context.uses(step)[index]
        for access in self.accesses(step.position, index):
            start, view = self._locate(step, index, access, iterations)
            missing = self._first_missing(view, self.numbers[buffer])
            if missing is not None:
                return self._describe(index, access, start, view, missing, buffer)
        return None

    def _accesses_of(self, position: int, index: int) -> list[_RegionAccess]:
        step = self.context.steps[position]
        operand = step.design.operands[index]
        reads = index < len(step.design.operands) - 1
        finishing = finishing_cores(step.design)
        accesses: dict[tuple, _RegionAccess] = {}
        for core in holders(step.design, operand):
            start = operand.start[core]
            # Padding need not have been written: no valid result depends on it.
            region = core_region(step.design, operand, core, valid=reads)
            if operand.memory == "lx":
                accesses[core,] = _RegionAccess(core, Linear(start), region, reads or core in finishing)
            else:
                accesses.setdefault((start, region), _RegionAccess(core, step.values[start], region))
        return list(accesses.values())

    def _locate(
        self, step: ExecuteStep, index: int, access: _RegionAccess, iterations: Iterations
    ) -> tuple[int, NDArray[Any]]:
        """Return the first stick in its base and the view of a rectangle, with one more dim per loop taken at once."""
        in_lx = step.design.operands[index].memory == "lx"
        buffer = self.context.buffers[self.context.uses(step)[index]]
        # The value of an index is unknown: a write is not known to be at any one value, and a read needs all values.
        reads = index < len(step.design.operands) - 1
        start = _sticks(access.address, iterations, self.target)
        counts, strides = access.region.counts, access.region.strides
        ranges = {**iterations, **self.indices} if reads else iterations
        for atom, factor in access.address.terms:
            if atom in ranges and ranges[atom].count > 1:
                counts = (*counts, ranges[atom].count)
                strides = (*strides, factor * ranges[atom].step // self.target.stick_bytes)
        offset = start + access.core * self.lx_sticks if in_lx else start
        return start, _view(self.arrays[buffer.base], offset, StickRegion(counts, strides))

    @staticmethod
    def _first_missing(view: NDArray[Any], number: int) -> tuple[int, ...] | None:
        """Return the first position that neither the host nor buffer ``number`` wrote last, or None."""
        missing = view != number
        # Almost every read is of data that the buffer itself wrote, which one comparison shows.
        if missing.any():
            missing &= view != HOST
        if not missing.any():
            return None
        return tuple(int(i) for i in np.unravel_index(int(np.argmax(missing)), view.shape))

    def _describe(
        self,
        index: int,
        access: _RegionAccess,
        start: int,
        view: NDArray[Any],
        missing: tuple[int, ...],
        buffer: str,
    ) -> str:
        strides = (stride // view.itemsize for stride in view.strides)
        stick = start + sum(i * stride for i, stride in zip(missing, strides, strict=True))
        base = self.context.buffers[buffer].base
        writer = int(view[missing])
        what = {NOBODY: "which nothing wrote before", PARTIAL: "where a split reduction left parts of sums"}
        cause = what.get(writer) or f"which {self.names[writer]} overwrote before"
        address = f"byte {stick * self.target.stick_bytes} of {base}"
        return f"Core {access.core} reads Tensor{index} (buffer {buffer}) at {address}, {cause}."

    def is_written(self, argument: KernelArgument) -> bool:
        """Return whether every stick that the host reads of a result was written."""
        lanes = FORMATS[argument.data_format].stick_elements(self.target.stick_bytes)
        ranges = list(argument.transfer.ranges)
        for loops, weights, size in argument.transfer.bounds:
            # Shortening the outermost loop of a bound leaves exactly the sticks that the dim reaches.
            weight, loop = max(zip(weights, loops, strict=True))
            ranges[loop] = min(ranges[loop], -(-size // weight))
        counts, strides, reach = [], [], 0
        for count, stride in zip(ranges, argument.transfer.device_strides, strict=True):
            # Such a stride steps inside of sticks, so the loop only lengthens the run.
            if stride % lanes:
                reach += (count - 1) * stride
            else:
                counts.append(count)
                strides.append(stride // lanes)
        region = StickRegion((*counts, reach // lanes + 1), (*strides, 1))
        return bool((_view(self.arrays[argument.parameter], 0, region) != NOBODY).all())
