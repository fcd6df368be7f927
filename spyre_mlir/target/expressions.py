# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expressions: the form in which the table of device operations states what an operation computes.

An expression is the name of an operand or constant, a number, or ``(function, expression..)``, such as
``("mul", "x", ("sigmoid", "x"))``. The functions are the scalar functions below and other device operations, whose
constants follow their operands.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass

Expression = str | float | tuple[Any, ...]


@dataclass(frozen=True)
class ScalarFunction:
    """A function that is one scalar op: ``op`` in the IR (``integer_op`` on integers), ``compute`` on numpy arrays.

    ``predicate`` is the predicate of ``arith.cmpf`` for a comparison, whose truth value is 1.0 or 0.0 as a number.
    """

    op: str
    compute: Callable[..., Any]
    arity: int = 1
    integer_op: str = ""
    predicate: int | None = None


@functools.cache
def _erf_table() -> NDArray[np.float64]:
    """Return, per interval of width 1/64 up to 6, the cubic that matches erf and its slope at both ends."""
    grid = np.arange(6 * 64 + 1) / 64
    value = np.array([math.erf(x) for x in grid])
    slope = 2 / math.sqrt(math.pi) * np.exp(-grid * grid) / 64
    rise = np.diff(value)
    square = 3 * rise - 2 * slope[:-1] - slope[1:]
    return np.array([value[:-1], slope[:-1], square, slope[:-1] + slope[1:] - 2 * rise])


def erf(x: NDArray[Any]) -> NDArray[np.float64]:
    """Return the error function to 1e-8 (absolute), by cubic interpolation of exact values; odd, NaN stays NaN."""
    scaled = np.minimum(np.abs(np.asarray(x, np.float64)), 6 - 1e-9) * 64
    index = np.nan_to_num(scaled).astype(np.intp)
    c0, c1, c2, c3 = _erf_table()[:, index]
    part = scaled - index
    return np.copysign(c0 + part * (c1 + part * (c2 + part * c3)), x)


# Predicates of arith.cmpf are ordered, so false for NaN; except "ne", which is unordered as in C and PyTorch.
SCALARS: dict[str, ScalarFunction] = {
    "add": ScalarFunction("arith.addf", np.add, 2, "arith.addi"),
    "sub": ScalarFunction("arith.subf", np.subtract, 2),
    "mul": ScalarFunction("arith.mulf", np.multiply, 2, "arith.muli"),
    "realdiv": ScalarFunction("arith.divf", np.divide, 2),
    "maximum": ScalarFunction("arith.maximumf", np.maximum, 2),
    "minimum": ScalarFunction("arith.minimumf", np.minimum, 2),
    "equal": ScalarFunction("arith.cmpf", np.equal, 2, predicate=1),
    "greaterthan": ScalarFunction("arith.cmpf", np.greater, 2, predicate=2),
    "greaterequal": ScalarFunction("arith.cmpf", np.greater_equal, 2, predicate=3),
    "lesserthan": ScalarFunction("arith.cmpf", np.less, 2, predicate=4),
    "lesserequal": ScalarFunction("arith.cmpf", np.less_equal, 2, predicate=5),
    "notequal": ScalarFunction("arith.cmpf", np.not_equal, 2, predicate=13),
    "where3": ScalarFunction("arith.select", lambda condition, x, y: np.where(condition != 0, x, y), 3),
    "abs": ScalarFunction("math.absf", np.abs),
    "neg": ScalarFunction("arith.negf", np.negative),
    "exp": ScalarFunction("math.exp", np.exp),
    "floor": ScalarFunction("math.floor", np.floor),
    "log": ScalarFunction("math.log", np.log),
    "log1p": ScalarFunction("math.log1p", np.log1p),
    "sqrt": ScalarFunction("math.sqrt", np.sqrt),
    "rsqrt": ScalarFunction("math.rsqrt", lambda x: 1 / np.sqrt(x)),
    "tanh": ScalarFunction("math.tanh", np.tanh),
    "expm1": ScalarFunction("math.expm1", np.expm1),
    "sinh": ScalarFunction("math.sinh", np.sinh),
    "cosh": ScalarFunction("math.cosh", np.cosh),
    "asinh": ScalarFunction("math.asinh", np.arcsinh),
    "acosh": ScalarFunction("math.acosh", np.arccosh),
    "atanh": ScalarFunction("math.atanh", np.arctanh),
    "erf": ScalarFunction("math.erf", erf),
    "dl16tofp32": ScalarFunction("arith.extf", lambda x: x),
    "fp32todl16": ScalarFunction("arith.truncf", lambda x: x),
    # Towards zero; numbers out of range become the nearest end of the range, NaN becomes 0.
    "fp32toint32": ScalarFunction(
        "arith.fptosi",
        lambda x: np.clip(
            np.trunc(np.nan_to_num(np.asarray(x, np.float64), nan=0.0)), -(2.0**31), 2.0**31 - 1
        ).astype(np.int32),
    ),
    "int32tofp32": ScalarFunction("arith.sitofp", lambda x: x.astype(np.float32)),
    "fp8todl16": ScalarFunction("arith.extf", lambda x: x),
    "qfp8ch": ScalarFunction("arith.truncf", lambda x: x),
    "csqint8ch": ScalarFunction("arith.fptosi", lambda x: x),
}

