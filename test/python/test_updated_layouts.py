# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined layouts of buffers that a model changes in place: the cache is written in its layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import spyre_mlir


class Cache(nn.Module):
    """Writes rows into a cache, an input or a buffer, and reads all of it."""

    def __init__(self, row: int | None, is_buffer: bool) -> None:
        super().__init__()
        self.row = row
        if is_buffer:
            self.register_buffer("k", torch.randn(2, 256, 128).half())

    def forward(self, x: Tensor, cache: Tensor | None = None) -> Tensor:
        k = self.k if cache is None else cache
        assert isinstance(k, Tensor)
        if self.row is None:
            k.copy_(x.expand_as(k))
        else:
            k[:, self.row : self.row + 1] = x
        return (k * 2).sum(-1)


# A buffer that is overwritten completely is not an argument: its old value is not read.
@pytest.mark.parametrize(
    ("row", "is_buffer"),
    [(0, True), (5, True), (255, True), (0, False), (5, False), (255, False), (None, False)],
)
@pytest.mark.parametrize("stick_dim", (0, 1, 2))
def test_a_cache_in_a_chosen_layout(stick_dim: int, row: int | None, is_buffer: bool) -> None:
    torch.manual_seed(0)
    model, x = Cache(row, is_buffer), torch.randn(2, 1, 128).half()
    cache = torch.randn(2, 256, 128).half()
    before = model.k.clone() if is_buffer else cache.clone()  # type: ignore[operator]
    inputs = (x,) if is_buffer else (x, cache)
    name = "k" if is_buffer else "cache"
    program = spyre_mlir.compile(model, inputs, layouts={name: {"stick_dims": [stick_dim]}}, sencores=4)
    result = program(*inputs)
    expected = Cache(row, False)(x, before)
    torch.testing.assert_close(result, expected, rtol=4e-3, atol=4e-2)
    assert torch.equal(model.k if is_buffer else cache, before)  # type: ignore[arg-type]
