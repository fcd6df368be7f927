# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counters of a run: bytes of HBM per operation and in total, LX high water, cores in use."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class ExecuteStatistics:
    """One `sdsc_execute` of the bundle, summed over its ``runs`` (iterations of the loops around it).

    Bytes are padded device bytes of HBM operands. ``read_bytes`` counts a load that several cores share
    once (multicast); ``core_read_bytes`` counts it once per core. ``relayout_bytes`` are whole sticks that a core got
    from the LX of another one over the ring, once per core that got them, however far they went.
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
    """A whole run. ``lx_high_water_bytes[core]`` is the largest end address of a buffer the core used."""

    executes: dict[int, ExecuteStatistics] = field(default_factory=dict)
    lx_high_water_bytes: dict[int, int] = field(default_factory=dict)

    @property
    def read_bytes(self) -> int:
        return sum(execute.read_bytes for execute in self.executes.values())

    @property
    def write_bytes(self) -> int:
        return sum(execute.write_bytes for execute in self.executes.values())

    @property
    def core_read_bytes(self) -> int:
        return sum(execute.core_read_bytes for execute in self.executes.values())

    @property
    def relayout_bytes(self) -> int:
        return sum(execute.relayout_bytes for execute in self.executes.values())

    @property
    def cores(self) -> int:
        """The largest number of cores that any operation used."""
        return max((execute.cores for execute in self.executes.values()), default=0)

    @property
    def opcodes(self) -> Counter[str]:
        """Number of runs of each opcode."""
        counts: Counter[str] = Counter()
        for execute in self.executes.values():
            counts[execute.opcode] += execute.runs
        return counts
