# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on memory: addresses, spans, LX, allocations and the buffers of the manifest."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.context import Context, Diagnostic, ExecuteStep, Linear, LoopRange, Tree, name
from spyre_mlir.bundle.core_slices import (
    core_offset_bytes,
    core_region,
    finishing_cores,
    holders,
    memory_counts,
    memory_strides,
    reduced_dims,
)
from spyre_mlir.bundle.elements import Elements
from spyre_mlir.bundle.model import Buffer, Design, KernelArgument, Operand
from spyre_mlir.bundle.sequence import LX
from spyre_mlir.division.ownership import CoreRegion
from spyre_mlir.records import dataclass
from spyre_mlir.target.formats import FORMATS
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.target.target import Target


def span(design: Design) -> Iterator[str]:
    limit, stick_bytes = design.target.span_bytes, design.target.stick_bytes
    for i, operand in enumerate(design.operands):
        # Each row of an indirect access has its own address, so the span limit does not apply.
        if operand.memory != "hbm" or i in DEVICE_OPS[design.opcode].indirect:
            continue
        regions = (core_region(design, operand, core) for core in range(design.cores))
        spans = [region.span * stick_bytes for region in regions]
        if max(spans) > limit:
            core = spans.index(max(spans))
            text = f"Core {core} addresses {max(spans)} bytes of Tensor{i}"
            yield f"{text}; expected a span of at most {limit}."


def lx_addresses(context: Context) -> Iterator[Diagnostic]:
    target = context.target
    alignment, limit = target.lx_alignment_bytes, target.usable_lx_bytes
    for design in context.bundle.designs.values():
        for i, operand in enumerate(design.operands):
            if operand.memory != "lx":
                continue
            regions = (core_region(design, operand, core) for core in holders(design, operand))
            spans = [region.span * target.stick_bytes for region in regions]
            start, end = operand.start[0], max(operand.start) + max(spans)
            if len(set(operand.start)) > 1:
                yield f"Tensor{i} has different LX addresses; expected {start} on every core.", name(design)
            if start % alignment:
                text = f"Tensor{i} is at the LX address {start}"
                yield f"{text}; expected a multiple of {alignment}.", name(design)
            if end > limit:
                yield f"Tensor{i} ends at the LX address {end}; expected at most {limit}.", name(design)


def restickify_source(design: Design) -> Iterator[str]:
    """Check that a restickify on several cores reads device memory: it needs sticks that other cores hold in part."""
    across = DEVICE_OPS[design.opcode].kind.takes_sticks_apart and design.cores > 1
    if across and design.operands[0].memory == "lx":
        yield f"A restickify on {design.cores} cores reads Tensor0 from lx; expected hbm."


def symbol_values(context: Context) -> Iterator[Diagnostic]:
    """Check that each symbol id has one value; in loops, the same address at each iteration."""
    values: dict[int, tuple] = {}
    first: dict[int, ExecuteStep] = {}
    for step in context.steps:
        for symbol, value in step.values.items():
            # Loop bounds and depths replace loop names, so that equal loop nests give equal values.
            bounds = {
                loop.atom: (depth, loop.lower, loop.upper, loop.step) for depth, loop in enumerate(step.loops)
            }
            key = value.offset, sorted((str(bounds.get(atom, atom)), factor) for atom, factor in value.terms)
            if values.setdefault(symbol, key) != key:
                text = f"The symbol {symbol} has another value than in execute {first[symbol].position}"
                yield f"{text}; expected one value per symbol id.", step.where
            first.setdefault(symbol, step)


def hbm_addresses(context: Context) -> Iterator[Diagnostic]:
    """Check that every address is one base plus a multiple of the alignment at every iteration."""
    alignment = context.target.hbm_alignment_bytes
    for step in context.steps:
        inductions = {range_.atom for range_ in context.ranges(step)}
        for symbol, value in step.values.items():
            bases = [(atom, factor) for atom, factor in value.terms if atom not in inductions]
            if len(bases) != 1 or bases[0][1] != 1 or bases[0][0] not in context.bases:
                text = f"The symbol {symbol} is not an address"
                yield f"{text}; expected one parameter or allocation plus bytes.", step.where
            elif value.offset % alignment or any(
                factor * loop.step % alignment or factor * loop.lower % alignment
                for atom, factor in value.terms
                for loop in context.ranges(step)
                if loop.atom == atom
            ):
                text = f"The address of the symbol {symbol}, {bases[0][0]} + {value.offset},"
                yield f"{text} is not a multiple of {alignment} bytes at every iteration.", step.where


