# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Recognises functions that the device computes in one operation: silu, gelu, mean, parts of norms, clip, ..."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from spyre_mlir.analysis.quantized_matmuls import rounded_sum
from spyre_mlir.analysis.value_ranges import is_nonnegative
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import (
    Map,
    Structured,
    defining_op,
    device_op,
    element_of,
    maker_of,
    structured,
    use_empty,
)
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.target.expressions import ANY, SCALARS, Expression, Pattern, applications_of, operand_orders
from spyre_mlir.target.ops import DEVICE_OPS, FP32, PATTERNS, scalar_expression

_MEANS = {"sum": "mean", "sumnonstick": "meannonstick"}
_ABSOLUTE = {"max": "absmax", "maxnonstick": "absmaxnonstick"}


@dataclass(frozen=True)
class FuseDeviceOps(Pass):
    """Replace groups of device operations by a single operation that computes the same function.

        exp(neg(x)) + 1, reciprocal, * x   ->   silu(x)

    The results agree except that the fused operation rounds once where the group rounded after each step.
    A group is fused only if no other operation reads its inner values. Means and mean squares are fused with their
    scaling, so that a sum beyond the range of the format is never written.
    """

    name: ClassVar[str] = "fuse-device-ops"

    def run_on(self, func: ir.Operation) -> None:
        for op in [op.operation for op in func.regions[0].blocks[0].operations]:
            if sdsc.opcode_of(op) is not None:
                self._fuse(op)

    def _fuse(self, op: ir.Operation) -> None:
        """Fuse as long as a rule applies: a fused op may be the root of the next group."""
        current: ir.Operation | None = op
        while current is not None:
            root = structured(current)
            if root is None:
                return
            with ir.InsertionPoint(current):
                fused = (
                    # Specific rules first: a pattern of pointwise operations could match a part of their group.
                    rounded_sum(root)
                    or _mean(root)
                    or _mean_square(root)
                    or _absolute_maximum(root)
                    or _repeated_clip(root)
                    or _root_of_nonnegative(root)
                    or _pointwise(root)
                )
            if fused is None:
                return
            op = maker_of(fused)
            makers = [maker for value in root.inputs if (maker := defining_op(value))]
            names = [name for maker in makers if (name := sdsc.opcode_of(maker))]
            reason = f"'{sdsc.opcode_of(op)}' replaces '{root.opcode}' over {names}"
            self.remark(current, "fusion", reason)
            sdsc.inherit(op, current)
            sdsc.record(op, "fusion", self.name, reason)
            current.results[0].replace_all_uses_with(fused)
            # With all operations that only the dead ones read.
            waiting = [current]
            while waiting:
                dead = waiting.pop()
                if all(map(use_empty, dead.results)):
                    makers = [maker for operand in dead.operands if (maker := defining_op(operand))]
                    dead.erase()
                    # x * x has the same maker twice, which must be erased only once.
                    waiting += dict.fromkeys(makers)
            current = op


# -- reductions with a scaling ------------------------------------------------------------------------


def _mean(root: Structured) -> ir.Value | None:
    """Rewrite realdiv(sum(x), n) or mul(sum(x), 1/n)  ->  mean(x) with scaling_factor 1/n."""
    if root.opcode not in ("realdiv", "mul") or root.maps[0] != root.maps[-1]:
        return None
    scale = _constant(root.inputs[1])
    total = _inner(root.inputs[0])
    # A scale of 0 has no reciprocal, DL16 has no infinity, and a sum without a scale is not a mean.
    if not scale or math.isinf(scale) or total is None or total.opcode not in _MEANS:
        return None
    factor = 1.0 / scale if root.opcode == "realdiv" else scale
    return _reduction(total, total.inputs[0], _MEANS[total.opcode], root, scaling_factor=factor)


