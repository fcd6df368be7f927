# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dims of an attention that loops may tile, and the numbers of tiles that are worth a look."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from spyre_mlir.analysis.dim_classes import DimClass, DimTiles, dim_classes
from spyre_mlir.analysis.tile_nests import Tiled
from spyre_mlir.dialects import sdsc
from spyre_mlir.division.slices import divisors
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.groups import Tiling, default_bytes
from spyre_mlir.target.target import Target
from spyre_mlir.tiling.mask_tiles import MaskTiles

#: Tiles of rows at most that are written out, each with the keys that a mask leaves it.
_MOST_BANDS = 16

#: Tiles of the outer dims, of rows and of keys.
Tiles = tuple[DimTiles, ...]


@dataclass(frozen=True)
class AttentionSpace:
    """Dims of an attention that loops may tile: outer ones, rows and keys; ``columns`` are those of values."""

    group: Sequence[Tiled]
    maximum: Tiled
    matmul: Tiled
    loops: Sequence[DimClass]
    sizes: tuple[int, ...]
    columns: int
    target: Target

    @classmethod
    def of(cls, group: Sequence[Tiled], columns: int, target: Target) -> AttentionSpace:
        maximum = next(tiled_op for tiled_op in group if tiled_op.running is not None)
        matmul = next(
            tiled_op for tiled_op in reversed(group) if sdsc.opcode_of(tiled_op.op) == "batchmatmul"
        )
        classes = dim_classes(group, by_sources=False)
        sizes = maximum.generic.extents
        loops = [
            next(dim_class for dim_class in classes if dim in dim_class.dims.get(maximum, ()))
            for dim in range(len(sizes))
        ]
        return cls(group, maximum, matmul, loops, sizes, columns, target)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the dims: the innermost of the outer ones are heads."""
        outer = len(self.sizes) - 2
        return (
            *(f"outer{index}" for index in range(outer - 1)),
            *(("heads",) if outer else ()),
            "rows",
            "keys",
        )

    @property
    def text(self) -> str:
        *others, last = self.labels
        return f"{', '.join(others)} and {last}"

    def choices(self) -> Iterator[list[Tiles]]:
        """Yield numbers of tiles: for each number of groups of heads, many first, the fewest that may fit.

        Per core, rows of the operands and of the statistics take at most half of the room, scores of one tile a
        quarter; or, where that makes fewer tiles of rows, three quarters without statistics (they are dense if rows
        lie in the sticks), and a sixth.
        """
        tiles_by_groups = [(groups, self._inner(groups)) for groups in self._groups()]
        whole = [
            groups for groups, inner in tiles_by_groups if (DimTiles.equal(1), DimTiles.equal(1)) in inner
        ]
        for groups, inner in tiles_by_groups:
            if groups in whole[:-1]:
                # All rows and keys of more heads fit, too.
                continue
            choices = [(*map(DimTiles.equal, groups), *tiles) for tiles in inner]
            choices = [tiles for tiles in choices if any(cut.tiles > 1 for cut in tiles)]
            if choices:
                yield choices

    def _groups(self) -> Iterator[tuple[int, ...]]:
        """Yield tiles of the outer dims: one head at a time, then more of the innermost dim, then of the next.

        The outermost dim is in one tile where there are others: in the default layout of tensors of several dims it
        lies between their rows and the sticks.
        """
        *outer, _, _ = self.sizes
        if not outer:
            yield ()
            return
        first = 1 if len(outer) > 1 else outer[0]
        if first < outer[0]:
            yield tuple(outer)
        for dim in reversed(range(min(1, len(outer) - 1), len(outer))):
            for tiles in reversed(divisors(outer[dim], outer[dim])):
                if tiles > 1 or dim == min(1, len(outer) - 1):
                    yield (*(first, *outer[1:])[:dim], tiles, *(1 for _ in outer[dim + 1 :]))

    def _inner(self, groups: tuple[int, ...]) -> list[Tiles]:
        """Return the tiles of rows and keys for a number of groups."""
        *outer, rows, keys = self.sizes
        if not all(loop.allows(tiles) for loop, tiles in zip(self.loops, groups, strict=False)):
            return []
        together = math.prod(outer) * rows // math.prod(groups)
        target, lx_bytes = self.target, self.target.usable_lx_bytes
        dense = 3 * default_bytes(target, (1, self.columns), "f16")
        options: dict[DimTiles, Tiles] = {}
        for row_bytes, row_capacity, score_capacity in (
            (dense + 5 * target.stick_bytes, lx_bytes // 2, lx_bytes // 4),
            (dense, lx_bytes * 3 // 4, lx_bytes // 6),
        ):
            parts = self._fewest(self.loops[-2], together * row_bytes // target.cores, row_capacity)
            if parts is None or parts in options:
                continue
            scores = int(together * parts.part) * default_bytes(target, (1, keys), "f16") // target.cores
            tiles = self._fewest(self.loops[-1], scores, score_capacity)
            if tiles is not None:
                options[parts] = (parts, tiles)
        return list(options.values())

    def finer(self, tiles: Tiles) -> Iterator[Tiles]:
        """Yield more and more tiles of keys than ``tiles`` has, the others as they are."""
        *outer, keys = tiles
        for more in self.loops[-1].cuts(keys.tiles + 1, self.target.loop_iterations, self.target.cores):
            yield (*outer, more)

    def _fewest(self, dim_class: DimClass, needed: int, lx_bytes: int) -> DimTiles | None:
        """Return the coarsest legal tiles of a dim with which ``needed`` bytes become at most ``lx_bytes``."""
        return next(
            dim_class.cuts(needed // (lx_bytes + 1) + 1, self.target.loop_iterations, self.target.cores), None
        )

    def narrower(self, tiles: Tiles) -> Tiles | None:
        """Return twice as many tiles of rows as ``tiles`` has; None where these are too many to be written out."""
        if not tiles:
            return None
        *outer, rows, keys = tiles
        more = next(self.loops[-2].cuts(2 * rows.tiles, _MOST_BANDS, self.target.cores), None)
        return None if more is None else (*outer, more, keys)

    def share(self, tiles: Tiles, masks: Sequence[MaskTiles]) -> float:
        """Return the share of the scores that are in tiles of which no mask hides all."""
        rows, keys = (
            [
                (int(size * cut.part) * tile, min(int(size * cut.part) * (tile + 1), size))
                for tile in range(cut.tiles)
            ]
            for size, cut in zip(self.sizes[-2:], tiles[-2:], strict=True)
        )
        return min((mask.share(rows, keys) for mask in masks if len(rows) <= _MOST_BANDS), default=1.0)

    def tiling(self, tiles: Tiles, name: str, unrolled: Sequence[str] = ()) -> Tiling:
        """Return the loops of each operation, those over keys inside; some may be unrolled."""
        return {
            tiled_op.result: [
                replace(
                    cut.loop(f"attention{name}.{label}", dims[0], tiled_op.generic.extents[dims[0]]),
                    unrolled=label in unrolled or None,
                )
                for dim_class, cut, label in zip(self.loops, tiles, self.labels, strict=True)
                if cut.tiles > 1 and (dims := dim_class.dims.get(tiled_op))
            ]
            for tiled_op in self.group
        }
