# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The JSON of a design in `sdsc_<i>.json`: the writer, and the reader of designs from any writer.

The format repeats many facts (tensor names, folds, core lists). The writer derives all of them from the ``Design``,
with every member that torch-spyre's front end writes. The reader takes each fact from one place and then requires that
the rest of the file equals the output of the writer for that design, so a file that contradicts itself is rejected.

The sizes are padded. `manifest.json` states the padding of each dim, because the format has padding for windows only.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from spyre_mlir.bundle import model
from spyre_mlir.bundle.canonical_design import REPEATED, CanonicalDesign, integer, size_in_memory
from spyre_mlir.bundle.core_slices import holders, operand_shares, operand_splits, reduced_dims
from spyre_mlir.bundle.json_fields import Field, only_item, require_same
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.formats import find_format
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.target.target import Target

Json = dict[str, Any]

INDICES = "indirectAccessIndexLabeledDs"

SYMBOLIC_DIMS = "symbolicDimInfo_"
SYMBOLIC_VOLUME = "maxSymbolicVolume_"
SYMBOLS_OF_DIMS = "dimToSymbolMapping_"

#: The member with the names of the run-time sizes by symbol.
SYMBOL_TAGS = "inputSymbolsAndTags_"

EMPTY_OF_STAGE = (SYMBOLIC_DIMS, SYMBOLIC_VOLUME, "coreletSplit_", "rowSplit_", "peSfpSplit_")

PADDING = "paddingSizes_"


@dataclass(frozen=True)
class ReadDesign:
    """A design read from a file: ``names`` of its tensors in order, and ``ignored`` fields without an effect."""

    design: model.Design
    names: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def from_json(value: Json, filename: str, target: Target) -> model.Design:
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
    design = replace(design, padding=canonical.padding)
    return ReadDesign(design, canonical.names, tuple(canonical.ignored))


def _read(root: Field, target: Target) -> model.Design:
    """Return the design that a JSON object in canonical form describes; ``CompileError`` names the wrong field."""
    key, body = root.only_member()
    index, _, function = key.partition("_")
    if not (index.isdecimal() and function):
        root.fail(f"must have a member named <index>_<opcode> but has {key!r}")
    name, dsc = only_item(body["dscs_"]).only_member()
    if name != function:
        dsc.fail(f"must be named {function!r}")
    compute, opcode = only_item(dsc["computeOp_"]), function
    if INDICES in compute:
        # An index tensor selects a different operation. The validator reports an unknown function.
        opcode = next((op.name for op in DEVICE_OPS.values() if op.function == function), function)
    sizes, stage = _read_sizes(dsc["N_"]), dsc["dataStageParam_"]["0"]["ss_"]
    shares = _read_sizes(stage)
    _require_declared(sizes, shares, stage)
    unit, data_format = compute["exUnit"].text(), compute["attributes_"]["dataFormat_"].text()
    slices, cores = _over_dims(body["numWkSlicesPerDim_"], sizes), body["coreIdToWkSlice_"]
    for core, (key, _) in enumerate(cores.members()):
        if key != str(core):
            cores.fail(f"must number its cores from 0 without holes but has {key!r} in place of {core}")
    core_slices = tuple(_over_dims(member, sizes) for _, member in cores.members())
    operands, masks = _read_operands(dsc, sizes), {}
    for dim, mask in dsc["coordinateMasking_"].members():
        values = only_item(mask).integers()
        if len(values) != 2:
            mask.fail("must hold a start and a length")
        masks[dim] = (values[0], values[1])
    return model.Design(
        index=int(index),
        opcode=opcode,
        unit=unit,
        data_format=data_format,
        sizes=sizes,
        slices=slices,
        shares=shares,
        core_slices=core_slices,
        operands=operands,
        masks=masks,
        mask_constant=dsc["maskingConstId_"].integer(),
        constants=_read_constants(dsc["constantInfo_"]),
        debug=_read_debug(body["debug_handle_"]),
        symbolic=_read_symbolic(body, dsc, stage, slices),
        target=target,
    )


def _read_constants(field: Field) -> tuple[model.Constant, ...]:
    if field.value == "{}":
        return ()
    return tuple(
        model.Constant(
            name=constant["name_"].text(),
            data_format=constant["dataFormat_"].text(),
            bits=integer(only_item(constant["data_"]["data_"]["[0, 0, 0]"])),
        )
        for _, constant in field.members()
    )


