# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of pointwise PyTorch operations; ``FORMS`` is added to the table.

If a function returns ``NotImplemented``, the operation is kept.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np
import torch
from torch import Tensor

from spyre_mlir.target.formats import fits_fp16

aten = torch.ops.aten
NARROW = (torch.float16, torch.bfloat16)
_COMPARISONS = (aten.eq, aten.ne, aten.gt, aten.ge, aten.lt, aten.le)


def is_known(number: Any) -> TypeGuard[float]:
    """Return whether a number is a constant of the program; other numbers are inputs of the program."""
    return isinstance(number, int | float)


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """``softplus``: log(1 + exp(x * beta)) / beta, one operation of the device; x above the threshold.

    From 10 on both are the same 16-bit number. exp does not overflow up to 11, so a lower threshold avoids an overflow.
    """
    if x.dtype not in NARROW:
        return NotImplemented
    scaled = x if beta == 1 else x * beta
    result = torch.log1p(torch.exp(scaled))
    return torch.where(scaled > min(threshold, 10.0), x, result if beta == 1 else result / beta)


def log_sigmoid(x: Tensor) -> tuple[Tensor, Tensor]:
    """``log_sigmoid``: 0 - softplus(-x), and exp(-|x|), which the backward of PyTorch's own form reads."""
    return (0 - softplus(-x), torch.exp(-torch.abs(x))) if x.dtype in NARROW else NotImplemented


def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """``leaky_relu``: max(x, x * slope) for a slope above 0 and up to 1, else a choice between x and x * slope.

    For other slopes the maximum selects the wrong operand. The product is not NaN where PyTorch does not compute it:
    0 * slope is NaN for an infinite slope, and infinity * slope is NaN for a slope of 0.
    """
    if is_known(negative_slope) and 0 < negative_slope <= 1:
        return torch.maximum(x, x * negative_slope)
    return torch.where(x > 0, x, x * negative_slope)


def hardtanh(x: Tensor, low: float = -1, high: float = 1) -> Tensor:
    """``hardtanh``: a clamp in the type of ``x``; for integers the limits are integers."""
    if not x.is_floating_point():
        low, high = int(low), int(high)
    return torch.clamp(x, low, high)


def elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    """``elu``: x above 0, and below 0 exp(x) - 1 as 2 t / (1 - t) with t = tanh(x / 2).

    The difference would lose a small x. Half of a subnormal number has fewer bits, so near 0 the result is x itself.
    The device does not have a float32 tanh; in float32 the difference is accurate if x is not near 0.
    """
    if x.dtype not in (*NARROW, torch.float32):
        return NotImplemented
    below = torch.clamp(x, max=0)
    if x.dtype == torch.float32:
        below = (torch.exp(below * input_scale) - 1) * (alpha * scale)
    else:
        t = torch.tanh(below * (input_scale / 2))
        below = t / (1 - t) * (2 * alpha * scale)
    # Below this bound x^2 / 2 is less than half of the last bit of a 16-bit x, or, in float32, than the lost digits.
    nearest = -(2.0 ** (-12 if x.dtype == torch.float32 else -10)) / abs(input_scale or 1)
    if alpha * input_scale != 1:
        below = torch.where(x > nearest, x * (alpha * scale * input_scale), below)
        # The product of a zero and an infinite alpha is NaN.
        return torch.where(x >= 0, x * scale, below)
    return torch.where(x > nearest, x * scale, below)


def _truncated(x: Tensor) -> Tensor:
    """Number rounded towards 0; torch-mlir's form of ``trunc`` loses negative zero."""
    return torch.where(x < 0, -torch.floor(-x), torch.floor(x))


#: Numbers above the range of a type; f32 can represent 2^26 times each of them.
_BEYOND = {torch.float16: 2.0**17, torch.bfloat16: 2.0**100}


def _finite(y: Tensor, dtype: torch.dtype) -> Tensor:
    """Divisor of 16-bit numbers in f32; an infinity becomes a finite number beyond the range of the type.

    A number divided by it is nearly 0 and keeps its sign; 0 times it is 0.
    """
    return torch.clamp(y.float(), -_BEYOND[dtype], _BEYOND[dtype])


