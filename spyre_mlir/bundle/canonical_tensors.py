# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tensors of a design as other writers have them, in the form that ``design_json.py`` reads."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spyre_mlir.bundle.canonical_fields import FieldFilter, default, integer, is_empty, operations_of
from spyre_mlir.bundle.json_fields import Field
from spyre_mlir.target.formats import FORMATS

#: Symbols of HBM operands without addresses; other writers number theirs from -1 down.
_FIRST_FREE_SYMBOL = -(1 << 40)


class TensorCanonicalizer:
    """The tensors of a design: put in the order of its operands, and named by it.

    ``names`` are those that the file has for them.
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
        # The first operand with data: what an index tensor holds are positions.
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
        """The tensors as the operands of the operation; None if a name of them is wrong, which reading will report."""
        groups = []
        for key in ("inputLabeledDs", "outputLabeledDs", "indirectAccessIndexLabeledDs"):
            texts = self.compute[key].texts() if key in self.compute else ()
            groups.append([self._resolve(text) for text in texts])
        inputs, outputs, indices = groups
        # The output of a reduction is among its inputs, because it adds to it.
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
        # In the order of the numbers: some writers sort them as text.
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
        # A fold of one position, or of many at one coordinate, says nothing more.
        for function, fold in zip(
            folds["dim_prop_func"].items(), folds["dim_prop_attr"].items(), strict=False
        ):
            if "Affine" in function and (
                fold["factor_"].value == 1 or function["Affine"]["alpha_"].value == 0
            ):
                function["Affine"].value["alpha_"], fold.value["factor_"] = 0, 1
        # In HBM the first three, over cores, corelets and rows, do not place anything: each core has an address.
        if in_hbm and len(folds["dim_prop_func"].items()) > 3 and len(folds["dim_prop_attr"].items()) > 3:
            folds.value["dim_prop_func"][:3] = [{"Affine": {"alpha_": 0, "beta_": 0}}] * 3
            labels = ("core_fold", "corelet_fold", "row_fold")
            folds.value["dim_prop_attr"][:3] = [{"factor_": 1, "label_": label} for label in labels]
