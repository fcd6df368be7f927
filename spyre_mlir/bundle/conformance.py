# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The conformance check: where a design differs from the designs of torch-spyre, and how much each difference matters.

The validator checks that a bundle has exactly one meaning. This module checks whether the back end would accept the
bundle: the rules are facts of the SuperDSC schema, of the SuperDSC specification, and of the designs and the code of
torch-spyre. The rules read the JSON of a design as it is in its file, so they also find what the reader corrects.
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spyre_mlir.bundle.json_fields import Field, load, only_item, shorten
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, KINDS, Kind

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


# The fields of a design as the rules of the conformance check read them, and the members that a design must have.

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
        """The dims that the tensor lists, whether or not the tensor varies along them."""
        return self.layout["layoutDimOrder_"].texts()

    @property
    def scales(self) -> dict[str, float]:
        values = self.label["scale_"].value if "scale_" in self.label else [1] * len(self.listed)
        return dict(zip(self.listed, values, strict=False))

    def coordinates(self) -> list[tuple[str, Field]]:
        """Return the coordinates of each dim; none if the design leaves them out."""
        place = self.node["coordinates_"] if "coordinates_" in self.node else self.node
        return list(place["coordInfo"].members()) if "coordInfo" in place else []


@dataclass(frozen=True)
class DesignFields:
    """The parts of the JSON of a design; ``tensors`` are in the order of ``labeledDs_``."""

    body: Field
    dsc: Field
    compute: Field
    tensors: tuple[TensorFields, ...]

    @classmethod
    def of(cls, root: Field) -> DesignFields:
        """Return the parts of a JSON object; ``CompileError`` if a tensor has no layout or no allocation."""
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
        """The kind of the operation; None for an unknown operation."""
        return KINDS.get(self.function)

    def stages(self) -> list[tuple[str, Field]]:
        """Return the two halves of each data stage, by name."""
        stages = self.dsc["dataStageParam_"].members() if "dataStageParam_" in self.dsc else ()
        return [(half, stage[half]) for _, stage in stages for half in ("ss_", "el_")]

    def named(self, key: str) -> list[str]:
        """Return the names of the tensors in a list of ``computeOp_``, without their indices."""
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
    """Members that the SuperDSC schema does not require but every design of torch-spyre has."""
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


# Rules of the conformance check on the dims and the layouts of tensors: listed dims, roles and folds.

_CONTRACTIONS = (Kind.MATMUL, Kind.CONVOLUTION)

#: The dims that a design may iterate over: the members of ``DataStructDims``.
_DIM_LABELS = frozenset(
    "in out mb i j ki kj x x1 y r c ij rc kij sij zij si sj zi zj".split()
)  # fmt: skip

_MATMUL_ROLES = ("INPUT", "KERNEL", "OUTPUT")
_ROLES = ("OUTPUT", "KERNEL", "INPUT", "KERNEL_IDX")


def matmul_dims(design: DesignFields) -> Iterator[Difference]:
    """Each dim of a matmul is identified by the set of operands that list it: there is exactly one reduced dim and one
    generated dim, and there are up to two dims that KERNEL lacks and up to two that all operands have."""
    if design.kind is not Kind.MATMUL or len(design.tensors) != 3:
        return
    rows, columns, result = (set(tensor.listed) for tensor in design.tensors)
    for name, dims, most in (
        ("of both inputs that the output lacks", rows & columns - result, 1),
        ("of KERNEL and OUTPUT that INPUT lacks", columns & result - rows, 1),
        ("of INPUT and OUTPUT that KERNEL lacks", rows & result - columns, 2),
        ("of all three operands", rows & columns & result, 2),
    ):
        if len(dims) > most or (most == 1 and not dims):
            found = ", ".join(sorted(dims)) or "none"
            expected = "exactly one" if most == 1 else "up to two"
            yield design.dsc["labeledDs_"].path, f"has as dims {name} {found}; expected {expected}"
    for number, tensor in enumerate(design.tensors):
        # Batch dims along which INPUT is repeated are listed, so that only one dim is generated.
        repeated = columns & result if number == 0 else set()
        for dim, scale in tensor.scales.items():
            if scale != 1 and dim not in repeated:
                text = f"lists the dim {dim} at the scale {scale:g}; expected the dims that the operand has"
                yield tensor.label["scale_"].path, text


