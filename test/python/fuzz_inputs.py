# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seeded values of the inputs of random programs: shape, type and a named distribution make a tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

#: Types by name, as they are in the text of a program.
DTYPES = {
    str(dtype): dtype
    for dtype in (
        torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool,
    )
}  # fmt: skip

#: Distributions of floating-point values, by name: normal numbers to numbers.
FLOATS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "normal": lambda x: x,
    "integers": lambda x: np.clip(np.round(2 * x), -4, 4),
    "large mean": lambda x: x + 20,
    "small spread": lambda x: 10 + x / 50,
    "constant": lambda x: np.full_like(x, 2.7),
    "large": lambda x: 300 * x,
    "small": lambda x: x / 1000,
    "negative": lambda x: -np.abs(x) - 0.1,
    "positive": lambda x: np.abs(x) + 0.5,
    "zeros": lambda x: 0 * x,
    "mask": lambda x: np.where(x > 0.3, -np.inf, 0.0),
    "weights": lambda x: x / math.sqrt(max(1, *x.shape[-2:])) if x.ndim else x,
}

#: Numbers of a floating type that are its own: both ends of it, no numbers, both zeros; and some that are not.
SPECIAL = "special"


def _special(dtype: torch.dtype) -> list[float]:
    info = torch.finfo(dtype)
    numbers = [info.max, info.tiny, info.smallest_normal * info.eps, math.inf, 0.0, 1.0, 0.5, 2.5, 3.0, 700.0]
    return [math.nan, *numbers, *(-x for x in numbers)]


#: Kinds whose values every 16-bit format represents exactly.
EXACT_EVERYWHERE = {"integers", "zeros", "mask"}


@dataclass(frozen=True)
class Input:
    """A named tensor that a program takes: drawn from ``values`` by its seed, or the elements ``literal``.

    ``role`` is "input", or "buffer" for one of the module's own. ``values`` is a name of ``FLOATS`` or ``SPECIAL``, or
    "below N" for uniform integers in [0, N); "any" integers are in [-8, 8), "codes" are all of 8 bits, "true" booleans
    are all true, and others are fair coins.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    values: str = "normal"
    seed: int = 0
    role: str = "input"
    literal: tuple[float, ...] | None = None

    def tensor(self) -> Tensor:
        """The tensor in its own type."""
        dtype = DTYPES[self.dtype]
        if self.literal is not None:
            return torch.tensor(self.literal, dtype=dtype).reshape(self.shape)
        generator = np.random.default_rng(self.seed)
        if self.values == SPECIAL:
            chosen = generator.integers(0, len(_special(dtype)), self.shape)
            return torch.tensor(_special(dtype), dtype=torch.float64)[
                torch.from_numpy(np.asarray(chosen))
            ].to(dtype)
        if dtype.is_floating_point:
            array = FLOATS[self.values](generator.standard_normal(self.shape))
            return torch.from_numpy(np.asarray(array)).to(dtype)
        if dtype == torch.bool:
            return torch.from_numpy(
                np.asarray(generator.random(self.shape) < (2 if self.values == "true" else 0.5))
            )
        low, high = (0, int(self.values.split()[1])) if self.values.startswith("below ") else (-8, 8)
        if self.values == "codes":
            low, high = (0, 256) if dtype == torch.uint8 else (-128, 128)
        elif dtype == torch.uint8:
            low = 0
        return torch.from_numpy(np.asarray(generator.integers(low, high, self.shape))).to(dtype)

    def with_elements(self, value: Tensor) -> Input:
        """Return the input with the elements of a tensor."""
        return replace(self, values="", literal=tuple(value.reshape(-1).tolist()))
