# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elementwise operations, reductions and products in KTIR."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_mlir.dialects.structured import element_of, shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.core_groups import combined
from spyre_mlir.ktir.operand_tiles import TileDigit, shape_of_digits
from spyre_mlir.ktir.operation_lowering import OperationLowering, Tensor
from spyre_mlir.ktir.tensor_expressions import (
    TensorExpressions,
    body_of_expression,
    is_repeated,
    rounds_between,
)
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.expressions import SCALARS, Expression
from spyre_mlir.target.formats import constant_value
from spyre_mlir.target.ops import scalar_expression

Digits = Sequence[TileDigit]


def elementwise(lowering: OperationLowering) -> None:
    """Build an operation on the elements at each position, a copy or a restickify among them."""
    if lowering.steps:
        lowering.loop(lambda part, _: elementwise(part))
        return
    digits = lowering.digits(len(lowering.tiles) - 1)
    inputs = [lowering.arranged(lowering.tensor(k), digits) for k in range(lowering.op.arity)]
    lowering.store(Tensor(computed(lowering, inputs), digits))


def computed(lowering: OperationLowering, inputs: Sequence[ir.Value], is_wide: bool = False) -> ir.Value:
    """Build the expression of the operation on tensors of one shape, in f32 where steps of it would round."""
    op, build = lowering.op, lowering.build
    if op.expression is None or isinstance(op.expression, str):
        return build.cast(inputs[0], "f32") if is_wide else inputs[0]
    expression = scalar_expression(op.expression)
    is_wide = is_wide or rounds_between(expression)
    constants = {c.name: constant_value(c.bits, c.data_format) for c in lowering.design.constants}
    element = "f32" if is_wide and element_of(inputs[0]) == "f16" else element_of(inputs[0])
    names = {name: constants[name] for name in op.constants}
    # ktir-cpu charges a tensor that is used twice until the function ends, but those of a body with it.
    if element != "i32" and (is_repeated(expression) or len(set(inputs)) < len(inputs)):
        return body_of_expression(
            build, dict(zip(op.operands, inputs, strict=True)), names, expression, element
        )
    values = [value if element_of(value) != "f16" else build.cast(value, element) for value in inputs]
    known: dict[Expression, ir.Value] = {
        **dict(zip(op.operands, values, strict=True)),
        **{name: build.filled(shape_of(values[0]), element, number) for name, number in names.items()},
    }
    return TensorExpressions(build, known, shape_of(values[0])).value(expression)


def reduction(lowering: OperationLowering) -> None:
    """Build a reduction: on each core over what it has, then over the cores that share a result."""
    if not lowering.steps:
        _store_reduced(lowering, _reduced(lowering))
        return
    if lowering.steps[0].label not in lowering.reduced:
        lowering.loop(lambda part, _: reduction(part))
        return
    element = "f32" if _is_sum(lowering) else lowering.elements[0]

    def body(part: OperationLowering, before: ir.Value | None) -> ir.Value:
        assert before is not None
        value = part.build.cast(_reduced(part), element)
        return part.build.op(_combine(part), before.type, before, value)

    total = lowering.build.filled(shape_of_digits(_kept(lowering)), element, lowering.neutral)
    _store_reduced(lowering, lowering.loop(body, total))


def _combine(lowering: OperationLowering) -> str:
    assert lowering.op.combine is not None
    return SCALARS[lowering.op.combine].op


def _is_sum(lowering: OperationLowering) -> bool:
    return lowering.op.combine in ("add", "mul")


def _kept(lowering: OperationLowering) -> tuple[TileDigit, ...]:
    return tuple(digit for digit in lowering.digits(0) if digit.label not in lowering.reduced)


def _reduced(lowering: OperationLowering) -> ir.Value:
    """Build the reduction of what this core has."""
    source = lowering.tensor(0)
    value = computed(lowering, [source.value], is_wide=_is_sum(lowering))
    dims = [dim for dim, digit in enumerate(source.digits) if digit.label in lowering.reduced]
    value = lowering.build.reduced(value, dims, _combine(lowering), lowering.neutral)
    return lowering.build.reshaped(value, shape_of_digits(_kept(lowering)))


def _store_reduced(lowering: OperationLowering, value: ir.Value | None) -> None:
    assert value is not None
    value = _of_groups(lowering, value, _combine(lowering), lowering.neutral)
    lowering.store(Tensor(value, _kept(lowering)))


def _of_groups(lowering: OperationLowering, value: ir.Value, combine: str, neutral: float) -> ir.Value:
    """Build the combination of partial results, where cores share one."""
    groups = _groups(lowering)
    if len(groups[0]) == 1:
        return value
    identity = lowering.build.filled(shape_of(value), element_of(value), neutral)
    return combined(lowering.build, value, identity, combine, groups, lowering.state.cores.cores)


