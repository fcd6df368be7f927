# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of linear layers: MLPs, adapters, heads, experts, recommendation, 8-bit weights, norms, transposes."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._higher_order_ops import scan

from spyre_mlir.zoo.blocks import SwiGlu
from spyre_mlir.zoo.family import Family, Input

HIDDEN, INNER = 4096, 14336

_STREAM = "Columns of the weight over cores, each read once; the few rows lie in every core"
_ONE_PASS = "Rows over cores, one pass with all between in LX, each number read and written once"


class Lora(nn.Module):
    """A linear layer with a parallel low-rank adapter."""

    def __init__(self, hidden: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(hidden, hidden, bias=False)
        self.down, self.up = nn.Linear(hidden, rank, bias=False), nn.Linear(rank, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 2.0 * self.up(self.down(x))


class TopTwo(nn.Module):
    """Mixture of experts: each token uses two experts; the others have a gate of 0."""

    def __init__(self, hidden: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(SwiGlu(hidden, inner) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).topk(2, -1)
        gates = F.one_hot(chosen, len(self.experts)).to(x.dtype) * weights.softmax(-1)[:, :, None]
        gates = gates.sum(1)
        products = (expert(x) * gates[:, k : k + 1] for k, expert in enumerate(self.experts))
        return sum(products)  # pyright: ignore[reportReturnType]


class ExpertsInTurn(nn.Module):
    """``TopTwo`` as a scan over the experts, whose weights are rows of two tensors; the iter_arg is the partial sum."""

    def __init__(self, hidden: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False)
        self.up = nn.Parameter(torch.empty(experts, hidden, 2 * inner))
        self.down = nn.Parameter(torch.empty(experts, inner, hidden))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.router(x).topk(2, -1)
        gates = F.one_hot(chosen, len(self.up)).to(x.dtype) * weights.softmax(-1)[:, :, None]

        def expert(total: Tensor, row: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
            """Add the result of one expert to the sum."""
            up, down, gate = row
            inner, factor = (x @ up).chunk(2, -1)
            return total + (F.silu(inner) * factor) @ down * gate[:, None], []

        return scan(expert, torch.zeros_like(x), [self.up, self.down, gates.sum(1).T])[0]


class Dlrm(nn.Module):
    """Recommendation model: an MLP on the numbers, a row of each table, their products, and an MLP on all of these."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom, self.top = _mlp(13, 512, 256, width), _mlp(*_top(tables, width))

    def forward(self, numbers: Tensor, chosen: Tensor) -> Tensor:
        dense = self.bottom(numbers)
        rows = [table(chosen[k]) for k, table in enumerate(self.tables)]
        vectors = torch.stack((dense, *rows), 1)
        products = vectors @ vectors.transpose(1, 2)
        return self.top(torch.cat((dense, products.flatten(1)), 1))


class Fp8Linear(nn.Module):
    """A linear layer with one-byte weights, which are widened for the product, and a factor per column."""

    weight: Tensor
    scale: Tensor

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(outputs, inputs, dtype=dtype))
        self.register_buffer("scale", torch.empty(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight.to(x.dtype).t()) * self.scale


def _mlp(*widths: int) -> nn.Sequential:
    pairs = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*itertools.chain(*pairs))


def _top(tables: int, width: int) -> tuple[int, ...]:
    return width + (tables + 1) ** 2, 1024, 1024, 512, 256, 1


def _one_pass(
    function: Callable[..., Any], *shapes: Input, numbers: int, schedule: str = _ONE_PASS
) -> Family:
    """Return the family of a function that reads or writes ``numbers`` numbers once, of 2 bytes each."""
    return Family(lambda: (function, shapes), f"{schedule}.", 2 * numbers, 0)


def _linear(rows: int, columns: int) -> Family:
    return Family(
        lambda: (nn.Linear(HIDDEN, columns, bias=False), ((rows, HIDDEN),)),
        f"{_STREAM}; columns that 32 does not divide in uneven slices.",
        2 * (HIDDEN * columns + rows * (HIDDEN + columns)),
        rows * HIDDEN * columns,
    )


def _swiglu(rows: int) -> Family:
    return Family(
        lambda: (SwiGlu(HIDDEN, INNER), ((rows, HIDDEN),)),
        f"{_STREAM}; the gated product stays in LX, cut along the columns that the last product sums over.",
        2 * (3 * HIDDEN * INNER + 2 * rows * HIDDEN),
        3 * rows * HIDDEN * INNER,
    )


def _lora(rows: int, rank: int) -> Family:
    weights = HIDDEN * HIDDEN + 2 * HIDDEN * rank
    return Family(
        lambda: (Lora(HIDDEN, rank), ((rows, HIDDEN),)),
        f"{_STREAM}; the adapter's product of {rank} columns by rows, its result added where the large one lies.",
        2 * (weights + 2 * rows * HIDDEN),
        rows * weights,
    )


def _cross_entropy(rows: int, columns: int) -> Family:
    return Family(
        lambda: (F.cross_entropy, ((rows, columns), ((rows,), torch.int64))),
        f"{_ONE_PASS}: the maximum, the sum of exponentials, and the one logit of each row.",
        2 * rows * columns + 8 * rows + 2,
        0,
    )


def _top_two(rows: int, inner: int, experts: int) -> Family:
    weights = 3 * HIDDEN * inner
    return Family(
        lambda: (TopTwo(HIDDEN, inner, experts), ((rows, HIDDEN),)),
        f"{_STREAM}; the weights of all experts once, for with many tokens each is wanted.",
        2 * (experts * weights + experts * HIDDEN + 2 * rows * HIDDEN),
        rows * (2 * weights + experts * HIDDEN),
    )


def _in_turn(rows: int, inner: int, experts: int) -> Family:
    weights = 3 * HIDDEN * inner
    return Family(
        lambda: (ExpertsInTurn(HIDDEN, inner, experts), ((rows, HIDDEN),)),
        "A loop over the experts: the weights of each read once, the sum over them in LX.",
        2 * (experts * weights + experts * HIDDEN + 2 * rows * HIDDEN),
        rows * experts * (weights + HIDDEN),
    )


def _dlrm(batch: int, tables: int, rows: int, width: int) -> Family:
    layers = [*itertools.pairwise((13, 512, 256, width)), *itertools.pairwise(_top(tables, width))]
    weights = sum(a * b for a, b in layers)
    return Family(
        lambda: (Dlrm(tables, rows, width), ((batch, 13), ((tables, batch), torch.int64))),
        "Samples over cores from the lookup to the last layer, the weights of the MLPs in every core.",
        # Weights and biases; numbers, indices, gathered rows, results.
        2 * (weights + sum(b for _, b in layers)) + batch * (2 * 13 + 8 * tables + 2 * tables * width + 2),
        batch * (weights + (tables + 1) ** 2 * width),
    )


def _eight_bits(rows: int, columns: int, dtype: torch.dtype) -> Family:
    return Family(
        lambda: (Fp8Linear(HIDDEN, columns, dtype), ((rows, HIDDEN),)),
        f"{_STREAM}, as 8 bits that are widened in LX.",
        HIDDEN * columns + 2 * columns + 2 * rows * (HIDDEN + columns),
        rows * HIDDEN * columns,
    )


def _contiguous(*dims: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.permute(dims).contiguous()


_TRANSPOSE = "Blocks of 64 x 64 over cores, turned in the core, each number read and written once"

FAMILIES = {
    "swiglu_1": _swiglu(1),
    "swiglu_512": _swiglu(512),
    "lora_1": _lora(1, 16),
    "lora_512": _lora(512, 16),
    "lm_head_1_of_50257": _linear(1, 50257),
    "lm_head_64_of_50257": _linear(64, 50257),
    "lm_head_1_of_128256": _linear(1, 128256),
    "lm_head_64_of_128256": _linear(64, 128256),
    "cross_entropy_512_of_50257": _cross_entropy(512, 50257),
    "cross_entropy_512_of_128256": _cross_entropy(512, 128256),
    "moe_top_2_64": _top_two(64, 1408, 8),
    "moe_in_turn_512": _in_turn(512, 1408, 8),
    "dlrm_2048": _dlrm(2048, 26, 100_000, 64),
    "fp8_linear_1": _eight_bits(1, INNER, torch.float8_e4m3fn),
    "fp8_linear_64": _eight_bits(64, INNER, torch.float8_e4m3fn),
    "int8_linear_1": _eight_bits(1, INNER, torch.int8),
    "int8_linear_64": _eight_bits(64, INNER, torch.int8),
    "layer_norm_of_channels": _one_pass(
        lambda x, w, b: F.layer_norm(x.permute(0, 2, 3, 1), (96,), w, b).permute(0, 3, 1, 2).contiguous(),
        (8, 96, 56, 56), (96,), (96,), numbers=2 * 8 * 96 * 56 * 56 + 2 * 96,
    ),
    "layer_norm_of_images": _one_pass(
        lambda x, w, b: F.layer_norm(x, (64, 64), w, b),
        (8, 512, 64, 64), (64, 64), (64, 64), numbers=2 * 8 * 512 * 64 * 64 + 2 * 64 * 64,
    ),
    "layer_norm_of_dim_0": _one_pass(
        lambda x: (x - x.mean(0)) * (x.var(0, correction=0) + 1e-5).rsqrt(),
        (1024, 8192), numbers=2 * 1024 * 8192, schedule="Columns over cores, the rest as in rows",
    ),
    "transpose_4096": _one_pass(
        _contiguous(1, 0), (4096, 4096), numbers=2 * 4096 * 4096, schedule=_TRANSPOSE
    ),
    "transpose_batches": _one_pass(
        _contiguous(0, 2, 1), (32, 128, 4096), numbers=2 * 32 * 128 * 4096, schedule=_TRANSPOSE
    ),
    "transpose_heads": _one_pass(
        _contiguous(0, 2, 1, 3), (8, 512, 32, 128), numbers=2 * 8 * 512 * 32 * 128,
        schedule="A copy of whole rows of 128, split over cores",
    ),
}  # fmt: skip
