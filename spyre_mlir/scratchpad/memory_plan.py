# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What memory planners give: addresses, the reason where there is none, and how good that is."""

from __future__ import annotations

from collections.abc import Mapping

from spyre_mlir.records import dataclass


class Bounded:
    """A plan with its ``traffic`` and the ``bound`` below which no plan's is, in bytes of device memory."""

    traffic: int
    bound: int

    @property
    def gap(self) -> int:
        """Bytes of traffic by which a better plan could be better, at most."""
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
        spilled: The reasons of all others, by name.
        traffic: Bytes of device memory that all buffers move under this plan.
        bound: No plan with one address per buffer moves fewer bytes.
        peak: The end of the highest buffer, in bytes.
        load: The largest sum of the sizes alive together, of the placed buffers: no plan of them has a lower peak.
        work: The steps of searches (no clock, so it is equal on every machine).
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
    """A buffer at one address from one of its uses to another one.

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
    """A plan of some buffers in one memory that moves them.

    ``traffic`` is what each use moves, without those that end a gap inside of a residency; of a buffer with a single
    residency from the first use to the last, the first use moves ``traffic_if_placed``, if that is less.

    Attributes:
        residencies: Buffers at addresses, in order of time; those of one buffer do not touch.
        traffic: Bytes of device memory that all buffers move.
        bound: No plan, moving or not, moves fewer bytes.
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