def quotient(x: Tensor, y, *, rounding_mode: str | None = None) -> Tensor:
    """``div`` with a rounding mode, in f32: a 16-bit quotient just below an integer would become that integer.

    Integers use integer division, because f64 cannot represent all of them and reports no error for a division by 0.
    """
    if not isinstance(x, Tensor):
        x = torch.full((), x, dtype=torch.result_type(x, y), device=y.device)
    common = torch.result_type(x, y)
    if rounding_mode == "floor" and _is_integer(x) and _is_integer(y):
        x, y = x.to(common), within(y, common)
        truncated = torch.div(x, y, rounding_mode="trunc")
        rest = x - truncated * y
        # Subtract one if the signs of remainder and divisor differ.
        return truncated - ((rest != 0) & ((rest < 0) != (y < 0))).to(truncated.dtype)
    if rounding_mode is None or common not in NARROW:
        return NotImplemented
    x = _of_type(x, common)
    # PyTorch does not round a number that it divides by.
    y = _of_type(y, common if isinstance(y, Tensor) else torch.float32)
    if rounding_mode == "trunc":
        return _truncated(x.float() / y.float()).to(common)
    quotient = torch.floor(x.float() / _finite(y, common))
    # The quotient of an infinity is NaN, because its remainder is NaN; a division by 0 does not have a remainder.
    return torch.where((x - x == 0) | (y == 0), quotient, torch.nan).to(common)


def _is_integer(x) -> bool:
    if not isinstance(x, Tensor):
        return isinstance(x, int) and not isinstance(x, bool)
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def within(number, dtype: torch.dtype):
    """Integer wrapped to a type that may be too small, as PyTorch converts it: the last bits. A tensor is cast."""
    if isinstance(number, Tensor):
        return number.to(dtype)
    limits = torch.iinfo(dtype)
    return (number - limits.min) % 2**limits.bits + limits.min


def remainder_by(rounding_mode: str) -> Callable[..., Any]:
    """Form of ``fmod``, whose result has the sign of x, or of ``remainder``, whose result has the sign of y."""

    def form(x: Tensor, y) -> Tensor:
        common = torch.result_type(x, y)
        if rounding_mode == "trunc" and _is_integer(x) and _is_integer(y):
            x, y = x.to(common), within(y, common)
            return x - torch.div(x, y, rounding_mode="trunc") * y
        if common not in NARROW:
            return NotImplemented
        wide, divisor = _of_type(x, common).float(), _of_type(y, common)
        size = torch.abs(wide)
        for unit in _units(_finite(torch.abs(divisor), common), y):
            size = size - unit * torch.floor(size / unit)
        # A difference of 0 does not carry the sign.
        rest = torch.where(size == 0, wide * 0, torch.where(wide < 0, -size, size))
        if rounding_mode == "floor":
            other = divisor.float()
            rest = torch.where(rest * other < 0, rest + other, rest)
        return rest.to(common)

    return form


def _units(y: Tensor, number) -> list[Tensor]:
    """Multiples of a divisor by which 16-bit remainders are reduced one after another, the largest first.

    Each quotient has at most 13 bits, so that its product with an 11-bit number is exact in f32.
    """
    powers = (26, 13, 0)
    if not isinstance(number, Tensor) and number:
        largest = math.log2(65504 / min(abs(number), 65504.0))
        powers = [power for power in powers if power <= largest]
    return [y * 2.0**power if power else y for power in powers]


def _of_type(x, dtype: torch.dtype) -> Tensor:
    """Tensor cast to a type, or number rounded to it, as PyTorch does when it combines a number with a tensor."""
    return x.to(dtype) if isinstance(x, Tensor) else torch.full((), x, dtype=dtype)