def matmul_roles(design: DesignFields) -> Iterator[Difference]:
    """The operands of a matmul or a convolution are its INPUT, its KERNEL and its OUTPUT."""
    if design.kind not in _CONTRACTIONS:
        return
    for tensor, role in zip(design.tensors, _MATMUL_ROLES, strict=False):
        if tensor.role != role:
            yield tensor.label["dsType_"].path, f"is {tensor.role}; expected {role}"


def roles(design: DesignFields) -> Iterator[Difference]:
    """Other operations assign OUTPUT, KERNEL, INPUT, KERNEL_IDX in the order in which layouts occur; tensors with the
    same dims and the same stick share one role. An index tensor has the role KERNEL_IDX."""
    if design.kind in _CONTRACTIONS:
        return
    indices = design.named("indirectAccessIndexLabeledDs")
    if indices:
        for tensor in design.tensors:
            if tensor.label["dsName_"].text() in indices and tensor.role != "KERNEL_IDX":
                yield (
                    tensor.label["dsType_"].path,
                    f"is {tensor.role}; expected KERNEL_IDX of an index tensor",
                )
        return
    first: dict[tuple, str] = {}
    for tensor in design.tensors:
        sticks = (tuple(tensor.layout[name].value) for name in ("stickDimOrder_", "stickSize_"))
        key = (frozenset(tensor.listed), *sticks)
        if key not in first and len(first) < len(_ROLES):
            first[key] = _ROLES[len(first)]
        if tensor.role != first.get(key):
            text = f"is {tensor.role}; expected {first.get(key, 'at most four layouts')}, by order of first layout"
            yield tensor.label["dsType_"].path, text


def cast_rows(design: DesignFields) -> Iterator[Difference]:
    """A cast iterates over a dim in addition to its stick dim, of size 1 if there is no other."""
    for tensor in design.tensors if design.kind is Kind.CAST else ():
        if len(tensor.listed) < 2:
            yield tensor.layout["layoutDimOrder_"].path, "has nothing but the stick; expected a dim of rows"


def dim_labels(design: DesignFields) -> Iterator[Difference]:
    """The names of the dims are names that the back end knows."""
    known = {f"{label}_" for label in _DIM_LABELS} | {"name_", "paddingSizes_"}
    sizes = design.dsc["N_"]
    for key, member in sizes.members():
        if key not in known and not isinstance(member.value, dict):
            yield member.path, "is a dim that the format does not know"
    for tensor in design.tensors:
        for dim in tensor.listed:
            if f"{dim}_" not in sizes:
                yield tensor.layout["layoutDimOrder_"].path, f"lists the dim {dim}, which N_ does not have"


def padding_sizes(design: DesignFields) -> Iterator[Difference]:
    """``paddingSizes_`` describes windows, and each entry names the dim of its window; a dim that is padded to whole
    sticks has its padded size and no entry."""
    for place in (design.dsc["N_"], *(half for _, half in design.stages())):
        for _, pad in place["paddingSizes_"].members() if "paddingSizes_" in place else ():
            window = pad.value.get("windowDim_", "")
            if f"{window.removesuffix('_')}_" not in design.dsc["N_"]:
                yield (
                    pad.path,
                    "names as its window a dim that N_ does not have; expected only the padding of windows",
                )


