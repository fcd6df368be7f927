# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tile slices: the tiles of values in the current iteration of nested loops, as slices and views."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import field
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.analysis.tile_nests import VIEWS, Nest, Tiled, source_dims, trace
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tensor_builders import affine_apply, element_type, empty, extracted, sliced


@dataclass(frozen=True, eq=False)
class MaskPart:
    """Numbers of a mask for the current rows and the keys from tile ``first`` on; None: use the mask operand itself.

    Numbers of the operand may be -infinity; masks of tiles do not contain -infinity.
    """

    first: int
    numbers: NDArray[Any] | None


#: The mask of operations in some iterations: a part of the mask, or None: no mask. Other operations use their operand.
Masks = Mapping[Tiled, MaskPart | None]


@dataclass
class LoopLevel:
    """A nest that is being written, with its induction variable, or with the number of a peeled iteration.

    Operations that run once per iteration of the outer level are written before ``loop``, which is None if peeled.
    """

    nest: Nest
    variable: ir.Value | int
    loop: ir.Operation | None = None
    masks: Masks = field(default_factory=dict)
    offsets: dict[tuple[int, int], ir.Value] = field(default_factory=dict)
    slices: dict[tuple, ir.Value] = field(default_factory=dict)

    def extent(self, size: int) -> int:
        """Return the extent of the tile of a dim in this iteration."""
        tile, full = self.nest.tile(size), self.nest.full_tiles
        is_smaller = isinstance(self.variable, int) and self.variable == full
        return size - tile * full if is_smaller else tile


@dataclass
class AvailablePart:
    """The available part of a value: a tile per iteration of the nests ``tiled_by``, or the whole value."""

    value: ir.Value
    tiled_by: tuple[Nest, ...] = ()


class TileSlices:
    """The available ``parts`` of values, sliced to tiles of the current iteration of ``levels``, outermost first.

    ``waiting`` are the results of operations that are not moved into their loops yet.
    """

    def __init__(self, waiting: set[ir.Value]) -> None:
        self.waiting = waiting
        self.parts: dict[ir.Value, AvailablePart] = {}
        self.levels: list[LoopLevel] = []

    def tile(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> ir.Value:
        """Return the tile of a value in the current iteration of the nests that tile its dims."""
        part = self.parts.get(value)
        op = defining_op(value)
        if part is None and op is not None and op.name in VIEWS and op.results[0] in self.waiting:
            tiled_by = self.parts[trace(value).root].tiled_by
            tile = self._view(op, {dim: nest for dim, nest in tiled_dims.items() if nest in tiled_by})
            inside = {dim: nest for dim, nest in tiled_dims.items() if nest not in tiled_by}
            return self._cut(tile, inside) if inside else tile
        if part is None:
            part = AvailablePart(value)
        missing = {dim: nest for dim, nest in tiled_dims.items() if nest not in part.tiled_by}
        return self._sliced(part.value, missing) if missing else part.value

    def _view(self, op: ir.Operation, tiled_dims: dict[int, Nest]) -> ir.Value:
        """Build a view of the tile of a value that is computed in the nest."""
        where, source_tiles = source_dims(op), dict[int, Nest]()
        for dim, nest in tiled_dims.items():
            source_dim = where[dim]
            assert source_dim is not None, "operations share a nest only where views keep tiles"
            source_tiles[source_dim] = nest
        source = self.tile(op.operands[0], source_tiles)
        shape, element = self._tile_shape(op.results[0], tiled_dims), element_type(op.results[0])
        destination = empty(shape, element) if len(op.operands) > 1 else None
        view = op.clone().operation
        view.operands[0] = source
        view.results[0].set_type(ir.RankedTensorType.get(shape, element))
        if destination is not None:
            view.operands[1] = destination
        if op.name == "tensor.expand_shape":
            view.attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(shape)
        return view.results[0]

    def _sliced(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> ir.Value:
        """Return the slice of a value, built once per iteration of the innermost loop that moves it."""
        levels = {level.nest: depth for depth, level in enumerate(self.levels)}
        depth = max(levels[nest] for nest in tiled_dims.values())
        level = self.levels[depth]
        key = (value, *((dim, id(tiled_dims[dim])) for dim in sorted(tiled_dims)))
        if key not in level.slices:
            # In an iteration of the level, before the inner loop that is being written, if any.
            inner = next((inner.loop for inner in self.levels[depth + 1 :] if inner.loop is not None), None)
            with ir.InsertionPoint(inner) if inner is not None else nullcontext():
                level.slices[key] = self._cut(value, tiled_dims)
        return level.slices[key]

    def _cut(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> ir.Value:
        """Build the slice of a value in the current iteration of the nests that tile its dims."""
        levels = {level.nest: level for level in self.levels}
        type_ = ir.RankedTensorType.get(self._tile_shape(value, tiled_dims), element_type(value))
        return slice_op([value], {dim: levels[nest] for dim, nest in tiled_dims.items()}, type_)

    def _tile_shape(self, value: ir.Value, tiled_dims: dict[int, Nest]) -> list[int]:
        """Return the shape of the tile of a value in the current iteration."""
        levels = {level.nest: level for level in self.levels}
        shape = list(shape_of(value))
        for dim, nest in tiled_dims.items():
            shape[dim] = levels[nest].extent(shape[dim])
        return shape


def slice_op(operands: list[ir.Value], moving: dict[int, LoopLevel], type_: ir.Type) -> ir.Value:
    """Build the extraction or insertion of the tile that some levels move; the last operand is the whole tensor."""
    whole = shape_of(operands[-1])
    sizes = [moving[dim].extent(size) if dim in moving else size for dim, size in enumerate(whole)]
    offsets: list[int | ir.Value] = [0] * len(whole)
    for dim, level in sorted(moving.items()):
        if isinstance(level.variable, int):
            offsets[dim] = level.variable * level.nest.tile(whole[dim])
        else:
            offsets[dim] = _offset(level, level.variable, sizes[dim])
    return sliced(operands, offsets, sizes, [1] * len(sizes), type_)


def part_slice(value: ir.Value, dim: int, level: LoopLevel, first: int, size: int) -> ir.Value:
    """Return the tile of an iteration from a value that contains tiles from ``first`` on of a dim of ``size``."""
    shape = list(shape_of(value))
    tile = min(level.nest.tile(size), shape[dim])
    if tile == shape[dim]:
        return value
    variable, offsets = level.variable, list[int | ir.Value]([0] * len(shape))
    is_known = isinstance(variable, int)
    offsets[dim] = (variable - first) * tile if is_known else _offset(level, variable, tile, first)
    shape[dim] = tile
    return extracted(value, offsets, shape)


def _offset(level: LoopLevel, variable: ir.Value, tile: int, first: int = 0) -> ir.Value:
    """Build, at the start of the loop body, the offset of an iteration's tile relative to tile ``first``."""
    if (tile, first) not in level.offsets:
        map_ = ir.AffineMap.get(1, 0, [ir.AffineDimExpr.get(0) * tile - first * tile])
        with ir.InsertionPoint.at_block_begin(variable.owner):
            level.offsets[tile, first] = affine_apply(map_, [variable])
    return level.offsets[tile, first]