def scaled_by(operation: Callable[..., Tensor]) -> Callable[..., Any]:
    """Form of an fp16 tensor multiplied or divided by a number outside fp16: computed in f32, as PyTorch does."""

    def form(x: Tensor, y) -> Tensor:
        if isinstance(y, Tensor) or x.dtype != torch.float16 or (is_known(y) and fits_fp16(y)):
            return NotImplemented
        return operation(x.float(), y).to(x.dtype)

    return form


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Tanh approximation as x * sigmoid(2u): the usual (1 + tanh(u)) / 2 loses all digits of a small result."""
    if approximate != "tanh" or not x.is_floating_point():
        return NotImplemented
    scale = 2 * math.sqrt(2 / math.pi)
    return x * torch.sigmoid(x * (scale + 0.044715 * scale * (x * x)))


def copysign(x: Tensor, sign: Tensor) -> Tensor:
    """``copysign``: |x| or -|x|; integers are computed in f32; a zero has the sign of its reciprocal."""
    common = torch.result_type(x, sign)
    size = torch.abs(x.to(common if common.is_floating_point else torch.float32))
    if sign.dtype == torch.bool:
        return size
    signed = torch.where(sign == 0, 1 / sign, sign) if sign.is_floating_point() else sign
    return torch.where(signed < 0, -size, size)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """``hypot``: larger * sqrt(1 + (smaller / larger)^2), which overflows only if the result does.

    An infinite operand gives infinity, even if the other operand is NaN.
    """
    x, y = torch.abs(x), torch.abs(y)
    larger = torch.maximum(x, y)
    # Avoid dividing 0 by 0.
    ratio = torch.minimum(x, y) / torch.where(larger == 0, 1.0, larger)
    is_infinite = (x == torch.inf) | (y == torch.inf)
    return torch.where(is_infinite, torch.inf, larger * torch.sqrt(1 + ratio * ratio))


def isclose(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """``isclose``: equal, or |x - y| is finite and at most atol + |rtol * y|."""
    if not (x.is_floating_point() and x.dtype == y.dtype):
        return NotImplemented
    close = x == y
    if equal_nan:
        close = close | ((x != x) & (y != y))
    error = torch.abs(x - y)
    return close | ((error <= atol + torch.abs(rtol * y)) & (error != torch.inf))


def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """``xlogy``: x log(y), and 0 if x is 0, in the type of the operands; PyTorch's decomposition would use f32."""
    if not (isinstance(x, Tensor) and isinstance(y, Tensor) and x.dtype == y.dtype and x.dtype in NARROW):
        return NotImplemented
    return torch.where(y.isnan(), y, torch.where(x == 0, torch.zeros_like(x), x * torch.log(y)))


def logit(x: Tensor, eps: float | None = None) -> Tensor:
    """``logit``: log(x / (1 - x)); for a quotient near 1, log1p of the quotient minus 1."""
    if x.dtype not in NARROW:
        return NotImplemented
    # PyTorch clamps in f32, where 1 - eps may not be 1.
    if eps is not None and (x.dtype != torch.float16 or float(np.float16(1 - eps)) != 1 - eps):
        wide = torch.clamp(x.float(), eps, 1 - eps)
        return torch.log(wide / (1 - wide)).to(x.dtype)
    x = x if eps is None else torch.clamp(x, eps, 1 - eps)
    return torch.where(x < 0.25, torch.log(x / (1 - x)), torch.log1p((2 * x - 1) / (1 - x)))


def difference_from(x: Tensor, number, alpha=1) -> Tensor:
    """``rsub`` from a number that is an input of the program."""
    if is_known(number) or not is_known(alpha) or alpha != 1:
        return NotImplemented
    common = torch.result_type(x, number)
    return _of_type(number, common) - x.to(common)


def power(x: Tensor, exponent) -> Tensor:
    """``pow`` with an exponent for which the device has an operation.

    The root of -inf is NaN, but its power is a number. In fp16 PyTorch computes even the roots (1/2, -1/2) as powers.
    """

    def of_negative_infinity(power: Tensor, number: float) -> Tensor:
        return torch.where(x == -torch.inf, number, power)

    if x.dtype == torch.bool and isinstance(exponent, int):
        x = x.to(torch.int64)
    if _is_integer(x) and isinstance(exponent, int) and 0 < exponent < 64:
        return _integer_power(x, exponent)
    if not x.is_floating_point():
        return NotImplemented
    if exponent in (0.5, -0.5):
        root = torch.sqrt if exponent > 0 else torch.rsqrt
        if x.dtype != torch.float16:
            return root(x)
        return of_negative_infinity(torch.abs(root(x)), torch.inf if exponent > 0 else 0.0)
    forms: dict[float, Callable[[], Tensor]] = {
        -1: lambda: torch.reciprocal(x), 1: lambda: torch.clone(x), 2: lambda: x * x, 3: lambda: x * x * x,
        1.5: lambda: of_negative_infinity(x * torch.sqrt(x), torch.inf),
        -2: lambda: torch.square(torch.reciprocal(x)),
    }  # fmt: skip
    return forms[exponent]() if exponent in forms else NotImplemented


