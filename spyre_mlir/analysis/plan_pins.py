"""What a plan file pins, as the attribute ``sdsc.pins`` of an operation: what later passes have to obey.

    sdsc.pins = {layout = #stick.layout<..>, slices = array<i64: 1, 16>, core_order = array<i64: 1>,
                 placement = #sdsc.lx<0>, relaid = true}

``placement = "hbm"`` bars LX and leaves the offset open. ``relaid`` says whether ``joint-planning`` takes the result to
other cores; a plan tells that with the core order. An argument has ``layouts = [#stick.layout<..>, ..]``, one for each
time that it is given. ``apply-plan`` writes pins, and takes them away when all is decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.mlir import ir
from spyre_mlir.plans import PlannedPlacement


@dataclass(frozen=True)
class Pins:
    """What is pinned of one operation; None is the compiler's choice."""

    layout: StickLayout | None = None
    slices: tuple[int, ...] | None = None
    core_order: tuple[int, ...] | None = None
    placement: PlannedPlacement | None = None
    relaid: bool | None = None


NO_PINS = Pins()


def set_pins(op: ir.Operation, pins: Pins) -> None:
    """Pins an op; needs a current context."""
    made: dict[str, ir.Attribute] = {}
    if pins.layout is not None:
        made["layout"] = stick.layout_attr(pins.layout)
    if pins.slices is not None:
        made["slices"] = ir.DenseI64ArrayAttr.get(pins.slices)
    if pins.core_order is not None:
        made["core_order"] = ir.DenseI64ArrayAttr.get(pins.core_order)
    if pins.placement is not None:
        made["placement"] = _placement_attr(pins.placement)
    if pins.relaid is not None:
        made["relaid"] = ir.BoolAttr.get(pins.relaid)
    if made:
        op.attributes[sdsc.PINS] = ir.DictAttr.get(made)


def pins_of(op: ir.Operation) -> Pins:
    """What is pinned of an op."""
    if sdsc.PINS not in op.attributes:
        return NO_PINS
    found = ir.DictAttr(op.attributes[sdsc.PINS])
    return Pins(
        stick.layout_from(found["layout"], op.results[0].type) if "layout" in found else None,
        _integers(found, "slices"),
        _integers(found, "core_order"),
        _placement(found["placement"]) if "placement" in found else None,
        ir.BoolAttr(found["relaid"]).value if "relaid" in found else None,
    )


def argument_layouts(attributes: Mapping[str, ir.Attribute], type_: ir.Type) -> tuple[StickLayout, ...]:
    """The layouts that are pinned for an argument; () without any."""
    if sdsc.PINS not in attributes:
        return ()
    layouts = ir.ArrayAttr(ir.DictAttr(attributes[sdsc.PINS])["layouts"])
    return tuple(stick.layout_from(attr, type_) for attr in layouts)


def refused(op: ir.Operation, pin: str, reason: str) -> CompileError:
    """The error for a pin that cannot hold, at the source line of the op."""
    return error_at(op, f"the plan pins {pin} for '{sdsc.name_of(op)}', which cannot hold: {reason}")


def _integers(found: ir.DictAttr, name: str) -> tuple[int, ...] | None:
    return tuple(ir.DenseI64ArrayAttr(found[name])) if name in found else None


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


def _placement(attr: ir.Attribute) -> PlannedPlacement:
    return PlannedPlacement("hbm") if isinstance(attr, ir.StringAttr) else placement_from(attr)


def placement_from(attr: sdsc.HbmAttr | sdsc.LxAttr) -> PlannedPlacement:
    """The placement that a pass decided, as plans write it."""
    if isinstance(attr, sdsc.LxAttr):
        return PlannedPlacement("lx", ir.IntegerAttr(attr.address).value)
    base = ir.StringAttr(attr.base).value
    return (
        PlannedPlacement("pool", ir.IntegerAttr(attr.offset).value)
        if base == "pool"
        else PlannedPlacement("argument", base)
    )
