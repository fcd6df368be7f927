"""Which device operation a scalar op of a ``linalg`` body is: one table for decomposition.

The left side are upstream ops on scalars, the right side operations of ``target/ops.py``. ``erf`` and
``log1p`` are no device operations: they stand for themselves until a fused operation takes them up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from spyre_mlir.mlir import ir

DIRECT: dict[str, str] = {
    "arith.addf": "add",
    "arith.subf": "sub",
    "arith.mulf": "mul",
    "arith.divf": "realdiv",
    "arith.negf": "neg",
    "arith.maximumf": "maximum",
    "arith.maxnumf": "maximum",
    "arith.minimumf": "minimum",
    "arith.minnumf": "minimum",
    "arith.select": "where3",
    "arith.addi": "addi32toi32",
    "arith.muli": "muli32toi32",
    "math.absf": "abs",
    "math.exp": "exp",
    "math.floor": "floor",
    "math.log": "log",
    "math.log1p": "log1p",
    "math.sqrt": "sqrt",
    "math.rsqrt": "rsqrt",
    "math.tanh": "tanh",
    "math.erf": "erf",
}

#: Whose results can be larger than their operands.
INTEGER = {"arith.addi", "arith.muli"}

#: On booleans, which run as 0.0 and 1.0.
LOGICAL: dict[str, str] = {"arith.andi": "mul", "arith.ori": "maximum", "arith.xori": "notequal"}

CASTS = {
    "arith.extf",
    "arith.truncf",
    "arith.sitofp",
    "arith.uitofp",
    "arith.fptosi",
    "arith.extui",
    "arith.extsi",
    "arith.trunci",
}

#: Predicates of arith.cmpf; ordered and unordered ones run alike, the device has one NaN.
COMPARISONS: dict[int, str] = {
    1: "equal", 2: "greaterthan", 3: "greaterequal", 4: "lesserthan", 5: "lesserequal", 6: "notequal",
    8: "equal", 9: "greaterthan", 10: "greaterequal", 11: "lesserthan", 12: "lesserequal", 13: "notequal",
}  # fmt: skip

#: How a reduction combines: scalar op -> (reduction over the last dim, over others, elementwise).
COMBINES: dict[str, tuple[str, str, str]] = {
    "arith.addf": ("sum", "sumnonstick", "add"),
    "arith.maximumf": ("max", "maxnonstick", "maximum"),
    "arith.maxnumf": ("max", "maxnonstick", "maximum"),
    "arith.minimumf": ("min", "minnonstick", "minimum"),
    "arith.minnumf": ("min", "minnonstick", "minimum"),
    "arith.mulf": ("prod", "prod", "mul"),
    "arith.andi": ("min", "minnonstick", "minimum"),
    "arith.ori": ("max", "maxnonstick", "maximum"),
}

_FOLD: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "realdiv": lambda a, b: a / b if b else math.copysign(math.inf, a),
    "neg": lambda a: -a,
    "maximum": max,
    "minimum": min,
    "sqrt": lambda a: math.sqrt(a) if a >= 0 else math.nan,
    "rsqrt": lambda a: 1 / math.sqrt(a) if a > 0 else math.inf,
    "exp": lambda a: math.exp(a) if a < 709.0 else math.inf,
    "abs": abs,
    "equal": lambda a, b: float(a == b),
    "notequal": lambda a, b: float(a != b),
    "greaterthan": lambda a, b: float(a > b),
    "greaterequal": lambda a, b: float(a >= b),
    "lesserthan": lambda a, b: float(a < b),
    "lesserequal": lambda a, b: float(a <= b),
    "where3": lambda c, a, b: a if c else b,
    "addi32toi32": lambda a, b: a + b,
    "muli32toi32": lambda a, b: a * b,
}


def fold(opcode: str, values: list[float]) -> float | None:
    """The value of an operation on constants; None if it is not one that folds."""
    return _FOLD[opcode](*values) if opcode in _FOLD else None


def power(exponent: float) -> tuple[str, ...] | None:
    """``x ** exponent`` as a chain of operations on x; "mul" multiplies by x once more."""
    chains = {1.0: ("identity",), 2.0: ("mul",), 3.0: ("mul", "mul"), 4.0: ("square", "square"), 0.5: ("sqrt",),
              -0.5: ("rsqrt",), -1.0: ("reciprocal",)}  # fmt: skip
    return chains.get(exponent)


def scalar_constant(op: ir.Operation) -> float | None:
    """The value of a scalar ``arith.constant``; None for anything else."""
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
