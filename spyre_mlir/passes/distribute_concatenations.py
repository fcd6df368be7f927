# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes operations on concatenated tensors part by part, so that the concatenation is not stored."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.view_ops import reassociation_of
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.hint_attributes import hints_in
from spyre_mlir.dialects.structured import defining_op, maker_of, shape_of, use_empty
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import CALL, block_order, default_bytes, is_constant, program_of
from spyre_mlir.rewriting.tensor_builders import (
    DYNAMIC,
    collapsed,
    concatenated,
    element_type,
    empty,
    empty_like,
    expanded,
    extracted,
    generic_op,
    scalar_op,
    sliced,
    with_body,
)

_CONCAT, _GENERIC, _SLICE = "tensor.concat", "linalg.generic", "tensor.extract_slice"
_COLLAPSE, _EXPAND, _WINDOWS = "tensor.collapse_shape", "tensor.expand_shape", "sdsc.windows"

#: Operations between the sums of a product and the operation that rounds them.
_BEFORE_ROUNDING = (_GENERIC, _COLLAPSE, _EXPAND)

#: Dialects of the scalar operations in a body that is a function of the elements at one point.
_SCALAR = ("arith.", "math.", "linalg.yield")


@dataclass(frozen=True)
class DistributeConcatenations(EvaluatingPass):
    """Apply operations to the parts of a concatenation, if the concatenation is then not stored and time is saved.

    The rules follow from the indexing maps, for a dim k that indexes the concatenated dim:

        f(cat(a, b))                  = cat(f(a), f(b))                  k is parallel
        reduce(cat(a, b), init)       = reduce(b, reduce(a, init))       k is reduced
        cat(a, b) @ w                 = a @ w[:n] + b @ w[n:]            k is reduced, other operands are sliced
        slice(cat(a, b))              = slice(a), or cat(slice(a), slice(b))
        cat(cat(a, b), c)             = cat(a, b, c)

    Reductions and slices absorb the parts. The pass collects the operations from a concatenation to such operations,
    and rewrites them only if no other operation reads a concatenated value. So the extra columns of a softmax, or
    feature maps that grow by concatenation, never exist as one tensor. Products absorb the parts if their other operand
    is an argument or a constant, which the host cuts: weights, but not the keys of an attention. The cost model decides
    between both forms, except for reductions of a concatenation that does not fit in the scratchpads: its tiles are
    chosen later, and the smaller parts never need more.

    ``parts`` is the maximum number of parts of a concatenation. Without ``compare``, the pass rewrites all.

    Before, after ``linalg-generalize-named-ops``:
        %c = tensor.concat dim(1) %a, %b; %e = exp %c; %s = sum %e over d1
    After:
        %ea = exp %a; %eb = exp %b; %sa = sum %ea over d1 from 0; %s = sum %eb over d1 from %sa
    """

    name: ClassVar[str] = "distribute-concatenations"
    parts: int = 8
    compare: bool = True

    def decide_on(self, func: ir.Operation, evaluator: Evaluator) -> None:
        ops = [op.operation for op in func.regions[0].blocks[0].operations]
        roots, chosen = [op for op in ops if op.name == _CONCAT], []
        regions = [region for root in roots if (region := _Region(root, self.parts)).is_absorbed]
        for chain in _chains(regions):
            span = _span_of(ops, chain)
            # Hints name dims of whole operations, and a function of a call is outside of the evaluated program.
            if any(op.name == CALL or hints_in(op.location) is not None for op in span):
                continue
            before, after = (program_of(span, arguments=True) for _ in range(2))
            inner = functions(after.operation)[0].regions[0].blocks[0]
            self._distribute([op.operation for op in inner.operations if op.operation.name == _CONCAT])
            count = len(set().union(*(region.ops for region in chain))) - len(chain)
            text = f"{count} operations on {len(chain)} concatenations part by part"
            is_better = not self.compare or (
                not any(region.adds_sums for region in chain) and _is_large(chain[0].ops[0])
            )
            if not is_better:
                together, by_part = evaluator.cost(before), evaluator.cost(after)
                is_better = by_part is not None and (
                    together is None or by_part.nanoseconds < together.nanoseconds
                )
                text += f": {by_part or 'not possible'}, together {together or 'not possible'}"
            self.remark(span[0], "rewrite" if is_better else "no rewrite", text)
            if is_better:
                chosen += [region.ops[0] for region in chain]
        self._distribute(chosen)

    def _distribute(self, roots: list[ir.Operation]) -> None:
        """Write the operations on each concatenation part by part, and erase unused operations."""
        while roots:
            region = _Region(roots.pop(0), self.parts)
            if not region.is_absorbed:
                continue
            for old, new in _PartWriter(region).written().items():
                old.replace_all_uses_with(new)
                if maker_of(old) in roots:
                    # The concatenation now contains the parts of another one.
                    roots[roots.index(maker_of(old))] = maker_of(new)
            for op in reversed(region.ops):
                op.erase()


