# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Canonicalization of the JSON of a design from any writer to the form that ``design_json.py`` reads.

The SuperDSC schema lets a writer omit much of a design, state facts in several forms, and add fields without an
effect. Here defaults are filled in, the forms are reduced to one, and fields without an effect are dropped; ``ignored``
lists the dropped fields that had a value. A field that would change the meaning of a design is an error.
"""

from __future__ import annotations

import copy
import re
from itertools import product
from math import prod
from typing import Any

from spyre_mlir.bundle.json_fields import Field, only_item, require_same
from spyre_mlir.target.formats import FORMATS
from spyre_mlir.target.ops import DEVICE_OPS, DeviceOp, Kind
from spyre_mlir.target.target import Target

Json = dict[str, Any]

#: Members that follow from other members, so a file may omit them.
REPEATED = frozenset(
    "coordinates_ coordInfo maxDimSizes_ layoutDimOrder_ wordLength location fidelity_ numCoreletsUsed_".split()
)

_SYMBOLS = ("dimToSymbolMappingOpcodeCorrection_", "inputSymbolsAndTags_", "symbolDefinitions_")

#: How a core uses its own units, or a size known only at run time, for which the simulator uses the largest value.
_SPLITS = ("symbolicDimInfo_", "maxSymbolicVolume_", "coreletSplit_", "rowSplit_", "peSfpSplit_")

#: The first symbol for HBM operands without addresses; other writers number their symbols from -1 down.
_FIRST_FREE_SYMBOL = -(1 << 40)

_INDICES = "indirectAccessIndexLabeledDs"

_EMPTY = ("", "{}", None, 0, False)


def _is_empty(value: Any) -> bool:
    """Return whether a JSON value is empty, or a container of empty values only."""
    if isinstance(value, dict | list):
        return all(map(_is_empty, value.values() if isinstance(value, dict) else value))
    return any(value is empty or value == empty for empty in _EMPTY)


def _require_empty(parent: Field, reason: str, *keys: str) -> None:
    """Remove members that are empty; a member that is not empty is an error with the reason."""
    for key in keys:
        if key in parent:
            if not _is_empty(parent.value[key]):
                parent[key].fail(reason)
            del parent.value[key]


def _default(field: Field, key: str, value: Any) -> None:
    """Add a member to an object that lacks it."""
    if key not in field:
        field.value[key] = value


def integer(field: Field) -> int:
    """Return an integer; accept one written as a string or as a number with a zero fraction."""
    if isinstance(field.value, str):
        return field.integer_text()
    if isinstance(field.value, float) and field.value.is_integer():
        return int(field.value)
    return field.integer()


def size_in_memory(pad: Field) -> int:
    """Return the positions in memory of a dim that windows slide along, from its member of ``paddingSizes_``."""
    total = pad["totalSize_"].integer()
    # Designs of this package before "SuperDSC Semantics" have unneeded positions without their sum, and a total without
    # padding.
    if "unneededPadBack_" in pad and "unneededPad_" not in pad:
        return total
    ends = ("padFront_", "padBack_", "unneededPadFront_", "unneededPadBack_")
    return total - sum(pad[name].integer() for name in ends if name in pad)


def _operations_of(function: str) -> list[DeviceOp]:
    """Return the device operations that share one name in the SuperDSC specification."""
    return [op for op in DEVICE_OPS.values() if (op.function or op.name) == function]


class CanonicalDesign:
    """The JSON of one design during canonicalization.

    ``names`` are the names of the tensors, in the order of the operands; ``ignored`` are the paths of the removed
    members that had a value. ``padding`` by dim was stored in designs before ``manifest.json`` had it.
    """

    def __init__(self, value: Any, filename: str, target: Target) -> None:
        self.root = Field(value, filename)
        self.target = target
        self.names: tuple[str, ...] = ()
        self.ignored: list[str] = []
        self.padding: dict[str, int] = {}
        try:
            self.root.value = copy.deepcopy(value)
        except RecursionError:
            self.root.fail("nests too deeply")
        key, body = self.root.only_member()
        _, self.dsc = only_item(body["dscs_"]).only_member()
        self.compute = only_item(self.dsc["computeOp_"])
        self.function = function = self.compute["opFuncName"].text()
        body.value["dscs_"] = [{function: self.dsc.value}]
        match = re.fullmatch(r"(\d{1,9})_.+", key) or re.search(r"sdsc_(\d{1,9})\.json$", filename)
        self.index = int(match[1] if match else "0")
        self.root.value = {f"{match[1] if match else '0'}_{function}": body.value}
        self.body = self.root.only_member()[1]
        self.dsc = only_item(self.body["dscs_"]).only_member()[1]
        body = self.body
        _require_empty(body, "holds data operations, which are not simulated", "datadscs_")
        self._drop(body, *_SYMBOLS)
        for key in ("sdscFoldProps_", "sdscFolds_"):
            if key in body:
                folds = body[key]["dim_prop_attr"] if key == "sdscFolds_" else body[key]
                for fold in folds.items():
                    if fold["factor_"].integer() != 1:
                        fold["factor_"].fail("must be 1: a design runs once per execute")
                del body.value[key]
        _default(body, "debug_handle_", None)
        debug = body["debug_handle_"]
        if debug.value is not None:
            self._drop(debug, "fused_from")
            debug.value["fused_from"] = []
            if debug["source"].value is not None and "file" in debug["source"]:
                debug["source"].value.update(end_line=None, end_col=None)
            for step in debug["transform_history"].items():
                if step["reason"].value is None:
                    step.value["reason"] = ""
        if body["coreletFoldProp_"]["factor_"].integer() in (1, 2):
            body["coreletFoldProp_"].value["factor_"] = self.target.emitted_corelets
        self._convert_configuration()
        self.cores = len(self.dsc["coreIdsUsed_"].items())
        self.labeled = {entry["ldsIdx_"].integer(): entry for entry in self.dsc["labeledDs_"].items()}
        if len(self.labeled) != len(self.dsc["labeledDs_"].items()):
            self.dsc["labeledDs_"].fail("has two tensors of one ldsIdx_")
        if not self.labeled:
            self.dsc["labeledDs_"].fail("must have a tensor")
        self._convert_tensors()
        self._convert_division()
        if not any(op.kind is Kind.RELAYOUT for op in _operations_of(function)):
            for node in self.dsc["scheduleTree_"].items():
                self._drop_slices(node)

    # -- the part around the tensors -------------------------------------------------------------------

    def _drop(self, parent: Field, *keys: str) -> None:
        """Remove members that do not affect what a design computes; list those that are not empty."""
        for key in keys:
            if key in parent:
                if not _is_empty(parent.value[key]):
                    self.ignored.append(parent[key].path)
                del parent.value[key]

    def _convert_configuration(self) -> None:
        """Bring the fields of a design other than its tensors into canonical form, and note ignored fields."""
        dsc, compute = self.dsc, self.compute
        self._drop(dsc, "pdsRelation_", "dimToSymbolMapping_")
        _require_empty(compute, "names intermediate tensors, which are not simulated", "interimLabeledDs")
        if compute.value.get(_INDICES) == []:
            del compute.value[_INDICES]
        _default(compute, "attributes_", {})
        _default(compute, "location", "Inner")
        attributes = compute["attributes_"]
        _default(attributes, "fidelity_", "regular")
        if attributes["fidelity_"].value == "fast":
            self.ignored.append(attributes["fidelity_"].path)
            attributes.value["fidelity_"] = "regular"
        if dsc["coreIdsUsed_"].items() and dsc.value.get("numCoreletsUsed_") in (1, 2):
            dsc.value["numCoreletsUsed_"] = self.target.emitted_corelets
        _default(dsc, "coordinateMasking_", {})
        _default(dsc, "maskingConstId_", 0 if dsc.value["coordinateMasking_"] else -1)
        _default(dsc, "constantInfo_", "{}")
        if _is_empty(dsc.value["constantInfo_"]):
            dsc.value["constantInfo_"] = "{}"
        else:
            constants = {}
            for number, (_, constant) in enumerate(dsc["constantInfo_"].members()):
                members = [member for _, member in constant["data_"]["data_"].members()]
                values = {
                    integer(bits)
                    for member in members
                    for bits in (member.items() if isinstance(member.value, list) else [member])
                }
                if len(values) != 1:
                    constant["data_"]["data_"].fail("must hold the one value of the constant on all cores")
                # The cores and corelets of a constant state only that the constant exists.
                data = {"data_": {"[0, 0, 0]": [values.pop()]}}
                constants[str(number)] = {**constant.value, "data_": data}
            dsc.value["constantInfo_"] = constants
        sizes = self._convert_sizes(dsc["N_"], is_total=True)
        _default(dsc["N_"], "name_", "n")
        if "paddingSizes_" in dsc["N_"]:
            # Move the padding out of a design, where it was stored before `manifest.json` had it.
            field = dsc["N_"]
            paddings = field["paddingSizes_"]
            del field.value["paddingSizes_"]
            windows = self._windows(paddings, sizes)
            if windows:
                field.value["paddingSizes_"] = windows
            for dim, pad in paddings.members() if not windows else ():
                reason = "moves the window of the dim, which is not simulated"
                _require_empty(
                    pad, reason, "padFront_", "unneededPad_", "unneededPadFront_", "unneededPadBack_"
                )
                for key in ("stride_", "dilation_"):
                    if pad.value.get(key) == 1:
                        del pad.value[key]
                # A window that adds nothing to its dim may have any size.
                if pad.value.get("padBack_") or pad.value.keys() - {"padBack_", "totalSize_", "windowDim_"}:
                    if dim not in sizes:
                        pad.fail("is the padding of a dim that N_ does not declare")
                    if pad.value.get("totalSize_") == "N/A":
                        del pad.value["totalSize_"]
                    self.padding[dim] = pad["padBack_"].integer()
                    same = {"padBack_": self.padding[dim], "totalSize_": sizes[dim]}
                    require_same(pad, same, ("totalSize_",))

    def _windows(self, paddings: Field, sizes: dict[str, int]) -> Json:
        """Return the windows of an operation that slides them, in the form without padding after the image."""
        if not any(op.kind in (Kind.CONVOLUTION, Kind.POOLING) for op in _operations_of(self.function)):
            return {}
        windows: Json = {}
        for dim, pad in paddings.members():
            kernel = pad["windowDim_"].text().removesuffix("_")
            # A window of one position, which other writers leave out, has no effect.
            if kernel in sizes:
                windows[dim.removesuffix("_")] = {
                    "padFront_": pad["padFront_"].integer(),
                    "totalSize_": pad["padFront_"].integer() + size_in_memory(pad),
                    "stride_": pad.optional("stride_", Field.integer, 1),
                    "dilation_": pad.optional("dilation_", Field.integer, 1),
                    "windowDim_": kernel,
                }
        return windows

    def _drop_slices(self, node: Field) -> None:
        """Remove the slices of a tensor if they equal the slices of the design; only a shuffle may differ."""
        if "coordinates_" not in node or "coreIdToWkSlice_" not in node["coordinates_"]:
            return
        slices = node["coordinates_"]["coreIdToWkSlice_"]
        for core, member in slices.members():
            expected = self.body["coreIdToWkSlice_"].value.get(core, {})
            for dim, index in member.members():
                if index.integer() != expected.get(dim):
                    index.fail("is not the slice of the design, which only a shuffle may leave")
        del node["coordinates_"].value["coreIdToWkSlice_"]

    # -- tensors, put in the order of the operands and renamed accordingly -------------------------------

    def _convert_tensors(self) -> None:
        """Order, name and complete the tensors, their layouts and their allocations."""
        dsc = self.dsc
        by_name = {entry["dsName_"].text(): index for index, entry in self.labeled.items()}
        nodes: dict[int, Field] = {}
        for position, node in enumerate(dsc["scheduleTree_"].items()):
            name = re.sub(r"^allocate-|_(hbm|lx)$", "", node["name_"].text())
            index = node["ldsIdx_"].integer() if "ldsIdx_" in node else by_name.get(name, position)
            if index not in self.labeled:
                node.fail(f"allocates the tensor {index}, which labeledDs_ does not have")
            if index in nodes:
                node.fail("is a second allocation of its tensor, which has one place in one memory")
            nodes[index] = node
        order = self._order(by_name) or sorted(self.labeled)
        for index in order:
            if index not in nodes:
                dsc["scheduleTree_"].fail(f"has no allocation of {self.labeled[index]['dsName_'].text()!r}")
        self.names = tuple(self.labeled[index]["dsName_"].text() for index in order)
        self.ignored += [self.labeled[index].path for index in sorted(self.labeled.keys() - set(order))]
        _default(dsc, "primaryDsInfo_", {})
        layouts, used = dsc["primaryDsInfo_"], {}
        for index in order:
            role = self.labeled[index]["dsType_"].text()
            _default(layouts, role, {})
            self._convert_layout(layouts[role], nodes[index], self.labeled[index])
            used.setdefault(role, layouts[role].value)
        dsc.value["primaryDsInfo_"] = used
        labels, allocations, names = [], [], {}
        for position, index in enumerate(order):
            label, node = self.labeled[index], nodes[index]
            dims = self.dsc["primaryDsInfo_"][label["dsType_"].text()]["layoutDimOrder_"].texts()
            _default(label, "scale_", [1] * len(dims))
            label.value["scale_"] = [integer(scale) for scale in label["scale_"].items()]
            present = [memory for memory, slot in label["memOrg_"].members() if slot["isPresent"].integer()]
            for _, slot in label["memOrg_"].members():
                _require_empty(
                    slot, "must be 0: tensors begin at the address of their allocation", "dsOffset"
                )
            if "component_" not in node:
                node.value["component_"] = "lx" if present == ["lx"] else "hbm"
            component = node["component_"].text()
            if component not in present and component in label["memOrg_"]:
                label["memOrg_"].fail(f"must have the tensor in {component}, where it is allocated")
            label.value["memOrg_"] = {component: {"isPresent": 1}}
            self._convert_node(node, position)
            names[node.value.get("name_")] = f"allocate-Tensor{position}_{node.value['component_']}"
            labels.append({**label.value, "ldsIdx_": position, "dsName_": f"Tensor{position}"})
            allocations.append({**node.value, "ldsIdx_": position, "name_": names[node.value.get("name_")]})
        for node in allocations:
            if "relatedIndirectAccessAlloc_" in node:
                related = node["relatedIndirectAccessAlloc_"]
                node["relatedIndirectAccessAlloc_"] = names.get(related, related)
        dsc.value.update(labeledDs_=labels, scheduleTree_=allocations)
        # The first operand with data: an index tensor holds positions.
        first = min(len(self.compute.value.get(_INDICES, ())), len(order) - 1)
        _default(self.compute["attributes_"], "dataFormat_", self.labeled[order[first]]["dataFormat_"].value)

    def _order(self, by_name: dict[str, int]) -> list[int] | None:
        """Return the tensors in the order of the operands; None for an unknown name, which the reader reports."""
        labels = {f"{entry['dsName_'].text()}-idx{index}": index for index, entry in self.labeled.items()}
        known = {**by_name, **labels}
        inputs, outputs, indices = (
            [known.get(text) for text in (self.compute[key].texts() if key in self.compute else ())]
            for key in ("inputLabeledDs", "outputLabeledDs", _INDICES)
        )
        # The output of a reduction is listed among its inputs, because a reduction adds to its output.
        inputs = [index for index in inputs if index not in outputs]
        operations = _operations_of(self.compute["opFuncName"].text())
        position = next((op.index for op in operations if op.index is not None), 0)
        order = [*inputs[:position], *indices, *inputs[position:], *outputs]
        if None in order or not order:
            return None
        labels = [f"Tensor{position}-idx{position}" for position in range(len(order))]
        ends = len(order) - len(outputs)
        index_labels = labels[position : position + len(indices)]
        self.compute.value["inputLabeledDs"] = [label for label in labels[:ends] if label not in index_labels]
        self.compute.value["outputLabeledDs"] = labels[ends:]
        if indices:
            self.compute.value[_INDICES] = index_labels
        return [index for index in order if index is not None]

    def _convert_layout(self, layout: Field, node: Field, label: Field) -> None:
        if "stickRepl_" in layout:
            if any(count != 1 for count in layout["stickRepl_"].integers()):
                layout["stickRepl_"].fail("must be 1: elements that a stick repeats are not simulated")
            del layout.value["stickRepl_"]
        if "layoutDimOrder_" not in layout:
            layout.value["layoutDimOrder_"] = list(node["layoutDimOrder_"].texts())
        if "stickDimOrder_" not in layout:
            dims = node["coordinates_"]["coordInfo"].members()
            sticks = [dim for dim, info in dims if info["elemArr"].integer() > 1]
            layout.value["stickDimOrder_"] = sticks
        if "stickSize_" not in layout:
            form = FORMATS.get(label["dataFormat_"].text())
            if form is None or len(layout["stickDimOrder_"].texts()) != 1:
                layout.fail("has no stickSize_, and does not follow from the format of its tensors")
            layout.value["stickSize_"] = [form.stick_elements(self.target.stick_bytes)]

    def _convert_node(self, node: Field, position: int) -> None:
        """Bring the allocation of a tensor into canonical form: one start address or symbol per core."""
        self._drop(node, "prev_")
        windows = self.dsc["N_"].value.get("paddingSizes_", {}) if position == 0 else {}
        if windows:
            # The windows of N_ determine the padding and the coordinates of their dims.
            node.value.pop("padding_", None)
            for dim in windows if "coordinates_" in node and "coordInfo" in node["coordinates_"] else ():
                node["coordinates_"]["coordInfo"].value.pop(dim, None)
        _require_empty(node, "is padding inside of the tensor, which is not simulated", "padding_")
        _require_empty(node, "must be 0: the cores hold slices of one tensor", "nonUnifiedAllocInHBM_")
        if node.value.get("indirectAllocType_") == "no_indirection":
            self._drop(node, "relatedIndirectAccessAlloc_", "indexTensorType_")
            del node.value["indirectAllocType_"]
        in_hbm = node["component_"].text() == "hbm"
        starts = self._starts(node, position)
        node.value["startAddressCoreCorelet_"] = {
            "data_": {f"[{core}, 0, 0]": str(start) for core, start in enumerate(starts)}
        }
        if in_hbm:
            node.value["isStartAddrSymbolic_"] = int(min(starts, default=-1) < 0)
        else:
            _require_empty(node, "must be 0: LX addresses are numbers", "isStartAddrSymbolic_")
        gaps = node["backGapCore_"] if "backGapCore_" in node else Field({}, node.filename)
        for dim, per_core in list(gaps.members()):
            values = {integer(member) for _, member in per_core.members()}
            if values <= {0}:
                del gaps.value[dim]
            elif in_hbm and len(values) == 1:
                gaps.value[dim] = {"-1": str(values.pop())}
        if not gaps.value:
            node.value.pop("backGapCore_", None)
        if "coordinates_" in node and _is_empty(node.value["coordinates_"]):
            del node.value["coordinates_"]
        if "coordinates_" in node and "coordInfo" in node["coordinates_"]:
            self._convert_coordinates(node["coordinates_"], in_hbm)

    def _starts(self, node: Field, position: int) -> list[int]:
        """Return the start of a tensor on each core: an address in LX, or a symbol, which is negative, in HBM."""
        if "startAddressCoreCorelet_" not in node or "data_" not in node["startAddressCoreCorelet_"]:
            if node["component_"].text() != "hbm":
                node.fail("has no startAddressCoreCorelet_, so no address in LX")
            first = _FIRST_FREE_SYMBOL - (self.index << 20) - (position << 10)
            return [first - core for core in range(self.cores)]
        data = node["startAddressCoreCorelet_"]["data_"]
        by_core: dict[int, int] = {}
        for key, member in data.members():
            match = re.fullmatch(r"\[(\d{1,9})(?:, *\d{1,9}){0,2}\]", key)
            if match is None:
                data.fail(f"has the key {key!r}; expected '[core, corelet, time]'")
            address = integer(member)
            if by_core.setdefault(int(match[1]), address) != address:
                member.fail("differs from the address at the first corelet and time of its core")
        if list(by_core) == [0] and self.cores > 1:
            functions = node["startAddressCoreCorelet_"].value.get("dim_prop_func")
            if isinstance(functions, list) and functions and functions[0] == {"Const": {}}:
                return [by_core[0]] * self.cores
        # Sort numerically: some writers sort the cores as text.
        by_core = dict(sorted(by_core.items()))
        if list(by_core) != list(range(len(by_core))):
            data.fail("must list its cores from 0 on and without holes")
        symbolic = node.value.get("isStartAddrSymbolic_", min(by_core.values(), default=0) < 0)
        if node["component_"].text() == "hbm" and any(
            (start < 0) != bool(symbolic) for start in by_core.values()
        ):
            data.fail("must hold negative symbol ids if isStartAddrSymbolic_ is 1, otherwise addresses")
        return list(by_core.values())

    @staticmethod
    def _convert_coordinates(coordinates: Field, in_hbm: bool) -> None:
        if coordinates.value.get("coreIdToWkSlice_") == {}:
            del coordinates.value["coreIdToWkSlice_"]
        for _, info in coordinates["coordInfo"].members():
            folds = info["folds"]
            if "data_" in folds:
                del folds.value["data_"]
            functions = folds["dim_prop_func"].items()
            for function in functions:
                if "Affine" in function:
                    _default(function["Affine"], "beta_", 0)
            # A fold of one position, or of many positions at one coordinate, has no effect.
            for function, fold in zip(functions, folds["dim_prop_attr"].items(), strict=False):
                if "Affine" in function and (
                    fold["factor_"].value == 1 or function["Affine"]["alpha_"].value == 0
                ):
                    function["Affine"].value["alpha_"], fold.value["factor_"] = 0, 1
            # The first three folds, over cores, corelets and rows, have no effect in HBM: each core has an address.
            if in_hbm and len(functions) > 3 and len(folds["dim_prop_attr"].items()) > 3:
                folds.value["dim_prop_func"][:3] = [{"Affine": {"alpha_": 0, "beta_": 0}}] * 3
                labels = ("core_fold", "corelet_fold", "row_fold")
                folds.value["dim_prop_attr"][:3] = [{"factor_": 1, "label_": label} for label in labels]

    # -- sizes, shares and slices ------------------------------------------------------------------------

    def _convert_sizes(self, field: Field, *, is_total: bool) -> dict[str, int]:
        """Return the sizes by dim of one set of dims; dims without elements are not used."""
        self._drop(field, *_SPLITS)
        sizes: dict[str, int] = {}
        for key, member in list(field.members()):
            if key in ("name_", "paddingSizes_"):
                continue
            size = integer(member)
            field.value[key] = size
            if size < 1 and is_total:
                del field.value[key]
            else:
                sizes[key.removesuffix("_")] = size
        if not is_total:
            field.value.pop("name_", None)
            field.value.pop("paddingSizes_", None)
        return sizes

    def _convert_division(self) -> None:
        """Complete the shares of the cores, the slices and the slice of each core from each other."""
        body, dsc = self.body, self.dsc
        sizes = {
            key.removesuffix("_"): size
            for key, size in dsc["N_"].value.items()
            if key[:-1] and key not in ("name_", "paddingSizes_")
        }
        shares = self._convert_stages(sizes)
        slices = self._slices(sizes, shares)
        if not shares:
            # The elements in a stick of each stick dim, from the layout with the most.
            lanes: dict[str, int] = {}
            for _, layout in dsc["primaryDsInfo_"].members():
                sticks = zip(layout["stickDimOrder_"].texts(), layout["stickSize_"].integers(), strict=False)
                for dim, count in sticks:
                    lanes[dim] = max(lanes.get(dim, 1), count)
            for dim, size in sizes.items():
                unit = lanes.get(dim, 1)
                shares[dim] = -(-size // max(slices.get(dim, 1) * unit, 1)) * unit
            last = {dim: size - (slices.get(dim, 1) - 1) * shares[dim] for dim, size in sizes.items()}
            ss, el = ({f"{dim}_": count for dim, count in half.items()} for half in (shares, last))
            dsc.value["dataStageParam_"] = {"0": {"name_": "core", "ss_": ss, "el_": el}}
        if "coreIdToWkSlice_" not in body:
            body.value["coreIdToWkSlice_"] = self._core_slices(slices)
        core_slices = body["coreIdToWkSlice_"]
        if all(core.isdecimal() for core, _ in core_slices.members()):
            # Some writers sort the core numbers as text.
            order = sorted(core_slices.value, key=lambda core: (len(core), core))
            body.value["coreIdToWkSlice_"] = {core: core_slices.value[core] for core in order}
            core_slices = body["coreIdToWkSlice_"]
        for core, member in list(core_slices.members()):
            used = {dim: index for dim, index in member.integers_by_key().items() if dim in sizes or index}
            core_slices.value[core] = {**dict.fromkeys(sizes, 0), **used}

    def _convert_stages(self, sizes: dict[str, int]) -> dict[str, int]:
        """Return the sizes by dim of the share of a core; empty if the file does not state them."""
        dsc = self.dsc
        if "dataStageParam_" not in dsc or "0" not in dsc["dataStageParam_"]:
            return {}
        stages = dsc["dataStageParam_"]
        self._drop(stages, *(key for key, _ in list(stages.members()) if key != "0"))
        stage = stages["0"]
        _default(stage, "name_", "core")
        halves = {half: self._convert_sizes(stage[half], is_total=False) for half in ("ss_", "el_")}
        # A half that lacks a size has the size of the other half: the halves differ only for the last core.
        known = {**sizes, **halves["el_"], **halves["ss_"]}
        for half, parts in halves.items():
            used = {dim: size for dim, size in {**known, **parts}.items() if dim in sizes or size > 0}
            stage.value[half] = {f"{dim}_": size for dim, size in used.items()}
        return self._convert_sizes(stage["ss_"], is_total=False)

    def _slices(self, sizes: dict[str, int], shares: dict[str, int]) -> dict[str, int]:
        """Return the slices by dim: the used ones of the file, or else computed from the sizes and the shares."""
        body = self.body
        implied = {dim: -(-size // max(shares.get(dim, size), 1)) for dim, size in sizes.items()}
        slices = {}
        if "numWkSlicesPerDim_" in body:
            slices = body["numWkSlicesPerDim_"].integers_by_key()
            slices = {dim: count for dim, count in slices.items() if dim in sizes or count > 1}
        elif not shares and "coreIdToWkSlice_" in body:
            cores = [core.integers_by_key() for _, core in body["coreIdToWkSlice_"].members()]
            slices = {dim: 1 + max((core.get(dim, 0) for core in cores), default=0) for dim in sizes}
        elif not shares:
            body.fail("has none of numWkSlicesPerDim_, coreIdToWkSlice_ and dataStageParam_, so no division")
        body.value["numWkSlicesPerDim_"] = {**implied, **slices}
        return body.value["numWkSlicesPerDim_"]

    def _core_slices(self, slices: dict[str, int]) -> Json:
        """Return the slices of each core in torch-spyre order: contracted dims first, then the first other dim."""
        if prod(slices.values()) != self.cores:
            self.body.fail(
                f"has no coreIdToWkSlice_, and its slices are not one for each of its {self.cores} cores"
            )
        role = self.dsc["labeledDs_"].items()[-1]["dsType_"].text()
        output = self.dsc["primaryDsInfo_"][role]["layoutDimOrder_"].texts()
        order = sorted(slices, key=lambda dim: dim in output)
        indices = product(*(range(slices[dim]) for dim in reversed(order)))
        return {
            str(core): dict(zip(reversed(order), index, strict=True)) for core, index in enumerate(indices)
        }
