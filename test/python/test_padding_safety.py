# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""When a model may run on padded inputs: every accepted program is compared with PyTorch, whatever pads its inputs."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

from spyre_mlir.dialects import context as new_context
from spyre_mlir.frontend import import_torch
from spyre_mlir.frontend.module_pairs import DifferentPrograms, check_padding_safety

SMALL, LARGE, COLUMNS = 5, 8, 6
TABLE = torch.arange(40.0).reshape(10, 4)
POSITIONS = torch.arange(10)


def refusal(model: Callable, *inputs: torch.Tensor, size: int = SMALL) -> str:
    """Why a model of ``inputs``, whose dim 0 is cut to ``size``, is not the beginning of the whole; empty if it is."""
    context = new_context()
    smaller, larger = (
        import_torch(model, tuple(each[:rows] for each in inputs), context=context) for rows in (size, LARGE)
    )
    try:
        check_padding_safety(smaller, larger)
    except DifferentPrograms as error:
        return error.reason
    return ""


def rows() -> torch.Tensor:
    return torch.linspace(-1, 1, LARGE * COLUMNS).reshape(LARGE, COLUMNS)


def ids() -> torch.Tensor:
    return torch.arange(LARGE).remainder(3)


def model(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers).eval()


APART = {
    "elementwise": lambda x: torch.exp(x) * 2,
    "normalised rows": lambda x: torch.softmax(x, 1),
    "rows of a product": lambda x: x @ torch.ones(COLUMNS, 3),
    "batch of products": lambda x: x[:, :, None] @ x[:, None, :],
    "flattened": lambda x: x.reshape(-1) + 1,
    "every second row": lambda x: x[::2] + 1,
    "behind others": lambda x: torch.cat([torch.zeros(3, COLUMNS), x]),
    "columns reversed": lambda x: x.flip(1) * 2,
    "transposed": lambda x: x.t() + 1,
    "running sums of rows": lambda x: x.cumsum(1),
    "running sums": lambda x: x.cumsum(0),
    "sorted rows": lambda x: x.sort(1)[0],
}


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("size", [1, SMALL])
def test_rows_that_stay_apart(name: str, size: int) -> None:
    """Independent rows do not change with more rows; one row is a separate program."""
    assert refusal(APART[name], rows(), size=size) == ""


def test_rows_by_position() -> None:
    """The first rows are the first in every size, and have the same positions."""
    assert refusal(lambda x: x[:2] + x[1:3], rows()) == ""
    assert refusal(lambda x: x + torch.arange(x.shape[0])[:, None], rows()) == ""


def test_models_of_a_batch() -> None:
    """Convolutions, norms and lookups of each member of a batch."""
    images = torch.ones(LARGE, 4, 8, 8)
    convolution = model(nn.Conv2d(4, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8), nn.MaxPool2d(2))
    assert refusal(convolution, images) == ""
    assert refusal(model(nn.Linear(COLUMNS, 4), nn.LayerNorm(4), nn.GELU()), rows()) == ""
    assert refusal(model(nn.Embedding(10, 4), nn.Linear(4, 4)), ids()) == ""


