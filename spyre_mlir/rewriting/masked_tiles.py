# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of keys that known masks hide, leave as they are, or mask by a small constant of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.attention_masks import FINITE_LOW, KnownMask, known_mask
from spyre_mlir.analysis.tile_nests import Nest, Tiled
from spyre_mlir.dialects.sdsc import HIDES
from spyre_mlir.dialects.structured import device_op, element_of, shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.tile_slices import LoopLevel, MaskPart, Masks
from spyre_mlir.tiling.mask_tiles import Range, TileClass


@dataclass(frozen=True)
class Segment:
    """Neighbouring iterations of a nest that are written in the same way; ``is_peeled``: one after the other."""

    first: int
    end: int
    is_peeled: bool = False
    masks: Masks = field(default_factory=dict)


def segments(nest: Nest, levels: Sequence[LoopLevel], masks: Mapping[Tiled, KnownMask]) -> list[Segment]:
    """Return the iterations of a nest that have to be written, in the order in which they are.

    Without masks these are the equal tiles, and a smaller last one. With masks those are left out that hide all. What
    is left is one tile, the first or the last, and one loop over the others: where sums go through more loops, the
    choice of layouts, which are those of the program as a whole, is a search that finds less. The one tile is one that
    masks cut through, so that most loops need none.
    """
    if not masks:
        last = [Segment(nest.full_tiles, nest.tiles, True)] if nest.tiles > nest.full_tiles else []
        return [Segment(0, nest.full_tiles), *last]
    return list(_MaskedNest(nest, levels, masks).segments())


def _masks(nest: Nest) -> dict[Tiled, KnownMask]:
    """Return the masks of scores and weights in a nest over keys."""
    masks = {}
    for tiled in nest.operations():
        if HIDES in tiled.op.attributes and (mask := known_mask(tiled.generic)) is not None:
            if tiled.nests.get(nest) != mask.keys:
                return {}
            masks[tiled] = mask
    return masks


class _MaskedNest:
    """A nest over keys in an iteration of the levels around, and what masks do to its tiles."""

    def __init__(self, nest: Nest, levels: Sequence[LoopLevel], masks: Mapping[Tiled, KnownMask]) -> None:
        self.nest = nest
        self.masks = masks
        moved = {tiled: self._row_level(tiled, levels) for tiled in masks}
        self.rows = {tiled: _rows(masks[tiled], level) for tiled, level in moved.items()}
        # A loop over rows moves them: then a tile has no constant.
        self.are_rows_known = all(
            level is None or isinstance(level.variable, int) for level in moved.values()
        )

    def segments(self) -> Iterator[Segment]:
        """Yield the tile that sums begin with, and the others that masks do not hide."""
        seen = [tile for tile in range(self.nest.tiles) if not self._is_hidden(tile)]
        first, last = seen[0], seen[-1]
        # A smaller last tile is written out in any case.
        begin = last if last >= self.nest.full_tiles or self._is_mixed(last) else first
        yield Segment(begin, begin + 1, True, self._left(begin, begin + 1))
        first, end = (first, last) if begin == last else (first + 1, last + 1)
        if first < end:
            yield Segment(first, end, False, self._left(first, end))

    def _is_hidden(self, tile: int) -> bool:
        return any(
            mask.hides and self._class(tiled, tile, tile + 1) is TileClass.HIDDEN
            for tiled, mask in self.masks.items()
        )

    def _is_mixed(self, tile: int) -> bool:
        return any(self._class(tiled, tile, tile + 1) is not TileClass.NEUTRAL for tiled in self.masks)

    def _left(self, first: int, end: int) -> Masks:
        """Return what is left of masks in some tiles: nothing, a constant, or the operand where rows are moved."""
        left: dict[Tiled, MaskPart | None] = {}
        for tiled, mask in self.masks.items():
            if self._class(tiled, first, end) is TileClass.NEUTRAL:
                left[tiled] = None
            else:
                keys = self._keys(mask, first, end)
                numbers = mask.part(self.rows[tiled], keys) if self.are_rows_known else None
                left[tiled] = MaskPart(first, numbers)
        return left

    def _class(self, tiled: Tiled, first: int, end: int) -> TileClass:
        mask = self.masks[tiled]
        return mask.tiles.classify(self.rows[tiled], self._keys(mask, first, end))

    def _keys(self, mask: KnownMask, first: int, end: int) -> Range:
        size = self.nest.tile(mask.tiles.keys)
        return first * size, min(end * size, mask.tiles.keys)

    def _row_level(self, tiled: Tiled, levels: Sequence[LoopLevel]) -> LoopLevel | None:
        """Return the level that tiles the rows of a mask; None where all rows are there."""
        return next(
            (level for level in levels if tiled.nests.get(level.nest) == self.masks[tiled].rows), None
        )


def _rows(mask: KnownMask, level: LoopLevel | None) -> Range:
    """Return the rows of an iteration; all rows where a loop moves them."""
    if level is None or not isinstance(level.variable, int):
        return 0, mask.tiles.rows
    first = level.variable * level.nest.tile(mask.tiles.rows)
    return first, first + level.extent(mask.tiles.rows)


class MaskConstants:
    """Masks of nests, and constants of masked tiles at the top of a block, equal ones once."""

    def __init__(self, block: ir.Block) -> None:
        self._block = block
        self._values: dict[ir.Attribute, ir.Value] = {}
        self._masks: dict[Nest, Mapping[Tiled, KnownMask]] = {}

    def of(self, nest: Nest) -> Mapping[Tiled, KnownMask]:
        """Return the masks in a nest, which is written once per iteration of unrolled nests around it."""
        if nest not in self._masks:
            self._masks[nest] = _masks(nest)
        return self._masks[nest]

    def value(self, mask: ir.Value, numbers: NDArray[Any]) -> ir.Value:
        """Return a constant of these rows and keys, with the dims of the operand ``mask``."""
        sizes = iter(numbers.shape)
        shape = [1 if size == 1 else next(sizes) for size in shape_of(mask)]
        type_ = ir.RankedTensorType.get(shape, ir.RankedTensorType(mask.type).element_type)
        dtype = np.float32 if str(type_.element_type) == "f32" else np.float16
        array = np.ascontiguousarray(numbers.reshape(shape).astype(dtype))
        return self._constant(ir.DenseElementsAttr.get(array, type=type_))

    def number(self, type_: ir.Type) -> ir.Value:
        """Return a constant whose elements are all the finite number that hides a score."""
        tensor = ir.RankedTensorType(type_)
        attr = ir.DenseElementsAttr.get_splat(tensor, ir.FloatAttr.get(tensor.element_type, FINITE_LOW))
        return self._constant(attr)

    def finite(self, mask: ir.Value) -> ir.Value:
        """Return a tile of a mask without -infinity, at the current insertion point."""
        shape, element = shape_of(mask), element_of(mask)
        low = self.number(ir.RankedTensorType.get([], ir.RankedTensorType(mask.type).element_type))
        whole, location = tuple(range(len(shape))), ir.Location.current
        return device_op("maximum", [mask, low], [whole, ()], shape, element, location=location)

    def _constant(self, attr: ir.DenseElementsAttr) -> ir.Value:
        # The context has equal attributes once: they are compared without their elements.
        if attr not in self._values:
            with ir.InsertionPoint.at_block_begin(self._block):
                constant = ir.Operation.create(
                    "arith.constant", results=[attr.type], attributes={"value": attr}
                )
            self._values[attr] = constant.result
        return self._values[attr]