def _mean_square(root: Structured) -> ir.Value | None:
    """Rewrite mean(x * x)  ->  exx2_zeromean(x)."""
    if root.opcode != "mean":
        return None
    square = _inner(root.inputs[0])
    if square is None or square.opcode != "mul" or square.inputs[0] != square.inputs[1]:
        return None
    if square.maps[0] != square.maps[1] or square.maps[0] != square.maps[2]:
        return None
    scale = sdsc.constants_of(root.op)["scaling_factor"]
    return _reduction(root, square.inputs[0], "exx2_zeromean", root, exx2scale=scale)


def _absolute_maximum(root: Structured) -> ir.Value | None:
    """Rewrite max(abs(x))  ->  absmax(x)."""
    if root.opcode not in _ABSOLUTE:
        return None
    inner = _inner(root.inputs[0])
    if inner is None or inner.opcode != "abs" or inner.maps[0] != inner.maps[1]:
        return None
    return _reduction(root, inner.inputs[0], _ABSOLUTE[root.opcode], root)


def _repeated_clip(root: Structured) -> ir.Value | None:
    """Rewrite clip(clip(x)) with the same limits  ->  clip(x): a program clamps before it casts to 8 bits."""
    inner = _inner(root.inputs[0], "clip") if root.opcode == "clip" else None
    if inner is None or sdsc.constants_of(inner.op) != sdsc.constants_of(root.op):
        return None
    maps = {*inner.maps, *root.maps}
    return inner.result if len(maps) == 1 else None


def _root_of_nonnegative(root: Structured) -> ir.Value | None:
    """Rewrite where3(x == -inf, c, abs(sqrt(x)))  ->  sqrt(x) where x is not negative: a power of 1/2 from PyTorch."""
    if root.opcode != "where3":
        return None
    guard, size = _inner(root.inputs[0], "equal"), _inner(root.inputs[2], "abs")
    if guard is None or size is None or len({*guard.maps[:1], *guard.maps[2:], *size.maps, root.maps[2]}) > 1:
        return None
    inner = _inner(size.inputs[0])
    if inner is None or inner.opcode not in ("sqrt", "rsqrt") or inner.inputs[0] != guard.inputs[0]:
        return None
    if _constant(guard.inputs[1]) != -math.inf or not is_nonnegative(guard.inputs[0]):
        return None
    return inner.result


def _reduction(
    shape: Structured, source: ir.Value, opcode: str, root: Structured, **constants: float
) -> ir.Value:
    return device_op(
        opcode,
        [source],
        shape.maps[:1],
        shape.extents,
        element_of(root.result),
        location=root.op.location,
        reduced=shape.reduced,
        result_map=shape.maps[-1],
        constants=constants,
    )


# -- pointwise patterns -------------------------------------------------------------------------------


def _pointwise(root: Structured) -> ir.Value | None:
    """Return the operation of the first pattern rooted here that the operation supports in the element format."""
    if root.reduced:
        return None
    needed = {FP32} if element_of(root.result) == "f32" else set()
    dims = tuple(range(len(root.iterators)))
    for pattern in PATTERNS:
        if pattern.expression[0] != root.opcode or not needed.issubset(DEVICE_OPS[pattern.opcode].formats):
            continue
        bound = next(_Matcher(pattern).match(pattern.expression, root, dims, {}), None)
        if bound is None:
            continue
        constants = {name: bound.get(name, pattern.fixed.get(name)) for name in pattern.constants}
        computed_with = _computed_with(pattern.opcode)
        if any(
            (math.isinf(number) or (number == 0 and math.copysign(1, number) < 0))
            for name, number in constants.items()
            if name in computed_with
        ):
            continue
        operands = [bound[name] for name in pattern.operands]
        return device_op(
            pattern.opcode,
            [value for value, _ in operands],
            [dims for _, dims in operands],
            root.extents,
            element_of(root.result),
            location=root.op.location,
            result_map=root.maps[-1],
            constants=constants,
        )
    return None


@functools.cache
def _computed_with(opcode: str) -> frozenset[str]:
    """Constants of an operation that it computes with; it only compares others with numbers, as limits of a clip."""
    expression = scalar_expression(DEVICE_OPS[opcode].expression or 0.0)
    return frozenset(
        argument
        for function, *arguments in applications_of(expression)
        if function not in ("maximum", "minimum") and SCALARS[function].predicate is None
        for argument in arguments
        if argument in DEVICE_OPS[opcode].constants
    )