def folds(design: DesignFields) -> Iterator[Difference]:
    """The coordinates of a dim are one fold each over cores, corelets and rows and one fold for each arrangement of
    elements. The latter multiply to the elements of a core; a reduced or repeated dim has one position."""
    shares = design.dsc["dataStageParam_"]["0"]["ss_"] if "dataStageParam_" in design.dsc else None
    for tensor in design.tensors:
        for dim, info in tensor.coordinates():
            attributes = info["folds"]["dim_prop_attr"]
            arrangements = info["elemArr"].integer()
            labels = [fold["label_"].text() for fold in attributes.items()]
            expected = ["core_fold", "corelet_fold", "row_fold"]
            expected += [f"elem_arr_{number}" for number in reversed(range(arrangements))]
            if labels != expected:
                yield attributes.path, f"has the folds {', '.join(labels)}; expected {', '.join(expected)}"
            elif len(info["folds"]["dim_prop_func"].items()) != len(labels):
                yield info["folds"].path, "has more or fewer functions than folds"
            elif tensor.scales.get(dim) == 1 and shares is not None and design.kind is not Kind.RELAYOUT:
                elements = prod(fold["factor_"].integer() for fold in attributes.items()[3:])
                share = shares.value.get(f"{dim}_")
                if elements < share:
                    yield attributes.path, f"has {elements} elements of {dim} per core; expected {share}"


# Rules of the conformance check on stages, constants and single operations.

#: The constant that masked elements read as.
_MASK_VALUE = "samv-maskvalue"

_REDUCTIONS = (Kind.REDUCE_STICK, Kind.REDUCE_OTHER)


def stage_names(design: DesignFields) -> Iterator[Difference]:
    """Both halves of the stage have the name of the stage."""
    for _, half in design.stages():
        if half.value.get("name_") != "core":
            yield half.path, "has no member 'name_' that is \"core\""


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
    """Masked elements read as the constant that the kernels look up by name."""
    constants, number = design.dsc.value.get("constantInfo_"), design.dsc.value.get("maskingConstId_", -1)
    names = [constant["name_"] for constant in constants.values()] if isinstance(constants, dict) else []
    name = names[number] if 0 <= number < len(names) else None
    if design.dsc.value.get("coordinateMasking_") and name != _MASK_VALUE:
        expected = f"expected '{_MASK_VALUE}'"
        yield design.dsc["maskingConstId_"].path, f"is {number}, the constant {name!r}; {expected}"


def reduction_inputs(design: DesignFields) -> Iterator[Difference]:
    """A reduction adds to its output, so its inputs contain the output; the inputs of other operations do not."""
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
    """A shuffle goes from LX to LX, both sides list the slice of each core, and copies are cores with equal slices."""
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


# Rules of the conformance check after "SuperDSC Semantics": windows, coordinates, slices, schedules and addresses.

#: The kinds of operations whose windows the device slides.
WINDOWED = (Kind.CONVOLUTION, Kind.POOLING)
_WINDOW_MEMBERS = ("stride_", "dilation_", "windowDim_")
_UNNEEDED = ("unneededPad_", "unneededPadFront_", "unneededPadBack_")


