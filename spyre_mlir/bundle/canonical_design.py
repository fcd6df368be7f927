# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The JSON of a design as other writers have it, brought to the form that ``design_json.py`` reads.

The SuperDSC schema lets a writer leave out much of a design, say some facts in several forms, and add facts that change
nothing in what a design computes. Here defaults are filled in, forms become one, and facts without an effect go away;
``ignored`` lists those that said something. What would change the meaning of a design is an error.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from spyre_mlir.bundle.canonical_division import DivisionCanonicalizer
from spyre_mlir.bundle.canonical_fields import FieldFilter, default, integer, is_empty, operations_of
from spyre_mlir.bundle.canonical_tensors import TensorCanonicalizer
from spyre_mlir.bundle.json_fields import Field, only_item
from spyre_mlir.target.ops import Kind
from spyre_mlir.target.target import Target

Json = dict[str, Any]

#: Members that repeat what follows from others, so a file may lack them.
REPEATED = frozenset(
    "coordinates_ coordInfo maxDimSizes_ layoutDimOrder_ wordLength location fidelity_ numCoreletsUsed_".split()
)

_SYMBOLS = ("dimToSymbolMappingOpcodeCorrection_", "inputSymbolsAndTags_", "symbolDefinitions_")


class CanonicalDesign:
    """The JSON of one design while it is brought to one form.

    ``names`` are those of the tensors, in the order of the operands; ``ignored`` the fields without an effect.
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
            # The cores and corelets of a constant say no more than that there is one.
            constants[str(number)] = {**constant.value, "data_": {"data_": {"[0, 0, 0]": [values.pop()]}}}
        dsc.value["constantInfo_"] = constants

    def _drop_slices(self, node: Field, body: Field) -> None:
        """Remove the slices of a tensor that are those of the design: only a shuffle may have others."""
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
