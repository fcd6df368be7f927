# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The least bytes and multiply-adds of a program, from the linalg that it was before any plan."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.aliasing import argument_attributes, functions
from spyre_mlir.analysis.needed_elements import NeededPart, Needs, bits_of, inserted_box
from spyre_mlir.cost.bound import ProgramBound
from spyre_mlir.cost.element_boxes import Box, whole
from spyre_mlir.dialects.sdsc import SOURCE_BYTES
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.pipelines import run_pipeline
from spyre_mlir.rewriting.loop_bodies import unroll_loops
from spyre_mlir.target.element_types import DATA_FORMATS

#: Matmuls of the types that the device multiplies, all structured ops as generic ones, and what no argument reaches as
#: constants.
_NORMAL_FORM = "narrow-matmuls,linalg-generalize-named-ops,canonicalize,cse,fold-constants"

#: Operations that the iterations of a loop may be when it is written out.
_MOST_UNROLLED = 1 << 14

#: Elements of the data of a model, such as positions, up to which what is computed from them is looked at.
_LARGEST_TABLE = 1 << 20


def program_bound(
    source: ir.Operation, arrays: Mapping[str, NDArray[Any]], updates: Mapping[int, str] | None = None
) -> ProgramBound:
    """Return what a module of linalg needs, whose constant arguments have these arrays.

    ``updates`` are the results that are new values of arguments in place, by the names of these: of such a result only
    what the program changes is written. What only the run knows counts as nothing.
    """
    module = source.clone().operation
    # Slices at known offsets say what is needed; loops of more iterations count as nothing.
    unroll_loops(functions(module)[0], _MOST_UNROLLED)
    run_pipeline(module, _NORMAL_FORM)
    block = functions(module)[0].regions[0].blocks[0]
    arguments = dict(zip(block.arguments, argument_attributes(functions(module)[0]), strict=True))
    by_name = {_name(attributes): value for value, attributes in arguments.items()}
    needs = Needs(_constants(block, arguments, arrays))
    needed: dict[ir.Value, NeededPart] = {}
    for index, value in enumerate(list(block.operations)[-1].operation.operands):
        needed[value] = _written(value, by_name.get((updates or {}).get(index, "")))
    needs.of_block(block, needed)
    read = sum(
        _read_bytes(value, needs.needs[value], attributes)
        for value, attributes in arguments.items()
        if value in needs.needs
    )
    written = sum(need.count() * _element_bytes(value) for value, need in needed.items())
    by_format: Counter[str] = Counter()
    for element, count in needs.multiply_adds.items():
        by_format[DATA_FORMATS.get(element, DATA_FORMATS["f16"])] += count
    return ProgramBound(read, written, by_format)


def _written(value: ir.Value, argument: ir.Value | None) -> NeededPart:
    """The part of a result that is written: where it is the new value of an argument, what is not as it was."""
    boxes = []
    target = value
    while argument is not None and target != argument:
        replaced = _replaced_part(defining_op(target))
        if replaced is None:
            break
        boxes.append(replaced[0])
        target = replaced[1]
    is_update = argument is not None and target == argument
    return NeededPart(tuple(boxes)) if is_update else NeededPart((whole(shape_of(value)),))


def _replaced_part(op: ir.Operation | None) -> tuple[Box, ir.Value] | None:
    """The part of its result that an op changes, and the operand that has the rest; None for another op."""
    if op is None:
        return None
    if op.name == "tensor.insert_slice":
        box = inserted_box(op)
        return None if box is None else (box, op.operands[1])
    # Where only the run knows the position, new rows are selected in their place: as many as there are.
    body = (
        [view.operation for view in op.regions[0].blocks[0].operations] if op.name == "linalg.generic" else []
    )
    if [inner.name for inner in body] != ["arith.select", "linalg.yield"]:
        return None
    arguments = list(op.regions[0].blocks[0].arguments)
    _, new, old = (arguments.index(value) if value in arguments else None for value in body[0].operands)
    if new is None or old is None or op.operands[old].type != op.results[0].type:
        return None
    sizes = zip(indexing_maps(op)[new].results, shape_of(op.results[0]), strict=False)
    return tuple(range(size if isinstance(e, ir.AffineDimExpr) else 1) for e, size in sizes), op.operands[old]


def _read_bytes(value: ir.Value, need: NeededPart, attributes: Mapping[str, ir.Attribute]) -> int:
    """The logical bytes of an argument, of one that the frontend computed at most those that it is made of."""
    size = need.count() * _element_bytes(value)
    if SOURCE_BYTES not in attributes:
        return size
    whole_size = NeededPart((whole(shape_of(value)),)).count() * _element_bytes(value)
    source = int(ir.IntegerAttr(attributes[SOURCE_BYTES]).value)
    return min(size, size * source // max(whole_size, 1))


def _element_bytes(value: ir.Value) -> int:
    return bits_of(ir.RankedTensorType(value.type).element_type) // 8


def _constants(
    block: ir.Block,
    arguments: Mapping[ir.Value, Mapping[str, ir.Attribute]],
    arrays: Mapping[str, NDArray[Any]],
) -> dict[ir.Value, NDArray[Any]]:
    """The values that are known: dense constants, and arguments of kind constant."""
    values: dict[ir.Value, NDArray[Any]] = {}
    for value, attributes in arguments.items():
        # Large data of the model are weights, no masks.
        is_small = SOURCE_BYTES in attributes or math.prod(shape_of(value)) <= _LARGEST_TABLE
        is_known = _text(attributes, "spyre.kind") == "constant" and _name(attributes) in arrays
        if is_known and is_small and _is_readable(value):
            values[value] = np.asarray(arrays[_name(attributes)])
    for op in (view.operation for view in block.operations):
        if op.name != "arith.constant" or not isinstance(op.results[0].type, ir.RankedTensorType):
            continue
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr) and _is_readable(op.results[0]):
            values[op.results[0]] = _numbers(attribute, shape_of(op.results[0]))
    return values


def _numbers(attribute: ir.DenseElementsAttr, shape: tuple[int, ...]) -> NDArray[Any]:
    """The values of a constant; one that is the same everywhere has dims of size 1."""
    if not attribute.is_splat:
        return np.array(attribute)
    splat: Any = attribute.get_splat_value()
    return np.full([1] * len(shape), splat.value)


def _is_readable(value: ir.Value) -> bool:
    """Return whether numpy has the element type, as that of masks."""
    return str(ir.RankedTensorType(value.type).element_type) in (
        "i1",
        "i8",
        "i32",
        "i64",
        "f16",
        "f32",
        "f64",
    )


def _name(attributes: Mapping[str, ir.Attribute]) -> str:
    return _text(attributes, "spyre.name")


def _text(attributes: Mapping[str, ir.Attribute], name: str) -> str:
    return ir.StringAttr(attributes[name]).value if name in attributes else ""
