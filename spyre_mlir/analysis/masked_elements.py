# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements of values that a mask decides, whatever the inputs are: zeros, and scores whose exponential is zero.

A mask is a constant that the program selects by or adds, such as that of causal attention. A masked score is as low as
the mask makes it, its exponential is 0, and products with 0 need not be computed.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.records import dataclass

#: An addend or a score from here on leaves nothing of a softmax: its exponential is 0 in fp16 beside any other.
LOWEST = -3e4

ZERO, LOW = "zero", "low"


@dataclass(frozen=True)
class Masked:
    """A value of which the elements that are not ``needed`` are all ``ZERO`` or all ``LOW``.

    ``needed`` has as many dims as the value, of its size or of 1 where all along a dim are alike.
    """

    kind: str
    needed: NDArray[np.bool_]


#: What is known of a scalar in the iteration space of an op: its numbers, or that some are masked.
_Known = NDArray[Any] | Masked | None


def _with_sign(numbers: NDArray[Any]) -> NDArray[Any]:
    """Integers as a cast reads them that knows a sign: a true i1 is -1."""
    return -numbers.astype(np.int8) if numbers.dtype == np.bool_ else numbers


def _without_sign(numbers: NDArray[Any]) -> NDArray[Any] | None:
    """Integers as a cast reads them that knows no sign; None for negative ones, whose width is not known here."""
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
#: Operations on booleans whose results numpy's arithmetic gives.
_LOGICAL = ("arith.andi", "arith.ori", "arith.xori", "arith.muli")
#: Values of more elements are not computed; what they mask counts as not needed.
LARGEST = 1 << 27
#: Predicates of arith.cmpi by number; the unsigned ones are not needed here.
_COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
#: Those of arith.cmpf, 1 to 6 ordered, 8 to 13 unordered.
_FLOAT_COMPARISONS = tuple(_COMPARISONS[index] for index in (0, 4, 5, 2, 3, 1))
#: Operations of one operand after which what is masked is so still.
_SAME = ("arith.extf", "arith.truncf")


def known_result(
    op: ir.Operation, constants: Mapping[ir.Value, NDArray[Any]], masked: Mapping[ir.Value, Masked]
) -> NDArray[Any] | Masked | None:
    """The numbers of the first result of an elementwise op or a view, or what a mask decides of it."""
    if op.name == "linalg.generic":
        return _of_generic(op, constants, masked)
    if op.name == "arith.constant":
        numbers = constants.get(op.results[0])
        is_zero = numbers is not None and numbers.size == 1 and not numbers.any()
        return Masked(ZERO, np.zeros(numbers.shape, bool)) if numbers is not None and is_zero else None
    if op.name == "tensor.concat":
        return _concatenated(op, masked)
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
    """A mask through an op that expands or collapses dims, or ``backward`` from its result to its source."""
    groups = [list(group) for group in op.attributes["reassociation"]]
    source, result = shape_of(op.operands[0]), shape_of(op.results[0])
    expands = (op.name == "tensor.expand_shape") != backward
    few, many = (source, result) if op.name == "tensor.expand_shape" else (result, source)
    groups = groups or ([list(range(len(many)))] if few else [])
    shape: list[int] = []
    dims: list[int] = []
    for index, group in enumerate(groups):
        fine = [many[int(dim)] for dim in group]
        here = [needed.shape[index]] if expands else [needed.shape[int(dim)] for dim in group]
        if all(size == 1 for size in here):
            # All along the group are alike.
            shape, dims = shape + here, dims + [1] * (len(group) if expands else 1)
        else:
            shape, dims = (
                shape + ([few[index]] if expands else fine),
                dims + (fine if expands else [few[index]]),
            )
    return np.broadcast_to(needed, shape).reshape(dims)


