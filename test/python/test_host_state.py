# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The option ``state=True``: all buffers that a model changes stay, those that functions of the host write too."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import spyre_mlir

ROWS, COLUMNS = 8, 64


def add_rows(b: Tensor, x: Tensor, at: Tensor) -> None:
    b.index_add_(0, at, x)


def put_rows(b: Tensor, x: Tensor, at: Tensor) -> None:
    b.index_put_((at,), x, accumulate=True)


def scatter_rows(b: Tensor, x: Tensor, at: Tensor) -> None:
    b.scatter_add_(0, at[:, None].expand_as(x), x)


def largest_rows(b: Tensor, x: Tensor, at: Tensor) -> None:
    b.index_reduce_(0, at, x, "amax")


def assign_rows(b: Tensor, x: Tensor, at: Tensor) -> None:
    b[at[:1]] = x[:1]


def sort_all(b: Tensor, x: Tensor, at: Tensor) -> None:
    b.copy_((b + x.sum(0)).sort(-1).values)


def scale(b: Tensor, x: Tensor, at: Tensor) -> None:
    b.mul_(0.5).add_(x[0])


def only_written(b: Tensor, x: Tensor, at: Tensor) -> None:
    b[:] = x[:1]


WRITES = [add_rows, put_rows, scatter_rows, largest_rows, assign_rows, sort_all, scale, only_written]


class Random(nn.Module):
    """A model with buffers, each of which one or two writes change; it returns some of them."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        choice = random.Random(seed)
        self.writes: list[tuple[str, Callable[..., None]]] = []
        for name in "abc"[: choice.randint(1, 3)]:
            self.register_buffer(name, torch.randint(-4, 5, (ROWS, COLUMNS)).half())
            self.writes += [(name, choice.choice(WRITES)) for _ in range(choice.randint(1, 2))]
        choice.shuffle(self.writes)
        self.returned = [name for name in dict(self.writes) if choice.random() < 0.6]

    def forward(self, x: Tensor, at: Tensor) -> list[Tensor]:
        for name, write in self.writes:
            write(self.get_buffer(name), x, at)
        return [x + 1, *(self.get_buffer(name) * 2 for name in self.returned)]


def compiled(model: nn.Module, *inputs: Tensor) -> spyre_mlir.Program:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spyre_mlir.compile(model, inputs, sencores=2, state=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(100))
def test_random_writes_of_the_host(seed):
    torch.manual_seed(seed)
    model = Random(seed)
    eager, before = copy.deepcopy(model), copy.deepcopy(dict(model.named_buffers()))

    def inputs() -> tuple[Tensor, Tensor]:
        return torch.randint(-4, 5, (3, COLUMNS)).half(), torch.randint(0, ROWS, (3,))

    program = compiled(model, *inputs())
    assert {*program.state} == {*dict(model.writes)}
    for _ in range(3):
        call = inputs()
        for got, expected in zip(program(*call), eager(*call), strict=True):
            torch.testing.assert_close(got, expected, rtol=4e-3, atol=4e-3)
        for name, tensor in program.state.items():
            torch.testing.assert_close(tensor.cpu(), eager.get_buffer(name), rtol=4e-3, atol=4e-3)
    assert all(torch.equal(model.get_buffer(name), tensor) for name, tensor in before.items())


@pytest.mark.parametrize("dtype", [torch.float64, torch.uint8])
def test_a_buffer_of_a_type_without_a_layout_keeps_its_type(dtype):
    class Model(nn.Module):
        total: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(COLUMNS, dtype=dtype))

        def forward(self, x: Tensor) -> Tensor:
            self.total.add_(1)
            return x * 2

    program = compiled(Model(), torch.ones(2, COLUMNS).half())
    for _ in range(3):
        program(torch.ones(2, COLUMNS).half())
    assert torch.equal(program.state["total"].cpu(), torch.full((COLUMNS,), 3, dtype=dtype))


def test_a_buffer_without_elements():
    class Model(nn.Module):
        nothing: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("nothing", torch.zeros(0, COLUMNS).half())

        def forward(self, x: Tensor) -> Tensor:
            self.nothing.add_(1)
            return x * 2

    program = compiled(Model(), torch.ones(2, COLUMNS).half())
    assert not program.state
    assert torch.equal(program(torch.ones(2, COLUMNS).half()), torch.full((2, COLUMNS), 2.0).half())
