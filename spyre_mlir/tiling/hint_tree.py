# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Hints that a user gives, and the loops that they ask for.

A hint names dims and into how many tiles to cut each. Its id is a positive integer; hints nest, and an inner one
has a larger id than those around it. For an operation the hints around it become a nest of loops, each over one of
its iteration dims.

Source: working-set reduction, "Working set reduction hints" and "Intermediate representation".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


class HintError(ValueError):
    """A hint that cannot be followed, as a sentence."""


@dataclass(frozen=True)
class Hint:
    """``with spyre_hint(tiles={"M": 8})``: ``tiles`` are (dim, count) in the order of the source."""

    id: int
    tiles: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class TiledLoop:
    """A loop around an operation: it cuts iteration dim ``dim`` into ``tiles`` tiles.

    ``loop`` names the hint and the dim, ``3.M``; neighbours with the same name share the loop. ``tile`` is the extent
    of each tile where the last one is smaller; None for equal tiles. ``unrolled``: its iterations are written one after
    the other; None leaves that to ``unroll-tiles``.
    """

    loop: str
    dim: int
    tiles: int
    tile: int | None = None
    unrolled: bool | None = None

    def part(self, extent: int) -> Fraction:
        """Return the share of a dim of ``extent`` elements that each tile has, but perhaps the last."""
        return Fraction(1, self.tiles) if self.tile is None else Fraction(self.tile, extent)

    def plain(self) -> dict[str, str | int]:
        """The entry of ``sdsc.tiling`` and of plan files."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def settled(self) -> TiledLoop:
        """The loop when all is decided: what is not unrolled does not say so."""
        return replace(self, unrolled=self.unrolled or None)


@dataclass(frozen=True)
class NamedIteration:
    """The iteration space of an operation: per dim its names, outermost first, and its size in elements.

    ``reduced`` are the dims that it reduces, ``sticks`` the elements per stick of the dims that lie in sticks.
    """

    dims: tuple[tuple[str, ...], ...]
    sizes: tuple[int, ...]
    reduced: frozenset[int] = frozenset()
    sticks: Mapping[int, int] = field(default_factory=dict)

    def dims_of(self, name: str) -> list[int]:
        """The dims that a loop over ``name`` can tile: those whose outermost name it is, reduced ones last."""
        dims = [dim for dim, names in enumerate(self.dims) if names[:1] == (name,)]
        return sorted(dims, key=self.reduced.__contains__)

    def unit_of(self, name: str, size: int) -> int:
        """The fewest elements of a name of ``size`` elements, in the dim that a loop tiles, that are whole sticks."""
        dims = self.dims_of(name)
        return stick_unit(self.sizes[dims[0]] // size, self.sticks.get(dims[0], 1)) if dims else 1


@dataclass
class HintTree:
    """How the hints of a function nest, as far as its operations have shown it."""

    paths: dict[int, tuple[Hint, ...]] = field(default_factory=dict)

    def add(self, hints: Sequence[Hint]) -> None:
        """The hints around one operation, outermost first; ``HintError`` if others have shown them otherwise."""
        for depth, hint in enumerate(hints, 1):
            path = tuple(hints[:depth])
            known = self.paths.setdefault(hint.id, path)
            if known[-1] != hint:
                raise HintError(
                    f"hint {hint.id} has the tiles {_text(hint)} here and {_text(known[-1])} elsewhere"
                )
            if known != path:
                raise HintError(
                    f"hint {hint.id} is inside of {_ids(path)} here and of {_ids(known)} elsewhere"
                )


def check_dims(iteration: NamedIteration, sizes: Mapping[str, int]) -> None:
    """``HintError`` if the names of an iteration dim are not declared or do not fit in it."""
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
    """The fewest elements of a name that are whole sticks where each has ``inner`` elements of the dim inside it."""
    # The least n for which n * inner is a multiple of the stick.
    return stick // math.gcd(inner, stick)


def tile_of(size: int, count: int, unit: int = 1) -> int:
    """The extent of the tiles of a name in ``count`` tiles, of which the last may be smaller.

    It is a multiple of ``unit``, which may make the tiles fewer; not where they would be half as many or less.
    """
    tile = -(-size // count)
    whole = -(-tile // unit) * unit
    return whole if -(-size // whole) > count / 2 else tile


def name_tiles(
    hints: Sequence[Hint], iteration: NamedIteration, sizes: Mapping[str, int], units: Mapping[str, int]
) -> dict[str, int]:
    """For each name that hints cut the extent of the tiles of the dim that has it.

    Tiles of a name are multiples of its entry in ``units``; without one they are whole sticks of this operation.
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
    """The loops around an operation, outermost first, from the hints around it, outermost first.

    ``sizes`` are those of the declared dims, in elements, ``units`` what their tiles are multiples of (``name_tiles``).
    The loops are in the order of the hints, and those of one hint in the order of its tiles, but loops over reduced
    dims are inside of the others: ``{"K": 4, "M": 8}`` on a matmul gives M outside and K inside, so that each tile of
    the result is finished before the next. A dim that the operation does not have is left out, and so are a count of 1,
    which needs no loop, tiles that cut a stick and those of a name inside of a dim (``why_whole``). Where two dims have
    the name, the first that is not reduced is tiled.

    ``HintError`` for a dim that is not declared or tiled twice, more tiles than elements, and too many iterations.
    """
    loops: list[TiledLoop] = []
    tiled: dict[str, Hint] = {}
    for hint in hints:
        for name, count in hint.tiles:
            # All names are checked before tiles are computed, which looks each of them up in ``sizes``.
            _check(hint, name, count, sizes, tiled, target)
    tiles = name_tiles(hints, iteration, sizes, units or {})
    for hint in hints:
        for name, count in hint.tiles:
            if name in tiles and count > 1 and why_whole(hint, name, count, iteration, tiles) is None:
                dim = iteration.dims_of(name)[0]
                loops.append(_loop(f"{hint.id}.{name}", dim, iteration.sizes[dim], tiles[name]))
    _check_nest(loops, target)
    # The sort is stable: among reduced dims, and among the others, the order of the hints stays.
    return tuple(sorted(loops, key=lambda loop: loop.dim in iteration.reduced))


