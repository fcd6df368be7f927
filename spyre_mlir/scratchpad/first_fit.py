"""First fit: each buffer at the lowest address that is free over its whole life."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Lifetime:
    """``size`` bytes, live from op ``first`` to op ``last``, both included."""

    size: int
    first: int
    last: int


def first_fit(buffers: Sequence[Lifetime], alignment: int) -> tuple[list[int], int]:
    """Offsets of all buffers, in order of their first op, and the bytes needed.

    Memory is a sorted list of free holes; the work per buffer is the number of holes, which the largest
    number of buffers alive at once bounds.
    """
    offsets = [0] * len(buffers)
    holes: list[tuple[int, int]] = []  # (start, end), disjoint, ascending
    top = 0
    dying: list[tuple[int, int, int]] = []  # (last op, start, end)
    for index in sorted(range(len(buffers)), key=lambda index: (buffers[index].first, index)):
        buffer = buffers[index]
        while dying and dying[0][0] < buffer.first:
            _, start, end = heapq.heappop(dying)
            holes = _freed(holes, start, end)
        size = -(-buffer.size // alignment) * alignment
        at = next((at for at, (start, end) in enumerate(holes) if end - start >= size), None)
        if at is None:
            if holes and holes[-1][1] == top:
                start = holes.pop()[0]
            else:
                start = top
            top = start + size
        else:
            start, end = holes[at]
            holes[at : at + 1] = [(start + size, end)] if start + size < end else []
        offsets[index] = start
        heapq.heappush(dying, (buffer.last, start, start + size))
    return offsets, top


def _freed(holes: list[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """Gives back a range, joined with its neighbours."""
    merged: list[tuple[int, int]] = []
    for hole in sorted([*holes, (start, end)]):
        if merged and merged[-1][1] == hole[0]:
            merged[-1] = (merged[-1][0], hole[1])
        else:
            merged.append(hole)
    return merged