def windows(design: DesignFields) -> Iterator[Difference]:
    """The total of a window is what the windows of the place reach, with padding and unneeded positions. A core does
    not have the padding of a divided dim (-1). Only the dims of the first operand that windows slide along have a type
    of padding: one for padded convolutions, one for others."""
    if design.kind not in WINDOWED:
        return
    sizes, slices = design.dsc["N_"], design.body["numWkSlicesPerDim_"].value
    paddings = sizes.value.get("paddingSizes_", {})
    if not paddings:
        yield sizes.path, "lacks the paddingSizes_ of a windowed operation"
    has_kernel = len(design.tensors) > 2
    for place in (sizes, *(half for _, half in design.stages())):
        pads = place["paddingSizes_"] if "paddingSizes_" in place else Field({}, sizes.filename)
        if pads.value.keys() != paddings.keys():
            yield (
                place.path,
                f"has windows along {', '.join(pads.value) or 'no dim'}; expected {', '.join(paddings)}",
            )
        for dim, pad in pads.members():
            if dim in paddings and pad.value.get("windowDim_", "").removesuffix("_") + "_" in sizes:
                is_divided = place is not sizes and slices.get(dim, 1) > 1
                yield from _window(
                    pad, paddings[dim], is_divided, place.value.get(f"{dim}_", 1), sizes, has_kernel
                )
    is_padded = any(pad.get(side, 0) for pad in paddings.values() for side in ("padFront_", "padBack_"))
    kind = "padded_nozeropad" if is_padded else "padded_fullspan_wunneeded"
    for number, tensor in enumerate(design.tensors):
        expected = dict.fromkeys(paddings, kind) if number == 0 else {}
        found = {dim: str(name).lower() for dim, name in tensor.node.value.get("padding_", {}).items()}
        if found != expected:
            yield tensor.node.path, f"has the padding_ {found}; expected {expected}"
        for dim, info in tensor.coordinates():
            if info["padding"].text() != expected.get(dim, "nopad"):
                yield (
                    info["padding"].path,
                    f"is {info['padding'].text()}; expected {expected.get(dim, 'nopad')}",
                )
            if has_kernel and dim in expected:
                yield from _window_folds(design, dim, info, paddings[dim])


def _window(
    pad: Field, whole: dict[str, Any], is_divided: bool, count: int, sizes: Field, has_kernel: bool
) -> Iterator[Difference]:
    """Yield the differences of one member of ``paddingSizes_`` from the windows of all cores, for ``count`` windows."""
    for member in _WINDOW_MEMBERS:
        if pad.value.get(member) != whole.get(member):
            yield (
                pad.path,
                f"has the {member} {pad.value.get(member)!r}; expected {whole.get(member)!r}, as in N_",
            )
    for side in ("padFront_", "padBack_"):
        expected = -1 if is_divided else max(whole.get(side, 0), 0)
        if pad.value.get(side) != expected:
            yield pad.path, f"has the {side} {pad.value.get(side)}; expected {expected}"
    missing = [member for member in _UNNEEDED if member not in pad] if has_kernel else []
    if missing:
        yield pad.path, f"lacks {', '.join(missing)}, which convolutions have"
    kernel, unneeded = (
        sizes[pad["windowDim_"].text().removesuffix("_") + "_"],
        pad.value.get("unneededPad_", 0),
    )
    reached = (count - 1) * whole.get("stride_", 1) + whole.get("dilation_", 1) * (kernel.integer() - 1) + 1
    if pad.value.get("totalSize_") != reached + unneeded:
        text = (
            f"{reached + unneeded}: windows reach {reached} positions with padding, {unneeded} are unneeded"
        )
        yield pad.path, f"has the totalSize_ {pad.value.get('totalSize_')}; expected {text}"
    if unneeded < sum(max(pad.value.get(member, 0), 0) for member in _UNNEEDED[1:]):
        yield pad.path, "has more unneeded positions at the two ends than in all"


def _window_folds(design: DesignFields, dim: str, info: Field, whole: dict[str, Any]) -> Iterator[Difference]:
    """Yield the differences of the coordinates of a dim that windows slide along."""
    functions, attributes = (info["folds"][name].items() for name in ("dim_prop_func", "dim_prop_attr"))
    for _, stage in design.stages()[:1]:
        pad = stage.value.get("paddingSizes_", {}).get(dim, {})
        total = pad.get("totalSize_", 0)
        reached, count = total - pad.get("unneededPad_", 0), attributes[-1]["factor_"].integer()
        if count not in (reached, total):
            yield info.path, f"has {count} positions per core; expected {reached}, as windows reach"
        distance = stage.value.get(f"{dim}_", 1) * whole.get("stride_", 1)
        if attributes[0]["factor_"].integer() > 1 and functions[0]["Affine"]["alpha_"].integer() != distance:
            yield info.path, f"has slices that are not {distance} positions apart"


