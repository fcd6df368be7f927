# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What memory planners give: addresses, the reason where there is none, and how good that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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

    ``addresses`` are those of the placed buffers in bytes, ``spilled`` the reasons of all others, both by name.
    ``traffic`` are the bytes of device memory that all buffers move under this plan. No plan with one address
    per buffer moves less than ``bound`` bytes. ``peak`` is the end of the highest buffer. ``load`` is the
    largest sum of the sizes alive together, of the placed buffers: no plan of them has a lower peak. ``work`` counts
    the steps of searches (no clock, so it is equal on every machine).
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
    """A buffer, by name, at one address from one of its uses to another one, both included."""

    buffer: str
    first: int
    last: int
    address: int


@dataclass(frozen=True)
class SpillAndReloadPlan(Bounded):
    """The ``residencies`` of some buffers in one memory, in order of time; those of one buffer do not touch.

    ``traffic`` are the bytes of device memory that all buffers move: what each use moves, without those that end
    a gap inside of a residency; of a buffer with a single residency from the first use to the last, the first use
    moves ``traffic_if_placed``, if that is less. No plan, moving or not, moves less than ``bound`` bytes. ``peak`` is
    the end of the highest residency, ``work`` counts the steps of searches.
    """

    residencies: tuple[Residency, ...]
    traffic: int
    bound: int
    peak: int
    work: int = 0

    def of(self, buffer: str) -> list[Residency]:
        """The residencies of a buffer, in order of time."""
        return [residency for residency in self.residencies if residency.buffer == buffer]
