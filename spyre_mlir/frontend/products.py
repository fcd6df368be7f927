# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decompositions of matrix products with a sum, of 8-bit products with scales, of rounding and of quantizing.

``FORMS`` is added to the table. The operations of ``quantized_decomposed`` exist only after ``torch.ao.quantization``
registers them, so ``quantizing_forms`` looks each of them up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _sum(added: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta * added + alpha * product in the type of the product; with beta = 0 ``added`` is ignored, even NaN."""
    if not product.is_floating_point():
        # A float factor would make the product a float.
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (added if beta == 1 else added * beta)


def matrix_vector(matrix: Tensor, vector: Tensor) -> Tensor:
    """``mv``: a matmul with one column."""
    return torch.mm(matrix, vector.unsqueeze(1)).squeeze(1)


def _scaled_products(added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``baddbmm``: beta * added + alpha * (x @ y), in the type of the factors."""
    return _sum(added, torch.bmm(x, y), beta, alpha)


def _scaled_product(added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``addmm`` in the cases that torch-mlir does not lower: integers, no elements, or beta = 0."""
    if x.is_floating_point() and x.numel() and y.numel() and beta != 0:
        return NotImplemented
    # torch-mlir lowers all other calls itself.
    return _sum(added, torch.mm(x, y), beta, alpha)


def _scaled_sum_of_products(
    added: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """``addbmm``: beta * added + alpha * the sum of the products of a batch, as one product of longer rows."""
    rows, columns = x.shape[1], y.shape[2]
    product = torch.mm(x.transpose(0, 1).reshape(rows, -1), y.reshape(-1, columns))
    return _sum(added, product, beta, alpha)


# 8-bit operations. Quantizing is in f32, because torch-mlir's form scales fp16 in fp16 and is off by one.


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


def quantized(x: Tensor, scale, zero_point, quant_min: int, quant_max: int, dtype: torch.dtype) -> Tensor:
    """round(x / scale) + zero_point, clamped; uint8 is reached through int32, because casts to 8 bits are signed."""
    # Times the reciprocal, as in PyTorch: the quotient may round differently.
    result = torch.clamp(torch.round(x.float() * (1.0 / scale)) + zero_point, quant_min, quant_max)
    return result.to(dtype) if dtype == torch.int8 else result.to(torch.int32).to(dtype)


def dequantized(
    x: Tensor, scale, zero_point, quant_min: int, quant_max: int, dtype: torch.dtype, *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:  # fmt: skip
    """(x - zero_point) * scale, in f32."""
    return ((x.float() if zero_point is None else x.float() - zero_point) * scale).to(
        out_dtype or torch.float32
    )


def per_channel(form: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Form with a scale and a zero point for each position along ``axis``."""

    def along_axis(x: Tensor, scales: Tensor, zero_points: Tensor | None, axis: int, *arguments, **options):
        shape = [-1 if dim == axis % x.ndim else 1 for dim in range(x.ndim)]
        points = None if zero_points is None else zero_points.reshape(shape)
        return form(x, scales.reshape(shape), points, *arguments, **options)

    return along_axis


def quantizing_forms() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Decompositions of the quantizing operations that are registered."""
    library = torch.ops.quantized_decomposed
    named = {
        "quantize_per_tensor.default": quantized,
        "quantize_per_tensor.tensor": quantized,
        "quantize_per_channel.default": per_channel(quantized),
        "dequantize_per_tensor.tensor": dequantized,
        "dequantize_per_channel.default": per_channel(dequantized),
    }
    pairs = [(name.split("."), form) for name, form in named.items()]
    return {
        getattr(getattr(library, name), overload): form
        for (name, overload), form in pairs
        if hasattr(library, name)
    }


FORMS: dict[torch._ops.OperatorBase, Callable[..., Any]] = {
    aten.baddbmm.default: _scaled_products,
    aten.addmm.default: _scaled_product,
    aten.addbmm.default: _scaled_sum_of_products,
    aten.addmv.default: lambda added, matrix, vector, *, beta=1, alpha=1: _sum(
        added, matrix_vector(matrix, vector), beta, alpha
    ),
    aten.mv.default: matrix_vector,
    # A matmul with one row and one column.
    aten.dot.default: lambda x, y: torch.mm(x.unsqueeze(0), y.unsqueeze(1)).reshape(()),
    aten.round.default: rounded,
    aten.round.decimals: rounded_to_decimals,
    aten._scaled_mm.default: scaled_matmul,
    aten._weight_int8pack_mm.default: packed_matmul,
}
# Only in newer versions of PyTorch.
if hasattr(aten, "_scaled_mm_v2"):
    FORMS[aten._scaled_mm_v2.default] = scaled_matmul_by_recipe
