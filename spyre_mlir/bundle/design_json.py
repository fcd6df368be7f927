"""A design as the JSON of `sdsc_<i>.json`, and back.

The format says many things more than once (tensor names, folds, core lists). Writing derives all of them
from the ``Design``; reading takes each fact from one place and then requires that the rest of the file is
exactly what writing that design gives, so a file with a contradiction in it is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from spyre_mlir.bundle.canonical_design import REPEATED, CanonicalDesign
from spyre_mlir.bundle.core_slices import holders, operand_shares, operand_splits, reduced_dims
from spyre_mlir.bundle.json_fields import Field, only_item, require_same
from spyre_mlir.bundle.model import Constant, DebugHandle, Design, HeldSlices, Operand
from spyre_mlir.errors import CompileError
from spyre_mlir.target.formats import find_format
from spyre_mlir.target.ops import DEVICE_OPS
from spyre_mlir.target.target import Target

Json = dict[str, Any]


def to_json(design: Design) -> Json:
    """The JSON object of a design. Operands of one role must share their layout."""
    cores = range(design.cores)
    return {
        f"{design.index}_{_function(design)}": {
            "coreFoldProp_": _fold("core", design.cores),
            "coreletFoldProp_": _fold("corelet", design.target.emitted_corelets),
            "numCoresUsed_": design.cores,
            "coreIdToDsc_": {str(core): 0 for core in cores},
            "numWkSlicesPerDim_": dict(design.slices),
            "coreIdToWkSlice_": {str(core): dict(design.core_slices[core]) for core in cores},
            "coreIdToDscSchedule": {str(core): [[-1, 0, 0, 0]] for core in cores},
            "debug_handle_": _debug_to_json(design.debug),
            "dscs_": [{_function(design): _configuration(design)}],
        }
    }


@dataclass(frozen=True)
class ReadDesign:
    """A design as a file has it: ``names`` of its tensors in order, and ``ignored`` fields that change nothing."""

    design: Design
    names: tuple[str, ...]
    ignored: tuple[str, ...] = ()


def from_json(value: Json, filename: str, target: Target) -> Design:
    """The design of a JSON object, for a target; anything missing or odd is a CompileError with file and field."""
    return read_design(value, filename, target).design


def read_design(value: Json, filename: str, target: Target) -> ReadDesign:
    """The design of a JSON object as any writer of the format has it; a CompileError as of ``from_json``."""
    # A file as ``to_json`` writes it needs no more than a comparison.
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


def _function(design: Design) -> str:
    """The ``opFuncName`` of a design."""
    op = DEVICE_OPS.get(design.opcode)
    return (op and op.function) or design.opcode


def _opcode(function: str, dsc: Field) -> str:
    """The operation that a function is: with an index tensor it is another one than without."""
    if _INDICES not in only_item(dsc["computeOp_"]):
        return function
    # An unknown function stays as it is, and the validator reports it.
    return next((op.name for op in DEVICE_OPS.values() if op.function == function), function)


# Writing

_INDICES = "indirectAccessIndexLabeledDs"


def _fold(label: str, factor: int) -> Json:
    return {"factor_": factor, "label_": label}


def _dims(sizes: dict[str, int]) -> Json:
    return {f"{dim}_": size for dim, size in sizes.items()}


def _configuration(design: Design) -> Json:
    # The last slice may be shorter: ss_ is the full share, el_ that of the last core.
    last = {dim: size - (design.slices[dim] - 1) * design.shares[dim] for dim, size in design.sizes.items()}
    stage = {"name_": "core", "ss_": _dims(design.shares), "el_": _dims(last)}
    return {
        "numCoresUsed_": design.cores,
        "numCoreletsUsed_": design.target.emitted_corelets,
        "coreIdsUsed_": list(range(design.cores)),
        "N_": {"name_": "n", **_dims(design.sizes), **_padding(design)},
        "coordinateMasking_": {dim: [list(mask)] for dim, mask in design.masks.items()},
        "maskingConstId_": design.mask_constant,
        "dataStageParam_": {"0": stage},
        "primaryDsInfo_": _layouts(design),
        "scheduleTree_": [_allocation(design, i) for i in range(len(design.operands))],
        "labeledDs_": [_labeled(design, i) for i in range(len(design.operands))],
        "constantInfo_": _constants_to_json(design),
        "computeOp_": [_compute(design)],
    }


def _padding(design: Design) -> Json:
    if not design.padding:
        return {}
    sizes = {dim: {"padBack_": pad, "totalSize_": design.sizes[dim]} for dim, pad in design.padding.items()}
    return {"paddingSizes_": sizes}


def _layouts(design: Design) -> Json:
    layouts: Json = {}
    for i, operand in enumerate(design.operands):
        layout = {
            "layoutDimOrder_": list(operand.dim_order),
            "stickDimOrder_": [*operand.beside, operand.stick_dim],
            "stickSize_": [*operand.beside.values(), operand.stick_elements],
        }
        if layouts.setdefault(operand.role, layout) != layout:
            raise CompileError(
                f"Tensor{i} of {design.opcode} has the role {operand.role} but not the layout of the other "
                f"tensor with that role; every role has one layout, so give it another role.",
                design.filename,
            )
    return layouts


def _allocation(design: Design, index: int) -> Json:
    operand = design.operands[index]
    node: Json = {
        "nodeType_": "allocate",
        "name_": _node_name(design, index),
        "ldsIdx_": index,
        "component_": operand.memory,
        "layoutDimOrder_": list(operand.dim_order),
        "maxDimSizes_": [-1] * len(operand.dim_order),
        **_indirection(design, index),
    }
    # HBM addresses are known at run time only, so the file has symbol ids, which are negative, in their place.
    if operand.memory == "hbm":
        node["isStartAddrSymbolic_"] = int(min(operand.start, default=-1) < 0)
    node["startAddressCoreCorelet_"] = _per_core(
        ["Map", "Const", "Const"],
        design.cores,
        {f"[{core}, 0, 0]": str(start) for core, start in enumerate(operand.start)},
    )
    if operand.gap:
        # In HBM all cores address one tensor, so its gap stands once, for core -1.
        keys = ["-1"] if operand.memory == "hbm" else [str(core) for core in range(design.cores)]
        node["backGapCore_"] = {dim: dict.fromkeys(keys, str(gap)) for dim, gap in operand.gap.items()}
    coordinates = {dim: _coordinate(design, operand, dim) for dim in operand.dim_order}
    node["coordinates_"] = {"coordInfo": coordinates}
    # Only a relayout has operands with different slices; elsewhere they follow from the design.
    if any(other.held for other in design.operands):
        node["coordinates_"]["coreIdToWkSlice_"] = {
            str(core): {dim: slices[dim] for dim in _varying(operand)}
            for core, slices in holders(design, operand).items()
        }
    return node


def _indirection(design: Design, index: int) -> Json:
    """JSON members of an operand of an indirect access: the positions, or the table with pages of one row."""
    op = DEVICE_OPS.get(design.opcode)
    if op is None or op.index is None or index not in op.indirect:
        return {}
    other = op.table if index == op.index else op.index
    assert other is not None
    if other >= len(design.operands):
        return {}
    related = {"relatedIndirectAccessAlloc_": _node_name(design, other)}
    if index == op.index:
        return {"indirectAllocType_": "index_tensor", **related, "indexTensorType_": "index"}
    operand, rows = design.operands[index], reduced_dims(design)
    page = [
        -1 if operand.scale[dim] != 1 else 1 if dim in rows else design.sizes[dim]
        for dim in operand.dim_order
    ]
    return {"maxDimSizes_": page, "indirectAllocType_": "value_tensor", **related}


def _node_name(design: Design, index: int) -> str:
    return f"allocate-Tensor{index}_{design.operands[index].memory}"


def _varying(operand: Operand) -> list[str]:
    return [dim for dim in operand.dim_order if operand.scale[dim] == 1]


def _per_core(functions: list[str], cores: int, data: Json) -> Json:
    return {
        "dim_prop_func": [{function: {}} for function in functions],
        "dim_prop_attr": [_fold("core", cores), _fold("corelet", 1), _fold("time", 1)],
        "data_": data,
    }


def _coordinate(design: Design, operand: Operand, dim: str) -> Json:
    """JSON of the coordinates of a core along one dim, as folds: the core's slice, then sticks, then elements."""
    present, stick = operand.scale[dim] == 1, dim == operand.stick_dim or dim in operand.beside
    share, lanes = operand_shares(design, operand)[dim], operand.per_stick(dim)
    splits = operand_splits(design, operand)[dim]
    folds = [("core_fold", splits if present else 1, share if present else 0)]
    folds += [("corelet_fold", 1, 0), ("row_fold", 1, 0)]
    if stick:
        folds.append(("elem_arr_1", -(-share // lanes) if present else 1, lanes))
    folds.append(("elem_arr_0", (lanes if stick else share) if present else 1, 1))
    return {
        "spatial": 3,
        "temporal": 0,
        "elemArr": 2 if stick else 1,
        "padding": "nopad",
        "folds": {
            "dim_prop_func": [{"Affine": {"alpha_": alpha, "beta_": 0}} for _, _, alpha in folds],
            "dim_prop_attr": [_fold(label, factor) for label, factor, _ in folds],
        },
    }


def _labeled(design: Design, index: int) -> Json:
    operand = design.operands[index]
    # An operand in HBM streams through LX, so it is present in both.
    memories = ("hbm", "lx") if operand.memory == "hbm" else ("lx",)
    if index == _index_operand(design):
        memories = (operand.memory,)  # the positions are read where they are
    return {
        "ldsIdx_": index,
        "dsName_": f"Tensor{index}",
        "dsType_": operand.role,
        "scale_": [operand.scale[dim] for dim in operand.dim_order],
        "wordLength": find_format(operand.data_format).bytes,
        "dataFormat_": operand.data_format,
        "memOrg_": {memory: {"isPresent": 1} for memory in memories},
    }


def _constants_to_json(design: Design) -> Json | str:
    if not design.constants:
        # The format writes no constants as a string, not as an object.
        return "{}"
    return {
        str(i): {
            "name_": constant.name,
            "dataFormat_": constant.data_format,
            "data_": _per_core(["Const", "Const", "Map"], design.cores, {"[0, 0, 0]": [constant.bits]}),
        }
        for i, constant in enumerate(design.constants)
    }


def _index_operand(design: Design) -> int | None:
    op = DEVICE_OPS.get(design.opcode)
    return op and op.index


def _compute(design: Design) -> Json:
    labels = [f"Tensor{i}-idx{i}" for i in range(len(design.operands))]
    index = _index_operand(design)
    indices = {} if index is None else {_INDICES: labels[index : index + 1]}
    return {
        "exUnit": design.unit,
        "opFuncName": _function(design),
        "attributes_": {"dataFormat_": design.data_format, "fidelity_": "regular"},
        "location": "Inner",
        "inputLabeledDs": [label for position, label in enumerate(labels[:-1]) if position != index],
        "outputLabeledDs": labels[-1:],
        **indices,
    }


def _debug_to_json(debug: DebugHandle | None) -> Json | None:
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


# Reading


def _read_design(index: int, opcode: str, body: Field, dsc: Field) -> Design:
    compute = only_item(dsc["computeOp_"])
    padding, sizes = _read_sizes(dsc["N_"])
    _require_declared(padding, sizes, dsc["N_"])
    shares = dsc["dataStageParam_"]["0"]["ss_"]
    _require_declared(sizes, _read_sizes(shares)[1], shares)
    return Design(
        index=index,
        opcode=opcode,
        unit=compute["exUnit"].text(),
        data_format=compute["attributes_"]["dataFormat_"].text(),
        sizes=sizes,
        slices=_over_dims(body["numWkSlicesPerDim_"], sizes),
        shares=_read_sizes(shares)[1],
        core_slices=_in_order(body["coreIdToWkSlice_"], sizes),
        operands=_read_operands(dsc, sizes),
        padding=padding,
        masks={dim: _read_mask(mask) for dim, mask in dsc["coordinateMasking_"].members()},
        mask_constant=dsc["maskingConstId_"].integer(),
        constants=_read_constants(dsc["constantInfo_"]),
        debug=_read_debug(body["debug_handle_"]),
    )


def _read_sizes(field: Field) -> tuple[dict[str, int], dict[str, int]]:
    """Padding and sizes by dim of one set of dims."""
    padding, sizes = {}, {}
    for key, member in field.members():
        if key == "paddingSizes_":
            padding = {dim: pad["padBack_"].integer() for dim, pad in member.members()}
        elif key != "name_":
            sizes[key.removesuffix("_")] = member.integer()
    return padding, sizes


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
    operands = [_read_operand(node, label, layouts) for node, label in zip(nodes, labeled, strict=True)]
    # The output has the slices of the design; those of an input are its own.
    inputs = zip(operands[:-1], nodes, strict=False)
    return (*(replace(operand, held=_read_held(node, operand)) for operand, node in inputs), *operands[-1:])


def _read_held(node: Field, operand: Operand) -> HeldSlices | None:
    if "coordinates_" not in node or "coreIdToWkSlice_" not in node["coordinates_"]:
        return None
    coordinates = node["coordinates_"]
    slices = {dim: _read_core_fold(coordinates["coordInfo"][dim]) for dim in _varying(operand)}
    by_core = {core: member.integers_by_key() for core, member in coordinates["coreIdToWkSlice_"].members()}
    return HeldSlices(slices, tuple(by_core.get(str(core)) for core in range(len(operand.start))))


def _read_core_fold(coordinate: Field) -> int:
    """The slices of a dim."""
    folds = coordinate["folds"]["dim_prop_attr"]
    if not folds.items():
        folds.fail("must begin with the fold over the cores")
    # The first fold is the one over the cores, as ``_coordinate`` writes it.
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
    order, scale = layout["layoutDimOrder_"].texts(), label["scale_"].integers()
    if len(scale) != len(order):
        label["scale_"].fail(f"must have one entry for each of the {len(order)} dims of its layout")
    return Operand(
        role=role,
        data_format=label["dataFormat_"].text(),
        memory=node["component_"].text(),
        dim_order=order,
        stick_dim=dims[-1],
        stick_elements=counts[-1],
        scale=dict(zip(order, scale, strict=True)),
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
            bits=only_item(constant["data_"]["data_"]["[0, 0, 0]"]).integer(),
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