def _is_large(root: ir.Operation) -> bool:
    """Return whether a concatenation of 16-bit elements does not fit in the scratchpads.

    Its operations are tiled together with their neighbours later, so their cost alone is not a measure.
    """
    target = target_of(root)
    return default_bytes(target, shape_of(root.results[0]), "f16") > target.cores * target.usable_lx_bytes


def _span_of(ops: Sequence[ir.Operation], chain: Sequence[_Region]) -> list[ir.Operation]:
    """Return the operations of a block from the first to the last operation of a chain, and the readers of f32 results.

    Constants are omitted, because each program copies what it reads. The sums of a product are f32 until a later
    operation rounds them, and the device computes both as one operation.
    """
    first, last = ops.index(chain[0].ops[0]), max(ops.index(region.ops[-1]) for region in chain)
    span = [op for op in ops[first : last + 1] if not is_constant(op)]
    sums = {value for op in span for value in op.results if str(element_type(value)) == "f32"}
    for op in ops[last + 1 :]:
        if op.name in _BEFORE_ROUNDING and any(value in sums for value in op.operands):
            span.append(op)
            sums |= {value for value in op.results if str(element_type(value)) == "f32"}
    return span


def _chains(regions: Sequence[_Region]) -> list[list[_Region]]:
    """Group regions that have operations in common, such as tensors that grow by several concatenations."""
    chains: list[list[_Region]] = []
    for region in regions:
        linked = [chain for chain in chains if any(set(region.ops) & set(other.ops) for other in chain)]
        chains = [chain for chain in chains if chain not in linked]
        chains.append([*itertools.chain.from_iterable(linked), region])
    return chains


#: The dim along which a value is a concatenation, and the sizes of the parts.
Split = tuple[int, tuple[int, ...]]