def coordinates(design: DesignFields) -> Iterator[Difference]:
    """The coordinates of a dim are spatial over cores, corelets and rows, not temporal, and arrange elements in two
    levels for a dim in the stick and in one level for another dim."""
    for tensor in design.tensors:
        in_stick = tensor.layout["stickDimOrder_"].texts()
        for dim, info in tensor.coordinates():
            levels = 2 if dim in in_stick else 1
            for member, expected in (("spatial", 3), ("temporal", 0), ("elemArr", levels)):
                if info[member].integer() != expected:
                    yield info[member].path, f"is {info[member].integer()}; expected {expected}"


def work_slices(design: DesignFields) -> Iterator[Difference]:
    """The slices of all dims multiply to the cores of the operation, and each core has a slice of each dim."""
    if "numWkSlicesPerDim_" not in design.body or "coreIdToWkSlice_" not in design.body:
        return
    counts = design.body["numWkSlicesPerDim_"].integers_by_key()
    cores = design.dsc["numCoresUsed_"].integer()
    if design.kind is not Kind.RELAYOUT and prod(counts.values()) != cores:
        yield design.body["numWkSlicesPerDim_"].path, f"has {prod(counts.values())} slices for {cores} cores"
    used = {str(core) for core in design.dsc["coreIdsUsed_"].integers()}
    if used != design.body["coreIdToWkSlice_"].value.keys() or len(used) != cores:
        yield design.body["coreIdToWkSlice_"].path, "does not list the cores of coreIdsUsed_"
    for core, slices in design.body["coreIdToWkSlice_"].members():
        for dim, number in slices.integers_by_key().items():
            if not 0 <= number < counts.get(dim, 1):
                yield (
                    slices.path,
                    f"gives core {core} the slice {number} of {dim}, which has {counts.get(dim, 1)}",
                )


def schedule(design: DesignFields) -> Iterator[Difference]:
    """Each core of the operation has the same steps; a step runs a configuration or moves data."""
    if "coreIdToDscSchedule" not in design.body:
        return
    by_core = design.body["coreIdToDscSchedule"]
    if by_core.value.keys() != {str(core) for core in design.dsc["coreIdsUsed_"].integers()}:
        yield by_core.path, "does not list the cores of coreIdsUsed_"
    first = next(iter(by_core.value.values()), None)
    for core, steps in by_core.members():
        if steps.value != first:
            yield steps.path, f"differs from the steps of other cores of the configuration, at core {core}"
        for step in steps.items():
            if len(step.items()) != 4 or step.integers()[:2] == (-1, -1) or step.integers()[1] > 0:
                yield step.path, "is not [data operation, configuration, barrier before, barrier after]"


def start_addresses(design: DesignFields) -> Iterator[Difference]:
    """The addresses of a tensor are a map over cores, and constant over corelets and time."""
    for tensor in design.tensors:
        if "startAddressCoreCorelet_" not in tensor.node:
            continue
        starts = tensor.node["startAddressCoreCorelet_"]
        functions = [next(iter(function.value), "") for function in starts["dim_prop_func"].items()]
        if functions[:1] != ["Map"] or set(functions[1:]) - {"Const"}:
            yield starts["dim_prop_func"].path, f"is {', '.join(functions)}; expected Map, Const, Const"
        labels = [fold["label_"].text() for fold in starts["dim_prop_attr"].items()]
        if labels != ["core", "corelet", "time"]:
            yield starts["dim_prop_attr"].path, f"is {', '.join(labels)}; expected core, corelet, time"
        if len(starts["data_"].value) != len(design.dsc["coreIdsUsed_"].items()):
            yield starts["data_"].path, "does not have one address for each core"


