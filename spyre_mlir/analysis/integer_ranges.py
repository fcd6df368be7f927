# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Ranges of the integers that structured operations compute from positions, constants and truth values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.mlir import indexing_maps, ir


class Interval(NamedTuple):
    """Closed interval of integers, from ``lower`` to ``upper``."""

    lower: int
    upper: int

    @staticmethod
    def union(*intervals: Interval) -> Interval:
        """Return the smallest interval that contains all of them."""
        return Interval(min(each.lower for each in intervals), max(each.upper for each in intervals))

    @staticmethod
    def sum(one: Interval, other: Interval) -> Interval:
        """Return the range of the sums."""
        return Interval(one.lower + other.lower, one.upper + other.upper)

    @staticmethod
    def difference(one: Interval, other: Interval) -> Interval:
        """Return the range of the differences."""
        return Interval(one.lower - other.upper, one.upper - other.lower)

    @staticmethod
    def product(one: Interval, other: Interval) -> Interval:
        """Return the range of the products."""
        ends = [first * second for first in one for second in other]
        return Interval(min(ends), max(ends))


def _same(value: Interval) -> Interval:
    return value


def _chosen(condition: Interval, one: Interval, other: Interval) -> Interval:
    if condition.lower == condition.upper:
        return one if condition.lower else other
    return Interval.union(one, other)


#: Truth of a signed comparison ``one < other``, ``<=``, ``>`` and ``>=`` by the predicate of ``arith.cmpi``.
_COMPARISONS: dict[int, Callable[[Interval, Interval], Interval]] = {
    2: lambda one, other: Interval(one.upper < other.lower, one.lower < other.upper),
    3: lambda one, other: Interval(one.upper <= other.lower, one.lower <= other.upper),
    4: lambda one, other: Interval(one.lower > other.upper, one.upper > other.lower),
    5: lambda one, other: Interval(one.lower >= other.upper, one.upper >= other.lower),
}


#: Range of the result from the ranges of the operands, for operations whose operands are all integers.
_RULES: dict[str, Callable[..., Interval]] = {
    "arith.addi": Interval.sum,
    "arith.subi": Interval.difference,
    "arith.muli": Interval.product,
    "arith.minsi": lambda one, other: Interval(min(one.lower, other.lower), min(one.upper, other.upper)),
    "arith.maxsi": lambda one, other: Interval(max(one.lower, other.lower), max(one.upper, other.upper)),
    "arith.select": _chosen,
    "arith.extsi": _same,
    "arith.extui": _same,
    "arith.trunci": _same,
    "arith.index_cast": _same,
    "linalg.generic": _same,
    "tensor.cast": _same,
    "tensor.collapse_shape": _same,
    "tensor.concat": Interval.union,
    "tensor.expand_shape": _same,
    "tensor.extract": _same,
    "tensor.extract_slice": _same,
    "tensor.insert_slice": Interval.union,
}


class IntegerRanges:
    """Ranges of values and of the elements of tensors; ``known`` contains the ranges of some values."""

    def __init__(self, known: Mapping[ir.Value, Interval]) -> None:
        self._ranges: dict[ir.Value, Interval | None] = dict(known)

    def of(self, value: ir.Value) -> Interval | None:
        """Return the range of a value; None if no range is derived."""
        waiting = [value]
        while waiting:
            if (current := waiting[-1]) in self._ranges:
                waiting.pop()
                continue
            sources = _sources(current)
            missing = [source for source in sources or () if source not in self._ranges]
            waiting += missing
            if not missing:
                ranges = None if sources is None else [self._ranges[source] for source in sources]
                self._ranges[current] = _range(current, ranges)
        return self._ranges[value]