TOGETHER = {
    "sum": (lambda x: x.sum(0), "an operation combines its elements"),
    "softmax": (lambda x: torch.softmax(x, 0), "an operation combines its elements"),
    "contraction": (lambda x: x.t() @ x, "an operation combines its elements"),
    "sorted columns": (lambda x: x.sort(0)[0], "an operation combines its elements"),
    "before others": (
        lambda x: torch.cat([x, torch.zeros(3, COLUMNS)]), "a concatenation appends elements after the padding",
    ),
    "the last row": (lambda x: x[-1:] + 1, "a slice takes other positions at another size"),
    "number of rows": (lambda x: x * x.shape[0], "the model has other numbers at another size"),
    "positions from the end": (
        lambda x: x + torch.arange(x.shape[0] - 1, -1, -1)[:, None], "the model has other constants at another size",
    ),
    "a branch": (lambda x: x.exp() if x.shape[0] > 6 else x.sin(), "'math.sin' is 'math.exp' at another size"),
    "columns outermost": (lambda x: x.t().reshape(-1), "a reshape merges the padded dim into another dim"),
    "zeros below": (
        lambda x: nn.functional.pad(x, (0, 0, 0, 1)) + 1, "a pad operation appends elements after the padding",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
def test_rows_that_need_others(name: str) -> None:
    """Each operation whose result padded rows would change is refused with its reason."""
    program, reason = TOGETHER[name]
    assert refusal(program, rows()) == reason


def test_reversed_rows() -> None:
    """The first row of the result is the last one of the input, however that is written in MLIR."""
    assert refusal(lambda x: x.flip(0) * 2, rows())


def indices(x: torch.Tensor) -> torch.Tensor:
    return x.long()[:, 0]


OUTSIDE = "it looks up by a position and an input, which may be outside in the padding"

#: Models that look up rows, and the reason why a position of the padding may be outside the table.
LOOKUPS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "by an input": (lambda x: TABLE.exp()[indices(x)], ""),
    "by positions": (lambda x: x.exp()[:, :4] + TABLE.exp()[torch.arange(x.shape[0])][:, :4], ""),
    "by both, one after the other": (
        lambda x: TABLE.exp()[indices(x)] + TABLE.exp()[torch.arange(x.shape[0])], "",
    ),
    "by a part of a buffer": (lambda x: TABLE.exp()[indices(x)] + TABLE.exp()[POSITIONS[: x.shape[0]]], ""),
    "by a position in a bucket": (
        lambda x: TABLE.exp()[(torch.arange(x.shape[0]).float() + 1).log2().long() + indices(TABLE[:1] * 0)], "",
    ),
    "by a running sum of truth values": (
        lambda x: TABLE.exp()[(x[:, 0] > 0).int().cumsum(0) * (x[:, 0] > 0) + 1], "",
    ),
    "by a position or an input": (
        lambda x: TABLE.exp()[torch.where(x[:, 0] > 0, torch.arange(x.shape[0]), 9 - torch.arange(x.shape[0]))], "",
    ),
    "by a running sum of truth values in a small table": (
        lambda x: TABLE[:8].exp()[(x[:, 0] > 0).int().cumsum(0)], OUTSIDE,
    ),
    "by a position modulo an input": (lambda x: TABLE.exp()[torch.arange(x.shape[0]) % indices(x)], OUTSIDE),
    "by a sum": (lambda x: TABLE.exp()[torch.arange(x.shape[0]) + indices(x)], OUTSIDE),
    "by a running sum": (lambda x: TABLE.exp()[indices(x).cumsum(0)], OUTSIDE),
    "by a running sum in another lookup": (
        lambda x: TABLE.exp()[TABLE.exp().long()[indices(x).cumsum(0), 0]], OUTSIDE,
    ),
    "by rows but for the last": (lambda x: TABLE.exp()[indices(x)[:-1] + 1], OUTSIDE),
}  # fmt: skip


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookups(name: str) -> None:
    program, reason = LOOKUPS[name]
    assert refusal(program, rows()) == reason


def test_the_reason_has_a_place() -> None:
    """The error names the line of the user's program that needs all rows."""
    context = new_context()
    smaller, larger = (import_torch(lambda x: x.sum(0), (rows()[:n],), context=context) for n in (5, 8))
    with pytest.raises(DifferentPrograms) as caught:
        check_padding_safety(smaller, larger)
    assert caught.value.location.split(":")[0] == __file__


# -- random programs ----------------------------------------------------------------------------------

STEPS: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x * 0.5 + 1,
    lambda x: x - x.mean(-1, keepdim=True),
    lambda x: x - x.mean(0, keepdim=True),
    lambda x: x.transpose(0, -1),
    lambda x: x.reshape(-1, 3),
    lambda x: x.reshape(3, -1),
    lambda x: x.flip(0),
    lambda x: x.flip(-1),
    lambda x: torch.cat([x, x], 0),
    lambda x: torch.cat([x[:1], x], 0),
    lambda x: x[1:],
    lambda x: x[:-1],
    lambda x: x[..., ::2],
    lambda x: x / x.shape[0],
    lambda x: x @ torch.ones(x.shape[-1], 3),
    lambda x: x + torch.arange(x.shape[0])[:, None],
    lambda x: torch.softmax(x, 0),
    lambda x: nn.functional.pad(x, (1, 0, 1, 0)),
    lambda x: x.cumsum(-1),
    lambda x: x.unsqueeze(0).expand(3, -1, -1).reshape(-1, x.shape[-1]),
]


def random_program(seed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    steps = random.Random(seed).choices(STEPS, k=3)

    def run(x: torch.Tensor) -> torch.Tensor:
        for step in steps:
            x = step(x)
        return x + 1

    return run


@pytest.mark.exhaustive
def test_accepted_programs_are_right() -> None:
    """Of 30 random programs, accepted ones give the same first rows for any other rows."""
    accepted = 0
    for seed in range(30):
        program = random_program(seed)
        generator = torch.Generator().manual_seed(seed)
        small = torch.randn(6, 6, generator=generator)
        large = torch.cat([small, torch.randn(3, 6, generator=generator)])
        try:
            wanted, given = program(small), program(large)
        except RuntimeError:  # a shape that the steps do not take
            continue
        context = new_context()
        imported = [import_torch(program, (each,), context=context) for each in (small, large)]
        try:
            check_padding_safety(imported[0], imported[1])
        except DifferentPrograms:
            continue
        accepted += 1
        torch.testing.assert_close(given[tuple(slice(size) for size in wanted.shape)], wanted)
    assert accepted >= 5
