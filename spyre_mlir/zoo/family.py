# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A family: a program at full size with its schedule and hand-counted figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spyre_mlir.records import dataclass
from spyre_mlir.zoo.blocks import AppliedFunction, Program

#: Types whose tensors have numbers and memory.
EIGHT_BITS = (torch.int8, torch.float8_e4m3fn)

Shape = tuple[int, ...]
#: An input: its shape (fp16), or shape and type.
Input = Shape | tuple[Shape, torch.dtype]


@dataclass(frozen=True)
class Family:
    """A program; ``make`` returns its module or function and inputs; ``changed`` are inputs written in place."""

    make: Callable[[], tuple[nn.Module | Callable[..., Any], Sequence[Input]]]
    schedule: str
    bytes: int
    multiply_adds: int
    changed: tuple[int, ...] = ()

    def program(self) -> Program:
        """Return the module in eval mode and its inputs; all tensors are zeros that share their memory."""
        with torch.device("meta"):
            built, inputs = self.make()
            model = built if isinstance(built, nn.Module) else AppliedFunction(built)
        for module in model.modules():
            _fill(module)
        tensors = []
        for index, spec in enumerate(inputs):
            shape, dtype = spec if isinstance(spec[-1], torch.dtype) else (spec, torch.float16)
            # Inputs that are written in place need memory, which the system provides at the first access.
            is_changed = index in self.changed
            tensors.append(torch.zeros(shape, dtype=dtype) if is_changed else _zeros(shape, dtype))  # pyright: ignore
        return model.eval(), tuple(tensors)


def causal_pairs(rows: int, window: int = 0) -> int:
    """Return the number of (query, key) pairs of causal attention, with a window of at most ``window`` keys."""
    window = window or rows
    return window * (window + 1) // 2 + (rows - window) * window


def _zeros(shape: Shape, dtype: torch.dtype) -> Tensor:
    return torch.zeros((), dtype=dtype).expand(shape)


def _fill(module: nn.Module) -> None:
    for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        numbers = _zeros(tensor.shape, torch.float16 if tensor.dtype == torch.float32 else tensor.dtype)
        if tensor.dtype in EIGHT_BITS:
            # The import folds operations on data: a widened weight of zeros would no longer be a weight.
            numbers = (
                (torch.arange(tensor.numel()) % 7).to(torch.int8).view(tensor.dtype).reshape(tensor.shape)
            )
        setattr(module, name, nn.Parameter(numbers, False) if isinstance(tensor, nn.Parameter) else numbers)
