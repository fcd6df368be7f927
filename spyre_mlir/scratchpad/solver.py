# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The interface of all memory planners."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from spyre_mlir.algorithms import REGISTRIES, Algorithm, Registry, is_integer
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.memory_plan import MemoryPlan

REGISTRIES["layout_solver"].error = PlanError

#: Reasons for a buffer without an address, apart from those that barred it from planning.
TOO_LARGE = "it is larger than the memory"
SAVES_NOTHING = "an address would save no traffic"
LOST = "it lost the competition for the memory"


@dataclass(frozen=True)
class Placement:
    """What a solver found for an instance.

    Attributes:
        addresses: The addresses in bytes, by index of the buffer; buffers that are left out have none.
        bound: Bytes of savings that every plan loses at least, as far as the solver knows.
        work: The steps of its search.
        reasons: Better reasons than ``LOST`` for buffers that it left out, by index.
    """

    addresses: Mapping[int, int]
    bound: int = 0
    work: int = 0
    reasons: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryPlanSolver(Algorithm):
    """Gives addresses to buffers so that little traffic is left; options are fields.

    A solver sees only buffers that fit on their own and save traffic. It is deterministic: the same buffers
    give the same plan on every machine, so searches are bounded by steps and not by the clock.

    Attributes:
        most_buffers: How many buffers ``spyre-plan`` lets it plan: some 20 s where most of them are live together.
    """

    registry: ClassVar[Registry[MemoryPlanSolver]] = REGISTRIES["layout_solver"]
    most_buffers: ClassVar[int] = 5_000

    def plan(self, buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace) -> MemoryPlan:
        """Plan buffers: ``place`` them, and count what that leaves.

        Args:
            buffers: The buffers, in any order; names are unique.
            space: The memory that they share.

        Returns:
            Addresses, the reasons of buffers without one, and the traffic in bytes.

        Raises:
            PlanError: The buffers make no sense, or a solver of the user gives a wrong answer.
        """
        instance = Instance.of(buffers, space)
        able = instance.subset(self.able(instance))
        placement = self._placement(able)
        # In the order of the buffers, not of the search, so that equal plans are written alike.
        placed = np.zeros(len(able), bool)
        placed[list(placement.addresses)] = True
        addresses = {
            able.buffers[index].name: int(placement.addresses[index])
            for index in np.flatnonzero(placed).tolist()
        }
        traffic = sum(_traffic(buffer, buffer.name in addresses) for buffer in instance.buffers)
        ends = (int(address + able.sizes[index]) for index, address in placement.addresses.items())
        return MemoryPlan(
            solver=self.name,
            addresses=addresses,
            spilled=_spilled(instance, able, placement),
            traffic=traffic,
            bound=min(_least(instance) + placement.bound, traffic),
            peak=max(ends, default=0),
            load=int(able.load_of(placed).max(initial=0)),
            work=placement.work,
        )

    def _placement(self, able: Instance) -> Placement:
        """The answer of ``place``, of which it is checked that it is one: ``check_plan`` looks at addresses."""
        if not self.is_foreign():
            return self.place(able)
        problem = f"{len(able)} buffers in {able.space.capacity} bytes"
        with self.guarded(problem):
            placement = self.place(able)
        if not isinstance(placement, Placement) or not isinstance(placement.addresses, Mapping):
            self.reject(
                f"it must be a 'Placement' with a mapping of addresses, not {placement!r:.60}", problem
            )
        for index, address in placement.addresses.items():
            if not is_integer(index) or not 0 <= index < len(able):
                self.reject(f"{index!r:.60} is no index of a buffer", problem)
            if not is_integer(address) or address < 0:
                self.reject(f"the address of buffer {index} is {address!r:.60}", problem)
        for noun in ("bound", "work"):
            self.checked_number(getattr(placement, noun), f"the {noun}", problem)
        return placement

    def able(self, instance: Instance) -> list[int]:
        """Return the buffers of an ``instance`` that ``place`` sees, by rising index."""
        return np.flatnonzero(instance.fits & (instance.savings > 0)).tolist()

    @abc.abstractmethod
    def place(self, instance: Instance) -> Placement:
        """Return addresses for an ``instance``, in which each buffer fits on its own and saves traffic."""


def _spilled(instance: Instance, able: Instance, placement: Placement) -> dict[str, str]:
    """The reason of each buffer without an address."""
    placed = {able.buffers[index].name for index in placement.addresses}
    better_reasons = {able.buffers[index].name: reason for index, reason in placement.reasons.items()}
    reasons = {}
    for buffer, fits, saving in zip(instance.buffers, instance.fits, instance.savings, strict=True):
        if buffer.name not in placed:
            lost = better_reasons.get(buffer.name, LOST) if saving > 0 else SAVES_NOTHING
            reasons[buffer.name] = lost if fits else TOO_LARGE
    return reasons


def _least(instance: Instance) -> int:
    """The traffic of a plan that places every buffer that fits on its own and saves traffic."""
    pairs = zip(instance.buffers, instance.fits, strict=True)
    return sum(_traffic(buffer, bool(fits) and buffer.saving > 0) for buffer, fits in pairs)


def _traffic(buffer: LifetimeBoundBuffer, placed: bool) -> int:
    return buffer.traffic_if_placed if placed else buffer.traffic_if_spilled
