# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random legal tilings of programs: dims that are one over neighbouring operations are cut together."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from spyre_mlir.analysis.attention_pattern import attention_of
from spyre_mlir.analysis.tile_nests import MOST_COPIES, DimClass, DimTiles, Nests, Tiled, dim_classes, trace
from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.hint_attributes import DIM_SIZES, DIMS, HINTS, TILING, hints_attr, tiling_attr
from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.mlir import ir
from spyre_mlir.target.ops import COMBINE
from spyre_mlir.tiling import Hint

Choice = tuple[DimClass, DimTiles]


def tile_at_random(module: ir.Module, seed: int, *, unrolled: bool = False, unequal: bool = False) -> int:
    """Gives operations of level device-ops up to three random loops; the number of loops in the attributes.

    With ``unrolled`` loops over some of the dims are, with ``unequal`` the last tile is smaller.
    """
    rng = random.Random(seed)
    return sum(_tile(func, rng, unrolled, unequal) for func in _functions(module))


def _tile(func: ir.Operation, rng: random.Random, unrolled: bool, unequal: bool) -> int:
    tiled = _tiled(func)
    loops = _legal(tiled, rng, unequal=unequal)
    chosen = rng.sample(loops, min(len(loops), rng.choice((1, 1, 2, 2, 3))))
    given = 0
    while chosen and not given:
        apart = _unrolled(chosen, rng) if unrolled else ()
        given = sum(_give(each, chosen, rng.random() < 0.1, apart) for each in tiled)
    return given


def hint_at_random(module: ir.Module, device_ops: ir.Module, seed: int, *, unequal: bool = False) -> bool:
    """Names the dims of the arguments of a program and puts up to two random hints around some of its operations.

    ``device_ops`` is the same program at level device-ops, which gives the classes of dims and the legal numbers of
    tiles. False if there are none.
    """
    rng = random.Random(seed)
    (func,), (lowered,) = _functions(module), _functions(device_ops)
    tiled = _tiled(lowered)
    loops = _legal(tiled, rng, unequal=unequal)
    names, sizes = _argument_names(lowered, tiled, [found for found, _ in loops])
    counts = {f"d{number}": cut.tiles for number, (_, cut) in enumerate(loops) if f"d{number}" in sizes}
    if not counts:
        return False
    func.attributes[DIM_SIZES] = to_attribute(sizes)
    given = [ir.DictAttr(entry) for entry in func.attributes["arg_attrs"]]
    func.attributes["arg_attrs"] = ir.ArrayAttr.get(
        [_named(entry, own) for entry, own in zip(given, names, strict=True)]
    )
    _hint(func, rng.sample(sorted(counts.items()), min(len(counts), rng.choice((1, 2, 2)))), rng)
    return True


def _named(attributes: ir.DictAttr, names: Sequence[str]) -> ir.DictAttr:
    return ir.DictAttr.get({**{each.name: each.attr for each in attributes}, DIMS: to_attribute(list(names))})


def _hint(func: ir.Operation, tiles: Sequence[tuple[str, int]], rng: random.Random) -> None:
    """Set one hint with all tiles around all operations, or an outer hint and a nested one around some operations."""
    ops = [op.operation for op in func.regions[0].blocks[0].operations]
    ops = [op for op in ops if op.name.startswith("linalg.")]
    hints = [Hint(3 + number, (each,)) for number, each in enumerate(tiles)]
    if rng.random() < 0.5:
        hints = [Hint(3, tuple(tiles))]
    begin = rng.randrange(len(ops))
    inner = ops[begin : rng.randint(begin + 1, len(ops))]
    for op in ops:
        op.attributes[HINTS] = hints_attr(hints if op in inner else hints[:1])


def _argument_names(
    func: ir.Operation, tiled: Sequence[Tiled], classes: Sequence[DimClass]
) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """Return the names of the dims of each argument, "d0" for dims of the first class, and the sizes of all names."""
    arguments = list(func.regions[0].blocks[0].arguments)
    met = {(root, dim): number for root, dim, number in _met(tiled, classes)}
    sizes: dict[int, set[int]] = {}
    for (root, dim), number in met.items():
        sizes.setdefault(number, set()).add(shape_of(root)[dim])
    names, declared = [], {}
    for at, argument in enumerate(arguments):
        own: list[str] = []
        for dim, size in enumerate(shape_of(argument)):
            number = met.get((argument, dim))
            name = f"d{number}" if number is not None and len(sizes[number]) == 1 else f"x{at}_{dim}"
            own.append(f"x{at}_{dim}" if name in own else name)
            declared[own[-1]] = size
        names.append(tuple(own))
    return names, declared


