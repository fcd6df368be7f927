# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Splits merged dims, so that each name that a hint cuts has a separate dim."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import all_ops
from spyre_mlir.analysis.tile_nests import VIEWS
from spyre_mlir.analysis.view_ops import step_of
from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import DIMS, HINTS, dim_sizes_of, dims_attr, dims_of, hints_of
from spyre_mlir.dialects.structured import (
    Map,
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    shape_of,
    structured,
    use_empty,
)
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.layout.rules import stick_assignments
from spyre_mlir.layout.view_transforms import Collapse, Expand, Transpose
from spyre_mlir.layout_search.tensor_graph import signature
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.passes.lower_hints import NamedIterations
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import default_bytes
from spyre_mlir.rewriting.tensor_builders import collapsed, consecutive, expanded, transposed
from spyre_mlir.tiling import DimSplit, HintError, check_dims, dim_splits

#: Splits of iteration dims, by dim.
Splits = Mapping[int, DimSplit]


@dataclass(frozen=True)
class SplitNamedDims(Pass):
    """Split an iteration dim of several names if a hint cuts an inner name (``tiling/hint_tree.py``).

    Operands and results are regrouped by views. A new split cancels with an existing view that merged the dims, so
    operations between which a name is merged share the loops over the name. If an operation does not support another
    dim of the kind (a matmul has one reduced dim), the tile index becomes outermost in the existing dim, which copies
    the tensors with that dim. The remark reports the bytes.

    Before:
        %0 = exp(%x : tensor<4096>) {sdsc.dims = [["A", "B"]], sdsc.hints = [{tiles = [{dim = "B", count = 2}]}]}
    After:
        %0 = exp(expand_shape %x : tensor<16x256>) {sdsc.dims = [["A"], ["B"]], ..}; collapse_shape %0
    """

    name: ClassVar[str] = "split-named-dims"

    def run_on(self, func: ir.Operation) -> None:
        ops = all_ops(func)
        iterations, sizes = NamedIterations(), dim_sizes_of(func)
        splits: dict[ir.Value, Splits] = {}
        for op in ops:
            generic = iterations.visit(op)
            if generic is None:
                continue
            iteration = iterations.of(generic)
            try:
                check_dims(iteration, sizes)
            except HintError as error:
                raise error_at(op, str(error)) from None
            hints = hints_of(op.attributes[HINTS], op.location)
            tiles = {
                name: count for hint in hints for name, count in hint.tiles if count <= sizes.get(name, 1)
            }
            chosen: dict[int, DimSplit] = {}
            for dim, names in enumerate(iteration.dims):
                ways = dim_splits(names, iteration.sizes[dim], sizes, tiles, iteration.sticks.get(dim, 1))
                # The best split comes first: a split into dims, before a copy with the tile index outermost.
                way = next((way for way in ways if _is_legal(generic, {**chosen, dim: way})), None)
                if way is not None:
                    chosen[dim] = way
            if chosen:
                splits[generic.result] = chosen
        if splits:
            self._rewrite(ops, splits)

    def _rewrite(self, ops: Sequence[ir.Operation], splits: Mapping[ir.Value, Splits]) -> None:
        results: set[ir.Value] = set()
        for op in ops:
            generic = structured(op)
            if generic is None or not generic.opcode:
                continue
            with ir.InsertionPoint(op), op.location:
                if generic.result in splits:
                    self._report(generic, splits[generic.result])
                    results.add(_split(generic, splits[generic.result]))
                    continue
                # Other operations read split results without the views that cancel out.
                for number, value in enumerate(generic.inputs):
                    root = value
                    while (producer := defining_op(root)) is not None and producer.name in VIEWS:
                        root = producer.operands[0]
                    if root in results:
                        op.operands[number] = regrouped(value, [(size,) for size in shape_of(value)])
        # Views that cancelled out and the old operations are dead now.
        for op in reversed(ops):
            if (op.name in VIEWS or sdsc.OP in op.attributes) and use_empty(op.results[0]):
                op.erase()

    def _report(self, generic: Structured, splits: Splits) -> None:
        values = list(zip((*generic.inputs, generic.result), generic.maps, strict=True))
        target = target_of(generic.op)
        for dim, split in splits.items():
            size, copied = generic.extents[dim], 0
            if split.moves:
                # Maximum bytes that copies of all values with the dim read and write.
                for value in [value for value, dims in values if dim in dims]:
                    copied += 2 * default_bytes(target, shape_of(value), element_of(value))
                name, tiles = split.dims[0][0], split.sizes[1]
                text = f"iteration dim {dim} of {size} elements has the {tiles} tiles of '{name}' outermost: a copy"
            else:
                shown = " x ".join(
                    f"{extent} ({', '.join(names) or 'unnamed'})"
                    for names, extent in zip(split.dims, split.extents, strict=True)
                )
                text = f"iteration dim {dim} of {size} elements is split into {shown}"
            self.remark(generic.op, "tiling", text, before=0, after=copied)