class _Matcher:
    """Matcher of a pattern's expression against device operations.

    Bindings map constants to numbers, and operands to values with the root's dims that index them. A subexpression that
    occurs twice may have readers outside the group; all other matched operations must have a single reader.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.constants = pattern.constants
        self.shared = _applications(pattern.expression)

    def match(self, expression: tuple, op: Structured, dims: Map, bound: dict) -> Iterator[dict]:
        """Yield the bindings under which an expression matches ``op``, whose iteration dims are the root's ``dims``."""
        opcode, *arguments = expression
        operands, numbers = arguments[: len(op.inputs)], arguments[len(op.inputs) :]
        if opcode != op.opcode or op.reduced or len(operands) < len(op.inputs):
            return
        constants = sdsc.constants_of(op.op)
        if numbers and any(
            number != ANY and not _is_number(constants[name], number)
            for name, number in zip(DEVICE_OPS[opcode].constants, numbers, strict=True)
        ):
            return
        for order in operand_orders(opcode, len(operands)):
            pairs = [(operands[position], op, index) for index, position in enumerate(order)]
            yield from self._operands(pairs, dims, bound)

    def _operands(self, pairs: list, dims: Map, bound: dict) -> Iterator[dict]:
        if not pairs:
            yield bound
            return
        (expression, op, index), *rest = pairs
        where = tuple(None if dim is None else dims[dim] for dim in op.maps[index])
        for extended in self._value(expression, op.inputs[index], where, bound):
            yield from self._operands(rest, dims, extended)

    def _value(self, expression: Expression, value: ir.Value, where: Map, bound: dict) -> Iterator[dict]:
        if isinstance(expression, tuple):
            inner = _inner(value, expression[0], may_be_shared=self.shared[expression] > 1)
            if inner is not None and inner.maps[-1] == tuple(range(len(where))):
                yield from self.match(expression, inner, where, bound)
        elif isinstance(expression, float):
            constant = _constant(value)
            if constant is not None and _is_number(constant, expression):
                yield bound
        elif expression in self.constants:
            constant = _constant(value)
            if constant is not None and bound.get(expression, constant) == constant:
                yield {**bound, expression: constant}
        elif bound.get(expression, (value, where)) == (value, where):
            yield {**bound, expression: (value, where)}


@functools.cache
def _applications(expression: tuple) -> Counter[tuple]:
    """Count the applications of functions in an expression."""
    return Counter(applications_of(expression))


def _is_number(constant: float, number: float) -> bool:
    """Return whether a constant equals the number in a pattern, up to rounding to fp16."""
    is_exact = float(np.float16(number)) == number
    return constant == number or (not is_exact and abs(constant - number) <= 1e-3 * abs(number))


def _inner(value: ir.Value, opcode: str = "", may_be_shared: bool = False) -> Structured | None:
    """Return the device operation that defines a value, if it has ``opcode`` ("" is any) and one reader.

    With ``may_be_shared`` it may have several readers. The opcode is tested first, which saves most of the pass's time.
    """
    owner = defining_op(value)
    name = None if owner is None else sdsc.opcode_of(owner)
    if owner is None or name is None or opcode not in ("", name):
        return None
    if not may_be_shared:
        # Iteration stops at a second op: a value may have many readers.
        uses = iter(value.uses)
        first = next(uses, None)
        if first is None or any(use.owner.operation != first.owner.operation for use in uses):
            return None
    return structured(owner)


def _constant(value: ir.Value) -> float | None:
    """Return the number in a rank-0 constant; None if the value is not a splat constant."""
    owner = defining_op(value)
    if owner is None or owner.name != "arith.constant" or not isinstance(value.type, ir.RankedTensorType):
        return None
    attr = owner.attributes["value"]
    return float(attr.get_splat_value().value) if attr.is_splat else None
