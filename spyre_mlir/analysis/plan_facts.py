# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plan facts: the decisions about a function, in the form of a plan file."""

from __future__ import annotations

from spyre_mlir.analysis.aliasing import AliasAnalysis, all_ops, argument_attributes, functions, is_compute
from spyre_mlir.analysis.plan_pins import placement_from
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc, stick
from spyre_mlir.dialects.hint_attributes import tiling_of
from spyre_mlir.dialects.structured import defining_op, element_of, shape_of
from spyre_mlir.division import Division
from spyre_mlir.errors import CompileError
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.requests import request_of, without_room
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.plans import PlanFile, PlannedArgument, PlannedOperation, PlannedPlacement
from spyre_mlir.target.target import Target


def planned_function(module: ir.Operation) -> ir.Operation:
    """Return the function that a plan describes: the only function with a body that is not the body of a loop."""
    candidates = [func for func in functions(module) if "sym_visibility" not in func.attributes]
    if len(candidates) != 1:
        raise CompileError(
            f"a plan file is about one function with a body, this module has {len(candidates)}"
        )
    return candidates[0]


def current_plan(func: ir.Operation) -> PlanFile:
    """Return the decisions made so far, in program order; every device operation must have a name."""
    memory = AliasAnalysis(func)
    arguments = func.regions[0].blocks[0].arguments
    attributes = argument_attributes(func)
    for number, attribute in enumerate(attributes):
        if sdsc.HOST not in attribute:
            raise error_at(func, f"argument {number} does not say what the host makes of it (sdsc.host)")
    sources = _sources(attributes)
    entries = zip(arguments, attributes, sources, strict=True)
    ops = [op for op in all_ops(func) if is_compute(op)]
    return PlanFile(
        tuple(_argument(*entry, memory.target) for entry in entries),
        tuple(_operation(memory, op) for op in ops),
    )


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


def _sources(attributes: list[dict[str, ir.Attribute]]) -> list[str | None]:
    """Return for each argument the first argument with the same elements of the same host array; None for the first."""
    first: dict[tuple[str, str], str] = {}
    sources: list[str | None] = []
    for entry in attributes:
        label = ir.StringAttr(entry[sdsc.HOST].label).value
        array = ir.StringAttr(entry[sdsc.SOURCE]).value if sdsc.SOURCE in entry else label
        known = first.setdefault((array, str(entry.get(sdsc.HOST_VIEW))), label)
        sources.append(None if known == label else known)
    return sources


def _argument(
    value: ir.Value, attributes: dict[str, ir.Attribute], source: str | None, target: Target
) -> PlannedArgument:
    layout, host = stick.layout_of(value.type, target), attributes[sdsc.HOST]
    return PlannedArgument(
        name=ir.StringAttr(host.label).value,
        kind=ir.StringAttr(host.kind).value,
        source=source,
        shape=shape_of(value),
        dtype=element_of(value),
        layout=None if layout is None else layout_value(layout),
    )


def _operation(memory: AliasAnalysis, op: ir.Operation) -> PlannedOperation:
    name, result = sdsc.name_of(op), op.results[0]
    if name is None:
        raise error_at(op, "this operation has no sdsc.name; run name-operations first")
    layout = stick.layout_of(result.type, memory.target)
    division = sdsc.division_of(op) if sdsc.DIVISION in op.attributes else None
    owner = None if layout is None else defining_op(memory.place(result).buffer)
    return PlannedOperation(
        name=name,
        opcode=sdsc.opcode_of(op) if layout is None else memory.space(op)[0],
        location=location_of(op.location) or None,
        source=name.rpartition("/")[0] or None,
        slices=None if division is None else division.splits,
        core_order=None if division is None else _core_order(op, division),
        cores=None if division is None else division.cores,
        # A part of an operation (a name with a slash) is tiled by its source.
        tiling=tiling_of(op, sdsc.TILED) if sdsc.TILED in op.attributes and "/" not in name else None,
        shape=shape_of(result),
        dtype=element_of(result),
        layout=None if layout is None else layout_value(layout),
        placement=_placement(owner),
        spilled=() if owner is None else sdsc.spilled_of(owner),
    )


def _core_order(op: ir.Operation, division: Division) -> tuple[int, ...]:
    order = core_order_of(division)
    # A plan contains only the order of the dims, from which a reader of the plan computes the cores.
    if Division.mixed_radix(division.splits, order).owners != division.owners:
        raise error_at(op, "the core map of this division counts no slices, so a plan file cannot tell it")
    return order


def _placement(owner: ir.Operation | None) -> PlannedPlacement | None:
    placement = None if owner is None else sdsc.placement_of(owner)
    return None if placement is None else placement_from(placement)
