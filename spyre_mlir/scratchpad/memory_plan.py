# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Results of memory planners: addresses, reasons of buffers without an address, and a bound of the traffic."""

from __future__ import annotations

from collections.abc import Mapping

from spyre_mlir.records import dataclass


class Bounded:
    """A plan with its ``traffic`` and a lower ``bound`` of the traffic of any plan, in bytes of device memory."""

    traffic: int
    bound: int

    @property
    def gap(self) -> int:
        """Maximum bytes of traffic that a better plan could save."""
        return self.traffic - self.bound

    @property
    def proven(self) -> bool:
        """Return whether no plan moves less."""
        return self.gap == 0


@dataclass(frozen=True)
class MemoryPlan(Bounded):
    """The plan of some buffers in one memory.

    Attributes:
        solver: The name of the solver.
        addresses: The addresses in bytes of the placed buffers, by name.
        spilled: The reasons of all other buffers, by name.
        traffic: Bytes of device memory that all buffers move under this plan.
        bound: No plan with one address per buffer moves fewer bytes.
        peak: The end of the highest buffer, in bytes.
        load: The largest sum of the sizes of placed buffers that are live together: no plan of them has a lower peak.
        work: The number of search steps, which is equal on every machine, unlike a time.
    """

    solver: str
    addresses: Mapping[str, int]
    spilled: Mapping[str, str]
    traffic: int
    bound: int
    peak: int
    load: int
    work: int = 0


@dataclass(frozen=True)
class Residency:
    """A buffer at one address from one of its uses to another.

    Attributes:
        buffer: The name of the buffer.
        first: The position of the first of these uses.
        last: The position of the last of these uses.
        address: The address in bytes.
    """

    buffer: str
    first: int
    last: int
    address: int


@dataclass(frozen=True)
class SpillAndReloadPlan(Bounded):
    """A plan of some buffers in one memory that may spill and reload them.

    ``traffic`` is the sum over all uses, except uses that end a gap inside of a residency. If a buffer has a single
    residency from the first use to the last, the first use moves ``traffic_if_placed``, if this is less.

    Attributes:
        residencies: Buffers at addresses, in order of time; residencies of one buffer do not touch.
        traffic: Bytes of device memory that all buffers move.
        bound: No plan, with or without reloads, moves fewer bytes.
        peak: The end of the highest residency, in bytes.
        work: The steps of searches.
    """

    residencies: tuple[Residency, ...]
    traffic: int
    bound: int
    peak: int
    work: int = 0

    def of(self, buffer: str) -> list[Residency]:
        """Return the residencies of a ``buffer``, by its name, in order of time."""
        return [residency for residency in self.residencies if residency.buffer == buffer]
