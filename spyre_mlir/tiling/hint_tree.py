# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User hints for tiling, and the loops that they request.

A hint names dims and the number of tiles for each dim. The id of a hint is a positive integer. Hints nest, and an inner
hint has a larger id than the hints around it. The hints around an operation become a nest of loops, each over an
iteration dim of the operation.

1. ``HintTree`` collects the nesting: a hint has the same outer hints around all of its operations.
2. ``name_tiles`` computes the tile extent of each name. A name may be one of several factors of an iteration dim, so
   a tile has a unit, the least number of elements that are whole sticks of the dim (``stick_unit``).
3. ``tiled_loops`` returns the nest of an operation: the requested loops over dims that the operation has, in the order
   of the hints, with loops over reduced dims innermost, so that each tile of a result is finished before the next.
4. ``dim_splits`` divides a dim that contains a tiled name as an inner factor; the loops then tile the new dims.

Invariant: adjacent operations have loops of the same names (``3.M``) if one loop can run both, so that
``coarse-tiling`` joins loops by their names alone. All functions take linear time in the number of hints and dims.
A hint that contradicts the program is a ``HintError``; a
hint that only cannot be followed in one operation (``why_whole``) is a warning.

Source: working-set reduction, "Working set reduction hints" and "Intermediate representation".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from spyre_mlir.errors import counted
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


class HintError(ValueError):
    """A sentence that states why a hint cannot be followed."""