def _integer_power(x: Tensor, exponent: int) -> Tensor:
    """Product of ``exponent`` factors by repeated squaring; it wraps around like PyTorch's product."""
    if exponent == 1:
        return x.clone()
    root = _integer_power(x, exponent // 2)
    return root * root * x if exponent % 2 else root * root


def clamp(x: Tensor, low=None, high=None) -> Tensor:
    """``clamp`` of booleans by maximum and minimum: torch-mlir's form reads true as -1. A NaN limit gives NaN."""
    if x.is_floating_point() and any(is_known(limit) and math.isnan(limit) for limit in (low, high)):
        return torch.full_like(x, math.nan)
    if x.dtype != torch.bool:
        return NotImplemented
    limits = [limit for limit in (low, high) if limit is not None]
    types = (torch.result_type(x, limit) for limit in limits)
    common = functools.reduce(torch.promote_types, types, x.dtype)
    if common != x.dtype:
        return torch.clamp(x.to(common), low, high)
    for extreme, limit in ((torch.maximum, low), (torch.minimum, high)):
        if limit is not None:
            is_tensor = isinstance(limit, Tensor)
            x = extreme(x, limit if is_tensor else torch.full((), limit, dtype=x.dtype, device=x.device))
    return x if limits else x.clone()


def without_nan(extreme: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """Form of ``fmax`` or ``fmin``: the extreme, or the other operand if one operand is NaN."""

    def form(x: Tensor, y: Tensor) -> Tensor:
        common = torch.result_type(x, y)
        x, y = x.to(common), y.to(common)
        if not common.is_floating_point:
            return extreme(x, y)
        return torch.where(x != x, y, torch.where(y != y, x, extreme(x, y)))

    return form


def comparison(operation) -> Callable[..., Any]:
    """Form of a comparison with a number or a tensor of another type, in the common type.

    torch-mlir compares with numbers in f64 or in the type of ``x``, and sign-extends booleans.
    """

    def compare(x: Tensor, y) -> Tensor:
        common = torch.result_type(x, y)
        if isinstance(y, Tensor):
            return NotImplemented if x.dtype == y.dtype else operation.Tensor(x.to(common), y.to(common))
        if x.dtype == common and not x.is_floating_point():
            return NotImplemented
        return operation.Tensor(x.to(common), torch.full((), y, dtype=common, device=x.device))

    return compare


def threshold_backward(gradient: Tensor, x: Tensor, threshold) -> Tensor:
    """``threshold_backward``: the gradient if x is above the threshold, else 0, in the common type of both."""
    common = torch.result_type(gradient, x)
    return torch.where(x <= threshold, torch.zeros((), dtype=common, device=x.device), gradient.to(common))


def lerp(start: Tensor, end: Tensor, weight) -> Tensor:
    """``lerp`` of 16-bit numbers: x + w * (y - x), or from the other end for a weight of at least 0.5.

    PyTorch computes it in f32, where the difference of the largest numbers is finite. The difference of their halves is
    a 16-bit number.
    """
    if start.dtype not in NARROW:
        return NotImplemented
    x, y = start.float(), end.float()
    if not is_known(weight):
        weight = _of_type(weight, torch.float32)
        result = torch.where(weight.abs() < 0.5, _moved(x, y, weight), _moved(y, x, 1 - weight))
    else:
        result = _moved(x, y, weight) if abs(weight) < 0.5 else _moved(y, x, 1 - weight)
    return result.to(start.dtype)


def _moved(x: Tensor, y: Tensor, part) -> Tensor:
    """``x`` moved by the fraction ``part`` of its distance to ``y``."""
    return x + (y * 0.5 - x * 0.5) * (part * 2)


def addcmul(x: Tensor, one: Tensor, other: Tensor, *, value=1) -> Tensor:
    """``addcmul`` of 16-bit numbers in f32, with the factor last: a 16-bit product with it may underflow."""
    if not _are_narrow(x, one, other):
        return NotImplemented
    return _sum_with(x, one.float() * other.float(), value)


def addcdiv(x: Tensor, one: Tensor, other: Tensor, *, value=1) -> Tensor:
    """``addcdiv`` of 16-bit numbers in f32, with a 16-bit quotient: the device divides only 16-bit numbers."""
    return _sum_with(x, (one / other).float(), value) if _are_narrow(x, one, other) else NotImplemented


def _are_narrow(*tensors: Tensor) -> bool:
    return len({x.dtype for x in tensors}) == 1 and tensors[0].dtype in NARROW


def _sum_with(x: Tensor, term: Tensor, value) -> Tensor:
    """Sum of ``x`` and ``term * value`` in f32, rounded once."""
    return (x.float() + (term if is_known(value) and value == 1 else term * value)).to(x.dtype)


def sum_of_two(x: Tensor, y, *, alpha=1) -> Tensor:
    """``add`` of booleans as a disjunction, because a one-bit sum would wrap around."""
    if torch.result_type(x, y) != torch.bool:
        return NotImplemented
    y = y if isinstance(y, Tensor) else torch.full((), y, device=x.device)
    return torch.logical_or(x, y if alpha else torch.zeros_like(y))


FORMS = {
    aten.silu.default: lambda x: x * torch.sigmoid(x),
    aten.softplus.default: softplus,
    aten.log_sigmoid_forward.default: log_sigmoid,
    aten.mish.default: lambda x: x * torch.tanh(torch.nn.functional.softplus(x)),
    aten.leaky_relu.default: leaky_relu,
    aten.celu.default: lambda x, alpha=1.0: aten.elu(x, alpha, 1.0, 1.0 / alpha),
    aten.elu.default: elu,
    aten.gelu.default: gelu,
    aten.hardtanh.default: hardtanh,
    aten.ceil.default: lambda x: -torch.floor(-x) if x.is_floating_point() else NotImplemented,
    aten.trunc.default: lambda x: _truncated(x) if x.is_floating_point() else NotImplemented,
    aten.clamp.default: clamp,
    aten.clamp.Tensor: clamp,
    aten.clamp_min.default: clamp,
    aten.clamp_min.Tensor: clamp,
    aten.clamp_max.default: lambda x, high: clamp(x, None, high),
    aten.clamp_max.Tensor: lambda x, high: clamp(x, None, high),
    aten.threshold_backward.default: threshold_backward,
    aten.lerp.Scalar: lerp,
    aten.lerp.Tensor: lerp,
    aten.addcmul.default: addcmul,
    aten.addcdiv.default: addcdiv,
    aten.add.Tensor: sum_of_two,
    aten.add.Scalar: sum_of_two,
    aten.div.Tensor_mode: quotient,
    aten.div.Scalar_mode: quotient,
    aten.floor_divide.default: lambda x, y: torch.div(x, y, rounding_mode="floor"),
    aten.fmod.Tensor: remainder_by("trunc"),
    aten.fmod.Scalar: remainder_by("trunc"),
    aten.remainder.Tensor: remainder_by("floor"),
    aten.remainder.Scalar: remainder_by("floor"),
    aten.remainder.Scalar_Tensor: lambda number, y: torch.remainder(
        torch.full(y.shape, number, dtype=torch.result_type(number, y), device=y.device), y
    ),
    **{
        logarithm: lambda x, base=base: (
            torch.log(x) * (1 / math.log(base)) if x.is_floating_point() else NotImplemented
        )
        for logarithm, base in ((aten.log2.default, 2), (aten.log10.default, 10))
    },
    **{operation: scaled_by(operation) for operation in (aten.mul.Tensor, aten.div.Tensor)},
    aten.copysign.Tensor: copysign,
    aten.hypot.default: hypot,
    aten.isclose.default: isclose,
    aten.xlogy.Tensor: xlogy,
    aten.logit.default: logit,
    # Integers as a difference: torch-mlir's form of ``neg`` uses f32, which cannot represent all integers.
    aten.neg.default: lambda x: aten.rsub.Scalar(x, 0) if _is_integer(x) else NotImplemented,
    aten.rsub.Scalar: difference_from,
    aten.pow.Tensor_Scalar: power,
    aten.fmax.default: without_nan(torch.maximum),
    aten.fmin.default: without_nan(torch.minimum),
    **{
        form: comparison(operation)
        for operation in _COMPARISONS
        for form in (operation.Scalar, operation.Tensor)
    },
}
