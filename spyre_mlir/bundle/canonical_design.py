# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Canonicalization of the JSON of a design from any writer to the form that ``design_json.py`` reads.

The SuperDSC schema lets a writer omit much of a design, state facts in several forms, and add fields without an
effect. Here defaults are filled in, the forms are reduced to one, and fields without an effect are dropped; ``ignored``
lists the dropped fields that had a value. A field that would change the meaning of a design is an error.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import field
from itertools import product
from math import prod
from typing import Any

from spyre_mlir.bundle.json_fields import Field, only_item, require_same
from spyre_mlir.records import dataclass
from spyre_mlir.target.formats import FORMATS
from spyre_mlir.target.ops import DEVICE_OPS, DeviceOp, Kind
from spyre_mlir.target.target import Target

_EMPTY = ("", "{}", None, 0, False)


@dataclass
class FieldFilter:
    """Remove members that have no effect; ``ignored`` are the paths of the removed members that had a value."""

    ignored: list[str] = field(default_factory=list)

    def drop(self, parent: Field, *keys: str) -> None:
        """Remove members that do not affect what a design computes; list those that are not empty."""
        for key in keys:
            if key in parent:
                if not is_empty(parent.value[key]):
                    self.ignored.append(parent[key].path)
                del parent.value[key]

    @staticmethod
    def require_empty(parent: Field, reason: str, *keys: str) -> None:
        """Remove members that are empty; a member that is not empty is an error with the reason."""
        for key in keys:
            if key in parent:
                if not is_empty(parent.value[key]):
                    parent[key].fail(reason)
                del parent.value[key]


def is_empty(value: Any) -> bool:
    """Return whether a JSON value is empty, or a container of empty values only."""
    if isinstance(value, dict):
        return all(is_empty(member) for member in value.values())
    if isinstance(value, list):
        return all(is_empty(item) for item in value)
    return any(value is empty or value == empty for empty in _EMPTY)


def default(field: Field, key: str, value: Any) -> None:
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


def operations_of(function: str) -> list[DeviceOp]:
    """Return the device operations that share one name in the SuperDSC specification."""
    return [op for op in DEVICE_OPS.values() if (op.function or op.name) == function]


Json = dict[str, Any]

#: Members that follow from other members, so a file may omit them.
REPEATED = frozenset(
    "coordinates_ coordInfo maxDimSizes_ layoutDimOrder_ wordLength location fidelity_ numCoreletsUsed_".split()
)

_SYMBOLS = ("dimToSymbolMappingOpcodeCorrection_", "inputSymbolsAndTags_", "symbolDefinitions_")