def _sources(value: ir.Value) -> list[ir.Value] | None:
    """Return the values from whose ranges the range of ``value`` follows; None if it does not follow."""
    if (op := defining_op(value)) is None:
        argument = ir.BlockArgument(value)
        around = argument.owner.owner.operation
        # An argument of a loop or of a reduction's result changes from one iteration to the next.
        is_input = around.name == "linalg.generic" and argument.arg_number < len(around.operands) - len(
            around.results
        )
        return [around.operands[argument.arg_number]] if is_input else None
    number = ir.OpResult(value).result_number
    if op.name == "linalg.generic":
        is_elementwise = all(
            "parallel" in str(kind) for kind in ir.ArrayAttr(op.attributes["iterator_types"])
        )
        end = op.regions[0].blocks[0].operations[-1].operation
        return [end.operands[number]] if is_elementwise else None
    if op.name == "tm_tensor.scan":
        names = [entry.operation.name for entry in op.regions[0].blocks[0].operations]
        is_sum = number == 0 and names == ["arith.addi", "tm_tensor.yield"]
        return [op.operands[0], op.operands[2]] if is_sum else None
    if op.name in ("tensor.extract", "tensor.extract_slice"):
        return [op.operands[0]]
    if op.name == "tensor.insert_slice":
        return list(op.operands)[:2]
    has_rule = op.name in _RULES or op.name in ("arith.cmpi", "arith.constant", "linalg.index")
    return list(op.operands) if has_rule else None


def _range(value: ir.Value, sources: Sequence[Interval | None] | None) -> Interval | None:
    """Return the range of ``value`` from the ranges of its sources, if it fits into the type."""
    type_, is_truth = _element_type(value), _is_truth(value)
    unknown = Interval(0, 1) if is_truth else None
    op = defining_op(value)
    if op is None:
        return sources[0] if sources else unknown
    if op.name == "arith.constant":
        attr = op.attributes["value"]
        if isinstance(attr, ir.IntegerAttr):
            return Interval(attr.value, attr.value)
        if not isinstance(attr, ir.DenseIntElementsAttr) or not len(attr):
            return None
        elements = np.array(attr)
        return Interval(int(elements.min()), int(elements.max()))
    known = [source for source in sources or () if source is not None]
    if sources is None or len(known) < len(sources):
        return unknown
    # Signed operations read a truth value as 0 or -1.
    signed = op.name.startswith("arith.") and op.name not in ("arith.extui", "arith.select")
    if signed and any(_is_truth(operand) for operand in op.operands):
        return unknown
    if op.name == "arith.cmpi":
        compare = _COMPARISONS.get(ir.IntegerAttr(op.attributes["predicate"]).value)
        return compare(*known) if compare else unknown
    if op.name == "linalg.index":
        return _positions(op)
    if op.name == "tm_tensor.scan":
        dim = ir.IntegerAttr(op.attributes["dimension"]).value
        count = Interval(0, shape_of(op.operands[0])[dim])
        found = Interval.sum(Interval.product(known[0], count), known[1])
    else:
        found = _RULES[op.name](*known)
    if (op.name == "arith.extui" and found.lower < 0) or (
        is_truth and not 0 <= found.lower <= found.upper <= 1
    ):
        return unknown
    width = 2 if is_truth else type_.width if isinstance(type_, ir.IntegerType) else 64
    return found if -(1 << width - 1) <= found.lower and found.upper < 1 << width - 1 else None


def _element_type(value: ir.Value) -> ir.Type:
    return ir.ShapedType(value.type).element_type if isinstance(value.type, ir.ShapedType) else value.type


def _is_truth(value: ir.Value) -> bool:
    type_ = _element_type(value)
    return isinstance(type_, ir.IntegerType) and type_.width == 1


def _positions(op: ir.Operation) -> Interval | None:
    """Return the range of ``linalg.index`` of a structured operation around it."""
    around, dim = op, ir.IntegerAttr(op.attributes["dim"]).value
    while around.name != "linalg.generic":
        around = around.parent.operation
    for operand, map_ in zip(around.operands, indexing_maps(around), strict=True):
        for result, size in zip(map_.results, shape_of(operand), strict=True):
            if isinstance(result, ir.AffineDimExpr) and result.position == dim:
                return Interval(0, size - 1)
    return None
