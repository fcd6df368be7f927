# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Splitting of an iteration dim that several names share into several dims, so that a loop can tile each name.

A dim of A * B * C elements is split into factors before each name that a hint tiles, so every factor except perhaps the
first begins with such a name. If an operation supports a dim per factor, each factor becomes a dim. Otherwise the tile
index becomes the outermost factor of the single dim and the other factors keep their order; this copies the operands.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from spyre_mlir.records import dataclass
from spyre_mlir.tiling.hint_tree import stick_unit, tile_of


@dataclass(frozen=True)
class DimSplit:
    """The factors of a dim in memory order, with names and sizes; each new dim is one of ``groups``, outermost first.

    A name that is split into several factors is kept by the outermost of these factors.
    """

    names: tuple[tuple[str, ...], ...]
    sizes: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The indices of the factors in the order of the new dims."""
        return tuple(itertools.chain.from_iterable(self.groups))

    @property
    def moves(self) -> bool:
        """Return whether the split permutes the factors."""
        return self.order != tuple(range(len(self.sizes)))

    @property
    def dims(self) -> tuple[tuple[str, ...], ...]:
        """The names of each new dim."""
        return tuple(
            tuple(itertools.chain.from_iterable(self.names[index] for index in group))
            for group in self.groups
        )

    @property
    def extents(self) -> tuple[int, ...]:
        """The size of each new dim."""
        return tuple(math.prod(self.sizes[index] for index in group) for group in self.groups)


def dim_splits(
    names: Sequence[str], size: int, sizes: Mapping[str, int], tiles: Mapping[str, int], stick: int = 1
) -> Iterator[DimSplit]:
    """Yield the splits of a dim of ``size`` elements, the best first; none if no hint tiles an inner name of the dim.

    ``sizes`` maps declared dims to their elements, ``tiles`` maps the names that hints tile to tile counts, and
    ``stick`` is the number of elements per stick if the dim lies in sticks. Tiles that would cut a stick are left out.
    The tile index becomes outermost only if all tiles are equal.
    """
    # The outermost name does not need a split: a loop can tile the dim there without one.
    cuts = [index for index, name in enumerate(names) if index and tiles.get(name, 1) > 1]
    while cuts and _tile(names, cuts[-1], size, sizes, tiles, stick) % stick:
        cuts.pop()
    if not cuts:
        return
    bounds = [0, *cuts, len(names)]
    behind = [_behind(names, index, size, sizes) for index in bounds[:-1]]
    factors = tuple(tuple(names[first:last]) for first, last in itertools.pairwise(bounds))
    extents = tuple(whole // part for whole, part in zip(behind, [*behind[1:], 1], strict=True))
    yield DimSplit(factors, extents, tuple((index,) for index in range(len(factors))))
    rest, outer = _tile(names, cuts[0], size, sizes, tiles, stick), names[: cuts[0]]
    count = behind[1] // rest
    # In this split the tile index becomes outermost, so the name that is outermost now must not be tiled.
    if tiles.get(names[0], 1) == 1 and rest % stick == 0 and behind[1] % rest == 0:
        parts = (outer, names[cuts[0] : cuts[0] + 1], names[cuts[0] + 1 :])
        # After tiles of one element no factor remains.
        count_of_dims = 3 if rest > 1 else 2
        yield DimSplit(
            tuple(map(tuple, parts))[:count_of_dims],
            (extents[0], count, rest)[:count_of_dims],
            ((1, 0, 2)[:count_of_dims],),
        )


def _tile(
    names: Sequence[str],
    index: int,
    size: int,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    stick: int,
) -> int:
    """Return the elements of a tile of a name per position of the names before it."""
    extent = sizes[names[index]]
    inner = _behind(names, index, size, sizes) // extent
    return inner * tile_of(extent, tiles[names[index]], stick_unit(inner, stick))


def _behind(names: Sequence[str], index: int, size: int, sizes: Mapping[str, int]) -> int:
    """Return the elements per position of the names before ``index``."""
    return size // math.prod(sizes[name] for name in names[:index])