class CanonicalDesign:
    """The JSON of one design during canonicalization.

    ``names`` are the names of the tensors, in the order of the operands; ``ignored`` the fields without an effect.
    """

    def __init__(self, value: Any, filename: str, target: Target) -> None:
        self.root = Field(value, filename)
        self.target = target
        self.names: tuple[str, ...] = ()
        self.filter = FieldFilter()
        self.division = DivisionCanonicalizer(self.filter)
        try:
            self.root.value = copy.deepcopy(value)
        except RecursionError:
            self.root.fail("nests too deeply")
        self._convert()

    @property
    def ignored(self) -> tuple[str, ...]:
        return tuple(self.filter.ignored)

    def _convert(self) -> None:
        key, body = self.root.only_member()
        _, dsc = only_item(body["dscs_"]).only_member()
        compute = only_item(dsc["computeOp_"])
        function = compute["opFuncName"].text()
        body.value["dscs_"] = [{function: dsc.value}]
        self.root.value = {f"{self._index(key)}_{function}": body.value}
        body = self.root.only_member()[1]
        dsc = only_item(body["dscs_"]).only_member()[1]
        self._convert_body(body)
        self._convert_configuration(dsc, compute)
        index, stick_bytes = int(self._index(key)), self.target.stick_bytes
        tensors = TensorCanonicalizer(dsc, compute, index, self.filter, stick_bytes)
        tensors.convert()
        self.names = tensors.names
        self.division.convert(body, dsc)
        if not any(op.kind is Kind.RELAYOUT for op in operations_of(function)):
            for node in dsc["scheduleTree_"].items():
                self._drop_slices(node, body)

    def _index(self, key: str) -> str:
        match = re.fullmatch(r"(\d{1,9})_.+", key) or re.search(r"sdsc_(\d{1,9})\.json$", self.root.filename)
        return match[1] if match else "0"

    # -- the part around the configuration -------------------------------------------------------------

    def _convert_body(self, body: Field) -> None:
        self.filter.require_empty(body, "holds data operations, which are not simulated", "datadscs_")
        self.filter.drop(body, *_SYMBOLS)
        for key in ("sdscFoldProps_", "sdscFolds_"):
            if key in body:
                folds = body[key]["dim_prop_attr"] if key == "sdscFolds_" else body[key]
                for fold in folds.items():
                    if fold["factor_"].integer() != 1:
                        fold["factor_"].fail("must be 1: a design runs once per execute")
                del body.value[key]
        default(body, "debug_handle_", None)
        self._convert_debug(body["debug_handle_"])
        corelets = body["coreletFoldProp_"]["factor_"]
        if corelets.integer() in (1, 2):
            body["coreletFoldProp_"].value["factor_"] = self.target.emitted_corelets

    def _convert_debug(self, debug: Field) -> None:
        if debug.value is None:
            return
        self.filter.drop(debug, "fused_from")
        debug.value["fused_from"] = []
        if debug["source"].value is not None and "file" in debug["source"]:
            debug["source"].value.update(end_line=None, end_col=None)
        for step in debug["transform_history"].items():
            if step["reason"].value is None:
                step.value["reason"] = ""

    def _convert_configuration(self, dsc: Field, compute: Field) -> None:
        self.filter.drop(dsc, "pdsRelation_", "dimToSymbolMapping_")
        self.filter.require_empty(
            compute, "names intermediate tensors, which are not simulated", "interimLabeledDs"
        )
        if compute.value.get("indirectAccessIndexLabeledDs") == []:
            del compute.value["indirectAccessIndexLabeledDs"]
        default(compute, "attributes_", {})
        default(compute, "location", "Inner")
        attributes = compute["attributes_"]
        default(attributes, "fidelity_", "regular")
        if attributes["fidelity_"].value == "fast":
            self.filter.ignored.append(attributes["fidelity_"].path)
            attributes.value["fidelity_"] = "regular"
        if (
            dsc["coreIdsUsed_"].items()
            and "numCoreletsUsed_" in dsc
            and dsc.value["numCoreletsUsed_"] in (1, 2)
        ):
            dsc.value["numCoreletsUsed_"] = self.target.emitted_corelets
        default(dsc, "coordinateMasking_", {})
        default(dsc, "maskingConstId_", 0 if dsc.value["coordinateMasking_"] else -1)
        self._convert_constants(dsc)
        self.division.convert_sizes(dsc["N_"], is_total=True)

    def _convert_constants(self, dsc: Field) -> None:
        default(dsc, "constantInfo_", "{}")
        if is_empty(dsc.value["constantInfo_"]):
            dsc.value["constantInfo_"] = "{}"
            return
        constants = {}
        for number, (_, constant) in enumerate(dsc["constantInfo_"].members()):
            values = {
                integer(bits) for _, member in constant["data_"]["data_"].members() for bits in _bits(member)
            }
            if len(values) != 1:
                constant["data_"]["data_"].fail("must hold the one value of the constant on all cores")
            # The cores and corelets of a constant state only that the constant exists.
            constants[str(number)] = {**constant.value, "data_": {"data_": {"[0, 0, 0]": [values.pop()]}}}
        dsc.value["constantInfo_"] = constants

    def _drop_slices(self, node: Field, body: Field) -> None:
        """Remove the slices of a tensor if they equal the slices of the design; only a shuffle may differ."""
        if "coordinates_" not in node or "coreIdToWkSlice_" not in node["coordinates_"]:
            return
        slices = node["coordinates_"]["coreIdToWkSlice_"]
        for core, member in slices.members():
            expected = body["coreIdToWkSlice_"].value.get(core, {})
            for dim, index in member.members():
                if index.integer() != expected.get(dim):
                    index.fail("is not the slice of the design, which only a shuffle may leave")
        del node["coordinates_"].value["coreIdToWkSlice_"]


def _bits(field: Field) -> list[Field]:
    return field.items() if isinstance(field.value, list) else [field]


# Canonicalization of the tensors of a design to the form that ``design_json.py`` reads.

#: The first symbol for HBM operands without addresses; other writers number their symbols from -1 down.
_FIRST_FREE_SYMBOL = -(1 << 40)


