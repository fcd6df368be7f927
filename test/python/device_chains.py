# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random chains of views and arithmetic on a tensor of PyTorch and on one of the device, side by side."""

from __future__ import annotations

import random
from typing import Any

import torch

#: Shapes with whole sticks, partial ones and dims of one element.
SHAPES = ((64, 128), (3, 70), (2, 3, 64), (4, 1, 66), (130,), (2, 64, 3), (1, 5), (2, 2, 2, 32))


def random_view(rng: random.Random, x: Any) -> tuple[str, tuple[Any, ...]]:
    """A view operation that PyTorch has for ``x``: its name and arguments."""
    shape, rank = tuple(x.shape), x.dim()
    kinds = ["permute", "unsqueeze", "squeeze", "reshape", "flatten", "expand"]
    if rank:
        kinds += ["select", "__getitem__", "transpose", "view"]
    if rank <= 2:
        kinds.append("t")
    kind = rng.choice(kinds)
    if kind == "permute":
        return kind, (rng.sample(range(rank), rank),)
    if kind == "unsqueeze":
        return kind, (rng.randint(-rank - 1, rank),)
    if kind == "select":
        dim = rng.randrange(rank)
        return kind, (dim - rng.choice((0, rank)), rng.randrange(-shape[dim], shape[dim]))
    if kind == "transpose":
        return kind, (rng.randrange(rank), rng.randrange(-rank, rank))
    if kind == "__getitem__":
        return kind, (random_index(rng, shape),)
    if kind in ("reshape", "view"):
        return kind, (random_shape(rng, shape),)
    if kind == "expand":
        new = [rng.choice((2, 3))] if rank < 3 and rng.random() < 0.5 else []
        return kind, (
            (*new, *(rng.choice((1, 2, 3)) if size == 1 else rng.choice((size, -1)) for size in shape)),
        )
    return kind, ()


def random_index(rng: random.Random, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return an index of numbers, slices, None and ``...`` for a prefix of the dims, or for a suffix."""
    items: list[Any] = []
    for size in shape[: rng.randint(1, len(shape))]:
        start = rng.randrange(size)
        items.append(
            rng.choice((
                slice(None), rng.randrange(-size, size),
                slice(start, rng.randint(start + 1, size), rng.choice((None, 1, 2, 3))),
                slice(start - size, None),
            ))
        )  # fmt: skip
    if rng.random() < 0.3:
        items.insert(rng.randint(0, len(items)), None)
    if rng.random() < 0.3:
        items.insert(0, Ellipsis)
    return tuple(items)


def random_shape(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape of as many elements, by splitting and merging dims."""
    sizes = list(shape)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(sizes)) if sizes else 0
        divisors = [d for d in (2, 3, 5, 32, 64) if sizes and sizes[at] % d == 0]
        if divisors and rng.random() < 0.5:
            divisor = rng.choice(divisors)
            sizes[at : at + 1] = rng.choice(
                ([divisor, sizes[at] // divisor], [sizes[at] // divisor, divisor])
            )
        elif at + 1 < len(sizes):
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        else:
            sizes.insert(rng.randint(0, len(sizes)), 1)
    if sizes and rng.random() < 0.3:
        sizes[rng.randrange(len(sizes))] = -1
    return tuple(sizes)


def random_arithmetic(rng: random.Random) -> tuple[str, Any]:
    """Return an operation of one tensor, as the name of the case and as a function of both kinds of tensors."""
    return rng.choice((
        ("add", lambda x: x + x), ("scalar", lambda x: x * 0.5), ("rsub", lambda x: 1 - x),
        ("neg", lambda x: -x), ("abs", abs), ("sub", lambda x: x - x[..., :1] if x.dim() else x - x),
    ))  # fmt: skip


def viewed(x: Any, name: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(x, name)(*arguments)


def strides_of_ones_as(strides: tuple[int, ...], made: Any) -> list[int]:
    """Return strides, with the strides of dims of one element taken from ``made``: PyTorch's kernels differ there."""
    return [
        own if size == 1 else stride
        for stride, own, size in zip(strides, made.stride(), made.shape, strict=True)
    ]


def numbers(rng: random.Random, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    return torch.randint(-100, 100, shape, generator=generator).to(dtype) / 8
