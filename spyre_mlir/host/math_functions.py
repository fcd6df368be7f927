# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of ``math`` on numpy arrays, and conversions of floats to integers."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GRID, _LARGEST = 256, 6


@functools.cache
def _erf_table() -> NDArray[np.float64]:
    """Return the Taylor coefficients of erf, of orders 0 to 3, for each point of a grid of 1/256 up to 6."""
    grid = np.arange(_LARGEST * _GRID + 1) / _GRID
    slope = 2 / math.sqrt(math.pi) * np.exp(-grid * grid)
    value = np.array([math.erf(x) for x in grid])
    return np.stack([value, slope, -grid * slope, (2 * grid * grid - 1) * slope / 3])


def erf(x: NDArray[Any]) -> NDArray[Any]:
    """``erf``: in float64 the function of libm, in float32 from the table, whose error is 3e-12."""
    if x.dtype == np.float64:
        return _of_libm(math.erf)(x)
    # From 6 on, erf is 1 in float32.
    magnitude = np.minimum(np.abs(x), _LARGEST).astype(np.float64)
    point = np.where(np.isnan(magnitude), 0, np.rint(magnitude * _GRID)).astype(np.intp)
    c0, c1, c2, c3 = _erf_table()[:, point]
    rest = magnitude - point / _GRID
    return np.copysign(c0 + rest * (c1 + rest * (c2 + rest * c3)), x).astype(x.dtype)


def _of_libm(function: Callable[[float], float]) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Return a function on arrays from a function of a Python number."""
    return lambda x: np.asarray(np.frompyfunc(function, 1, 1)(x)).astype(x.dtype)


def _round_half_away(x: NDArray[Any]) -> NDArray[Any]:
    whole = np.trunc(x)
    # np.rint would round ties to even.
    return whole + np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)


def _power_of_integers(base: NDArray[Any], exponent: NDArray[Any]) -> NDArray[Any]:
    """``ipowi`` modulo the width, by repeated squaring.

    For a negative exponent the result is 1 / base, which is 0 except for 1 and -1.
    """
    result, square = np.ones(np.broadcast_shapes(base.shape, exponent.shape), base.dtype), base
    rest = np.maximum(exponent, 0)
    while np.any(rest):
        result = np.where(rest & 1, result * square, result)
        square, rest = square * square, rest >> 1
    inverse = np.where(np.abs(base) == 1, np.where(exponent % 2 == 0, base * base, base), 0)
    return np.where(exponent < 0, inverse, result).astype(base.dtype)


def _leading_zeros(x: NDArray[Any]) -> NDArray[Any]:
    width = 8 * x.dtype.itemsize
    return (width - _bit_length(x)).astype(x.dtype)


def _trailing_zeros(x: NDArray[Any]) -> NDArray[Any]:
    width = 8 * x.dtype.itemsize
    return np.where(x == 0, width, _bit_length(x & -x) - 1).astype(x.dtype)


def _bit_length(x: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of bits of an unsigned integer."""
    unsigned = np.asarray(x).view(np.dtype(f"u{x.dtype.itemsize}")).astype(np.uint64)
    # By bisection: a logarithm in float64 is wrong near powers of two above 2^53.
    length = np.zeros(unsigned.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        high = (unsigned >> np.uint64(step)) != 0
        length += np.where(high, step, 0)
        unsigned = np.where(high, unsigned >> np.uint64(step), unsigned)
    return length + (unsigned != 0)


def _is_normal(x: NDArray[Any]) -> NDArray[Any]:
    return np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny)


def _integer_power_of_float(base: NDArray[Any], exponent: NDArray[Any]) -> NDArray[Any]:
    return np.power(base.astype(np.float64), exponent).astype(base.dtype)


def to_signed(x: NDArray[Any], target: np.dtype) -> NDArray[Any]:
    """Truncate floats to integers; floats beyond 32 bits (64 for i64) and NaN become the smallest integer and wrap."""
    width = np.dtype(np.int64 if target.itemsize == 8 else np.int32)
    limit = 2.0 ** (8 * width.itemsize - 1)
    whole = np.trunc(np.asarray(x, dtype=np.float64))
    inside = (whole >= -limit) & (whole < limit)
    integers = np.where(inside, whole, -limit).astype(width)
    return (integers & 1).astype(np.bool_) if target == np.bool_ else integers.astype(target)


def to_unsigned(x: NDArray[Any]) -> NDArray[np.uint64]:
    """Truncate floats to unsigned integers; negative floats wrap, floats beyond 64 bits and NaN become 2^63."""
    whole = np.trunc(np.asarray(x, dtype=np.float64))
    # The numpy cast of floats beyond 2^63 depends on the machine.
    small = to_signed(whole, np.dtype(np.int64)).view(np.uint64)
    large = (whole >= 2.0**63) & (whole < 2.0**64)
    return np.where(large, np.where(large, whole, 0).astype(np.uint64), small)


FUNCTIONS: dict[str, Callable[..., NDArray[Any]]] = {
    "math.absf": np.abs, "math.absi": np.abs, "math.acos": np.arccos, "math.acosh": np.arccosh,
    "math.asin": np.arcsin, "math.asinh": np.arcsinh, "math.atan": np.arctan, "math.atan2": np.arctan2,
    "math.atanh": np.arctanh, "math.cbrt": np.cbrt, "math.ceil": np.ceil,
    "math.clampf": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "math.copysign": np.copysign, "math.cos": np.cos, "math.cosh": np.cosh, "math.ctlz": _leading_zeros,
    "math.ctpop": lambda x: np.bitwise_count(np.asarray(x).view(f"u{x.dtype.itemsize}")).astype(x.dtype),
    "math.cttz": _trailing_zeros, "math.erf": erf, "math.erfc": _of_libm(math.erfc), "math.exp": np.exp,
    "math.exp2": np.exp2, "math.expm1": np.expm1, "math.floor": np.floor,
    "math.fma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(a.dtype),
    "math.fpowi": _integer_power_of_float, "math.ipowi": _power_of_integers, "math.isfinite": np.isfinite,
    "math.isinf": np.isinf, "math.isnan": np.isnan, "math.isnormal": _is_normal, "math.log": np.log,
    "math.log10": np.log10, "math.log1p": np.log1p, "math.log2": np.log2, "math.powf": np.power,
    "math.round": _round_half_away, "math.roundeven": np.rint, "math.rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    "math.sin": np.sin, "math.sinh": np.sinh, "math.sqrt": np.sqrt, "math.tan": np.tan, "math.tanh": np.tanh,
    "math.trunc": np.trunc,
}  # fmt: skip
