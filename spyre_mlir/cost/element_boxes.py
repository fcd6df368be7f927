# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sets of tensor elements as boxes, one range of indices per dim, to count the elements that a program needs.

If boxes cannot represent a set exactly, the result is a subset: the count never exceeds the elements needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

#: One range per dim of a tensor; empty for a scalar.
Box = tuple[range, ...]

#: Maximum number of boxes of one tensor, or of single indices that replace a range; further ones are dropped.
_MOST = 64


def whole(shape: Sequence[int]) -> Box:
    """Return the box of all elements of a tensor."""
    return tuple(range(size) for size in shape)


def elements(box: Box) -> int:
    """Return the number of elements of one box."""
    return math.prod(len(dim) for dim in box)


def union(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """Return boxes with the same elements: contained boxes are dropped, neighbours are joined."""
    joined: list[Box] = []
    for box in boxes:
        if not elements(box):
            continue
        # A joined box may have another neighbour in turn.
        while (pair := _joined_with_one(box, joined)) is not None:
            box, other = pair
            joined.remove(other)
        joined.append(box)
    return tuple(sorted(joined, key=elements, reverse=True)[:_MOST])


def disjoint(boxes: Iterable[Box]) -> list[Box]:
    """Return disjoint boxes whose union is the union of ``boxes``, or a subset of it if a range has steps."""
    parts: list[Box] = []
    for box in boxes:
        rest = [box]
        for other in parts:
            rest = [piece for each in rest for piece in without(each, other)]
        parts += rest
    return parts


def without(box: Box, other: Box) -> list[Box]:
    """Return the elements of a box that are not in another box; empty if the intersection has no exact form."""
    common = tuple(_common(a, b) for a, b in zip(box, other, strict=True))
    if any(dim is not None and not dim for dim in common):
        return [box]
    if any(dim is None or a.step != 1 for dim, a in zip(common, box, strict=True)):
        differ = [dim for dim, (a, b) in enumerate(zip(box, other, strict=True)) if a != b]
        # Of a box with steps, only one dim may differ, and this dim must have step 1.
        if _contains(other, box) or None in common or len(differ) != 1 or box[differ[0]].step != 1:
            return []
        (dim,) = differ
        return [(*box[:dim], piece, *box[dim + 1 :]) for (piece,) in without((box[dim],), (other[dim],))]
    rest: list[Box] = []
    for dim, (a, b) in enumerate(zip(box, common, strict=True)):
        assert b is not None
        for piece in (range(a.start, b.start), range(b.stop, a.stop)):
            if piece:
                rest.append((*(each for each in common[:dim] if each is not None), piece, *box[dim + 1 :]))
    return rest


def split(indices: range, sizes: Sequence[int]) -> list[Box]:
    """Return the boxes, over dims of ``sizes``, of a range of row-major indices."""
    if not sizes:
        return [()] if indices else []
    if len(sizes) == 1 or not indices:
        return [(indices, *(range(size) for size in sizes[1:]))] if indices else []
    inner = math.prod(sizes[1:])
    if indices.step == 1:
        return _split_run(indices, sizes, inner)
    if indices.step % inner == 0:
        outer = range(indices.start // inner, indices[-1] // inner + 1, indices.step // inner)
        return [(outer, *box) for box in split(_one(indices.start % inner), sizes[1:])]
    return [
        (_one(index // inner), *box)
        for index in indices[:_MOST]
        for box in split(_one(index % inner), sizes[1:])
    ]


def joined(box: Box, sizes: Sequence[int]) -> list[range]:
    """Return the row-major indices of a box when dims of ``sizes`` become one dim: the inverse of ``split``."""
    if not box:
        return [range(1)]
    positions = [box[-1]]
    inner = sizes[-1]
    for outer, size in zip(box[-2::-1], sizes[-2::-1], strict=True):
        positions = [each for one in positions for each in _rows(outer, one, inner)][:_MOST]
        inner *= size
    return positions


def _rows(outer: range, columns: range, size: int) -> list[range]:
    """Return the row-major indices of the given columns in the rows ``outer``, each ``size`` elements long."""
    if outer.step == 1 and columns == range(size):
        return [range(outer.start * size, outer.stop * size)]
    if len(columns) == 1 and len(outer) > 1:
        last = outer[-1] * size + columns.start
        return [range(outer.start * size + columns.start, last + 1, outer.step * size)]
    return [
        range(row * size + columns.start, row * size + columns.stop, columns.step) for row in outer[:_MOST]
    ]


def _split_run(indices: range, sizes: Sequence[int], inner: int) -> list[Box]:
    """Split a contiguous range as ``split`` does: the end of a first row, whole rows, the start of a last row."""
    first, last = -(-indices.start // inner), indices.stop // inner
    rest = [range(size) for size in sizes[1:]]
    boxes: list[Box] = [(range(first, last), *rest)] if first < last else []
    if first > last:
        edges = [(indices.start, indices.stop)]
    else:
        edges = [(indices.start, first * inner), (last * inner, indices.stop)]
    for start, stop in edges:
        row = start // inner
        run = range(start - row * inner, stop - row * inner)
        boxes += [(_one(row), *box) for box in split(run, sizes[1:])]
    return boxes


def _joined_with_one(box: Box, others: Sequence[Box]) -> tuple[Box, Box] | None:
    """Return the union of ``box`` and one of ``others`` if the union is a box, and that other box; else None."""
    for other in others:
        differ = [dim for dim, (a, b) in enumerate(zip(box, other, strict=True)) if a != b]
        if not differ or _contains(other, box):
            return other, other
        if _contains(box, other):
            return box, other
        if len(differ) == 1:
            (dim,) = differ
            whole_range = _range_of_both(box[dim], other[dim])
            if whole_range is not None:
                return (*box[:dim], whole_range, *box[dim + 1 :]), other
    return None


def _range_of_both(one: range, other: range) -> range | None:
    """Return the union of two ranges as a range; None if the union is not a range."""
    low, high = sorted((one, other), key=lambda each: each.start)
    step = low.step if len(low) > 1 else high.step
    if step not in (low.step, high.step) or (len(low) > 1 and len(high) > 1 and low.step != high.step):
        return None
    if (high.start - low.start) % step == 0 and high.start <= low[-1] + step:
        return range(low.start, max(low[-1], high[-1]) + 1, step)
    # Every second index and those between.
    if 2 * (high.start - low.start) == step and 0 <= len(low) - len(high) <= 1:
        return range(low.start, max(low[-1], high[-1]) + 1, step // 2)
    return None


def _contains(box: Box, part: Box) -> bool:
    return all(
        b == a or (b[0] in a and b[-1] in a and (len(b) == 1 or b.step % a.step == 0))
        for a, b in zip(box, part, strict=True)
    )


def _common(one: range, other: range) -> range | None:
    """Return the intersection of two ranges; None if this function does not find it as a range."""
    if one.step == other.step == 1:
        return range(max(one.start, other.start), max(min(one.stop, other.stop), max(one.start, other.start)))
    if one == other:
        return one
    if one.step == other.step and (one.start - other.start) % one.step:
        return range(0)
    return None


def _one(index: int) -> range:
    return range(index, index + 1)
