# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules of the conformance check on the dims and the layouts of tensors: which are listed, by which role and folds."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from spyre_mlir.bundle.conformance_fields import DesignFields, Difference, TensorFields
from spyre_mlir.target.ops import Kind

_CONTRACTIONS = (Kind.MATMUL, Kind.CONVOLUTION)

#: The dims that a design may iterate over, those of ``DataStructDims``.
_DIM_LABELS = frozenset(
    "in out mb i j ki kj x x1 y r c ij rc kij sij zij si sj zi zj".split()
)  # fmt: skip

_MATMUL_ROLES = ("INPUT", "KERNEL", "OUTPUT")
_ROLES = ("OUTPUT", "KERNEL", "INPUT", "KERNEL_IDX")


def matmul_dims(design: DesignFields) -> Iterator[Difference]:
    """The operands of a matmul tell its dims apart by which of them list a dim: there is one reduced dim and one
    generated one, and up to two each that KERNEL lacks and that all have."""
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
        # Batch dims that INPUT is repeated for are listed, so that one dim alone is generated.
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
    """Other operations hand out OUTPUT, KERNEL, INPUT, KERNEL_IDX in the order in which layouts come up; tensors with
    the same dims and the same stick share one. An index tensor is KERNEL_IDX."""
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
        key = (
            frozenset(tensor.listed),
            *(tensor.layout[key].value for key in ("stickDimOrder_", "stickSize_")),
        )
        key = (key[0], tuple(key[1]), tuple(key[2]))
        if key not in first and len(first) < len(_ROLES):
            first[key] = _ROLES[len(first)]
        if tensor.role != first.get(key):
            text = f"is {tensor.role}; expected {first.get(key, 'at most four layouts')}, by order of first layout"
            yield tensor.label["dsType_"].path, text


def cast_rows(design: DesignFields) -> Iterator[Difference]:
    """A cast iterates over a dim beside that of its stick, of size 1 if there is no other."""
    for tensor in design.tensors if design.kind is Kind.CAST else ():
        if len(tensor.listed) < 2:
            yield tensor.layout["layoutDimOrder_"].path, "has nothing but the stick; expected a dim of rows"


def dim_labels(design: DesignFields) -> Iterator[Difference]:
    """The dims have names that the back end knows."""
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
    """``paddingSizes_`` is of windows, whose dim each entry names; a dim that is padded to whole sticks has its padded
    size and nothing else."""
    places = [design.dsc["N_"]]
    if "dataStageParam_" in design.dsc:
        stages = design.dsc["dataStageParam_"].members()
        places += [stage[half] for _, stage in stages for half in ("ss_", "el_")]
    for place in places:
        for _, pad in place["paddingSizes_"].members() if "paddingSizes_" in place else ():
            window = pad.value.get("windowDim_", "")
            if f"{window.removesuffix('_')}_" not in design.dsc["N_"]:
                yield pad.path, "names no dim of N_ as its window; expected no padding but that of windows"


def folds(design: DesignFields) -> Iterator[Difference]:
    """The coordinates of a dim are a fold each over cores, corelets and rows and one for each arrangement of elements,
    and the latter multiply to the elements of a core; a dim that is reduced or repeated has one position."""
    shares = design.dsc["dataStageParam_"]["0"]["ss_"] if "dataStageParam_" in design.dsc else None
    for tensor in design.tensors:
        if "coordinates_" not in tensor.node or "coordInfo" not in tensor.node["coordinates_"]:
            continue
        for dim, info in tensor.node["coordinates_"]["coordInfo"].members():
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
                yield from _elements(tensor, dim, shares.value.get(f"{dim}_"), attributes)


def _elements(tensor: TensorFields, dim: str, share: int, attributes) -> Iterator[Difference]:
    elements = prod(fold["factor_"].integer() for fold in attributes.items()[3:])
    if elements < share:
        yield attributes.path, f"has {elements} elements of {dim} per core; expected {share}"
