"""What every device operation computes: one table from opcode to a numpy function.

Operands are float32 (int32 for the integer operations) with one axis per iteration label, extent 1 where
an operand does not vary, so that numpy broadcasting is the device's. Sums accumulate in float32, those of
a matrix product in float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.target.ops import COMBINE

Array = NDArray
Constants = Mapping[str, float]


@dataclass(frozen=True)
class Work:
    """What a function needs beside its operands.

    ``reduced`` are the axes the result lacks; ``varies[k]`` says per axis whether operand ``k`` has it,
    the result last.
    """

    reduced: tuple[int, ...] = ()
    varies: tuple[tuple[bool, ...], ...] = ()
    constants: Constants = field(default_factory=dict)


Function = Callable[[Sequence[Array], Work], Array]


def compute(opcode: str, operands: Sequence[Array], work: Work) -> Array:
    """The result of one operation on one core, in the numbers of its operands."""
    with np.errstate(all="ignore"):
        return FUNCTIONS[opcode](operands, work)


def _pointwise(function: Callable[..., Array]) -> Function:
    return lambda operands, work: function(*operands)


def _with_constants(function: Callable[[Array, Constants], Array]) -> Function:
    return lambda operands, work: function(operands[0], work.constants)


def _comparison(function: np.ufunc) -> Function:
    return lambda operands, work: function(operands[0], operands[1]).astype(operands[0].dtype)


def _reduction(function: Callable[[Array, tuple[int, ...]], Array]) -> Function:
    return lambda operands, work: function(operands[0], work.reduced)


def _scaled(function: Callable[[Array, tuple[int, ...]], Array], constant: str) -> Function:
    def scaled(operands: Sequence[Array], work: Work) -> Array:
        return function(operands[0], work.reduced) * np.float32(work.constants[constant])

    return scaled


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    """In float64: numpy's order of additions goes by the shape of a slice, which the bits must not depend on."""
    return np.asarray(np.sum(x, axis=axes, keepdims=True, dtype=np.float64), np.float32)


def _sum_of_squares(x: Array, axes: tuple[int, ...]) -> Array:
    return _sum(x * x, axes)


def _absmax(x: Array, axes: tuple[int, ...]) -> Array:
    return np.max(np.abs(x), axis=axes, keepdims=True)


def _max(x: Array, axes: tuple[int, ...]) -> Array:
    return np.max(x, axis=axes, keepdims=True)


def _min(x: Array, axes: tuple[int, ...]) -> Array:
    return np.min(x, axis=axes, keepdims=True)


def _prod(x: Array, axes: tuple[int, ...]) -> Array:
    """In float64, as sums are."""
    return np.asarray(np.prod(x, axis=axes, keepdims=True, dtype=np.float64), np.float32)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, np.float32(1), small) / (np.float32(1) + small)


def _softplus(x: Array, constants: Constants) -> Array:
    """``log(1 + exp(beta x)) / beta``, and x itself where beta x exceeds the threshold."""
    beta, threshold = np.float32(constants["softplusBeta"]), np.float32(constants["softplusThresh"])
    return np.where(beta * x > threshold, x, np.logaddexp(np.float32(0), beta * x) / beta)


def _mish(x: Array) -> Array:
    return x * np.tanh(np.logaddexp(np.float32(0), x))


def _clip(x: Array, constants: Constants) -> Array:
    return np.clip(x, np.float32(constants["clipMin"]), np.float32(constants["clipMax"]))


def _leaky_relu(x: Array, constants: Constants) -> Array:
    return np.where(x > 0, x, x * np.float32(constants["alpha"]))


def _inverse_deviation(x: Array, constants: Constants) -> Array:
    return 1 / np.sqrt(x + np.float32(constants["eps"]))


def _rows(operands: Sequence[Array], work: Work) -> Array:
    """The rows of a table at the given positions, which are checked before."""
    positions, table = operands[0].view(np.int32), operands[1]
    return np.take_along_axis(table, positions, work.reduced[0])


@functools.cache
def _erf_table() -> NDArray[np.float64]:
    """Per interval of width 1/64 up to 6, the cubic through erf and its slope at both ends."""
    grid = np.arange(6 * 64 + 1) / 64
    value = np.array([math.erf(x) for x in grid])
    slope = 2 / math.sqrt(math.pi) * np.exp(-grid * grid) / 64
    rise = np.diff(value)
    square = 3 * rise - 2 * slope[:-1] - slope[1:]
    return np.array([value[:-1], slope[:-1], square, slope[:-1] + slope[1:] - 2 * rise])


def erf(x: Array) -> NDArray[np.float64]:
    """The error function to 1e-8 (absolute), by cubic interpolation of the exact one; odd, NaN stays NaN."""
    scaled = np.minimum(np.abs(np.asarray(x, np.float64)), 6 - 1e-9) * 64
    index = np.nan_to_num(scaled).astype(np.intp)
    c0, c1, c2, c3 = _erf_table()[:, index]
    part = scaled - index
    return np.copysign(c0 + part * (c1 + part * (c2 + part * c3)), x)


def _gelu(x: Array) -> Array:
    return (x * 0.5 * (1 + erf(x / math.sqrt(2)))).astype(np.float32)


