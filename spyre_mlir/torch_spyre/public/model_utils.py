# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre.model_utils``: models on the device, with the layout of weights that matmuls read without relayouts."""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
from torch import nn

from spyre_mlir.torch_spyre.public._C import DataFormats, get_device_dtype

_DEVICE = "spyre"


def load_model_to_spyre(model: nn.Module, dtype: torch.dtype | None = None) -> nn.Module:
    """Move a model to the device in place and return it; weights of linear layers have their outputs in the stick.

    ``dtype`` is the type of floating-point parameters and buffers on the device; without it, types do not change.
    Tensors that are on the device stay. Raises ``ValueError`` for a type that the device does not support.
    """
    if dtype is not None and get_device_dtype(dtype) is DataFormats.INVALID:
        raise ValueError(
            f"The device does not support {dtype}; choose torch.float16, torch.bfloat16 or torch.float32."
        )
    weights = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Linear)}

    def move(tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor on the device."""
        if tensor.device.type == _DEVICE:
            return tensor
        converted = tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
        return _dma_to_spyre_dim_order_swapped(converted) if id(tensor) in weights else converted.to(_DEVICE)

    with torch.no_grad():
        return model._apply(move)


def _dma_to_spyre_dim_order_swapped(weight: torch.Tensor) -> torch.Tensor:
    """Move a matrix to the device with dim 0 in the stick."""
    assert weight.dim() == 2, f"The weight is a matrix, not a tensor of {weight.dim()} dims."
    return cast(Any, weight).to(_DEVICE, dim_order=[1, 0])


def patch_module_to_for_spyre() -> None:
    """Make ``nn.Module.to("spyre")`` call ``load_model_to_spyre``; further calls of this function change nothing."""
    original = nn.Module.to
    if getattr(original, "_spyre_patched", False):
        return

    @functools.wraps(original)
    def to(self: nn.Module, *args: Any, **named: Any) -> nn.Module:
        """Return the module on another device or in another type."""
        device, dtype, *_ = cast(Any, torch._C)._nn._parse_to(*args, **named)
        if device is None or device.type != _DEVICE:
            return original(self, *args, **named)
        return load_model_to_spyre(self, dtype)

    to._spyre_patched = True  # type: ignore[attr-defined]
    nn.Module.to = to
