# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Model of the demo, with the result of PyTorch and the exact result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Example:
    """A model with inputs, PyTorch's ``result`` in the type of the inputs, and the ``exact`` result in float64."""

    model: Callable[..., Any]
    inputs: tuple[torch.Tensor, ...]
    result: np.ndarray
    exact: np.ndarray


def softmax(rows: int, columns: int, dim: int = 0) -> Example:
    """Softmax of normal fp16 numbers."""
    # The demo has the same inputs in every run.
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, columns, generator=generator).half()
    model = torch.nn.Softmax(dim)
    return Example(model, (x,), model(x).numpy(), model(x.double()).numpy())
