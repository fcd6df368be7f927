# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Needed elements: the elements of its arguments that a linalg function needs, and the multiply-adds for its results.

The analysis goes backward from the results. Each op computes the elements of its operands that its needed results
depend on: the part of a slice, one row per index of a lookup, nothing of masked elements. If a set has no exact form, a
smaller set is used: a count is a lower bound of the need. All structured ops are ``linalg.generic`` here.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.view_ops import dropped_dims, reassociation_of
from spyre_mlir.dialects.structured import defining_op, shape_of, use_empty
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.records import dataclass

Mask = NDArray[np.bool_]
_SUMS = ("arith.addf", "arith.addi")
_PRODUCTS = ("arith.mulf", "arith.muli")
#: A mask of fewer elements is omitted if it does not mask any element.
_SMALL = 1 << 20


@dataclass(frozen=True)
class NeededPart:
    """The needed elements of a value: the elements of ``boxes`` for which ``mask``, if there is one, is true."""

    boxes: tuple[Box, ...]
    mask: Mask | None = None

    def with_other(self, other: NeededPart) -> NeededPart:
        """Return the union of the needs of two readers."""
        mask = self.mask
        if not _is_same(mask, other.mask):
            mask = None if mask is None or other.mask is None else mask | other.mask
        return NeededPart(union((*self.boxes, *other.boxes)), mask)

    def masked(self, mask: Mask | None) -> NeededPart:
        """Return the need without the elements for which a mask is false."""
        # Large masks are read as rarely as possible.
        if mask is None or _is_same(mask, self.mask) or (mask.size < _SMALL and mask.all()):
            return self
        return NeededPart(self.boxes, mask if self.mask is None else mask & self.mask)

    def count(self) -> int:
        """Return the number of needed elements."""
        return round(math.fsum(elements(box) * share(self.mask, box) for box in disjoint(self.boxes)))


def _is_same(one: Mask | None, other: Mask | None) -> bool:
    """Return whether two masks are the same array or equal views of one array."""
    if one is None or other is None:
        return one is other
    return (one.ctypes.data, one.shape, one.strides) == (other.ctypes.data, other.shape, other.strides)


def share(mask: Mask | None, box: Box) -> float:
    """Return the fraction of a box for which a mask is true, 0 to 1."""
    if mask is None:
        return 1.0
    part = _part(mask, box)
    return np.count_nonzero(part) / max(part.size, 1)


def _part(mask: Mask, box: Box) -> Mask:
    """Return a mask inside a box; a dim of size 1 stays, because the mask is equal along it."""
    return mask[
        tuple(
            slice(None) if size == 1 else slice(dim.start, dim.stop, dim.step)
            for size, dim in zip(mask.shape, box, strict=True)
        )
    ]


@dataclass
class Needs:
    """The needs of all values of a function, and its multiply-adds by the element type of their factors."""

    constants: dict[ir.Value, NDArray[Any]]
    needs: dict[ir.Value, NeededPart] = field(default_factory=dict)
    masked: dict[ir.Value, Masked] = field(default_factory=dict)
    multiply_adds: Counter[str] = field(default_factory=Counter)

    def of_block(self, block: ir.Block, results: Mapping[ir.Value, NeededPart]) -> None:
        """Compute the needs of a function, given the needs of its results."""
        ops = [view.operation for view in block.operations]
        for op in ops:
            result = known_result(op, self.constants, self.masked) if op.results else None
            if isinstance(result, Masked):
                self.masked[op.results[0]] = result
            elif result is not None:
                self.constants[op.results[0]] = result
        for value, need in results.items():
            self.add(value, need)
        for op in reversed(ops):
            if any(result in self.needs for result in op.results):
                rule = _RULES.get(op.name, _whole_operands)
                rule(self, op)

    def add(self, value: ir.Value, need: NeededPart) -> None:
        """Add the need of one more reader of a value."""
        if need.boxes and isinstance(value.type, ir.RankedTensorType):
            self.needs[value] = self.needs[value].with_other(need) if value in self.needs else need

    def own(self, op: ir.Operation) -> NeededPart:
        """Return the need of the first result, without elements that are masked for all values of the operands."""
        need, masked = self.needs[op.results[0]], self.masked.get(op.results[0])
        return need if masked is None else need.masked(masked.needed)


