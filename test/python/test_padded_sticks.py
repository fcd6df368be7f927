# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors of f32 between casts fill whole sticks of f16, so they stay in LX whatever the parity of their sticks."""

from __future__ import annotations

import pytest
import torch

import spyre_mlir
from spyre_mlir.zoo.blocks import AppliedFunction


def _softmax(x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    weights = (wide - wide.amax(-1, keepdim=True)).exp()
    return (weights / weights.sum(-1, keepdim=True)).half()


def _chain(x: torch.Tensor) -> torch.Tensor:
    return (x.float().abs() + torch.arange(x.shape[-1])).sqrt().half()


FUNCTIONS = {"softmax": _softmax, "chain": _chain}


@pytest.mark.parametrize("columns", [130, 150, 577, 2050])
@pytest.mark.parametrize("rows", [(64,), (3, 40)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_intermediates_stay_in_lx(name: str, rows: tuple[int, ...], columns: int) -> None:
    x = torch.randn(*rows, columns, generator=torch.Generator().manual_seed(columns)).half()
    program = spyre_mlir.compile(AppliedFunction(FUNCTIONS[name]), (x,), precision="strict")
    torch.testing.assert_close(program(x), FUNCTIONS[name](x), rtol=2e-3, atol=1e-4)
    row_bytes = -(-columns // 64) * 128
    moved = program.metrics()
    assert moved["hbm_read_bytes"] < 1.5 * x.numel() // columns * row_bytes + 64 * columns
    assert moved["hbm_written_bytes"] == x.numel() // columns * row_bytes


def test_a_part_of_a_wider_tensor_is_not_overwritten() -> None:
    """The first columns are written in a tensor that has other elements next to them."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.float().exp(), y], -1) * 2

    x, y = torch.randn(6, 32).half(), torch.randn(6, 96)
    program = spyre_mlir.compile(AppliedFunction(function), (x, y), precision="strict")
    torch.testing.assert_close(program(x, y), function(x, y), rtol=1e-5, atol=1e-5)
