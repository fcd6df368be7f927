# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The outcome of a run: counters of the data that it moved, or an error with operation, tensor, core and address."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from spyre_mlir.bundle.model import Design
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass


@dataclass
class ExecuteStatistics:
    """One `sdsc_execute` of the bundle, summed over its runs.

    Bytes are padded device bytes of HBM operands.

    Attributes:
        index: The index of the execute in the program.
        filename: The file of the design.
        opcode: The device operation.
        cores: The number of cores that the operation uses.
        runs: The iterations of the loops around the execute.
        read_bytes: Bytes read; a load that several cores share counts once (multicast).
        write_bytes: Bytes written.
        core_read_bytes: Bytes read, once per core.
        relayout_bytes: Whole sticks, in bytes, that a core got from the LX of another core over the ring, counted once
            per receiving core, at any distance.
    """

    index: int
    filename: str
    opcode: str
    cores: int
    runs: int = 0
    read_bytes: int = 0
    write_bytes: int = 0
    core_read_bytes: int = 0
    relayout_bytes: int = 0


@dataclass
class Statistics:
    """The data moved by a whole run.

    Attributes:
        executes: The executions by their indices in the program.
        lx_high_water_bytes: For each core, the largest end address in bytes of a buffer that it used.
    """

    executes: dict[int, ExecuteStatistics] = field(default_factory=dict)
    lx_high_water_bytes: dict[int, int] = field(default_factory=dict)

    @property
    def read_bytes(self) -> int:
        """Bytes of device memory read; a load that several cores share counts once."""
        return sum(execute.read_bytes for execute in self.executes.values())

    @property
    def write_bytes(self) -> int:
        """Bytes of device memory written."""
        return sum(execute.write_bytes for execute in self.executes.values())

    @property
    def core_read_bytes(self) -> int:
        """Bytes of device memory read, once per core."""
        return sum(execute.core_read_bytes for execute in self.executes.values())

    @property
    def relayout_bytes(self) -> int:
        """Bytes that cores got from the LX of other cores over the ring."""
        return sum(execute.relayout_bytes for execute in self.executes.values())

    @property
    def cores(self) -> int:
        """The largest number of cores that any operation used."""
        return max((execute.cores for execute in self.executes.values()), default=0)

    @property
    def opcodes(self) -> Counter[str]:
        """The number of runs of each opcode."""
        counts: Counter[str] = Counter()
        for execute in self.executes.values():
            counts[execute.opcode] += execute.runs
        return counts


class SimulationError(CompileError):
    """A bundle that cannot be run, or that would read or write data that it must not.

    Attributes:
        kind: A fixed word per kind of violation (tests and reports use it).
        tensor: The tensor, if it is known.
        core: The core, if it is known.
        address: The address in bytes, if it is known.
        filename: The design's file, if it is known.
    """

    def __init__(
        self,
        kind: str,
        text: str,
        *,
        design: Design | None = None,
        tensor: str | None = None,
        core: int | None = None,
        address: int | None = None,
    ) -> None:
        """Create an error of a ``kind`` with a ``text``, about ``design``, ``tensor``, ``core`` and ``address``."""
        self.kind: str = kind
        self.tensor: str | None = tensor
        self.core: int | None = core
        self.address: int | None = address
        self.filename: str | None = design.filename if design else None
        where = f"{design.filename} ({design.opcode})" if design else ""
        parts = [
            where,
            f"tensor '{tensor}'" if tensor is not None else "",
            f"core {core}" if core is not None else "",
            f"address {address:#x}" if address is not None else "",
        ]
        prefix = ", ".join(part for part in parts if part)
        super().__init__(f"{prefix}: {text}" if prefix else text, design.source if design else "")


class IntegerRangeError(SimulationError):
    """64-bit integers that do not fit the 32 bits of the device: in an argument, or as the result of a cast."""
