# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""8-bit weights from safetensors, in linear layers that keep the weights as they are stored.

Names follow the checkpoints of Hugging Face: ``<layer>.weight`` of int8 or float8_e4m3fn comes with
``<layer>.weight_scale`` (or ``weight_scale_inv``, which also multiplies), and with ``<layer>.input_scale`` if the
activations have one known scale. A scale is one number, one per row of the weight, or one per row and group of columns.
"""

from __future__ import annotations

import importlib
import os
from typing import Literal

import torch
from torch import Tensor, nn

from spyre_mlir.errors import CompileError

_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}
_SCALES = ("weight_scale", "weight_scale_inv")

#: The scale of a row of zeros, for which any scale would be correct.
_SMALLEST_SCALE = 1e-12


class EightBitLinear(nn.Module):
    """A linear layer with an 8-bit weight and its scales.

    Without ``activations`` the weight is widened and scaled before it is multiplied.

    Attributes:
        weight: [out, in] of int8 or float8_e4m3fn.
        weight_scale: [1, 1], [out, 1] or [out, groups] of float32.
        bias: [out], or None.
        input_scale: [1, 1] of float32, the scale by which all rows of the input are quantized, or None.
        activations: "token": each row of the input is quantized by its largest number; "tensor": all rows are quantized
            by ``input_scale``; None: the input is not quantized.
    """

    weight: Tensor
    weight_scale: Tensor
    bias: Tensor | None
    input_scale: Tensor | None

    def __init__(
        self,
        weight: Tensor,
        scale: Tensor,
        bias: Tensor | None = None,
        activations: Literal["token"] | None = None,
        input_scale: Tensor | None = None,
    ) -> None:
        """Create a layer from the tensors of a checkpoint.

        Args:
            weight: [out, in].
            scale: One number, one per row, or one per row and group of columns.
            bias: [out], or None.
            activations: "token", or None for 16-bit activations.
            input_scale: One number, or None.

        Raises:
            CompileError: The scale has another shape, or does not support ``activations``.
        """
        super().__init__()
        rows, columns = weight.shape
        scale = scale.reshape(rows, -1) if scale.numel() > 1 and scale.numel() % rows == 0 else scale
        if scale.numel() > 1 and (scale.ndim != 2 or columns % scale.shape[1]):
            raise CompileError(
                f"The scale of a weight of {rows} x {columns} is one number, {rows}, or {rows} x a divisor of "
                f"{columns}; this one has the shape {list(scale.shape)}."
            )
        self.activations = activations if input_scale is None else "tensor"
        if self.activations and scale.numel() not in (1, rows):
            raise CompileError(
                "A weight with scales by group takes activations of 16 bits: give no activations."
            )
        self.register_buffer("weight", weight)
        self.register_buffer(
            "weight_scale", scale.float().reshape(scale.shape if scale.numel() > 1 else (1, 1))
        )
        self.register_buffer("bias", bias)
        self.register_buffer(
            "input_scale", None if input_scale is None else input_scale.float().reshape(1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the product with ``x``, [.., in], as [.., out] in the type of ``x``."""
        if self.activations is None:
            return nn.functional.linear(x, self._widened(x.dtype), self.bias)
        rows = x.reshape(-1, x.shape[-1]).float()
        limit = _LARGEST[self.weight.dtype]
        scale = self.input_scale
        if scale is None:
            scale = rows.abs().amax(-1, keepdim=True).clamp(min=_SMALLEST_SCALE) / limit
        codes = rows / scale
        if self.weight.dtype == torch.int8:
            codes = torch.round(codes).clamp(-limit, limit).to(torch.int8)
            sums = torch.ops.aten._int_mm(codes, self.weight.t()).float()
        else:
            codes = codes.clamp(-limit, limit).to(self.weight.dtype)
            # Products of fp8 numbers are exact in float32: the device multiplies the fp8 numbers directly.
            sums = torch.mm(codes.float(), self.weight.t().float())
        result = sums * scale * self.weight_scale.reshape(1, -1)
        result = result if self.bias is None else result + self.bias.float()
        return result.to(x.dtype).reshape(*x.shape[:-1], -1)

    def _widened(self, dtype: torch.dtype) -> Tensor:
        """Return the weight in 16 bits."""
        weight, scale = self.weight.to(dtype), self.weight_scale.to(dtype)
        if scale.shape[1] == 1:
            return weight * scale
        return (weight.unflatten(1, (scale.shape[1], -1)) * scale.unsqueeze(-1)).flatten(1)


def load_eight_bits(
    model: nn.Module, path: str | os.PathLike[str], activations: Literal["token"] | None = None
) -> nn.Module:
    """Load a safetensors checkpoint into a model, in place, and return the model.

    Requires the package safetensors, which is the extra ``spyre-mlir[checkpoints]``.

    Linear layers whose weight has 8 bits in the file become ``EightBitLinear``; ``load_state_dict`` loads all other
    tensors.

    Args:
        model: The model.
        path: The file.
        activations: The option of ``EightBitLinear``.

    Raises:
        CompileError: The file cannot be read, the model or the file lacks tensors, an 8-bit weight does not belong to a
            linear layer or does not have a scale, or safetensors is not installed.
    """
    try:
        load_file = importlib.import_module("safetensors.torch").load_file
    except ImportError as error:
        raise CompileError(
            "Loading a checkpoint needs safetensors: pip install 'spyre-mlir[checkpoints]'."
        ) from error
    try:
        tensors = dict(load_file(path))
    # safetensors raises its own errors for a file that is not a checkpoint.
    except Exception as error:
        raise CompileError(f"The checkpoint '{path}' cannot be read: {str(error).rstrip('.')}.") from error
    modules = dict(model.named_modules())
    for name in [name for name, tensor in tensors.items() if tensor.dtype in _LARGEST]:
        layer = name.removesuffix(".weight")
        parent, _, last = layer.rpartition(".")
        old = modules.get(layer)
        if not isinstance(old, nn.Linear) or not name.endswith(".weight"):
            raise CompileError(
                f"The checkpoint has '{name}' in 8 bits, but the model has no linear layer '{layer}'."
            )
        # The tensors of the layer are removed, so that ``load_state_dict`` loads the others.
        weight = tensors.pop(name)
        if weight.shape != old.weight.shape:
            raise CompileError(
                f"'{name}' is {list(weight.shape)} in the checkpoint and {list(old.weight.shape)} in the model."
            )
        scales = [scale for scale in _SCALES if f"{layer}.{scale}" in tensors]
        if len(scales) != 1:
            raise CompileError(f"The checkpoint has '{name}' in 8 bits, but no '{layer}.weight_scale'.")
        scale, input_scale = tensors.pop(f"{layer}.{scales[0]}"), tensors.pop(f"{layer}.input_scale", None)
        if old.bias is not None and f"{layer}.bias" not in tensors:
            raise CompileError(f"The checkpoint lacks '{layer}.bias'.")
        bias = None if old.bias is None else tensors[f"{layer}.bias"]
        new = EightBitLinear(weight, scale, bias, activations, input_scale)
        setattr(model.get_submodule(parent), last, new)
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    replaced = {name for name, module in model.named_modules() if isinstance(module, EightBitLinear)}
    missing = [name for name in missing if name.rpartition(".")[0] not in replaced]
    if missing or unexpected:
        what, names = ("lacks", missing) if missing else ("has, and the model lacks,", unexpected)
        raise CompileError(f"The checkpoint {what} {', '.join(sorted(names)[:5])}.")
    return model
