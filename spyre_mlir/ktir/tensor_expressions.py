# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expressions of the table of device operations as ops on whole tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from spyre_mlir.dialects.structured import shape_of
from spyre_mlir.errors import CompileError
from spyre_mlir.ktir.tensor_builder import TensorBuilder
from spyre_mlir.mlir import ir
from spyre_mlir.target.expressions import SCALARS, Expression, applications_of

#: Functions whose result is one of their operands, or exact: they need no wider type.
_EXACT = frozenset(("maximum", "minimum", "where3", "abs", "neg", "floor"))
_NOT_EQUAL = SCALARS["notequal"].predicate
#: The largest float32 below the largest int32.
_LARGEST = 2147483520.0


def rounds_between(expression: Expression) -> bool:
    """Return whether an expression has several steps that round, which the device takes in a wider type."""
    names = [application[0] for application in applications_of(expression)]
    rounding = [name for name in names if name not in _EXACT and SCALARS[name].predicate is None]
    return len(rounding) > 1


def is_repeated(expression: Expression) -> bool:
    """Return whether an expression has a name, or a step, twice."""
    parts = Counter(_parts(expression))
    return any(count > 1 for part, count in parts.items() if not isinstance(part, float | int))


def _parts(expression: Expression) -> Iterator[Expression]:
    yield expression
    if isinstance(expression, tuple):
        for argument in expression[1:]:
            yield from _parts(argument)


class TensorExpressions:
    """Builder of the expressions of one operation; ``values`` are those that are built already.

    ``shape`` is that of its tensors, None for the numbers of a body.
    """

    def __init__(
        self, build: TensorBuilder, values: Mapping[Expression, ir.Value], shape: Sequence[int] | None
    ) -> None:
        self.build, self.shape = build, shape
        self.values: dict[Expression, ir.Value] = dict(values)
        type_ = next(iter(values.values())).type
        self.element = str(type_ if shape is None else ir.RankedTensorType(type_).element_type)

    def _constant(self, number: float) -> ir.Value:
        if self.shape is None:
            return self.build.scalar(number, self.element)
        return self.build.filled(self.shape, self.element, number)

    def value(self, expression: Expression) -> ir.Value:
        """Return the tensor that an expression computes."""
        if expression not in self.values:
            self.values[expression] = self._built(expression)
        return self.values[expression]

    def _built(self, expression: Expression) -> ir.Value:
        if not isinstance(expression, tuple):
            if isinstance(expression, str):
                raise CompileError(f"The operation has no value for '{expression}'.")
            return self._constant(expression)
        function, *arguments = expression
        if function == "where3":
            chosen, *others = arguments
            return self._select(self._truth(chosen), *map(self.value, others))
        if SCALARS[function].predicate is not None:
            numbers = (self.value(number) for number in (1.0, 0.0))
            return self._select(self._truth(expression), *numbers)
        operands = [self.value(argument) for argument in arguments]
        return self._applied(function, operands)

    def _applied(self, function: str, operands: list[ir.Value]) -> ir.Value:
        cast = _CASTS.get(function)
        if cast is not None:
            return cast(self.build, operands[0])
        scalar = SCALARS[function]
        name = scalar.integer_op if self.element == "i32" else scalar.op
        if not name:
            raise CompileError(f"'{function}' of integers is not an operation of KTIR.")
        return self.build.op(name, operands[0].type, *operands)

    def _truth(self, expression: Expression) -> ir.Value:
        predicate = SCALARS[expression[0]].predicate if isinstance(expression, tuple) else None
        if isinstance(expression, tuple) and predicate is not None:
            return self._compare(predicate, *map(self.value, expression[1:]))
        return self._compare(_NOT_EQUAL or 0, self.value(expression), self.value(0.0))

    def _compare(self, predicate: int, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
        type_ = ir.Type.parse("i1") if self.shape is None else self.build.type(self.shape, "i1")
        return self.build.op(
            "arith.cmpf", type_, lhs, rhs, predicate=ir.IntegerAttr.get(self.build.i64, predicate)
        )

    def _select(self, truth: ir.Value, chosen: ir.Value, other: ir.Value) -> ir.Value:
        return self.build.op("arith.select", chosen.type, truth, chosen, other)


def body_of_expression(
    build: TensorBuilder,
    inputs: Mapping[str, ir.Value],
    constants: Mapping[str, float],
    expression: Expression,
    element: str,
) -> ir.Value:
    """Build an expression as the body of one ``linalg.generic``, in numbers of an element type.

    Its constants are tensors without dims: ktir-cpu rounds numbers of a body to f16.
    """
    tensors = list(dict.fromkeys(inputs.values()))
    numbers = [*dict.fromkeys([*constants.values(), *_numbers(expression)])]
    scalars = [build.filled((), element, number) for number in numbers]
    type_ = ir.Type.parse(element)

    def body(args: Sequence[ir.Value], _: Callable[[int], ir.Value]) -> ir.Value:
        wide = [build.widened(arg, type_) for arg in args[: len(tensors)]]
        of_tensor = dict(zip(tensors, wide, strict=True))
        values: dict[Expression, ir.Value] = {name: of_tensor[value] for name, value in inputs.items()}
        of_number = dict(zip(numbers, args[len(tensors) :], strict=False))
        values |= {name: of_number[number] for name, number in constants.items()}
        values |= of_number
        return TensorExpressions(build, values, None).value(expression)

    out = build.empty(shape_of(tensors[0]), element)
    return build.generic([*tensors, *scalars], out, body)


def _numbers(expression: Expression) -> Iterator[float]:
    """Yield the numbers of an expression, those of truth values among them."""
    if not isinstance(expression, tuple):
        if not isinstance(expression, str):
            yield float(expression)
        return
    if expression[0] == "where3":
        yield 0.0
    elif SCALARS[expression[0]].predicate is not None:
        yield from (1.0, 0.0)
    for argument in expression[1:]:
        yield from _numbers(argument)


def _to_float(build: TensorBuilder, value: ir.Value) -> ir.Value:
    """Build a cast from int32, element by element: ktir-cpu takes one of a tensor for a cast to f16."""
    out = build.empty(shape_of(value), "f32")
    return build.generic([value], out, lambda args, _: build.op("arith.sitofp", ir.F32Type.get(), args[0]))


def _to_integer(build: TensorBuilder, value: ir.Value) -> ir.Value:
    """Build a cast to int32 that takes the nearest of its numbers, and 0 for what is none."""
    shape = shape_of(value)
    zero, low, high = (build.filled(shape, "f32", number) for number in (0, -(2.0**31), _LARGEST))
    i1 = build.type(shape, "i1")
    ordered = build.op("arith.cmpf", i1, value, value, predicate=ir.IntegerAttr.get(build.i64, 7))
    number = build.op("arith.select", value.type, ordered, value, zero)
    number = build.op("arith.minimumf", value.type, build.op("arith.maximumf", value.type, number, low), high)
    return build.op("arith.fptosi", build.type(shape, "i32"), number)


_CASTS: dict[str, Callable[[TensorBuilder, ir.Value], ir.Value]] = {
    "dl16tofp32": lambda build, value: build.cast(value, "f32"),
    "fp32todl16": lambda build, value: build.cast(value, "f16"),
    "fp32toint32": _to_integer,
    "int32tofp32": _to_float,
}
