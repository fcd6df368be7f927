# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Import of ``spyre::insert_rows`` as insertions of slices at indices that the host reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from spyre_mlir.dialects.indices import read_index
from spyre_mlir.frontend.graph_edits import operands_of
from spyre_mlir.frontend.row_writes import INSERT_ROWS
from spyre_mlir.mlir import ir
from spyre_mlir.target.element_types import ELEMENT_TYPES

#: MLIR's ``ShapedType::kDynamic``, which stands for an operand among static offsets.
_DYNAMIC = -(1 << 63)

_NAMES = {
    getattr(torch, element.host): name
    for name, element in ELEMENT_TYPES.items()
    if element.storage is not None and hasattr(torch, element.host)
}


def inserts_rows(node: Node) -> bool:
    """Return whether a node is an insertion of rows."""
    return node.target is INSERT_ROWS


def import_rows(node: Node, value_of: Callable[[Node], ir.Value]) -> ir.Value:
    """Build the insertions of a node at the current insertion point, one behind the other.

    ``value_of`` gives the value of a node in the torch dialect, as is the result.
    """
    operands = operands_of(node)
    dims, elements, rows = operands["dims"], operands["elements"], operands["rows"]
    shape = tuple(operands["x"].meta["val"].shape)
    result = _tensor(operands["x"], value_of)
    tensors = [_tensor(index, value_of) for index in operands["indices"]]
    for number, row in enumerate(rows):
        positions = [
            read_index(tensor, elements[axis * len(rows) + number], _bounds(shape[dim], operands))
            for axis, (dim, tensor) in enumerate(zip(dims, tensors, strict=True))
        ]
        result = _inserted(_tensor(row, value_of), result, dims, positions)
    type_ = value_of(operands["x"]).type
    return ir.Operation.create("torch_c.from_builtin_tensor", results=[type_], operands=[result]).result


def _tensor(node: Node, value_of: Callable[[Node], ir.Value]) -> ir.Value:
    """Build the cast of a value of the torch dialect to a tensor."""
    tensor = node.meta["val"]
    type_ = ir.RankedTensorType.get(tuple(tensor.shape), ir.Type.parse(_NAMES[tensor.dtype]))
    return ir.Operation.create("torch_c.to_builtin_tensor", results=[type_], operands=[value_of(node)]).result


def _bounds(size: int, operands: dict[str, Any]) -> dict[str, int | str]:
    lower = -size if operands["negative"] else 0
    return {"lower": lower, "upper": size, "operation": operands["operation"]}


def _inserted(row: ir.Value, whole: ir.Value, dims: Sequence[int], positions: Sequence[ir.Value]) -> ir.Value:
    """Build the insertion of a row at positions in the dims where it has size 1; ``dims`` rise."""
    sizes = list(ir.RankedTensorType(row.type).shape)
    attributes = {
        "static_offsets": ir.DenseI64ArrayAttr.get(
            [_DYNAMIC if dim in dims else 0 for dim in range(len(sizes))]
        ),
        "static_sizes": ir.DenseI64ArrayAttr.get(sizes),
        "static_strides": ir.DenseI64ArrayAttr.get([1] * len(sizes)),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1, len(positions), 0, 0]),
    }
    operands = [row, whole, *positions]
    return ir.Operation.create("tensor.insert_slice", [whole.type], operands, attributes).result