def _read_debug(field: Field) -> model.DebugHandle | None:
    if field.value is None:
        return None
    source = field["source"] if field["source"].value is not None else None
    return model.DebugHandle(
        id=field["id"].text(),
        file=source and source["file"].text(),
        line=source["start_line"].integer() if source else 0,
        column=source["start_col"].integer() if source else 0,
        aten_op=None if field["aten_op"].value is None else field["aten_op"].text(),
        ir_chain=field["ir_chain"].texts(),
        transforms=tuple(
            (step["kind"].text(), step["pass_name"].text(), step["reason"].text())
            for step in field["transform_history"].items()
        ),
    )


def _read_symbolic(
    body: Field, dsc: Field, stage: Field, slices: dict[str, int]
) -> dict[str, model.SymbolicSize]:
    """Return the dims that follow a run-time size, each with the symbol of the execute that gives the size."""
    if SYMBOLS_OF_DIMS not in dsc:
        return {}
    symbolic, info = {}, stage[SYMBOLIC_DIMS]
    tags = {symbol: tag.text() for symbol, tag in body[SYMBOL_TAGS].members()} if SYMBOL_TAGS in body else {}
    for dim, symbols in dsc[SYMBOLS_OF_DIMS].members():
        _require_declared((dim,), slices, symbols)
        granularity = info[dim]["granularity_"].integer()
        if granularity < 1:
            info[dim]["granularity_"].fail("must be at least 1")
        symbol = only_item(symbols).integer_text()
        symbolic[dim] = model.SymbolicSize(symbol, granularity * slices[dim], tags.get(str(symbol), ""))
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


def _read_operands(dsc: Field, sizes: dict[str, int]) -> tuple[model.Operand, ...]:
    nodes, labeled = dsc["scheduleTree_"].items(), dsc["labeledDs_"].items()
    if len(nodes) != len(labeled):
        dsc.fail(f"has {len(nodes)} nodes in scheduleTree_ for {len(labeled)} tensors in labeledDs_")
    layouts = dsc["primaryDsInfo_"]
    for _, layout in layouts.members():
        _require_declared(layout["layoutDimOrder_"].texts(), sizes, layout["layoutDimOrder_"])
    first, *others = [_read_operand(node, label, layouts) for node, label in zip(nodes, labeled, strict=True)]
    # The windows that slide along dims of the first operand, from `paddingSizes_` of all cores.
    field = dsc["N_"]
    windows = {}
    for dim, pad in field[PADDING].members() if PADDING in field else ():
        stride, dilation, before = (pad[name].integer() for name in ("stride_", "dilation_", "padFront_"))
        size, kernel = size_in_memory(pad), pad["windowDim_"].text().removesuffix("_")
        _require_declared((dim, kernel), sizes, pad)
        windows[dim] = model.WindowDim(sizes[kernel], stride, dilation, before, size, kernel)
        if min(stride, dilation, size) < 1 or before < 0:
            pad.fail("must have positive steps and sizes, and no negative padding")
    return (
        replace(first, windows=windows),
        *(
            replace(operand, windows=_read_halos(node, operand, sizes))
            for operand, node in zip(others, nodes[1:], strict=True)
        ),
    )


def _read_operand(node: Field, label: Field, layouts: Field) -> model.Operand:
    """Return an operand from its allocation (``node``), its tensor (``label``) and the layouts of the roles."""
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
    data_format, memory = label["dataFormat_"].text(), node["component_"].text()
    addresses = node["startAddressCoreCorelet_"]["data_"]
    for core, (key, _) in enumerate(addresses.members()):
        if key != f"[{core}, 0, 0]":
            addresses.fail(f"must list its cores in order but has {key!r} in place of '[{core}, 0, 0]'")
    start, gaps = tuple(member.integer_text() for _, member in addresses.members()), {}
    for dim, per_core in node["backGapCore_"].members() if "backGapCore_" in node else ():
        values = [member.integer_text() for _, member in per_core.members()]
        if len(set(values)) != 1:
            per_core.fail("must hold the same gap for every core")
        gaps[dim] = values[0]
    operand = model.Operand(
        role=role,
        data_format=data_format,
        memory=memory,
        dim_order=order,
        stick_dim=dims[-1],
        stick_elements=counts[-1],
        scale={dim: scales[dim] for dim in order},
        start=start,
        gap=gaps,
        other_elements=dict(zip(dims[:-1], counts[:-1], strict=True)),
    )
    return replace(operand, held=_read_held(node, operand))


