# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Constructs of models that run in one bundle: scans, lookups, and covering copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import spyre_mlir

torch.manual_seed(0)
X, W, INDEX = torch.randn(2, 16, 6, 64).half(), torch.randn(64, 64).half(), torch.tensor([[4, -1], [3, 0]])


def covered(x: Tensor) -> Tensor:
    """Keys of latent attention: two parts of a tensor without numbers."""
    keys = x.new_empty(2, 16, 6, 128)
    keys[..., :64].copy_(x * 2)
    keys[..., 64:].copy_(x[:, :, :1])
    return keys + 1


def part_of_a_tensor(x: Tensor) -> Tensor:
    keys = torch.zeros_like(x)
    keys[..., 3:7] = x[..., :4]
    return keys * 2


CASES: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "cumsum": (lambda x: x.cumsum(1), (X,)),
    "cumsum in sticks": (lambda x: x.cumsum(-1), (X,)),
    "cumsum of f32": (lambda x: x.float().cumsum(1) * 2, (X,)),
    "row of an inner dim": (lambda x: x[:, :, [-2]] * 2, (X,)),
    "rows of an inner dim": (lambda x, i: x[:, i] * 2, (X, INDEX)),
    "columns": (lambda x, i: x[..., i] * 2, (X, INDEX)),
    "rows and columns": (lambda x, i: x[:, i[0, :, None], i[:, 1]] * 2, (X, INDEX.clamp(min=0))),
    "apart": (lambda x, i: x[:, i[0, :, None], :, i[:, 0]] * 2, (X, INDEX)),
    "a dim of one element": (lambda x, i: x[:1].index_select(2, i[1]) * 2, (X, INDEX)),
    "covering copies": (covered, (X,)),
    "a part of zeros": (part_of_a_tensor, (X,)),
    "booleans between comparisons": (lambda x: ((x > 0) | (x < -1)).half() * x, (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_one_bundle(name: str) -> None:
    function, inputs = CASES[name]
    program = spyre_mlir.compile(function, inputs)
    expected = function(*inputs)
    assert program.is_one_bundle
    result = program(*inputs)
    assert result.dtype == expected.dtype
    scale = expected.float().abs().max().item()
    torch.testing.assert_close(result.float(), expected.float(), rtol=0, atol=2e-3 * max(scale, 1))


F32: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "product": (lambda x, w: (x.float() * 1.5) @ w.float() + 1, (X, W)),
    "large product": (lambda x, w: x.float() @ (w.float() * 3000), (X * 30, W)),
    "logarithm": (lambda x: torch.log(1 + torch.exp(x.float())) + 1, (X * 20,)),
    "softplus": (lambda x: torch.nn.functional.softplus(x.float()), (X * 8,)),
}


@pytest.mark.filterwarnings("ignore::spyre_mlir.HostWorkWarning")
@pytest.mark.parametrize("name", F32)
def test_results_in_f32_keep_their_digits(name: str) -> None:
    """Numbers of 32 bits that the program returns are not rounded to 16, nor cut off at 65504."""
    function, inputs = F32[name]
    program = spyre_mlir.compile(function, inputs)
    expected = function(*inputs)
    torch.testing.assert_close(program(*inputs), expected, rtol=1e-4, atol=1e-6 * expected.abs().max().item())


def test_products_of_arguments_in_f32_run_on_the_host() -> None:
    """Arguments in f32 may be outside of the range of fp16."""
    x = torch.randn(8, 64)
    with pytest.warns(spyre_mlir.HostWorkWarning, match="f32 x f32"):
        program = spyre_mlir.compile(lambda x: x @ x.T, (x,))
    torch.testing.assert_close(program(x), x @ x.T)


def test_negligible_work_before_the_host_is_no_bundle() -> None:
    """The frequencies of a rotary embedding, whose cosine the host computes."""
    position, frequency = torch.arange(16)[:, None].half(), torch.rand(64).half()
    x, w = torch.randn(16, 512).half(), torch.randn(512, 64).half() / 16
    inputs = (x, w, position, frequency)
    program = spyre_mlir.compile(lambda x, w, p, f: (x @ w) * (p * f).cos(), inputs)
    assert [step.name for step in program.steps] == ["host_0", "device_0"]
    expected = (x @ w) * (position * frequency).cos()
    torch.testing.assert_close(program(*inputs), expected, rtol=1e-2, atol=1e-2)


def test_a_view_of_a_result_with_other_strides() -> None:
    """A decomposed attention has other strides than the attention that the model called."""

    def attention(x: Tensor, gate: Tensor) -> Tensor:
        out = torch.nn.functional.scaled_dot_product_attention(x, x, x).transpose(1, 2).contiguous()
        return (out * gate).view(2, 6, 1024)

    inputs = torch.randn(2, 16, 6, 64).half(), torch.randn(2, 16, 6, 64).half().transpose(1, 2)
    program = spyre_mlir.compile(attention, inputs)
    torch.testing.assert_close(program(*inputs), attention(*inputs), rtol=1e-2, atol=1e-2)
