# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random programs of eager operations: views, writes in place and operations of the host, as PyTorch runs them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import device_chains
import pytest
import torch

import spyre_mlir.frontend  # noqa: F401  registers the device

#: Seeds of the programs; SPYRE_EAGER_SEEDS runs more.
SEEDS = int(os.environ.get("SPYRE_EAGER_SEEDS", "3"))

OPERATIONS = 500

DTYPES = (torch.float16, torch.float32, torch.int32, torch.int64, torch.bool, torch.uint8, torch.int16)

#: The tensors of a program: the oldest is forgotten first.
POOL = 8

Operation = Callable[[torch.Tensor, torch.Tensor], Any]

#: Operations with one program on the device for each view.
COMPUTED: tuple[Operation, ...] = (
    lambda x, y: x + y,
    lambda x, y: -x,
    lambda x, y: x.clone(),
    lambda x, y: torch.maximum(x, y),
)

#: Operations that the host runs.
OF_THE_HOST: tuple[Operation, ...] = (
    lambda x, y: x.nonzero(),
    lambda x, y: x[x > 0],
    lambda x, y: torch.where(x > y)[0] if x.dim() else x,
    lambda x, y: x.unique(),
    lambda x, y: x.to(torch.uint8),
    lambda x, y: x.view(torch.uint8)[..., :4] if x.dim() else x,
    lambda x, y: x.short() * 2,
    lambda x, y: torch.cat([x[:0], y]) if x.dim() else x,
    lambda x, y: x.flatten()[:0],
    lambda x, y: x.double().sum().float(),
    lambda x, y: torch.cat([x.flatten(), x.flatten()[:0]]),
)

IN_PLACE: tuple[Operation, ...] = (
    lambda x, y: x.fill_(3),
    lambda x, y: x.zero_(),
    lambda x, y: x.copy_(y),
    lambda x, y: x.add_(y),
    lambda x, y: x.mul_(2),
    lambda x, y: x.neg_(),
    lambda x, y: x.masked_fill_(y > 1, 1),
    lambda x, y: x.flatten().sub_(1),
    lambda x, y: x.add_(1.5),
    lambda x, y: x.resize_(1) if x.numel() else x,
    lambda x, y: x.unsqueeze_(0),
    lambda x, y: x.squeeze_(),
    lambda x, y: torch.add(x, y, out=x),
    lambda x, y: x.copy_(y.cpu().flip(0)) if y.dim() else x,
)


def made(rng: random.Random) -> torch.Tensor:
    """A new tensor of the host; few shapes, so that programs are used again."""
    shape = rng.choice(((4, 6), (2, 3, 4), (8,), (), (0, 3), (1, 1)))
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    return torch.randint(-8, 9, shape, generator=generator).to(rng.choice(DTYPES))


def outcome(operation: Operation, x: torch.Tensor, y: torch.Tensor) -> Any:
    """Result of an operation, or the type of its error."""
    try:
        return operation(x, y)
    except (RuntimeError, IndexError) as error:
        return type(error)


def operation_for(rng: random.Random, x: torch.Tensor) -> Operation:
    """A random operation for a tensor: a view more often than others, for it compiles nothing."""
    kinds = rng.choices(("view", "computed", "host", "in place"), (8, 1, 3, 4))
    if kinds == ["view"] and x.numel():
        name, arguments = device_chains.random_view(rng, x)
        return lambda x, y: device_chains.viewed(x, name, arguments)
    return rng.choice({"computed": COMPUTED, "host": OF_THE_HOST}.get(kinds[0], IN_PLACE))


def seen(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Type, sizes, strides and offset of a tensor; the stride of a dim of one element differs by kernel."""
    strides = [stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]
    return tensor.dtype, tensor.shape, strides, tensor.storage_offset()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_program_is_one_of_pytorch(seed: int) -> None:
    rng = random.Random(seed)
    pool: list[tuple[torch.Tensor, torch.Tensor]] = []
    for number in range(OPERATIONS):
        if len(pool) < 3 or rng.random() < 0.03:
            host = made(rng)
            pool.append((host, host.to("spyre")))
        x, on_device = rng.choice(pool)
        partners = [pair for pair in pool if pair[0].shape == x.shape and pair[0].dtype == x.dtype]
        y, other = rng.choice(partners)
        operation = operation_for(rng, x)
        expected, result = outcome(operation, x, y), outcome(operation, on_device, other)
        assert isinstance(expected, type) == isinstance(result, type), (number, expected, result)
        if isinstance(expected, type):
            assert expected is result
        elif expected.numel() <= 64:
            pool = [*pool[-POOL:], (expected, result)]
        for index, (host, device) in enumerate(pool):
            assert seen(host) == seen(device), (number, index)
            torch.testing.assert_close(device.cpu(), host, rtol=0, atol=0, equal_nan=True, msg=f"{number}")