def _read_held(node: Field, operand: model.Operand) -> model.HeldSlices | None:
    if "coordinates_" not in node or "coreIdToWkSlice_" not in node["coordinates_"]:
        return None
    coordinates, slices = node["coordinates_"], {}
    by_core = {core: member.integers_by_key() for core, member in coordinates["coreIdToWkSlice_"].members()}
    if not by_core:
        return None
    for dim in operand.listed:
        folds = coordinates["coordInfo"][dim]["folds"]["dim_prop_attr"]
        if not folds.items():
            folds.fail("must begin with the fold over the cores")
        # The number of slices is the factor of the first fold, as ``_coordinate`` writes it.
        factor = folds.items()[0]["factor_"]
        slices[dim] = factor.integer()
        if slices[dim] < 1:
            factor.fail("must be at least 1")
    return model.HeldSlices(slices, tuple(by_core.get(str(core)) for core in range(len(operand.start))))


def _read_halos(node: Field, operand: model.Operand, sizes: dict[str, int]) -> dict[str, model.WindowDim]:
    """Return the halos of a shuffle's result: slices that begin before a multiple of their share or exceed it."""
    halos = {}
    for dim, slices in operand.held.slices.items() if operand.held is not None else ():
        folds, size = node["coordinates_"]["coordInfo"][dim]["folds"], sizes[dim]
        functions, counts = folds["dim_prop_func"].items(), folds["dim_prop_attr"].items()
        if not functions or dim == operand.stick_dim or dim in operand.other_elements:
            continue
        before, share = -functions[0]["Affine"]["beta_"].integer(), -(-size // slices)
        reach = counts[-1]["factor_"].integer()
        if before or reach != share:
            if before < 0 or reach < share + before:
                folds.fail("must contain each slice, and may contain positions before and after it")
            halos[dim] = model.WindowDim(1 + reach - share, 1, 1, before, size, "")
    return halos


def to_json(design: model.Design) -> Json:
    """Return the JSON object of a design. Operands of one role must share their layout."""
    cores = range(design.cores)
    tags = {str(size.symbol): size.tag for size in design.symbolic.values() if size.tag}
    # The members that torch-spyre #2288 and torch-spyre #3246 write with run-time sizes.
    if tags:
        symbols = {"dimToSymbolMappingOpcodeCorrection_": {}, SYMBOL_TAGS: tags, "symbolDefinitions_": {}}
    else:
        symbols = {}
    return {
        f"{design.index}_{_function(design)}": {
            "debug_handle_": _debug_to_json(design.debug),
            "sdscFoldProps_": [_fold("time", 1)],
            "sdscFolds_": {
                "dim_prop_func": [_affine(1)],
                "dim_prop_attr": [_fold("time", 1)],
                "data_": {"[0]": "0"},
            },
            "coreFoldProp_": _fold("core", design.cores),
            "coreletFoldProp_": _fold("corelet", design.target.emitted_corelets),
            "numCoresUsed_": design.cores,
            "coreIdToDsc_": {str(core): 0 for core in cores},
            "numWkSlicesPerDim_": dict(design.slices),
            "coreIdToWkSlice_": {str(core): dict(design.core_slices[core]) for core in cores},
            "coreIdToDscSchedule": {str(core): [[-1, 0, 0, 0]] for core in cores},
            "dscs_": [{_function(design): _configuration(design)}],
            **symbols,
        }
    }


def _function(design: model.Design) -> str:
    """The ``opFuncName`` of a design."""
    op = DEVICE_OPS.get(design.opcode)
    return (op and op.function) or design.opcode


def _fold(label: str, factor: int) -> Json:
    return {"factor_": factor, "label_": label}


def _affine(alpha: int, beta: int = 0) -> Json:
    return {"Affine": {"alpha_": alpha, "beta_": beta}}


def _dims(sizes: dict[str, int]) -> Json:
    return {f"{dim}_": size for dim, size in sizes.items()}


def _stage(design: model.Design, sizes: dict[str, int]) -> Json:
    """Return the JSON of the sizes of one core, with the members without an effect that torch-spyre always writes.

    For dims that follow a run-time size, the largest size and the granularity of its growth are per core slice, and
    the volume is per tensor.
    """
    stage = {"name_": "core", **_dims(sizes), **{member: {} for member in EMPTY_OF_STAGE}}
    if design.symbolic:
        stage[SYMBOLIC_DIMS] = {
            dim: {"maxSize_": sizes[dim], "granularity_": size.granularity // design.slices[dim]}
            for dim, size in design.symbolic.items()
        }
        stage[SYMBOLIC_VOLUME] = {
            f"Tensor{index}": math.prod(sizes[dim] for dim in operand.listed)
            for index, operand in enumerate(design.operands)
            if not design.symbolic.keys().isdisjoint(operand.listed)
        }
    return {**stage, PADDING: _padding_sizes(design, sizes)}


def _padding_sizes(design: model.Design, sizes: dict[str, int] | None = None) -> Json:
    """Return the JSON of the windows by the dim that they slide along, of all cores or of one with these sizes.

    ``totalSize_`` counts the positions with padding ("SuperDSC Semantics"). If several cores divide the dim, the
    padding of a core depends on its slice and is written as -1, and the total is what the windows of the core reach.
    Poolings, which have no kernel, have members for unneeded positions only if there are some.
    """
    paddings: Json = {}
    for dim, window in design.operands[0].windows.items():
        count = design.sizes[dim] if sizes is None else sizes[dim]
        total = window.reached(count)
        front = back = -1
        unneeded, unneeded_back = 0, 0
        if sizes is None or design.slices[dim] == 1:
            front, back = window.before, max(window.end(count) - window.size, 0)
            # Padding of PyTorch is equal on both sides, also where no window needs all of it.
            if (2 * front + window.size - window.reach) // window.stride + 1 == count:
                unneeded_back = max(front - back, 0)
            total = front + window.size + back + unneeded_back
            unneeded = total - window.reached(count)
        unneeded_members = {
            "unneededPad_": unneeded,
            "unneededPadFront_": 0,
            "unneededPadBack_": unneeded_back,
        }
        paddings[dim] = {
            "padFront_": front,
            "padBack_": back,
            **(unneeded_members if unneeded or len(design.operands) > 2 else {}),
            "totalSize_": total,
            "stride_": window.stride,
            "dilation_": window.dilation,
            "windowDim_": window.kernel,
        }
    return paddings


def _padding_type(design: model.Design) -> str:
    """Return the padding of the dims that windows slide along, as "SuperDSC Semantics" has it for convolutions."""
    windows = design.operands[0].windows
    is_padded = any(window.is_padded(design.sizes[dim]) for dim, window in windows.items())
    return "padded_nozeropad" if is_padded else "padded_fullspan_wunneeded"


def _configuration(design: model.Design) -> Json:
    """Return the fields of a design other than its operands: sizes, slices, data stages and constants."""
    # The last slice may be shorter: ss_ is the full share, el_ the share of the last core.
    last = {dim: size - (design.slices[dim] - 1) * design.shares[dim] for dim, size in design.sizes.items()}
    # The SuperDSC schema has the name next to both halves; torch-spyre writes the name into each half.
    layouts, windows = _layouts(design), _padding_sizes(design)
    stage = {"name_": "core", "ss_": _stage(design, design.shares), "el_": _stage(design, last)}
    constants = {
        str(i): {
            "name_": constant.name,
            "dataFormat_": constant.data_format,
            "data_": _per_core(["Const", "Const", "Map"], design.cores, {"[0, 0, 0]": [str(constant.bits)]}),
        }
        for i, constant in enumerate(design.constants)
    }
    symbols = {dim: [str(size.symbol)] for dim, size in design.symbolic.items()}
    return {
        "numCoresUsed_": design.cores,
        "numCoreletsUsed_": design.target.emitted_corelets,
        "coreIdsUsed_": list(range(design.cores)),
        "N_": {"name_": "n", **_dims(design.sizes), **({PADDING: windows} if windows else {})},
        "coordinateMasking_": {dim: [list(mask)] for dim, mask in design.masks.items()},
        "maskingConstId_": design.mask_constant,
        "dataStageParam_": {"0": stage},
        "primaryDsInfo_": layouts,
        "scheduleTree_": [_allocation(design, i) for i in range(len(design.operands))],
        "labeledDs_": [_labeled(design, i, layouts) for i in range(len(design.operands))],
        # The format writes an empty set of constants as a string and not as an object.
        "constantInfo_": constants or "{}",
        "computeOp_": [_compute(design)],
        **({SYMBOLS_OF_DIMS: symbols} if symbols else {}),
    }


def _layouts(design: model.Design) -> Json:
    """Return the JSON of the layouts by role: the dim order is the order of the first operand with the role."""
    layouts: Json = {}
    for i, operand in enumerate(design.operands):
        layout = {
            "layoutDimOrder_": list(operand.dim_order),
            "stickDimOrder_": [*operand.other_elements, operand.stick_dim],
            "stickSize_": [*operand.other_elements.values(), operand.stick_elements],
        }
        first = layouts.setdefault(operand.role, layout)
        one, other = (
            {**each, "layoutDimOrder_": sorted(each["layoutDimOrder_"])} for each in (first, layout)
        )
        if one != other:
            raise CompileError(
                f"Tensor{i} of {design.opcode} has the role {operand.role} but not the dims and the stick of the "
                f"other tensor with that role; every role has one layout, so give it another role.",
                design.filename,
            )
    return layouts


def _allocation(design: model.Design, index: int) -> Json:
    """Return the allocation node of an operand: memory, dim order and start address of each core."""
    operand = design.operands[index]
    node: Json = {
        "nodeType_": "allocate",
        "name_": _node_name(design, index),
        "prev_": "",
        "ldsIdx_": index,
        "component_": operand.memory,
        "layoutDimOrder_": list(operand.dim_order),
        "maxDimSizes_": [-1] * len(operand.dim_order),
        **_indirection(design, index),
    }
    # HBM addresses are known only at run time, so the file has symbol ids, which are negative, in their place.
    if operand.memory == "hbm" and min(operand.start, default=-1) < 0:
        node["isStartAddrSymbolic_"] = 1
    node["startAddressCoreCorelet_"] = _per_core(
        ["Map", "Const", "Const"],
        design.cores,
        {f"[{core}, 0, 0]": str(start) for core, start in enumerate(operand.start)},
    )
    if index == 0 and operand.windows:
        node["padding_"] = dict.fromkeys(operand.windows, _padding_type(design))
    if operand.gap:
        # All cores address one tensor in HBM, so its gap is written once, for core -1.
        keys = ["-1"] if operand.memory == "hbm" else [str(core) for core in range(design.cores)]
        node["backGapCore_"] = {dim: dict.fromkeys(keys, str(gap)) for dim, gap in operand.gap.items()}
    # Only the operands of a relayout have slices of their own; otherwise the slices follow from the design.
    own_slices = {} if operand.held is None else holders(design, operand)
    node["coordinates_"] = {
        "coordInfo": {dim: _coordinate(design, operand, dim) for dim in operand.dim_order},
        "coreIdToWkSlice_": {
            str(core): {dim: slices[dim] for dim in operand.listed} for core, slices in own_slices.items()
        },
    }
    return node


def _indirection(design: model.Design, index: int) -> Json:
    """Return the JSON of an operand of an indirect access: the positions, or the table with pages of one row."""
    op = DEVICE_OPS.get(design.opcode)
    direct = {"indirectAllocType_": "no_indirection"}
    if op is None or op.index is None or index not in op.indirect:
        return direct
    other = op.table if index == op.index else op.index
    assert other is not None
    if other >= len(design.operands):
        return direct
    related = {"relatedIndirectAccessAlloc_": _node_name(design, other)}
    if index == op.index:
        return {"indirectAllocType_": "index_tensor", **related, "indexTensorType_": "index"}
    operand, rows = design.operands[index], reduced_dims(design)
    page = [
        -1 if operand.scale[dim] != 1 else 1 if dim in rows else design.sizes[dim]
        for dim in operand.dim_order
    ]
    return {"maxDimSizes_": page, "indirectAllocType_": "value_tensor", **related}


def _node_name(design: model.Design, index: int) -> str:
    return f"allocate-Tensor{index}_{design.operands[index].memory}"


def _per_core(functions: list[str], cores: int, data: Json) -> Json:
    return {
        "dim_prop_func": [{function: {}} for function in functions],
        "dim_prop_attr": [_fold("core", cores), _fold("corelet", 1), _fold("time", 1)],
        "data_": data,
    }


def _coordinate(design: model.Design, operand: model.Operand, dim: str) -> Json:
    """Return the JSON of the coordinates of a core along one dim, as folds: the core's slice, sticks, then elements."""
    window, begin, sticks = operand.windows.get(dim), 0, []
    # A reduced stick stands for all its elements at one coordinate, so the fold has as many elements as a stick.
    is_sparse, lanes = operand.scale[dim] == -2, operand.per_stick(dim)
    if window is not None:
        # Positions with padding. Slices overlap: they start one share apart and are longer. Halos are without padding
        # and begin before their slice, also at the first.
        share, splits = design.shares[dim], design.slices[dim]
        count = window.reached(share)
        begin, distance = 0 if window.kernel else -window.before, share * window.stride
    else:
        count = splits = 1
        if operand.scale[dim] == 1:
            count, splits = operand_shares(design, operand)[dim], operand_splits(design, operand)[dim]
        elif is_sparse:
            count = lanes
        distance = count
        if dim == operand.stick_dim or dim in operand.other_elements:
            sticks, count = [("elem_arr_1", -(-count // lanes), lanes)], lanes
    folds = [("core_fold", splits, distance), ("corelet_fold", 1, 0), ("row_fold", 1, 0), *sticks]
    folds.append(("elem_arr_0", count, 0 if is_sparse else 1))
    return {
        "spatial": 3,
        "temporal": 0,
        "elemArr": 1 + len(sticks),
        "padding": _padding_type(design) if window is not None and window.kernel else "nopad",
        "folds": {
            "dim_prop_func": [_affine(alpha, 0 if k else begin) for k, (*_, alpha) in enumerate(folds)],
            "dim_prop_attr": [_fold(label, factor) for label, factor, _ in folds],
        },
    }


def _labeled(design: model.Design, index: int, layouts: Json) -> Json:
    operand = design.operands[index]
    # An operand in HBM streams through LX, so it is present in both memories.
    memories = ("hbm", "lx") if operand.memory == "hbm" else ("lx",)
    if index == _index_operand(design):
        memories = (operand.memory,)  # the positions are read where they are
    padding = {}
    if design.operands[0].windows:
        padding = {"isPadded": int(index < len(design.operands) - 1), "isZeroPadded": 0}
    return {
        "ldsIdx_": index,
        "dsName_": f"Tensor{index}",
        "dsType_": operand.role,
        "scale_": [operand.scale[dim] for dim in layouts[operand.role]["layoutDimOrder_"]],
        "wordLength": find_format(operand.data_format).bytes,
        "dataFormat_": operand.data_format,
        "memOrg_": {memory: {"isPresent": 1, **padding} for memory in memories},
    }


def _index_operand(design: model.Design) -> int | None:
    op = DEVICE_OPS.get(design.opcode)
    return op and op.index


def _compute(design: model.Design) -> Json:
    labels = [f"Tensor{i}-idx{i}" for i in range(len(design.operands))]
    index, op = _index_operand(design), DEVICE_OPS.get(design.opcode)
    # A reduction adds to its output, so the output is also an input; a matmul has its own accumulator.
    accumulates = op is not None and op.kind in (Kind.REDUCE_STICK, Kind.REDUCE_OTHER)
    inputs = labels if accumulates else labels[:-1]
    indices = {} if index is None else {INDICES: labels[index : index + 1]}
    return {
        "exUnit": design.unit,
        "opFuncName": _function(design),
        "attributes_": {"dataFormat_": design.data_format, "fidelity_": "regular"},
        "location": "Inner",
        "inputLabeledDs": [label for position, label in enumerate(inputs) if position != index],
        "outputLabeledDs": labels[-1:],
        **indices,
    }


def _debug_to_json(debug: model.DebugHandle | None) -> Json | None:
    if debug is None:
        return None
    start = {"start_line": debug.line, "start_col": debug.column}
    return {
        "id": debug.id,
        "source": debug.file and {"file": debug.file, **start, "end_line": None, "end_col": None},
        "aten_op": debug.aten_op,
        "ir_chain": list(debug.ir_chain),
        "fused_from": [],
        "transform_history": [
            dict(zip(("kind", "pass_name", "reason"), step, strict=True)) for step in debug.transforms
        ],
    }