def _met(tiled: Sequence[Tiled], classes: Sequence[DimClass]) -> Iterator[tuple[ir.Value, int, int]]:
    """Dims of arguments with the number of the class that they are in."""
    for each in tiled:
        for operand, value in enumerate(each.generic.inputs):
            traced = trace(value)
            for at, dim in enumerate(each.generic.maps[operand]):
                source = traced.dims[at]
                number = next((n for n, found in enumerate(classes) if dim in found.dims.get(each, ())), None)
                if isinstance(traced.root.owner, ir.Block) and source is not None and number is not None:
                    yield traced.root, source, number


def _functions(module: ir.Module) -> list[ir.Operation]:
    return [op.operation for op in module.operation.regions[0].blocks[0].operations]


def _tiled(func: ir.Operation) -> list[Tiled]:
    return list(Nests(func.regions[0].blocks[0]).tiled.values())


def _legal(
    tiled: Sequence[Tiled], rng: random.Random, *, by_sources: bool = True, unequal: bool = False
) -> list[Choice]:
    """The classes of dims that can be cut, each with random tiles."""
    found_classes = dim_classes(tiled, by_sources=by_sources)
    classes = (found for found in found_classes if all(map(_combines, found.dims, found.dims.values())))
    tiles = _unequal_tiles if unequal else _equal_tiles
    return [(found, cut) for found in classes if (cut := tiles(found, rng)) is not None]


def _combines(each: Tiled, dims: Sequence[int]) -> bool:
    """Return whether results over parts of some dims can be combined, which rows of a lookup table cannot."""
    return each.generic.opcode in COMBINE or not set(dims) & set(each.generic.reduced)


def _equal_tiles(found: DimClass, rng: random.Random) -> DimTiles | None:
    options = [tiles for tiles in (2, 3, 4, 5, 8, 16) if found.allows(tiles)]
    if not options:
        return None
    tiles = rng.choice(options)
    return DimTiles(tiles, Fraction(1, tiles))


def _unequal_tiles(found: DimClass, rng: random.Random) -> DimTiles | None:
    """Up to 16 tiles of which the last is smaller."""
    extent = math.gcd(*found.parts)
    unit = math.lcm(*(sticks // math.gcd(sticks, size // extent) for size, sticks in found.units))
    options = [tile for tile in range(unit, extent, unit) if extent % tile and -(-extent // tile) <= 16]
    if not options:
        return None
    tile = rng.choice(options)
    return DimTiles(-(-extent // tile), Fraction(tile, extent))


def _unrolled(chosen: Sequence[Choice], rng: random.Random) -> Sequence[int]:
    """The numbers of some loops that together make few operations of one."""
    numbers = range(len(chosen))
    tried = [rng.sample(numbers, rng.randint(1, len(chosen))) for _ in range(4)]
    return next((each for each in tried if math.prod(chosen[n][1].tiles for n in each) <= MOST_COPIES), ())


def _give(each: Tiled, chosen: Sequence[Choice], untiled: bool, unrolled: Sequence[int] = ()) -> int:
    """Return the loops of an operation, loops over reduced dims inside; some operations stay separate."""
    loops = [
        replace(
            cut.loop(f"1.{number}", found.dims[each][0], each.generic.extents[found.dims[each][0]]),
            unrolled=(number in unrolled) or None,
        )
        for number, (found, cut) in enumerate(chosen)
        if each in found.dims
    ]
    loops.sort(key=lambda loop: loop.dim in each.generic.reduced)
    if not loops or untiled:
        return 0
    each.op.attributes[TILING] = tiling_attr(loops)
    return len(loops)


def tile_keys_at_random(module: ir.Module, seed: int, *, apart: bool = False, unrolled: bool = False) -> None:
    """Gives attention of level device-ops a random loop over keys, inside of up to two others.

    With ``apart`` its neighbours, as what repeats the values, get these loops, too, so that not all
    of it can share them. With ``unrolled`` the loops around are written out.
    """
    rng = random.Random(seed)
    (func,) = _functions(module)
    tiled = _tiled(func)
    (found,) = (each for each in map(attention_of, (each.op for each in tiled)) if each is not None)
    ops = [each.op for each in found.ops]
    maximum = next(each for each in tiled if each.op == found.maximum.op)
    legal = _legal(tiled, rng, by_sources=False)
    loops = [choice for choice in legal if maximum in choice[0].dims]
    keys = [choice for choice in loops if found.maximum.reduced[0] in choice[0].dims[maximum]]
    assert keys, "the keys can be cut into equal tiles of whole sticks"
    around = [choice for choice in loops if choice not in keys]
    chosen = around if apart else rng.sample(around, rng.randint(0, len(around)))
    for each in tiled:
        if apart or each.op in ops:
            _give(each, [*chosen, *keys], untiled=False, unrolled=range(len(chosen) if unrolled else 0))
