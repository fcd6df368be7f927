# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Serve a small Llama: prompts of any length, a paged cache in device memory, greedy and top-k sampling.

    python examples/serve_llama.py [--tokens 64] [--prompt 37] [--top-k 8] [--weights fp8]

The weights are random. A prompt is padded to whole pages and its keys and values are written page by page; a decoding
step writes one row of each cache and gathers the pages of its sequences by a table. Both programs share the caches
(``Program.state``). Each token is compared with the token of PyTorch in eager mode, in the same type, for the same
previous tokens. Weights in fp8 have a scale for each row and stay in fp8 in device memory.
"""

from __future__ import annotations

import argparse
import copy
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import spyre_mlir

#: Logits of the two differ by at most this part of the largest one, by rounding: what lies nearer is a tie.
TOLERANCE = 0.002


@dataclass(frozen=True)
class Config:
    """Sizes of a model and of its cache: ``pages`` of ``slots`` positions, at most ``table`` of them a sequence."""

    vocabulary: int = 1024
    layers: int = 4
    heads: int = 8
    groups: int = 2
    columns: int = 64
    hidden: int = 1024
    pages: int = 32
    slots: int = 64
    table: int = 4

    @property
    def width(self) -> int:
        return self.heads * self.columns

    @property
    def positions(self) -> int:
        """The most positions of a sequence."""
        return self.table * self.slots


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary embedding of ``x``, whose positions and columns are the last dims."""
    left, right = x.chunk(2, -1)
    return x * cosines + torch.cat((-right, left), -1) * sines


class Attention(nn.Module):
    """Grouped attention with the pages of keys and values of its layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        rows = config.groups * config.columns
        self.queries = nn.Linear(config.width, config.width, bias=False)
        self.rows = nn.Linear(config.width, 2 * rows, bias=False)
        self.output = nn.Linear(config.width, config.width, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(config.pages, config.slots, config.groups, config.columns))

    def projected(self, x: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries by head, and keys and values by group: [batch, heads, positions, columns]."""
        batch, positions, _ = x.shape
        queries = self.queries(x).view(batch, positions, -1, self.config.columns).transpose(1, 2)
        rows = self.rows(x).view(batch, positions, 2, self.config.groups, self.config.columns)
        keys, values = rows[:, :, 0].transpose(1, 2), rows[:, :, 1].transpose(1, 2)
        return rotated(queries, cosines, sines), rotated(keys, cosines, sines), values

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        x = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
        return self.output(x.transpose(1, 2).flatten(2))

    def prefill(self, x: Tensor, cosines: Tensor, sines: Tensor, table: Tensor, mask: Tensor) -> Tensor:
        """Attention inside of one prompt, whose keys and values become whole pages."""
        queries, keys, values = self.projected(x, cosines, sines)
        shape = (-1, *self.keys.shape[1:])
        self.keys[table] = keys[0].transpose(0, 1).reshape(shape)
        self.values[table] = values[0].transpose(0, 1).reshape(shape)
        return self.attend(queries, keys, values, mask)

    def decode(
        self, x: Tensor, cosines: Tensor, sines: Tensor, table: Tensor, position: Tensor, mask: Tensor
    ) -> Tensor:
        """Attention of one token of each sequence to its pages, in which its own row then is."""
        queries, keys, values = self.projected(x, cosines, sines)
        slots = self.config.slots
        page = table.gather(1, (position // slots)[:, None])[:, 0]
        self.keys[page, position % slots] = keys[:, :, 0]
        self.values[page, position % slots] = values[:, :, 0]
        pages = [cache[table].flatten(1, 2).transpose(1, 2) for cache in (self.keys, self.values)]
        return self.attend(queries, *pages, mask)


class Layer(nn.Module):
    """Attention and a gated MLP, each on what a norm makes of its input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(config.width, eps=1e-5) for _ in range(2))
        self.attention = Attention(config)
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def mlp(self, x: Tensor) -> Tensor:
        x = self.norms[1](x)
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Llama(nn.Module):
    """The model; ``Prefill`` and ``Decode`` are what is compiled of it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.width, eps=1e-5)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        frequencies = 10000.0 ** (-torch.arange(0, config.columns, 2) / config.columns)
        angles = torch.arange(config.positions)[:, None] * frequencies
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cosines", angles.cos())
        self.register_buffer("sines", angles.sin())


def quantized(model: nn.Module) -> nn.Module:
    """Give the linear layers of a model weights in fp8, in place, and return it."""
    for module in list(model.modules()):
        for name, layer in module.named_children():
            if isinstance(layer, nn.Linear):
                scale = (
                    layer.weight.float().abs().amax(1, keepdim=True) / torch.finfo(torch.float8_e4m3fn).max
                )
                weight = (layer.weight.float() / scale).to(torch.float8_e4m3fn)
                setattr(module, name, spyre_mlir.EightBitLinear(weight, scale))
    return model


class Prefill(nn.Module):
    """One prompt, padded to whole pages: logits of the token after its last token."""

    def __init__(self, model: Llama) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, table: Tensor, last: Tensor) -> Tensor:
        """``tokens`` are [1, positions], ``table`` has the page of each ``slots`` of them, ``last`` is a position."""
        model, size = self.model, tokens.shape[1]
        x = model.embedding(tokens)
        cosines, sines = model.cosines[:size], model.sines[:size]
        mask = torch.ones(size, size, dtype=torch.bool).tril()
        for layer in model.layers:
            x = x + layer.attention.prefill(layer.norms[0](x), cosines, sines, table, mask)
            x = x + layer.mlp(x)
        return model.head(model.norm(x[0].index_select(0, last)))


