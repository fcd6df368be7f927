# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All figures of a compiled program, which summaries, pages and comparisons of bundles share.

Bytes are counted as in the simulator: padded device bytes, a load that several cores share counts once, and all runs of
loops count. Times come from the timeline: the time of an operation is its part of the program's time. Facts of
operations and buffers are by name, and the name of a number includes its unit. Sizes and dims of an operand are in the
order of its design, innermost first.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field

from spyre_mlir.bundle.context import Context, ExecuteStep
from spyre_mlir.bundle.model import Buffer, Bundle, Design, KernelArgument, Levels, Operand
from spyre_mlir.bundle.validate import sound_context
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remark
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.html import count
from spyre_mlir.report.lx_map import LxMap, MapStep, iterations_text, lx_map_of
from spyre_mlir.timeline import Execution, Timeline, timeline_of
from spyre_mlir.timeline.events import OVERLAPPED, Shares
from spyre_mlir.timeline.of_design import work_of_designs
from spyre_mlir.timeline.roofline import Rates, Roofline, of_execution, of_program, rates
from spyre_mlir.timeline.timeline import busiest

Fact = int | float | str
Facts = Mapping[str, Fact]

#: Names of facts that are reported for items that only one of two bundles has.
CORES, ITERATIONS, READ, WRITTEN, TIME = "cores", "iterations", "bytes read", "bytes written", "time (us)"
MEMORY, ADDRESS, BYTES = "memory", "address", "bytes"


