# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The algebra of stick layouts against torch-spyre's examples and against placement by padding and transposing."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from layout_cases import (
    ALL_ELEMENTS,
    ELEMENTS,
    positions,
    positions_by_order,
    random_layout,
    random_order,
    random_shape,
)

from spyre_mlir.errors import CompileError
from spyre_mlir.layout import Digit, StickLayout
from spyre_mlir.layout.stick_layout import ELEMENT_BYTES, bytes_of, elements_per_stick
from spyre_mlir.target.target import default_target

#: shape, type, dim order; device size and stride map with the stick count second to last, as torch-spyre;
#: the same with it outermost, worked out by hand from the rule of RFC 0047.
VECTORS = [
    ([], "f16", None, [1, 64], [-1, -1], [1, 64], [-1, -1]),
    ([120], "f16", None, [2, 64], [64, 1], [2, 64], [64, 1]),
    ([512, 240], "f16", None, [4, 512, 64], [64, 240, 1], [4, 512, 64], [64, 240, 1]),
    ([512, 256], "f16", None, [4, 512, 64], [64, 256, 1], [4, 512, 64], [64, 256, 1]),
    ([1024, 256], "f16", None, [4, 1024, 64], [64, 256, 1], [4, 1024, 64], [64, 256, 1]),
    ([512, 8, 240], "f16", None, [8, 4, 512, 64], [240, 64, 1920, 1], [4, 8, 512, 64], [64, 240, 1920, 1]),
    ([512, 8, 256], "f16", None, [8, 4, 512, 64], [256, 64, 2048, 1], [4, 8, 512, 64], [64, 256, 2048, 1]),
    ([5, 100, 150], "f16", None, [100, 3, 5, 64], [150, 64, 15000, 1], [3, 100, 5, 64], [64, 150, 15000, 1]),
    (
        *([5, 100, 150], "f16", [1, 0, 2]),
        *([5, 3, 100, 64], [15000, 64, 150, 1], [3, 5, 100, 64], [64, 15000, 150, 1]),
    ),
    ([512, 256], "f16", [1, 0], [8, 256, 64], [16384, 1, 256], [8, 256, 64], [16384, 1, 256]),
    (
        *([512, 8, 256], "f16", [0, 2, 1]),
        *([256, 1, 512, 64], [1, 16384, 2048, 256], [1, 256, 512, 64], [16384, 1, 2048, 256]),
    ),
    (
        *([512, 8, 256], "f16", [1, 0, 2]),
        *([512, 4, 8, 64], [2048, 64, 256, 1], [4, 512, 8, 64], [64, 2048, 256, 1]),
    ),
    (
        *([512, 8, 256], "f16", [1, 2, 0]),
        *([256, 8, 8, 64], [1, 131072, 256, 2048], [8, 256, 8, 64], [131072, 1, 256, 2048]),
    ),
    (
        *([512, 8, 256], "f16", [2, 0, 1]),
        *([512, 1, 256, 64], [2048, 16384, 1, 256], [1, 512, 256, 64], [16384, 2048, 1, 256]),
    ),
    (
        *([512, 8, 256], "f16", [2, 1, 0]),
        *([8, 8, 256, 64], [256, 131072, 1, 2048], [8, 8, 256, 64], [131072, 256, 1, 2048]),
    ),
    ([512, 256], "f16", [0, 1, -1], [256, 1, 512, 64], [1, -1, 256, -1], [1, 256, 512, 64], [-1, 1, 256, -1]),
    (
        *([32, 8192, 17408], "f16", None),
        *([8192, 272, 32, 64], [17408, 64, 142606336, 1], [272, 8192, 32, 64], [64, 17408, 142606336, 1]),
    ),
    (
        *([128, 256, 512], "f16", None),
        *([256, 8, 128, 64], [512, 64, 131072, 1], [8, 256, 128, 64], [64, 512, 131072, 1]),
    ),
    ([1, 1, 4096], "f32", None, [1, 128, 1, 32], [-1, 32, -1, 1], [128, 1, 1, 32], [32, -1, -1, 1]),
]


