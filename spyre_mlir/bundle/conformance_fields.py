# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The fields of a design as the rules of the conformance check look at them, and the members that it must have."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.bundle.json_fields import Field, only_item
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import KINDS, Kind

#: The path of a field and a sentence about it.
Difference = tuple[str, str]


@dataclass(frozen=True)
class TensorFields:
    """One tensor of a design: its entry of ``labeledDs_``, its allocation, and the layout of its role."""

    label: Field
    node: Field
    layout: Field

    @property
    def role(self) -> str:
        return self.label["dsType_"].text()

    @property
    def listed(self) -> tuple[str, ...]:
        """The dims that the tensor lists, present or not."""
        return self.layout["layoutDimOrder_"].texts()

    @property
    def scales(self) -> dict[str, float]:
        values = self.label["scale_"].value if "scale_" in self.label else [1] * len(self.listed)
        return dict(zip(self.listed, values, strict=False))


@dataclass(frozen=True)
class DesignFields:
    """The parts of the JSON of a design; ``tensors`` stand in the order of ``labeledDs_``."""

    body: Field
    dsc: Field
    compute: Field
    tensors: tuple[TensorFields, ...]

    @classmethod
    def of(cls, root: Field) -> DesignFields:
        """The parts of a JSON object; ``CompileError`` if a tensor has no layout or no allocation."""
        _, body = root.only_member()
        _, dsc = only_item(body["dscs_"]).only_member()
        labels, nodes = dsc["labeledDs_"].items(), dsc["scheduleTree_"].items()
        by_index = {node["ldsIdx_"].integer(): node for node in nodes if "ldsIdx_" in node}
        tensors = []
        for label in labels:
            index = label["ldsIdx_"].integer()
            if index not in by_index:
                label.fail("has no allocation in scheduleTree_")
            layout = dsc["primaryDsInfo_"][label["dsType_"].text()]
            tensors.append(TensorFields(label, by_index[index], layout))
        return cls(body, dsc, only_item(dsc["computeOp_"]), tuple(tensors))

    @property
    def function(self) -> str:
        return self.compute["opFuncName"].text()

    @property
    def kind(self) -> Kind | None:
        """The kind of the operation; None for one that the package does not know."""
        return KINDS.get(self.function)

    def named(self, key: str) -> list[str]:
        """The names of the tensors in a list of ``computeOp_``, without their numbers."""
        texts = self.compute[key].texts() if key in self.compute else ()
        return [text.rpartition("-idx")[0] or text for text in texts]


# -- members that torch-spyre always writes -------------------------------------------------------------

_BODY = "sdscFoldProps_ sdscFolds_ numWkSlicesPerDim_ coreIdToWkSlice_"
_DSC = "numCoreletsUsed_ coordinateMasking_ maskingConstId_ dataStageParam_ primaryDsInfo_ constantInfo_"
_TENSOR = "scale_ wordLength"
_NODE = "prev_ ldsIdx_ component_ layoutDimOrder_ maxDimSizes_ startAddressCoreCorelet_ coordinates_"
_COORDINATES = "coordInfo coreIdToWkSlice_"
_COMPUTE = "attributes_ location"

#: Members that torch-spyre writes since it writes ``debug_handle_``; its designs of June 2026 lack all of them.
_LATER_STAGE = "symbolicDimInfo_ maxSymbolicVolume_ coreletSplit_ rowSplit_ peSfpSplit_ paddingSizes_"
_LATER_NODE = "indirectAllocType_"


def missing_members(design: DesignFields) -> Iterator[Difference]:
    """Members that the SuperDSC schema leaves open and that every design of torch-spyre has."""
    is_later = "debug_handle_" in design.body
    places = [(design.body, _BODY), (design.dsc, _DSC), (design.compute, _COMPUTE)]
    if is_later and "dataStageParam_" in design.dsc and "0" in design.dsc["dataStageParam_"]:
        places += [(design.dsc["dataStageParam_"]["0"][half], _LATER_STAGE) for half in ("ss_", "el_")]
    for tensor in design.tensors:
        places += [(tensor.label, _TENSOR), (tensor.node, _NODE)]
        if is_later:
            places.append((tensor.node, _LATER_NODE))
        if "coordinates_" in tensor.node:
            places.append((tensor.node["coordinates_"], _COORDINATES))
    for place, members in places:
        missing = [f"'{member}'" for member in members.split() if member not in place]
        if missing:
            yield place.path, f"lacks {', '.join(missing)}, which torch-spyre always writes"