@dataclass(frozen=True)
class Hint:
    """``with spyre_hint(tiles={"M": 8}, work_div={"N": 2})``: (dim, count) of tiled and of divided dims, in order."""

    id: int
    tiles: tuple[tuple[str, int], ...] = ()
    slices: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class TiledLoop:
    """A loop around an operation that divides iteration dim ``dim`` into ``tiles`` tiles.

    ``loop`` names the hint and the dim, as in ``3.M``; adjacent operations with the same loop name share the loop.
    ``tile`` is the extent of each tile if the last tile is smaller, and None if tiles are equal. ``unrolled`` states
    whether the loop is unrolled; with None, ``unroll-tiles`` decides.
    """

    loop: str
    dim: int
    tiles: int
    tile: int | None = None
    unrolled: bool | None = None

    def part(self, extent: int) -> Fraction:
        """Return the share of a dim of ``extent`` elements that each tile contains, except perhaps the last tile."""
        return Fraction(1, self.tiles) if self.tile is None else Fraction(self.tile, extent)

    def plain(self) -> dict[str, str | int]:
        """Return the entry for ``sdsc.tiling`` and plan files."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def settled(self) -> TiledLoop:
        """Return the loop after all decisions: ``unrolled`` is True or None, so that it is not written if false."""
        return replace(self, unrolled=self.unrolled or None)


@dataclass(frozen=True)
class NamedIteration:
    """The iteration space of an operation: for each dim the names, outermost first, and the size in elements.

    ``reduced`` are the reduction dims; ``sticks`` maps each dim that lies in sticks to its elements per stick.
    """

    dims: tuple[tuple[str, ...], ...]
    sizes: tuple[int, ...]
    reduced: frozenset[int] = frozenset()
    sticks: Mapping[int, int] = field(default_factory=dict)

    def dims_of(self, name: str) -> list[int]:
        """Return the dims that a loop over ``name`` can tile: it is their outermost name. Reduced dims are last."""
        dims = [dim for dim, names in enumerate(self.dims) if names[:1] == (name,)]
        return sorted(dims, key=self.reduced.__contains__)

    def unit_of(self, name: str, size: int) -> int:
        """Return the least number of elements of a name, of ``size`` in all, that are whole sticks of the tiled dim."""
        dims = self.dims_of(name)
        return stick_unit(self.sizes[dims[0]] // size, self.sticks.get(dims[0], 1)) if dims else 1


@dataclass
class HintTree:
    """The nesting of the hints of a function, as collected from its operations so far."""

    paths: dict[int, tuple[Hint, ...]] = field(default_factory=dict)

    def add(self, hints: Sequence[Hint]) -> None:
        """Add the hints around one operation, outermost first; ``HintError`` if they contradict earlier operations."""
        for depth, hint in enumerate(hints, 1):
            path = tuple(hints[:depth])
            known = self.paths.setdefault(hint.id, path)
            if known[-1] != hint:
                here, elsewhere = (
                    ", ".join(f"'{name}': {count}" for name, count in other.tiles)
                    for other in (hint, known[-1])
                )
                raise HintError(f"hint {hint.id} has the tiles {{{here}}} here and {{{elsewhere}}} elsewhere")
            if known != path:
                here, elsewhere = (", ".join(str(hint.id) for hint in outer[:-1]) for outer in (path, known))
                here, elsewhere = (f"hints {ids}" if ids else "no hint" for ids in (here, elsewhere))
                raise HintError(f"hint {hint.id} is inside of {here} here and of {elsewhere} elsewhere")


def divided_slices(
    hints: Sequence[Hint],
    iteration: NamedIteration,
    sizes: Mapping[str, int],
    loops: Sequence[TiledLoop],
    cores: int,
) -> tuple[int, ...] | None:
    """Return the slices of each dim that hints request for one tile; None if they do not request any.

    An inner hint replaces the count of an outer hint for a name. A dim without a count is in one slice. Raises
    ``HintError`` if a name is undeclared, or if the slices are not equal or not possible on this number of cores.
    """
    counts = {name: count for hint in hints for name, count in hint.slices}
    unknown = next((name for name in counts if name not in sizes), None)
    if unknown is not None:
        raise HintError(f"a hint divides '{unknown}', which is not declared")
    slices = {iteration.dims_of(name)[0]: count for name, count in counts.items() if iteration.dims_of(name)}
    what = "the hints divide this operation into " + " x ".join(map(str, slices.values())) + " slices"
    reduced = [dim for dim in slices if dim in iteration.reduced and slices[dim] > 1]
    if len(reduced) > 1:
        raise HintError(
            f"{what}, of which {len(reduced)} dims are reduction dimensions; divide at most one of these"
        )
    if math.prod(slices.values()) > cores:
        raise HintError(f"{what}, which exceeds SENCORES, the {cores} cores of the target")
    for dim, count in slices.items():
        size, stick = iteration.sizes[dim], iteration.sticks.get(dim, 1)
        units = math.ceil(math.prod(loop.part(size) for loop in loops if loop.dim == dim) * size / stick)
        if units % count:
            raise HintError(
                f"{what}, but iteration dim {dim} of {counted(units, 'element' if stick == 1 else 'stick')} is not "
                f"evenly divisible by {count}"
            )
    return tuple(slices.get(dim, 1) for dim in range(len(iteration.dims))) if slices else None


def check_dims(iteration: NamedIteration, sizes: Mapping[str, int]) -> None:
    """Raise ``HintError`` if the names of an iteration dim are not declared or do not divide its size."""
    for dim, (names, size) in enumerate(zip(iteration.dims, iteration.sizes, strict=True)):
        unknown = [name for name in names if name not in sizes]
        if unknown:
            raise HintError(f"iteration dim {dim} is named '{unknown[0]}', which is not declared")
        product = math.prod(sizes[name] for name in names)
        if size % product:
            raise HintError(
                f"iteration dim {dim} has {size} elements, but its names {list(names)} have {product}"
            )


def stick_unit(inner: int, stick: int) -> int:
    """Return the least number of elements of a name that fill whole sticks; each spans ``inner`` elements of a dim."""
    # The least n for which n * inner is a multiple of the stick.
    return stick // math.gcd(inner, stick)


def tile_of(size: int, count: int, unit: int = 1) -> int:
    """Return the extent of the tiles when ``size`` elements are divided into ``count`` tiles; the last may be smaller.

    The extent is rounded up to a multiple of ``unit``, unless that leaves at most half as many tiles.
    """
    tile = -(-size // count)
    whole = -(-tile // unit) * unit
    return whole if -(-size // whole) > count / 2 else tile


def name_tiles(
    hints: Sequence[Hint], iteration: NamedIteration, sizes: Mapping[str, int], units: Mapping[str, int]
) -> dict[str, int]:
    """Return for each name that hints tile the tile extent in the dim that has the name.

    Tiles of a name are multiples of its entry in ``units``; without an entry they are whole sticks of this operation.
    """
    tiles = {}
    for name, count in itertools.chain.from_iterable(hint.tiles for hint in hints):
        if dims := iteration.dims_of(name):
            unit = units.get(name, iteration.unit_of(name, sizes[name]))
            tiles[name] = iteration.sizes[dims[0]] // sizes[name] * tile_of(sizes[name], count, unit)
    return tiles


def tiled_loops(
    hints: Sequence[Hint],
    iteration: NamedIteration,
    sizes: Mapping[str, int],
    target: Target,
    units: Mapping[str, int] | None = None,
) -> tuple[TiledLoop, ...]:
    """Return the loops around an operation, outermost first, from the hints around the operation, outermost first.

    ``sizes`` maps declared dims to their elements; ``units`` maps them to the unit of their tiles (``name_tiles``).
    The loops are in the order of the hints, and the loops of one hint are in the order of its tiles, but loops over
    reduced dims are innermost: ``{"K": 4, "M": 8}`` on a matmul makes M the outer and K the inner loop, so that each
    tile of the result is finished before the next tile. No loop is made for a dim that the operation does not have, for
    a count of 1, for tiles that cut a stick, and for a name inside a dim (``why_whole``). If two dims have the
    name, the first dim that is not reduced is tiled.

    Raises ``HintError`` if a dim is undeclared or tiled twice, has fewer elements than tiles, or a nest is too large.
    """
    requests = [(hint, name, count) for hint in hints for name, count in hint.tiles]
    limit = f"a loop nest has at most {target.loop_iterations} iterations"
    # All names are checked before tiles are computed, because that looks up each name in ``sizes``.
    tiled: dict[str, Hint] = {}
    for hint, name, count in requests:
        what = f"hint {hint.id} cuts '{name}'"
        if name not in sizes:
            if sizes:
                declared = f"declared are {_listed(sizes)}"
            else:
                declared = "no dim is declared; declare_tensor_dim declares one"
            raise HintError(f"{what} into {count} tiles, but {declared}")
        what = f"{what} of {sizes[name]} elements into {count} tiles"
        outer = tiled.setdefault(name, hint)
        if outer is not hint:
            before = dict(outer.tiles)[name]
            raise HintError(f"{what}, inside of hint {outer.id}, which cuts it into {before} already")
        if count > sizes[name]:
            raise HintError(f"{what}, more than it has elements")
        if count > target.loop_iterations:
            raise HintError(f"{what}; {limit}")
    tiles, loops = name_tiles(hints, iteration, sizes, units or {}), []
    for hint, name, count in requests:
        if name in tiles and count > 1 and why_whole(hint, name, count, iteration, tiles) is None:
            dim, tile = iteration.dims_of(name)[0], tiles[name]
            size = iteration.sizes[dim]
            loops.append(TiledLoop(f"{hint.id}.{name}", dim, -(-size // tile), tile if size % tile else None))
    iterations = math.prod(loop.tiles for loop in loops)
    if iterations > target.loop_iterations:
        nest = " x ".join(f"{loop.tiles} ({loop.loop})" for loop in loops)
        raise HintError(f"the loops {nest} have {iterations} iterations; {limit}")
    # The sort is stable, so reduced dims and the other dims each keep the order of the hints.
    return tuple(sorted(loops, key=lambda loop: loop.dim in iteration.reduced))


def why_whole(
    hint: Hint, name: str, count: int, iteration: NamedIteration, tiles: Mapping[str, int]
) -> str | None:
    """Return why an operation is not tiled at a name that it iterates over; None if it is tiled or does not iterate.

    ``tiles`` maps names to tile extents in this operation (``name_tiles``).
    """
    if count == 1:
        return None
    what = f"hint {hint.id} cuts '{name}' into {count} tiles"
    dims = iteration.dims_of(name)
    if not dims:
        inside = next((dim for dim, names in enumerate(iteration.dims) if name in names), None)
        if inside is None:
            return None
        return (
            f"{what}, but it is inside of iteration dim {inside} of {iteration.sizes[inside]} elements, which is "
            f"{_listed(iteration.dims[inside])} and cannot be split there; this operation is not tiled at '{name}'"
        )
    size, stick = iteration.sizes[dims[0]], iteration.sticks.get(dims[0], 1)
    if tiles[name] % stick == 0:
        return None
    return (
        f"{what}, of {tiles[name]} of the {size} elements of iteration dim {dims[0]}, but tiles are whole sticks of "
        f"{stick} elements; this operation is not tiled at '{name}'"
    )


def _listed(names: Sequence[str] | Mapping[str, int]) -> str:
    return ", ".join(f"'{name}'" for name in names)


# Splitting of an iteration dim that several names share into several dims, so that a loop can tile each name.
#
# A dim of A * B * C elements is split into factors before each name that a hint tiles, so every factor except perhaps
# the first begins with such a name. If an operation supports a dim per factor, each factor becomes a dim. Otherwise the
# tile index becomes the outermost factor of the single dim and the other factors keep their order; this copies the
# operands.


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
    ``stick`` is the number of elements per stick if the dim lies in sticks. Tiles that would cut a stick are excluded.
    The tile index becomes outermost only if all tiles are equal.
    """

    def within(index: int) -> int:
        """Return the elements per position of the names before ``index``."""
        return size // math.prod(sizes[name] for name in names[:index])

    def tile(index: int) -> int:
        """Return the elements of a tile of a name per position of the names before it."""
        extent = sizes[names[index]]
        inner = within(index) // extent
        return inner * tile_of(extent, tiles[names[index]], stick_unit(inner, stick))

    # The outermost name does not need a split: a loop can tile the dim there without one.
    cuts = [index for index, name in enumerate(names) if index and tiles.get(name, 1) > 1]
    while cuts and tile(cuts[-1]) % stick:
        cuts.pop()
    if not cuts:
        return
    bounds = [0, *cuts, len(names)]
    inside = [within(index) for index in bounds[:-1]]
    factors = tuple(tuple(names[first:last]) for first, last in itertools.pairwise(bounds))
    extents = tuple(whole // part for whole, part in zip(inside, [*inside[1:], 1], strict=True))
    yield DimSplit(factors, extents, tuple((index,) for index in range(len(factors))))
    first, rest = cuts[0], tile(cuts[0])
    # In this split the tile index becomes outermost, so the name that is outermost now must not be tiled.
    if tiles.get(names[0], 1) == 1 and rest % stick == 0 and inside[1] % rest == 0:
        parts = (tuple(names[:first]), (names[first],), tuple(names[first + 1 :]))
        # After tiles of one element no factor remains.
        dims = 3 if rest > 1 else 2
        yield DimSplit(parts[:dims], (extents[0], inside[1] // rest, rest)[:dims], ((1, 0, 2)[:dims],))
