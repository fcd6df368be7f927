# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The suite: layers of models, at full and at reduced size, for benchmarks and tests.

``program`` builds an fp16 module in eval mode and its inputs. Names and comments give the full size; reduced programs
have the same structure. Weights and inputs are random and seeded by the name, or need no memory, for plans only.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.zoo.blocks import AppliedFunction, LlamaBlock, Program, SwiGlu, rotary_tables

Shape = tuple[int, ...]


@dataclass(frozen=True)
class SuiteSizes:
    """Sizes of programs, in elements or numbers of parts.

    Attributes:
        rows: The rows of an activation.
        few_rows: The rows of a small activation.
        length: The positions of a long sequence and of a cache.
        hidden: The features of an activation.
        heads: The query heads of an attention.
        key_heads: The key and value heads of an attention.
        head: The features of a head.
        inner: The inner features of an MLP.
        experts: The experts of a mixture.
        expert_inner: The inner features of an expert.
        layers: The layers of a model.
        channels: The channels of an image.
        pixels: The pixels of a side of an image.
    """

    rows: int
    few_rows: int
    length: int
    hidden: int
    heads: int
    key_heads: int
    head: int
    inner: int
    experts: int
    expert_inner: int
    layers: int
    channels: int
    pixels: int


FULL = SuiteSizes(
    rows=512, few_rows=64, length=4096, hidden=4096, heads=32, key_heads=8, head=128, inner=12800, experts=8,
    expert_inner=1408, layers=12, channels=64, pixels=56,
)  # fmt: skip
"""The full sizes of the suite."""

REDUCED = SuiteSizes(
    rows=64, few_rows=16, length=256, hidden=512, heads=8, key_heads=2, head=64, inner=1024, experts=8,
    expert_inner=128, layers=4, channels=64, pixels=14,
)  # fmt: skip


class MixtureOfExperts(nn.Module):
    """A SwiGLU per expert; each token gates all experts, so that tokens are not routed."""

    def __init__(self, hidden: int, inner: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(SwiGlu(hidden, inner) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        gates = torch.softmax(self.router(x), -1)
        products = (expert(x) * gates[:, k : k + 1] for k, expert in enumerate(self.experts))
        return sum(products)  # pyright: ignore[reportReturnType]


class ConvolutionBlock(nn.Module):
    """A residual block of two convolutions of 3 x 3, each with a batch normalisation that eval mode folds."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.first_norm, self.second_norm = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inner)) + x)


def program(name: str, sizes: SuiteSizes, *, weights: bool = True) -> Program:
    """Return a program of the suite (a model) and its inputs.

    Args:
        name: The name of the program in the suite.
        sizes: The sizes: ``FULL``, ``REDUCED`` or others.
        weights: If false, the program can be compiled, but all numbers are zero and share their memory.

    Raises:
        CompileError: The suite has no program of this name.
    """
    if name not in SUITE:
        raise CompileError(f"The suite has no '{name}'; it has {', '.join(SUITE)}.")
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    with torch.device("meta"):
        built, *shapes = SUITE[name](sizes)
        model = built if isinstance(built, nn.Module) else AppliedFunction(built)
    fill = _Random(generator) if weights else _zeros
    for module in model.modules():
        _fill(module, fill)
    inputs = tuple(fill(torch.empty(shape, device="meta"), 1.0) for shape in shapes)
    return model.eval(), inputs


#: Returns a tensor with numbers for a tensor without, given their standard deviation.
Fill = Callable[[Tensor, float], Tensor]


@dataclass(frozen=True)
class _Random:
    generator: torch.Generator

    def __call__(self, tensor: Tensor, deviation: float) -> Tensor:
        return (torch.randn(tensor.shape, generator=self.generator) * deviation).half()


def _zeros(tensor: Tensor, _: float) -> Tensor:
    return torch.zeros((), dtype=torch.float16).expand(tensor.shape)


def _fill(module: nn.Module, fill: Fill) -> None:
    """Fill a module's own parameters and buffers: results stay in the range of inputs, vectors are positive."""
    for name, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        fan_in = tensor[0].numel() if tensor.dim() > 1 else 0
        numbers = fill(tensor, fan_in**-0.5) if fan_in else 1 + fill(tensor, 0.1)
        setattr(module, name, nn.Parameter(numbers, False) if isinstance(tensor, nn.Parameter) else numbers)
    if isinstance(module, LlamaBlock):
        sequence, dim = module.cos.shape
        module.cos, module.sin = (table.half() for table in rotary_tables(sequence, dim))


def _attention(
    sizes: SuiteSizes, rows: int, keys: int, key_heads: int
) -> tuple[Callable[..., Any], Shape, Shape, Shape]:
    """Return attention of all query heads to some keys; with fewer key heads, a group of query heads shares each."""
    grouped = key_heads != sizes.heads
    cache = (1, key_heads, keys, sizes.head)
    return (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=grouped),
        (1, sizes.heads, rows, sizes.head),
        cache,
        cache,
    )


def _layers(sizes: SuiteSizes, rows: int, count: int) -> tuple[nn.Module, Shape]:
    """Return layers like Granite's: numbers of heads and widths, rotary embedding, causal attention, SwiGLU."""
    arguments = (sizes.hidden, rows, sizes.heads, sizes.key_heads, sizes.inner)
    layers = [LlamaBlock(*arguments) for _ in range(count)]
    return (layers[0] if count == 1 else nn.Sequential(*layers)), (1, rows, sizes.hidden)


#: By name, a function that returns a module or a function, and the shapes of its inputs.
SUITE: Mapping[str, Callable[[SuiteSizes], tuple]] = {
    "softmax": lambda s: (lambda x: torch.softmax(x, -1), (s.rows, s.hidden)),
    "rms_norm": lambda s: (nn.RMSNorm(s.hidden, eps=1e-5), (s.rows, s.hidden)),
    "layer_norm": lambda s: (nn.LayerNorm(s.hidden), (s.rows, s.hidden)),
    "mlp": lambda s: (SwiGlu(s.hidden, s.inner), (s.rows, s.hidden)),
    "attention_512": lambda s: _attention(s, s.rows, s.rows, s.heads),
    "attention_4096": lambda s: _attention(s, s.length, s.length, s.heads),
    "decode_4096": lambda s: _attention(s, 1, s.length, s.key_heads),
    "moe_mlp": lambda s: (
        MixtureOfExperts(s.hidden, s.expert_inner, s.experts), (s.few_rows, s.hidden)
    ),
    "layer_64": lambda s: _layers(s, s.few_rows, 1),
    "layer_512": lambda s: _layers(s, s.rows, 1),
    "layers_12": lambda s: _layers(s, s.rows, s.layers),
    "conv_block": lambda s: (ConvolutionBlock(s.channels), (1, s.channels, s.pixels, s.pixels)),
}  # fmt: skip
