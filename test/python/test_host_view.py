# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of host arrays against numpy, and weights that the host cuts out against PyTorch."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir.errors import CompileError
from spyre_mlir.layout.host_transfer import HostView
from spyre_mlir.layout.view_transforms import Collapse, Expand, Slice, Transpose


def random_step(rng: random.Random, array: np.ndarray):
    """A view operation and what numpy makes of it."""
    rank = array.ndim
    kind = rng.choice(("transpose", "slice", "collapse", "expand"))
    if kind == "transpose":
        order = tuple(rng.sample(range(rank), rank))
        return Transpose(order), array.transpose(order)
    if kind == "slice":
        sizes = [rng.randint(1, size) for size in array.shape]
        first = [rng.randint(0, size - taken) for size, taken in zip(array.shape, sizes, strict=True)]
        every = [rng.randint(1, (size - at - 1) // max(taken - 1, 1) or 1) if taken > 1 else 1
                 for size, at, taken in zip(array.shape, first, sizes, strict=True)]  # fmt: skip
        dropped = tuple(dim for dim, taken in enumerate(sizes) if taken == 1 and rng.random() < 0.5)
        index = tuple(
            at if dim in dropped else slice(at, at + (taken - 1) * step + 1, step)
            for dim, (at, taken, step) in enumerate(zip(first, sizes, every, strict=True))
        )
        return Slice(tuple(first), tuple(sizes), tuple(every), dropped), array[index]
    if kind == "collapse" and rank > 1:
        at = rng.randrange(rank - 1)
        groups = tuple((dim, dim + 1) if dim == at else (dim,) for dim in range(rank) if dim != at + 1)
        shape = [array.shape[at] * array.shape[at + 1] if len(g) > 1 else array.shape[g[0]] for g in groups]
        return Collapse(groups), array.reshape(shape)
    at = rng.randrange(rank)
    inner = rng.choice([n for n in range(1, array.shape[at] + 1) if array.shape[at] % n == 0])
    shape = (*array.shape[:at], array.shape[at] // inner, inner, *array.shape[at + 1 :])
    groups = tuple((d, d + 1) if d == at else (d,) if d < at else (d + 1,) for d in range(rank))
    return Expand(groups, shape), array.reshape(shape)


def shown_by(view: HostView, array: np.ndarray) -> np.ndarray:
    """Return the elements of a view by its definition: the digits of each position times their strides."""
    where = np.full(view.shape, view.offset)
    for at, pieces in enumerate(view.dims):
        digits = np.unravel_index(np.arange(view.shape[at]), [size for size, _ in pieces])
        steps = sum(digit * stride for digit, (_, stride) in zip(digits, pieces, strict=True))
        where += steps.reshape([-1 if dim == at else 1 for dim in range(len(view.shape))])
    return array.reshape(-1)[where]


def test_views_address_what_numpy_shows():
    """500 chains of view operations: the same elements; None only where numpy would copy, too."""
    refused = in_pieces = 0
    for seed in range(500):
        rng = random.Random(seed)
        array = np.arange(2 * 3 * 4 * 6).reshape(rng.choice([(6, 24), (4, 6, 6), (2, 3, 4, 6)]))
        view, shown = HostView.whole(array.shape), array
        for _ in range(rng.randint(1, 6)):
            if not shown.ndim:
                break
            step, after = random_step(rng, shown)
            following = view.after(step)
            if following is None:
                assert view.in_pieces and isinstance(step, Slice | Expand), seed
                refused += 1
                break
            view, shown = following, after
            assert not view.in_pieces or not np.shares_memory(shown, array), seed
        assert np.array_equal(shown_by(view, array), shown), seed
        in_pieces += view.in_pieces
    assert refused > 10 and in_pieces > 30


def test_pieces_and_sticks():
    """Patches of 16 x 16 fall on sticks of 64 elements, patches of 14 x 14 do not."""
    for side, falls in ((16, True), (64, True), (14, False)):
        whole = HostView.whole((3, 4 * side, 4 * side))
        apart = whole.after(Expand(((0,), (1, 2), (3, 4)), (3, 4, side, 4, side)))
        assert apart is not None
        ordered = apart.after(Transpose((1, 3, 0, 2, 4)))
        assert ordered is not None
        patches = ordered.after(Collapse(((0,), (1,), (2, 3, 4))))
        assert patches is not None and patches.in_pieces
        assert patches.shape == (4, 4, 3 * side * side)
        assert patches.falls_on(2, 64) is falls
        assert patches.gathers_sticks(64) is (side == 16)


def test_pieces_that_make_up_no_shape():
    with pytest.raises(CompileError, match=r"do not make up the shape \[4, 6\]"):
        HostView.of_pieces((24,), (4, 6), [(4, 6), (3, 2)], 0)


class Cut(torch.nn.Module):
    """Weights that a device could cut only by moving them: inside sticks, and rows of heads of 32."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.odd = torch.nn.Parameter(torch.randn(96, 256, generator=generator) / 8)
        self.heads = torch.nn.Parameter(torch.randn(288, 6, 32, generator=generator) / 8)

    def forward(self, x):
        return x @ self.odd[:, 5:133], x @ self.heads.reshape(288, 192)[7:103], x @ self.odd[:, 3:67]


def test_weights_are_cut_by_the_host(tmp_path):
    """No conversion, no copy; the numbers equal PyTorch; the array of a weight cut twice is saved once."""
    model = Cut().half()
    x = torch.randn(64, 96, generator=torch.Generator().manual_seed(1)).half()
    program = spyre_mlir.compile(model, (x,), verify_each=True, clone_inputs=False)
    for got, wanted in zip(program(x), model(x), strict=True):
        assert np.allclose(got, wanted.detach().numpy(), rtol=2e-3, atol=2e-2)
    assert {opcode for opcode, _, _ in program.traffic().by_op} == {"batchmatmul"}
    program.save(tmp_path)
    with np.load(tmp_path / "constants.npz") as saved:
        assert sorted(name for name in saved.files if not name.startswith("constant")) == ["heads", "odd"]
