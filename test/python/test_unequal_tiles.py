"""Tiles of which the last is smaller: numbers, traffic, and what hints ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir import clear_tensor_dims, declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_mlir.bundle.validate import validate


@pytest.fixture(autouse=True)
def _own_dims() -> Iterator[None]:
    clear_tensor_dims()
    yield
    clear_tensor_dims()


def arrays(*shapes: Sequence[int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float16) for shape in shapes]


def pointwise(x, y):
    return (x + y) * x


def layer_norm(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-3)


def matmul(x, y):
    return x @ y


def exponentials(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def normalised(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-3)


#: The program, the same in numpy, and the names of the dims of its inputs.
PROGRAMS: dict[str, tuple[Callable, Callable, tuple[tuple[str, ...], ...]]] = {
    "pointwise": (pointwise, lambda x, y: (x + y) * x, (("M", "N"), ("M", "N"))),
    "softmax": (lambda x: torch.softmax(x, -1), exponentials, (("M", "N"),)),
    "layer norm": (layer_norm, normalised, (("M", "N"),)),
    "matmul": (matmul, np.matmul, (("M", "K"), ("K", "N"))),
}

#: Sizes, the hint, and the extents of the last tiles: one element, an odd number, a stick and one, all at once.
CUTS: dict[str, tuple[dict[str, int], dict[str, int], dict[str, int]]] = {
    "rows, one": ({"M": 57, "N": 136, "K": 200}, {"M": 8}, {"M": 1}),
    "rows, odd": ({"M": 67, "N": 136, "K": 200}, {"M": 3}, {"M": 21}),
    "columns, one": ({"M": 33, "N": 193, "K": 200}, {"N": 4}, {"N": 1}),
    "columns, odd": ({"M": 33, "N": 211, "K": 200}, {"N": 2}, {"N": 83}),
    "columns, a stick and one": ({"M": 33, "N": 193, "K": 200}, {"N": 2}, {"N": 65}),
    "sums, one": ({"M": 33, "N": 136, "K": 193}, {"K": 4}, {"K": 1}),
    "sums, a stick and one": ({"M": 33, "N": 136, "K": 193}, {"K": 2}, {"K": 65}),
    "all": ({"M": 67, "N": 193, "K": 200}, {"M": 3, "N": 2, "K": 4}, {"M": 21, "N": 65, "K": 8}),
}

CASES = [
    (name, cut)
    for name in PROGRAMS
    for cut in CUTS
    if set(CUTS[cut][1]) & {*PROGRAMS[name][2][0], *PROGRAMS[name][2][-1]}
]


def compiled(
    function: Callable,
    inputs: Sequence[torch.Tensor],
    names: Sequence[Sequence[str]],
    tiles: Mapping[str, int],
) -> spyre_mlir.Program:
    """The program with all of it under one hint."""
    for tensor, own in zip(inputs, names, strict=True):
        for name, size in zip(own, tensor.shape, strict=True):
            declare_tensor_dim(name, size)
        name_tensor_dims(tensor, own)

    def hinted(*values):
        with spyre_hint(tiles=dict(tiles)):
            return function(*values)

    return spyre_mlir.compile(hinted, tuple(inputs), verify_each=True)


def reasons(program: spyre_mlir.Program, name: str) -> str:
    return "; ".join(each.reason for each in program.remarks if each.pass_name == name)


@pytest.mark.parametrize(("name", "cut"), CASES)
def test_numbers_are_those_of_numpy(name, cut):
    """Each dim in equal tiles and a smaller one, as the remark of the hint says."""
    function, oracle, names = PROGRAMS[name]
    sizes, tiles, last = CUTS[cut]
    tiles = {dim: count for dim, count in tiles.items() if any(dim in own for own in names)}
    inputs = arrays(*([sizes[dim] for dim in own] for own in names))
    program = compiled(function, [torch.from_numpy(each) for each in inputs], names, tiles)
    for dim in tiles:
        assert (
            f"1.{dim} cuts" in (told := reasons(program, "lower-hints"))
            and f"the last of {last[dim]}" in told
        )
    assert not validate(program.bundle)
    expected = oracle(*(each.astype(np.float64) for each in inputs))
    result = np.asarray(program(*map(torch.from_numpy, inputs)), dtype=np.float64)
    assert np.abs(result - expected).max() <= 4e-3 * np.abs(expected).max()


def test_more_tiles_than_elements_are_an_error():
    """There is nothing to make the last of them of."""
    with pytest.raises(
        spyre_mlir.CompileError, match="'M' of 4 elements into 5 tiles, more than it has elements"
    ):
        compiled(pointwise, [torch.zeros(4, 64).half()] * 2, [("M", "N")] * 2, {"M": 5})