def _by_dim(map_: ir.AffineMap, entries: Sequence[Any]) -> dict[int, Any]:
    """Return an entry per result of a map, keyed by iteration dim; without results that are not one dim."""
    return {
        expr.position: entry
        for expr, entry in zip(map_.results, entries, strict=True)
        if isinstance(expr, ir.AffineDimExpr)
    }


def _whole_operands(needs: Needs, op: ir.Operation) -> None:
    """Add whole operands: an op without a rule may need all of them; multiply-adds in its regions are not counted."""
    for value in op.operands:
        needs.add(value, NeededPart((whole(shape_of(value)),)))


def _generic(needs: Needs, op: ir.Operation) -> None:
    """Add the elements of the operands that a ``linalg.generic`` reads for the needed elements of its results."""
    maps, inputs = indexing_maps(op), len(op.operands) - len(op.results)
    extents: dict[int, int] = {}
    for value, map_ in zip(op.operands, maps, strict=True):
        if isinstance(value.type, ir.RankedTensorType):
            extents |= _by_dim(map_, shape_of(value))
    # The iterations that write the needed elements; dims that do not index the result are whole.
    written = [
        _by_dim(maps[inputs + index], box)
        for index, result in enumerate(op.results)
        if result in needs.needs
        for box in needs.needs[result].boxes
    ]
    dims = range(maps[0].n_dims)
    boxes = [tuple(box.get(dim, range(extents.get(dim, 1))) for dim in dims) for box in written]
    masks = _iteration_masks(needs, op, maps, inputs)
    if _multiplies(op):
        # A product counts for the wider element type of its factors.
        types = [ir.RankedTensorType(value.type).element_type for value in list(op.operands)[:2]]
        iterations = sum(elements(box) * _joint_share(masks, box) for box in disjoint(union(boxes)))
        needs.multiply_adds[str(max(types, key=bits_of))] += round(iterations)
    for index, (value, map_) in enumerate(zip(op.operands, maps, strict=True)):
        is_read = index < inputs or not use_empty(op.regions[0].blocks[0].arguments[index])
        if not is_read or not isinstance(value.type, ir.RankedTensorType):
            continue
        need = NeededPart(union(_operand_box(box, map_, shape_of(value)) for box in boxes))
        for mask in masks:
            need = need.masked(lowered(mask, map_))
        needs.add(value, need)
    _captured(needs, op, boxes)


def _captured(needs: Needs, op: ir.Operation, boxes: Sequence[Box]) -> None:
    """Add the needs of lookups in the body: for a dim indexed by data, as many positions as there are lookups."""
    for inner in (view.operation for view in op.regions[0].blocks[0].operations):
        if inner.name != "tensor.extract":
            continue
        value, dims = inner.operands[0], list[int | None]()
        for index in inner.operands[1:]:
            position = defining_op(index)
            if position is None or position.name != "linalg.index":
                dims.append(None)
            else:
                dims.append(int(ir.IntegerAttr(position.attributes["dim"]).value))
        for box in boxes:
            lookups = math.prod(len(indices) for dim, indices in enumerate(box) if dim not in dims)
            part = tuple(
                range(min(size, lookups)) if dim is None else box[dim]
                for dim, size in zip(dims, shape_of(value), strict=True)
            )
            needs.add(value, NeededPart((part,)))


