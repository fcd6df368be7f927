# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Values with their dims split into factors, through the views that define them.

The factors of a dim, outermost first, have its size as their product; those of a dim of size 1 are (1,), others have
none of 1. Where a value is a view, its source is split instead, so that a merge and a split of the same dims cancel.
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
    view = None
    if op is not None and op.name in VIEWS:
        step, source = step_of(op), op.operands[0]
        if isinstance(step, Transpose):
            view = _of_transposed(source, step.permutation, factors)
        elif isinstance(step, Collapse):
            view = _of_collapsed(source, step.groups, factors)
        elif isinstance(step, Expand):
            view = _of_expanded(source, step.groups, factors)
    return split(value, factors) if view is None else view


def split(value: ir.Value, factors: Factors) -> ir.Value:
    """A value with a dim per factor as a view of it."""
    shape = tuple(itertools.chain.from_iterable(factors))
    return value if shape == shape_of(value) else expanded(value, _groups(map(len, factors)), shape)


def merged(value: ir.Value, counts: Iterable[int]) -> ir.Value:
    """Merge successive dims of a value, ``counts`` of them each."""
    groups = _groups(counts)
    return value if all(len(group) == 1 for group in groups) else collapsed(value, groups)


def _of_transposed(source: ir.Value, permutation: Sequence[int], factors: Factors) -> ir.Value:
    of_source = dict(zip(permutation, factors, strict=True))
    places = _groups(len(of_source[dim]) for dim in range(len(permutation)))
    inner = regrouped(source, [of_source[dim] for dim in range(len(permutation))])
    return transposed(inner, [place for dim in permutation for place in places[dim]])


def _of_expanded(source: ir.Value, groups: Sequence[Sequence[int]], factors: Factors) -> ir.Value | None:
    """Split the source of an expansion: the factors of a group are those of the source dim, without dims of size 1."""
    if not groups:
        return None
    # Dims of size 1 are added after the source is split, for it has none of them.
    source_factors = [_together(factors[dim] for dim in group) for group in groups]
    inner = regrouped(source, source_factors)
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
            if shape[place] > 1 and any(shape[other] > 1 for other in groups[-1]):
                groups.append([])
            groups[-1].append(place)
    return groups


def _of_collapsed(source: ir.Value, groups: Sequence[Sequence[int]], factors: Factors) -> ir.Value | None:
    """Split the source of a merge; None where a factor ends inside of a source dim that it does not divide."""
    shape = shape_of(source)
    if not groups:
        return None
    finest = [
        _common([shape[dim] for dim in group], dim_factors)
        for group, dim_factors in zip(groups, factors, strict=True)
    ]
    inner: list[tuple[int, ...]] = []
    counts: list[int] = []
    for group, dim_factors, common in zip(groups, factors, finest, strict=True):
        # The split cuts across the dims that were merged, so the merge stays.
        if common is None:
            return None
        parts = _distributed(common, [shape[dim] for dim in group])
        inner += parts
        counts += _counts(list(itertools.chain.from_iterable(parts)), dim_factors)
    return merged(regrouped(source, inner), counts)


def _common(first: Sequence[int], second: Sequence[int]) -> list[int] | None:
    """The common refinement of two factorizations, without factors of 1; None if there is none."""
    ends = sorted({*_ends(first), *_ends(second)})
    pairs = list(itertools.pairwise([1, *ends]))
    if any(after % before for before, after in pairs):
        return None
    return [after // before for before, after in pairs]


def _ends(sizes: Sequence[int]) -> list[int]:
    """The products of prefixes of sizes, those above 1."""
    return [product for product in itertools.accumulate(sizes, lambda one, other: one * other) if product > 1]


def _distributed(common: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The common factors, in order, whose product is each size."""
    pending = iter(common)
    parts = []
    for size in sizes:
        factors: list[int] = []
        while math.prod(factors) < size:
            factors.append(next(pending))
        parts.append(tuple(factors) or (1,))
    return parts


def _counts(common: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The number of successive factors whose product is each size, units included; the last has all that remain."""
    counts, position = [], 0
    for size in sizes:
        begin, product = position, 1
        while position < len(common) and (product < size or position == begin):
            product *= common[position]
            position += 1
        counts.append(position - begin)
    counts[-1] += len(common) - position
    return counts


def _together(factors: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(factor for factor in itertools.chain.from_iterable(factors) if factor > 1) or (1,)


def _groups(counts: Iterable[int]) -> list[list[int]]:
    """Groups of successive numbers, ``counts`` of them each."""
    numbers = itertools.count()
    return [list(itertools.islice(numbers, count)) for count in counts]
