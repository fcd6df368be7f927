# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random cascades of reductions: a contraction or a load, pointwise operations, reductions, a contraction or reduction.

A seed determines a program. ``function`` and ``inputs`` give it at a small size with numbers, for the simulator, and at
full size without memory, for predicted times. ``bytes`` and ``multiply_adds`` are counted here, from the sizes of
inputs and results and from the contractions, independently of the compiler.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

#: Sizes of rows and of keys, small and full.
_SMALL, _FULL = (17, 49, 64, 77, 96, 130), (512, 577, 1024, 2048, 2050, 4096)

#: Sizes of a head.
_HEAD = (64, 80, 96, 128)

#: Pointwise operations on scores. Those with an upper-case name read another input.
_POINTWISE = (
    "scale", "cap", "gelu", "clamp", "abs", "distance", "causal", "window",
    "SLOPE", "BIAS", "KEYBIAS", "ROWBIAS", "MASK", "GATE",
)  # fmt: skip

#: Reductions over the keys with the pointwise operations that use their results.
_NORMALISED = (
    "softmax", "softmax", "softmax", "softmax1", "sinks", "logsoftmax",
    "layernorm", "rmsnorm", "l2", "l1", "sigmoid", "max", "none",
)  # fmt: skip

#: The end of a program: products of the normalised scores, or reductions.
_ENDS = ("matmul", "matmul", "matmul", "two", "sum", "max", "mean", "lse", "nll", "store")


