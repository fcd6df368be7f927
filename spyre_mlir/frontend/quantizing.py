# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""8-bit operations of PyTorch: products with scales, rounding to integers, quantizing and dequantizing.

Quantizing is in f32, because torch-mlir's form scales fp16 in fp16 and is off by one. The operations of
``quantized_decomposed`` exist only after ``torch.ao.quantization`` registers them, so ``forms`` looks each of them up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_FP8 = torch.float8_e4m3fn
_LARGEST = torch.finfo(_FP8).max

#: In float32 numbers from 2^23 on are integers, and the spacing of numbers from 2^23 to 2^24 is 1.
_INTEGERS = 2.0**23


def rounded(x: Tensor) -> Tensor:
    """Round to integers, ties to even, by f32 sums: the device cannot round, torch-mlir's form has 12 operations."""
    if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return NotImplemented
    if x.dtype == torch.float32:
        size = x.abs()
        near = (size + _INTEGERS) - _INTEGERS
        return torch.where(size < _INTEGERS, torch.where(x < 0, -near, near), x)
    # Numbers of 16 bits are integers from 2^22 on, and a sum of a smaller one lies between 2^23 and 2^24.
    wide, shift = x.float(), 1.5 * _INTEGERS
    return torch.where(wide.abs() < _INTEGERS / 2, (wide + shift) - shift, wide).to(x.dtype)


def rounded_to_decimals(x: Tensor, *, decimals: int) -> Tensor:
    """``round`` to a power of ten, in f32 and rounded to the type of ``x`` once, as PyTorch computes it."""
    power = 10.0 ** abs(decimals)
    if (
        x.dtype not in (torch.float16, torch.bfloat16, torch.float32)
        or power > torch.finfo(torch.float32).max
    ):
        return NotImplemented
    wide = x.float()
    rounded = torch.round(wide * power) / power if decimals > 0 else torch.round(wide / power) * power
    return rounded.to(x.dtype)


def scaled_matmul(
    left: Tensor, right: Tensor, scale_left: Tensor, scale_right: Tensor, bias: Tensor | None = None,
    scale_result: Tensor | None = None, out_dtype: torch.dtype | None = None, use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """left @ right * scale_left * scale_right + bias of fp8, in f32; the device rounds the product to 16 bits."""
    if left.dtype != _FP8 or right.dtype != _FP8 or scale_result is not None:
        return NotImplemented
    result = torch.mm(left.float(), right.float()) * scale_left * scale_right
    result = result if bias is None else result + bias.float()
    is_narrow = out_dtype in (None, _FP8)
    return result.clamp(-_LARGEST, _LARGEST).to(_FP8) if is_narrow else result.to(out_dtype)


def scaled_matmul_by_recipe(
    left: Tensor, right: Tensor, scale_left, recipe_left, swizzle_left, scale_right, recipe_right, swizzle_right,
    bias: Tensor | None, out_dtype: torch.dtype | None, contraction_dim=(), use_fast_accum: bool = False,
) -> Tensor:  # fmt: skip
    """``scaled_matmul`` with lists of scales: one scale per operand, for the whole operand or per row (column)."""
    if {*recipe_left, *recipe_right} - {0, 1} or len(scale_left) != 1 or len(scale_right) != 1:
        return NotImplemented
    row, column = scale_left[0], scale_right[0]
    row = row.reshape(-1, 1) if recipe_left[0] == 1 else row
    column = column.reshape(1, -1) if recipe_right[0] == 1 else column
    return scaled_matmul(left, right, row, column, bias, None, out_dtype)


def packed_matmul(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """x @ weight^T of int8 weights with a scale per row, applied before the product, whose sums could overflow."""
    return torch.mm(x, (weight.to(x.dtype) * scales.to(x.dtype).reshape(-1, 1)).t())


def _quantized(x: Tensor, scale, zero_point, low: int, high: int, dtype: torch.dtype) -> Tensor:
    """round(x / scale) + zero_point, clamped; uint8 is reached through int32, because casts to 8 bits are signed."""
    # Times the reciprocal, as in PyTorch: the quotient may round differently.
    result = torch.clamp(torch.round(x.float() * (1.0 / scale)) + zero_point, low, high)
    return result.to(dtype) if dtype == torch.int8 else result.to(torch.int32).to(dtype)


def per_tensor(
    x: Tensor, scale: float, zero_point: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:
    """``quantize_per_tensor``: one scale and zero point."""
    return _quantized(x, scale, zero_point, quant_min, quant_max, dtype)


def per_channel(
    x: Tensor, scales: Tensor, zero_points: Tensor, axis: int, quant_min: int, quant_max: int, dtype: torch.dtype
) -> Tensor:  # fmt: skip
    """``quantize_per_channel``: a scale and a zero point for each position along ``axis``."""
    shape = [-1 if dim == axis % x.ndim else 1 for dim in range(x.ndim)]
    return _quantized(x, scales.reshape(shape), zero_points.reshape(shape), quant_min, quant_max, dtype)


def dequantized_per_tensor(
    x: Tensor, scale, zero_point, quant_min: int, quant_max: int, dtype: torch.dtype, *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """``dequantize_per_tensor``: (x - zero_point) * scale, in f32."""
    return ((x.float() - zero_point) * scale).to(out_dtype or torch.float32)


def dequantized_per_channel(
    x: Tensor, scales: Tensor, zero_points: Tensor | None, axis: int, quant_min: int, quant_max: int,
    dtype: torch.dtype, *, out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """``dequantize_per_channel``: (x - zero_points) * scales along ``axis``, in f32."""
    shape = [-1 if dim == axis % x.ndim else 1 for dim in range(x.ndim)]
    shifted = x.float() if zero_points is None else x.float() - zero_points.reshape(shape)
    return (shifted * scales.reshape(shape)).to(out_dtype or torch.float32)


FORMS: dict[torch._ops.OperatorBase, Callable[..., Any]] = {
    torch.ops.aten.round.default: rounded,
    torch.ops.aten.round.decimals: rounded_to_decimals,
    torch.ops.aten._scaled_mm.default: scaled_matmul,
    torch.ops.aten._weight_int8pack_mm.default: packed_matmul,
}
# Only in newer versions of PyTorch.
if hasattr(torch.ops.aten, "_scaled_mm_v2"):
    FORMS[torch.ops.aten._scaled_mm_v2.default] = scaled_matmul_by_recipe


def forms() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Decompositions of the quantizing operations that are registered."""
    library = torch.ops.quantized_decomposed
    named: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
        "quantize_per_tensor": (per_tensor, ("default", "tensor")),
        "quantize_per_channel": (per_channel, ("default",)),
        "dequantize_per_tensor": (dequantized_per_tensor, ("tensor",)),
        "dequantize_per_channel": (dequantized_per_channel, ("default",)),
    }
    return {
        getattr(getattr(library, name), overload): form
        for name, (form, overloads) in named.items()
        for overload in (overloads if hasattr(library, name) else ())
    }
