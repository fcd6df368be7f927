# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reader of the design in a `sdsc_<i>.json`, from any writer.

The format repeats many facts (tensor names, folds, core lists). The writer (``design_writer.py``) derives all of them
from the ``Design``. The reader takes each fact from one place and then requires that the rest of the file equals
the output of the writer for that design, so a file that contradicts itself is rejected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from spyre_mlir.bundle.canonical_design import REPEATED, CanonicalDesign
from spyre_mlir.bundle.canonical_fields import integer
from spyre_mlir.bundle.design_writer import (
    EMPTY_OF_STAGE,
    INDICES,
    PADDING,
    SYMBOLIC_DIMS,
    SYMBOLS_OF_DIMS,
    to_json,
    varying,
)
from spyre_mlir.bundle.json_fields import Field, only_item, require_same
from spyre_mlir.bundle.model import (
    Constant,
    DebugHandle,
    Design,
    HeldSlices,
    Operand,
    SymbolicSize,
    WindowDim,
)
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.target.target import Target

Json = dict[str, Any]


@dataclass(frozen=True)
class ReadDesign:
    """A design read from a file: ``names`` of its tensors in order, and ``ignored`` fields without an effect."""

    design: Design
    names: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def from_json(value: Json, filename: str, target: Target) -> Design:
    """Return the design of a JSON object, for a target; ``CompileError`` with file and field for an invalid object."""
    return read_design(value, filename, target).design


def read_design(value: Json, filename: str, target: Target) -> ReadDesign:
    """Return the design of a JSON object from any writer of the format; errors as in ``from_json``."""
    # A file written by ``to_json`` only needs a comparison.
    with contextlib.suppress(CompileError):
        design = _read(Field(value, filename), target)
        if to_json(design) == value:
            return ReadDesign(design, tuple(f"Tensor{i}" for i in range(len(design.operands))))
    canonical = CanonicalDesign(value, filename, target)
    design = _read(canonical.root, target)
    try:
        expected = CanonicalDesign(to_json(design), filename, target).root.value
    except CompileError as error:
        raise CompileError(error.message, filename) from None
    require_same(canonical.root, expected, REPEATED)
    design = replace(design, padding=canonical.division.padding)
    return ReadDesign(design, canonical.names, canonical.ignored)


def _read(root: Field, target: Target) -> Design:
    key, body = root.only_member()
    index, _, function = key.partition("_")
    if not (index.isdecimal() and function):
        root.fail(f"must have a member named <index>_<opcode> but has {key!r}")
    name, dsc = only_item(body["dscs_"]).only_member()
    if name != function:
        dsc.fail(f"must be named {function!r}")
    return replace(_read_design(int(index), _opcode(function, dsc), body, dsc), target=target)


def _opcode(function: str, dsc: Field) -> str:
    """Return the operation of a function name: with an index tensor the operation is a different one."""
    if INDICES not in only_item(dsc["computeOp_"]):
        return function
    # An unknown function is kept, and the validator reports it.
    return next((op.name for op in DEVICE_OPS.values() if op.function == function), function)


def _read_design(index: int, opcode: str, body: Field, dsc: Field) -> Design:
    compute = only_item(dsc["computeOp_"])
    sizes, stage = _read_sizes(dsc["N_"]), dsc["dataStageParam_"]["0"]["ss_"]
    shares = _read_sizes(stage)
    _require_declared(sizes, shares, stage)
    return Design(
        index=index,
        opcode=opcode,
        unit=compute["exUnit"].text(),
        data_format=compute["attributes_"]["dataFormat_"].text(),
        sizes=sizes,
        slices=_over_dims(body["numWkSlicesPerDim_"], sizes),
        shares=shares,
        core_slices=_in_order(body["coreIdToWkSlice_"], sizes),
        operands=_read_operands(dsc, sizes),
        masks={dim: _read_mask(mask) for dim, mask in dsc["coordinateMasking_"].members()},
        mask_constant=dsc["maskingConstId_"].integer(),
        constants=_read_constants(dsc["constantInfo_"]),
        debug=_read_debug(body["debug_handle_"]),
        symbolic=_read_symbolic(dsc, stage, _over_dims(body["numWkSlicesPerDim_"], sizes)),
    )


