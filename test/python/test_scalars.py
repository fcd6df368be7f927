# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors without dims or without elements, and results that no operation computes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from like_eager import check_like_eager
from torch import Tensor, nn

DIMS = {
    "mean": lambda x: (x.mean(0), x.mean(), x.mean(-1, keepdim=True)),
    "spread": lambda x: (x.var(0, correction=0), x.std(-1, correction=0)),
    "sums": lambda x: (x.sum(0), x.prod(0), x.cumsum(0), x.logsumexp(0), torch.logcumsumexp(x, 0), x.norm()),
    "softmax": lambda x: (x.softmax(0), x.log_softmax(-1), F.softmin(x, 0)),
    "positions": lambda x: (x.argmax(), x.argmin(0), x.argmax(0, keepdim=True), x.sort()[0], x.topk(1)),
    "extremes": lambda x: (x.max(0), x.min(-1), x.amax(), x.aminmax(), torch.cummax(x, 0), x.kthvalue(1)),
    "lookups": lambda x: (x.gather(0, torch.zeros_like(x).long()), x.index_select(0, torch.tensor([0]))),
    "truths": lambda x: (x.any(0), x.all(), x.count_nonzero(), x == x, x.isnan()),
    "filled": lambda x: (
        torch.zeros_like(x),
        torch.ones_like(x) * 2,
        torch.full_like(x, 3.0),
        x.new_zeros(()),
    ),
    "moved": lambda x: (x.flatten() * 2, x.unsqueeze(0) + 1, x.reshape(-1), torch.stack([x, x])),
    "losses": lambda x: (F.mse_loss(x, x * 2), F.l1_loss(x, x * 2), F.huber_loss(x, x * 2)),
    "NaN": lambda x: (x.nanmean(), x.nansum(0)),
    "a number": lambda x: (x.sum().item(), x * torch.tensor(2.0)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("form", DIMS)
def test_tensors_of_one_element(form: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    check_like_eager(DIMS[form], torch.full(shape, 2.5).to(dtype))


EMPTY = {
    "pointwise": lambda x: (x + 1, x.relu(), x.float(), x > 0, torch.where(x > 0, x, 0.0)),
    "reductions": lambda x: (
        x.sum(),
        x.sum(0),
        x.sum(1),
        x.mean(),
        x.prod(),
        x.any(),
        x.all(1),
        x.norm(),
        x.var(),
    ),
    "matmul": lambda x: (x.T @ x, x @ x.T, F.linear(x, torch.ones(5, x.shape[1]).to(x.dtype))),
    "along a dim": lambda x: (x.softmax(-1), x.sort(1), x.cumsum(0), F.layer_norm(x, x.shape[1:]), x.flip(0)),
    "moved": lambda x: (
        x.reshape(-1),
        torch.cat([x, x]),
        torch.stack([x, x]),
        x.repeat(2, 2),
        x.tril(),
        x.roll(1, 0),
    ),
    "padded": lambda x: (F.pad(x, (1, 1), value=2.0), F.pad(x, (0, 0, 2, 1))),
    "beside others": lambda x: (x * 2, x.sum(0) + 1, torch.cat([x, torch.ones(x.shape).to(x.dtype)])),
}


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
@pytest.mark.parametrize("form", EMPTY)
def test_tensors_without_elements(form: str, shape: tuple[int, ...]) -> None:
    check_like_eager(EMPTY[form], torch.ones(shape).half())


def test_products_over_nothing() -> None:
    check_like_eager(
        lambda a, b: (a @ b, F.linear(a, b.T, b[0] if len(b) else None)), torch.ones(3, 0), torch.ones(0, 4)
    )


CONSTANT = torch.tensor([1.0, 2.0])

RETURNED = {
    "an input": lambda x: x,
    "an input beside a result": lambda x: (x, x + 1, x),
    "views": lambda x: (x.T, x.view(2, 6)[0], x[1:, ::2], x[0].expand(5, 4)),
    "copies": lambda x: (x.clone(), x.contiguous(), x[0].expand(5, 4).clone(), torch.empty_like(x).copy_(x)),
    "constants": lambda x: (CONSTANT, CONSTANT * 2, torch.arange(5), torch.tensor([1, 2]).half(), x.shape[0]),
    "zeros": lambda x: (torch.zeros(3, 4), torch.zeros_like(x), x + 1),
    "one value twice": lambda x: (lambda y: (y, y, y.T, y[0]))(x + 1),
    "parts": lambda x: (torch.chunk(x * 2, 2, 1), torch.unbind(x + 1)),
    "nothing": lambda x: {"a": None, "b": [x * 2, 3]},
    "what it changes": lambda x: (x.add_(1), x[0]),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.bool, torch.float64])
@pytest.mark.parametrize("form", RETURNED)
def test_results_that_no_operation_computes(form: str, dtype: torch.dtype) -> None:
    if dtype == torch.bool and form == "what it changes":
        pytest.skip("PyTorch adds no numbers to booleans in place")
    check_like_eager(RETURNED[form], torch.arange(12).reshape(3, 4).to(dtype))


class Holder(nn.Module):
    """A model that returns its attribute."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4).half())
        self.register_buffer("table", torch.ones(3, 4).half())

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.table, self.weight, self.table.T, self.table + 0, x


def test_results_that_are_state() -> None:
    check_like_eager(Holder(), torch.ones(2).half())
