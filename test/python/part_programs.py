# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs that extract and insert slices of tensors, and whose numbers are exact."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

#: Sizes of the outer dim, of rows and of columns: whole sticks, so that slices of columns are not copies.
_OUTER, _ROWS, _COLUMNS = (4, 6, 8), (8, 12, 16), (128, 192, 256)

_UNARY: tuple[Callable[[Tensor], Tensor], ...] = (torch.neg, torch.abs, torch.relu)


@dataclass(frozen=True)
class _Slice:
    """``count`` positions of a dim from ``first`` on, each ``step``-th."""

    dim: int
    first: int
    count: int
    step: int = 1

    def of(self, x: Tensor) -> Tensor:
        end = self.first + (self.count - 1) * self.step + 1
        return x[(slice(None),) * self.dim + (slice(self.first, end, self.step),)]


class Parts(nn.Module):
    """A tensor is made, its parts are changed and put together again in another order, with a pad or without."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng = random.Random(seed)
        self.shape = (rng.choice(_OUTER), rng.choice(_ROWS), rng.choice(_COLUMNS))
        self.dim = rng.randrange(3)
        unit = 64 if self.dim == 2 else 1
        cuts = sorted(
            rng.sample(range(1, self.shape[self.dim] // unit), rng.choice((1, 1, 2)) if unit == 1 else 1)
        )
        ends = [0, *(cut * unit for cut in cuts), self.shape[self.dim]]
        self.parts = [_Slice(self.dim, a, b - a) for a, b in itertools.pairwise(ends)]
        rng.shuffle(self.parts)
        self.changes = [rng.choice((*_UNARY, None)) for _ in self.parts]
        self.pad = rng.choice((None, (0, 0, rng.randint(0, 2), rng.randint(1, 3)), (0, 0, 1, 1, 1, 0)))
        self.window = self._window(rng)
        self.twice = rng.random() < 0.5

    def _window(self, rng: random.Random) -> _Slice | None:
        """Return a random window of the padded tensor."""
        dim, step = rng.randrange(2), rng.choice((1, 1, 2))
        extent = self.shape[dim]
        count = rng.randint(1, extent // step)
        return (
            _Slice(dim, rng.randint(0, extent - (count - 1) * step - 1), count, step)
            if rng.random() < 0.7
            else None
        )

    def forward(self, x: Tensor, y: Tensor) -> Tensor | tuple[Tensor, ...]:
        made = torch.relu(x + y)
        parts = [
            part.of(made) if change is None else change(part.of(made))
            for part, change in zip(self.parts, self.changes, strict=True)
        ]
        whole = torch.cat(parts, self.dim) * y
        if self.pad is not None:
            whole = torch.nn.functional.pad(whole, self.pad) + 0
        if self.window is None:
            return whole - made if self.pad is None else whole * 2
        read = self.window.of(whole)
        return (torch.neg(read), torch.abs(whole)) if self.twice else torch.neg(read)

    def inputs(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(sum(self.shape))
        x, y = (torch.randint(-3, 4, self.shape, generator=generator).half() for _ in range(2))
        return x, y