def _is_legal(generic: Structured, splits: Splits) -> bool:
    """Return whether the device supports the operation with these dims, in the same stick form."""
    places = _places(generic, splits)
    extents = _extents(generic, splits)
    maps = tuple(_mapped(dims, places) for dims in generic.maps)
    values = (*generic.inputs, generic.result)
    shapes = tuple(tuple(1 if dim is None else extents[dim] for dim in dims) for dims in maps)
    reduced = tuple(place for dim in generic.reduced for place in places[dim])
    elements = tuple(map(element_of, values))
    iteration = signature(target_of(generic.op), generic.opcode, maps, shapes, elements, reduced).iteration
    return any(form.opcode == generic.opcode for form in stick_assignments(generic.opcode, iteration))


def _split(generic: Structured, splits: Splits) -> ir.Value:
    """Replace an operation by one over the new dims, and return the new result; the old result is a view of it."""
    places = _places(generic, splits)
    result = device_op(
        generic.opcode,
        [
            _viewed(value, value, dims, splits)
            for value, dims in zip(generic.inputs, generic.maps, strict=False)
        ],
        [_mapped(dims, places) for dims in generic.maps[:-1]],
        _extents(generic, splits),
        element_of(generic.result),
        location=generic.op.location,
        reduced=[place for dim in generic.reduced for place in places[dim]],
        result_map=_mapped(generic.maps[-1], places),
        constants=sdsc.constants_of(generic.op),
    )
    op = maker_of(result)
    sdsc.inherit(op, generic.op)
    op.attributes[HINTS] = generic.op.attributes[HINTS]
    names = (splits[dim].dims if dim in splits else (old,) for dim, old in enumerate(dims_of(generic.op)))
    op.attributes[DIMS] = dims_attr(list(itertools.chain.from_iterable(names)))
    old_result = _viewed(result, generic.result, generic.maps[-1], splits, is_split=True)
    generic.result.replace_all_uses_with(old_result)
    return result


def _viewed(value: ir.Value, old: ir.Value, dims: Map, splits: Splits, *, is_split: bool = False) -> ir.Value:
    """Return ``value`` with its dims split, or with the dims of ``old`` if it ``is_split``."""
    factors: list[tuple[int, ...]] = []
    order: list[int] = []
    counts: list[int] = []
    for dim, size in zip(dims, shape_of(old), strict=True):
        split, begin = splits.get(dim) if dim is not None else None, len(order)
        if split is None:
            factors.append((size,))
            order.append(begin)
            counts.append(1)
        elif is_split:
            factors += [tuple(split.sizes[index] for index in group) for group in split.groups]
            order += [begin + split.order.index(index) for index in range(len(split.sizes))]
            counts.append(len(split.sizes))
        else:
            factors.append(split.sizes)
            order += [begin + index for index in split.order]
            counts += [len(group) for group in split.groups]
    return merged(transposed(regrouped(value, factors), order), counts)


def _places(generic: Structured, splits: Splits) -> Sequence[tuple[int, ...]]:
    """Return the new dims of each iteration dim."""
    return consecutive(len(splits[dim].groups) if dim in splits else 1 for dim in range(len(generic.extents)))


def _extents(generic: Structured, splits: Splits) -> list[int]:
    return [
        extent
        for dim, size in enumerate(generic.extents)
        for extent in (splits[dim].extents if dim in splits else (size,))
    ]


def _mapped(dims: Map, places: Sequence[tuple[int, ...]]) -> Map:
    new: list[int | None] = []
    for dim in dims:
        new += [None] if dim is None else places[dim]
    return tuple(new)


# Splitting the dims of values into factors, through the views that define the values.
#
# The product of the factors of a dim, outermost first, is its size. A dim of size 1 has the factors (1,); other dims
# have no factor 1. If a value is a view, its source is split instead, so that a merge and a split of a dim cancel.

