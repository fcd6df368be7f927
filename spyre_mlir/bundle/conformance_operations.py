# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of the conformance check on stages, constants and single operations."""

from __future__ import annotations

from collections.abc import Iterator

from spyre_mlir.bundle.conformance_fields import DesignFields, Difference
from spyre_mlir.target.ops import DEVICE_OPS, Kind

#: The constant that masked elements read as.
_MASK_VALUE = "samv-maskvalue"

_REDUCTIONS = (Kind.REDUCE_STICK, Kind.REDUCE_OTHER)


def stage_names(design: DesignFields) -> Iterator[Difference]:
    """Both halves of the stage have its name."""
    if "dataStageParam_" not in design.dsc:
        return
    for _, stage in design.dsc["dataStageParam_"].members():
        for half in ("ss_", "el_"):
            if stage[half].value.get("name_") != "core":
                yield stage[half].path, "has no member 'name_' that is \"core\""


def constant_data(design: DesignFields) -> Iterator[Difference]:
    """The data of a constant is a list of one string."""
    if not isinstance(design.dsc.value.get("constantInfo_"), dict):
        return
    for _, constant in design.dsc["constantInfo_"].members():
        data = constant["data_"]
        for _, value in data["data_"].members() if "data_" in data else ():
            values = value.value
            if not isinstance(values, list) or len(values) != 1 or not isinstance(values[0], str):
                yield value.path, "is not a list of one string"


def mask_constant(design: DesignFields) -> Iterator[Difference]:
    """Masks read as the constant that the kernels know by its name."""
    constants, number = design.dsc.value.get("constantInfo_"), design.dsc.value.get("maskingConstId_", -1)
    names = [constant["name_"] for constant in constants.values()] if isinstance(constants, dict) else []
    name = names[number] if 0 <= number < len(names) else None
    if design.dsc.value.get("coordinateMasking_") and name != _MASK_VALUE:
        expected = f"expected '{_MASK_VALUE}'"
        yield design.dsc["maskingConstId_"].path, f"is {number}, the constant {name!r}; {expected}"


def reduction_inputs(design: DesignFields) -> Iterator[Difference]:
    """A reduction adds to its output, so the output is among the inputs, too; other operations do not have it there."""
    inputs, outputs = design.named("inputLabeledDs"), design.named("outputLabeledDs")
    has_output = any(name in inputs for name in outputs)
    if design.kind in _REDUCTIONS and not has_output:
        yield design.compute["inputLabeledDs"].path, "lacks the output, to which a reduction adds"
    elif design.function in DEVICE_OPS and design.kind not in _REDUCTIONS and has_output:
        yield design.compute["inputLabeledDs"].path, "has the output, which only reductions add to"


def restickify_format(design: DesignFields) -> Iterator[Difference]:
    """A restickify moves numbers of 16 bits."""
    if design.kind is not Kind.RESTICKIFY:
        return
    for tensor in design.tensors:
        name = tensor.label["dataFormat_"].text()
        if name != "SEN169_FP16":
            yield tensor.label["dataFormat_"].path, f"is {name}; expected SEN169_FP16 of a restickify"


def shuffle(design: DesignFields) -> Iterator[Difference]:
    """A shuffle goes from LX to LX, both sides say which core has which slice, and copies are cores with one slice."""
    if design.kind is not Kind.RELAYOUT:
        return
    for tensor in design.tensors:
        if tensor.node["component_"].text() != "lx":
            yield tensor.node["component_"].path, "is not lx, between which a shuffle copies"
        coordinates = tensor.node["coordinates_"] if "coordinates_" in tensor.node else tensor.node
        if not coordinates.value.get("coreIdToWkSlice_"):
            yield coordinates.path, "does not say which core has which slice"
    slices = design.body["numWkSlicesPerDim_"] if "numWkSlicesPerDim_" in design.body else None
    for dim, count in slices.members() if slices is not None else ():
        if count.integer() > 1 and all(tensor.scales.get(dim, -1) != 1 for tensor in design.tensors):
            yield count.path, "divides a dim of neither side; copies are cores with the same slice"
