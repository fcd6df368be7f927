# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Language models by shapes on meshes of cards: time per token by assumed rates of the link, memory, compile time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.measure import apart, peak_bytes
from benchmarks.registry import Metrics, Noted, benchmark

#: Assumed rates of the link, in bytes per nanosecond, which are GB/s; and the assumed start of a message.
RATES, MESSAGE_NS = (8.0, 32.0, 128.0), 2000.0

#: Tokens of a prompt, and the positions of the caches.
PROMPT, CONTEXT = 512, 2048


@dataclass(frozen=True)
class Shape:
    """The shape of a language model in float16; ``experts`` is 0 for a model without experts."""

    layers: int
    columns: int
    heads: int
    groups: int
    head: int
    hidden: int
    words: int
    experts: int = 0


SHAPES = {
    "llama-70b": Shape(80, 8192, 64, 8, 128, 28672, 128256),
    "llama-405b": Shape(126, 16384, 128, 8, 128, 53248, 128256),
    "mixtral-8x22b": Shape(56, 6144, 48, 8, 128, 16384, 32768, 8),
    "gpt-oss-120b": Shape(36, 2880, 64, 8, 64, 2880, 201088, 128),
}


@benchmark(compile_s=30, peak_gb=3)
def meshes(models: str = "llama-70b", cards: str = "4,8") -> Metrics:
    """Llama 3 70B by shapes on 4 and 8 cards: prefill and decode per token, memory of a card, and compile time.

    ``--models llama-70b,llama-405b,mixtral-8x22b,gpt-oss-120b --cards 2,4,8,16`` plans the others. Times are the
    timeline's, in microseconds per token, at 8, 32 and 128 GB/s of the link and 2 us of a message, which are
    assumptions: no rate of the link is public. Attention is split by heads, the MLP by columns and rows, experts by
    number, the words by vocabulary. A layer and the ends of the model are compiled once for each mesh and multiplied.
    A card computes all of its experts for every token. ``gb`` (10^9 bytes) is the memory of a card, which has 120.
    """
    return apart(_measure, models, cards)


def _measure(models: str, cards: str) -> Noted:
    import torch

    import spyre_mlir

    # Lazy imports are not the time of a plan.
    spyre_mlir.compile(torch.nn.Linear(64, 64).half(), (torch.zeros(2, 64).half(),))
    begun = time.perf_counter()
    figures: dict[str, float] = {}
    for name in models.split(","):
        for count in map(int, cards.split(",")):
            row = f"{name}-on-{count}"
            figures |= {f"{row}.{column}": value for column, value in _plan(SHAPES[name], count).items()}
    whole = {"compile_s": time.perf_counter() - begun, "peak_gb": peak_bytes() / 1e9}
    columns = [f"{phase}_us_{rate:g}" for phase in ("prefill", "decode") for rate in RATES]
    return Noted(whole | figures, [], [*columns, "gb", "seconds"])


def _plan(shape: Shape, cards: int) -> dict[str, float]:
    """Return the figures of a model on a number of cards."""
    import torch

    import spyre_mlir

    begun = time.perf_counter()
    figures: dict[str, float] = {}
    for phase, rows in (("prefill", PROMPT), ("decode", 1)):
        inputs = (
            torch.zeros(1, rows, shape.columns, dtype=torch.float16),
            torch.zeros(1, rows, dtype=torch.int64),
        )
        layer, ends = (
            _program(partial(build, shape, rows), (x,), cards)
            for build, x in zip((_layer, _ends), inputs, strict=True)
        )
        for rate in RATES:
            us = shape.layers * _time(layer, cards, rate) + _time(ends, cards, rate)
            figures[f"{phase}_us_{rate:g}"] = us / rows
    parts = [
        spyre_mlir.memory(partial(build, shape, PROMPT), (cards,), inputs=(x,))
        for build, x in ((_layer, torch.zeros(1, PROMPT, shape.columns).half()), (_ends, inputs[1]))
    ]
    of_layers = shape.layers * (parts[0].weights_bytes + parts[0].caches_bytes)
    figures["gb"] = (
        of_layers + parts[1].weights_bytes + max(part.intermediates_bytes for part in parts)
    ) / 1e9
    return {**figures, "seconds": time.perf_counter() - begun}


def _program(build: Any, inputs: Any, cards: int) -> Any:
    """Compile the program of rank 0, which is the program of each rank but for the data."""
    import warnings

    import spyre_mlir
    from spyre_mlir.meshes.mesh_compilation import simulated_rank

    with simulated_rank(0, (cards,), None) as mesh, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spyre_mlir.compile(build(mesh), inputs)


def _time(program: Any, cards: int, rate: float) -> float:
    """Return the microseconds of a call by an assumed rate of the link."""
    from spyre_mlir.driver.mesh_timeline import mesh_timeline
    from spyre_mlir.target.target import LinkRates

    return mesh_timeline([program] * cards, LinkRates(MESSAGE_NS, rate)).total_us


