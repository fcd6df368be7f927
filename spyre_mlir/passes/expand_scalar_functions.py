# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Expands scalar functions that the device does not support into several supported operations."""

from __future__ import annotations

import math
from typing import ClassVar

from spyre_mlir.analysis.aliasing import all_ops
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import Map, Structured, device_op, element_of, maker_of, structured
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.linalg_values import number_tensor
from spyre_mlir.target.expressions import Expression, substitute


@dataclass(frozen=True)
class ExpandScalarFunctions(Pass):
    """Replace log1p, expm1 and hyperbolic functions on 16-bit numbers that no fused operation contains.

    The expressions are defined below the pass. Functions on f32 are not expanded; they run on the host.

        log1p(x)   ->   u = x + 1; where(u == 1, x, where(u > 16, log(u), x * (log(u) / (u - 1))))
    """

    name: ClassVar[str] = "expand-scalar-functions"

    def run_on(self, func: ir.Operation) -> None:
        for op in [op for op in all_ops(func) if sdsc.opcode_of(op) in EXPANSIONS]:
            generic = structured(op)
            if generic is not None and element_of(generic.result) == "f16" and len(generic.inputs) == 1:
                with ir.InsertionPoint(generic.op), generic.op.location:
                    result, _ = _ExpandedFunction(generic).value(EXPANSIONS[generic.opcode])
                maker = maker_of(result)
                reason = f"the device has no '{generic.opcode}'"
                self.remark(generic.op, "expansion", reason)
                sdsc.inherit(maker, generic.op)
                sdsc.record(maker, "decomposition", self.name, reason)
                generic.op.results[0].replace_all_uses_with(result)
                generic.op.erase()


class _ExpandedFunction:
    """Builder of the operations of an expression that replaces a function; equal subexpressions are built once."""

    def __init__(self, generic: Structured) -> None:
        self.generic = generic
        self.values: dict[Expression, tuple[ir.Value, Map]] = {"x": (generic.inputs[0], generic.maps[0])}

    def value(self, expression: Expression) -> tuple[ir.Value, Map]:
        """Return the value of an expression, and its indexing map over the dims of the function."""
        if expression not in self.values:
            if isinstance(expression, tuple):
                self.values[expression] = self._application(*expression)
            else:
                self.values[expression] = (number_tensor(float(expression), "f16"), ())
        return self.values[expression]

    def _application(self, opcode: str, *arguments: Expression) -> tuple[ir.Value, Map]:
        operands = [self.value(argument) for argument in arguments]
        result_map = self.generic.maps[-1]
        result = device_op(
            opcode,
            [value for value, _ in operands],
            [dims for _, dims in operands],
            self.generic.extents,
            "f16",
            location=self.generic.op.location,
            result_map=result_map,
        )
        return result, result_map


# Scalar functions that the device does not support, as expressions of supported functions, for 16-bit numbers.
#
# Each step rounds to 11 bits, so the usual forms would lose most bits near 0. With u = 1 + x, rounded, the errors of
# log(u) and u - 1 cancel in log1p(x) = x log(u) / (u - 1). With u = exp(x), the errors of u - 1 and log(u) cancel in
# expm1(x) = (u - 1) x / log(u) (N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 1.14.1,
# after W. Kahan). Where an intermediate number would leave the range, or no errors cancel, the plain form is used.


def _log1p(x: Expression) -> Expression:
    u = ("add", x, 1.0)
    corrected = ("mul", x, ("realdiv", ("log", u), ("sub", u, 1.0)))
    return ("where3", ("equal", u, 1.0), x, ("where3", ("greaterthan", u, 16.0), ("log", u), corrected))


def _expm1(x: Expression) -> Expression:
    u = ("exp", x)
    difference = ("sub", u, 1.0)
    corrected = ("where3", ("equal", u, 1.0), x, ("mul", difference, ("realdiv", x, ("log", u))))
    return ("where3", ("greaterthan", ("abs", x), 1.0), difference, corrected)


def _odd(of_magnitude: Expression) -> Expression:
    """Return an odd function of x, including the sign of zero, given its expression in the magnitude ``a`` of x."""
    magnitude = substitute(of_magnitude, {"a": ("abs", "x")})
    signed = ("where3", ("lesserthan", "x", 0.0), ("neg", magnitude), magnitude)
    return ("where3", ("equal", "x", 0.0), "x", signed)


def _half_sum_of_exponentials(combine: str) -> Expression:
    """Return exp(a) / 2 combined with exp(-a) / 2, without exp(a), which would leave the range before the result."""
    root = ("exp", ("mul", "a", 0.5))
    return (combine, ("mul", root, ("mul", root, 0.5)), ("mul", ("exp", ("neg", "a")), 0.5))


_E = _expm1("a")
_SINH = (
    "where3",
    ("greaterthan", "a", 1.0),
    _half_sum_of_exponentials("sub"),
    ("mul", ("add", _E, ("realdiv", _E, ("add", _E, 1.0))), 0.5),
)

#: Above this number, adding 1 to the square of a number is lost in rounding.
_LARGE = 64.0
_SQUARE = ("mul", "a", "a")
_ASINH = (
    "where3",
    ("greaterthan", "a", _LARGE),
    ("add", ("log", "a"), math.log(2)),
    _log1p(("add", "a", ("realdiv", _SQUARE, ("add", ("sqrt", ("add", _SQUARE, 1.0)), 1.0)))),
)

_T = ("sub", "x", 1.0)
# Two roots instead of one: for x below 1 the result is NaN, but the product of two negative numbers would have a root.
_ROOT = ("mul", ("sqrt", _T), ("sqrt", ("add", _T, 2.0)))
_ACOSH = (
    "where3",
    ("greaterthan", "x", _LARGE),
    ("add", ("log", "x"), math.log(2)),
    _log1p(("add", _T, _ROOT)),
)

_ATANH = ("mul", _log1p(("realdiv", ("add", "a", "a"), ("sub", 1.0, "a"))), 0.5)

#: The expression of each function of ``x``.
EXPANSIONS: dict[str, Expression] = {
    "log1p": _log1p("x"),
    "expm1": _expm1("x"),
    "sinh": _odd(_SINH),
    "cosh": substitute(_half_sum_of_exponentials("add"), {"a": ("abs", "x")}),
    "asinh": _odd(_ASINH),
    "acosh": _ACOSH,
    "atanh": _odd(_ATANH),
}