class TensorCanonicalizer:
    """The tensors of a design, put in the order of its operands and renamed accordingly.

    ``names`` are the names of the tensors in the file.
    """

    def __init__(self, dsc: Field, compute: Field, index: int, fields: FieldFilter, stick_bytes: int) -> None:
        self.dsc, self.compute, self.index = dsc, compute, index
        self.filter, self.stick_bytes = fields, stick_bytes
        self.names: tuple[str, ...] = ()
        self.cores = len(dsc["coreIdsUsed_"].items())
        self.labeled = {entry["ldsIdx_"].integer(): entry for entry in dsc["labeledDs_"].items()}
        if len(self.labeled) != len(dsc["labeledDs_"].items()):
            dsc["labeledDs_"].fail("has two tensors of one ldsIdx_")
        if not self.labeled:
            dsc["labeledDs_"].fail("must have a tensor")

    def convert(self) -> None:
        """Order, name and complete the tensors, their layouts and their allocations."""
        nodes = self._nodes()
        order = self._order() or sorted(self.labeled)
        for index in order:
            if index not in nodes:
                self.dsc["scheduleTree_"].fail(
                    f"has no allocation of {self.labeled[index]['dsName_'].text()!r}"
                )
        self.names = tuple(self.labeled[index]["dsName_"].text() for index in order)
        self.filter.ignored += [
            self.labeled[index].path for index in sorted(self.labeled.keys() - set(order))
        ]
        self._convert_layouts(nodes, order)
        labels, allocations, names = [], [], {}
        for position, index in enumerate(order):
            label, node = self.labeled[index], nodes[index]
            self._convert_label(label, node)
            self._convert_node(node, position)
            names[node.value.get("name_")] = f"allocate-Tensor{position}_{node.value['component_']}"
            labels.append({**label.value, "ldsIdx_": position, "dsName_": f"Tensor{position}"})
            allocations.append({**node.value, "ldsIdx_": position, "name_": names[node.value.get("name_")]})
        for node in allocations:
            if "relatedIndirectAccessAlloc_" in node:
                related = node["relatedIndirectAccessAlloc_"]
                node["relatedIndirectAccessAlloc_"] = names.get(related, related)
        self.dsc.value.update(labeledDs_=labels, scheduleTree_=allocations)
        # The first operand with data: an index tensor holds positions.
        first = min(len(self.compute.value.get("indirectAccessIndexLabeledDs", ())), len(order) - 1)
        form = self.labeled[order[first]]["dataFormat_"].value
        default(self.compute["attributes_"], "dataFormat_", form)

    def _nodes(self) -> dict[int, Field]:
        by_name = {entry["dsName_"].text(): index for index, entry in self.labeled.items()}
        nodes: dict[int, Field] = {}
        for position, node in enumerate(self.dsc["scheduleTree_"].items()):
            name = re.sub(r"^allocate-|_(hbm|lx)$", "", node["name_"].text())
            index = node["ldsIdx_"].integer() if "ldsIdx_" in node else by_name.get(name, position)
            if index not in self.labeled:
                node.fail(f"allocates the tensor {index}, which labeledDs_ does not have")
            if index in nodes:
                node.fail("is a second allocation of its tensor, which has one place in one memory")
            nodes[index] = node
        return nodes

    def _order(self) -> list[int] | None:
        """Return the tensors in the order of the operands; None for an unknown name, which the reader reports."""
        groups = []
        for key in ("inputLabeledDs", "outputLabeledDs", "indirectAccessIndexLabeledDs"):
            texts = self.compute[key].texts() if key in self.compute else ()
            groups.append([self._resolve(text) for text in texts])
        inputs, outputs, indices = groups
        # The output of a reduction is listed among its inputs, because a reduction adds to its output.
        inputs = [index for index in inputs if index not in outputs]
        function = self.compute["opFuncName"].text()
        position = next((op.index for op in operations_of(function) if op.index is not None), 0)
        order = [*inputs[:position], *indices, *inputs[position:], *outputs]
        if None in order or not order:
            return None
        labels = [f"Tensor{position}-idx{position}" for position in range(len(order))]
        ends = len(order) - len(outputs)
        index_labels = labels[position : position + len(indices)]
        self.compute.value["inputLabeledDs"] = [label for label in labels[:ends] if label not in index_labels]
        self.compute.value["outputLabeledDs"] = labels[ends:]
        if indices:
            self.compute.value["indirectAccessIndexLabeledDs"] = index_labels
        return [index for index in order if index is not None]

    def _resolve(self, text: str) -> int | None:
        named = {entry["dsName_"].text(): index for index, entry in self.labeled.items()}
        labels = {f"{entry['dsName_'].text()}-idx{index}": index for index, entry in self.labeled.items()}
        return {**named, **labels}.get(text)

    # -- layouts ---------------------------------------------------------------------------------------

    def _convert_layouts(self, nodes: dict[int, Field], order: Sequence[int]) -> None:
        default(self.dsc, "primaryDsInfo_", {})
        layouts, used = self.dsc["primaryDsInfo_"], {}
        for index in order:
            label, node = self.labeled[index], nodes[index]
            role = label["dsType_"].text()
            default(layouts, role, {})
            layout = layouts[role]
            self._convert_layout(layout, node, label)
            used.setdefault(role, layout.value)
        self.dsc.value["primaryDsInfo_"] = used

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
            layout.value["stickSize_"] = [form.stick_elements(self.stick_bytes)]

    # -- one tensor ------------------------------------------------------------------------------------

    def _convert_label(self, label: Field, node: Field) -> None:
        dims = self.dsc["primaryDsInfo_"][label["dsType_"].text()]["layoutDimOrder_"].texts()
        default(label, "scale_", [1] * len(dims))
        label.value["scale_"] = [integer(scale) for scale in label["scale_"].items()]
        present = [memory for memory, slot in label["memOrg_"].members() if slot["isPresent"].integer()]
        for _, slot in label["memOrg_"].members():
            self.filter.require_empty(
                slot, "must be 0: tensors begin at the address of their allocation", "dsOffset"
            )
        if "component_" not in node:
            node.value["component_"] = "lx" if present == ["lx"] else "hbm"
        component = node["component_"].text()
        if component not in present and component in label["memOrg_"]:
            label["memOrg_"].fail(f"must have the tensor in {component}, where it is allocated")
        label.value["memOrg_"] = {component: {"isPresent": 1}}

    def _convert_node(self, node: Field, position: int) -> None:
        self.filter.drop(node, "prev_")
        self.filter.require_empty(node, "is padding inside of the tensor, which is not simulated", "padding_")
        reason = "must be 0: the cores hold slices of one tensor"
        self.filter.require_empty(node, reason, "nonUnifiedAllocInHBM_")
        if node.value.get("indirectAllocType_") == "no_indirection":
            self.filter.drop(node, "relatedIndirectAccessAlloc_", "indexTensorType_")
            del node.value["indirectAllocType_"]
        in_hbm = node["component_"].text() == "hbm"
        starts = self._starts(node, position)
        node.value["startAddressCoreCorelet_"] = {
            "data_": {f"[{core}, 0, 0]": str(start) for core, start in enumerate(starts)}
        }
        if in_hbm:
            node.value["isStartAddrSymbolic_"] = int(min(starts, default=-1) < 0)
        else:
            reason = "must be 0: LX addresses are numbers"
            self.filter.require_empty(node, reason, "isStartAddrSymbolic_")
        _convert_gaps(node, in_hbm)
        if "coordinates_" in node and is_empty(node.value["coordinates_"]):
            del node.value["coordinates_"]
        if "coordinates_" in node:
            _convert_coordinates(node["coordinates_"], in_hbm)

    def _starts(self, node: Field, position: int) -> list[int]:
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
                member.fail("is another address than at the first corelet and time of its core")
        if list(by_core) == [0] and self.cores > 1:
            functions = node["startAddressCoreCorelet_"].value.get("dim_prop_func")
            if isinstance(functions, list) and functions and functions[0] == {"Const": {}}:
                return [by_core[0]] * self.cores
        # In numerical order: some writers sort the cores as text.
        by_core = dict(sorted(by_core.items()))
        if list(by_core) != list(range(len(by_core))):
            data.fail("must list its cores from 0 on and without holes")
        symbolic = node.value.get("isStartAddrSymbolic_", min(by_core.values(), default=0) < 0)
        if node["component_"].text() == "hbm" and any(
            (start < 0) != bool(symbolic) for start in by_core.values()
        ):
            data.fail("must hold negative symbol ids if isStartAddrSymbolic_ is 1, otherwise addresses")
        return list(by_core.values())


