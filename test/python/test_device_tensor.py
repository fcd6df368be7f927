# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""to_device: the bytes have the layout of docs/layouts.md, and can be read back; other values are refused."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from layout_cases import ELEMENTS, positions_by_order, positions_by_sticks, random_order, random_shape

from spyre_mlir import CompileError, DeviceTensor, to_device
from spyre_mlir.bundle.model import Transfer
from spyre_mlir.bundle.transfer import same_moves

#: Host dtype, its element type on the device, and the numpy type of its bytes there.
DTYPES = [
    ("float16", "f16", np.float16),
    ("float32", "f32", np.float32),
    ("int32", "i32", np.int32),
    ("int64", "i32", np.int32),
    ("bool", "f16", np.float16),
]


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (
        (np.arange(1, math.prod(shape) + 1) % (2 if dtype == "bool" else 2039)).reshape(shape).astype(dtype)
    )


@pytest.mark.parametrize("seed", range(250))
def test_bytes_are_where_the_dim_order_says_and_come_back(seed):
    """Random shapes of rank 0 to 5, types, orders, both defaults; padding is 0."""
    rng = random.Random(seed)
    dtype, element, stored = rng.choice(DTYPES)
    shape, outermost = random_shape(rng, seed % 6), rng.random() < 0.5
    order = random_order(rng, len(shape))
    where, size = positions_by_order(shape, ELEMENTS[element], order, outermost)
    host = numbers(shape, dtype)
    made = to_device(host, dim_order=order, stick_outermost=outermost)
    expected = np.zeros(math.prod(size), stored)
    expected[where] = host
    assert (made.layout.device_size, made.nbytes) == (size, made.data.size)
    np.testing.assert_array_equal(made.data.view(stored), expected)
    assert made.numpy().dtype == host.dtype
    np.testing.assert_array_equal(made.numpy(), host)


def test_two_dims_in_a_stick_of_int8():
    """The second operand of an int8 matmul: 64 columns of 2 rows in each stick, elements of a column adjacent."""
    host = numbers((5, 130), "int8")
    made = to_device(host, stick_dims=[1, 0])
    where, size = positions_by_sticks((5, 130), ((1, 64), (0, 2)), (1, 0), False)
    expected = np.zeros(math.prod(size), np.int8)
    expected[where] = host
    np.testing.assert_array_equal(made.data.view(np.int8), expected)
    np.testing.assert_array_equal(made.to_host(), host)


def test_stick_dims_keep_the_default_order_of_the_others():
    x = numbers((512, 8, 256), "float16")
    assert to_device(x).layout.device_size == (8, 4, 512, 64)
    assert to_device(x, stick_dims=[1]).layout == to_device(x, dim_order=[0, 2, 1]).layout
    assert to_device(x, stick_dims=[-3]).layout == to_device(x, dim_order=[1, 2, 0]).layout
    assert to_device(x[:2], stick_dims=[]).layout == to_device(x[:2], dim_order=[0, 1, 2, -1]).layout
    assert to_device(x, stick_outermost=True).layout.device_size == (4, 8, 512, 64)


def test_what_it_tells():
    made = to_device(numbers((512, 250), "float16"), stick_dims=[0])
    assert (made.shape, made.dtype, made.nbytes) == ((512, 250), "float16", 8 * 250 * 128)
    assert repr(made) == (
        "DeviceTensor(shape=[512, 250], dtype=float16, device size=[8, 250, 64], stick dim 0, 256000 bytes)"
    )
    assert "stick-sparse" in repr(to_device(3))


def test_tensors_of_pytorch():
    """Tensors with a gradient, too; bfloat16, which numpy does not have, is read back as its numbers."""
    x = torch.randn(3, 70, requires_grad=True)
    np.testing.assert_array_equal(to_device(x).numpy(), x.detach().numpy())
    short = x.bfloat16()
    made = to_device(short.T, stick_dims=[0])
    assert made.dtype == "bfloat16"
    np.testing.assert_array_equal(made.numpy(), short.T.float().detach().numpy())


def test_types_to_convert_to():
    """Types given by name, by numpy, or by PyTorch; bits of bfloat16 are interpreted as bfloat16."""
    x = np.array([0.5, 1.0, -2.0])
    for dtype in ("float16", np.float16, np.dtype("float16"), torch.float16):
        assert to_device(x, dtype=dtype).numpy().tolist() == [0.5, 1.0, -2.0]
    bits = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    assert to_device(bits, dtype="bfloat16").numpy().tolist() == [0.5, 1.0, -2.0]
    assert to_device([1, 2], dtype="int8").dtype == "int8"