def lifted(array: NDArray[Any], map_: ir.AffineMap) -> NDArray[Any] | None:
    """An operand in the iteration space of its op, of size 1 along dims that do not index it; None for a window."""
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
    """The inverse of ``lifted``; of a mask, where it is True for some iteration of an element of the operand."""
    if not all(isinstance(expr, ir.AffineDimExpr | ir.AffineConstantExpr) for expr in map_.results):
        return None
    dims = [expr.position for expr in map_.results if isinstance(expr, ir.AffineDimExpr)]
    others = tuple(dim for dim in range(map_.n_dims) if dim not in dims)
    # Only where there is something to join: masks are large.
    along = tuple(dim for dim in others if array.shape[dim] > 1)
    joined = array.any(axis=along, keepdims=True) if along else array
    squeezed = np.squeeze(joined, axis=others)
    order = sorted(dims)
    transposed = np.transpose(squeezed, [order.index(dim) for dim in dims])
    shape = iter(transposed.shape)
    return transposed.reshape([next(shape) if isinstance(e, ir.AffineDimExpr) else 1 for e in map_.results])


def _concatenated(op: ir.Operation, masked: Mapping[ir.Value, Masked]) -> Masked | None:
    """What is zero of the parts is zero of the whole."""
    parts = [masked.get(value) for value in op.operands]
    if not any(part is not None and part.kind == ZERO for part in parts):
        return None
    dim = int(ir.IntegerAttr(op.attributes["dim"]).value)
    arrays = []
    for value, part in zip(op.operands, parts, strict=True):
        is_zero = part is not None and part.kind == ZERO
        needed = part.needed if part is not None and is_zero else np.ones([1] * len(shape_of(value)), bool)
        arrays.append(np.repeat(needed, shape_of(value)[dim] // needed.shape[dim], dim))
    shape = list(np.broadcast_shapes(*(np.delete(array.shape, dim) for array in arrays)))
    whole = [np.broadcast_to(a, [*shape[:dim], a.shape[dim], *shape[dim:]]) for a in arrays]
    return Masked(ZERO, np.concatenate(whole, dim))


def _of_generic(
    op: ir.Operation, constants: Mapping[ir.Value, NDArray[Any]], masked: Mapping[ir.Value, Masked]
) -> NDArray[Any] | Masked | None:
    kinds = [str(kind) for kind in op.attributes["iterator_types"]]
    if any("parallel" not in kind for kind in kinds) or len(op.results) != 1:
        return None
    maps = indexing_maps(op)
    block = op.regions[0].blocks[0]
    known: dict[ir.Value, _Known] = {}
    for argument, value, map_ in zip(block.arguments, op.operands, maps, strict=True):
        known[argument] = _operand(value, map_, constants, masked)
    extents = {
        expr.position: size
        for expr, size in zip(maps[-1].results, shape_of(op.results[0]), strict=True)
        if isinstance(expr, ir.AffineDimExpr)
    }
    for inner in (view.operation for view in block.operations):
        if inner.name == "linalg.yield":
            result = known.get(inner.operands[0], _number(inner.operands[0]))
            return _as_operand(result, maps[-1])
        if inner.results:
            known[inner.results[0]] = _scalar(inner, known, extents, len(kinds))
    return None


def _as_operand(value: _Known, map_: ir.AffineMap) -> _Known:
    """The value of an iteration as that of a result; zeros are masked as well."""
    if isinstance(value, np.ndarray):
        moved = lowered(value.reshape(value.shape or (1,) * map_.n_dims), map_)
        return Masked(ZERO, np.zeros_like(moved, bool)) if moved is not None and not moved.any() else moved
    if value is None or (needed := lowered(value.needed, map_)) is None:
        return None
    return Masked(value.kind, needed)


def _operand(
    value: ir.Value,
    map_: ir.AffineMap,
    constants: Mapping[ir.Value, NDArray[Any]],
    masked: Mapping[ir.Value, Masked],
) -> _Known:
    if not isinstance(value.type, ir.RankedTensorType):
        return _number(value)
    if value in constants:
        return lifted(constants[value], map_)
    if value not in masked:
        return None
    needed = lifted(masked[value].needed, map_)
    return None if needed is None else Masked(masked[value].kind, needed)


def _scalar(
    op: ir.Operation, known: Mapping[ir.Value, _Known], extents: Mapping[int, int], rank: int
) -> _Known:
    """What is known of the result of a scalar op."""
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
        return _sum(operands)
    return _product(op.name, operands) if op.name in ("arith.mulf", "arith.divf") else None


def _computed(op: ir.Operation, operands: Sequence[Any]) -> _Known:
    if math.prod(np.broadcast_shapes(*(each.shape for each in operands))) > LARGEST:
        # Nothing is known to be needed, so that no count is too large.
        return Masked(LOW, np.zeros((1,) * max(each.ndim for each in operands), bool))
    if op.name in ("arith.cmpi", "arith.cmpf"):
        predicate = int(ir.IntegerAttr(op.attributes["predicate"]).value)
        if op.name == "arith.cmpf":
            predicate = predicate % 7 - 1
            return _FLOAT_COMPARISONS[predicate](*operands) if 0 <= predicate < 6 else None
        return _COMPARISONS[predicate](*operands) if predicate < len(_COMPARISONS) else None
    if op.name == "arith.select":
        # Half the memory of numbers in Python's format; numpy is slow with 16 bits.
        scalars = [each.astype(np.float32) if each.dtype == np.float64 else each for each in operands[1:]]
        return np.where(operands[0].astype(bool), *scalars)
    is_logical = any(each.dtype == np.bool_ for each in operands) and len(operands) > 1
    is_known = op.name in _NUMBERS and (not is_logical or op.name in _LOGICAL)
    return _NUMBERS[op.name](*operands) if is_known else None


def _selected(condition: _Known, one: _Known, other: _Known) -> _Known:
    """``select(mask, x, low)`` is masked where the mask is false, besides what of x is so already."""
    if not isinstance(condition, np.ndarray):
        return None
    condition = condition.astype(bool)
    for chosen, dropped, value in ((condition, other, one), (~condition, one, other)):
        kind = _kind(dropped)
        if kind is None or not chosen.any():
            continue
        already = value.needed if isinstance(value, Masked) and value.kind == kind else True
        return Masked(kind, chosen & already)
    return None


def _kind(value: _Known) -> str | None:
    """Whether all of some numbers are low, or zero."""
    if not isinstance(value, np.ndarray) or not value.size:
        return None
    return LOW if (value <= LOWEST).all() else ZERO if not value.any() else None


def _sum(operands: Sequence[_Known]) -> _Known:
    """A sum with what is low is low; zeros are not zero after an addition."""
    needed = [each.needed for each in operands if isinstance(each, Masked) and each.kind == LOW]
    constants = [each > LOWEST for each in operands if isinstance(each, np.ndarray)]
    needed += [each for each in constants if each.any() and not each.all()]
    return Masked(LOW, functools.reduce(operator.and_, needed)) if needed else None


def _product(name: str, operands: Sequence[_Known]) -> _Known:
    """A product with zero is zero, a score less than the lowest times something positive stays low."""
    factors = operands if name == "arith.mulf" else operands[:1]
    needed = [each.needed for each in factors if isinstance(each, Masked) and each.kind == ZERO]
    for each in factors:
        # Of weights some may be zero by chance; a mask is made of zeros and ones.
        if isinstance(each, np.ndarray) and each.size > 1 and each.any() and np.isin(each, (0, 1)).all():
            needed.append(each != 0)
    return Masked(ZERO, functools.reduce(operator.and_, needed)) if needed else None


def _number(value: ir.Value) -> _Known:
    """A scalar constant."""
    op = defining_op(value)
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if not isinstance(attribute, ir.IntegerAttr | ir.FloatAttr):
        return None
    number = attribute.value
    return np.asarray(number if math.isfinite(number) else float(number))