def _convert_gaps(node: Field, in_hbm: bool) -> None:
    if "backGapCore_" not in node:
        return
    gaps = node["backGapCore_"]
    for dim, per_core in list(gaps.members()):
        values = {integer(member) for _, member in per_core.members()}
        if values <= {0}:
            del gaps.value[dim]
        elif in_hbm and len(values) == 1:
            gaps.value[dim] = {"-1": str(values.pop())}
    if not gaps.value:
        del node.value["backGapCore_"]


def _convert_coordinates(coordinates: Field, in_hbm: bool) -> None:
    if "coordInfo" not in coordinates:
        return
    if coordinates.value.get("coreIdToWkSlice_") == {}:
        del coordinates.value["coreIdToWkSlice_"]
    for _, info in coordinates["coordInfo"].members():
        folds = info["folds"]
        if "data_" in folds:
            del folds.value["data_"]
        for function in folds["dim_prop_func"].items():
            if "Affine" in function:
                default(function["Affine"], "beta_", 0)
        # A fold of one position, or of many positions at one coordinate, has no effect.
        for function, fold in zip(
            folds["dim_prop_func"].items(), folds["dim_prop_attr"].items(), strict=False
        ):
            if "Affine" in function and (
                fold["factor_"].value == 1 or function["Affine"]["alpha_"].value == 0
            ):
                function["Affine"].value["alpha_"], fold.value["factor_"] = 0, 1
        # In HBM the first three folds, over cores, corelets and rows, do not place anything: each core has an address.
        if in_hbm and len(folds["dim_prop_func"].items()) > 3 and len(folds["dim_prop_attr"].items()) > 3:
            folds.value["dim_prop_func"][:3] = [{"Affine": {"alpha_": 0, "beta_": 0}}] * 3
            labels = ("core_fold", "corelet_fold", "row_fold")
            folds.value["dim_prop_attr"][:3] = [{"factor_": 1, "label_": label} for label in labels]