def core_offsets(context: Context) -> Iterator[Diagnostic]:
    """Check that the cores of one HBM operand address their slices of one tensor."""
    for step in context.steps:
        for i, operand in enumerate(step.design.operands):
            if operand.memory != "hbm":
                continue
            base = step.values[operand.start[0]]
            origin = core_offset_bytes(step.design, operand, 0)
            for core in range(1, step.design.cores):
                distance = step.values[operand.start[core]].plus(base, -1)
                expected = core_offset_bytes(step.design, operand, core) - origin
                if distance != Linear(expected):
                    count = "a changing number of" if distance.terms else distance.offset
                    text = f"Core {core} addresses Tensor{i} {count} bytes after core 0"
                    yield f"{text}; expected {expected}, where its slice begins.", step.where
                    break


def pool_limit(context: Context) -> Iterator[Diagnostic]:
    total, limit = sum(context.allocations.values()), context.target.pool_bytes
    if total > limit:
        yield f"The allocations have {total} bytes together; expected at most {limit}.", "bundle.mlir"
    for allocation, size in context.allocations.items():
        if size <= 0:
            yield f"%{allocation} allocates {size} bytes; expected at least 1.", "bundle.mlir"


def buffers(context: Context) -> Iterator[Diagnostic]:
    """Check that every buffer lies inside of its base."""
    where = "manifest.json"
    if len(context.buffers) != len(context.bundle.manifest.buffers):
        yield "Two buffers have the same name.", where
    for buffer in context.bundle.manifest.buffers:
        # A parameter that is not a kernel argument is the pool.
        pool_bytes = context.target.pool_bytes if buffer.base in context.bases else None
        capacity = context.allocations.get(buffer.base, pool_bytes)
        if buffer.base == "lx":
            capacity = context.target.usable_lx_bytes
        elif buffer.base in context.arguments:
            capacity = max(argument.bytes for argument in context.arguments[buffer.base])
        if capacity is None:
            base = buffer.base
            yield (
                f"The buffer {buffer.name} is in {base!r}, which is not a parameter, an allocation or lx.",
                where,
            )
        elif buffer.offset < 0 or buffer.bytes < 1 or buffer.offset + buffer.bytes > capacity:
            text = f"[{buffer.offset}, {buffer.offset + buffer.bytes}) of {buffer.base}"
            yield f"The buffer {buffer.name} has the bytes {text}, which has {capacity}.", where


def operands_in_buffers(context: Context) -> Iterator[Diagnostic]:
    """Check that each core accesses only bytes inside of the buffer that the manifest names."""
    for step in context.steps:
        for i, buffer_name in enumerate(context.uses(step)):
            buffer = context.buffers[buffer_name]
            problem = _outside(step, i, buffer, context.ranges(step))
            if problem:
                yield f"{problem} of the buffer {buffer.name}.", step.where


def _outside(step: ExecuteStep, index: int, buffer: Buffer, ranges: tuple[LoopRange, ...]) -> str | None:
    operand = step.design.operands[index]
    if (operand.memory == "lx") != (buffer.base == "lx"):
        return f"Tensor{index} is in {operand.memory}; expected the memory"
    for core in holders(step.design, operand):
        region = core_region(step.design, operand, core)
        start, bytes_ = operand.start[core], region.span * step.design.target.stick_bytes
        if operand.memory == "lx":
            first = last = start
        else:
            value = step.values[start]
            if (buffer.base, 1) not in value.terms:
                return f"Core {core} addresses Tensor{index} outside of {buffer.base}; expected the base"
            # The lowest and the highest byte offset from the base over all iterations.
            first = last = value.offset
            factors = dict(value.terms)
            for loop in ranges:
                ends = sorted(factors.get(loop.atom, 0) * end for end in (loop.lower, loop.last))
                first, last = first + ends[0], last + ends[1]
        if first < buffer.offset or last + bytes_ > buffer.offset + buffer.bytes:
            actual = f"[{first}, {last + bytes_}) of {buffer.base}"
            expected = f"[{buffer.offset}, {buffer.offset + buffer.bytes})"
            return f"Core {core} touches Tensor{index} in {actual}; expected to be inside {expected}"
    return None


