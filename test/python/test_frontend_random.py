# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers of a model are drawn from PyTorch's generator, call by call, as eager PyTorch does it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cpu_reference import CpuReference
from like_eager import check_like_eager

from spyre_mlir.frontend import Imported, import_torch
from spyre_mlir.mlir import ir


def imported(model: Any, *inputs: torch.Tensor) -> Imported:
    return import_torch(model, inputs, context=ir.Context())


def on_the_cpu(program: Imported, *inputs: torch.Tensor) -> Any:
    call = program.bind(*inputs)
    return call.finish(CpuReference(program.module)(*call.operands()))


def test_numbers_are_those_of_eager():
    """With the same seed, call after call."""

    def model(x):
        noise = torch.randn_like(x), torch.rand(2, 5), x.clone().uniform_(1, 2)
        return F.dropout(x, 0.3, True) * 2, *(x + each for each in noise), torch.randperm(4) + 1

    x = torch.rand(2, 5)
    program = imported(model, x)
    torch.manual_seed(3)
    got = [on_the_cpu(program, x) for _ in range(2)]
    torch.manual_seed(3)
    torch.testing.assert_close(got, [model(x) for _ in range(2)])


def test_random_numbers_that_are_returned():
    program = imported(lambda x: (x * 2, torch.rand(3)), torch.ones(2))
    torch.manual_seed(0)
    _, got = on_the_cpu(program, torch.ones(2))
    torch.manual_seed(0)
    assert torch.equal(got, torch.rand(3))


def test_dropout_of_nothing_and_of_all():
    """A dropout of nothing draws no numbers, and a dropout of everything is 0."""
    x = torch.rand(4)
    assert [argument.name for argument in imported(lambda x: F.dropout(x, 0, True) + 1, x).arguments] == ["x"]
    assert not on_the_cpu(imported(lambda x: F.dropout(x, 1.0, True), x), x).any()


def test_random_numbers_are_inputs_behind_the_others():
    program = imported(lambda x, y: F.dropout(x, 0.5, True) + y, torch.ones(2), torch.ones(2))
    kinds = [(argument.name, argument.kind) for argument in program.arguments]
    assert kinds[:2] == [("x", "input"), ("y", "input")]
    assert [kind for _, kind in kinds[2:]] == ["input"]


DRAWS = {
    "like a transposed tensor": lambda x: (torch.rand_like(x.T), torch.randn_like(x.T) + x.T),
    "of a mean": lambda x: (torch.normal(x, 2.0), torch.normal(1.0, x), torch.normal(x, x[:1])),
    "integers": lambda x: (torch.randint_like(x, 10), torch.randint_like(x, 3, 10), torch.randint(0, 9, (3, 4)) + 1),
    "distributions": lambda x: [
        torch.empty_like(x).exponential_(), torch.empty_like(x).cauchy_(), torch.empty_like(x).log_normal_(),
        torch.empty_like(x).geometric_(0.3), torch.empty_like(x).random_(2, 50), torch.empty_like(x).normal_(1, 2),
    ],
    "bernoulli": lambda x: (torch.bernoulli(x), torch.bernoulli(x, 0.3)),
    "dropout of a transposed tensor": lambda x: F.dropout(x.T, 0.4),
}  # fmt: skip


# The back end likely refuses a restickify of 32-bit numbers; test_conformance.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.PassWarning")
@pytest.mark.parametrize("form", DRAWS)
def test_numbers_are_drawn_in_the_order_of_eager(form: str) -> None:
    check_like_eager(DRAWS[form], torch.rand(5, 7))


# The back end likely refuses a restickify of 32-bit numbers; test_conformance.py tests the warning.
@pytest.mark.filterwarnings("ignore::spyre_mlir.PassWarning")
def test_dropout_in_the_order_of_memory() -> None:
    images = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check_like_eager(lambda x: F.dropout(x, 0.4), images)
