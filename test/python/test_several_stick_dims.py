# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Several stick dims of f16 and f32: N + k device dims, as arguments and results of programs, and by restickify."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
import torch

import spyre_mlir
from spyre_mlir import CompileError, to_device
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.host_transfer import DmaTuples, dma_tuples, layout_of_tuples
from spyre_mlir.target.target import default_target

PER_STICK = {"float16": 64, "float32": 32}


def numbers(shape: tuple[int, ...], dtype: str = "float16") -> torch.Tensor:
    generator = torch.Generator().manual_seed(math.prod(shape))
    return (torch.randint(-40, 40, shape, generator=generator) / 8).to(getattr(torch, dtype))


def pieces(
    x: np.ndarray, sticks: tuple[int, ...], per_stick: int, order: list[tuple[int, bool]]
) -> np.ndarray:
    """A padded array, its stick dims cut by reshape and transpose; ``order``: dim, and whether its count."""
    padded = np.pad(x, [(0, -size % per_stick if dim in sticks else 0) for dim, size in enumerate(x.shape)])
    shape, axes = [], {}
    for dim, size in enumerate(padded.shape):
        axes[dim, True] = len(shape)
        shape += [size // per_stick, per_stick] if dim in sticks else [size]
        axes[dim, False] = len(shape) - 1
    return padded.reshape(shape).transpose([axes[each] for each in order])


@pytest.mark.parametrize("seed", range(120))
def test_the_bytes_are_n_plus_k_dims(seed):
    """Random shapes, types and stick dims against numpy's reshape and transpose; the loops of RFC 0047 move them."""
    rng = random.Random(seed)
    dtype = rng.choice(list(PER_STICK))
    shape = tuple(rng.choice((1, 3, 32, 64, 70, 100)) for _ in range(rng.randint(2, 4)))
    if math.prod(shape) > 200_000:
        shape = tuple(min(size, 32) for size in shape)
    sticks = tuple(rng.sample(range(len(shape)), rng.randint(2, len(shape))))
    outermost = rng.random() < 0.5
    x = numbers(shape, dtype).numpy()
    made = to_device(
        x, stick_dims=[dim - rng.choice((0, len(shape))) for dim in sticks], stick_outermost=outermost
    )
    first, *rest = [dim for dim in range(len(shape)) if dim != sticks[-1]]
    counts = [sticks[-1], *rest, first] if outermost else [*rest, sticks[-1], first]
    expected = pieces(
        x, sticks, PER_STICK[dtype], [*((dim, True) for dim in counts), *((dim, False) for dim in sticks)]
    )
    assert made.layout.device_size == expected.shape and len(expected.shape) == len(shape) + len(sticks)
    np.testing.assert_array_equal(made.data.view(dtype).reshape(expected.shape), expected)
    np.testing.assert_array_equal(made.numpy(), x)
    assert len(dma_tuples(made.layout).ranges) == len(shape) + len(sticks)
    assert made.layout.tiled_dims == sticks and all(f"dim {dim}" in repr(made) for dim in sticks)


def test_the_tuples_of_an_example():
    tuples = dma_tuples(StickLayout.tiled(default_target(), (1024, 256), "f16", [0, 1]))
    assert tuples.ranges == (4, 16, 64, 64)
    assert tuples.host_strides == (64, 64 * 256, 256, 1)
    assert tuples.device_strides == (65536, 4096, 64, 1)
    assert tuples.bounds == ()


MODELS = {
    "add": lambda x: x + 1, "sum of the stick": lambda x: x.sum(-1), "sum of another": lambda x: x.sum(0),
    "transposed": lambda x: x.mT * 2, "slice": lambda x: x[..., :64] * 2, "max": lambda x: x.amax(-2),
}  # fmt: skip
SHAPES = (
    ((100, 130), "float16"),
    ((3, 128, 192), "float16"),
    ((3, 100, 130), "float16"),
    ((3, 100, 130), "float32"),
)


@pytest.mark.parametrize(("case", "of"), [*itertools.product(MODELS, SHAPES)], ids=str)
def test_operations_take_them_or_a_copy(case, of):
    """On the device alone, and without a copy where the bytes equal a layout of one stick dim."""
    shape, dtype = of
    x = numbers(shape, dtype)
    for stick_dims in ([-2, -1],):
        made = to_device(x, stick_dims=stick_dims)
        program = spyre_mlir.compile(MODELS[case], (made,), fallback=False)
        assert program.bundle.manifest.arguments[0].device_size == made.layout.device_size
        expected = MODELS[case](x.double())
        torch.testing.assert_close(program(made).double(), expected, atol=0.3 if "sum" in case else 0, rtol=0)
        opcodes = [design.opcode for design in program.bundle.designs.values()]
        if case == "add" and len(shape) == 2:
            assert opcodes == ["add"]
        if case == "add" and len(shape) > 2:
            copies = [each for each in program.remarks if each.kind in ("copy", "restickify")]
            assert opcodes[0] == "identity" and copies and copies[0].after


def test_matmuls_take_them_by_copies():
    x, y = numbers((3, 100, 130)), numbers((3, 130, 70))
    for sticks in ([1, 2], [2, 1], [0, 2]):
        a, b = to_device(x, stick_dims=sticks), to_device(y, stick_dims=sticks)
        program = spyre_mlir.compile(torch.matmul, (a, b), fallback=False)
        torch.testing.assert_close(program(a, b).double(), x.double() @ y.double(), atol=1, rtol=0.01)


def test_restickify_to_several_and_back():
    x = numbers((4, 128, 192))
    made = to_device(x)
    for sticks in ([1, 2], [2, 1], [0, 2], [0, 1, 2]):
        several = made.restickify(sticks)
        assert several.layout.tiled_dims == tuple(sticks) and torch.equal(several.cpu(), x)
        again = several.restickify([2])
        assert again.layout.tiled_dims == (2,) and torch.equal(again.cpu(), x)
        assert torch.equal((several + 1).cpu(), x + 1)
    padded = to_device(x[:, :100]).restickify([1, 2])
    assert padded.layout.device_size == (2, 3, 4, 64, 64) and torch.equal(padded.cpu(), x[:, :100])
    assert torch.equal((padded.transpose(1, 2) + 2).cpu(), x[:, :100].mT + 2)


def test_on_the_device_of_pytorch():
    x = numbers((3, 128, 192))
    made = torch.ops.aten.clone(x).to("spyre", stick_dims=[1, 2])  # type: ignore[call-overload]
    assert made.device_tensor.layout.device_size == (2, 3, 3, 64, 64)
    assert torch.equal((made + 1).cpu(), x + 1)
    assert torch.equal(torch.compile(lambda x: x * 2)(made).cpu(), x * 2)


# -- layouts of results ---------------------------------------------------------------------------------------

LAYOUTS = (
    {"stick_dims": [0]},
    {"stick_dims": [1]},
    {"stick_dims": [0, 1]},
    {"stick_dims": []},
    {"dim_order": [1, 0]},
)
RESULTS = {"add": lambda x: x + 1, "matmul": lambda x: x @ x.t(), "view": lambda x: (x + 1).t()}


@pytest.mark.parametrize(("case", "layout"), [*itertools.product(RESULTS, LAYOUTS)], ids=str)
def test_results_lie_as_they_are_asked(case, layout):
    x = numbers((128, 192))
    program = spyre_mlir.compile(RESULTS[case], (x,), layouts={"result0": layout}, fallback=False)
    expected = RESULTS[case](x.double())
    (result,) = [each for each in program.bundle.manifest.arguments if each.kind == "result"]
    wanted = to_device(np.zeros(tuple(expected.shape), np.float16), **layout)
    moves = result.transfer
    tuples = DmaTuples(moves.ranges, moves.host_strides, moves.device_strides, moves.bounds)
    assert layout_of_tuples(default_target(), tuples, result.host_shape, "f16").same_memory(wanted.layout)
    torch.testing.assert_close(program(x).double(), expected, atol=0.5, rtol=0.01)


def test_a_result_is_made_in_its_layout_or_converted_whichever_costs_less():
    """A matmul of much K: a copy of the small result, not of the operands; an addition: its large input alone."""
    x, y = numbers((64, 4096)), numbers((4096, 128))
    program = spyre_mlir.compile(
        torch.matmul, (x, y), layouts={"result0": {"stick_dims": [0]}}, fallback=False
    )
    restickified = [each for each in program.remarks if each.kind == "restickify"]
    moved_bytes = program(x, y) is not None and program.traffic().read_bytes
    assert moved_bytes < 1.2 * (x.nbytes + y.nbytes) and len(restickified) <= 1


def test_results_of_several_and_of_arguments():
    x = numbers((3, 128, 192))
    program = spyre_mlir.compile(
        lambda x: (x + 1, x * 2), (x,), layouts={"result1": {"stick_dims": [1, 2]}, 0: {"stick_dims": [1]}}
    )
    sizes = {each.name: each.device_size for each in program.bundle.manifest.arguments}
    assert sizes["result1"] == (2, 3, 3, 64, 64) and sizes["x"] == (192, 2, 3, 64)
    one, two = program(x)
    assert torch.equal(one, x + 1) and torch.equal(two, x * 2)


X = numbers((3, 100, 130))
REFUSED = {
    "a dim twice": (lambda: to_device(X, stick_dims=[1, 1]), "which name a dim twice"),
    "a dim too far": (lambda: to_device(X, stick_dims=[1, 3]), "has the stick dim 3, but the tensor has rank 3"),
    "another order": (
        lambda: to_device(X, stick_dims=[1, 2], dim_order=[0, 2, 1]), "but its dim_order is [0, 2, 1]",
    ),
    "padding in a result": (
        lambda: spyre_mlir.compile(lambda x: x + 1, (X,), layouts={"result0": {"stick_dims": [1, 2]}}),
        "The layout of 'result0' has padding between the elements of [3, 100, 130], which only the host writes",
    ),
    "padding in a model": (
        lambda: spyre_mlir.compile(lambda x: torch.ops.spyre.restickify(x + 1, [1, 2]), (X,)),
        "has padding between the elements",
    ),
    "no such result": (
        lambda: spyre_mlir.compile(lambda x: x + 1, (X,), layouts={"result1": {}}),
        "There is no 'result1' to lay out; the program has 1 result.",
    ),
    "nothing computed": (
        lambda: spyre_mlir.compile(lambda x: x.mT, (X,), layouts={"result0": {}}), "computes nothing on the device",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    action, words = REFUSED[case]
    with pytest.raises(CompileError) as raised:
        action()
    assert words in raised.value.message and raised.value.message.endswith(".")
