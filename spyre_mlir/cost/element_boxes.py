# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sets of elements of a tensor as boxes, one range of indices per dim, to count what a program needs of it.

Where a set has no exact form here, the result is a part of it: what is counted is never more than what is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

#: One range per dim of a tensor; of a scalar it is empty.
Box = tuple[range, ...]

#: More boxes than these of one tensor, or single indices in place of a range, are dropped.
_MOST = 64


def whole(shape: Sequence[int]) -> Box:
    """The box of all elements of a tensor."""
    return tuple(range(size) for size in shape)


def elements(box: Box) -> int:
    """Number of elements of one box."""
    return math.prod(len(dim) for dim in box)


def union(boxes: Iterable[Box]) -> tuple[Box, ...]:
    """Boxes with the same elements, those that lie in others dropped and neighbours joined."""
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
    """Boxes without a common element that are the union of some, or only a part where a range has steps."""
    parts: list[Box] = []
    for box in boxes:
        rest = [box]
        for other in parts:
            rest = [piece for each in rest for piece in without(each, other)]
        parts += rest
    return parts


def without(box: Box, other: Box) -> list[Box]:
    """Elements of a box that are not in another one; nothing where the common part has no exact form."""
    common = tuple(_common(a, b) for a, b in zip(box, other, strict=True))
    if any(dim is not None and not dim for dim in common):
        return [box]
    if any(dim is None or a.step != 1 for dim, a in zip(common, box, strict=True)):
        return [] if _contains(other, box) or None in common else _without_stepped(box, other)
    rest: list[Box] = []
    for dim, (a, b) in enumerate(zip(box, common, strict=True)):
        assert b is not None
        for piece in (range(a.start, b.start), range(b.stop, a.stop)):
            if piece:
                rest.append((*(each for each in common[:dim] if each is not None), piece, *box[dim + 1 :]))
    return rest


def split(indices: range, sizes: Sequence[int]) -> list[Box]:
    """The boxes, over dims of these sizes, of a range of row-major positions."""
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
    """The row-major positions, in a dim as large as all of these, of a box over them: the inverse of ``split``."""
    if not box:
        return [range(1)]
    positions = [box[-1]]
    inner = sizes[-1]
    for outer, size in zip(box[-2::-1], sizes[-2::-1], strict=True):
        positions = [each for one in positions for each in _rows(outer, one, inner)][:_MOST]
        inner *= size
    return positions


def _rows(outer: range, columns: range, size: int) -> list[range]:
    """Positions in rows of so many elements of these columns of some rows."""
    if outer.step == 1 and columns == range(size):
        return [range(outer.start * size, outer.stop * size)]
    if len(columns) == 1 and len(outer) > 1:
        last = outer[-1] * size + columns.start
        return [range(outer.start * size + columns.start, last + 1, outer.step * size)]
    return [
        range(row * size + columns.start, row * size + columns.stop, columns.step) for row in outer[:_MOST]
    ]


def _split_run(indices: range, sizes: Sequence[int], inner: int) -> list[Box]:
    """As ``split``: the end of a first row, whole rows, the begin of a last one."""
    first, last = -(-indices.start // inner), indices.stop // inner
    rest = [range(size) for size in sizes[1:]]
    boxes: list[Box] = [(range(first, last), *rest)] if first < last else []
    edges = (
        [(indices.start, indices.stop)]
        if first > last
        else [(indices.start, first * inner), (last * inner, indices.stop)]
    )
    for start, stop in edges:
        row = start // inner
        run = range(start - row * inner, stop - row * inner)
        boxes += [(_one(row), *box) for box in split(run, sizes[1:])]
    return boxes


def _joined_with_one(box: Box, others: Sequence[Box]) -> tuple[Box, Box] | None:
    """The union of a box and one of others that is a box, and that one."""
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
    """The range of the elements of two; None if they are none."""
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
    """The common elements of two ranges; None where they are no range that is found here."""
    if one.step == other.step == 1:
        return range(max(one.start, other.start), max(min(one.stop, other.stop), max(one.start, other.start)))
    if one == other:
        return one
    if one.step == other.step and (one.start - other.start) % one.step:
        return range(0)
    return None


def _without_stepped(box: Box, other: Box) -> list[Box]:
    """Of boxes with steps only one dim may differ from the other's, and that one without steps."""
    differ = [dim for dim, (a, b) in enumerate(zip(box, other, strict=True)) if a != b]
    if len(differ) != 1 or box[differ[0]].step != 1:
        return []
    (dim,) = differ
    pieces = without((box[dim],), (other[dim],))
    return [(*box[:dim], piece, *box[dim + 1 :]) for (piece,) in pieces]


def _one(index: int) -> range:
    return range(index, index + 1)
