"""Quantising as PyTorch does it, in f32: torch-mlir's form scales fp16 in fp16, and is off by one.

The operations are there once ``torch.ao.quantization`` has registered them, so ``forms`` asks for each.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def _quantized(x: Tensor, scale, zero_point, low: int, high: int, dtype: torch.dtype) -> Tensor:
    """round(x / scale) + zero_point between two limits; by way of int32, for a cast to 8 bits has a sign."""
    # Times the reciprocal, as PyTorch: the quotient may round otherwise.
    rounded = torch.round(x.float() * (1.0 / scale)) + zero_point
    return torch.clamp(rounded, low, high).to(torch.int32).to(dtype)


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


def forms() -> dict[torch._ops.OperatorBase, Callable]:
    """Decompositions of the quantising operations that are registered."""
    library = torch.ops.quantized_decomposed
    named = {"quantize_per_tensor": ("default", "tensor"), "quantize_per_channel": ("default",)}
    table: dict[torch._ops.OperatorBase, Callable] = {}
    for name, overloads in named.items():
        for overload in overloads if hasattr(library, name) else ():
            form = per_tensor if name == "quantize_per_tensor" else per_channel
            table[getattr(getattr(library, name), overload)] = form
    return table
