# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._C``: layouts of tensors on the device."""

from __future__ import annotations

import torch

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.tensor_layouts import (
    DataFormats,
    SpyreTensorLayout,
    get_device_dtype,
    get_elem_in_stick,
)
from spyre_mlir.frontend.torch_device import SpyreTensor

__all__ = [
    "DataFormats",
    "SpyreTensorLayout",
    "get_device_dtype",
    "get_elem_in_stick",
    "get_spyre_tensor_layout",
]


def get_spyre_tensor_layout(tensor: torch.Tensor) -> SpyreTensorLayout:
    """Return the layout of a tensor on the device; ``CompileError`` for a tensor of the host."""
    if not isinstance(tensor.data, SpyreTensor):
        raise CompileError(f"A tensor on {tensor.device} does not have a layout; move it to 'spyre'.")
    return tensor.data.device_tensor_layout()