@pytest.mark.parametrize(("shape", "dtype", "order", "size", "strides", "rfc_size", "rfc_strides"), VECTORS)
def test_check_vectors(shape, dtype, order, size, strides, rfc_size, rfc_strides):
    """Device size and stride map of every row of the table above, with both defaults."""
    layout = StickLayout.for_tensor(default_target(), shape, dtype, order)
    assert (list(layout.device_size), list(layout.stride_map)) == (size, strides)
    layout = StickLayout.for_tensor(default_target(), shape, dtype, order, stick_outermost=True)
    assert (list(layout.device_size), list(layout.stride_map)) == (rfc_size, rfc_strides)


def test_default_of_the_rfc():
    """The strides that RFC 0047 gives; with two dims both defaults are one layout."""
    layout = StickLayout.for_tensor(default_target(), [1024, 256], "f16", stick_outermost=True)
    assert (layout.device_size, layout.device_strides) == ((4, 1024, 64), (65536, 64, 1))
    assert layout == StickLayout.for_tensor(default_target(), [1024, 256], "f16")
    layout = StickLayout.for_tensor(default_target(), [512, 8, 240], "f16", stick_outermost=True)
    assert layout.device_strides == (262144, 32768, 64, 1)


@pytest.mark.parametrize("dtype", ALL_ELEMENTS)
def test_a_stick_is_128_bytes_of_any_type(dtype):
    """Two sticks of elements take 256 bytes, booleans 2 bytes each, 4-bit elements half a byte."""
    per_stick = elements_per_stick(default_target(), dtype)
    layout = StickLayout.for_tensor(default_target(), [2 * per_stick], dtype)
    assert (per_stick, layout.device_size) == (ALL_ELEMENTS[dtype], (2, per_stick))
    assert layout.bytes == 256 == bytes_of(2 * per_stick, dtype)


def test_bytes_of_half_bytes():
    """Three 4-bit elements need two bytes; types of whole bytes have a size per element."""
    assert [bytes_of(n, "i4") for n in (0, 1, 2, 3, 256)] == [0, 1, 1, 2, 128]
    assert ELEMENT_BYTES["i1"] == ELEMENT_BYTES["f16"] == 2 and ELEMENT_BYTES["f8E5M2"] == 1
    with pytest.raises(CompileError, match="f64 is not supported by the device"):
        elements_per_stick(default_target(), "f64")


def test_digits_are_the_map_of_the_attribute():
    """The map in the manual: (d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)."""
    layout = StickLayout.for_tensor(default_target(), [512, 256], "f16")
    assert layout.digits == (Digit(1, 64), Digit(0), Digit(1, 1, 64)) and layout.stick_dim == 1
    sparse = StickLayout.for_tensor(default_target(), [512], "f16", [0, -1])
    assert sparse.digits == (Digit(None), Digit(0), Digit(None)) and sparse.stick_dim is None


@pytest.mark.parametrize("seed", range(300))
def test_dim_orders_place_by_padding_and_transposing(seed):
    """Every element of a random tensor has the position that docs/layouts.md describes."""
    rng = random.Random(seed)
    rank = seed % 6
    shape, dtype, outermost = random_shape(rng, rank), rng.choice(list(ELEMENTS)), rng.random() < 0.5
    order = random_order(rng, rank) if seed % 3 else list(range(rank))
    expected, size = positions_by_order(shape, ELEMENTS[dtype], order, outermost)
    layout = StickLayout.for_tensor(default_target(), shape, dtype, order if seed % 3 else None, outermost)
    assert layout.device_size == size
    assert layout.bytes == int(np.prod(size)) * (2 if dtype == "f16" else 4)
    assert layout.device_strides == tuple(np.zeros(size, np.int8).strides)
    np.testing.assert_array_equal(positions(layout), expected)