class _Region:
    """The operations between a concatenation and the operations that absorb its parts.

    Attributes:
        ops: The operations in block order, the concatenation first.
        splits: The values that exist only in parts.
        adds_sums: Whether an operation that absorbs the parts is a product, which is computed for each part.
        is_absorbed: Whether all operations that read such a value are part of the region.
    """

    def __init__(self, root: ir.Operation, most: int) -> None:
        dim = ir.IntegerAttr(root.attributes["dim"]).value
        sizes = tuple(shape_of(part)[dim] for part in root.operands)
        self.splits: dict[ir.Value, Split] = {root.results[0]: (dim, sizes)}
        self.adds_sums = False
        reached, pending = {root}, [root.results[0]]
        self.is_absorbed = len(sizes) <= most and not use_empty(root.results[0])
        while pending and self.is_absorbed:
            value = pending.pop()
            for use in value.uses:
                user = use.owner.operation
                split = self._split(user) if user.block == root.block else None
                if split is None:
                    self.is_absorbed = False
                    break
                reached.add(user)
                if split and user.results[0] not in self.splits:
                    self.splits.update(dict.fromkeys(user.results, split))
                    pending += user.results
        self.ops = sorted(reached, key=functools.cmp_to_key(block_order)) if self.is_absorbed else []

    def _split(self, op: ir.Operation) -> Split | tuple[()] | None:
        """Return how the result of an operation is split; empty if the parts are absorbed, None if neither holds."""
        split = {index: self.splits[value] for index, value in enumerate(op.operands) if value in self.splits}
        if op.name == _GENERIC:
            return self._split_of_generic(op, split)
        if list(split) != [0] and op.name != _CONCAT:
            return None
        dim, sizes = next(iter(split.values()))
        if op.name == _CONCAT:
            return () if ir.IntegerAttr(op.attributes["dim"]).value == dim else None
        if op.name == _SLICE:
            pieces = slice_of_parts(op, dim, sizes)
            if pieces is None or len(pieces) == 1:
                return None if pieces is None else ()
            kept = _kept_dims(
                list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"])), shape_of(op.results[0])
            )
            return (kept.index(dim), tuple(size for _, _, size in pieces)) if dim in kept else None
        if op.name == _WINDOWS:
            # Each windowed dim becomes two dims.
            windowed = list(ir.DenseI64ArrayAttr(op.attributes["dims"]))
            return None if dim in windowed else (dim + sum(each < dim for each in windowed), sizes)
        if op.name == _COLLAPSE:
            group_index, group = _group_with(op, dim)
            shape, place = shape_of(op.operands[0]), group.index(dim)
            if math.prod(shape[each] for each in group[:place]) > 1:
                return None
            inner = math.prod(shape[each] for each in group[place + 1 :])
            return group_index, tuple(size * inner for size in sizes)
        if op.name == _EXPAND:
            group, shape = reassociation_of(op)[dim], shape_of(op.results[0])
            outer = next((each for each in group if shape[each] > 1), group[0])
            inner = math.prod(shape[each] for each in group if each > outer)
            return (
                None
                if any(size % inner for size in sizes)
                else (outer, tuple(size // inner for size in sizes))
            )
        return None

    def _split_of_generic(self, op: ir.Operation, split: dict[int, Split]) -> Split | tuple[()] | None:
        maps = indexing_maps(op)
        named = {(str(maps[index].results[dim]), sizes) for index, (dim, sizes) in split.items()}
        if len(named) != 1:
            return None
        ((name, sizes),) = named
        index = next(iter(split))
        expression = maps[index].results[split[index][0]]
        if not isinstance(expression, ir.AffineDimExpr) or not _is_pointwise(op, expression.position):
            return None
        # Each operand that is indexed by the dim can be cut only if the dim alone indexes it, and only once.
        uses = [[str(result) for result in map_.results].count(name) for map_ in maps]
        mentions = [sum(_mentions(result, expression) for result in map_.results) for map_ in maps]
        if uses != mentions or max(uses) > 1:
            return None
        outputs = maps[len(maps) - len(op.results) :]
        if "parallel" in str(op.attributes["iterator_types"][expression.position]):
            found = {tuple(map(str, map_.results)) for map_ in outputs}
            places = {results.index(name) if name in results else None for results in found}
            place = places.pop()
            return None if places or place is None else (place, sizes)
        # A product of parts needs parts of its other operands, which only the host cuts for free.
        others = [value for index, value in enumerate(op.operands) if uses[index] and index not in split]
        self.adds_sums |= len(others) > 0
        return () if len(split) == 1 and all(map(_is_given, others)) else None


def _is_given(value: ir.Value) -> bool:
    """Return whether a value is an argument or a constant, or a view, transpose or cast of one."""
    while (op := defining_op(value)) is not None:
        if op.name == "arith.constant":
            return True
        if op.name not in (_SLICE, _COLLAPSE, _EXPAND) and not (
            op.name == _GENERIC and len(op.operands) == 2
        ):
            return False
        value = op.operands[0]
    return True


def _group_with(op: ir.Operation, dim: int) -> tuple[int, tuple[int, ...]]:
    return next((index, group) for index, group in enumerate(reassociation_of(op)) if dim in group)


def _mentions(expression: ir.AffineExpr, dim: ir.AffineDimExpr) -> bool:
    if isinstance(expression, ir.AffineDimExpr):
        return expression.position == dim.position
    return isinstance(expression, ir.AffineBinaryExpr) and (
        _mentions(expression.lhs, dim) or _mentions(expression.rhs, dim)
    )


def _is_pointwise(op: ir.Operation, dim: int) -> bool:
    """Return whether the body of an operation depends only on the elements at one point, not on the index of a dim."""
    for inner in op.regions[0].blocks[0].operations:
        is_index = (
            inner.operation.name == "linalg.index" and ir.IntegerAttr(inner.attributes["dim"]).value != dim
        )
        if not is_index and not inner.operation.name.startswith(_SCALAR):
            return False
    return True


def slice_of_parts(op: ir.Operation, dim: int, sizes: Sequence[int]) -> list[tuple[int, int, int]] | None:
    """Return part, offset in the part, and size of each piece that a slice takes; None for another stride or offset."""
    offset, size, stride = (
        list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"]))[dim]
        for name in ("offsets", "sizes", "strides")
    )
    if DYNAMIC in (offset, size) or stride != 1 or len(op.operands) > 1:
        return None
    pieces = []
    for part, (end, extent) in enumerate(zip(itertools.accumulate(sizes), sizes, strict=True)):
        first, last = max(offset, end - extent), min(offset + size, end)
        if first < last:
            pieces.append((part, first - (end - extent), last - first))
    return pieces


def _kept_dims(sizes: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Return the dims of ``sizes`` that a ``shape`` without some dims of size 1 keeps."""
    kept, rest = list[int](), list(shape)
    for dim, size in enumerate(sizes):
        if rest and size == rest[0]:
            kept.append(dim)
            rest.pop(0)
    return kept


def _without_unit_dims(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Return a value without the dims of size 1 that ``shape`` lacks, as a view."""
    kept = _kept_dims(shape_of(value), shape)
    if len(kept) == len(shape_of(value)):
        return value
    ends = [*kept[1:], len(shape_of(value))][: len(kept)]
    return collapsed(
        value,
        [range(index and first, end) for index, (first, end) in enumerate(zip(kept, ends, strict=True))],
    )


def _on_part(op: ir.Operation, operands: Sequence[ir.Value], column: int | None) -> list[ir.Value]:
    """Build a generic operation on other operands; ``column`` is a dim of one element, which is dropped."""
    first_output = len(operands) - len(op.results)
    shapes = [shape_of(value) for value in operands[first_output:]]
    if column is None:
        return _on(op, operands)
    maps, name = indexing_maps(op), f"d{column}"
    dims: list[ir.AffineExpr] = [ir.AffineDimExpr.get(dim - (dim > column)) for dim in range(maps[0].n_dims)]
    dims[column] = ir.AffineConstantExpr.get(0)
    without = ir.AffineMap.get(len(dims) - 1, 0, dims)
    named = [[str(result) for result in map_.results] for map_ in maps]
    places = [results.index(name) if name in results else None for results in named]
    changed = [
        [result.compose(without) for at, result in enumerate(map_.results) if at != place]
        for map_, place in zip(maps, places, strict=True)
    ]
    inputs = [
        value if place is None else collapsed(value, _groups_without(len(shape_of(value)), place))
        for value, place in zip(operands, places, strict=True)
    ]
    results = _on(op, inputs)
    copy = maker_of(results[0])
    attributes = [ir.AffineMapAttr.get(ir.AffineMap.get(len(dims) - 1, 0, each)) for each in changed]
    kinds = list(ir.ArrayAttr(op.attributes["iterator_types"]))
    copy.attributes["indexing_maps"] = ir.ArrayAttr.get(attributes)
    copy.attributes["iterator_types"] = ir.ArrayAttr.get(kinds[:column] + kinds[column + 1 :])
    for inner in copy.regions[0].blocks[0].operations:
        if inner.operation.name == "linalg.index":
            dim = ir.IntegerAttr(inner.attributes["dim"])
            inner.attributes["dim"] = ir.IntegerAttr.get(dim.type, dim.value - (dim.value > column))
    return [
        result if place is None else expanded(result, _groups_without(len(shape), place), shape)
        for result, shape, place in zip(results, shapes, places[first_output:], strict=True)
    ]


def _on(op: ir.Operation, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Build a copy of a generic operation on other operands."""
    copy = op.clone().operation
    for number, value in enumerate(operands):
        copy.operands[number] = value
    for result, value in zip(copy.results, operands[len(operands) - len(op.results) :], strict=True):
        result.set_type(value.type)
    return list(copy.results)


def _groups_without(rank: int, dim: int) -> list[list[int]]:
    """Return the reassociation that merges a dim of one element with the dim before it, or after the first dim."""
    groups = [[each] for each in range(rank) if each != dim]
    if groups:
        groups[max(dim - 1, 0)].insert(int(dim > 0), dim)
    return groups


def _sum(one: ir.Value, other: ir.Value) -> ir.Value:
    """Build the elementwise sum of two tensors of floating-point numbers."""
    dims = tuple(range(len(shape_of(one))))
    op = generic_op([one, other], empty_like(one), [dims] * 3, len(dims), 0)
    return with_body(op, lambda read: scalar_op("arith.addf", read[:2]))


class _PartWriter:
    """Writes the operations of a region part by part, each before the operation that it replaces."""

    def __init__(self, region: _Region) -> None:
        self.region = region
        self.parts: dict[ir.Value, list[ir.Value]] = {}
        self.values: dict[ir.Value, ir.Value] = {}

    def written(self) -> dict[ir.Value, ir.Value]:
        """Write all operations; return the values that replace the results of absorbing operations."""
        root, *ops = self.region.ops
        self.parts[root.results[0]] = list(root.operands)
        for op in ops:
            with ir.InsertionPoint(op), op.location:
                (self._generic if op.name == _GENERIC else self._view)(op)
        return self.values

    def _cut(self, value: ir.Value, dim: int, sizes: Sequence[int], part: int) -> ir.Value:
        """Return one part of a value that is whole, or that the region has in parts."""
        if value in self.parts:
            return self.parts[value][part]
        shape = list(shape_of(value))
        offsets = [0] * len(shape)
        offsets[dim], shape[dim] = sum(sizes[:part]), sizes[part]
        op = defining_op(value)
        if op is not None and op.name in ("tensor.empty", "linalg.fill"):
            new = empty(shape, element_type(value))
            if op.name == "tensor.empty":
                return new
            fill = op.clone().operation
            fill.operands[1] = new
            fill.results[0].set_type(new.type)
            return fill.results[0]
        return extracted(value, offsets, shape)

    def _generic(self, op: ir.Operation) -> None:
        maps = indexing_maps(op)
        index = next(index for index, value in enumerate(op.operands) if value in self.region.splits)
        dim, sizes = self.region.splits[op.operands[index]]
        name = str(maps[index].results[dim])
        # An operation that an earlier pass named, such as a convolution, ignores its destination.
        is_split, is_named = op.results[0] in self.region.splits, sdsc.OP in op.attributes
        outputs, results = len(op.operands) - len(op.results), []
        for part in range(len(sizes)):
            operands = []
            for number, (value, map_) in enumerate(zip(op.operands, maps, strict=True)):
                dims = [str(result) for result in map_.results]
                if not is_split and number >= outputs and results and not is_named:
                    operands.append(results[-1][number - outputs])  # the partial result of the parts before
                else:
                    operands.append(
                        self._cut(value, dims.index(name), sizes, part) if name in dims else value
                    )
            column = maps[index].results[dim].position if sizes[part] == 1 and not is_named else None
            sums = _on_part(op, operands, column)
            if is_named and results and not is_split:
                sums = [_sum(*pair) for pair in zip(results[-1], sums, strict=True)]
            results.append(sums)
        for number, result in enumerate(op.results):
            if is_split:
                self.parts[result] = [each[number] for each in results]
            else:
                self.values[result] = results[-1][number]

    def _view(self, op: ir.Operation) -> None:
        result, source = op.results[0], op.operands[0]
        if op.name == _CONCAT:
            dim = ir.IntegerAttr(op.attributes["dim"]).value
            parts = [part for value in op.operands for part in self.parts.get(value, [value])]
            self.values[result] = concatenated(parts, dim)
            return
        dim, sizes = self.region.splits[source]
        if op.name != _SLICE:
            to, to_sizes = self.region.splits[result]
            self.parts[result] = []
            for part, size in zip(self.parts[source], to_sizes, strict=True):
                shape = list(shape_of(result))
                shape[to] = size
                view = op.clone().operation
                view.operands[0] = part
                view.results[0].set_type(ir.RankedTensorType.get(shape, element_type(part)))
                if op.name == _EXPAND:
                    view.attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(shape)
                self.parts[result].append(view.results[0])
            return
        pieces = slice_of_parts(op, dim, sizes)
        assert pieces is not None
        written = []
        for part, offset, size in pieces:
            value = self.parts[source][part]
            offsets, extents, strides = (
                list(ir.DenseI64ArrayAttr(op.attributes[f"static_{name}"]))
                for name in ("offsets", "sizes", "strides")
            )
            offsets[dim], extents[dim] = offset, size
            if result in self.region.splits:
                shape = list(shape_of(result))
                shape[self.region.splits[result][0]] = size
                written.append(_without_unit_dims(extracted(value, offsets, extents, strides), shape))
            elif tuple(extents) == shape_of(value):
                written.append(_without_unit_dims(value, shape_of(result)))
            else:
                written.append(sliced([value], offsets, extents, strides, result.type))
        if result in self.region.splits:
            self.parts[result] = written
        else:
            self.values[result] = written[0]