def _loop(loop: str, dim: int, size: int, tile: int) -> TiledLoop:
    return TiledLoop(loop, dim, -(-size // tile), tile if size % tile else None)


def _check(
    hint: Hint, name: str, count: int, sizes: Mapping[str, int], tiled: dict[str, Hint], target: Target
) -> None:
    what = f"hint {hint.id} cuts '{name}'"
    if name not in sizes:
        declared = f"declared are {_listed(sizes)}" if sizes else "no dim is declared"
        raise HintError(f"{what} into {count} tiles, but {declared}")
    outer = tiled.setdefault(name, hint)
    if outer is not hint:
        before = dict(outer.tiles)[name]
        raise HintError(
            f"{what} of {sizes[name]} elements into {count} tiles, inside of hint {outer.id}, "
            f"which cuts it into {before} already"
        )
    if count > sizes[name]:
        raise HintError(f"{what} of {sizes[name]} elements into {count} tiles, more than it has elements")
    if count > target.loop_iterations:
        raise HintError(f"{what} of {sizes[name]} elements into {count} tiles; {_limit(target)}")


def why_whole(
    hint: Hint, name: str, count: int, iteration: NamedIteration, tiles: Mapping[str, int]
) -> str | None:
    """Why an operation is not tiled at a name although it iterates over it; None if it is, or does not.

    ``tiles`` are its tiles (``name_tiles``).
    """
    if count == 1:
        return None
    what = f"hint {hint.id} cuts '{name}' into {count} tiles"
    dims = iteration.dims_of(name)
    if not dims:
        inside = next((dim for dim, names in enumerate(iteration.dims) if name in names), None)
        return None if inside is None else f"{what}, but {_inside(inside, name, iteration)}"
    size, stick = iteration.sizes[dims[0]], iteration.sticks.get(dims[0], 1)
    if tiles[name] % stick == 0:
        return None
    return (
        f"{what}, of {tiles[name]} of the {size} elements of iteration dim {dims[0]}, but tiles are whole sticks of "
        f"{stick} elements; this operation is not tiled at '{name}'"
    )


def _inside(dim: int, name: str, iteration: NamedIteration) -> str:
    names, size = iteration.dims[dim], iteration.sizes[dim]
    return (
        f"it is inside of iteration dim {dim} of {size} elements, which is {_listed(names)} and cannot be split there; "
        f"this operation is not tiled at '{name}'"
    )


def _check_nest(loops: Sequence[TiledLoop], target: Target) -> None:
    iterations = math.prod(loop.tiles for loop in loops)
    if iterations > target.loop_iterations:
        nest = " x ".join(f"{loop.tiles} ({loop.loop})" for loop in loops)
        raise HintError(f"the loops {nest} have {iterations} iterations; {_limit(target)}")


def _limit(target: Target) -> str:
    return f"a loop nest has at most {target.loop_iterations} iterations"


def _text(hint: Hint) -> str:
    return "{" + ", ".join(f"'{name}': {count}" for name, count in hint.tiles) + "}"


def _ids(path: Sequence[Hint]) -> str:
    outer = [str(hint.id) for hint in path[:-1]]
    return f"hints {', '.join(outer)}" if outer else "no hint"


def _listed(names: Sequence[str] | Mapping[str, int]) -> str:
    return ", ".join(f"'{name}'" for name in names)
