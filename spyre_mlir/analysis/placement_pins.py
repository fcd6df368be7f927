# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Placement pins: the addresses that a plan file pins, and memory plans that keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from spyre_mlir.analysis.aliasing import AliasAnalysis
from spyre_mlir.analysis.plan_pins import pins_of, refused
from spyre_mlir.dialects import sdsc
from spyre_mlir.mlir import ir
from spyre_mlir.plans import PlannedPlacement
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemoryPlan, MemorySpace
from spyre_mlir.scratchpad.fitting import Fitting, orders
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement, competition


@dataclass(frozen=True)
class PinnedBuffer:
    """A pinned placement, and the operation for which the plan file states it."""

    op: ir.Operation
    placement: PlannedPlacement

    def refuse(self, reason: str) -> None:
        """Raise the error for a placement that is impossible."""
        raise refused(self.op, f"the placement {self.placement}", reason)


def placement_pins(memory: AliasAnalysis, ops: Iterable[ir.Operation]) -> dict[ir.Value, PinnedBuffer]:
    """Return the pinned buffers; operations that write parts of one buffer must have the same pin."""
    pins: dict[ir.Value, PinnedBuffer] = {}
    for op in ops:
        placement = pins_of(op).placement
        if placement is None:
            continue
        pinned = PinnedBuffer(op, placement)
        other = pins.setdefault(memory.place(op.results[0]).buffer, pinned)
        if other.placement != placement:
            name = sdsc.name_of(other.op)
            pinned.refuse(f"'{name}' makes another part of that buffer, which is pinned to {other.placement}")
    return pins


def plan_around(
    pinned: Mapping[str, PinnedBuffer], buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace
) -> MemoryPlan:
    """Return a plan with the pinned buffers, by name, at their addresses, and the other buffers around them.

    Raise ``CompileError`` for an address that is not aligned, outside the memory, or in conflict with another pin.
    """
    addresses = {name: _address(pin) for name, pin in pinned.items()}
    instance = Instance.of(buffers, space)
    fixed = {
        index: addresses[buffer.name]
        for index, buffer in enumerate(instance.buffers)
        if buffer.name in addresses
    }
    for index, address in fixed.items():
        end, owner = address + int(instance.sizes[index]), pinned[instance.buffers[index].name]
        if address % space.alignment:
            owner.refuse(f"addresses are multiples of {space.alignment}")
        if end > space.capacity:
            owner.refuse(f"it would end at byte {end} of {space.capacity}")
    # Conflicts are reported here: the solver would only report that there is no plan.
    clash = conflict(instance, fixed)
    if clash is not None:
        first, second = (pinned[instance.buffers[index].name] for index in clash)
        name, begin = sdsc.name_of(first.op), fixed[clash[0]]
        end = begin + int(instance.sizes[clash[0]])
        second.refuse(f"'{name}' is pinned to bytes {begin} to {end}, and both are alive at once")
    return PinnedSolver(pinned=addresses).plan(buffers, space)


def _address(pinned: PinnedBuffer) -> int:
    assert isinstance(pinned.placement.address, int)
    return pinned.placement.address


# Memory plans around fixed addresses.


@dataclass(frozen=True)
class PinnedSolver(MemoryPlanSolver):
    """Place the buffers in ``pinned``, by name, at their addresses, and fit the other buffers around them.

    Of all orders and policies, choose the plan that saves the most traffic, then the plan with the lowest peak. Pinned
    buffers must not be in ``conflict``; they keep their addresses whether or not this saves traffic.
    """

    name: ClassVar[str] = "pinned"
    pinned: Mapping[str, int] = field(default_factory=dict)

    def able(self, instance: Instance) -> list[int]:
        """Return the buffers that are worth an address, and the pinned ones."""
        worth = super().able(instance)
        named = [index for index, buffer in enumerate(instance.buffers) if buffer.name in self.pinned]
        return sorted({*worth, *named})

    def place(self, instance: Instance) -> Placement:
        """Return the pinned addresses and the addresses of other buffers that fit into a gap."""
        fitting = Fitting(instance)
        pinned_addresses = self._pinned_addresses(instance)
        placements = [
            fitting.fit([index for index in order if index not in pinned_addresses], policy, pinned_addresses)
            for order, policy in orders(instance)
        ]
        best = min(placements, key=lambda addresses: _rank(instance, addresses))
        placed = np.zeros(len(instance), bool)
        placed[list(best)] = True
        return Placement(best, work=len(placements) * len(instance), reasons=competition(instance, placed))

    def _pinned_addresses(self, instance: Instance) -> dict[int, int]:
        return {
            index: self.pinned[buffer.name]
            for index, buffer in enumerate(instance.buffers)
            if buffer.name in self.pinned
        }


def conflict(instance: Instance, addresses: Mapping[int, int]) -> tuple[int, int] | None:
    """Return two buffers that overlap in time and in memory, unless one overwrites the other in place; else None."""
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
    """Return a sort key, smaller is better: the negative saving, then the peak."""
    saved = sum(int(instance.savings[index]) for index in addresses)
    return -saved, max(
        (address + int(instance.sizes[index]) for index, address in addresses.items()), default=0
    )