X = np.zeros((3, 70), np.float16)
REFUSED = {
    "a dim too far": ((X, [2]), {}, "The layout of the tensor has the stick dim 2"),
    "a bad order": ((X,), {"dim_order": [0]}, "must name each of the 2 dims once"),
    "f64": ((X.astype(np.float64),), {}, "float64 is not supported by the device; choose one of float16"),
    "a text": (("x",), {}, "is not supported by the device"),
    "a ragged list": (([[1], [2, 3]],), {}, "is not an array"),
    "no elements": ((X[:0],), {}, "shape [0, 70] has no elements"),
    "large integers": ((np.array([2**31]),), {}, "outside the range"),
    "halves as integers": ((X + 0.5,), {"dtype": "int32"}, "does not become int32"),
    "too large for a byte": (([300],), {"dtype": "int8"}, "does not become int8"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    arguments, named, words = REFUSED[case]
    with pytest.raises(CompileError) as raised:
        to_device(*arguments, **named)
    assert words in raised.value.message and raised.value.message.endswith(".")


# -- equal moves --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_transfers_are_equal_where_they_move_alike(seed):
    """Two orders of one small tensor, by brute force: the same places or not."""
    rng = random.Random(seed)
    shape = tuple(rng.choice((1, 1, 2, 64, 70)) for _ in range(rng.randint(1, 3)))
    one, other = (laid_out(rng, shape) for _ in range(2))
    same = one.data.size == other.data.size and bool((one.data == other.data).all())
    assert same_moves(one.transfer, other.transfer) == same


def laid_out(rng: random.Random, shape: tuple[int, ...]) -> DeviceTensor:
    return to_device(numbers(shape, "float32"), dim_order=random_order(rng, len(shape)))


def test_bounds_are_part_of_a_transfer():
    """The same loops, but one ends within its last stick; a bound without effect does not count."""
    loops = ((2, 64), (64, 1), (64, 1))
    assert not same_moves(Transfer(*loops), Transfer(*loops, (((0, 1), (64, 1), 70),)))
    assert same_moves(Transfer(*loops), Transfer(*loops, (((0, 1), (64, 1), 128),)))


def test_an_array_leaves_arithmetic_to_the_tensor():
    """Numpy would make an array of one tensor per element, each by a separate program; a numpy scalar is a number."""
    array, tensor = np.ones((2, 64), np.float16), to_device(np.ones((2, 64), np.float16))
    for action in (lambda: array * tensor, lambda: tensor * array, lambda: np.asarray(tensor)):
        with pytest.raises(CompileError, match=r"to_device|numpy\(\)"):
            action()
    for result in (np.float16(2) * tensor, tensor * np.float16(2), tensor / np.float32(0.5)):
        np.testing.assert_array_equal(result.numpy(), 2 * array)
    with pytest.raises(TypeError, match="ufunc"):
        np.exp(tensor)


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "bfloat16", "int32", "int64", "int8"])
def test_a_tensor_without_dims_comes_back_as_an_array(dtype):
    """The result is not a numpy scalar, which cannot be written to."""
    host = to_device(np.ones((), np.float32 if dtype == "bfloat16" else dtype), dtype=dtype).numpy()
    assert isinstance(host, np.ndarray) and host.shape == () and host == 1


WRONG = {
    "a dim by name": (lambda tensor: tensor.transpose("a", 1), "A dim is an integer, not 'a'"),
    "half a dim": (lambda tensor: tensor.unsqueeze(0.5), "A dim is an integer, not 0.5"),
    "an index of numbers": (lambda tensor: tensor[np.array([0, 1])], "torch indexes by tensors"),
    "an index of flags": (lambda tensor: tensor[np.array([True, False])], "torch indexes by tensors"),
    "no stick dims": (lambda tensor: tensor.restickify(3), "must be a list of integers, not 3"),
    "a word for a flag": (
        lambda tensor: to_device(tensor, stick_outermost="no"),
        "is True or False, not 'no'",
    ),
    "without numbers": (lambda _: to_device(torch.empty(3, device="meta")), "is not an array"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_uses_of_a_tensor(case):
    action, words = WRONG[case]
    with pytest.raises(CompileError, match=words):
        action(to_device(np.ones((2, 64), np.float16)))


def test_numbers_that_are_negated_when_they_are_read():
    negated = torch._neg_view(-torch.ones(3).half())
    assert to_device(negated).numpy().tolist() == [1, 1, 1]
