"""Views of host arrays against numpy, and weights that the host cuts out against PyTorch."""

from __future__ import annotations

import random

import numpy as np
import torch

import spyre_mlir
from spyre_mlir.layout.host_view import HostView
from spyre_mlir.layout.steps import Collapse, Expand, Slice, Transpose


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


def test_views_address_what_numpy_views_hold():
    """300 chains of view operations: the same elements; None only where numpy would have to copy, too."""
    copies = 0
    for seed in range(300):
        rng = random.Random(seed)
        array = np.arange(2 * 3 * 4 * 6).reshape(rng.choice([(6, 24), (4, 6, 6), (2, 3, 4, 6)]))
        view, shown = HostView.whole(array.shape), array
        for _ in range(rng.randint(1, 4)):
            if not shown.ndim:
                break
            step, after = random_step(rng, shown)
            following = view.after(step)
            if following is None:
                assert not np.shares_memory(after, shown)
                copies += 1
                break
            view, shown = following, after
        steps = [stride * array.itemsize for stride in view.strides]
        found = np.ndarray(view.shape, array.dtype, array, view.offset * array.itemsize, steps)
        assert np.array_equal(found, shown), seed
    assert copies > 10


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
    """No conversion, no copy; the numbers of PyTorch; the array of a weight cut twice is saved once."""
    model = Cut().half()
    x = torch.randn(64, 96, generator=torch.Generator().manual_seed(1)).half()
    program = spyre_mlir.compile(model, (x,), verify_each=True, clone_inputs=False)
    for got, wanted in zip(program(x), model(x), strict=True):
        assert np.allclose(got, wanted.detach().numpy(), rtol=2e-3, atol=2e-2)
    assert {opcode for opcode, _, _ in program.traffic().by_op} == {"batchmatmul"}
    program.save(tmp_path)
    with np.load(tmp_path / "constants.npz") as saved:
        assert sorted(name for name in saved.files if not name.startswith("constant")) == ["heads", "odd"]