def _to_int32(x: Array) -> Array:
    """Towards zero; out of range becomes the nearest end of the range, NaN becomes 0."""
    whole = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0))
    return np.clip(whole, -(2.0**31), 2.0**31 - 1).astype(np.int32)


def _matmul(operands: Sequence[Array], work: Work) -> Array:
    """Contract what both inputs have and the result lacks; labels of all three are batches."""
    left, right = operands
    has_left, has_right, has_out = work.varies
    axes = range(left.ndim)
    batch = [a for a in axes if has_left[a] and has_right[a] and has_out[a]]
    rows = [a for a in axes if has_left[a] and not has_right[a]]
    columns = [a for a in axes if has_right[a] and not has_left[a]]
    inner = [a for a in axes if has_left[a] and has_right[a] and not has_out[a]]
    # In float32 the last bit would depend on the shape, so on the slices of the cores.
    left, right = left.astype(np.float64), right.astype(np.float64)
    product = np.matmul(_grouped(left, batch, rows, inner), _grouped(right, batch, inner, columns))
    order = [*batch, *rows, *columns, *(a for a in axes if a not in {*batch, *rows, *columns})]
    sizes = [(left if has_left[a] else right).shape[a] if has_out[a] else 1 for a in axes]
    return product.astype(np.float32).reshape([sizes[a] for a in order]).transpose(np.argsort(order))


def _grouped(array: Array, *groups: list[int]) -> Array:
    """``array`` as three axes: the product of each group of axes; the other axes have extent 1."""
    order = [axis for group in groups for axis in group]
    rest = [axis for axis in range(array.ndim) if axis not in order]
    shape = [math.prod(array.shape[axis] for axis in group) for group in groups]
    return array.transpose(order + rest).reshape(shape)


def _copy(operands: Sequence[Array], work: Work) -> Array:
    return operands[0]


#: Operations that move bits and never look at them.
COPIES = frozenset(("identity", "ReStickifyOpHBM", "gather"))

FUNCTIONS: dict[str, Function] = {
    **{name: _copy for name in ("identity", "ReStickifyOpHBM", "dl16tofp32", "fp32todl16")},
    "gather": _rows,
    "add": _pointwise(np.add),
    "sub": _pointwise(np.subtract),
    "revsub": _pointwise(lambda a, b: b - a),
    "mul": _pointwise(np.multiply),
    "realdiv": _pointwise(np.divide),
    "maximum": _pointwise(np.maximum),
    "minimum": _pointwise(np.minimum),
    "equal": _comparison(np.equal),
    "notequal": _comparison(np.not_equal),
    "greaterequal": _comparison(np.greater_equal),
    "lesserequal": _comparison(np.less_equal),
    "greaterthan": _comparison(np.greater),
    "lesserthan": _comparison(np.less),
    "where3": _pointwise(lambda condition, a, b: np.where(condition != 0, a, b)),
    "abs": _pointwise(np.abs),
    "neg": _pointwise(np.negative),
    "exp": _pointwise(np.exp),
    "reciprocal": _pointwise(lambda x: 1 / x),
    "sigmoid": _pointwise(_sigmoid),
    "silu": _pointwise(lambda x: x * _sigmoid(x)),
    "relufwd": _pointwise(lambda x: np.maximum(x, 0)),
    "floor": _pointwise(np.floor),
    "log": _pointwise(np.log),
    "sqrt": _pointwise(np.sqrt),
    "rsqrt": _pointwise(lambda x: 1 / np.sqrt(x)),
    "tanh": _pointwise(np.tanh),
    "gelufwd": _pointwise(_gelu),
    "relu6fwd": _pointwise(lambda x: np.clip(x, 0, 6)),
    "mish": _pointwise(_mish),
    "clip": _with_constants(_clip),
    "leakyrelufwd": _with_constants(_leaky_relu),
    "softplus": _with_constants(_softplus),
    "layernormscale": _with_constants(_inverse_deviation),
    "addi32toi32": _pointwise(np.add),
    "muli32toi32": _pointwise(np.multiply),
    "fp32toint32": _pointwise(_to_int32),
    "int32tofp32": _pointwise(lambda x: x.astype(np.float32)),
    **{name: _reduction(_sum) for name in ("sum", "sumnonstick")},
    **{name: _reduction(_max) for name in ("max", "maxnonstick")},
    **{name: _reduction(_min) for name in ("min", "minnonstick")},
    **{name: _reduction(_absmax) for name in ("absmax", "absmaxnonstick")},
    "prod": _reduction(_prod),
    "mean": _scaled(_sum, "scaling_factor"),
    "meannonstick": _scaled(_sum, "scaling_factor"),
    "exx2_zeromean": _scaled(_sum_of_squares, "exx2scale"),
    **dict.fromkeys(("batchmatmul", "batchmatmulint8", "batchmatmulfp8"), _matmul),
}

_COMBINED = {"add": np.add, "max": np.maximum, "min": np.minimum, "mul": np.multiply}


def combine_partials(opcode: str, partials: Sequence[Array]) -> Array:
    """The value of a reduction that several cores share, added in the order of their slices."""
    if len(partials) == 1:
        return partials[0]
    function = _COMBINED[COMBINE[opcode]]
    total = partials[0]
    with np.errstate(all="ignore"):
        for partial in partials[1:]:
            total = function(total, partial)
    return total