def symbols(design: DesignFields) -> Iterator[Difference]:
    """A dim that follows a run-time size has one symbol, a negative number with a name for the back end, and in each
    half of the stage its largest size, which is a multiple of the granularity."""
    members = design.dsc["dimToSymbolMapping_"].members() if "dimToSymbolMapping_" in design.dsc else ()
    mapping = {dim: (only_item(field).integer_text(), field) for dim, field in members}
    tags = design.body.value.get("inputSymbolsAndTags_", {})
    for dim, (number, field) in mapping.items():
        if number >= 0 or f"{dim}_" not in design.dsc["N_"]:
            yield field.path, f"is not a negative number for a dim of N_, but {number} for {dim}"
        if not isinstance(tags.get(str(number)), str) or not tags[str(number)]:
            yield design.body.path, f"has no name for the symbol {number} in inputSymbolsAndTags_"
    for name, half in design.stages():
        infos = half.value.get("symbolicDimInfo_", {})
        if infos.keys() != mapping.keys():
            yield (
                half.path,
                f"has {', '.join(infos) or 'no'} symbolic dims; expected {', '.join(mapping) or 'none'}",
            )
        for dim, info in infos.items():
            most, step = info.get("maxSize_", 0), info.get("granularity_", 0)
            if step < 1 or most % step or (name == "ss_" and most != half.value.get(f"{dim}_")):
                yield half.path, f"has {most} as the largest size of {dim} in steps of {step}"


class Weight(enum.Enum):
    """How much a difference matters to the back end."""

    REFUSED = "likely refused"
    MISREAD = "may be misread"
    COSMETIC = "cosmetic"


@dataclass(frozen=True)
class ConformanceRule:
    """One fact of the format: its weight, its source, and a function that finds the fields that differ."""

    weight: Weight
    source: str
    check: Callable[[DesignFields], Iterator[Difference]]


SCHEMA = "schema"
_SCHEMA_SOURCE = "SDSC Bundle JSON Schema 1.0.0"
_SPEC = "SuperDSC bundle specification 1.0.0"
_EMITTER = "torch-spyre, _inductor/codegen/compute_ops.py"
_PARSER = "torch-spyre, _inductor/codegen/superdsc.py"
_SEMANTICS = "SuperDSC Semantics"
_CONTRACT = "LX Relayout SHUFFLE Contract"

#: The rules by name. A design that does not match the schema is checked by no other rule.
RULES: dict[str, ConformanceRule] = {
    "matmul-dims": ConformanceRule(Weight.REFUSED, f"{_SPEC}, stick constraints of BatchMatmul", matmul_dims),
    "matmul-roles": ConformanceRule(Weight.REFUSED, f"{_PARSER}, MATMUL_LAYOUT_LABELS", matmul_roles),
    "roles": ConformanceRule(Weight.MISREAD, f"{_PARSER}, LAYOUT_LABELS", roles),
    "cast-rows": ConformanceRule(Weight.REFUSED, f"{_PARSER}, parse_op_spec", cast_rows),
    "dim-labels": ConformanceRule(Weight.REFUSED, f"{_SCHEMA_SOURCE}, DataStructDims", dim_labels),
    "folds": ConformanceRule(Weight.MISREAD, f"{_EMITTER}, gen_coord_info_value", folds),
    "padding-sizes": ConformanceRule(
        Weight.REFUSED, f"{_SPEC}, padding of windows; {_EMITTER}", padding_sizes
    ),
    "stage-names": ConformanceRule(Weight.MISREAD, f"{_SPEC}, dataStageParam_; {_EMITTER}", stage_names),
    "constant-data": ConformanceRule(Weight.MISREAD, f"{_EMITTER}, generate_constant_info", constant_data),
    "mask-constant": ConformanceRule(Weight.REFUSED, f"{_PARSER}, _get_coordinate_mask", mask_constant),
    "reduction-inputs": ConformanceRule(Weight.MISREAD, f"{_PARSER}, num_inputs", reduction_inputs),
    "restickify-format": ConformanceRule(Weight.REFUSED, f"{_SPEC}, ReStickifyOpHBM", restickify_format),
    "shuffle": ConformanceRule(Weight.REFUSED, f"{_CONTRACT}, descriptor shape", shuffle),
    "windows": ConformanceRule(
        Weight.REFUSED, f"{_SEMANTICS}, Padding; {_PARSER}, _conv2d_sdsc_fields", windows
    ),
    "coordinates": ConformanceRule(Weight.REFUSED, f"{_SEMANTICS}, Folding", coordinates),
    "work-slices": ConformanceRule(Weight.REFUSED, f"{_SEMANTICS}, Dimensions and Work Slicing", work_slices),
    "schedule": ConformanceRule(Weight.REFUSED, "coreIdToDscSchedule Field, Valid Combinations", schedule),
    "start-addresses": ConformanceRule(Weight.REFUSED, f"{_SEMANTICS}, Folding", start_addresses),
    "symbols": ConformanceRule(Weight.REFUSED, "torch-spyre #2288, #3246; " + _EMITTER, symbols),
    "members": ConformanceRule(Weight.COSMETIC, f"{_EMITTER}, generate_sdsc", missing_members),
}


