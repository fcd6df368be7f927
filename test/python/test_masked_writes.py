# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes by boolean masks, extremes that broadcast, borders with negative amounts, transposed convolutions."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from like_eager import check_like_eager
from torch import Tensor

import spyre_mlir


def _written(place, value):
    def model(x: Tensor, mask: Tensor) -> Tensor:
        y = x.clone()
        y[place(mask)] = torch.as_tensor(value(x, mask)).to(x.dtype)
        return y

    return model


WRITES = {
    "a number": _written(lambda mask: mask, lambda x, mask: 5),
    "a row": _written(lambda mask: mask[:, 0], lambda x, mask: x[1] * 2),
    "columns": _written(lambda mask: (slice(None), mask[0]), lambda x, mask: 1),
    "a column each": _written(lambda mask: (slice(None), mask[0]), lambda x, mask: x[:, :1] * 2),
    "as many rows as places": _written(lambda mask: mask[:, 0], lambda x, mask: x[:2] * 2),
    "as many numbers as places": _written(lambda mask: mask, lambda x, mask: x.flatten()[:5] * 2),
    "added": lambda x, mask: x.index_put((mask,), torch.tensor(2).to(x.dtype), accumulate=True),
    "masked_fill": lambda x, mask: x.masked_fill(mask, 3),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.int64, torch.bool])
@pytest.mark.parametrize("form", WRITES)
def test_writes_by_a_mask(form: str, dtype: torch.dtype) -> None:
    mask = torch.tensor([[1, 0, 0, 1], [0, 1, 1, 0], [1, 0, 0, 0]]).bool()
    check_like_eager(WRITES[form], torch.arange(12).reshape(3, 4).to(dtype), mask)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_as_many_values_as_places(count: int) -> None:
    """Each call with a mask of another number of places is refused, as PyTorch refuses it."""
    model = WRITES["as many numbers as places"]
    x, mask = torch.arange(12).half(), torch.arange(12) < 5
    program = spyre_mlir.compile(model, (x, mask))
    assert torch.equal(program(x, mask.flip(0)), model(x, mask.flip(0)))
    with pytest.raises(Exception, match="shape mismatch"):
        program(x, torch.arange(12) < count)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("shape", [(5, 3), (3,), (5, 1), ()])
def test_extremes_that_broadcast(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, y = (torch.randint(0, 9, each).to(dtype) for each in ((5, 3), shape))
    check_like_eager(lambda x, y: (torch.fmax(x, y), torch.fmin(y, x), torch.fmax(x, y.float())), x, y)


@pytest.mark.parametrize("dim", [0, 1])
def test_cross_products(dim: int) -> None:
    x, y = torch.randn(3, 3).half(), torch.randn(3, 3).half()
    check_like_eager(lambda x, y: torch.linalg.cross(x, y, dim=dim), x, y)


AMOUNTS = [(-1, 2), (-2, -1), (1, -2, -1, 2), (-1, 2, 1, -2), (0, 0, -1, -1), (2, 1, -1, 0)]


@pytest.mark.parametrize("mode", ["replicate", "reflect", "circular", "constant"])
@pytest.mark.parametrize("amounts", AMOUNTS)
def test_borders_with_negative_amounts(mode: str, amounts: tuple[int, ...]) -> None:
    shape = (2, 3, 6, 7)[: 2 + len(amounts) // 2]
    check_like_eager(
        lambda x: F.pad(x, amounts, mode=mode),
        torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).half(),
    )


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("seed", range(4))
def test_transposed_convolutions(dims: int, seed: int) -> None:
    """Strides, dilations, groups, paddings of both sides."""
    draw = random.Random(f"{dims} {seed}")
    groups, sizes = draw.choice((1, 2, 3)), [draw.randint(3, 6) for _ in range(dims)]
    stride, dilation, kernel = ([draw.randint(1, most) for _ in range(dims)] for most in (3, 2, 3))
    padding = [draw.randint(0, min(1, size - 1)) for size in kernel]
    more = [draw.randint(0, max(pair) - 1) for pair in zip(stride, dilation, strict=True)]
    form = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    torch.manual_seed(seed)
    x, weight, bias = (
        torch.randn(2, 2 * groups, *sizes),
        torch.randn(2 * groups, 3, *kernel),
        torch.randn(3 * groups),
    )
    options = (stride, padding, more, groups, dilation)
    check_like_eager(lambda x, w, b: form(x, w, b, *options), x.half(), weight.half(), bias.half())
