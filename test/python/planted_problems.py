# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models with one problem each, and the same models with the change that their first finding suggests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import spyre_mlir

HALF = torch.float16


@dataclass(frozen=True)
class Planted:
    """A model with its inputs; what the first finding has to say; and a call with the change made by hand.

    ``samples`` is how many times as many samples the changed call has; ``planned`` are options of both calls.
    """

    model: Any
    inputs: Sequence[Any]
    problem: str
    module: str
    change: str
    changed_model: Any = None
    changed_inputs: Sequence[Any] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    samples: int = 1
    planned: dict[str, Any] = field(default_factory=dict)

    def program(self) -> spyre_mlir.Program:
        return spyre_mlir.compile(self.model, self.inputs, **self.planned)

    def changed(self) -> spyre_mlir.Program:
        """The program with the change."""
        model = self.changed_model or self.model
        inputs = self.inputs if self.changed_inputs is None else self.changed_inputs
        return spyre_mlir.compile(model, inputs, **self.planned, **self.options)


#: Options without joint planning, which solves the problems of idle cores and of reductions along sticks.
EVERY_OPERATION_ALONE = {"co_optimizer": "strategy-b"}


class Wrapped(nn.Module):
    """A model with the problem in its module ``body``."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.body(*inputs)


class Attention(nn.Module):
    """Self-attention with a mask, if there is one."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        batch, rows, width = x.shape
        shape = (batch, rows, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
        scores = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.out(scores.transpose(1, 2).reshape(batch, rows, width))


class MaskOfLengths(nn.Module):
    """Attention with a mask that integers decide, which the host computes."""

    def __init__(self, attention: nn.Module, lengths: Tensor | None = None) -> None:
        super().__init__()
        self.attention = attention
        self.lengths = lengths

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        places = torch.arange(x.shape[1])
        lengths = self.lengths if lengths is None else lengths
        assert lengths is not None
        mask = (places[None, :] <= places[:, None])[None] & (places[None, None] < lengths[:, None, None])
        return self.attention(x, mask[:, None])


class Decode(nn.Module):
    """Attention of one row to a cache."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)

    def forward(self, x: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q = self.q(x).view(x.shape[0], 1, self.heads, -1).transpose(1, 2)
        return F.scaled_dot_product_attention(q, k, v)


class Mixer(nn.Module):
    """Rounds of a sum with a product, which each round may transpose."""

    def __init__(self, is_transposed: bool) -> None:
        super().__init__()
        self.is_transposed = is_transposed

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for _ in range(4):
            product = x * y
            if self.is_transposed:
                product = product.transpose(0, 1)
            x = torch.relu(x + product)
        return x


class Total(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


def wide_weights() -> Planted:
    model = Wrapped(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)))
    x = torch.randn(64, 256)
    narrow = Wrapped(nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))).to(HALF)
    return Planted(model, (x,), "host runs", "body.", "model.half()", narrow, (x.half(),))


def rows_197() -> Planted:
    model = Wrapped(Attention(768, 12)).to(HALF)
    options = {"uneven_splits": True}
    x = torch.randn(1, 197, 768).half()
    return Planted(
        model,
        (x,),
        "cores idle",
        "body",
        "uneven_splits=True",
        options=options,
        planned=EVERY_OPERATION_ALONE,
    )


def one_row() -> Planted:
    model = Wrapped(nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024))).to(HALF)
    x = torch.randn(1, 1024).half()
    inputs = (torch.randn(8, 1024).half(),)
    return Planted(model, (x,), "1 sample waits for memory", "body.", "8 samples", model, inputs, samples=8)


def cache_in_the_default() -> Planted:
    model = Wrapped(Decode(1024, 8)).to(HALF)
    x, k, v = torch.randn(1, 1, 1024).half(), *torch.randn(2, 1, 8, 2048, 128).half()
    device = spyre_mlir.to_device
    changed = (x, device(k, stick_dims=[2]), device(v))
    return Planted(
        model,
        (x, device(k), device(v)),
        "converted",
        "body",
        "to_device(inputs_1, stick_dims=[2])",
        model,
        changed,
    )


def transpose_in_the_loop() -> Planted:
    inputs = torch.randn(2, 1024, 1024).half().unbind(0)
    return Planted(
        Wrapped(Mixer(True)), inputs, "Transposes", "body", "leave out the transposes", Wrapped(Mixer(False))
    )


def mask_from_the_host() -> Planted:
    attention, x = Attention(512, 8).to(HALF), torch.randn(2, 512, 512).half()
    lengths = torch.tensor([300, 512])
    return Planted(
        Wrapped(MaskOfLengths(attention)), (x, lengths), "host runs", "body", "register_buffer",
        Wrapped(MaskOfLengths(attention, lengths)), (x,),
    )  # fmt: skip


def three_heads() -> Planted:
    model = Wrapped(Attention(192, 3)).to(HALF)
    options = {"uneven_splits": True}
    x = torch.randn(1, 256, 192).half()
    return Planted(
        model,
        (x,),
        "cores idle",
        "body",
        "uneven_splits=True",
        options=options,
        planned=EVERY_OPERATION_ALONE,
    )


def wrong_dim() -> Planted:
    x = torch.randn(64, 16384).half()
    options = {"layouts": {"inputs_0": {"stick_dims": [0]}}}
    return Planted(
        Wrapped(Total()), (x,), "reduced along its sticks", "body", "'stick_dims': [0]", options=options,
        planned=EVERY_OPERATION_ALONE,
    )  # fmt: skip


PROBLEMS: tuple[Callable[[], Planted], ...] = (
    wide_weights, rows_197, one_row, cache_in_the_default, transpose_in_the_loop, mask_from_the_host, three_heads,
    wrong_dim,
)  # fmt: skip