@dataclass(frozen=True)
class Nonconformance:
    """One field of a design that differs from the designs of torch-spyre."""

    rule: str
    filename: str
    path: str
    sentence: str

    @property
    def weight(self) -> Weight:
        return Weight.REFUSED if self.rule == SCHEMA else RULES[self.rule].weight

    @property
    def source(self) -> str:
        return _SCHEMA_SOURCE if self.rule == SCHEMA else RULES[self.rule].source

    def __str__(self) -> str:
        where = f"{self.filename}: {self.path}" if self.path else self.filename
        return f"{where} {self.sentence} [{self.rule}, {self.weight.value}; {self.source}]"


def check_design(value: Any, filename: str) -> list[Nonconformance]:
    """Return all differences of the JSON of a design."""
    findings = []
    for error in packaged_schema().iter_errors(value):
        # Among several forms that the schema allows, compare with the closest one.
        while error.context:
            error = max(error.context, key=lambda cause: len(cause.absolute_path))
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in error.absolute_path)
        text = f"does not fit the schema: {shorten(error.message)}"
        findings.append(Nonconformance(SCHEMA, filename, path.lstrip("."), text))
    if findings:
        return findings
    try:
        design = DesignFields.of(Field(value, filename))
        return [
            Nonconformance(name, filename, *difference)
            for name, rule in RULES.items()
            for difference in rule.check(design)
        ]
    # The schema does not require everything that the rules look up, such as the layout of a role.
    except CompileError as error:
        return [Nonconformance(SCHEMA, filename, "", error.message)]


def design_files(folder: Path) -> list[Path]:
    """Return the files of the designs of a bundle or a program, in the order of their numbers."""
    return sorted(folder.rglob("sdsc*.json"), key=lambda path: (path.parent, len(path.name), path.name))


def check_folder(folder: Path) -> tuple[int, list[Nonconformance]]:
    """Return the number of designs in the folder of a bundle or a program, and all their differences."""
    files = design_files(folder)
    if not files:
        raise CompileError("The folder does not contain a design (sdsc_<number>.json).", str(folder))
    findings: list[Nonconformance] = []
    for path in files:
        findings += check_design(load(path).value, path.relative_to(folder).as_posix())
    return len(files), findings


@functools.cache
def packaged_schema() -> Draft202012Validator:
    """Return the packaged schema of a design; ``CompileError`` if the library that checks schemas is missing."""
    try:
        from jsonschema import Draft202012Validator
    except ImportError:
        raise CompileError(
            "Checking designs needs jsonschema, which is not installed; the extra 'conformance' of spyre-mlir has it."
        ) from None
    text = Path(__file__).with_name("sdsc.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text))