#: The factors of each dim.
Factors = Sequence[tuple[int, ...]]


def regrouped(value: ir.Value, factors: Factors) -> ir.Value:
    """Return a value with one dim per factor, by views at the current insertion point."""
    op = defining_op(value)
    view = None
    if op is not None and op.name in VIEWS:
        step, source = step_of(op), op.operands[0]
        if isinstance(step, Transpose):
            of_source = dict(zip(step.permutation, factors, strict=True))
            source_factors = [of_source[dim] for dim in range(len(step.permutation))]
            places = consecutive(map(len, source_factors))
            inner = regrouped(source, source_factors)
            view = transposed(inner, [place for dim in step.permutation for place in places[dim]])
        elif isinstance(step, Collapse):
            view = _of_collapsed(source, step.groups, factors)
        elif isinstance(step, Expand):
            view = _of_expanded(source, step.groups, factors)
    return split(value, factors) if view is None else view


def split(value: ir.Value, factors: Factors) -> ir.Value:
    """Return a view of a value with one dim per factor."""
    shape = tuple(itertools.chain.from_iterable(factors))
    return value if shape == shape_of(value) else expanded(value, consecutive(map(len, factors)), shape)


def merged(value: ir.Value, counts: Iterable[int]) -> ir.Value:
    """Merge successive dims of a value; ``counts`` are the numbers of dims that are merged."""
    groups = consecutive(counts)
    return value if all(len(group) == 1 for group in groups) else collapsed(value, groups)


def _of_expanded(source: ir.Value, groups: Sequence[Sequence[int]], factors: Factors) -> ir.Value | None:
    """Split the source of an expansion: a source dim gets all factors of its group except factors of 1."""
    if not groups:
        return None
    # Dims of size 1 are added after the source is split, because the source does not have them.
    sized = [[factor for dim in group for factor in factors[dim] if factor > 1] for group in groups]
    inner = regrouped(source, [tuple(group) or (1,) for group in sized])
    shape = list(itertools.chain.from_iterable(factors))
    if list(shape_of(inner)) == shape:
        return inner
    # Each dim of the source becomes one sized dim and dims of size 1.
    merged_dims: list[list[int]] = []
    for places in consecutive(sum(len(factors[dim]) for dim in group) for group in groups):
        merged_dims.append([])
        for place in places:
            if shape[place] > 1 and any(shape[other] > 1 for other in merged_dims[-1]):
                merged_dims.append([])
            merged_dims[-1].append(place)
    return expanded(inner, merged_dims, shape)


def _of_collapsed(source: ir.Value, groups: Sequence[Sequence[int]], factors: Factors) -> ir.Value | None:
    """Split the source of a merge; None if a factor ends inside a source dim that it does not divide."""
    shape = shape_of(source)
    if not groups:
        return None
    inner: list[tuple[int, ...]] = []
    counts: list[int] = []
    for group, dim_factors in zip(groups, factors, strict=True):
        sizes = [shape[dim] for dim in group]
        # The common refinement of both factorizations, without factors of 1.
        ends = {
            end for numbers in (sizes, dim_factors) for end in itertools.accumulate(numbers, operator.mul)
        }
        pairs = list(itertools.pairwise([1, *sorted(end for end in ends if end > 1)]))
        # The split cuts across the merged dims, so the merge is kept.
        if any(after % before for before, after in pairs):
            return None
        parts = _distributed([after // before for before, after in pairs], sizes)
        inner += parts
        counts += _counts(list(itertools.chain.from_iterable(parts)), dim_factors)
    return merged(regrouped(source, inner), counts)


def _distributed(common: Sequence[int], sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Distribute the common factors, in order, so that the product of each group is the corresponding size."""
    pending = iter(common)
    parts = []
    for size in sizes:
        factors: list[int] = []
        while math.prod(factors) < size:
            factors.append(next(pending))
        parts.append(tuple(factors) or (1,))
    return parts


def _counts(common: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return for each size the number of successive factors, 1s included, with that product; the last gets the rest."""
    counts, position = [], 0
    for size in sizes:
        begin, product = position, 1
        while position < len(common) and (product < size or position == begin):
            product *= common[position]
            position += 1
        counts.append(position - begin)
    counts[-1] += len(common) - position
    return counts