class Decode(nn.Module):
    """One token of each sequence: logits of the next ones."""

    def __init__(self, model: Llama) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, table: Tensor, position: Tensor) -> Tensor:
        """``tokens`` and ``position`` are [batch], ``table`` has the pages of each sequence."""
        model = self.model
        x = model.embedding(tokens)[:, None]
        cosines, sines = (
            rows.index_select(0, position)[:, None, None] for rows in (model.cosines, model.sines)
        )
        mask = torch.arange(model.config.positions) <= position[:, None]
        for layer in model.layers:
            x = x + layer.attention.decode(
                layer.norms[0](x), cosines, sines, table, position, mask[:, None, None]
            )
            x = x + layer.mlp(x)
        return model.head(model.norm(x[:, 0]))


def chosen_token(logits: Tensor, top_k: int, number: float) -> int:
    """The token of the largest logit, or one of the ``top_k`` largest ones, by a random number from 0 to 1."""
    values, tokens = logits.float().topk(top_k)
    below = torch.softmax(values, -1).cumsum(-1)
    return int(tokens[min(int((below < number).sum()), top_k - 1)])


def is_tie(token: int, other: int, logits: Tensor, top_k: int, number: float) -> bool:
    """Return whether two logits, or a random number and the bound between two tokens, are equal but for rounding."""
    if token == other:
        return True
    rounding = TOLERANCE * float(logits.abs().max())
    if abs(float(logits[token] - logits[other])) <= 2 * rounding:
        return True
    # Logits that are off by so much move a bound by at most half of it.
    values = logits.float().topk(top_k).values
    below = torch.softmax(values, -1).cumsum(-1)
    return bool(((below - number).abs() <= rounding).any())


@dataclass
class Generation:
    """Result of a run: the tokens, the number of ties in eager mode, and figures of a decoding step."""

    tokens: list[int]
    ties: int
    microseconds: float
    bytes: int


class Server:
    """Programs of a model that share its caches. ``eager`` is the same model as PyTorch runs it."""

    def __init__(self, config: Config, seed: int = 0, weights: str = "fp16", **options: Any) -> None:
        torch.manual_seed(seed)
        self.config = config
        model = Llama(config).half().eval().requires_grad_(False)
        if weights == "fp8":
            quantized(model)
        self.eager = copy.deepcopy(model)
        one = torch.zeros(1, dtype=torch.int64)
        # The decoding step comes first: it lays out the caches as it reads them, and prompts are written so.
        table = torch.arange(config.table)
        self.decode = spyre_mlir.compile(Decode(model), (one, table[None], one), state=True, **options)
        for name, size in (("batch", 1), ("positions", 2 * config.slots), ("pages", 2)):
            spyre_mlir.declare_tensor_dim(name, size)
        tokens, table = torch.zeros(1, 2 * config.slots, dtype=torch.int64), table[:2].clone()
        spyre_mlir.name_tensor_dims(tokens, ["batch", "positions"])
        spyre_mlir.name_tensor_dims(table, ["pages"])
        sizes = {"positions": (config.slots, config.positions), "pages": (1, config.table)}
        self.prefill = spyre_mlir.compile(
            Prefill(model), (tokens, table, one), state=self.decode.state, dynamic=sizes, **options
        )

    def generate(self, prompt: list[int], count: int, top_k: int = 1, seed: int = 0) -> Generation:
        """Generate ``count`` tokens after a prompt; raise ``AssertionError`` if eager mode has others, except for ties.

        Eager mode reads the tokens that the device has generated.
        """
        slots = self.config.slots
        size = -(-len(prompt) // slots) * slots
        numbers = torch.rand(count, generator=torch.Generator().manual_seed(seed)).tolist()
        tokens = torch.tensor([prompt + [0] * (size - len(prompt))])
        # Any pages will do; these are in no order.
        pages = torch.randperm(self.config.pages, generator=torch.Generator().manual_seed(seed))
        table = pages[: self.config.table]
        step = (tokens, table[: size // slots], torch.tensor([len(prompt) - 1]))
        program, eager = self.prefill, Prefill(self.eager)
        generation = Generation([], 0, self.decode.metrics()["predicted_us"], 0)
        for number in numbers:
            logits, expected = program(*step)[0], eager(*step)[0]
            token, other = (chosen_token(each, top_k, number) for each in (logits, expected))
            assert is_tie(token, other, expected, top_k, number), (
                f"token {len(generation.tokens)} is {token}, in eager mode {other}"
            )
            generation.ties += token != other
            generation.tokens.append(token)
            position = torch.tensor([len(prompt) + len(generation.tokens) - 1])
            step = (torch.tensor([token]), table[None], position)
            program, eager = self.decode, Decode(self.eager)
        moved = self.decode.traffic()
        generation.bytes = moved.read_bytes + moved.written_bytes
        return generation


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=37)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--weights", choices=("fp16", "fp8"), default="fp16")
    given = parser.parse_args(arguments)
    # The host computes masks, which are integers.
    warnings.simplefilter("ignore", spyre_mlir.HostWorkWarning)
    server = Server(Config(), weights=given.weights)
    prompt = torch.randint(server.config.vocabulary, (given.prompt,)).tolist()
    for top_k in (1, given.top_k):
        run = server.generate(prompt, given.tokens, top_k)
        print(f"top {top_k}: {len(run.tokens)} tokens, {run.ties} ties, the first {run.tokens[:8]}")
    print(
        f"{1e6 / run.microseconds:,.0f} tokens/s predicted, {run.bytes / 1e6:.2f} MB of device memory per token"
    )


if __name__ == "__main__":
    main()