def _iteration_masks(needs: Needs, op: ir.Operation, maps: Sequence[ir.AffineMap], inputs: int) -> list[Mask]:
    """Return masks of the needed iterations: the mask of the result and, for products, the nonzeros of each factor."""
    masks: list[Mask | None] = []
    if len(op.results) == 1 and (need := needs.own(op)).mask is not None:
        masks.append(lifted(need.mask, maps[inputs]))
    if _multiplies(op):
        for value, map_ in zip(list(op.operands)[:inputs], maps[:inputs], strict=True):
            masked = needs.masked.get(value)
            if masked is not None and masked.kind == ZERO:
                masks.append(lifted(masked.needed, map_))
    return [mask for mask in masks if mask is not None]


def _joint_share(masks: Sequence[Mask], box: Box) -> float:
    """Return the fraction of a box for which all masks are true; a lower bound for more than two masks."""
    if len(masks) != 2:
        return max(0.0, 1 - math.fsum(1 - share(mask, box) for mask in masks))
    parts = [_part(mask, box) for mask in masks]
    alone = [tuple(dim for dim in range(len(box)) if other.shape[dim] == 1) for other in reversed(parts)]
    # Along dims that only one mask has, the mean of this mask is exact.
    one, other = (part.mean(axis=dims, keepdims=True) for part, dims in zip(parts, alone, strict=True))
    return float((one * other).mean())


def _multiplies(op: ir.Operation) -> bool:
    """Return whether the body adds up products of two operands, neither of which is a constant."""
    if not any("reduction" in str(kind) for kind in op.attributes["iterator_types"]):
        return False
    body = [view.operation for view in op.regions[0].blocks[0].operations]
    factors = [[defining_op(value) for value in inner.operands] for inner in body if inner.name in _PRODUCTS]
    return any(inner.name in _SUMS for inner in body) and any(
        all(factor is None or factor.name != "arith.constant" for factor in pair) for pair in factors
    )


def bits_of(type_: ir.Type) -> int:
    """Return the logical bits of an element: at least a byte, 64 for an index."""
    if isinstance(type_, ir.IndexType):
        return 64
    width = type_.width if isinstance(type_, ir.IntegerType | ir.FloatType) else 64
    return max(8, width)


def _operand_box(box: Box, map_: ir.AffineMap, shape: Sequence[int]) -> Box:
    """Return the part of an operand that a box of iterations reads."""
    parts = []
    for expr, size in zip(map_.results, shape, strict=True):
        indices = _indices(expr, box)
        parts.append(range(max(indices.start, 0), min(indices.stop, size), indices.step))
    return tuple(parts)