@dataclass(frozen=True)
class Operation(MapStep):
    """One execute of the program text, all its runs together: its step of the map, and its facts.

    ``buffers`` are the buffers of its operands, the result last. ``spilled_bytes`` is the part of its traffic that
    moves from and to buffers in the pool: buffers that are neither arguments nor in LX.
    """

    buffers: tuple[str, ...]
    facts: Facts
    execution: Execution
    design: Design
    spilled_bytes: int

    @property
    def iterations(self) -> str:
        """Iterations of the loops around it, outermost first: ``8 x 3``; empty if there are none."""
        return iterations_text(self.loops)

    @functools.cached_property
    def roofline(self) -> Roofline:
        return of_execution(self.execution)

    @property
    def slices(self) -> str:
        """The split dims, each with its slices and elements per slice; empty if no dim is split."""
        return _slices_text(self.design)

    @property
    def read_bytes(self) -> int:
        """Bytes of device memory that all runs read."""
        return self.execution.read_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes of device memory that all runs write."""
        return self.execution.written_bytes

    @property
    def traffic(self) -> int:
        """Bytes of device memory that all runs read or write."""
        return self.read_bytes + self.written_bytes

    @property
    def shape(self) -> str:
        """The dims of its iteration space and their sizes, without dims of one element: ``mb 128, out 512``."""
        sizes = (f"{dim} {size:,}" for dim, size in self.design.sizes.items() if size > 1)
        return ", ".join(sizes) or "one element"

    @property
    def dtype(self) -> str:
        """The formats of its first operand and of its result: ``fp16``, or ``fp16 → fp32`` for a conversion."""
        names = [operand.data_format.rpartition("_")[2].lower() for operand in self.design.operands]
        return " → ".join(dict.fromkeys((names[0], names[-1])))

    @property
    def source(self) -> str:
        """``file:line`` without folders; empty if the bundle does not know it."""
        return self.origin.source.rpartition("/")[2]

    @property
    def name(self) -> str:
        """Name of the operation in texts."""
        return f"step {self.position}: {self.opcode}{f' in {self.module}' if self.module else ''}"


@dataclass(frozen=True)
class OperationKind:
    """Operations of one opcode, shape and format, in any layer; times are sums of their parts of the timeline."""

    opcode: str
    shape: str
    dtype: str
    operations: tuple[Operation, ...]

    @functools.cached_property
    def shares(self) -> Shares:
        return functools.reduce(Shares.plus, (each.execution.shares for each in self.operations), Shares())

    @property
    def runs(self) -> int:
        """Number of runs, loops included."""
        return sum(operation.runs for operation in self.operations)

    @property
    def microseconds(self) -> float:
        """Time of all runs."""
        return self.shares.total / 1e6

    @property
    def modules(self) -> str:
        """The modules of its operations; their number if they differ."""
        modules = dict.fromkeys(operation.module for operation in self.operations if operation.module)
        return count(len(modules), "module") if len(modules) > 1 else next(iter(modules), "")


@dataclass(frozen=True)
class BufferFacts:
    """One buffer; ``writer`` is the first operation that writes it, None if none does."""

    name: str
    is_argument: bool
    writer: MapStep | None
    facts: Facts


@dataclass(frozen=True)
class ProgramFacts:
    """A compiled program; ``passes`` are seconds by pass. ``passes`` and ``levels`` are empty if not recorded.

    ``argument_bytes`` is the minimum of bytes to move: each argument and result once, or at most the bytes that move
    if the program accesses only a part.
    """

    map: LxMap
    timeline: Timeline
    operations: tuple[Operation, ...]
    buffers: tuple[BufferFacts, ...]
    argument_bytes: int
    totals: Facts
    remarks: tuple[Remark, ...]
    passes: tuple[tuple[str, float], ...]
    rates: Rates
    findings: tuple[ProgramFinding, ...] = ()
    levels: Levels = field(default_factory=dict)
    #: By module, the largest error of its result over the allowed error (``Program.compare``).
    errors: Mapping[str, float] = field(default_factory=dict)

    @functools.cached_property
    def roofline(self) -> Roofline:
        return of_program(self.timeline)

    @property
    def read_bytes(self) -> int:
        """Bytes of device memory that the program reads."""
        return self.timeline.read_bytes

    @property
    def written_bytes(self) -> int:
        """Bytes of device memory that the program writes."""
        return self.timeline.written_bytes

    @property
    def traffic(self) -> int:
        """Bytes of device memory that the program reads or writes."""
        return self.read_bytes + self.written_bytes

    @property
    def restickifies(self) -> int:
        """Number of restickifies."""
        return sum(operation.execution.is_restickify for operation in self.operations)

    @property
    def opcodes(self) -> list[tuple[str, int]]:
        """Return the number of operations by opcode, the most frequent first."""
        return Counter(operation.opcode for operation in self.operations).most_common()

    @functools.cached_property
    def kinds(self) -> list[OperationKind]:
        """The operations by opcode, shape and format, those with the most time first."""
        groups: dict[tuple[str, str, str], list[Operation]] = {}
        for operation in self.operations:
            groups.setdefault((operation.opcode, operation.shape, operation.dtype), []).append(operation)
        kinds = [OperationKind(*key, tuple(operations)) for key, operations in groups.items()]
        return sorted(kinds, key=lambda kind: -kind.shares.total)

    @property
    def ring_text(self) -> str:
        """The number of operations on the ring and the busiest link, for a program that uses the ring."""
        using = [execution for execution in self.timeline.executions if execution.links is not None]
        shuffles = sum(execution.work.relayout is not None for execution in using)
        kinds = ((shuffles, "shuffle"), (len(using) - shuffles, "split reduction"))
        users = ", ".join(count(number, noun) for number, noun in kinds if number)
        link = busiest(self.timeline.links)
        return f"{users}; most from {link.name}: {link.bytes:,} bytes"


def program_facts(
    bundle: Bundle,
    remarks: Sequence[Remark] = (),
    passes: Sequence[tuple[str, float]] = (),
    lx_backend_fraction: float | None = None,
    findings: Sequence[ProgramFinding] = (),
    levels: Levels | None = None,
    overlap: str = OVERLAPPED,
) -> ProgramFacts:
    """Return the facts of a bundle; ``CompileError`` if the parts of the bundle are inconsistent.

    ``lx_backend_fraction`` is the part of LX that the backend keeps, by default the device's part. ``overlap``
    is the setting of the timeline.
    """
    context, work_by_file = sound_context(bundle, lx_backend_fraction), work_of_designs(bundle)
    map_, timeline = lx_map_of(context, work_by_file), timeline_of(context, work_by_file, overlap)
    spilled = {buffer.name for buffer in map_.spilled}
    read, written, writers = Counter[str](), Counter[str](), dict[str, MapStep]()
    operations = list[Operation]()
    for step, shown, execution in zip(context.steps, map_.steps, timeline.executions, strict=True):
        moved = [shown.runs * operand.moved_bytes for operand in execution.work.operands]
        for name, operand, bytes_ in zip(execution.buffers, execution.work.operands, moved, strict=True):
            (written if operand.writes else read)[name] += bytes_
        writers.setdefault(execution.buffers[-1], shown)
        to_spilled = (
            bytes_ for name, bytes_ in zip(execution.buffers, moved, strict=True) if name in spilled
        )
        facts = _operation_facts(context, step, shown, execution)
        operations.append(
            Operation(
                **vars(shown),
                buffers=execution.buffers,
                facts=facts,
                execution=execution,
                design=step.design,
                spilled_bytes=sum(to_spilled),
            )
        )
    moved = {True: Counter[str](), False: Counter[str]()}
    for is_result, by_buffer in ((False, read), (True, written)):
        for name, bytes_ in by_buffer.items():
            moved[is_result][context.buffers[name].base] += bytes_
    return ProgramFacts(
        map=map_,
        timeline=timeline,
        operations=tuple(operations),
        buffers=_buffers(context, map_, writers, read, written),
        argument_bytes=sum(
            min(argument.bytes, moved[argument.kind == "result"][argument.parameter])
            for argument in context.bundle.manifest.arguments
        ),
        totals=_totals(context, map_, timeline),
        remarks=tuple(remarks),
        passes=tuple(passes),
        rates=rates(timeline, bundle),
        findings=tuple(findings),
        levels=levels or {},
    )


def _totals(context: Context, map_: LxMap, timeline: Timeline) -> Facts:
    return {
        "operations": len(map_.steps),
        "loops": len(map_.loops),
        "runs of operations": sum(step.runs for step in map_.steps),
        "restickifies": sum(execution.is_restickify for execution in timeline.executions),
        "cores in the mean": sum(step.cores for step in map_.steps) / max(len(map_.steps), 1),
        READ: timeline.read_bytes,
        WRITTEN: timeline.written_bytes,
        "LX peak (bytes)": map_.peak,
        "pool (bytes)": sum(context.allocations.values()),
        "buffers in LX": len(map_.placed),
        "buffers in the pool": len(map_.spilled),
        TIME: _microseconds(timeline.total_ns),
    }


def _operation_facts(context: Context, step: ExecuteStep, shown: MapStep, execution: Execution) -> Facts:
    """Return space, division, padding, masks, constants and operands of a design, and its runs, bytes and time."""
    design = step.design
    split = [dim for dim, slices in design.slices.items() if slices > 1]
    core_map = (f"{dim} {' '.join(str(slices[dim]) for slices in design.core_slices)}" for dim in split)
    masks = (f"{dim} {length} from {start}" for dim, (start, length) in design.masks.items())
    constants = (
        f"{constant.name} {constant.data_format} {constant.bits:#x}" for constant in design.constants
    )
    facts: dict[str, Fact] = {
        CORES: shown.cores,
        "slices": _slices_text(design) or "1",
        "core map": ", ".join(core_map),
        "sizes": _sizes(design.sizes),
        "padding": _sizes(design.padding),
        "masks": ", ".join(masks),
        "mask constant": design.mask_constant,
        "constants": ", ".join(constants),
        "unit": design.unit,
        "format": design.data_format,
    }
    for number, (operand, buffer) in enumerate(zip(design.operands, execution.buffers, strict=True)):
        name = operand_name(design.operands, number)
        varying = [dim for dim in operand.dim_order if operand.scale[dim] == 1]
        stick = f"stick {operand.stick_dim}" if operand.stick_dim in varying else "stick-sparse"
        facts |= {
            name: _place(context, step, operand, context.buffers[buffer]),
            f"{name} layout": f"{' '.join(varying) or 'one element'} ({stick})",
            f"{name} gap": _sizes(operand.gap),
            f"{name} format": operand.data_format,
        }
    return facts | {
        ITERATIONS: iterations_text(shown.loops),
        "runs": shown.runs,
        READ: execution.read_bytes,
        WRITTEN: execution.written_bytes,
        TIME: _microseconds(execution.total_ns),
    }


def _buffers(
    context: Context,
    map_: LxMap,
    writers: Mapping[str, MapStep],
    read: Mapping[str, int],
    written: Mapping[str, int],
) -> tuple[BufferFacts, ...]:
    """Return the facts of each buffer, given its first writer and the bytes that move from and to it."""
    lx_cores, buffers = {buffer.name: buffer.cores for buffer in map_.placed}, list[BufferFacts]()
    for buffer in context.bundle.manifest.buffers:
        arguments = context.arguments.get(buffer.base, [])
        facts: dict[str, Fact] = {
            MEMORY: "argument" if arguments else _memory(context, buffer),
            CORES: lx_cores.get(buffer.name, ""),
            ADDRESS: buffer.offset,
            BYTES: buffer.bytes,
            READ: read[buffer.name],
            WRITTEN: written[buffer.name],
            "not in LX": ", ".join(buffer.reasons),
        }
        for argument in arguments:
            # A buffer that is updated in place is two arguments.
            prefix = f"{argument.name} " if len(arguments) > 1 else ""
            facts |= {f"{prefix}{name}": fact for name, fact in _argument(argument).items()}
        buffers.append(BufferFacts(buffer.name, bool(arguments), writers.get(buffer.name), facts))
    return tuple(buffers)


def _place(context: Context, step: ExecuteStep, operand: Operand, buffer: Buffer) -> str:
    """Return the memory of an operand: its address in LX, or the argument or pool with a byte offset."""
    if operand.memory == "lx":
        return f"LX {min(operand.start)}"
    offset = min(step.values[start].offset for start in operand.start) - buffer.offset
    return _memory(context, buffer) + (f" from byte {offset}" if offset else "")


def _memory(context: Context, buffer: Buffer) -> str:
    if buffer.base == "lx":
        return "LX"
    if buffer.base in context.arguments:
        return buffer.name
    return "pool" if buffer.base in context.allocations else buffer.base


def _argument(argument: KernelArgument) -> Facts:
    """Return the facts of an argument: its view on the host and its layout on the device."""
    transfer = argument.transfer
    return {
        "kind": argument.kind,
        "host type": f"{argument.host_dtype} {_shape(argument.host_shape)}",
        "device size": _shape(argument.device_size),
        "device format": argument.data_format,
        "host strides": _shape(transfer.host_strides),
        "loops": _shape(transfer.ranges),
        "device strides": _shape(transfer.device_strides),
        "bounds": str(transfer.bounds),
        "host offset": transfer.host_offset,
        "fill": "" if argument.fill is None else argument.fill,
        "array of": argument.array_name,
    }


def operand_name(operands: Sequence[object], number: int) -> str:
    """Return the name of an operand: ``input 0``, ``input 1``, .., or ``output`` for the last one."""
    return "output" if number == len(operands) - 1 else f"input {number}"


def _slices_text(design: Design) -> str:
    split = (f"{dim} {number} x {design.shares[dim]}" for dim, number in design.slices.items() if number > 1)
    return ", ".join(split)


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{dim} {size}" for dim, size in sizes.items())


def _shape(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})"


def _microseconds(nanoseconds: float) -> float:
    """Convert to microseconds, rounded to a nanosecond, so that times reported as different also look different."""
    return round(nanoseconds / 1000, 3)