def lx_overlap(context: Context) -> Iterator[Diagnostic]:
    """Check that LX buffers with overlapping live ranges are disjoint, except for an operation in place."""
    live_ranges = _live_ranges(context)
    used = [
        buffer
        for buffer in context.bundle.manifest.buffers
        if buffer.base == "lx" and buffer.name in live_ranges
    ]
    for a, b in _alive_together(used, live_ranges):
        if a.offset >= b.offset + b.bytes or b.offset >= a.offset + a.bytes:
            continue
        first, last = live_ranges[b.name][0], min(live_ranges[a.name][1], live_ranges[b.name][1])
        # Buffers whose live ranges share only one execute may be source and result of an operation in place.
        if first == last and 0 <= first < len(context.steps) and _in_place(context, first, a, b):
            continue
        text = f"The LX buffers {a.name} at {a.offset} and {b.name} at {b.offset} overlap"
        when = f"at execute {first}" if first >= 0 else "before the first execute"
        yield f"{text} and are both live {when}.", "manifest.json"


def _alive_together(
    buffers: list[Buffer], live_ranges: dict[str, tuple[int, int]]
) -> Iterator[tuple[Buffer, Buffer]]:
    """Yield the pairs of buffers with overlapping live ranges; the buffer that is used first comes first."""
    alive: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda buffer: live_ranges[buffer.name][0]):
        alive = [other for other in alive if live_ranges[other.name][1] >= live_ranges[buffer.name][0]]
        yield from ((other, buffer) for other in alive)
        alive.append(buffer)


def _live_ranges(context: Context) -> dict[str, tuple[int, int]]:
    """Return the live range of every buffer: its first write and last read, as execute indices, both included.

    A buffer that a loop reads before it writes is live through the whole loop: the next iteration reads it again.
    Buffers left by other bundles are live before the first execute; buffers that the bundle leaves, after the last.
    """
    live_ranges: dict[str, tuple[int, int]] = {}
    for step in context.steps:
        for buffer in context.uses(step):
            first, _ = live_ranges.get(buffer, (step.position, 0))
            live_ranges[buffer] = first, step.position
    # Inner loops first: the outer loop may extend the range that an inner loop has extended.
    loops: dict[LoopRange, list[ExecuteStep]] = {}
    depths: dict[LoopRange, int] = {}
    for step in context.steps:
        for depth, loop in enumerate(step.loops):
            loops.setdefault(loop, []).append(step)
            depths[loop] = depth
    for steps in (loops[loop] for loop in sorted(loops, key=lambda loop: -depths[loop])):
        first, last = steps[0].position, steps[-1].position
        for buffer in _read_first(context, steps):
            live_ranges[buffer] = min(live_ranges[buffer][0], first), max(live_ranges[buffer][1], last)
    for resident in context.bundle.manifest.expects:
        live_ranges[resident.buffer] = -1, live_ranges.get(resident.buffer, (-1, -1))[1]
    for resident in context.bundle.manifest.leaves:
        live_ranges[resident.buffer] = live_ranges[resident.buffer][0], len(context.steps)
    return live_ranges


def _read_first(context: Context, steps: list[ExecuteStep]) -> set[str]:
    """Return the buffers whose first use among the steps is a read."""
    written: set[str] = set()
    read: set[str] = set()
    for step in steps:
        *sources, result = context.uses(step)
        read |= set(sources) - written
        written.add(result)
    return read


def _in_place(context: Context, position: int, a: Buffer, b: Buffer) -> bool:
    """Return whether the execute overwrites one of the buffers with the other, element by element."""
    step = context.steps[position]
    *sources, result = context.uses(step)
    child, parent = (a, b) if a.name == result else (b, a)
    if child.name != result or parent.name not in sources:
        return False
    if a.offset != b.offset or child.bytes > parent.bytes:
        return False
    pointwise = DEVICE_OPS[step.design.opcode].kind.is_elementwise
    operands = zip(step.design.operands, sources, strict=False)
    read = [operand for operand, source in operands if source == parent.name]
    return pointwise and all(_same_places(step.design, operand, step.design.operands[-1]) for operand in read)


