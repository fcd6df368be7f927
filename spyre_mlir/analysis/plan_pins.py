# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plan pins: the pins of a plan file in the attribute ``sdsc.pins`` of an operation, which later passes obey.

    sdsc.pins = {layout = #stick.layout<..>, slices = array<i64: 1, 16>, core_order = array<i64: 1>,
                 placement = #sdsc.lx<0>, relaid = true}

``placement = "hbm"`` excludes LX and leaves the offset open. ``relaid`` is true if ``joint-planning`` adds a relayout
of the result; a plan states this with the core order. An argument has ``layouts = [#stick.layout<..>, ..]``, one layout
for each of its copies. ``apply-plan`` writes pins, and removes them after all decisions are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from spyre_mlir.analysis.aliasing import AliasAnalysis
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import ir
from spyre_mlir.plans import PlannedPlacement
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemoryPlan, MemorySpace
from spyre_mlir.scratchpad.competition import reasons
from spyre_mlir.scratchpad.fitting import Fitting, orders
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class Pins:
    """The pinned decisions of one operation; None leaves a decision to the compiler.

    Attributes:
        layout: The layout of the result.
        slices: The slices of each iteration dim.
        core_order: The dims in the order in which core ids count the slices, the fastest first.
        placement: The memory of the result, and the address in this memory.
        relayout: Whether a relayout of the result is added.
    """

    layout: StickLayout | None = None
    slices: tuple[int, ...] | None = None
    core_order: tuple[int, ...] | None = None
    placement: PlannedPlacement | None = None
    relayout: bool | None = None


NO_PINS = Pins()


def set_pins(op: ir.Operation, pins: Pins) -> None:
    """Set the ``pins`` of an ``op``; needs a current context."""
    entries: dict[str, ir.Attribute] = {}
    if pins.layout is not None:
        entries["layout"] = stick.layout_attr(pins.layout)
    if pins.slices is not None:
        entries["slices"] = ir.DenseI64ArrayAttr.get(pins.slices)
    if pins.core_order is not None:
        entries["core_order"] = ir.DenseI64ArrayAttr.get(pins.core_order)
    if pins.placement is not None:
        entries["placement"] = _placement_attr(pins.placement)
    if pins.relayout is not None:
        entries["relaid"] = ir.BoolAttr.get(pins.relayout)
    if entries:
        op.attributes[sdsc.PINS] = ir.DictAttr.get(entries)


def pins_of(op: ir.Operation) -> Pins:
    """Return the pins of an ``op``; ``NO_PINS`` if it has none."""
    if sdsc.PINS not in op.attributes:
        return NO_PINS
    entries = ir.DictAttr(op.attributes[sdsc.PINS])
    return Pins(
        stick.layout_from(entries["layout"], op.results[0].type, target_of(op))
        if "layout" in entries
        else None,
        _integers(entries, "slices"),
        _integers(entries, "core_order"),
        _placement(entries["placement"]) if "placement" in entries else None,
        ir.BoolAttr(entries["relaid"]).value if "relaid" in entries else None,
    )


def argument_layouts(
    attributes: Mapping[str, ir.Attribute], type_: ir.Type, target: Target
) -> tuple[StickLayout, ...]:
    """Return the layouts that are pinned for an argument; () if none are pinned."""
    if sdsc.PINS not in attributes:
        return ()
    layouts = ir.ArrayAttr(ir.DictAttr(attributes[sdsc.PINS])["layouts"])
    return tuple(stick.layout_from(attr, type_, target) for attr in layouts)


#: Maximum characters of a pin in a message.
_LONGEST_PIN = 30


def refused(op: ir.Operation, pin: str, reason: str) -> CompileError:
    """Return the error for a pin that cannot be satisfied, at the source line of the op."""
    # The plan file contains the whole pin; the message is about the reason.
    pin = pin if len(pin) <= _LONGEST_PIN else f"{pin[:_LONGEST_PIN]}.."
    return error_at(op, f"the plan pins {pin} for '{sdsc.name_of(op)}', which cannot hold: {reason}")


def _integers(entries: ir.DictAttr, name: str) -> tuple[int, ...] | None:
    return tuple(ir.DenseI64ArrayAttr(entries[name])) if name in entries else None


def _placement_attr(placement: PlannedPlacement) -> ir.Attribute:
    if placement.memory == "lx":
        assert isinstance(placement.address, int)
        return sdsc.lx_attr(placement.address)
    if placement.memory == "pool":
        assert isinstance(placement.address, int)
        return sdsc.hbm_attr("pool", placement.address)
    return (
        sdsc.hbm_attr(str(placement.address), 0)
        if placement.memory == "argument"
        else ir.StringAttr.get("hbm")
    )


def _placement(attr: Any) -> PlannedPlacement:
    return PlannedPlacement("hbm") if isinstance(attr, ir.StringAttr) else placement_from(attr)


def placement_from(attr: sdsc.HbmAttr | sdsc.LxAttr) -> PlannedPlacement:
    """Return the placement that a pass decided, in the form of a plan."""
    if isinstance(attr, sdsc.LxAttr):
        return PlannedPlacement("lx", ir.IntegerAttr(attr.address).value)
    base = ir.StringAttr(attr.base).value
    return (
        PlannedPlacement("pool", ir.IntegerAttr(attr.offset).value)
        if base == "pool"
        else PlannedPlacement("argument", base)
    )


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
        return Placement(best, work=len(placements) * len(instance), reasons=reasons(instance, placed))

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
