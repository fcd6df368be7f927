# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Floating-point operations of linalg, counted against formulas."""

from __future__ import annotations

import pytest
import torch

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.dialects import context
from spyre_mlir.driver.build import float_operations
from spyre_mlir.frontend import import_torch


def half(*shape: int) -> torch.Tensor:
    return torch.ones(shape).half()


MODELS = {
    "a product of matrices": (lambda x, y: x @ y, (half(3, 5), half(5, 7)), 2 * 3 * 5 * 7),
    "a batch of them": (torch.bmm, (half(2, 3, 5), half(2, 5, 7)), 2 * 2 * 3 * 5 * 7),
    "pointwise": (lambda x: torch.exp(x) * x, (half(3, 5),), 2 * 15),
    "integers do not count": (lambda i: i * i + 1, (torch.ones(9, dtype=torch.int64),), 0),
    "a sum over one dim": (lambda x: x.float().sum(1), (torch.ones(4, 6),), 24),
    # 2 x 3 windows of 2 x 2; the sums alone, nothing is divided by 1
    "a window that slides": (
        lambda x: torch.nn.functional.avg_pool2d(x, 2, divisor_override=1), (torch.ones(1, 1, 4, 6),), 4 * 6,
    ),
    "a convolution": (
        lambda x, w: torch.nn.functional.conv2d(x, w), (half(1, 3, 6, 8), half(5, 3, 3, 3)), 2 * 5 * 4 * 6 * 27,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_operations(name: str) -> None:
    model, inputs, expected = MODELS[name]
    module = import_torch(model, inputs, context=context()).module
    assert sum(float_operations(func) for func in functions(module.operation)) == expected
