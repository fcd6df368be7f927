# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counters of a run: HBM bytes per operation and in total, highest LX address, cores in use."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from spyre_mlir.records import dataclass


@dataclass
class ExecuteStatistics:
    """One `sdsc_execute` of the bundle, summed over its runs. Bytes are padded device bytes of HBM operands.

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
