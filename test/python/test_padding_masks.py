# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs with masks: a program of more rows, with NaN in its padding, gives PyTorch's result for fewer rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import spyre_mlir
from spyre_mlir.dialects import context as new_context
from spyre_mlir.frontend import import_torch
from spyre_mlir.frontend.module_pairs import DifferentPrograms, check_padding_safety
from spyre_mlir.host import HostFunction

COLUMNS = 6
LINEAR = nn.Linear(COLUMNS, COLUMNS).requires_grad_(False)

#: Programs that combine elements along dim 0 of their input.
PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(0),
    "sum of all": lambda x: x.sum() * 2,
    "mean": lambda x: x.mean(0),
    "product": lambda x: x.prod(0),
    "maximum": lambda x: x.amax(0),
    "minimum and its position": lambda x: x.min(0).values + x.min(0).indices,
    "any": lambda x: (x > 0.5).any(0),
    "all": lambda x: (x > -9).all(0),
    "integers": lambda x: (x * 8).long().amax(0) + (x * 8).long().sum(0),
    "variance": lambda x: x.var(0),
    "norm": lambda x: x.norm(dim=0),
    "softmax": lambda x: x.softmax(0),
    "log-sum-exp": lambda x: x.logsumexp(0),
    "contraction": lambda x: x.t() @ x,
    "attention": lambda x: torch.softmax(x @ x.t() / 2, -1) @ x,
    "causal attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)[
        0
    ],
    "normalised columns": lambda x: F.layer_norm(x.t(), (x.shape[0],)),
    "centred, then a layer": lambda x: LINEAR(x - x.mean(0)) / x.std(),
    "both dims": lambda x: (x @ x.t()).relu().sum(),
    "running sums": lambda x: x.cumsum(0).sum(0),
    "number of rows": lambda x: x * x.shape[0],
}


def outcome(
    program: Callable[[torch.Tensor], torch.Tensor], small: int, large: int
) -> tuple[Any, torch.Tensor]:
    """The result of the program of ``large`` rows with masks, of which only ``small`` are not NaN, and PyTorch's."""
    x = torch.randn(small, COLUMNS, generator=torch.Generator().manual_seed(small)) / 2
    rows = [x, torch.full((large, COLUMNS), 0.25)]
    context = new_context()
    smaller, larger = (import_torch(program, (each,), context=context) for each in rows)
    masks = check_padding_safety(smaller, larger, has_masks=True)
    masks.apply(larger)
    padded = torch.full((large, COLUMNS), float("nan"))
    padded[:small] = x
    values = masks.arrays
    operands = [
        values[argument.name] if argument.name in values else operand
        for argument, operand in zip(larger.arguments, larger.operands(padded), strict=True)
    ]
    (result,) = HostFunction(larger.module)(*operands)
    wanted = program(x)
    return result[tuple(slice(size) for size in wanted.shape)], wanted


@pytest.mark.parametrize("name", PROGRAMS)
def test_reductions_skip_the_padding(name: str) -> None:
    for small, large in ((5, 8), (3, 7), (6, 9)):
        result, wanted = outcome(PROGRAMS[name], small, large)
        torch.testing.assert_close(
            torch.from_numpy(np.asarray(result)).double(), wanted.double(), atol=1e-5, rtol=1e-4
        )


REFUSED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "reversed": lambda x: x.flip(0) * 2,
    "sorted": lambda x: x.sort(0).values,
    "the last row": lambda x: x[-1:] + 1,
    "twice": lambda x: torch.cat([x, x]) + 1,
}


@pytest.mark.parametrize("name", REFUSED)
def test_programs_that_no_mask_mends(name: str) -> None:
    with pytest.raises(DifferentPrograms):
        outcome(REFUSED[name], 5, 8)


STEPS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x * 0.5 + 1,
    lambda x: x - x.mean(0, keepdim=True),
    lambda x: x - x.amax(0, keepdim=True),
    lambda x: x / x.shape[0],
    lambda x: torch.softmax(x, 0),
    lambda x: x.cumsum(0),
    lambda x: x @ (x.t() @ x) / 8,
    lambda x: torch.softmax(x @ x.t(), -1) @ x,
    lambda x: x * x.norm(dim=0),
    lambda x: LINEAR(x).relu(),
    lambda x: torch.cat([x, x], 1)[:, 3:9],
    lambda x: x + torch.arange(x.shape[0])[:, None],
    lambda x: x[:-1],
    lambda x: x.flip(0),
]


def random_program(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    steps = random.Random(seed).choices(STEPS, k=4)

    def run(x: torch.Tensor) -> torch.Tensor:
        for step in steps:
            x = step(x)
        return x + 1

    return run


def test_random_programs() -> None:
    accepted = 0
    for seed in range(30):
        try:
            result, wanted = outcome(random_program(seed), 5, 9)
        except DifferentPrograms:
            continue
        accepted += 1
        scale = max(float(wanted.abs().max()), 1)
        torch.testing.assert_close(
            torch.from_numpy(result) / scale, wanted / scale, atol=1e-4, rtol=1e-3, msg=f"seed {seed}"
        )
    assert accepted >= 15


class Attention(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x @ x.transpose(0, 1) / 8
        return (torch.softmax(scores, -1) @ x) - x.mean(0)


def test_every_length_on_the_device() -> None:
    """One program per multiple runs all sizes below it; the numbers equal PyTorch's."""
    size = torch.export.Dim("n", min=2, max=128)
    example = (torch.randn(40, 64).half(),)
    program = spyre_mlir.compile(Attention(), example, dynamic={"x": {0: size}}, sencores=4)
    for rows in (40, 3, 64, 2, 127, 63, 65):
        x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(rows)).half()
        torch.testing.assert_close(program(x).double(), Attention()(x.double()), atol=2e-2, rtol=2e-2)
    assert len(program.masked) == 2 and len(program.programs) == 1


def test_an_input_with_the_name_of_a_mask() -> None:
    def model(valid_0: torch.Tensor, number_0: torch.Tensor) -> torch.Tensor:
        return (valid_0 * number_0).mean(0)

    n = torch.export.Dim("n", min=2, max=64)
    inputs = tuple(torch.randn(20, 64).half() for _ in range(2))
    program = spyre_mlir.compile(model, inputs, dynamic=({0: n}, {0: n}), sencores=2)
    torch.testing.assert_close(program(*inputs), model(*inputs), atol=1e-2, rtol=1e-2)
    assert not program.masked and any("name of a mask" in remark.reason for remark in program.remarks)


def test_constants_of_bfloat16() -> None:
    """Numpy does not have the number, so such a size has its own program if the constant differs."""
    n = torch.export.Dim("n", min=2, max=64)
    program = spyre_mlir.compile(
        lambda x: x * x.shape[0] + x.amax(0),
        (torch.randn(20, 64).bfloat16(),),
        dynamic={"x": {0: n}},
        sencores=2,
    )
    for rows in (20, 7):
        x = torch.randn(rows, 64).bfloat16()
        expected = x.double() * rows + x.double().amax(0)
        torch.testing.assert_close(program(x).double(), expected, atol=0.2, rtol=0.02)
