# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plan pins: the pins of a plan file in the attribute ``sdsc.pins`` of an operation, which later passes obey.

    sdsc.pins = {layout = #stick.layout<..>, slices = array<i64: 1, 16>, core_order = array<i64: 1>,
                 placement = #sdsc.lx<0>, relaid = true}

``placement = "hbm"`` excludes LX and leaves the offset open. ``relaid`` is true if ``joint-planning`` adds a relayout
of the result; a plan states this with the core order. An argument has ``layouts = [#stick.layout<..>, ..]``, one layout
for each of its copies. ``apply-plan`` writes pins, and removes them after all decisions are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import ir
from spyre_mlir.plans import PlannedPlacement
from spyre_mlir.records import dataclass
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