# Canonicalization of the sizes, shares and slices of a design to the form that ``design_json.py`` reads.

#: How a core uses its own units, or a size known only at run time, for which the simulator uses the largest value.
_SPLITS = ("symbolicDimInfo_", "maxSymbolicVolume_", "coreletSplit_", "rowSplit_", "peSfpSplit_")


class DivisionCanonicalizer:
    """The sizes of a design and their division, in canonical form; ``padding`` by dim is kept separately."""

    def __init__(self, fields: FieldFilter) -> None:
        self.filter = fields
        self.padding: dict[str, int] = {}

    def convert_sizes(self, field: Field, *, is_total: bool) -> dict[str, int]:
        """Return the sizes by dim of one set of dims; dims without elements are not used."""
        self.filter.drop(field, *_SPLITS)
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
        else:
            default(field, "name_", "n")
            if "paddingSizes_" in field:
                self._take_padding(field, sizes)
        return sizes

    def _take_padding(self, field: Field, sizes: dict[str, int]) -> None:
        """Move the padding out of a design, where it was stored before ``manifest.json`` had it."""
        paddings = field["paddingSizes_"]
        del field.value["paddingSizes_"]
        for dim, pad in paddings.members():
            reason = "moves the window of the dim, which is not simulated"
            self.filter.require_empty(
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

    def convert(self, body: Field, dsc: Field) -> None:
        """Complete the shares of the cores, the slices and the slice of each core from each other."""
        sizes = {
            key.removesuffix("_"): size
            for key, size in dsc["N_"].value.items()
            if key[:-1] and key != "name_"
        }
        cores = len(dsc["coreIdsUsed_"].items())
        shares = self._convert_stages(dsc, sizes)
        slices = self._slices(body, sizes, shares)
        if not shares:
            lanes = _stick_elements(dsc)
            shares = {dim: _share(size, slices.get(dim, 1), lanes.get(dim, 1)) for dim, size in sizes.items()}
            dsc.value["dataStageParam_"] = _stage(sizes, shares, slices)
        if "coreIdToWkSlice_" not in body:
            body.value["coreIdToWkSlice_"] = self._core_slices(body, dsc, slices, cores)
        core_slices = body["coreIdToWkSlice_"]
        if all(core.isdecimal() for core, _ in core_slices.members()):
            # Some writers sort the core numbers as text.
            order = sorted(core_slices.value, key=lambda core: (len(core), core))
            body.value["coreIdToWkSlice_"] = {core: core_slices.value[core] for core in order}
            core_slices = body["coreIdToWkSlice_"]
        for core, member in list(core_slices.members()):
            used = {dim: index for dim, index in member.integers_by_key().items() if dim in sizes or index}
            core_slices.value[core] = {**dict.fromkeys(sizes, 0), **used}

    def _convert_stages(self, dsc: Field, sizes: dict[str, int]) -> dict[str, int]:
        """Return the sizes by dim of the share of a core; empty if the file does not state them."""
        if "dataStageParam_" not in dsc or "0" not in dsc["dataStageParam_"]:
            return {}
        stages = dsc["dataStageParam_"]
        self.filter.drop(stages, *(key for key, _ in list(stages.members()) if key != "0"))
        stage = stages["0"]
        default(stage, "name_", "core")
        halves = {half: self.convert_sizes(stage[half], is_total=False) for half in ("ss_", "el_")}
        # A half that lacks a size has the size of the other half: the halves differ only for the last core.
        known = {**sizes, **halves["el_"], **halves["ss_"]}
        for half, parts in halves.items():
            used = {dim: size for dim, size in {**known, **parts}.items() if dim in sizes or size > 0}
            stage.value[half] = {f"{dim}_": size for dim, size in used.items()}
        return self.convert_sizes(stage["ss_"], is_total=False)

    def _slices(self, body: Field, sizes: dict[str, int], shares: dict[str, int]) -> dict[str, int]:
        """Return the slices by dim: the used ones of the file, or else computed from the sizes and the shares."""
        if "numWkSlicesPerDim_" in body:
            slices = body["numWkSlicesPerDim_"].integers_by_key()
            slices = {dim: count for dim, count in slices.items() if dim in sizes or count > 1}
        elif shares:
            slices = {dim: -(-size // max(shares[dim], 1)) for dim, size in sizes.items()}
        elif "coreIdToWkSlice_" in body:
            cores = [core.integers_by_key() for _, core in body["coreIdToWkSlice_"].members()]
            slices = {dim: 1 + max((core.get(dim, 0) for core in cores), default=0) for dim in sizes}
        else:
            body.fail("has none of numWkSlicesPerDim_, coreIdToWkSlice_ and dataStageParam_, so no division")
        implied = {dim: -(-size // max(shares.get(dim, size), 1)) for dim, size in sizes.items()}
        body.value["numWkSlicesPerDim_"] = {**implied, **slices}
        return body.value["numWkSlicesPerDim_"]

    def _core_slices(self, body: Field, dsc: Field, slices: dict[str, int], cores: int) -> Json:
        """Return the slices of each core in torch-spyre order: contracted dims first, then the first other dim."""
        if prod(slices.values()) != cores:
            body.fail(f"has no coreIdToWkSlice_, and its slices are not one for each of its {cores} cores")
        output = dsc["primaryDsInfo_"][dsc["labeledDs_"].items()[-1]["dsType_"].text()][
            "layoutDimOrder_"
        ].texts()
        order = sorted(slices, key=lambda dim: dim in output)
        indices = product(*(range(slices[dim]) for dim in reversed(order)))
        return {
            str(core): dict(zip(reversed(order), index, strict=True)) for core, index in enumerate(indices)
        }


def _stick_elements(dsc: Field) -> dict[str, int]:
    """Return the elements in a stick of each stick dim, from the layout with the most."""
    lanes: dict[str, int] = {}
    for _, layout in dsc["primaryDsInfo_"].members():
        sticks = zip(layout["stickDimOrder_"].texts(), layout["stickSize_"].integers(), strict=False)
        for dim, count in sticks:
            lanes[dim] = max(lanes.get(dim, 1), count)
    return lanes


def _share(size: int, slices: int, unit: int) -> int:
    return -(-size // max(slices * unit, 1)) * unit


def _stage(sizes: dict[str, int], shares: dict[str, int], slices: dict[str, int]) -> Json:
    last = {dim: size - (slices.get(dim, 1) - 1) * shares[dim] for dim, size in sizes.items()}
    ss, el = ({f"{dim}_": count for dim, count in half.items()} for half in (shares, last))
    return {"0": {"name_": "core", "ss_": ss, "el_": el}}
