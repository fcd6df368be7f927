# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of models that several programs share: MLPs, rotary embedding, a layer of Llama."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: A module in eval mode and its inputs.
Program = tuple[nn.Module, tuple[Tensor, ...]]


class AppliedFunction(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)


class GeluMlp(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class SwiGlu(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply the rotary embedding to [batch, heads, sequence, dim]."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def rotary_tables(sequence: int, dim: int) -> tuple[Tensor, Tensor]:
    frequency = 10000.0 ** (-torch.arange(0, dim, 2) / dim)
    angle = torch.outer(torch.arange(sequence).float(), frequency)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos(), angle.sin()


class LlamaBlock(nn.Module):
    """RMSNorm, grouped-query attention with rotary embedding, RMSNorm, SwiGLU."""

    cos: Tensor
    sin: Tensor

    def __init__(self, hidden: int, sequence: int, heads: int, kv_heads: int, inner: int) -> None:
        super().__init__()
        self.dim = hidden // heads
        self.attention_norm, self.mlp_norm = nn.RMSNorm(hidden, eps=1e-5), nn.RMSNorm(hidden, eps=1e-5)
        self.q = nn.Linear(hidden, heads * self.dim, bias=False)
        self.k = nn.Linear(hidden, kv_heads * self.dim, bias=False)
        self.v = nn.Linear(hidden, kv_heads * self.dim, bias=False)
        self.o = nn.Linear(heads * self.dim, hidden, bias=False)
        self.mlp = SwiGlu(hidden, inner)
        cos, sin = rotary_tables(sequence, self.dim)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.dim)).transpose(1, 2)

    def attention(self, x: Tensor) -> Tensor:
        q = rotate(self.heads(self.q(x)), self.cos, self.sin)
        k = rotate(self.heads(self.k(x)), self.cos, self.sin)
        out = F.scaled_dot_product_attention(q, k, self.heads(self.v(x)), is_causal=True, enable_gqa=True)
        return self.o(out.transpose(1, 2).flatten(-2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


def softmax_example(rows: int, columns: int) -> tuple[nn.Module, Tensor, Any, Any]:
    """Return a softmax over dim 0, seeded fp16 numbers, and as arrays its result in fp16 and in float64."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0)).half()
    model = nn.Softmax(0)
    return model, x, model(x).numpy(), model(x.double()).numpy()