def _read_symbolic(dsc: Field, stage: Field, slices: dict[str, int]) -> dict[str, SymbolicSize]:
    """Return the dims that follow a run-time size, each with the symbol of the execute that gives the size."""
    if SYMBOLS_OF_DIMS not in dsc:
        return {}
    symbolic, info = {}, stage[SYMBOLIC_DIMS]
    for dim, symbols in dsc[SYMBOLS_OF_DIMS].members():
        _require_declared((dim,), slices, symbols)
        granularity = info[dim]["granularity_"].integer()
        if granularity < 1:
            info[dim]["granularity_"].fail("must be at least 1")
        symbolic[dim] = SymbolicSize(only_item(symbols).integer_text(), granularity * slices[dim])
    return symbolic


def _read_sizes(field: Field) -> dict[str, int]:
    """Return the sizes by dim of one set of dims."""
    return {
        key.removesuffix("_"): member.integer()
        for key, member in field.members()
        if key not in ("name_", PADDING, *EMPTY_OF_STAGE)
    }


def _require_declared(dims: Iterable[str], sizes: dict[str, int], field: Field) -> None:
    for dim in dims:
        if dim not in sizes:
            field.fail(f"uses the dim {dim!r}, which is not declared there or in N_")


def _over_dims(field: Field, sizes: dict[str, int]) -> dict[str, int]:
    values = field.integers_by_key()
    if values.keys() != sizes.keys():
        field.fail(f"must name the dims of N_, {', '.join(sizes)}, but names {', '.join(values) or 'none'}")
    return values


def _in_order(field: Field, sizes: dict[str, int]) -> tuple[dict[str, int], ...]:
    members = list(field.members())
    for core, (key, _) in enumerate(members):
        if key != str(core):
            field.fail(f"must number its cores from 0 without holes but has {key!r} in place of {core}")
    return tuple(_over_dims(member, sizes) for _, member in members)


def _read_mask(field: Field) -> tuple[int, int]:
    values = only_item(field).integers()
    if len(values) != 2:
        field.fail("must hold a start and a length")
    return values[0], values[1]


def _read_operands(dsc: Field, sizes: dict[str, int]) -> tuple[Operand, ...]:
    nodes, labeled = dsc["scheduleTree_"].items(), dsc["labeledDs_"].items()
    if len(nodes) != len(labeled):
        dsc.fail(f"has {len(nodes)} nodes in scheduleTree_ for {len(labeled)} tensors in labeledDs_")
    layouts = dsc["primaryDsInfo_"]
    for _, layout in layouts.members():
        _require_declared(layout["layoutDimOrder_"].texts(), sizes, layout["layoutDimOrder_"])
    operands = (_read_operand(node, label, layouts) for node, label in zip(nodes, labeled, strict=True))
    first, *others = (
        replace(operand, held=_read_held(node, operand))
        for operand, node in zip(operands, nodes, strict=True)
    )
    return (
        replace(first, windows=_read_windows(dsc["N_"], sizes)),
        *(
            replace(operand, windows=_read_halos(node, operand, sizes))
            for operand, node in zip(others, nodes[1:], strict=True)
        ),
    )


def _read_windows(field: Field, sizes: dict[str, int]) -> dict[str, WindowDim]:
    """Return the windows that slide along dims of the first operand, from ``paddingSizes_`` of all cores."""
    windows = {}
    for dim, pad in field[PADDING].members() if PADDING in field else ():
        stride, dilation, before, total = (
            pad[name].integer() for name in ("stride_", "dilation_", "padFront_", "totalSize_")
        )
        kernel = pad["windowDim_"].text()
        _require_declared((dim, kernel), sizes, pad)
        windows[dim] = WindowDim(sizes[kernel], stride, dilation, before, total, kernel)
        if min(stride, dilation, total) < 1 or before < 0:
            pad.fail("must have positive steps and sizes, and no negative padding")
    return windows