def _same_places(design: Design, one: Operand, other: Operand) -> bool:
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
    parts: dict[tuple, tuple[int, int, CoreRegion]] = {}
    reduced = reduced_dims(step.design)
    for core, symbol in enumerate(output.start):
        start = _sticks(step.values[symbol], iterations, step.design.target)
        output_slices = [index for dim, index in step.design.core_slices[core].items() if dim not in reduced]
        parts.setdefault((start, *output_slices), (core, start, core_region(step.design, output, core)))
    lowest = min(start for _, start, _ in parts.values())
    end = max(start + region.span for _, start, region in parts.values())
    is_written = np.zeros(end - lowest, np.bool_)
    for core, start, region in parts.values():
        view = region.view(is_written, start - lowest)
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
        # Each iteration by itself, or the first and then all others together.
        values, second = range(loop.lower, loop.upper, loop.step), loop.lower + loop.step
        parts = (LoopRange(loop.atom, value, value + 1, 1) for value in values)
        if at_once:
            bounds = [(loop.lower, second), (second, loop.upper)]
            parts = (LoopRange(loop.atom, *ends, loop.step) for ends in bounds if ends[0] < loop.upper)
        for part in parts:
            yield from _walk(body, {**outer, loop.atom: part}, at_once)


@dataclass(frozen=True)
class _RegionAccess:
    """One rectangle of an operand, and the first core that accesses it; in LX each core has its own rectangle.

    ``finished`` is True if the rectangle holds a result after the operation, False if it holds partial sums.
    """

    core: int
    address: Linear
    region: CoreRegion
    finished: bool = True


class _LastWriters:
    """The last writer of every stick of every base."""

    def __init__(self, context: Context) -> None:
        self.context, self.target = context, context.target
        self.numbers = {buffer: i for i, buffer in enumerate(context.buffers, FIRST_BUFFER)}
        self.names = {number: f"the buffer {buffer}" for buffer, number in self.numbers.items()}
        self.lx_sticks = -(-self.target.usable_lx_bytes // self.target.stick_bytes)
        ends: dict[str, int] = defaultdict(int)
        for buffer in context.buffers.values():
            ends[buffer.base] = max(ends[buffer.base], buffer.offset + buffer.bytes)
        for argument in context.bundle.manifest.arguments:
            ends[argument.parameter] = max(ends[argument.parameter], argument.bytes)
        unit = self.target.stick_bytes
        sticks = {base: -(-end // unit) for base, end in ends.items()}
        sticks["lx"] = self.lx_sticks * self.target.device_cores
        # The smallest type that holds all numbers: device memory has many sticks.
        kind = np.min_scalar_type(len(self.numbers) + FIRST_BUFFER)
        self.arrays: dict[str, NDArray[Any]] = {}
        for base, count in sticks.items():
            # The host is the first writer of a base in which it passes an input.
            has_input = any(argument.kind != "result" for argument in context.arguments.get(base, ()))
            self.arrays[base] = np.full(count, HOST if has_input else NOBODY, kind)
        self.accesses = functools.cache(self._accesses_of)
        self.indices = {range_.atom: range_ for range_ in context.indices}
        # Previous bundles wrote all of these buffers. The rule of sequences checks the details.
        for resident in context.bundle.manifest.expects:
            buffer = context.buffers[resident.buffer]
            for core in resident.cores if buffer.base == LX else (0,):
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
            missing = view != self.numbers[buffer]
            # Almost every read is of data that the buffer itself wrote, which one comparison shows.
            if missing.any():
                missing &= view != HOST
            if not missing.any():
                continue
            first = tuple(int(i) for i in np.unravel_index(int(np.argmax(missing)), view.shape))
            strides = (stride // view.itemsize for stride in view.strides)
            stick = start + sum(i * stride for i, stride in zip(first, strides, strict=True))
            writer = int(view[first])
            what = {
                NOBODY: "which nothing wrote before",
                PARTIAL: "where a split reduction left parts of sums",
            }
            cause = what.get(writer) or f"which {self.names[writer]} overwrote before"
            address = f"byte {stick * self.target.stick_bytes} of {self.context.buffers[buffer].base}"
            return f"Core {access.core} reads Tensor{index} (buffer {buffer}) at {address}, {cause}."
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
        steps = access.region.steps
        ranges = {**iterations, **self.indices} if reads else iterations
        for atom, factor in access.address.terms:
            if atom in ranges and ranges[atom].count > 1:
                stride = factor * ranges[atom].step // self.target.stick_bytes
                steps = (*steps, (stride, ranges[atom].count))
        offset = start + access.core * self.lx_sticks if in_lx else start
        return start, CoreRegion(offset, steps).view(self.arrays[buffer.base], 0)

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
        return bool((region.view(self.arrays[argument.parameter], 0) != NOBODY).all())