@pytest.mark.parametrize("seed", range(200))
def test_extent_is_the_room_that_the_device_array_has(seed):
    """Up to ``extent`` every index has a separate place; padding is beyond the shape."""
    rng = random.Random(seed)
    layout = random_layout(rng, 500)
    room = tuple(layout.extent(dim) for dim in range(len(layout.shape)))
    assert layout.padding == tuple(r - size for r, size in zip(room, layout.shape, strict=True))
    modulo = [digit if digit.modulus else Digit(digit.dim, digit.divisor, size) for digit, size in
              zip(layout.digits, layout.device_size, strict=True)]  # fmt: skip
    places = positions(StickLayout(default_target(), room, layout.dtype, tuple(modulo)))
    assert len(np.unique(places)) == places.size
    assert places.max(initial=0) * (layout.bytes // np.prod(layout.device_size)) < layout.bytes
    if layout.stick_dim is not None:
        assert places.size == np.prod(layout.device_size)


@pytest.mark.parametrize("seed", range(200))
def test_padded_makes_room_in_one_dim_only(seed):
    """The dim is padded to the next multiple; the order of elements does not change."""
    rng = random.Random(seed)
    layout = random_layout(rng, 500)
    for dim, multiple in ((dim, rng.choice((2, 32, 64, 128))) for dim in range(len(layout.shape))):
        try:
            more = layout.padded(dim, multiple)
        except ValueError:
            assert any(
                digit.divisor > 1 and multiple % digit.divisor for digit in layout.digits if digit.dim == dim
            )
            continue
        if not any(digit.dim == dim for digit in layout.digits[:-1]):
            assert more == layout
            continue
        assert more.extent(dim) == -(-layout.extent(dim) // multiple) * multiple
        assert all(more.extent(k) == layout.extent(k) for k in range(len(layout.shape)) if k != dim)
        before, after = positions(layout).ravel(), positions(more).ravel()
        np.testing.assert_array_equal(np.argsort(before), np.argsort(after))


def test_padding_of_a_stick_dim_is_in_whole_sticks():
    """70 of fp16 take two sticks; in multiples of 256 they take four."""
    layout = StickLayout.for_tensor(default_target(), [3, 70], "f16")
    assert layout.padding == (0, 58) and layout.bytes == 2 * 3 * 128
    assert layout.padded(1, 256).device_size == (4, 3, 64)
    assert layout.padded(1, 128) == layout
    assert layout.padded(0, 64).device_size == (2, 64, 64)
    with pytest.raises(ValueError, match="dim 1 has digits of 64, they cannot fill multiples of 96"):
        layout.padded(1, 96)


def test_a_slice_keeps_its_map():
    """``reshaped_to`` changes sizes, not digits; a modulus stays."""
    layout = StickLayout.for_tensor(default_target(), [512, 256], "f16").padded(0, 1024)
    part = layout.reshaped_to([100, 130])
    assert part.device_size == (3, 1024, 64) and part.digits == layout.digits


BAD_ORDERS = [
    ([0], "dim 1 is missing"),
    ([0, 0], "dim 0 occurs 2 times"),
    ([0, 2], "dim 2 does not exist"),
    ([0, -2], "dim -2 does not exist"),
    ([0, 1, 2], "dim 2 does not exist"),
    ([-1, 0, 1], "-1, for a stick-sparse tensor, can only be the last entry"),
    ([0, -1, 1], "-1, for a stick-sparse tensor, can only be the last entry"),
]


@pytest.mark.parametrize(("order", "problem"), BAD_ORDERS)
def test_an_order_names_each_dim_once(order, problem):
    text = re.escape(f"dim_order {order} must name each of the 2 dims once: {problem}.")
    with pytest.raises(ValueError, match=text):
        StickLayout.for_tensor(default_target(), [4, 4], "f16", order)


# -- the map and its inverse --------------------------------------------------------------------------


def test_a_coordinate_and_back():
    """Column 70 of row 2 is in slot 6 of the second stick; column 130 of 130 is padding."""
    layout = StickLayout.for_tensor(default_target(), [3, 130], "f16")
    assert layout.to_device((2, 70)) == (1, 2, 6)
    assert layout.to_host((1, 2, 6)) == (2, 70)
    assert layout.to_host((2, 2, 1)) == (2, 129) and layout.to_host((2, 2, 2)) is None
    assert layout.to_host((3, 0, 0)) is None and layout.to_host((0, -1, 0)) is None


def test_lanes_of_a_sparse_stick_are_empty():
    layout = StickLayout.for_tensor(default_target(), [5], "f16", [0, -1])
    assert layout.to_device([3]) == (0, 3, 0)
    assert layout.to_host((0, 3, 0)) == (3,) and layout.to_host((0, 3, 1)) is None


def test_arrays_of_coordinates():
    """All at once: one row per dim, and a mask of the places that hold an element."""
    layout = StickLayout.for_tensor(default_target(), [2, 70], "f16")
    places = layout.to_device(np.indices((2, 70)))
    assert places.shape == (3, 2, 70)
    index, holds = layout.to_host(np.indices(layout.device_size))
    assert index.shape == (2, 2, 2, 64) and holds.sum() == 140
    np.testing.assert_array_equal(index[:, *places], np.indices((2, 70)))


OVERLAPPING = [(Digit(0, 32), Digit(0, 1, 64)), (Digit(0, 64), Digit(0, 2, 4), Digit(0, 1, 64))]


@pytest.mark.parametrize("digits", OVERLAPPING)
def test_digits_that_say_a_part_again(digits):
    """d0 floordiv 32 with d0 mod 64: the inverse uses each part of an index once."""
    layout = StickLayout(default_target(), (100,), "f16", digits)
    assert [layout.to_host(layout.to_device((at,))) for at in range(100)] == [(at,) for at in range(100)]


def test_wrong_coordinates():
    """An index outside the shape has no place; a coordinate has one entry per dim."""
    layout = StickLayout.for_tensor(default_target(), [2, 70], "f16")
    with pytest.raises(IndexError, match=r"Index 70 of dim 1 lies outside its 70 elements."):
        layout.to_device((0, 70))
    with pytest.raises(IndexError, match=r"Index -1 of dim 0 lies outside its 2 elements."):
        layout.to_device(np.array([[0, -1], [0, 0]]))
    with pytest.raises(ValueError, match=r"A device coordinate of this layout has 3 entries, not 2."):
        layout.to_host((0, 0))
    with pytest.raises(ValueError, match=r"An index of this layout has 2 entries, not 1."):
        layout.to_device((0,))


# -- the same memory ----------------------------------------------------------------------------------


def test_same_memory_ignores_dims_and_digits_of_size_1():
    """Ones in the shape, a stick count of one, a dim in pieces that follow each other: all the same memory."""
    plain = StickLayout.for_tensor(default_target(), [12, 64], "f16")
    assert plain.same_memory(StickLayout.for_tensor(default_target(), [1, 12, 1, 64], "f16"))
    assert plain.same_memory(StickLayout(default_target(), (12, 64), "f16", (Digit(0), Digit(1, 1, 64))))
    assert plain.same_memory(
        StickLayout(default_target(), (12, 64), "f16", (Digit(0, 4), Digit(0, 1, 4), Digit(1, 1, 64)))
    )
    assert StickLayout.for_tensor(default_target(), [12, 1], "f16").same_memory(
        StickLayout.for_tensor(default_target(), [12], "f16", [0, -1])
    )


def test_not_the_same_memory():
    """Another order, another stick, another type, pieces the other way round, other shapes."""
    plain = StickLayout.for_tensor(default_target(), [12, 128], "f16")
    others = [
        StickLayout.for_tensor(default_target(), [12, 128], "f16", [1, 0]),
        StickLayout.for_tensor(default_target(), [12, 128], "f16", [0, 1, -1]),
        StickLayout.for_tensor(default_target(), [12, 128], "bf16"),
        StickLayout.for_tensor(default_target(), [128, 12], "f16"),
        StickLayout.for_tensor(default_target(), [12, 127], "f16"),
        StickLayout(default_target(), (12, 128), "f16", (Digit(0), Digit(1, 64), Digit(1, 1, 64))),
        StickLayout.for_tensor(default_target(), [12, 128], "f16").padded(0, 64),
    ]
    assert not any(plain.same_memory(other) for other in others)


def test_room_behind_the_last_element_is_not_compared():
    layout = StickLayout.for_tensor(default_target(), [12, 64], "f16")
    assert layout.padded(0, 64) != layout and layout.padded(0, 64).same_memory(layout)