def _read_halos(node: Field, operand: Operand, sizes: dict[str, int]) -> dict[str, WindowDim]:
    """Return the halos of a shuffle's result: slices that begin before a multiple of their share or exceed it."""
    halos = {}
    for dim, slices in operand.held.slices.items() if operand.held is not None else ():
        folds, size = node["coordinates_"]["coordInfo"][dim]["folds"], sizes[dim]
        functions, counts = folds["dim_prop_func"].items(), folds["dim_prop_attr"].items()
        if not functions or dim == operand.stick_dim or dim in operand.beside:
            continue
        before, share = -functions[0]["Affine"]["beta_"].integer(), -(-size // slices)
        reach = counts[-1]["factor_"].integer()
        if before or reach != share:
            if before < 0 or reach < share + before:
                folds.fail("must hold each slice whole, and maybe what is before and behind it")
            halos[dim] = WindowDim(1 + reach - share, 1, 1, before, size, "")
    return halos


def _read_held(node: Field, operand: Operand) -> HeldSlices | None:
    if "coordinates_" not in node or "coreIdToWkSlice_" not in node["coordinates_"]:
        return None
    coordinates = node["coordinates_"]
    by_core = {core: member.integers_by_key() for core, member in coordinates["coreIdToWkSlice_"].members()}
    if not by_core:
        return None
    slices = {dim: _read_core_fold(coordinates["coordInfo"][dim]) for dim in varying(operand)}
    return HeldSlices(slices, tuple(by_core.get(str(core)) for core in range(len(operand.start))))


def _read_core_fold(coordinate: Field) -> int:
    """Return the number of slices of a dim."""
    folds = coordinate["folds"]["dim_prop_attr"]
    if not folds.items():
        folds.fail("must begin with the fold over the cores")
    # The first fold is the fold over the cores, as ``_coordinate`` writes it.
    factor = folds.items()[0]["factor_"]
    if factor.integer() < 1:
        factor.fail("must be at least 1")
    return factor.integer()


def _read_operand(node: Field, label: Field, layouts: Field) -> Operand:
    role = label["dsType_"].text()
    layout = layouts[role]
    dims, counts = layout["stickDimOrder_"].texts(), layout["stickSize_"].integers()
    if not dims or len(dims) != len(counts) or len(set(dims)) != len(dims):
        layout["stickDimOrder_"].fail(
            "must name the dims in the stick once each, and 'stickSize_' a size for each"
        )
    # The layout of a role has the dim order of its first tensor; each allocation has the order of its tensor in memory.
    listed, scale = layout["layoutDimOrder_"].texts(), label["scale_"].integers()
    if len(scale) != len(listed):
        label["scale_"].fail(f"must have one entry for each of the {len(listed)} dims of its layout")
    order = node["layoutDimOrder_"].texts() if "layoutDimOrder_" in node else listed
    if sorted(order) != sorted(listed):
        node["layoutDimOrder_"].fail(f"must have the dims of its layout, {', '.join(listed)}")
    scales = dict(zip(listed, scale, strict=True))
    return Operand(
        role=role,
        data_format=label["dataFormat_"].text(),
        memory=node["component_"].text(),
        dim_order=order,
        stick_dim=dims[-1],
        stick_elements=counts[-1],
        scale={dim: scales[dim] for dim in order},
        start=_read_starts(node["startAddressCoreCorelet_"]["data_"]),
        gap=_read_gaps(node["backGapCore_"]) if "backGapCore_" in node else {},
        beside=dict(zip(dims[:-1], counts[:-1], strict=True)),
    )


def _read_starts(data: Field) -> tuple[int, ...]:
    members = list(data.members())
    for core, (key, _) in enumerate(members):
        if key != f"[{core}, 0, 0]":
            data.fail(f"must list its cores in order but has {key!r} in place of '[{core}, 0, 0]'")
    return tuple(member.integer_text() for _, member in members)


def _read_gaps(field: Field) -> dict[str, int]:
    gaps = {}
    for dim, per_core in field.members():
        values = [member.integer_text() for _, member in per_core.members()]
        if not values or any(a != b for a, b in pairwise(values)):
            per_core.fail("must hold the same gap for every core")
        gaps[dim] = values[0]
    return gaps


def _read_constants(field: Field) -> tuple[Constant, ...]:
    if field.value == "{}":
        return ()
    return tuple(
        Constant(
            name=constant["name_"].text(),
            data_format=constant["dataFormat_"].text(),
            bits=integer(only_item(constant["data_"]["data_"]["[0, 0, 0]"])),
        )
        for _, constant in field.members()
    )


def _read_debug(field: Field) -> DebugHandle | None:
    if field.value is None:
        return None
    source = field["source"] if field["source"].value is not None else None
    return DebugHandle(
        id=field["id"].text(),
        file=source and source["file"].text(),
        line=source["start_line"].integer() if source else 0,
        column=source["start_col"].integer() if source else 0,
        aten_op=field["aten_op"].optional_text(),
        ir_chain=field["ir_chain"].texts(),
        transforms=tuple(
            (step["kind"].text(), step["pass_name"].text(), step["reason"].text())
            for step in field["transform_history"].items()
        ),
    )
