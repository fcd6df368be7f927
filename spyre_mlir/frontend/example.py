# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Model of the demo, with PyTorch's result and the exact one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Example:
    """A model with inputs, PyTorch's ``result`` in the inputs' type, and the ``exact`` one in float64."""

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
