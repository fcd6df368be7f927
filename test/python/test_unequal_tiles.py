# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tiles of which the last is smaller: numbers, traffic, and what hints ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
import torch
from programs import PROGRAMS as ALL
from test_tiling_fuzz import check, device_ops, hash_of, options_of, text_of
from tilings import hint_at_random, tile_at_random

import spyre_mlir
from spyre_mlir import declare_tensor_dim, name_tensor_dims, spyre_hint
from spyre_mlir.bundle.validate import validate
from spyre_mlir.dialects import context
from spyre_mlir.mlir import ir


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
    """Each dim has equal tiles and a smaller one, as the remark of the hint states."""
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
    """The last tile would be empty."""
    with pytest.raises(
        spyre_mlir.CompileError, match="'M' of 4 elements into 5 tiles, more than it has elements"
    ):
        compiled(pointwise, [torch.zeros(4, 64).half()] * 2, [("M", "N")] * 2, {"M": 5})


def softmax(x):
    return torch.softmax(x, -1)


def add_and_multiply(x, y, z):
    return (x + y) * z


def tanh_matmul(x, y):
    return torch.tanh(x) @ y


#: Extents with few divisors, cores, and a fraction of LX for which intermediates do not fit.
PRIME = {
    "softmax of 2053 rows": (softmax, ((2053, 512),), {"lx_frac_avail": 0.98}),
    "softmax of 4093 rows": (softmax, ((4093, 256),), {"lx_frac_avail": 0.95, "sencores": 8}),
    "softmax of 2 x 2053 rows": (softmax, ((4106, 256),), {"lx_frac_avail": 0.98}),
    "pointwise": (add_and_multiply, ((8209, 64),) * 3, {"lx_frac_avail": 0.99}),
    "rows of a product": (tanh_matmul, ((61, 8209), (8209, 64)), {"lx_frac_avail": 0.99}),
}


@pytest.mark.parametrize("name", PRIME)
def test_extents_without_divisors_are_tiled(name):
    """The compiler tiles them: the simulator counts the least traffic, and the numbers are right."""
    function, shapes, options = PRIME[name]
    inputs = [torch.from_numpy(each) for each in arrays(*shapes)]
    program = spyre_mlir.compile(function, inputs, verify_each=True, **options)
    assert "the last smaller, whose intermediates then fit" in reasons(program, "auto-tiling")
    expected = function(*(each.double() for each in inputs))
    assert (program(*inputs).double() - expected).abs().max() <= 4e-3 * expected.abs().max()
    moved = program.traffic()
    arguments = sum(argument.bytes for argument in program.bundle.manifest.arguments)
    assert moved.read_bytes + moved.written_bytes <= 1.05 * arguments


@pytest.mark.parametrize("rows", [8191, 8192, 8187])
def test_softmax_of_8191_rows_moves_as_much_as_of_8192(rows):
    """At full size, by the timeline. 8187 = 3 x 2729 has tiles that no 32 cores divide."""
    program = spyre_mlir.compile(softmax, (torch.empty(rows, 4096, dtype=torch.float16),))
    moved = sum(each.read_bytes + each.written_bytes for each in program.timeline().executions)
    assert moved <= 1.05 * sum(argument.bytes for argument in program.bundle.manifest.arguments)


#: Tensors beyond the span of a core that no number of equal tiles brings within it.
OUT_OF_REACH = {
    "pointwise": (torch.relu, ((2097169, 64),)),
    "rows of a matmul": (matmul, ((2097169, 64), (64, 64))),
    "large rows of a matmul": (matmul, ((65537, 8192), (8192, 8192))),
    "sum of rows": (lambda x: x.sum(0), ((2097169, 64),)),
}


@pytest.mark.parametrize("name", OUT_OF_REACH)
def test_prime_extents_come_into_reach(name):
    """With a limit of 256 MiB per core and operand."""
    function, shapes = OUT_OF_REACH[name]
    program = spyre_mlir.compile(function, [torch.empty(shape, dtype=torch.float16) for shape in shapes])
    text = reasons(program, "auto-tiling")
    assert "the last smaller" in text and "as no division fits the span limit" in text


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("by_hints", [False, True])
@pytest.mark.parametrize("name", sorted(ALL)[::3])
def test_random_unequal_tiles(name, by_hints):
    """Up to three loops, or two hints, whose last tiles are smaller, around most operations of a program."""
    module = ir.Module.parse(text_of(name) if by_hints else device_ops(name), context())
    lowered = ir.Module.parse(device_ops(name), context())
    with module.context:
        seed = hash_of(name, by_hints)
        if by_hints and not hint_at_random(module, lowered, seed, unequal=True):
            pytest.skip("no argument has a dim that can be cut")
        if not by_hints and not tile_at_random(module, seed, unequal=True):
            pytest.skip("no dim can be cut into tiles of whole sticks")
    level = {} if by_hints else {"from_level": "device-ops"}
    check(name, module, **level, **{**options_of(seed), "verify_each": True})


def weights(q, k):
    scores = q @ k.swapaxes(-1, -2) / 8
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


@pytest.mark.parametrize("tiles", [{"S": 3}, {"M": 4}, {"M": 3, "S": 2}])
def test_attention_goes_on_with_its_sums(tiles):
    """A smaller last tile of keys rescales the sums like other tiles; a smaller last tile of rows has separate sums."""
    inputs = [each / 4 for each in arrays((131, 64), (197, 64), (197, 64))]
    names = [("M", "D"), ("S", "D"), ("S", "D")]
    program = compiled(attention, [torch.from_numpy(each) for each in inputs], names, tiles)
    assert "the last smaller" in reasons(program, "coarse-tiling")
    q, k, v = (each.astype(np.float64) for each in inputs)
    expected = weights(q, k) @ v
    result = np.asarray(program(*map(torch.from_numpy, inputs)), dtype=np.float64)
    assert np.abs(result - expected).max() <= 4e-3 * np.abs(expected).max()


def test_attention_of_odd_sizes_is_tiled():
    """131 rows of 4 heads and 197 keys, in scratchpads without capacity for the scores."""
    inputs = arrays((1, 4, 131, 64), (1, 4, 197, 64), (1, 4, 197, 64))
    tensors = [torch.from_numpy(each) for each in inputs]
    function = torch.nn.functional.scaled_dot_product_attention
    program = spyre_mlir.compile(function, tensors, verify_each=True, lx_frac_avail=0.995)
    assert "with a smaller" in reasons(program, "online-softmax")
    q, k, v = (each.astype(np.float64) for each in inputs)
    expected = weights(q, k) @ v
    result = np.asarray(program(*tensors), dtype=np.float64)
    assert np.abs(result - expected).max() <= 4e-3 * np.abs(expected).max()
