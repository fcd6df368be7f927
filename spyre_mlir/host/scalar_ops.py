# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules for scalar arithmetic: the ops of ``arith``, ``math`` and ``index`` as numpy functions.

A function takes and returns arrays of scalars (see number_types.py). Integers wrap around at their width. Undefined
behaviour of LLVM is defined or an error: a division by zero is an error, ``INT_MIN / -1`` is ``INT_MIN``, a shift
beyond the width gives 0 or the sign, a float that does not fit its integer becomes the smallest integer, as on x86.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.host.block import BlockScope, Frame, Kernel, failure
from spyre_mlir.host.number_types import NUMBER_TYPES, is_tensor, number_type, tensor_shape
from spyre_mlir.mlir import ir

# Functions of ``math``, and conversions of floats to integers.


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
    # erf is 1 in float32 from 6 on.
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
    # Bisection is exact; a logarithm in float64 is wrong near powers of two above 2^53.
    length = np.zeros(unsigned.shape, np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        high = (unsigned >> np.uint64(step)) != 0
        length += np.where(high, step, 0)
        unsigned = np.where(high, unsigned >> np.uint64(step), unsigned)
    return length + (unsigned != 0)


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


_MATH: dict[str, Callable[..., NDArray[Any]]] = {
    "math.absf": np.abs, "math.absi": np.abs, "math.acos": np.arccos, "math.acosh": np.arccosh,
    "math.asin": np.arcsin, "math.asinh": np.arcsinh, "math.atan": np.arctan, "math.atan2": np.arctan2,
    "math.atanh": np.arctanh, "math.cbrt": np.cbrt, "math.ceil": np.ceil,
    "math.clampf": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "math.copysign": np.copysign, "math.cos": np.cos, "math.cosh": np.cosh, "math.ctlz": _leading_zeros,
    "math.ctpop": lambda x: np.bitwise_count(np.asarray(x).view(f"u{x.dtype.itemsize}")).astype(x.dtype),
    "math.cttz": _trailing_zeros, "math.erf": erf, "math.erfc": _of_libm(math.erfc), "math.exp": np.exp,
    "math.exp2": np.exp2, "math.expm1": np.expm1, "math.floor": np.floor,
    "math.fma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(a.dtype),
    "math.fpowi": lambda x, exponent: np.power(x.astype(np.float64), exponent).astype(x.dtype),
    "math.ipowi": _power_of_integers, "math.isfinite": np.isfinite,
    "math.isinf": np.isinf, "math.isnan": np.isnan,
    "math.isnormal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny), "math.log": np.log,
    "math.log10": np.log10, "math.log1p": np.log1p, "math.log2": np.log2, "math.powf": np.power,
    "math.round": _round_half_away, "math.roundeven": np.rint, "math.rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    "math.sin": np.sin, "math.sinh": np.sinh, "math.sqrt": np.sqrt, "math.tan": np.tan, "math.tanh": np.tanh,
    "math.trunc": np.trunc,
}  # fmt: skip


Function = Callable[..., NDArray[Any]]

_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def _unsigned(values: NDArray[Any]) -> NDArray[Any]:
    """Return the bits of integers as unsigned integers."""
    return np.asarray(values).view(_UNSIGNED[values.dtype.itemsize])


def _signed(values: NDArray[Any]) -> NDArray[Any]:
    """Return signed integers; the one bit of i1 is the sign."""
    return -values.astype(np.int8) if values.dtype == np.bool_ else values


def _on_unsigned(function: Function) -> Function:
    """Return a function on signed integers from a function on the same bits without a sign."""

    def compute(*values: NDArray[Any]) -> NDArray[Any]:
        result = function(*map(_unsigned, values))
        return result if result.dtype == np.bool_ else result.astype(values[0].dtype)

    return compute


def _on_bits(integers: Function, booleans: Function) -> Function:
    """Return a function of integers with a separate one for i1, for which numpy's arithmetic is not modulo 2."""
    return lambda *values: (booleans if values[0].dtype == np.bool_ else integers)(*values)


def _shift(function: Function, beyond: Function) -> Function:
    """Return a shift whose result is ``beyond(values)`` if the amount is the width or more."""

    def compute(values: NDArray[Any], amounts: NDArray[Any]) -> NDArray[Any]:
        width = 8 * values.dtype.itemsize
        inside = (amounts >= 0) & (amounts < width)
        # A numpy shift by the width or more depends on the machine.
        return np.where(inside, function(values, np.where(inside, amounts, 0)), beyond(values))

    return compute


def _truncated_quotient(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    # The division of a - remainder is exact, so rounding down has no effect.
    return np.floor_divide(a - np.fmod(a, b), b)


def _ceiled_quotient(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    quotient = _truncated_quotient(a, b)
    return quotient + ((np.fmod(a, b) != 0) & ((a < 0) == (b < 0))).astype(a.dtype)


#: Divisions of integers by name: ``CompileError`` for a divisor of 0.
_DIVISIONS: dict[str, Function] = {
    "arith.divsi": _truncated_quotient, "arith.remsi": np.fmod, "arith.floordivsi": np.floor_divide,
    "arith.ceildivsi": _ceiled_quotient, "arith.divui": _on_unsigned(np.floor_divide),
    "arith.remui": _on_unsigned(np.fmod), "arith.ceildivui": _on_unsigned(_ceiled_quotient),
    "index.divs": _truncated_quotient, "index.rems": np.fmod, "index.floordivs": np.floor_divide,
    "index.ceildivs": _ceiled_quotient, "index.divu": _on_unsigned(np.floor_divide),
    "index.remu": _on_unsigned(np.fmod), "index.ceildivu": _on_unsigned(_ceiled_quotient),
}  # fmt: skip

_ADD = _on_bits(np.add, np.logical_xor)
_SUBTRACT = _on_bits(np.subtract, np.logical_xor)
_MULTIPLY = _on_bits(np.multiply, np.logical_and)
_SHIFT_LEFT = _on_bits(_shift(np.left_shift, np.zeros_like), lambda a, b: a & ~b)
_SHIFT_RIGHT = _on_bits(
    _shift(np.right_shift, lambda values: np.where(values < 0, -1, 0).astype(values.dtype)), lambda a, b: a
)
_SHIFT_RIGHT_UNSIGNED = _on_bits(_on_unsigned(_shift(np.right_shift, np.zeros_like)), lambda a, b: a & ~b)
_MINIMUM_UNSIGNED, _MAXIMUM_UNSIGNED = (
    _on_bits(_on_unsigned(function), function) for function in (np.minimum, np.maximum)
)

#: Functions that depend only on their operands.
FUNCTIONS: dict[str, Function] = {
    "arith.select": np.where,
    "arith.addi": _ADD, "arith.subi": _SUBTRACT, "arith.muli": _MULTIPLY, "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor, "arith.shli": _SHIFT_LEFT,
    "arith.shrsi": _SHIFT_RIGHT, "arith.shrui": _SHIFT_RIGHT_UNSIGNED,
    "arith.maxsi": lambda a, b: np.where(_signed(a) < _signed(b), b, a),
    "arith.minsi": lambda a, b: np.where(_signed(a) < _signed(b), a, b),
    "arith.maxui": _MAXIMUM_UNSIGNED, "arith.minui": _MINIMUM_UNSIGNED,
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.remf": np.fmod, "arith.negf": np.negative, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin,
    "index.add": np.add, "index.sub": np.subtract, "index.mul": np.multiply, "index.and": np.bitwise_and,
    "index.or": np.bitwise_or, "index.xor": np.bitwise_xor, "index.shl": _SHIFT_LEFT,
    "index.shrs": _SHIFT_RIGHT, "index.shru": _SHIFT_RIGHT_UNSIGNED, "index.maxs": np.maximum,
    "index.mins": np.minimum, "index.maxu": _MAXIMUM_UNSIGNED, "index.minu": _MINIMUM_UNSIGNED,
    **_MATH,
}  # fmt: skip

_SIGNED_COMPARISONS = (
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
)  # fmt: skip
_INDEX_COMPARISONS = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")


def _compare_integers(predicate: int) -> Function:
    if predicate < len(_SIGNED_COMPARISONS):
        compare = _SIGNED_COMPARISONS[predicate]
        return lambda a, b: compare(_signed(a), _signed(b))
    # The predicates 6 to 9 are the unsigned forms of 2 to 5.
    compare = _SIGNED_COMPARISONS[predicate - 4]
    return _on_bits(_on_unsigned(compare), compare)


def _unordered(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return np.isnan(a) | np.isnan(b)


#: Indexed by the predicate of arith.cmpf: false, six that are false for NaN, ord, six that are true for NaN, uno, true.
_FLOAT_COMPARISONS: tuple[Function, ...] = (
    lambda a, b: np.zeros(np.broadcast_shapes(a.shape, b.shape), np.bool_),
    np.equal, np.greater, np.greater_equal, np.less, np.less_equal, lambda a, b: (a < b) | (a > b),
    lambda a, b: ~_unordered(a, b),
    lambda a, b: ~((a < b) | (a > b)), lambda a, b: ~(a <= b), lambda a, b: ~(a < b), lambda a, b: ~(a >= b),
    lambda a, b: ~(a > b), np.not_equal, _unordered,
    lambda a, b: np.ones(np.broadcast_shapes(a.shape, b.shape), np.bool_),
)  # fmt: skip


#: Casts of integers, which read their operand as unsigned, and which read it as signed.
_UNSIGNED_CASTS = {"arith.extui", "arith.uitofp", "arith.index_castui", "index.castu"}
_SIGNED_CASTS = {"arith.extsi", "arith.sitofp", "arith.index_cast", "arith.trunci", "index.casts"}

#: Ops whose function depends on their types or attributes.
_TYPED = {
    *_DIVISIONS, *_UNSIGNED_CASTS, *_SIGNED_CASTS, "arith.cmpi", "arith.cmpf", "index.cmp", "arith.fptosi",
    "arith.fptoui", "arith.extf", "arith.truncf", "arith.bitcast",
}  # fmt: skip


def _function_of(op: ir.Operation) -> Function:
    """Return the function of an op; ``CompileError`` for types without a rule."""
    if op.name not in _TYPED:
        return FUNCTIONS[op.name]
    if op.name == "index.cmp":
        predicate = str(op.attributes["pred"]).split("<")[-1].rstrip(">").removeprefix("cmp_predicate ")
        return _compare_integers(_INDEX_COMPARISONS.index(predicate))
    if op.name in ("arith.cmpi", "arith.cmpf"):
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        return _FLOAT_COMPARISONS[predicate] if op.name == "arith.cmpf" else _compare_integers(predicate)
    source, target = number_type(op.operands[0].type), number_type(op.results[0].type)
    if op.name in _DIVISIONS:
        divide = _DIVISIONS[op.name]
        if source.name == "i1":
            raise failure(op, "divides numbers of one bit; extend them first")

        def divided(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
            """Quotient or remainder; ``CompileError`` for a divisor of 0."""
            if np.any(b == 0):
                raise failure(op, "divides an integer by 0")
            return divide(a, b)

        return divided
    computed = target.computed
    if op.name == "arith.fptoui":
        return lambda a: to_unsigned(a).astype(computed)
    if op.name == "arith.fptosi":
        return lambda a: to_signed(a, computed)
    if op.name in ("arith.extf", "arith.truncf"):
        return lambda a: target.widened(target.stored(a))
    if op.name == "arith.bitcast":
        if source.host.itemsize != target.host.itemsize or {source.name, target.name} & {"i1"}:
            raise failure(op, f"casts the bits of {source.name} to {target.name}, which has no rule")
        return lambda a: target.widened(target.from_host(source.to_host(source.stored(a)).view(target.host)))
    if computed == np.bool_:
        return lambda a: (a & 1).astype(np.bool_)
    if op.name in _SIGNED_CASTS:
        return lambda a: _signed(a).astype(computed)
    return lambda a: (a if a.dtype == np.bool_ else _unsigned(a)).astype(computed)


#: Ops that a structured op computes for many elements at once.
NAMES = frozenset({*FUNCTIONS, *_TYPED, "arith.constant", "index.constant", "index.bool.constant"})


def scalar_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for an op on scalars, or element by element on tensors, whose results are then rounded."""
    function = _function_of(op)
    if not any(is_tensor(value.type) for value in op.results):
        return lambda frame, *operands: (function(*operands),)
    scope.charge(op, int(np.prod(tensor_shape(op.results[0].type))))
    types, result = [number_type(value.type) for value in op.operands], number_type(op.results[0].type)

    def compute(frame: Frame, *operands: NDArray[Any]) -> tuple[NDArray[Any]]:
        scalars = (type_.widened(operand) for type_, operand in zip(types, operands, strict=True))
        return (result.stored(function(*scalars)),)

    return compute


def constant_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``arith.constant``, scalar or tensor, read once."""
    attr, number = op.attributes["value"], number_type(op.results[0].type)
    if not is_tensor(op.results[0].type):
        if not isinstance(attr, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr):
            raise failure(op, f"has a value of no known kind: {attr}")
        value = number.widened(number.stored(np.array(attr.value).astype(number.computed)))
    elif not isinstance(attr, ir.DenseElementsAttr):
        raise failure(op, "must be given by its elements: dense<...>")
    elif attr.is_splat:
        scalar = np.array(attr.get_splat_value().value).astype(number.computed)
        value = np.broadcast_to(number.stored(scalar), tensor_shape(op.results[0].type)).copy()
    elif number.name in ("bf16", "f8E4M3FN"):
        # The bindings read elements of these types only one by one.
        elements = [attr[index] for index in range(len(attr))]
        value = np.array(elements, number.storage).reshape(tensor_shape(op.results[0].type))
    else:
        value = np.array(attr).astype(number.storage, copy=False)
    # All calls share the array.
    value.flags.writeable = False
    return lambda frame: (value,)


def index_constant_rule(op: ir.Operation, scope: BlockScope) -> Kernel:
    """Rule for ``index.constant`` and ``index.bool.constant``."""
    value = np.array(op.attributes["value"].value, NUMBER_TYPES["index"].computed)
    value = value.astype(np.bool_) if op.name == "index.bool.constant" else value
    return lambda frame: (value,)


RULES = {
    **dict.fromkeys(NAMES, scalar_rule),
    "arith.constant": constant_rule,
    "index.constant": index_constant_rule,
    "index.bool.constant": index_constant_rule,
}
