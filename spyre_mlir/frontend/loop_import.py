# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loops of a graph as ``scf.for`` on tensors, built while torch-mlir imports the operations around and inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch.fx import Node

from spyre_mlir.frontend.graph_edits import operands_of
from spyre_mlir.frontend.kernel_calls import builtin_type
from spyre_mlir.mlir import ir

_INDEX = "affine_map<(d0) -> (d0 * {})>"


class LoopImport:
    """The loop of a begin and an end, at the current insertion point and location.

    ``resolve`` gives the value of a node, ``type_of`` the type in the dialect of torch-mlir of a tensor.
    """

    def __init__(
        self, begin: Node, end: Node, resolve: Callable[[Node], ir.Value], type_of: Callable[[Any], ir.Type]
    ) -> None:
        self.begin, self.end = operands_of(begin), operands_of(end)
        self.tensors = begin.meta["val"]
        self.resolve, self.type_of = resolve, type_of
        self.loop = self._loop(end.meta["val"])
        self.block = ir.Block.create_at_start(
            self.loop.regions[0], [ir.IndexType.get(), *(value.type for value in self.loop.results)]
        )

    def _loop(self, results: Sequence[Any]) -> ir.Operation:
        carried = [self._tensor(node) for node in self.begin["carried"]]
        wholes = [
            ir.Operation.create("tensor.empty", results=[builtin_type(tensor)]).result
            for tensor in results[len(carried) :]
        ]
        #: What is tiled, outside of the loop.
        self.wholes = [self._tensor(node) for node in self.begin["wholes"]]
        initial = [*carried, *wholes]
        bounds = [_index(number) for number in (0, self.begin["trips"], 1)]
        types = [value.type for value in initial]
        return ir.Operation.create("scf.for", results=types, operands=[*bounds, *initial], regions=1)

    def begin_values(self) -> list[ir.Value]:
        """The values of the begin, at the beginning of an iteration; the mark has none."""
        carried = len(self.begin["carried"])
        values = list(self.block.arguments)[1 : 1 + carried]
        for whole, dim, size in zip(self.wholes, self.begin["dims"], self.begin["sizes"], strict=True):
            values.append(self._slice(whole, dim, size))
        return [self._torch(value, tensor) for value, tensor in zip(values, self.tensors, strict=False)]

    def finish(self) -> None:
        """End the iteration: it yields what is carried, and the wholes with its tiles in them."""
        values = [self._tensor(node) for node in self.end["carried"]]
        buffers = list(self.block.arguments)[1 + len(values) :]
        for node, dim, buffer in zip(self.end["tiles"], self.end["dims"], buffers, strict=True):
            values.append(self._inserted(self._tensor(node), buffer, dim))
        ir.Operation.create("scf.yield", operands=values)

    def results(self, tensors: Sequence[Any]) -> list[ir.Value]:
        """The values of the end, behind the loop."""
        return [self._torch(value, tensor) for value, tensor in zip(self.loop.results, tensors, strict=True)]

    def _slice(self, whole: ir.Value, dim: int, size: int) -> ir.Value:
        type_ = ir.RankedTensorType(whole.type)
        shape = list(type_.shape)
        shape[dim] = size
        tile = ir.RankedTensorType.get(shape, type_.element_type)
        segments = [1, 1, 0, 0]
        return self._slice_op("tensor.extract_slice", [whole], tile, shape, dim, segments)

    def _inserted(self, tile: ir.Value, whole: ir.Value, dim: int) -> ir.Value:
        shape = list(ir.RankedTensorType(tile.type).shape)
        segments = [1, 1, 1, 0, 0]
        return self._slice_op("tensor.insert_slice", [tile, whole], whole.type, shape, dim, segments)

    def _slice_op(
        self,
        name: str,
        operands: list[ir.Value],
        result: ir.Type,
        shape: list[int],
        dim: int,
        segments: list[int],
    ) -> ir.Value:
        offsets = [0] * len(shape)
        offsets[dim] = ir.ShapedType.get_dynamic_stride_or_offset()
        attributes = {
            "static_offsets": ir.DenseI64ArrayAttr.get(offsets),
            "static_sizes": ir.DenseI64ArrayAttr.get(shape),
            "static_strides": ir.DenseI64ArrayAttr.get([1] * len(shape)),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(segments),
        }
        position = self._position(shape[dim])
        return ir.Operation.create(
            name, results=[result], operands=[*operands, position], attributes=attributes
        ).result

    def _position(self, size: int) -> ir.Value:
        """Where the tile of an iteration begins."""
        variable = self.block.arguments[0]
        if size == 1:
            return variable
        map_ = ir.Attribute.parse(_INDEX.format(size))
        return ir.Operation.create(
            "affine.apply", results=[variable.type], operands=[variable], attributes={"map": map_}
        ).result

    def _tensor(self, node: Any) -> ir.Value:
        return ir.Operation.create(
            "torch_c.to_builtin_tensor",
            results=[builtin_type(cast(Node, node).meta["val"])],
            operands=[self.resolve(node)],
        ).result

    def _torch(self, value: ir.Value, tensor: Any) -> ir.Value:
        return ir.Operation.create(
            "torch_c.from_builtin_tensor", results=[self.type_of(tensor)], operands=[value]
        ).result


def _index(number: int) -> ir.Value:
    index = ir.IndexType.get()
    attributes = {"value": ir.IntegerAttr.get(index, number)}
    return ir.Operation.create("arith.constant", results=[index], attributes=attributes).result
