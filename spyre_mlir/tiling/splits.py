# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How an iteration dim that several names share becomes several dims, so that a loop can cut each name.

A dim of A * B * C elements is cut at the names that hints tile: into factors, each beginning with such a name but
perhaps the first. Where an operation takes a dim per factor, each is one. Where it does not, the number of the tile
comes first in the one dim, and all else in its order behind it, which is a copy of what has the dim.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from spyre_mlir.records import dataclass
from spyre_mlir.tiling.hint_tree import stick_unit, tile_of


@dataclass(frozen=True)
class DimSplit:
    """The factors of a dim as they lie, their names and sizes; the new dims are ``groups`` of them, outermost first.

    A name goes with the outermost of the factors that it is cut into.
    """

    names: tuple[tuple[str, ...], ...]
    sizes: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The factors as the new dims have them."""
        return tuple(itertools.chain.from_iterable(self.groups))

    @property
    def moves(self) -> bool:
        """Return whether factors change places."""
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
    """The ways to split a dim of ``size`` elements, the best first; none where no hint cuts a name inside of it.

    ``sizes`` are those of the declared dims, ``tiles`` the counts of the names that hints cut, ``stick`` the elements
    per stick if the dim lies in sticks. Tiles that would cut a stick are left out; the number of the tile comes first
    only where all tiles are equal.
    """
    # The outermost name needs no cut: a loop tiles the dim at it as the dim is.
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
    # Here the number of the tile takes the outermost place, so the name that has it must not be tiled
    # itself.
    if tiles.get(names[0], 1) == 1 and rest % stick == 0 and behind[1] % rest == 0:
        parts = (outer, names[cuts[0] : cuts[0] + 1], names[cuts[0] + 1 :])
        # Behind tiles of one element no dim is left.
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
    """The elements of a tile of a name per position of the names before it."""
    extent = sizes[names[index]]
    inner = _behind(names, index, size, sizes) // extent
    return inner * tile_of(extent, tiles[names[index]], stick_unit(inner, stick))


def _behind(names: Sequence[str], index: int, size: int, sizes: Mapping[str, int]) -> int:
    """The elements per position of the names before ``index``."""
    return size // math.prod(sizes[name] for name in names[:index])