def _groups(lowering: OperationLowering) -> list[list[int]]:
    """Return the cores that share a result, by rising slice of what is reduced."""
    design, reduced = lowering.design, lowering.reduced
    groups: dict[tuple[int, ...], list[int]] = {}
    for core, slices in enumerate(design.core_slices):
        key = tuple(index for label, index in slices.items() if label not in reduced)
        groups.setdefault(key, []).append(core)
    return list(groups.values())


# -- products -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProductDigits:
    """The digits of a product of batches of matrices, by what its operands and its result have of them."""

    batch: tuple[TileDigit, ...]
    rows: tuple[TileDigit, ...]
    inner: tuple[TileDigit, ...]
    columns: tuple[TileDigit, ...]

    @classmethod
    def of(cls, lowering: OperationLowering, left: Digits, right: Digits) -> ProductDigits:
        """Return those of a product of two operands that have these digits."""
        labels = [{digit.label for digit in digits} for digits in (left, right)]
        reduced = lowering.reduced
        if (labels[0] ^ labels[1]) & reduced:
            raise CompileError(
                f"'{lowering.design.opcode}' contracts a dim that one of its operands has not."
            )
        return cls(
            _digits(left, labels[0] & labels[1] - reduced),
            _digits(left, labels[0] - labels[1]),
            _digits(left, labels[0] & reduced),
            _digits(right, labels[1] - labels[0]),
        )

    @property
    def result(self) -> tuple[TileDigit, ...]:
        """The digits of the result."""
        return (*self.batch, *self.rows, *self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result as matrices."""
        sizes = [math.prod(shape_of_digits(group)) for group in (self.batch, self.rows, self.columns)]
        return tuple(sizes if self.batch else sizes[1:])

    def multiplied(self, lowering: OperationLowering, left: Tensor, right: Tensor, out: ir.Value) -> ir.Value:
        """Build ``out``, of the shape of the result, plus the product."""
        lhs = _matrices(lowering, left, self.batch, self.rows, self.inner)
        rhs = _matrices(lowering, right, self.batch, self.inner, self.columns)
        return lowering.build.matmul(lhs, rhs, out)


def product(lowering: OperationLowering) -> None:
    """Build a product of batches of matrices, over all that a core has of the contracted dims."""
    if not lowering.steps:
        store_product(lowering, *_multiplied(lowering))
        return
    if lowering.steps[0].label not in lowering.reduced:
        lowering.loop(lambda part, _: product(part))
        return
    digits = ProductDigits.of(lowering, lowering.digits(0), lowering.digits(1))
    total = lowering.build.filled(digits.shape, "f32", 0)
    store_product(lowering, digits, lowering.loop(lambda part, out: _multiplied(part, out)[1], total))


def _multiplied(lowering: OperationLowering, out: ir.Value | None = None) -> tuple[ProductDigits, ir.Value]:
    """Build the product of what this core has, plus ``out``."""
    left, right = lowering.tensor(0), lowering.tensor(1)
    digits = ProductDigits.of(lowering, left.digits, right.digits)
    if out is None:
        is_split = len(_groups(lowering)[0]) > 1
        out = lowering.build.filled(digits.shape, "f32" if is_split else element_of(left.value), 0)
    return digits, digits.multiplied(lowering, left, right, out)


def store_product(lowering: OperationLowering, digits: ProductDigits, value: ir.Value | None) -> None:
    """Store a product, or the sum of those of the cores that share it."""
    assert value is not None
    value = _of_groups(lowering, value, "arith.addf", 0.0)
    lowering.store(Tensor(lowering.build.reshaped(value, shape_of_digits(digits.result)), digits.result))


def _digits(digits: Digits, labels: set[str]) -> tuple[TileDigit, ...]:
    """Return the digits of some labels, those of one label side by side."""
    found = [digit for digit in digits if digit.label in labels]
    order = list(dict.fromkeys(digit.label for digit in found))
    return tuple(sorted(found, key=lambda digit: (order.index(digit.label), -digit.weight)))


def _matrices(lowering: OperationLowering, tensor: Tensor, *groups: tuple[TileDigit, ...]) -> ir.Value:
    """Return a tensor as matrices, a dim for each group of digits; a group of batches that is empty has none."""
    batch, rows, columns = groups
    value = lowering.arranged(tensor, (*batch, *rows, *columns))
    sides = [math.prod(shape_of_digits(group)) for group in (rows, columns)]
    lead = [math.prod(shape_of_digits(batch))] if batch else []
    return lowering.build.reshaped(value, (*lead, *sides))
