# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Node builder: device operations on nodes (scalars of a ``linalg`` body), in one element type, over needed dims."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.structured import device_op, shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.linalg_values import Terms
from spyre_mlir.target.element_types import ONE_BYTE, cast_between
from spyre_mlir.target.formats import DL16_SMALLEST, fits_fp16
from spyre_mlir.target.ops import DEVICE_OPS, FP32, Kind

#: Operations in which a constant is a scale; in others an error below the device's smallest number is acceptable.
_SCALING = ("mul", "realdiv", "reciprocal")

#: The intermediate element type of a cast in two steps. Values cast to 8 bits are already numbers of the 8-bit format.
_BETWEEN = {
    ("f16", "i32"): "f32", ("i32", "f16"): "f32", ("i32", "i8"): "f32", ("i32", "f8E4M3FN"): "f32",
    ("f32", "i8"): "f16", ("f32", "f8E4M3FN"): "f16", ("f8E4M3FN", "f32"): "f16", ("f8E4M3FN", "i32"): "f16",
}  # fmt: skip

#: Constants of casts without scaling: numbers are scaled before the cast.
_CAST_CONSTANTS = {"csqint8ch": {"scaleact": 1.0, "shiftact": 0.0}}


@dataclass(frozen=True)
class Node:
    """A scalar of the body: a constant, or a device tensor over some iteration dims (in ``dims`` order)."""

    value: ir.Value | None
    dims: tuple[int | None, ...] = ()
    constant: float | None = None

    @property
    def element(self) -> str:
        assert self.value is not None
        return str(ir.RankedTensorType(self.value.type).element_type)


class NodeBuilder:
    """Build device operations for one ``linalg`` op at the current insertion point."""

    def __init__(self, terms: Terms, op: ir.Operation, extents: Sequence[int]) -> None:
        self.terms = terms
        self.op = op
        self.extents = extents

    def emit(self, opcode: str, nodes: list[Node], element: str | None = None, **constants: float) -> Node:
        """Build one device operation over the dims of its operands."""
        element = element or next(node.element for node in nodes if node.value is not None)
        if element in ONE_BYTE and not (DEVICE_OPS[opcode].kind is Kind.CAST or DEVICE_OPS[opcode].is_copy):
            raise error_at(
                self.op, f"'{opcode}' has no form for {element}: only matmuls, casts and copies have"
            )
        if element == "f16" and any(_is_wide(node) for node in nodes) and _has_f32_form(opcode):
            # fp16 cannot represent the constant, so the operation runs in f32 and its result is rounded.
            wide = [self.cast(_guarding(opcode, node), "f32", self.op) for node in nodes]
            return self.cast(self.emit(opcode, wide, "f32", **constants), "f16", self.op)
        dims = _dims_of(nodes)
        where: dict[int | None, int | None] = {
            None: None,
            **{dim: position for position, dim in enumerate(dims)},
        }
        values = [node.value if node.value is not None else self._constant(node, element) for node in nodes]
        result = device_op(
            opcode,
            values,
            [tuple(where[dim] for dim in node.dims) for node in nodes],
            [self.extents[dim] for dim in dims],
            element,
            location=self.op.location,
            constants=constants,
        )
        return Node(result, tuple(dims))

    def _constant(self, node: Node, element: str) -> ir.Value:
        assert node.constant is not None
        return self.terms.constant(node.constant, element)

    def cast(self, node: Node, element: str, op: ir.Operation) -> Node:
        """Cast a node to another element type with one or more casts of the device."""
        if node.value is None or node.element == element:
            return node
        if (node.element, element) in _BETWEEN:
            return self.cast(self.cast(node, _BETWEEN[node.element, element], op), element, op)
        try:
            opcode = cast_between(node.element, element)
        except KeyError:
            raise error_at(op, f"a cast from {node.element} to {element} has no device operation") from None
        return self.emit(opcode, [node], element, **_CAST_CONSTANTS.get(opcode, {}))

    def broadcast(self, node: Node, missing: list[int]) -> Node:
        """Broadcast a node along reduced dims that it does not have."""
        dims = sorted({*(dim for dim in node.dims if dim is not None), *missing})
        where: dict[int | None, int | None] = {
            None: None,
            **{dim: position for position, dim in enumerate(dims)},
        }
        assert node.value is not None
        result = device_op(
            "identity", [node.value], [tuple(where[dim] for dim in node.dims)], [self.extents[dim] for dim in dims],
            node.element, location=self.op.location,
        )  # fmt: skip
        return Node(result, tuple(dims))

    def reduce(self, node: Node, reduced: Sequence[int | None], opcode: str) -> Node:
        assert node.value is not None
        shape = shape_of(node.value)
        result = device_op(
            opcode,
            [node.value],
            [tuple(range(len(shape)))],
            shape,
            node.element,
            location=self.op.location,
            reduced=[position for position, dim in enumerate(node.dims) if dim in reduced],
        )
        return Node(result, tuple(dim for dim in node.dims if dim not in reduced))


def _dims_of(nodes: list[Node]) -> list[int]:
    """Return the dims of all operands in the order of the operand with the most dims, so that it is not transposed."""
    widest = max(nodes, key=lambda node: len(node.dims))
    dims = [dim for dim in widest.dims if dim is not None]
    return [*dims, *sorted({dim for node in nodes for dim in node.dims if dim is not None} - set(dims))]


def _is_wide(node: Node) -> bool:
    """Return whether a node is a constant, of bf16 or of a wider type, outside the range of fp16."""
    return node.constant is not None and not fits_fp16(node.constant)


def _has_f32_form(opcode: str) -> bool:
    return opcode in DEVICE_OPS and FP32 in DEVICE_OPS[opcode].formats


def _guarding(opcode: str, node: Node) -> Node:
    """Replace a constant that the device would round to 0 by the device's smallest number, unless it is a scale."""
    if node.constant and abs(node.constant) < DL16_SMALLEST and opcode not in _SCALING:
        return Node(None, constant=math.copysign(DL16_SMALLEST, node.constant))
    return node