def _indices(expr: ir.AffineExpr, box: Box) -> range:
    """Return the values of an index expression: sums and multiples of iteration dims."""
    if isinstance(expr, ir.AffineDimExpr):
        return box[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return range(expr.value, expr.value + 1)
    if isinstance(expr, ir.AffineMulExpr):
        left, right = _indices(expr.lhs, box), _indices(expr.rhs, box)
        (factor,) = right if len(right) == 1 else left
        values = left if len(right) == 1 else right
        return range(values.start * factor, values[-1] * factor + 1, max(1, values.step * factor))
    if isinstance(expr, ir.AffineAddExpr):
        left, right = _indices(expr.lhs, box), _indices(expr.rhs, box)
        step = 1
        # If one side has a single value, the sum has the steps of the other side.
        for one, other in ((left, right), (right, left)):
            step = one.step if len(other) == 1 else step
        return range(left.start + right.start, left[-1] + right[-1] + 1, step)
    return range(0)


def _reshape(needs: Needs, op: ir.Operation) -> None:
    """Convert the needed boxes of a reshape: each group of dims from the result's shape to the source's shape."""
    need = needs.own(op)
    source, result = shape_of(op.operands[0]), shape_of(op.results[0])
    groups = reassociation_of(op)
    boxes: list[Box] = []
    for box in need.boxes:
        parts: list[Box] = [()]
        for index, group in enumerate(groups):
            if op.name == "tensor.expand_shape":
                sizes = [result[dim] for dim in group]
                here: list[Box] = [(each,) for each in joined(tuple(box[dim] for dim in group), sizes)]
            else:
                here = split(box[index], [source[dim] for dim in group])
            parts = [(*before, *each) for before in parts for each in here]
        # A scalar does not have groups: all dims have size 1.
        boxes += parts if groups else [whole(source)]
    mask = None if need.mask is None else reshaped(need.mask, op, backward=True)
    needs.add(op.operands[0], NeededPart(union(boxes), mask))


def _extract_slice(needs: Needs, op: ir.Operation) -> None:
    offsets, sizes, strides = (_static(op, name) for name in ("offsets", "sizes", "strides"))
    source = shape_of(op.operands[0])
    if offsets is None or sizes is None or strides is None:
        # The offset of the slice is unknown: the need is a part of the source of the same size.
        part = tuple(range(min(a, b)) for a, b in zip(shape_of(op.results[0]), source, strict=False))
        needs.add(op.operands[0], NeededPart((part,) if len(part) == len(source) else ()))
        return
    dims = _kept_dims(sizes, shape_of(op.results[0]))
    for box in needs.needs[op.results[0]].boxes:
        by_dim = dict(zip(dims, box, strict=True))
        part = tuple(
            range(at + d.start * step, at + d[-1] * step + 1, d.step * step)
            for dim, (at, step) in enumerate(zip(offsets, strides, strict=True))
            for d in (by_dim.get(dim, range(1)),)
        )
        needs.add(op.operands[0], NeededPart((part,)))


def _insert_slice(needs: Needs, op: ir.Operation) -> None:
    """Add the needs of the inserted tensor, and of the elements of the destination that it does not cover."""
    inserted = inserted_box(op)
    source, target = op.operands[0], op.operands[1]
    if inserted is None:
        needs.add(source, NeededPart((whole(shape_of(source)),)))
        return
    boxes = needs.needs[op.results[0]].boxes
    needs.add(target, NeededPart(union(piece for box in boxes for piece in without(box, inserted))))
    # The intersection of need and insertion, moved to the source, whose dims of size 1 may be missing.
    dims = _kept_dims([len(dim) for dim in inserted], shape_of(source))
    for box in boxes:
        common = [
            range(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(box, inserted, strict=True)
        ]
        is_plain = all(a.step == b.step == 1 for a, b in zip(box, inserted, strict=True))
        part = tuple(
            range(common[dim].start - inserted[dim].start, common[dim].stop - inserted[dim].start)
            for dim in dims
        )
        needs.add(source, NeededPart((part if is_plain else whole(shape_of(source)),) if all(common) else ()))


def inserted_box(op: ir.Operation) -> Box | None:
    """Return the part of its result that an insert_slice writes; None if its size is known only at run time.

    If the offset is known only at run time, return the part at offset 0: all such parts have the same size.
    """
    sizes, strides = (_static(op, name) for name in ("sizes", "strides"))
    if sizes is None or strides is None:
        return None
    offsets = [max(int(value), 0) for value in op.attributes["static_offsets"]]
    return tuple(
        range(at, at + (size - 1) * step + 1, step)
        for at, size, step in zip(offsets, sizes, strides, strict=True)
    )


def _static(op: ir.Operation, name: str) -> list[int] | None:
    values = [int(value) for value in op.attributes[f"static_{name}"]]
    return None if any(value < -(1 << 62) for value in values) else values


def _kept_dims(sizes: Sequence[int], shape: tuple[int, ...]) -> list[int]:
    """Return the dims of a slice that its rank-reduced tensor has."""
    dropped = dropped_dims(sizes, shape)
    return [dim for dim in range(len(sizes)) if dim not in dropped]


def _concat(needs: Needs, op: ir.Operation) -> None:
    dim, start = int(ir.IntegerAttr(op.attributes["dim"]).value), 0
    for value in op.operands:
        size = shape_of(value)[dim]
        for box in needs.needs[op.results[0]].boxes:
            needs.add(value, NeededPart(union(_shifted(box, dim, start, size))))
        start += size


def _pad(needs: Needs, op: ir.Operation) -> None:
    low = [int(value) for value in op.attributes["static_low"]]
    shape = shape_of(op.operands[0])
    if any(value < -(1 << 62) for value in low):
        needs.add(op.operands[0], NeededPart((whole(shape),)))
        return
    for box in needs.needs[op.results[0]].boxes:
        boxes: list[Box] = [box]
        for dim, (start, size) in enumerate(zip(low, shape, strict=True)):
            boxes = [each for one in boxes for each in _shifted(one, dim, start, size)]
        needs.add(op.operands[0], NeededPart(union(boxes)))


def _shifted(box: Box, dim: int, start: int, size: int) -> list[Box]:
    """Return the part of a box in the tensor at ``start`` to ``start + size`` of a dim, as a box of this tensor."""
    indices = box[dim]
    # Positions in the range ``indices``: of the first index in the tensor, and of the first index after the tensor.
    first, last = (max(0, -((indices.start - at) // indices.step)) for at in (start, start + size))
    inside = indices[first:last]
    moved = range(inside.start - start, inside.stop - start, inside.step)
    return [(*box[:dim], moved, *box[dim + 1 :])] if moved else []


def _same(needs: Needs, op: ir.Operation) -> None:
    needs.add(op.operands[0], needs.own(op))


def _nothing(needs: Needs, op: ir.Operation) -> None:
    """Add no needs: constants and empty tensors have no operands."""


_RULES = {
    "linalg.generic": _generic,
    "tensor.expand_shape": _reshape,
    "tensor.collapse_shape": _reshape,
    "tensor.extract_slice": _extract_slice,
    "tensor.insert_slice": _insert_slice,
    "tensor.concat": _concat,
    "tensor.pad": _pad,
    "tensor.cast": _same,
    "tensor.empty": _nothing,
    "arith.constant": _nothing,
}


# Masked elements: elements determined by a mask for all inputs, zeros and scores whose exponential is zero.
#
# A mask is a constant by which the program selects or which it adds, such as the mask of causal attention. A masked
# score is as low as the mask makes it, its exponential is 0, and products with 0 need not be computed.

#: A score or addend at most this large has weight 0 in a softmax: in fp16 its exponential is 0 relative to any other.
LOWEST = -3e4

ZERO, LOW = "zero", "low"


@dataclass(frozen=True)
class Masked:
    """A value whose elements that are not ``needed`` are all ``ZERO`` or all ``LOW``.

    ``needed`` has the rank of the value; a dim has the size of the value's dim, or 1 if ``needed`` is equal along it.
    """

    kind: str
    needed: NDArray[np.bool_]


#: Known facts of a scalar over the iteration space of an op: its numbers, or its masked elements.
_Known = NDArray[Any] | Masked | None


def _with_sign(numbers: NDArray[Any]) -> NDArray[Any]:
    """Return integers as a signed cast reads them: a true i1 is -1."""
    return -numbers.astype(np.int8) if numbers.dtype == np.bool_ else numbers


def _without_sign(numbers: NDArray[Any]) -> NDArray[Any] | None:
    """Return integers as an unsigned cast reads them; None for negative integers, whose width is not known here."""
    return None if (numbers < 0).any() else numbers + np.int8(0)


_NUMBERS: Mapping[str, Callable[..., Any]] = {
    "arith.addi": operator.add, "arith.subi": operator.sub, "arith.muli": operator.mul,
    "arith.andi": operator.and_, "arith.ori": operator.or_, "arith.xori": operator.xor,
    "arith.maxsi": np.maximum, "arith.minsi": np.minimum, "arith.index_cast": lambda a: a,
    "arith.trunci": lambda a: a, "arith.extsi": _with_sign, "arith.extui": _without_sign,
    "arith.sitofp": lambda a: _with_sign(a).astype(np.float32),
    "arith.uitofp": lambda a: None if (a < 0).any() else a.astype(np.float32),
    "arith.extf": lambda a: a, "arith.truncf": lambda a: a, "arith.negf": operator.neg,
    "arith.addf": operator.add, "arith.subf": operator.sub, "arith.mulf": operator.mul,
}  # fmt: skip
#: Operations on booleans for which numpy's arithmetic has the same results.
_LOGICAL = ("arith.andi", "arith.ori", "arith.xori", "arith.muli")
#: Maximum number of elements of a value to compute; all elements of a larger value count as not needed.
LARGEST = 1 << 27
#: Predicates of arith.cmpi by number; unsigned predicates are not needed here.
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
#: Predicates of arith.cmpf, 1 to 6 ordered, 8 to 13 unordered.
_FLOAT_COMPARISONS = tuple(_COMPARISONS[index] for index in (0, 4, 5, 2, 3, 1))
#: Operations of one operand that keep masked elements masked.
_SAME = ("arith.extf", "arith.truncf")


def known_result(
    op: ir.Operation, constants: Mapping[ir.Value, NDArray[Any]], masked: Mapping[ir.Value, Masked]
) -> NDArray[Any] | Masked | None:
    """Return the numbers of the first result of an elementwise op or a view, or its masked elements, or None."""
    if op.name == "linalg.generic":
        return _of_generic(op, constants, masked)
    if op.name == "arith.constant":
        numbers = constants.get(op.results[0])
        is_zero = numbers is not None and numbers.size == 1 and not numbers.any()
        return Masked(ZERO, np.zeros(numbers.shape, bool)) if numbers is not None and is_zero else None
    if op.name == "tensor.concat":
        parts = [masked.get(value) for value in op.operands]
        if not any(part is not None and part.kind == ZERO for part in parts):
            return None
        dim = int(ir.IntegerAttr(op.attributes["dim"]).value)
        arrays = []
        for value, part in zip(op.operands, parts, strict=True):
            is_zero = part is not None and part.kind == ZERO
            needed = (
                part.needed if part is not None and is_zero else np.ones([1] * len(shape_of(value)), bool)
            )
            arrays.append(np.repeat(needed, shape_of(value)[dim] // needed.shape[dim], dim))
        shape = list(np.broadcast_shapes(*(np.delete(array.shape, dim) for array in arrays)))
        whole = [np.broadcast_to(a, [*shape[:dim], a.shape[dim], *shape[dim:]]) for a in arrays]
        return Masked(ZERO, np.concatenate(whole, dim))
    source = masked.get(op.operands[0]) if len(op.operands) else None
    if source is None:
        return None
    if op.name in ("tensor.expand_shape", "tensor.collapse_shape"):
        return Masked(source.kind, reshaped(source.needed, op))
    if op.name == "tensor.extract_slice":
        boxes = [list(op.attributes[f"static_{name}"]) for name in ("offsets", "sizes", "strides")]
        slices = [
            slice(None) if size == 1 else slice(at, at + count * step, step)
            for size, at, count, step in zip(source.needed.shape, *boxes, strict=True)
        ]
        needed = source.needed[tuple(slices)]
        return Masked(source.kind, needed) if needed.ndim == len(shape_of(op.results[0])) else None
    return source if op.name == "tensor.cast" else None


def reshaped(needed: NDArray[Any], op: ir.Operation, *, backward: bool = False) -> NDArray[Any]:
    """Reshape a mask like an op that expands or collapses dims, or ``backward`` from the result to the source."""
    groups = reassociation_of(op)
    source, result = shape_of(op.operands[0]), shape_of(op.results[0])
    expands = (op.name == "tensor.expand_shape") != backward
    few, many = (source, result) if op.name == "tensor.expand_shape" else (result, source)
    groups = groups or ((tuple(range(len(many))),) if few else ())
    shape: list[int] = []
    dims: list[int] = []
    for index, group in enumerate(groups):
        fine = [many[dim] for dim in group]
        here = [needed.shape[index]] if expands else [needed.shape[dim] for dim in group]
        if all(size == 1 for size in here):
            # The mask is constant along the group.
            shape, dims = shape + here, dims + [1] * (len(group) if expands else 1)
        else:
            shape = shape + ([few[index]] if expands else fine)
            dims = dims + (fine if expands else [few[index]])
    return np.broadcast_to(needed, shape).reshape(dims)


def lifted(array: NDArray[Any], map_: ir.AffineMap) -> NDArray[Any] | None:
    """Return an operand in the iteration space of its op, with size 1 along other dims; None for a window."""
    dims = [expr.position if isinstance(expr, ir.AffineDimExpr) else None for expr in map_.results]
    if any(dim is None and size != 1 for dim, size in zip(dims, array.shape, strict=True)):
        return None
    used = [dim for dim in dims if dim is not None]
    if len(set(used)) != len(used):
        return None
    squeezed = array.reshape([size for dim, size in zip(dims, array.shape, strict=True) if dim is not None])
    shape = [1] * map_.n_dims
    for dim in used:
        shape[dim] = squeezed.shape[used.index(dim)]
    return squeezed.transpose(np.argsort(used)).reshape(shape)


def lowered(array: NDArray[Any], map_: ir.AffineMap) -> NDArray[Any] | None:
    """Return the inverse of ``lifted``; a mask is True for an element if it is True for some iteration of it."""
    if not all(isinstance(expr, ir.AffineDimExpr | ir.AffineConstantExpr) for expr in map_.results):
        return None
    dims = [expr.position for expr in map_.results if isinstance(expr, ir.AffineDimExpr)]
    others = tuple(dim for dim in range(map_.n_dims) if dim not in dims)
    # Reduce only along dims of size > 1, because masks are large.
    along = tuple(dim for dim in others if array.shape[dim] > 1)
    joined = array.any(axis=along, keepdims=True) if along else array
    squeezed = np.squeeze(joined, axis=others)
    order = sorted(dims)
    transposed = np.transpose(squeezed, [order.index(dim) for dim in dims])
    shape = iter(transposed.shape)
    return transposed.reshape([next(shape) if isinstance(e, ir.AffineDimExpr) else 1 for e in map_.results])


def _of_generic(
    op: ir.Operation, constants: Mapping[ir.Value, NDArray[Any]], masked: Mapping[ir.Value, Masked]
) -> NDArray[Any] | Masked | None:
    """Return the numbers of a ``linalg.generic`` on known or masked operands; None if they are unknown."""
    kinds = [str(kind) for kind in op.attributes["iterator_types"]]
    if any("parallel" not in kind for kind in kinds) or len(op.results) != 1:
        return None
    maps = indexing_maps(op)
    block = op.regions[0].blocks[0]
    known: dict[ir.Value, _Known] = {}
    for argument, value, map_ in zip(block.arguments, op.operands, maps, strict=True):
        if not isinstance(value.type, ir.RankedTensorType):
            known[argument] = _number(value)
        elif value in constants:
            known[argument] = lifted(constants[value], map_)
        elif value in masked:
            needed = lifted(masked[value].needed, map_)
            known[argument] = None if needed is None else Masked(masked[value].kind, needed)
        else:
            known[argument] = None
    extents = _by_dim(maps[-1], shape_of(op.results[0]))
    *body, result = (view.operation for view in block.operations)
    for inner in body:
        if inner.results:
            known[inner.results[0]] = _scalar(inner, known, extents, len(kinds))
    value = known.get(result.operands[0], _number(result.operands[0]))
    if isinstance(value, np.ndarray):
        # Numbers that are all zero become masked.
        moved = lowered(value.reshape(value.shape or (1,) * len(kinds)), maps[-1])
        return Masked(ZERO, np.zeros_like(moved, bool)) if moved is not None and not moved.any() else moved
    if value is None or (needed := lowered(value.needed, maps[-1])) is None:
        return None
    return Masked(value.kind, needed)


def _scalar(
    op: ir.Operation, known: Mapping[ir.Value, _Known], extents: Mapping[int, int], rank: int
) -> _Known:
    """Return the known facts of the result of a scalar op."""
    if op.name == "linalg.index":
        dim = int(ir.IntegerAttr(op.attributes["dim"]).value)
        shape = [1] * rank
        shape[dim] = extents.get(dim, 1)
        return np.arange(shape[dim]).reshape(shape)
    operands = [known[value] if value in known else _number(value) for value in op.operands]
    if all(isinstance(each, np.ndarray) for each in operands):
        return _computed(op, operands)
    if op.name in _SAME:
        return operands[0]
    if op.name == "arith.select":
        return _selected(*operands)
    if op.name in ("math.exp", "math.exp2"):
        (score,) = operands
        return Masked(ZERO, score.needed) if isinstance(score, Masked) and score.kind == LOW else None
    if op.name in ("arith.addf", "arith.subf"):
        # A sum with a low addend is low, but zeros do not stay zero.
        kind, constants = LOW, [each > LOWEST for each in operands if isinstance(each, np.ndarray)]
        constants = [each for each in constants if each.any() and not each.all()]
    elif op.name in ("arith.mulf", "arith.divf"):
        # A product with zero is zero. Some weights may be zero by chance; a mask consists of zeros and ones.
        kind, operands = ZERO, operands if op.name == "arith.mulf" else operands[:1]
        factors = [each for each in operands if isinstance(each, np.ndarray) and each.size > 1 and each.any()]
        constants = [each != 0 for each in factors if np.isin(each, (0, 1)).all()]
    else:
        return None
    needed = [each.needed for each in operands if isinstance(each, Masked) and each.kind == kind]
    needed += constants
    return Masked(kind, functools.reduce(operator.and_, needed)) if needed else None


def _computed(op: ir.Operation, operands: Sequence[Any]) -> _Known:
    if math.prod(np.broadcast_shapes(*(each.shape for each in operands))) > LARGEST:
        # No element is known to be needed, so no count is too large.
        return Masked(LOW, np.zeros((1,) * max(each.ndim for each in operands), bool))
    if op.name in ("arith.cmpi", "arith.cmpf"):
        predicate = int(ir.IntegerAttr(op.attributes["predicate"]).value)
        if op.name == "arith.cmpf":
            predicate = predicate % 7 - 1
            return _FLOAT_COMPARISONS[predicate](*operands) if 0 <= predicate < 6 else None
        return _COMPARISONS[predicate](*operands) if predicate < len(_COMPARISONS) else None
    if op.name == "arith.select":
        # float32 takes half the memory of float64, and numpy is slow with 16 bits.
        scalars = [each.astype(np.float32) if each.dtype == np.float64 else each for each in operands[1:]]
        return np.where(operands[0].astype(bool), *scalars)
    is_logical = any(each.dtype == np.bool_ for each in operands) and len(operands) > 1
    is_known = op.name in _NUMBERS and (not is_logical or op.name in _LOGICAL)
    return _NUMBERS[op.name](*operands) if is_known else None


def _selected(condition: _Known, one: _Known, other: _Known) -> _Known:
    """Return the mask of ``select(mask, x, low)``: masked where the mask is false, and where x is masked."""
    if not isinstance(condition, np.ndarray):
        return None
    condition = condition.astype(bool)
    for chosen, dropped, value in ((condition, other, one), (~condition, one, other)):
        if not isinstance(dropped, np.ndarray) or not dropped.size or not chosen.any():
            continue
        kind = LOW if (dropped <= LOWEST).all() else ZERO
        if kind == ZERO and dropped.any():
            continue
        already = value.needed if isinstance(value, Masked) and value.kind == kind else True
        return Masked(kind, chosen & already)
    return None


def _number(value: ir.Value) -> _Known:
    """Return a scalar constant; None for another value."""
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if not isinstance(attribute, ir.IntegerAttr | ir.FloatAttr):
        return None
    number = attribute.value
    return np.asarray(number if math.isfinite(number) else float(number))


# Sets of tensor elements as boxes, one range of indices per dim, to count the elements that a program needs.
#
# If boxes cannot represent a set exactly, the result is a subset: the count never exceeds the elements needed.


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
