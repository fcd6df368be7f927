# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on memory: addresses, spans, LX, allocations and the buffers of the manifest."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.bundle.context import Context, Diagnostic, ExecuteStep, Linear, LoopRange, name
from spyre_mlir.bundle.core_slices import core_offset_bytes, core_region, holders
from spyre_mlir.bundle.elements import Elements
from spyre_mlir.bundle.memory_order import memory_order, same_places, walk
from spyre_mlir.bundle.model import Buffer, Design
from spyre_mlir.target.ops import DEVICE_OPS


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
        if not a.overlaps(b):
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
        written: set[str] = set()
        read: set[str] = set()
        for step in steps:
            *sources, result = context.uses(step)
            read |= set(sources) - written
            written.add(result)
        for buffer in read:
            live_ranges[buffer] = min(live_ranges[buffer][0], first), max(live_ranges[buffer][1], last)
    for resident in context.bundle.manifest.expects:
        live_ranges[resident.buffer] = -1, live_ranges.get(resident.buffer, (-1, -1))[1]
    for resident in context.bundle.manifest.leaves:
        live_ranges[resident.buffer] = live_ranges[resident.buffer][0], len(context.steps)
    return live_ranges


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
    return pointwise and all(same_places(step.design, operand, step.design.operands[-1]) for operand in read)


def write_conflicts(context: Context) -> Iterator[Diagnostic]:
    """Check that different cores write different sticks, except for partial sums of one result."""
    for race in memory_order(context).races:
        if not race.reads:
            access = race.other
            text = f"Core {access.core} writes bytes of Tensor{access.operand} that another core writes too."
            yield text, access.step.where


def races(context: Context) -> Iterator[Diagnostic]:
    """Check that no core reads what the operation writes, unless the core itself does so element by element."""
    for race in memory_order(context).races:
        if race.reads and race.write is not None and race.write.step is race.other.step:
            yield f"A race: {race}.", race.other.step.where


def initialised(context: Context) -> Iterator[Diagnostic]:
    """Check that everything that is read was written through the same buffer and not overwritten since."""
    order, reported = memory_order(context), set[tuple[int, int]]()
    for step, index, problem in order.problems:
        # One message per tensor, whatever the number of cores and iterations.
        if (step.position, index) not in reported:
            reported.add((step.position, index))
            yield problem, step.where
    for argument in context.bundle.manifest.arguments:
        if argument.kind == "result" and not order.is_written(argument):
            yield f"The host reads sticks of {argument.name} that nothing wrote.", "manifest.json"


def elements(context: Context) -> Iterator[Diagnostic]:
    """Check that a read in LX yields the elements of the tensor that the reader's slices denote."""
    placed = Elements(context.target)
    reported: set[tuple[int, int]] = set()
    # Addresses in LX are the same in all iterations, so the second iteration leaves the same state as all later ones.
    for run in walk(context.tree, {}, at_once=True):
        step = run.step
        for index in range(len(step.design.operands) - 1):
            problem = placed.problem(step.position, step.design, index)
            if problem and (step.position, index) not in reported:
                reported.add((step.position, index))
                yield problem, step.where
        placed.write(step.position, step.design)
