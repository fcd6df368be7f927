# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random loops of PyTorch: ``for_each_tile``, ``scan``, ``map`` and counted ``while_loop``, nested and not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows

from spyre_mlir import for_each_tile

_SIZES = (1, 2, 3, 5, 7, 16, 31, 33, 48, 64, 65, 96, 127, 128, 130, 192)
_DTYPES = (torch.float16, torch.float16, torch.float16, torch.float32, torch.int32)


@dataclass
class LoopCase:
    """A random function with example inputs; ``text`` describes it."""

    rng: random.Random
    text: list[str] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)

    def tensor(self, shape: Sequence[int], dtype: torch.dtype) -> int:
        """Add an input; return its position."""
        generator = torch.Generator().manual_seed(self.rng.randrange(1 << 30))
        values = torch.randn(list(shape), generator=generator)
        self.inputs.append((values * 4).round().to(dtype) if dtype == torch.int32 else values.to(dtype))
        return len(self.inputs) - 1

    def shape(self, rank: int, most: int = 1 << 14) -> list[int]:
        """Return random sizes with at most ``most`` elements in total."""
        while True:
            shape = [self.rng.choice(_SIZES) for _ in range(rank)]
            if torch.Size(shape).numel() <= most:
                return shape


def step(
    rng: random.Random, dtype: torch.dtype, carried: int
) -> Callable[..., tuple[list[Tensor], list[Tensor]]]:
    """A random step: new values of ``carried`` tensors and results, from tensors that broadcast to each other."""
    is_whole = dtype == torch.int32
    mixes = [
        (lambda c, t: torch.maximum(c, t), "max"),
        (lambda c, t: c + t if is_whole else c * 0.5 + t, "add"),
        (lambda c, t: t - c if is_whole else torch.tanh(t - c), "sub"),
        (lambda c, t: t + 1, "next"),
        (lambda c, t: c.clone(), "keep"),
    ]
    chosen = [rng.choice(mixes)[0] for _ in range(carried)]
    outputs = [rng.choice(mixes[:3])[0] for _ in range(rng.randint(0 if carried else 1, 2))]
    turns = rng.random() < 0.3

    def apply(state: Sequence[Tensor], part: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The body of one step."""
        partners = [state[(index + turns) % carried] for index in range(carried)]
        following = [mix(partner, part) for mix, partner in zip(chosen, partners, strict=True)]
        against = [*following, *state, part]
        return following, [mix(against[index % len(against)], part) for index, mix in enumerate(outputs)]

    return apply


def scan_case(case: LoopCase) -> Callable[..., Any]:
    """A scan, or a map if it carries nothing, over rows, forwards or in reverse."""
    rng, dtype = case.rng, case.rng.choice(_DTYPES)
    shape, trips = case.shape(rng.randint(0, 2), 1 << 12), rng.choice((1, 2, 3, 5, 8))
    carried, is_reversed = rng.randint(0, 3), rng.random() < 0.25
    rows = case.tensor([trips, *shape], dtype)
    state = [case.tensor(shape, dtype) for _ in range(carried)]
    apply = step(rng, dtype, carried)
    case.text.append(f"scan of {trips} x {shape} {dtype}, {carried} carried, reverse {is_reversed}")

    def function(*inputs: Tensor) -> Any:
        """The loop."""
        if not carried:
            return map_rows(lambda row: tuple(value.clone() for value in apply([], row)[1]), inputs[rows])

        def body(state: list[Tensor], row: Tensor) -> tuple[list[Tensor], list[Tensor]]:
            """The body of one step, whose results do not alias its operands."""
            following, results = apply(state, row)
            return [value.clone() for value in following], [value.clone() for value in results]

        return scan(body, [inputs[index] for index in state], inputs[rows], reverse=is_reversed)

    return function


def while_case(case: LoopCase) -> Callable[..., Any]:
    """A while loop with a counter that begins, ends and steps at random."""
    rng, dtype = case.rng, case.rng.choice(_DTYPES)
    first, width, trips = rng.randint(-3, 3), rng.randint(1, 3), rng.choice((0, 1, 2, 5))
    last = first + width * trips
    shape = case.shape(rng.randint(1, 2), 1 << 12)
    x, y = case.tensor(shape, dtype), case.tensor(shape, dtype)
    apply = step(rng, dtype, 1)
    case.text.append(f"while {first} .. {last} by {width} of {dtype}")

    def function(*inputs: Tensor) -> Any:
        """The loop."""

        def body(i: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
            """The body of one step."""
            return i + width, apply([value], inputs[x])[0][0].clone()

        return while_loop(lambda i, value: i < last, body, (torch.tensor(first), inputs[y]))

    return function


def tile_case(case: LoopCase) -> Callable[..., Any]:
    """Tiles of a tensor along a dim, the last one maybe smaller; with carried tensors of one tile's reduction."""
    rng, dtype = case.rng, case.rng.choice(_DTYPES)
    shape = case.shape(rng.randint(1, 3))
    dim = rng.randrange(len(shape))
    tile = rng.randint(max(1, -(-shape[dim] // 6)), shape[dim])
    x = case.tensor(shape, dtype)
    small = [size if index != dim else 1 for index, size in enumerate(shape)]
    carried = rng.randint(0, 2)
    state = [case.tensor(small, dtype) for _ in range(carried)]
    apply = step(rng, dtype, carried)
    case.text.append(f"tiles of {tile} of dim {dim} of {shape} {dtype}, {carried} carried")

    def function(*inputs: Tensor) -> Any:
        """The loop."""

        def body(state: list[Tensor], part: Tensor) -> tuple[list[Tensor], list[Tensor]]:
            """The body of one step: iter_args have size 1 in the dim of the tiles."""
            following, _ = apply(state, part.amax(dim, keepdim=True))
            return following, [value.expand_as(part) + part for value in [*following, part]]

        begin = [inputs[index] for index in state]
        if carried:
            return for_each_tile(body, inputs[x], dim=dim, tile=tile, carried=begin, out_dim=dim)
        return for_each_tile(lambda part: body([], part)[1], inputs[x], dim=dim, tile=tile, out_dim=dim)

    return function


def product_case(case: LoopCase) -> Callable[..., Any]:
    """A product in tiles of rows, with a loop over tiles of the contracted dim inside, which begins in each tile."""
    rng = case.rng
    dtype = rng.choice((torch.float16, torch.float32))
    m, k, n = (rng.choice(_SIZES) for _ in range(3))
    tile_m, tile_k = rng.randint(-(-m // 4), m), rng.randint(-(-k // 4), k)
    a, b = case.tensor([m, k], torch.float16), case.tensor([k, n], torch.float16)
    is_outside, begins = rng.random() < 0.3, rng.choice((0.0, 1.0))
    case.text.append(f"product {m}x{k}x{n} in tiles of {tile_m} and {tile_k}, sums in {dtype}, from {begins}")

    def function(*inputs: Tensor) -> Any:
        """The loops."""

        def rows(part: Tensor, total: Tensor | None = None) -> Tensor:
            """Rows of the product."""
            total = torch.full((part.shape[0], n), begins, dtype=dtype) if total is None else total

            def add(total: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, None]:
                """The sum with one more part."""
                return total + (left @ right).to(dtype), None

            return for_each_tile(add, part, inputs[b], dim=(1, 0), tile=tile_k, carried=total)[0]

        if is_outside:
            return for_each_tile(lambda part: (rows(part), part.sum(1)), inputs[a], tile=tile_m)
        return for_each_tile(lambda part: rows(part).to(torch.float16), inputs[a], tile=tile_m)

    return function


_KINDS = (scan_case, tile_case, tile_case, product_case, product_case, while_case)


def loop_case(seed: int) -> tuple[LoopCase, Callable[..., Any]]:
    """The random loop of a seed."""
    case = LoopCase(random.Random(seed))
    kind = _KINDS[seed % len(_KINDS)]
    return case, kind(case)
