# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Memory plans around addresses that are given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

import numpy as np

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.competition import reasons
from spyre_mlir.scratchpad.fitting import Fitting, orders
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement


@dataclass(frozen=True)
class PinnedSolver(MemoryPlanSolver):
    """The buffers of ``pinned`` at their addresses, by name; the others fitted around them.

    Of all orders and policies the one that loses least, then the one with the lowest peak. Pinned buffers must not
    be in each other's way (``conflict``); they have their address whether it saves traffic or not.
    """

    name: ClassVar[str] = "pinned"
    pinned: Mapping[str, int] = field(default_factory=dict)

    def able(self, instance: Instance) -> list[int]:
        """Return the buffers that are worth an address, and the pinned ones."""
        worth = super().able(instance)
        named = [index for index, buffer in enumerate(instance.buffers) if buffer.name in self.pinned]
        return sorted({*worth, *named})

    def place(self, instance: Instance) -> Placement:
        """The pinned addresses and those of the others that find a gap."""
        fitting = Fitting(instance)
        pinned_addresses = self._pinned_addresses(instance)
        placements = [
            fitting.fit([index for index in order if index not in pinned_addresses], policy, pinned_addresses)
            for order, policy in orders(instance)
        ]
        best = min(placements, key=lambda addresses: _rank(instance, addresses))
        placed = np.zeros(len(instance), bool)
        placed[list(best)] = True
        return Placement(best, work=len(placements) * len(instance), reasons=reasons(instance, placed))

    def _pinned_addresses(self, instance: Instance) -> dict[int, int]:
        return {
            index: self.pinned[buffer.name]
            for index, buffer in enumerate(instance.buffers)
            if buffer.name in self.pinned
        }


def conflict(instance: Instance, addresses: Mapping[int, int]) -> tuple[int, int] | None:
    """Two buffers that are live together and share bytes, neither in the place of the other; None without any."""
    live: list[int] = []
    for index in sorted(addresses, key=lambda index: (int(instance.starts[index]), index)):
        live = [other for other in live if instance.ends[other] >= instance.starts[index]]
        for other in live:
            if _overlap(instance, addresses, other, index) and not _in_place(
                instance, addresses, other, index
            ):
                return other, index
        live.append(index)
    return None


def _overlap(instance: Instance, addresses: Mapping[int, int], one: int, other: int) -> bool:
    ends = {index: addresses[index] + int(instance.sizes[index]) for index in (one, other)}
    return addresses[one] < ends[other] and addresses[other] < ends[one]


def _in_place(instance: Instance, addresses: Mapping[int, int], one: int, other: int) -> bool:
    related = one in instance.parents[other] or other in instance.parents[one]
    return related and addresses[one] == addresses[other]


def _rank(instance: Instance, addresses: Mapping[int, int]) -> tuple[int, int]:
    """Smaller is better: what is saved, negative, and then the peak."""
    saved = sum(int(instance.savings[index]) for index in addresses)
    return -saved, max(
        (address + int(instance.sizes[index]) for index, address in addresses.items()), default=0
    )
