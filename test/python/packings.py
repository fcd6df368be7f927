# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sets of buffers to be packed whole: MiniMalloc's hard instances, and rectangles cut without slack."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence

from foreign_data import INSTANCES

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer

#: Capacity of all of MiniMalloc's instances.
HARD_CAPACITY = 1_048_576

#: All sizes of MiniMalloc's instances are multiples of it.
_QUANTUM = 1024

Rectangle = tuple[int, int, int, int]


def hard(name: str) -> list[LifetimeBoundBuffer]:
    """An instance of MiniMalloc; ``FileNotFoundError`` without the file. Its lives are half-open."""
    with (INSTANCES / f"{name}.{HARD_CAPACITY}.csv").open(encoding="utf-8") as file:
        return [
            LifetimeBoundBuffer(row["id"], int(row["size"]), (int(row["lower"]), int(row["upper"]) - 1))
            for row in csv.DictReader(file)
        ]


def varied(name: str, seed: int) -> list[LifetimeBoundBuffer]:
    """An instance of MiniMalloc in another order, for odd seeds with time reversed, some buffers a quantum smaller."""
    rng = random.Random(f"{name}{seed}")
    end = max(buffer.last for buffer in hard(name))
    variants = []
    for buffer in hard(name):
        uses = (end - buffer.last, end - buffer.first) if seed % 2 else (buffer.first, buffer.last)
        size = max(_QUANTUM, buffer.size - _QUANTUM * rng.choice((0, 0, 0, 1)))
        variants.append(LifetimeBoundBuffer(buffer.name, size, uses))
    rng.shuffle(variants)
    return variants


def guillotine(count: int, seed: int, capacity: int = 1 << 20, time: int = 1000) -> list[LifetimeBoundBuffer]:
    """``count`` buffers that fill ``capacity`` over the whole of ``time``, from edge to edge cuts of that rectangle.

    Even seeds cut the largest piece in a random direction, odd ones a random piece.
    """
    rng = random.Random(seed)
    pieces = [(0, time, 0, capacity)]
    while len(pieces) < count:
        piece = rng.choice(pieces) if seed % 2 else max(pieces, key=_area)
        directions = [way for way in (0, 2) if piece[way + 1] - piece[way] > 1]
        if directions:
            pieces.remove(piece)
            pieces += _cut(piece, rng.choice(directions), rng)
    rng.shuffle(pieces)
    return [
        LifetimeBoundBuffer(f"b{at}", top - bottom, (begin, end - 1))
        for at, (begin, end, bottom, top) in enumerate(pieces)
    ]


def _area(piece: Rectangle) -> int:
    return (piece[1] - piece[0]) * (piece[3] - piece[2])


def _cut(piece: Rectangle, way: int, rng: random.Random) -> Sequence[Rectangle]:
    """Return two pieces, one after the other in time (way 0) or one above the other (way 2)."""
    begin, end, bottom, top = piece
    if way == 0:
        at = rng.randrange(begin + 1, end)
        return (begin, at, bottom, top), (at, end, bottom, top)
    at = rng.randrange(bottom + 1, top)
    return (begin, end, bottom, at), (begin, end, at, top)
