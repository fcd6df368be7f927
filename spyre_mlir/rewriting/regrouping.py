"""Values with their dims taken apart, through the views that they come by.

A dim is taken apart into factors, outermost first, whose product is its size; the factors of a dim of size 1 are (1,),
others have none of 1. Where a value is a view, its source is taken apart in its place, so that a merge and a split of
the same dims cancel out.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from spyre_mlir.analysis.tile_nests import VIEWS
from spyre_mlir.analysis.view_ops import step_of
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.layout.view_transforms import Collapse, Expand, Transpose
from spyre_mlir.mlir import ir
from spyre_mlir.rewriting.tensor_builders import collapsed, expanded, transposed

#: Per dim its factors.
Factors = Sequence[tuple[int, ...]]


def regrouped(value: ir.Value, factors: Factors) -> ir.Value:
    """A value with a dim per factor, by views at the current insertion point."""
    op = defining_op(value)
    made = None
    if op is not None and op.name in VIEWS:
        step, source = step_of(op), op.operands[0]
        if isinstance(step, Transpose):
            made = _of_transposed(source, step.permutation, factors)
        elif isinstance(step, Collapse):
            made = _of_collapsed(source, step.groups, factors)
        elif isinstance(step, Expand):
            made = _of_expanded(source, step.groups, factors)
    return split(value, factors) if made is None else made


def split(value: ir.Value, factors: Factors) -> ir.Value:
    """A value with a dim per factor as a view of it."""
    shape = tuple(itertools.chain.from_iterable(factors))
    return value if shape == shape_of(value) else expanded(value, _groups(map(len, factors)), shape)


def merged(value: ir.Value, counts: Iterable[int]) -> ir.Value:
    """A value whose so many dims each are one."""
    groups = _groups(counts)
    return value if all(len(group) == 1 for group in groups) else collapsed(value, groups)


def _of_transposed(source: ir.Value, permutation: Sequence[int], factors: Factors) -> ir.Value:
    of_source = dict(zip(permutation, factors, strict=True))
    places = _groups(len(of_source[dim]) for dim in range(len(permutation)))
    inner = regrouped(source, [of_source[dim] for dim in range(len(permutation))])
    return transposed(inner, [place for dim in permutation for place in places[dim]])


def _of_expanded(source: ir.Value, groups: Sequence[Sequence[int]], factors: Factors) -> ir.Value | None:
    """The factors of a group are those of the source dim, but for dims of size 1, which it has not."""
    if not groups:
        return None
    wanted = [_together(factors[dim] for dim in group) for group in groups]
    inner = regrouped(source, wanted)
    shape = list(itertools.chain.from_iterable(factors))
    if list(shape_of(inner)) == shape:
        return inner
    counts = [sum(len(factors[dim]) for dim in group) for group in groups]
    return expanded(inner, _with_units(shape, counts), shape)


def _with_units(shape: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
    """The dims of ``shape``, so many for each source dim, in groups of one sized dim and those of size 1 around it."""
    groups: list[list[int]] = []
    for places in _groups(counts):
        groups.append([])
        for place in places:
            if shape[place] > 1 and any(shape[each] > 1 for each in groups[-1]):
                groups.append([])
            groups[-1].append(place)
    return groups


def _of_collapsed(source: ir.Value, groups: Sequence[Sequence[int]], factors: Factors) -> ir.Value | None:
    """None where a factor ends inside of a source dim that it does not divide."""
    shape = shape_of(source)
    if not groups:
        return None
    finest = [_common([shape[dim] for dim in group], own) for group, own in zip(groups, factors, strict=True)]
    inner: list[tuple[int, ...]] = []
    counts: list[int] = []
    for group, own, common in zip(groups, factors, finest, strict=True):
        if common is None:
            return None
        parts = _distributed(common, [shape[dim] for dim in group])
        inner += parts
        counts += _counts(list(itertools.chain.from_iterable(parts)), own)
    return merged(regrouped(source, inner), counts)


def _common(left: Sequence[int], right: Sequence[int]) -> list[int] | None:
    """The factors that both are made of, in order, none of them 1; None if there are none."""
    ends = sorted({*_ends(left), *_ends(right)})
    pairs = list(itertools.pairwise([1, *ends]))
    if any(after % before for before, after in pairs):
        return None
    return [after // before for before, after in pairs]


def _ends(sizes: Sequence[int]) -> list[int]:
    """The products of the first so many sizes, those above 1."""
    return [each for each in itertools.accumulate(sizes, lambda one, other: one * other) if each > 1]


def _distributed(common: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The common factors that each size is made of."""
    pending = iter(common)
    made = []
    for size in sizes:
        own: list[int] = []
        while math.prod(own) < size:
            own.append(next(pending))
        made.append(tuple(own) or (1,))
    return made


def _counts(common: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """How many of the factors, with some of 1 among them, each size is made of; the last takes those left over."""
    counts, at = [], 0
    for size in sizes:
        begin, product = at, 1
        while at < len(common) and (product < size or at == begin):
            product *= common[at]
            at += 1
        counts.append(at - begin)
    counts[-1] += len(common) - at
    return counts


def _together(factors: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(each for each in itertools.chain.from_iterable(factors) if each > 1) or (1,)


def _groups(counts: Iterable[int]) -> list[list[int]]:
    """So many successive numbers each."""
    numbers = itertools.count()
    return [list(itertools.islice(numbers, count)) for count in counts]
