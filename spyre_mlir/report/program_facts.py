# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Data of the page about a program: only numbers, from a bundle and the records of its compilation.

Bytes are counted as in the simulator: padded device bytes, a load that several cores share counts once, and all runs of
loops count. Times come from the timeline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import field

from spyre_mlir.bundle.level_lines import Levels
from spyre_mlir.bundle.model import Bundle, Design, Origin
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remark
from spyre_mlir.report.bundle_facts import BufferFacts, OperationFacts, bundle_facts, slices_text
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.lx_map import LxMap, iterations_text
from spyre_mlir.timeline import Execution, Timeline
from spyre_mlir.timeline.rates import Rates, rates
from spyre_mlir.timeline.roofline import Roofline, of_program, rooflines


@dataclass(frozen=True)
class Operation:
    """One execute of the program text, all its runs together.

    ``spilled_bytes`` is the part of its traffic that moves from and to buffers in the pool: buffers that are neither
    arguments nor in LX.
    """

    facts: OperationFacts
    execution: Execution
    design: Design
    roofline: Roofline
    spilled_bytes: int

    @property
    def position(self) -> int:
        """Position of its step in the program."""
        return self.facts.step.position

    @property
    def opcode(self) -> str:
        """Opcode of its design."""
        return self.facts.step.opcode

    @property
    def category(self) -> str:
        """Category for the colour; one of ``lx_map.CATEGORIES``."""
        return self.facts.step.category

    @property
    def cores(self) -> int:
        """Number of cores."""
        return self.facts.step.cores

    @property
    def runs(self) -> int:
        """Number of runs, over all loops around it."""
        return self.facts.step.runs

    @property
    def iterations(self) -> str:
        """Iterations of the loops around it, outermost first: ``8 x 3``; empty if there are none."""
        return iterations_text(self.facts.step.loops)

    @property
    def slices(self) -> str:
        """The split dims, each with its slices and elements per slice; empty if no dim is split."""
        return slices_text(self.design)

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
        return (
            ", ".join(f"{dim} {size:,}" for dim, size in self.design.sizes.items() if size > 1)
            or "one element"
        )

    @property
    def dtype(self) -> str:
        """The formats of its first operand and of its result: ``fp16``, or ``fp16 → fp32`` for a conversion."""
        names = [operand.data_format.rpartition("_")[2].lower() for operand in self.design.operands]
        return " → ".join(dict.fromkeys((names[0], names[-1])))

    @property
    def source(self) -> str:
        """``file:line`` without folders."""
        return self.facts.source

    @property
    def origin(self) -> Origin:
        """The origin of the operation: file, line, column, ATen op, path of the module."""
        return self.facts.step.origin

    @property
    def module(self) -> str:
        """Path of its module; empty for the model itself, and if the program has no modules."""
        return self.facts.step.module

    @property
    def name(self) -> str:
        """Name of the operation in texts."""
        return f"step {self.position}: {self.opcode}"


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
    roofline: Roofline
    remarks: tuple[Remark, ...]
    passes: tuple[tuple[str, float], ...]
    rates: Rates
    findings: tuple[ProgramFinding, ...] = ()
    levels: Levels = field(default_factory=dict)

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


def program_facts(
    bundle: Bundle,
    remarks: Sequence[Remark] = (),
    passes: Sequence[tuple[str, float]] = (),
    lx_backend_fraction: float | None = None,
    findings: Sequence[ProgramFinding] = (),
    levels: Levels | None = None,
) -> ProgramFacts:
    """Return the facts of a bundle; ``CompileError`` if the parts of the bundle are inconsistent.

    ``lx_backend_fraction`` is the part of LX that the backend keeps, by default the device's part.
    """
    facts_of_bundle = bundle_facts(bundle, lx_backend_fraction)
    spilled = {buffer.name for buffer in facts_of_bundle.map.spilled}
    operations = (
        Operation(
            facts, execution, bundle.designs[execution.filename], roofline, _moved(facts, execution, spilled)
        )
        for facts, execution, roofline in zip(
            facts_of_bundle.operations,
            facts_of_bundle.timeline.executions,
            rooflines(facts_of_bundle.timeline),
            strict=True,
        )
    )
    return ProgramFacts(
        map=facts_of_bundle.map,
        timeline=facts_of_bundle.timeline,
        operations=tuple(operations),
        buffers=facts_of_bundle.buffers,
        argument_bytes=facts_of_bundle.least_bytes,
        roofline=of_program(facts_of_bundle.timeline),
        remarks=tuple(remarks),
        passes=tuple(passes),
        rates=rates(facts_of_bundle.timeline, bundle),
        findings=tuple(findings),
        levels=levels or {},
    )


def _moved(facts: OperationFacts, execution: Execution, buffers: set[str]) -> int:
    """Return the bytes that an operation moves from and to the given buffers."""
    operands = zip(facts.buffers, execution.work.operands, strict=True)
    return facts.step.runs * sum(operand.moved_bytes for name, operand in operands if name in buffers)
