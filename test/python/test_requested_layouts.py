# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layouts that a batched matmul requests of its producers, through views."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from layout_cases import addresses
from programs import Apply, check_close
from test_layout_runs import random_view

import spyre_mlir
from spyre_mlir.layout import BufferView, ViewError
from spyre_mlir.layout.view_transforms import Collapse, Expand, Transpose, ViewTransform


def _transform(rng: random.Random, view: BufferView) -> ViewTransform:
    """A random transposition, or all of a random group of neighbours as one dim, or one dim as two."""
    rank = len(view.shape)
    first = rng.randrange(rank)
    match rng.randrange(3):
        case 0:
            return Transpose(tuple(rng.sample(range(rank), rank)))
        case 1:
            last = rng.randrange(first, rank)
            return Collapse((*((dim,) for dim in range(first)), tuple(range(first, last + 1)),
                             *((dim,) for dim in range(last + 1, rank))))  # fmt: skip
        case _:
            size = view.shape[first]
            part = rng.choice([part for part in range(1, size + 1) if size % part == 0])
            groups = [(dim,) if dim < first else (dim + 1,) for dim in range(rank)]
            groups[first] = (first, first + 1)
            return Expand(tuple(groups), (*view.shape[:first], part, size // part, *view.shape[first + 1 :]))


@pytest.mark.parametrize("seed", range(200))
def test_the_inverse_goes_back(seed: int):
    """Each element of the source is at its old position; a slice has no inverse, because it loses the rest."""
    rng = random.Random(seed)
    view = random_view(rng)
    if not view.shape:
        return
    step = _transform(rng, view)
    try:
        result = step.apply(view)
    except ViewError:
        return
    inverse = step.inverse(view.shape)
    assert inverse is not None
    assert (addresses(inverse.apply(result)) == addresses(view)).all()


def _states(write: torch.Tensor, decay: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A state per chunk and head, of all positions of the chunk."""
    return (write * decay[..., None]).transpose(-1, -2) @ x


def _gated(x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Two pointwise operations and two views before a product per batch and head."""
    return (F.silu(x * gate).permute(0, 2, 1, 3) + 1) @ weight


PROGRAMS = {
    "states": (_states, ((4, 1, 128, 64), (4, 8, 128), (4, 8, 128, 64))),
    "gated": (_gated, ((4, 96, 6, 128), (4, 96, 6, 128), (4, 6, 128, 64))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_computed_for_a_matmul_needs_no_copy(name: str):
    """Only arguments are copied, because they have the layouts of the host."""
    function, shapes = PROGRAMS[name]
    generator = torch.Generator().manual_seed(7)
    inputs = tuple(torch.randn(shape, generator=generator).half() for shape in shapes)
    program = spyre_mlir.compile(Apply(function).half(), inputs, verify_each=True)
    check_close(name, program(*inputs), Apply(function).half(), inputs)
    copies = [
        remark for remark in program.remarks if (remark.pass_name, remark.kind) == ("choose-layouts", "copy")
    ]
    assert len(copies) <= 1
