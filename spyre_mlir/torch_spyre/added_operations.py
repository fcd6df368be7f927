# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.ops.spyre``: the operations that torch-spyre adds to PyTorch, as compositions of PyTorch's own.

A composition runs in eager mode, under ``torch.compile``, on meta tensors and on the host, and has gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from spyre_mlir.tensors.device_activity import Listener, listen

_FP8 = torch.float8_e4m3fn
_FP8_MAX = torch.finfo(_FP8).max


def _part(output: Tensor, shape: Sequence[int], dims: Sequence[int], offsets: Sequence[int]) -> Tensor:
    """Return the view that begins at ``offsets`` of ``dims`` and has the sizes of ``shape`` in these dims."""
    for dim, offset in zip(dims, offsets, strict=True):
        output = output.narrow(dim, offset, shape[dim])
    return output


def _overwrite(input: Tensor, output: Tensor, dims: Sequence[int], offsets: Sequence[int]) -> None:
    _part(output, input.shape, dims, offsets).copy_(input)


def _overwritten(input: Tensor, output: Tensor, dims: Sequence[int], offsets: Sequence[int]) -> Tensor:
    result = output.clone()
    _overwrite(input, result, dims, offsets)
    return result


def _to_fp8(input: Tensor) -> Tensor:
    """Convert to 8-bit floating-point numbers; numbers beyond the largest one become the largest one."""
    return input.clamp(-_FP8_MAX, _FP8_MAX).to(_FP8)


#: Operations by their schemas.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "softplus(Tensor input, float beta=1.0, float threshold=20.0) -> Tensor": functional.softplus,
    "layer_norm(Tensor x, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-5) -> Tensor":
        functional.layer_norm,
    "rms_norm(Tensor x, int[] normalized_shape, Tensor? weight=None, float eps=1e-5) -> Tensor": functional.rms_norm,
    "gelu(Tensor input, str approximate='none') -> Tensor":
        lambda input, approximate="none": functional.gelu(input, approximate=approximate),
    "silu(Tensor input) -> Tensor": functional.silu,
    "clamp(Tensor input, Scalar? min=None, Scalar? max=None) -> Tensor": torch.clamp,
    "logical_not(Tensor input) -> Tensor": torch.logical_not,
    "topkvalue(Tensor x, int k, int dim) -> Tensor": lambda x, k, dim: torch.topk(x, k, dim).values,
    "topkindex(Tensor x, int k, int dim) -> Tensor": lambda x, k, dim: torch.topk(x, k, dim).indices,
    "overwrite(Tensor input, Tensor(a!) output, int[] dims, int[] offsets) -> ()": _overwrite,
    "overwrite_f(Tensor input, Tensor output, int[] dims, int[] offsets) -> Tensor": _overwritten,
    "qfp8ch(Tensor input) -> Tensor": _to_fp8,
    "quantize_fp8_with_scale(Tensor input, Tensor scale) -> Tensor": lambda input, scale: _to_fp8(input / scale),
    "dequantize_fp8_with_scale(Tensor input, Tensor scale) -> Tensor":
        lambda input, scale: input.to(torch.float16) * scale,
}  # fmt: skip

_libraries: list[torch.library.Library] = []


def install() -> None:
    """Define the operations, once."""
    if _libraries:
        return
    library = torch.library.Library("spyre", "FRAGMENT")
    for schema, function in OPERATIONS.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], function, "CompositeImplicitAutograd")
    # A library that is garbage-collected removes its operations.
    _libraries.append(library)


# ``torch.spyre.set_downcast_warning``: warnings for integers of 64 bits that are moved to the device.

_TEXT = (
    "The device does not support int64: its integers have 32 bits. The simulated device keeps the numbers; a card does "
    "not keep numbers beyond 32 bits."
)


class DowncastListener(Listener):
    """Warns, if enabled, when a tensor of 64-bit integers is copied to the device."""

    is_enabled = True

    def on_copy(self, tensor: Any, to_device: bool) -> None:
        """Warn about a copy to the device."""
        if to_device and self.is_enabled and tensor.dtype == torch.int64:
            warnings.warn(_TEXT, UserWarning, stacklevel=2)


def install_downcast_warning() -> None:
    """Add ``get_downcast_warning`` and ``set_downcast_warning`` to ``torch.spyre``; the warning is enabled."""
    device, listener = torch.get_device_module("spyre"), DowncastListener()

    def get_downcast_warning() -> bool:
        """Return whether the warning is enabled."""
        return listener.is_enabled

    def set_downcast_warning(enabled: bool) -> None:
        """Enable or disable the warning."""
        listener.is_enabled = enabled

    device.get_downcast_warning, device.set_downcast_warning = get_downcast_warning, set_downcast_warning
    listen(listener)