#: Numbers at which two forms of one operation are compared: of both signs, some equal, and the special numbers NaN,
#: infinities, negative zero, and the subnormal and largest numbers of fp16 and float32.
POINTS = np.array(
    (0.75, -1.25, 3.0, 0.5, 0.5, -7.0, 2.0, 2.0, 1.0, 0.0, 6.5, -0.5, 30.0,
     math.nan, math.inf, -math.inf, -0.0, 65504.0, -65504.0, 2.0**-24, -(2.0**-24),
     3.4028234663852886e38, -3.4028234663852886e38, 2.0**-149, -(2.0**-149))
)  # fmt: skip

#: Functions whose two operands may be swapped.
COMMUTATIVE = frozenset(("add", "mul", "maximum", "minimum", "equal", "notequal"))


def points(count: int) -> list[NDArray[np.float64]]:
    """Return arrays of ``POINTS`` for operands: all pairs for the first two, a third number for the others."""
    first, second = (grid.reshape(-1) for grid in np.meshgrid(POINTS, POINTS))
    index = np.arange(first.size)
    others = [POINTS[(index * (2 * number + 5) + number) % POINTS.size] for number in range(count - 2)]
    return [first, second, *others][:count]


def agree(first: Any, second: Any, has_signed_zeros: bool = True) -> bool:
    """Return whether two forms give the same float64 numbers up to rounding, including NaN and signs of zero."""
    first, second = np.broadcast_arrays(np.asarray(first, np.float64), np.asarray(second, np.float64))
    is_same = np.isclose(first, second, rtol=1e-6, atol=1e-12, equal_nan=True)
    if has_signed_zeros:
        is_same &= (first != 0) | (second != 0) | (np.signbit(first) == np.signbit(second))
    return bool(is_same.all())


def names_of(expression: Expression) -> set[str]:
    """Return the names of operands and constants that an expression reads."""
    if isinstance(expression, tuple):
        return set().union(*map(names_of, expression[1:]))
    return {expression} if isinstance(expression, str) else set()


def applications_of(expression: Expression) -> Iterator[tuple]:
    """Yield the function applications in an expression, the outermost first."""
    if isinstance(expression, tuple):
        yield expression
        for argument in expression[1:]:
            yield from applications_of(argument)


def substitute(expression: Expression, arguments: Mapping[str, Expression]) -> Expression:
    """Return an expression with its names replaced by other expressions."""
    if isinstance(expression, tuple):
        return (expression[0], *(substitute(argument, arguments) for argument in expression[1:]))
    return arguments[expression] if isinstance(expression, str) else expression


def evaluate(expression: Expression, values: Mapping[str, Any]) -> Any:
    """Compute an expression of scalar functions on arrays that broadcast, in the type of the arrays.

    An expression of several functions is computed in float64, and only its result is rounded.
    """
    with np.errstate(all="ignore"):
        if len(list(itertools.islice(applications_of(expression), 2))) < 2:
            return _evaluate(expression, values, {})
        wide = {name: np.asarray(value, np.float64) for name, value in values.items()}
        return np.asarray(_evaluate(expression, wide, {})).astype(np.result_type(*values.values()))


def _evaluate(expression: Expression, values: Mapping[str, Any], known: dict[tuple, Any]) -> Any:
    if not isinstance(expression, tuple):
        return values[expression] if isinstance(expression, str) else expression
    if expression not in known:
        function = SCALARS[expression[0]]
        operands = [_evaluate(argument, values, known) for argument in expression[1:]]
        result = function.compute(*operands)
        if function.predicate is not None:
            result = result.astype(np.result_type(*operands))
        known[expression] = result
    return known[expression]


#: The name in a pattern for a constant of an operation that may be any number.
ANY = "_"


@dataclass(frozen=True)
class Pattern:
    """``expression`` equals ``opcode`` on the operands and constants that it names, and on the constants ``fixed``."""

    expression: tuple
    opcode: str
    operands: tuple[str, ...]
    constants: tuple[str, ...] = ()
    fixed: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of functions and numbers in the expression."""
        applications = list(applications_of(self.expression))
        numbers = (argument for call in applications for argument in call[1:] if isinstance(argument, float))
        return len(applications) + sum(1 for _ in numbers)


def operand_orders(opcode: str, count: int) -> list[tuple[int, ...]]:
    """Return the permitted orders of the operands of an operation, beginning with the given order."""
    order = tuple(range(count))
    return list(itertools.permutations(order)) if opcode in COMMUTATIVE else [order]


def ordered(patterns: Iterable[Pattern]) -> list[Pattern]:
    """Sort patterns, the largest expressions first."""
    return sorted(patterns, key=lambda pattern: -pattern.size)


def require_distinct(patterns: Iterable[Pattern]) -> None:
    """Raise ``CompileError`` for equal patterns of different operations."""
    opcodes: dict[Expression, str] = {}
    for pattern in ordered(patterns):
        # One representative of all expressions that differ only in names and in the order of swappable operands.
        forms = []
        for reordered in _reordered(pattern.expression):
            names = itertools.count()
            numbers = collections.defaultdict[str, Expression](lambda names=names: f"#{next(names)}")
            forms.append(substitute(reordered, numbers))
        opcode = opcodes.setdefault(min(forms, key=repr), pattern.opcode)
        if opcode != pattern.opcode:
            raise CompileError(
                f"The device operations '{opcode}' and '{pattern.opcode}' are both fused from {pattern.expression}: "
                f"change or remove one of the patterns."
            )


def _reordered(expression: Expression) -> Iterator[Expression]:
    if not isinstance(expression, tuple):
        yield expression
        return
    opcode, *arguments = expression
    for order in operand_orders(opcode, len(arguments)):
        for swapped in itertools.product(*(list(_reordered(arguments[index])) for index in order)):
            yield (opcode, *swapped)
