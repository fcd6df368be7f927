# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random chains of operations, and the least time that physics allows them."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from programs import Apply

import spyre_mlir
from spyre_mlir.target.target import default_target
from spyre_mlir.timeline import Timeline

#: Operations of random programs, each of (512 x 256) twice to one of this shape.
OPERATIONS: tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], ...] = (
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: torch.exp(x) - y,
    lambda x, y: torch.softmax(x, 0) + y,
    lambda x, y: torch.softmax(x, 1) * y,
    lambda x, y: x @ y.T @ y,
    lambda x, y: x - y.sum(0),
    lambda x, y: x.T.contiguous().T * y.amax(1, keepdim=True),
)


def least_ns(found: Timeline) -> float:
    """Return the time of all bytes and multiply-adds at their peaks; of a core 1.5 GHz x 1024 multiply-adds."""
    moved = sum(each.read_bytes + each.written_bytes for each in found.executions)
    multiply_adds = sum(
        each.runs * each.work.cores * each.work.multiply_adds_per_core for each in found.executions
    )
    peak = default_target().peak_bytes_per_ns
    return max(moved / peak, multiply_adds / (1536 * default_target().cores))


def random_program(seed: int, length: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A chain whose operations each take two of what there is; it returns the last two."""
    rng = random.Random(seed)
    steps = [(rng.choice(OPERATIONS), rng.random(), rng.random()) for _ in range(length)]

    def run(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = [x, y]
        for operation, one, other in steps:
            values.append(operation(values[int(one * len(values))], values[int(other * len(values))]))
        return tuple(values[2:])

    return run


def compiled(seed: int, length: int, cores: int) -> Timeline:
    inputs = (torch.zeros(512, 256).half(), torch.zeros(512, 256).half())
    return spyre_mlir.compile(Apply(random_program(seed, length)), inputs, sencores=cores).timeline()


def prices(seed: int) -> tuple[Timeline, Timeline]:
    """Return the timelines of a random program on 1, 4 or 32 cores, and of the same with an operation more.

    All values are results, so with one operation more the program has all that it had to do.
    """
    cores = (1, 4, 32)[seed % 3]
    fewer, more = (compiled(seed, length, cores) for length in (seed % 3 + 1, seed % 3 + 2))
    return fewer, more
