"""The interface of all memory planners."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.plan import MemoryPlan

#: Reasons for a buffer without an address, apart from those that barred it from planning.
TOO_LARGE = "it is larger than the memory"
SAVES_NOTHING = "an address would save no traffic"
LOST = "it lost the competition for the memory"


@dataclass(frozen=True)
class Placement:
    """What a solver found for an instance: addresses by index of the buffer.

    ``bound`` are bytes of savings that every plan loses at least, as far as the solver knows; ``work`` its
    steps of search; ``reasons`` are better ones than ``LOST`` for buffers that it left out.
    """

    addresses: Mapping[int, int]
    bound: int = 0
    work: int = 0
    reasons: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryPlanSolver(abc.ABC):
    """Gives addresses to buffers so that little traffic is left; options are fields.

    A solver sees only buffers that fit on their own and save traffic. It is deterministic: the same buffers
    give the same plan on every machine, so searches are bounded by steps and not by the clock.
    """

    name: ClassVar[str]

    def plan(self, buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace) -> MemoryPlan:
        """A plan of the buffers; ``PlanError`` if they make no sense."""
        instance = Instance.of(buffers, space)
        fits, saves = instance.sizes <= space.capacity, instance.savings > 0
        able = instance.subset([int(at) for at in np.flatnonzero(fits & saves)])
        found = self.place(able)
        names = [buffer.name for buffer in able.buffers]
        addresses = {names[at]: int(address) for at, address in sorted(found.addresses.items())}
        spilled = {}
        reasons = {names[at]: reason for at, reason in found.reasons.items()}
        for at, buffer in enumerate(instance.buffers):
            if buffer.name not in addresses:
                barred = SAVES_NOTHING if fits[at] else TOO_LARGE
                spilled[buffer.name] = reasons.get(buffer.name, LOST) if fits[at] and saves[at] else barred
        least = sum(
            buffer.traffic_if_spilled if fits[at] < 1 else min(buffer.traffic_if_placed, buffer.traffic_if_spilled)
            for at, buffer in enumerate(instance.buffers)
        )
        traffic = sum(
            buffer.traffic_if_placed if buffer.name in addresses else buffer.traffic_if_spilled
            for buffer in instance.buffers
        )
        placed = able.load_of(np.isin(np.arange(len(able)), list(found.addresses)))
        ends = (int(address + able.sizes[at]) for at, address in found.addresses.items())
        return MemoryPlan(
            solver=self.name,
            addresses=addresses,
            spilled=spilled,
            traffic=traffic,
            bound=min(least + found.bound, traffic),
            peak=max(ends, default=0),
            load=int(placed.max(initial=0)),
            work=found.work,
        )

    @abc.abstractmethod
    def place(self, instance: Instance) -> Placement:
        """Addresses for an instance, in which each buffer fits on its own and saves traffic."""