@dataclass(frozen=True)
class Cascade:
    """A program of one seed at one size.

    ``heads`` and ``groups`` are numbers of heads of the rows and of the keys; ``shape`` is rows, keys, and columns of a
    head. ``chain`` are operations on the scores, ``also`` is a second result: the statistics, or none.
    """

    seed: int
    loads: bool
    heads: int
    groups: int
    shape: tuple[int, int, int]
    columns: int
    chain: tuple[str, ...]
    norm: str
    after: str
    end: str
    also: str

    def __str__(self) -> str:
        rows, keys, depth = self.shape
        source = (
            "load"
            if self.loads
            else f"q @ k ({depth}{f', {self.groups} groups' if self.groups < self.heads else ''})"
        )
        parts = (source, *self.chain, self.norm, self.after, self.end, self.also and f"and {self.also}")
        return f"{self.heads}x{rows}x{keys}: " + ", ".join(part for part in parts if part and part != "none")

    @property
    def hides(self) -> bool:
        """Whether masked scores have the weight 0."""
        return self.norm in ("softmax", "softmax1", "sinks")

    @cached_property
    def sizes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs by name."""
        (rows, keys, depth), heads = self.shape, self.heads
        found: dict[str, tuple[int, ...]] = {}
        if self.loads:
            found["x"] = (heads, rows, keys)
        else:
            found |= {"q": (heads, rows, depth), "k": (self.groups, keys, depth)}
        shapes = {
            "SLOPE": (heads, 1, 1), "BIAS": (rows, keys), "KEYBIAS": (keys,), "ROWBIAS": (heads, rows, 1),
            "MASK": (rows, keys), "GATE": (rows, keys),
        }  # fmt: skip
        found |= {name: shapes[name] for name in self.chain if name in shapes}
        if self.norm == "sinks":
            found["sink"] = (heads,)
        if self.after in ("drop", "rowgate"):
            found[self.after] = (heads, rows, keys) if self.after == "drop" else (rows, 1)
        for name in {"matmul": ("v",), "two": ("v", "w")}.get(self.end, ()):
            found[name] = (self.groups, keys, self.columns)
        if self.end == "nll":
            found["target"] = (heads, rows, 1)
        return found

    @property
    def results(self) -> int:
        """The number of elements of all results."""
        rows, keys, _ = self.shape
        sizes = {"matmul": self.columns, "two": 2 * self.columns, "store": keys}
        return self.heads * rows * (sizes.get(self.end, 1) + (self.also != "none"))

    @property
    def bytes(self) -> int:
        """The bytes that any plan moves: inputs and results, 2 bytes per element."""
        return 2 * (sum(map(math.prod, self.sizes.values())) + self.results)

    @property
    def stick_bytes(self) -> int:
        """The bytes of inputs and results in their default layouts: whole sticks of 64 elements of the last dim."""
        rows, keys, _ = self.shape
        widths = {"matmul": [self.columns], "two": [self.columns] * 2, "store": [keys]}.get(self.end, [])
        shapes = [*self.sizes.values(), *((self.heads, rows, width) for width in widths)]
        statistics = (self.also != "none") + (not widths)
        shapes += [(self.heads, rows)] * statistics
        return 128 * sum(math.prod(shape[:-1]) * -(-shape[-1] // 64) for shape in shapes)

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds that remain if a mask of positions skips the hidden keys."""
        rows, keys, depth = self.shape
        seen = (
            _visible(rows, keys, self.chain) if self.norm in ("softmax", "softmax1", "sinks") else rows * keys
        )
        per_pair = (0 if self.loads else depth) + {"matmul": 1, "two": 2}.get(self.end, 0) * self.columns
        return self.heads * seen * per_pair

    def inputs(self) -> tuple[Tensor, ...]:
        """Return fp16 numbers for all inputs; zeros without memory if the program is large."""
        if max(map(math.prod, self.sizes.values())) > 1 << 18:
            return tuple(torch.zeros((), dtype=torch.float16).expand(shape) for shape in self.sizes.values())
        draw = torch.Generator().manual_seed(self.seed)
        numbers = []
        for name, shape in self.sizes.items():
            value = torch.randn(shape, generator=draw) * (0.3 if name in ("q", "k") else 1.0)
            if name in ("MASK", "drop"):
                value = (value > -0.5).float()
            if name == "target":
                value = value * 0.1
            numbers.append(value.half())
        return tuple(numbers)

    def function(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Compute the program with PyTorch."""
        given = dict(zip(self.sizes, inputs, strict=True))
        repeat = self.heads // self.groups

        def of_heads(name: str) -> Tensor:
            value = given[name]
            return value if repeat == 1 else value.repeat_interleave(repeat, 0)

        scores = given["x"] if self.loads else given["q"] @ of_heads("k").transpose(1, 2)
        for name in self.chain:
            scores = _pointwise(name, scores, given, -1e4 if self.hides else -4.0)
        weights, statistic = self._normalised(scores, given)
        if self.after == "drop":
            weights = weights * given["drop"]
        elif self.after == "rowgate":
            weights = weights * given["rowgate"]
        elif self.after == "square":
            weights = weights * weights
        first = self._end(weights, scores, given, of_heads)
        found = list(first if isinstance(first, tuple) else (first,))
        if self.also == "statistic":
            found.append(statistic)
        elif self.also == "rowmax":
            found.append(scores.amax(-1))
        return found[0] if len(found) == 1 else tuple(found)

    def _normalised(self, scores: Tensor, given: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the normalised scores, and a statistic of the rows."""
        match self.norm:
            case "softmax":
                return torch.softmax(scores, -1), torch.logsumexp(scores, -1)
            case "softmax1":
                largest = scores.amax(-1, keepdim=True).clamp(min=0)
                powers = torch.exp(scores - largest)
                total = powers.sum(-1, keepdim=True) + torch.exp(-largest)
                return powers / total, (total.log() + largest)[..., 0]
            case "sinks":
                column = given["sink"][:, None, None].expand(*scores.shape[:-1], 1)
                wide = torch.cat([scores, column], -1)
                return torch.softmax(wide, -1)[..., :-1], torch.logsumexp(wide, -1)
            case "logsoftmax":
                return torch.log_softmax(scores, -1), torch.logsumexp(scores, -1)
            case "layernorm":
                mean = scores.mean(-1, keepdim=True)
                spread = (scores - mean).square().mean(-1, keepdim=True)
                return (scores - mean) * torch.rsqrt(spread + 1e-3), spread[..., 0]
            case "rmsnorm":
                square = scores.square().mean(-1, keepdim=True)
                return scores * torch.rsqrt(square + 1e-3), square[..., 0]
            case "l2":
                norm = scores.square().mean(-1, keepdim=True).sqrt() + 1e-2
                return scores / norm, norm[..., 0]
            case "l1":
                norm = scores.abs().mean(-1, keepdim=True) + 1e-2
                return scores / norm, norm[..., 0]
            case "sigmoid":
                weights = torch.sigmoid(scores)
                return weights, weights.mean(-1)
            case "max":
                largest = scores.amax(-1, keepdim=True)
                return scores - largest, largest[..., 0]
        return scores, scores.mean(-1)

    def _end(
        self, weights: Tensor, scores: Tensor, given: dict[str, Tensor], of_heads: Callable[[str], Tensor]
    ) -> Tensor | tuple[Tensor, ...]:
        match self.end:
            case "matmul":
                return weights @ of_heads("v")
            case "two":
                return weights @ of_heads("v"), weights @ of_heads("w")
            case "sum":
                return (weights * scores).mean(-1)
            case "max":
                return weights.amax(-1)
            case "mean":
                return weights.mean(-1)
            case "lse":
                return torch.logsumexp(weights, -1)
            case "nll":
                return torch.logsumexp(weights, -1) - given["target"][..., 0]
        return weights


def _pointwise(name: str, scores: Tensor, given: dict[str, Tensor], low: float) -> Tensor:
    """Apply an operation of ``_POINTWISE`` to scores; a mask replaces scores by about ``low``."""
    rows, keys = (torch.arange(size, device=scores.device) for size in scores.shape[-2:])
    match name:
        case "scale":
            return scores * 0.125
        case "cap":
            return torch.tanh(scores * 0.25) * 4
        case "gelu":
            return F.gelu(scores)
        case "clamp":
            return scores.clamp(-3, 3)
        case "abs":
            return scores.abs()
        case "distance" | "SLOPE":
            apart = (keys[None, :] - rows[:, None]).abs().to(scores.dtype)
            return scores - apart * (given["SLOPE"].abs() if name == "SLOPE" else 1) * (1 / 128)
        case "causal":
            return scores.masked_fill(keys[None, :] > rows[:, None], low)
        case "window":
            return scores.masked_fill((keys[None, :] - rows[:, None]).abs() > 32, low)
        case "MASK":
            return scores + (1 - given[name]) * low
        case "GATE":
            return scores * given[name]
    return scores + given[name]


def _visible(rows: int, keys: int, chain: tuple[str, ...]) -> int:
    """Return how many pairs of a row and a key no mask of positions hides."""
    first = [max(0, row - 32) if "window" in chain else 0 for row in range(rows)]
    last = [
        min(keys, row + 33 if "window" in chain else keys, row + 1 if "causal" in chain else keys)
        for row in range(rows)
    ]
    return sum(max(0, end - start) for start, end in zip(first, last, strict=True))


def cascade(seed: int, *, full: bool) -> Cascade:
    """Return the program of a seed, at full or at small size."""
    draw = random.Random(seed)
    small, whole = (
        (draw.choice(sizes), draw.choice(sizes), depth)
        for depth in [draw.choice(_HEAD)]
        for sizes in (_SMALL, _FULL)
    )
    loads, heads = draw.random() < 0.2, draw.choice((1, 4, 8, 16, 32))
    groups = heads if loads or draw.random() < 0.7 else max(1, heads // 4)
    chain = tuple(draw.sample(_POINTWISE, draw.choice((0, 1, 1, 2, 2, 3))))
    norm, end = draw.choice(_NORMALISED), draw.choice(_ENDS)
    after = draw.choice(("none", "none", "none", "drop", "rowgate", "square"))
    also = draw.choice(("none", "none", "none", "statistic", "rowmax"))
    found = Cascade(seed, loads, heads, groups, whole, draw.choice(_HEAD), chain, norm, after, end, also)
    if full:
        return found
    few = min(heads, 4)
    return dataclasses.replace(found, shape=small, heads=few, groups=few if groups == heads else 1)


def deviation(found: Cascade, results: Tensor | tuple[Tensor, ...]) -> float:
    """Return the largest error of results over the allowed error: 4 times PyTorch's own in fp16, or a thousandth."""
    inputs = found.inputs()
    wanted, rounded = found.function(*(value.double() for value in inputs)), found.function(*inputs)
    one = isinstance(wanted, Tensor)
    worst = 0.0
    for result, exact, own in zip(
        *([each] if one else each for each in (results, wanted, rounded)), strict=True
    ):
        allowed = 4 * (own.double() - exact).abs().max() + 4e-3 * exact.abs().max() + 1e-3
        worst = max(worst, float((result.double() - exact).abs().max() / allowed))
    return worst
