# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Facts of each operation and buffer of a bundle, by name, to compare and to print.

The name of a number includes its unit. Bytes of operations are counted as in the simulator: padded device bytes, a load
that several cores share counts once, and all runs of loops count. The time of an operation is its part of the program's
time, by the timeline. Sizes and dims of an operand are in the order of its design, innermost first.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

from spyre_mlir.bundle.context import Context, ExecuteStep
from spyre_mlir.bundle.model import Buffer, Bundle, Design, KernelArgument, Operand
from spyre_mlir.bundle.validate import sound_context
from spyre_mlir.records import dataclass
from spyre_mlir.report.lx_map import LxMap, MapStep, iterations_text, lx_map_of
from spyre_mlir.timeline import Timeline, timeline_of
from spyre_mlir.timeline.of_design import work_of_designs

Fact = int | float | str
Facts = Mapping[str, Fact]

#: Names of facts that are reported for items that only one of two bundles has.
CORES, ITERATIONS, READ, WRITTEN, TIME = "cores", "iterations", "bytes read", "bytes written", "time (us)"
MEMORY, ADDRESS, BYTES = "memory", "address", "bytes"


@dataclass(frozen=True)
class OperationFacts:
    """One execute: its step of the map, the buffer of each operand, and its facts."""

    step: MapStep
    buffers: tuple[str, ...]
    facts: Facts

    @property
    def source(self) -> str:
        """``file:line`` without folders; empty if the bundle does not know it."""
        return self.step.source.rpartition("/")[2]

    @property
    def module(self) -> str:
        """Path of its module; empty for the model itself, and if the program has no modules."""
        return self.step.module


@dataclass(frozen=True)
class BufferFacts:
    """One buffer; ``writer`` is the first operation that writes it, None if none does."""

    name: str
    is_argument: bool
    writer: MapStep | None
    facts: Facts


@dataclass(frozen=True)
class BundleFacts:
    """Facts of a bundle: totals, the number of operations of each opcode, operations in program order, buffers.

    ``map`` and ``timeline`` are the sources of the facts. ``least_bytes`` are the bytes that have to move: each
    argument and result once, or at most the bytes that move if the program accesses only a part.
    """

    map: LxMap
    timeline: Timeline
    least_bytes: int
    totals: Facts
    opcodes: Facts
    operations: tuple[OperationFacts, ...]
    buffers: tuple[BufferFacts, ...]


def bundle_facts(bundle: Bundle, lx_backend_fraction: float | None = None) -> BundleFacts:
    """Return the facts of a bundle; ``CompileError`` if the parts of the bundle are inconsistent.

    ``lx_backend_fraction`` is the part of LX that the backend keeps, by default the device's part.
    """
    context, work_by_file = sound_context(bundle, lx_backend_fraction), work_of_designs(bundle)
    return _Collector(context, lx_map_of(context, work_by_file), timeline_of(context, work_by_file)).collect()


