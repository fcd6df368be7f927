# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Body operations: the device operations for scalar ops of a ``linalg`` body, from the table of operations.

``erf``, ``log1p`` and hyperbolic functions are not device operations: they keep their names until a fused operation
replaces them, or until ``expand-scalar-functions``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from spyre_mlir.dialects.structured import defining_op
from spyre_mlir.mlir import ir
from spyre_mlir.target.expressions import SCALARS, evaluate
from spyre_mlir.target.ops import DEVICE_OPS, NEUTRAL, Kind, scalar_expression

#: The largest number of an element type.
_LARGEST = {"f16": 65504.0, "f32": 3.4028234663852886e38, "i32": 2.0**31}

#: The device operation of a scalar op that has the same meaning in an expression of numbers.
DIRECT: dict[str, str] = {
    **{function.op: name for name, function in SCALARS.items() if function.predicate is None},
    "arith.addi": "addi32toi32",
    "arith.muli": "muli32toi32",
}

#: Operations whose results can be larger than their operands.
INTEGER = {"arith.addi", "arith.muli"}

#: Operations on booleans, which run as 0.0 and 1.0.
LOGICAL: dict[str, str] = {
    "arith.andi": "mul", "arith.muli": "mul", "arith.minui": "mul", "arith.maxsi": "mul",
    "arith.ori": "maximum", "arith.maxui": "maximum", "arith.minsi": "maximum",
    "arith.xori": "notequal", "arith.addi": "notequal", "arith.subi": "notequal",
}  # fmt: skip

#: Casts of integers: true if the cast reads signed integers.
READS_SIGN = {"arith.sitofp": True, "arith.extsi": True, "arith.uitofp": False, "arith.extui": False}

CASTS = {"arith.extf", "arith.truncf", "arith.fptosi", "arith.trunci", *READS_SIGN}

#: Predicates of arith.cmpf that are device operations: false for NaN, except "ne", which is true for NaN.
COMPARISONS: dict[int, str] = {
    function.predicate: name for name, function in SCALARS.items() if function.predicate is not None
}

#: Unordered predicates, which are true for NaN, with the ordered predicates that are their complements.
COMPLEMENTS: dict[int, int] = {9: 5, 10: 4, 11: 3, 12: 2}

#: The larger or smaller of two numbers; if one of them is NaN, the other.
WITHOUT_NAN: dict[str, str] = {"arith.maxnumf": "maximum", "arith.minnumf": "minimum"}

#: Predicates of arith.cmpi on booleans as predicates of arith.cmpf on 0.0 and 1.0; in signed predicates true is -1.
_OF_BOOLEANS = {0: 1, 1: 13, 2: 2, 3: 3, 4: 4, 5: 5, 6: 4, 7: 5, 8: 2, 9: 3}

#: Comparisons of booleans, keyed by the predicate of arith.cmpi.
LOGICAL_COMPARISONS = {predicate: COMPARISONS[other] for predicate, other in _OF_BOOLEANS.items()}

#: Combinations of booleans, which run as 0.0 and 1.0.
_LOGICAL_COMBINATIONS = {"arith.andi": "minimum", "arith.ori": "maximum"}


class Combination(NamedTuple):
    """The reductions over the last dim and over other dims, the operation on two elements, and its neutral element."""

    over_stick: str
    over_others: str
    elementwise: str
    neutral: float


def combination(op_name: str) -> Combination | None:
    """Return the device operations of a reduction with this scalar op; None if the device does not have it."""
    combine = ({**_LOGICAL_COMBINATIONS, **WITHOUT_NAN}).get(op_name) or DIRECT.get(op_name)
    names = {op.kind: op.name for op in DEVICE_OPS.values() if (op.combine, op.expression) == (combine, "x")}
    if combine is None or not names:
        return None
    others = names[Kind.REDUCE_OTHER]
    return Combination(names.get(Kind.REDUCE_STICK, others), others, combine, NEUTRAL[others])


def is_neutral(op_name: str, init: float | None, element: str) -> bool:
    """Return whether the constant ``init`` does not change the result of a reduction that begins with it."""
    reduction = combination(op_name)
    if init is None or reduction is None:
        return False
    if op_name in _LOGICAL_COMBINATIONS:
        return init == (1.0 if op_name == "arith.andi" else 0.0)
    is_largest = math.isinf(reduction.neutral) and abs(init) >= _LARGEST[element]
    return init == reduction.neutral or (is_largest and (init > 0) == (reduction.neutral > 0))


def fold(opcode: str, values: list[float]) -> float:
    """Return the value of an operation on constants."""
    names = tuple(map(str, range(len(values))))
    numbers = dict(zip(names, map(np.float64, values), strict=True))
    return float(evaluate(scalar_expression((opcode, *names)), numbers))


def wrapped(number: float, element: str) -> float:
    """Return a number truncated and wrapped to an integer type; for a float type, return the number unchanged.

    Integers cannot represent infinity and NaN; the smallest integer represents them, as on x86.
    """
    if not element.startswith("i"):
        return number
    width = int(element[1:])
    low = int(number) % (1 << width) if math.isfinite(number) else 1 << (width - 1)
    return float(low - (1 << width) if width > 1 and low >> (width - 1) else low)


def cast_constant(op: ir.Operation, number: float) -> float:
    """Return the result of a cast of a constant; an i1 is 0.0 or 1.0, other integers are signed."""
    source, target = (str(value.type) for value in (op.operands[0], op.results[0]))
    reads_sign = READS_SIGN.get(op.name)
    if reads_sign and source == "i1":
        number = -number
    elif reads_sign is False:
        number %= 2.0 ** int(source[1:])
    return wrapped(number, target)


def power(exponent: float) -> tuple[str, ...] | None:
    """Return ``x ** exponent`` as a chain of operations on x, where "mul" multiplies by x; None if there is none."""
    chains = {1.0: ("identity",), 2.0: ("mul",), 3.0: ("mul", "mul"), 4.0: ("square", "square"), 0.5: ("sqrt",),
              -0.5: ("rsqrt",), -1.0: ("reciprocal",)}  # fmt: skip
    return chains.get(exponent)


def scalar_constant(op: ir.Operation) -> float | None:
    """Return the value of a scalar ``arith.constant``; None for another op."""
    if op.name != "arith.constant":
        return None
    attr = op.attributes["value"]
    if isinstance(attr, ir.FloatAttr):
        return attr.value
    if isinstance(attr, ir.BoolAttr):
        return float(attr.value)
    if isinstance(attr, ir.IntegerAttr):
        return float(attr.value) if str(attr.type) != "i1" else float(bool(attr.value))
    return None


def scalar_of(value: ir.Value) -> float | None:
    """Return the number that a scalar constant is; None for another value."""
    op = defining_op(value)
    return None if op is None else scalar_constant(op)