# The models, in plain DTensor code.


def _layer(shape: Shape, rows: int, mesh: Any) -> Any:
    """Return a layer of one rank, on the meta device; with one row, it reads a cache of ``CONTEXT`` positions."""
    import torch
    from torch import nn
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    from torch.nn import functional as F

    cards = mesh.size()
    groups = max(shape.groups // cards, 1)
    # If there are more cards than groups, several cards have the keys and values of the same group.
    first = mesh.get_rank() * shape.groups // cards if cards > shape.groups else 0

    # If there are more cards than experts, each expert is divided like an MLP.
    by_number = cards <= shape.experts

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(shape.columns), nn.RMSNorm(shape.columns)
            self.q = nn.Linear(shape.columns, shape.heads * shape.head, bias=False)
            self.k = nn.Linear(shape.columns, shape.groups * shape.head, bias=False)
            self.v = nn.Linear(shape.columns, shape.groups * shape.head, bias=False)
            self.o = nn.Linear(shape.heads * shape.head, shape.columns, bias=False)
            if shape.experts:
                self.router = nn.Linear(shape.columns, shape.experts, bias=False)
                self.gates = nn.Parameter(torch.empty(shape.experts, shape.columns, shape.hidden))
                self.ups = nn.Parameter(torch.empty(shape.experts, shape.columns, shape.hidden))
                self.downs = nn.Parameter(torch.empty(shape.experts, shape.hidden, shape.columns))
            else:
                self.gate = nn.Linear(shape.columns, shape.hidden, bias=False)
                self.up = nn.Linear(shape.columns, shape.hidden, bias=False)
                self.down = nn.Linear(shape.hidden, shape.columns, bias=False)
            for name in ("keys", "values"):
                self.register_buffer(name, torch.empty(1, groups, CONTEXT, shape.head))

        def forward(self, x: Any) -> Any:
            x = x + self.attend(self.norm1(x))
            y = self.norm2(x)
            return x + (self.mix(y) if shape.experts else self.down(F.silu(self.gate(y)) * self.up(y)))

        def attend(self, x: Any) -> Any:
            q, k, v = (
                part(x).view(1, rows, -1, shape.head).transpose(1, 2) for part in (self.q, self.k, self.v)
            )
            k, v = (each[:, first : first + groups] for each in (k, v))
            end = CONTEXT if rows == 1 else rows
            keys, values = self.get_buffer("keys"), self.get_buffer("values")
            keys[:, :, end - rows : end] = k
            values[:, :, end - rows : end] = v
            if rows == 1:
                k, v = keys, values
            y = F.scaled_dot_product_attention(q, k, v, is_causal=rows > 1, enable_gqa=True)
            return self.o(y.transpose(1, 2).reshape(1, rows, -1))

        def mix(self, x: Any) -> Any:
            weights = torch.softmax(self.router(x[0]), -1).t().unsqueeze(-1)
            whole, weights = (
                DTensor.from_local(each, mesh, [Replicate()], run_check=False) for each in (x, weights)
            )
            if by_number:
                weights = weights.redistribute(mesh, [Shard(0)])
            whole = whole.expand(shape.experts, rows, shape.columns)
            y = F.silu(torch.bmm(whole, self.gates)) * torch.bmm(whole, self.ups) * weights
            whole_sum: Any = torch.bmm(y, self.downs).sum(0)
            return whole_sum.full_tensor().unsqueeze(0)

    with torch.device("meta"):
        layer = Layer().half()
    plan: dict[str, Any] = {"q": ColwiseParallel(), "o": RowwiseParallel()}
    if cards <= shape.groups:
        plan |= {"k": ColwiseParallel(), "v": ColwiseParallel()}
    if shape.experts:
        for name, dim in (("gates", 2), ("ups", 2), ("downs", 1)):
            placement = [Shard(0 if by_number else dim)]
            setattr(layer, name, nn.Parameter(distribute_tensor(getattr(layer, name).data, mesh, placement)))
    else:
        plan |= {"gate": ColwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    return parallelize_module(layer, mesh, plan)


def _ends(shape: Shape, rows: int, mesh: Any) -> Any:
    """Return the embedding, the norm and the head of the last position, on the meta device."""
    import torch
    from torch import nn
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    class Ends(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(shape.words, shape.columns)
            self.norm = nn.RMSNorm(shape.columns)
            self.head = nn.Linear(shape.columns, shape.words, bias=False)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.norm(self.embedding(tokens)[:, -1:]))

    with torch.device("meta"):
        ends = Ends().half()
    words = RowwiseParallel(input_layouts=Replicate())
    return parallelize_module(
        ends, mesh, {"embedding": words, "head": ColwiseParallel(output_layouts=Replicate())}
    )