class _Collector:
    """Visits the executes of a bundle once and adds up the bytes that they move."""

    def __init__(self, context: Context, map_: LxMap, timeline_: Timeline) -> None:
        self.context = context
        self.map = map_
        self.timeline = timeline_
        self.writers: dict[str, MapStep] = {}
        self.read: Counter[str] = Counter()
        self.written: Counter[str] = Counter()

    def collect(self) -> BundleFacts:
        """Return the facts of the bundle."""
        operations = tuple(map(self._operation, self.context.steps, self.map.steps))
        return BundleFacts(
            map=self.map,
            timeline=self.timeline,
            least_bytes=self._least_bytes(),
            totals=self._totals(operations),
            opcodes=dict(sorted(Counter(operation.step.opcode for operation in operations).items())),
            operations=operations,
            buffers=tuple(map(self._buffer, self.context.bundle.manifest.buffers)),
        )

    # -- operations ------------------------------------------------------------------------------------

    def _operation(self, step: ExecuteStep, shown: MapStep) -> OperationFacts:
        execution = self.timeline.executions[step.position]
        buffers, work = execution.buffers, execution.work
        for name, operand in zip(buffers, work.operands, strict=True):
            moved = self.written if operand.writes else self.read
            moved[name] += shown.runs * operand.moved_bytes
        self.writers.setdefault(buffers[-1], shown)
        facts: dict[str, Fact] = {CORES: shown.cores, **_iterations(step.design)}
        for number, buffer in enumerate(buffers):
            facts |= self._operand(step, number, self.context.buffers[buffer])
        facts |= {
            ITERATIONS: iterations_text(shown.loops),
            "runs": shown.runs,
            READ: execution.read_bytes,
            WRITTEN: execution.written_bytes,
            TIME: _microseconds(execution.total_ns),
        }
        return OperationFacts(shown, buffers, facts)

    def _operand(self, step: ExecuteStep, number: int, buffer: Buffer) -> dict[str, Fact]:
        operand, name = step.design.operands[number], operand_name(step.design.operands, number)
        return {
            name: self._place(step, operand, buffer),
            f"{name} layout": _layout(operand),
            f"{name} gap": _sizes(operand.gap),
            f"{name} format": operand.data_format,
        }

    def _place(self, step: ExecuteStep, operand: Operand, buffer: Buffer) -> str:
        """Return the memory of an operand: its address in LX, or the argument or pool with a byte offset."""
        if operand.memory == "lx":
            return f"LX {min(operand.start)}"
        offset = min(step.values[start].offset for start in operand.start) - buffer.offset
        return self._memory(buffer) + (f" from byte {offset}" if offset else "")

    # -- buffers ---------------------------------------------------------------------------------------

    def _buffer(self, buffer: Buffer) -> BufferFacts:
        arguments = self.context.arguments.get(buffer.base, [])
        facts: dict[str, Fact] = {
            MEMORY: "argument" if arguments else self._memory(buffer),
            CORES: self._lx_cores.get(buffer.name, ""),
            ADDRESS: buffer.offset,
            BYTES: buffer.bytes,
            READ: self.read[buffer.name],
            WRITTEN: self.written[buffer.name],
            "not in LX": ", ".join(buffer.reasons),
        }
        for argument in arguments:
            # A buffer that is updated in place is two arguments.
            prefix = f"{argument.name} " if len(arguments) > 1 else ""
            facts |= {f"{prefix}{name}": fact for name, fact in _argument(argument).items()}
        return BufferFacts(buffer.name, bool(arguments), self.writers.get(buffer.name), facts)

    def _memory(self, buffer: Buffer) -> str:
        if buffer.base == "lx":
            return "LX"
        if buffer.base in self.context.arguments:
            return buffer.name
        return "pool" if buffer.base in self.context.allocations else buffer.base

    @functools.cached_property
    def _lx_cores(self) -> dict[str, int]:
        """The number of cores that hold each buffer in LX; buffers in device memory are missing."""
        return {buffer.name: buffer.cores for buffer in self.map.placed}

    # -- totals ----------------------------------------------------------------------------------------

    def _least_bytes(self) -> int:
        read, written = self._by_parameter(self.read), self._by_parameter(self.written)
        return sum(
            min(argument.bytes, (written if argument.kind == "result" else read)[argument.parameter])
            for argument in self.context.bundle.manifest.arguments
        )

    def _by_parameter(self, moved: Mapping[str, int]) -> Counter[str]:
        """Return the bytes that move from or to the memory of each parameter of the program."""
        totals: Counter[str] = Counter()
        for name, bytes_ in moved.items():
            totals[self.context.buffers[name].base] += bytes_
        return totals

    def _totals(self, operations: Sequence[OperationFacts]) -> Facts:
        cores = [operation.step.cores for operation in operations]
        return {
            "operations": len(operations),
            "loops": len(self.map.loops),
            "runs of operations": sum(operation.step.runs for operation in operations),
            "restickifies": sum(operation.is_restickify for operation in self.timeline.executions),
            "cores in the mean": sum(cores) / max(len(cores), 1),
            READ: self.timeline.read_bytes,
            WRITTEN: self.timeline.written_bytes,
            "LX peak (bytes)": self.map.peak,
            "pool (bytes)": sum(self.context.allocations.values()),
            "buffers in LX": len(self.map.placed),
            "buffers in the pool": len(self.map.spilled),
            TIME: _microseconds(self.timeline.total_ns),
        }


def operand_name(operands: Sequence[object], number: int) -> str:
    """Return the name of an operand: ``input 0``, ``input 1``, .., or ``output`` for the last one."""
    return "output" if number == len(operands) - 1 else f"input {number}"


def _microseconds(nanoseconds: float) -> float:
    """Convert to microseconds, rounded to a nanosecond, so that times reported as different also look different."""
    return round(nanoseconds / 1000, 3)


def _iterations(design: Design) -> Facts:
    """Return the facts of a design except its operands: space, division, padding, masks, constants."""
    constants = (
        f"{constant.name} {constant.data_format} {constant.bits:#x}" for constant in design.constants
    )
    return {
        "slices": slices_text(design) or "1",
        "core map": _core_map(design),
        "sizes": _sizes(design.sizes),
        "padding": _sizes(design.padding),
        "masks": ", ".join(f"{dim} {length} from {start}" for dim, (start, length) in design.masks.items()),
        "mask constant": design.mask_constant,
        "constants": ", ".join(constants),
        "unit": design.unit,
        "format": design.data_format,
    }


def slices_text(design: Design) -> str:
    """Format the split dims, each with its slices and elements per slice; empty if no dim is split."""
    split = (f"{dim} {count} x {design.shares[dim]}" for dim, count in design.slices.items() if count > 1)
    return ", ".join(split)


def _core_map(design: Design) -> str:
    """Format the slice of each core, by dim."""
    split = (dim for dim, count in design.slices.items() if count > 1)
    return ", ".join(f"{dim} {' '.join(str(slices[dim]) for slices in design.core_slices)}" for dim in split)


def _layout(operand: Operand) -> str:
    """Format the dims along which an operand varies, innermost first, and its stick dim."""
    varying = [dim for dim in operand.dim_order if operand.scale[dim] == 1]
    sparse = operand.stick_dim not in varying
    return (
        f"{' '.join(varying) or 'one element'} ({'stick-sparse' if sparse else f'stick {operand.stick_dim}'})"
    )


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


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{dim} {size}" for dim, size in sizes.items())


def _shape(numbers: Sequence[int]) -> str:
    return f"({', '.join(map(str, numbers))})"
