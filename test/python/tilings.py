"""Random legal tilings of programs: dims that are one over neighbouring operations are cut together."""

from __future__ import annotations

import random

from spyre_mlir.dialects.hints import TILING, tiling_attr
from spyre_mlir.mlir import ir
from spyre_mlir.passes._dim_classes import DimClass, dim_classes
from spyre_mlir.passes._tile_nests import Nests, Tiled
from spyre_mlir.tiling.hints import TiledLoop


def tile_at_random(module: ir.Module, seed: int) -> int:
    """Gives operations of level device-ops up to three random loops; the number of loops in the attributes."""
    rng, given = random.Random(seed), 0
    for func in module.operation.regions[0].blocks[0].operations:
        tiled = list(Nests(func.operation.regions[0].blocks[0]).tiled.values())
        loops = [choice for choice in map(lambda each: (each, _tiles(each, rng)), dim_classes(tiled)) if choice[1]]
        chosen = rng.sample(loops, min(len(loops), rng.choice((1, 1, 2, 2, 3))))
        for each in tiled:
            given += _give(each, chosen, rng.random() < 0.1)
    return given


def _tiles(found: DimClass, rng: random.Random) -> int:
    options = [tiles for tiles in (2, 3, 4, 5, 8, 16) if found.allows(tiles)]
    return rng.choice(options) if options else 0


def _give(each: Tiled, chosen: list[tuple[DimClass, int]], untiled: bool) -> int:
    """The loops of an operation, those over reduced dims inside; some operations stay apart."""
    loops = [
        TiledLoop(f"1.{number}", found.dims[each][0], tiles)
        for number, (found, tiles) in enumerate(chosen)
        if each in found.dims
    ]
    loops.sort(key=lambda loop: loop.dim in each.generic.reduced)
    if not loops or untiled:
        return 0
    each.op.attributes[TILING] = tiling_attr(loops)
    return len(loops)
