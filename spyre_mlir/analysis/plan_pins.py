# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plan pins: the pins of a plan file in the attribute ``sdsc.pins`` of an operation, which later passes obey.

    sdsc.pins = {layout = #stick.layout<..>, slices = array<i64: 1, 16>, core_order = array<i64: 1>,
                 placement = #sdsc.lx<0>, relayout = true}

``placement = "hbm"`` excludes LX and leaves the offset open. ``relayout`` is true if ``joint-planning`` adds a relayout
of the result; a plan states this with the core order. An argument has ``layouts = [#stick.layout<..>, ..]``, one layout
for each of its copies. ``apply-plan`` writes pins, and removes them after all decisions are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, argument_attributes, functions, is_compute
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.hint_attributes import tiling_of
from spyre_mlir.dialects.structured import defining_op, element_of, shape_of
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import Division
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.requests import request_of, without_room
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.plans import PlanFile, PlannedArgument, PlannedOperation, PlannedPlacement
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad import LifetimeBoundBuffer, MemoryPlan, MemorySpace
from spyre_mlir.scratchpad.fitting import Fitting, orders
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement, competition
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
        memory, address = pins.placement.memory, pins.placement.address
        if memory == "argument":
            entries["placement"] = sdsc.hbm_attr(str(address), 0)
        elif memory in ("lx", "pool"):
            assert isinstance(address, int)
            in_lx = memory == "lx"
            entries["placement"] = sdsc.lx_attr(address) if in_lx else sdsc.hbm_attr("pool", address)
        else:
            entries["placement"] = ir.StringAttr.get("hbm")
    if pins.relayout is not None:
        entries["relayout"] = ir.BoolAttr.get(pins.relayout)
    if entries:
        op.attributes[sdsc.PINS] = ir.DictAttr.get(entries)


def pins_of(op: ir.Operation) -> Pins:
    """Return the pins of an ``op``; ``NO_PINS`` if it has none."""
    if sdsc.PINS not in op.attributes:
        return NO_PINS
    entries = ir.DictAttr(op.attributes[sdsc.PINS])
    layout = None
    if "layout" in entries:
        layout = stick.layout_from(entries["layout"], op.results[0].type, target_of(op))
    return Pins(
        layout,
        _integers(entries, "slices"),
        _integers(entries, "core_order"),
        placement_from(entries["placement"]) if "placement" in entries else None,
        ir.BoolAttr(entries["relayout"]).value if "relayout" in entries else None,
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
    return error_at(op, f"the plan pins {pin} for '{sdsc.name_of(op)}', which is not possible: {reason}")


def _integers(entries: ir.DictAttr, name: str) -> tuple[int, ...] | None:
    return tuple(ir.DenseI64ArrayAttr(entries[name])) if name in entries else None


def placement_from(attr: Any) -> PlannedPlacement:
    """Return the placement in an attribute, of a pin or that a pass decided, in the form of a plan."""
    if isinstance(attr, ir.StringAttr):
        return PlannedPlacement("hbm")
    if isinstance(attr, sdsc.LxAttr):
        return PlannedPlacement("lx", ir.IntegerAttr(attr.address).value)
    base = ir.StringAttr(attr.base).value
    if base != "pool":
        return PlannedPlacement("argument", base)
    return PlannedPlacement("pool", ir.IntegerAttr(attr.offset).value)


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
            pinned.refuse(f"'{name}' writes another part of the buffer, which is pinned to {other.placement}")
    return pins


def plan_around(
    pinned: Mapping[str, PinnedBuffer], buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace
) -> MemoryPlan:
    """Return a plan with the pinned buffers, by name, at their addresses, and the other buffers around them.

    Raise ``CompileError`` for an address that is not aligned, outside the memory, or in conflict with another pin.
    """
    addresses: dict[str, int] = {}
    for name, pin in pinned.items():
        assert isinstance(pin.placement.address, int)
        addresses[name] = pin.placement.address
    instance = Instance.of(buffers, space)
    fixed = _fixed_addresses(instance, addresses)
    for index, address in fixed.items():
        end, owner = address + int(instance.sizes[index]), pinned[instance.buffers[index].name]
        if address % space.alignment:
            owner.refuse(f"addresses are multiples of {space.alignment}")
        if end > space.capacity:
            owner.refuse(f"it would end at byte {end} of {space.capacity}")
    # Conflicts are reported here: the solver would report a failure without a cause.
    clash = conflict(instance, fixed)
    if clash is not None:
        first, second = (pinned[instance.buffers[index].name] for index in clash)
        name, begin = sdsc.name_of(first.op), fixed[clash[0]]
        end = begin + int(instance.sizes[clash[0]])
        second.refuse(f"'{name}' is pinned to bytes {begin} to {end}, and both are live at once")
    return PinnedSolver(pinned=addresses).plan(buffers, space)


def _fixed_addresses(instance: Instance, addresses: Mapping[str, int]) -> dict[int, int]:
    """Return the addresses by the index of a buffer instead of its name."""
    buffers = enumerate(instance.buffers)
    return {index: addresses[buffer.name] for index, buffer in buffers if buffer.name in addresses}


@dataclass(frozen=True)
class PinnedSolver(MemoryPlanSolver):
    """Place the buffers in ``pinned``, by name, at their addresses, and fit the other buffers around them.

    Of all orders and policies, choose the plan that saves the most traffic, then the plan with the lowest peak. Pinned
    buffers must not be in ``conflict``; they keep their addresses whether or not this saves traffic.
    """

    name: ClassVar[str] = "pinned"
    pinned: Mapping[str, int] = field(default_factory=dict)

    def eligible(self, instance: Instance) -> list[int]:
        """Return the buffers that are worth an address, and the pinned ones."""
        return sorted({*super().eligible(instance), *_fixed_addresses(instance, self.pinned)})

    def place(self, instance: Instance) -> Placement:
        """Return the pinned addresses and the addresses of other buffers that fit into a gap."""
        fitting = Fitting(instance)
        pinned_addresses = _fixed_addresses(instance, self.pinned)
        placements = [
            fitting.fit([index for index in order if index not in pinned_addresses], policy, pinned_addresses)
            for order, policy in orders(instance)
        ]

        def rank(addresses: Mapping[int, int]) -> tuple[int, int]:
            saved = sum(int(instance.savings[index]) for index in addresses)
            ends = (address + int(instance.sizes[index]) for index, address in addresses.items())
            return -saved, max(ends, default=0)

        best = min(placements, key=rank)
        placed = np.zeros(len(instance), bool)
        placed[list(best)] = True
        return Placement(best, work=len(placements) * len(instance), reasons=competition(instance, placed))


def conflict(instance: Instance, addresses: Mapping[int, int]) -> tuple[int, int] | None:
    """Return two buffers that overlap in time and in memory, unless one overwrites the other in place; else None."""
    live: list[int] = []
    for index in sorted(addresses, key=lambda index: (int(instance.starts[index]), index)):
        live = [other for other in live if instance.ends[other] >= instance.starts[index]]
        begin, end = addresses[index], addresses[index] + int(instance.sizes[index])
        for other in live:
            overlaps = addresses[other] < end and begin < addresses[other] + int(instance.sizes[other])
            related = other in instance.parents[index] or index in instance.parents[other]
            if overlaps and not (related and addresses[other] == begin):
                return other, index
        live.append(index)
    return None


def planned_function(module: ir.Operation) -> ir.Operation:
    """Return the function that a plan describes: the only function with a body that is not the body of a loop."""
    candidates = [func for func in functions(module) if "sym_visibility" not in func.attributes]
    if len(candidates) != 1:
        raise CompileError(
            f"a plan file describes one function with a body, but this module has {len(candidates)}"
        )
    return candidates[0]


def current_plan(func: ir.Operation) -> PlanFile:
    """Return the decisions made so far, in program order; every device operation must have a name."""
    memory = AliasAnalysis(func)
    arguments = func.regions[0].blocks[0].arguments
    attributes = argument_attributes(func)
    for number, attribute in enumerate(attributes):
        if sdsc.HOST not in attribute:
            raise error_at(func, f"argument {number} has no host array (sdsc.host)")
    # The first argument with the same elements of the same host array is the source of the others.
    first: dict[tuple[str, str], str] = {}
    planned: list[PlannedArgument] = []
    for value, entry in zip(arguments, attributes, strict=True):
        host, layout = entry[sdsc.HOST], stick.layout_of(value.type, memory.target)
        name = ir.StringAttr(host.label).value
        array = ir.StringAttr(entry[sdsc.SOURCE]).value if sdsc.SOURCE in entry else name
        source = first.setdefault((array, str(entry.get(sdsc.HOST_VIEW))), name)
        planned.append(
            PlannedArgument(
                name=name,
                kind=ir.StringAttr(host.kind).value,
                source=None if source == name else source,
                shape=shape_of(value),
                dtype=element_of(value),
                layout=None if layout is None else layout_value(layout),
            )
        )
    ops = [op for op in all_ops(func) if is_compute(op)]
    return PlanFile(tuple(planned), tuple(_operation(memory, op) for op in ops))


def layout_value(layout: StickLayout) -> dict | str:
    """Return a layout as the plan file writes it: its dim order, or else the map of ``#stick.layout``."""
    request = request_of(layout)
    if request is None:
        return str(stick.affine_map(without_room(layout)))
    request_value: dict = {"dim_order": list(request.dim_order or ())}
    return {**request_value, "stick_outermost": True} if request.stick_outermost else request_value


def core_order_of(division: Division) -> tuple[int, ...]:
    """Return the dims with several slices; the dim whose slices are on neighbouring cores is first."""
    split = [dim for dim, count in enumerate(division.splits) if count > 1]
    return tuple(sorted(split, key=lambda dim: [slices[dim] for slices in division.owners].index(1)))


def _operation(memory: AliasAnalysis, op: ir.Operation) -> PlannedOperation:
    """Return the entry of an operation in a plan file; ``CompileError`` for a decision that a plan cannot express."""
    name, result = sdsc.name_of(op), op.results[0]
    if name is None:
        raise error_at(op, "this operation has no sdsc.name; run name-operations first")
    layout = stick.layout_of(result.type, memory.target)
    division = sdsc.division_of(op) if sdsc.DIVISION in op.attributes else None
    owner = None if layout is None else defining_op(memory.place(result).buffer)
    placement = None if owner is None else sdsc.placement_of(owner)
    order = None if division is None else core_order_of(division)
    # A plan contains only the order of the dims, from which a reader of the plan computes the cores.
    if division is not None and Division.mixed_radix(division.splits, order).owners != division.owners:
        raise error_at(op, "a plan file cannot express this core map, which does not count slices")
    return PlannedOperation(
        name=name,
        opcode=sdsc.opcode_of(op) if layout is None else memory.space(op)[0],
        location=location_of(op.location) or None,
        source=name.rpartition("/")[0] or None,
        slices=None if division is None else division.splits,
        core_order=order,
        cores=None if division is None else division.cores,
        # A part of an operation (a name with a slash) is tiled by its source.
        tiling=tiling_of(op, sdsc.TILED) if sdsc.TILED in op.attributes and "/" not in name else None,
        shape=shape_of(result),
        dtype=element_of(result),
        layout=None if layout is None else layout_value(layout),
        placement=None if placement is None else placement_from(placement),
        spilled=() if owner is None else sdsc.spilled_of(owner),
    )
