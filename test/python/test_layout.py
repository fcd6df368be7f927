"""The algebra of stick layouts against layouts.md and against placement by padding and transposing."""

from __future__ import annotations

import random

import numpy as np
import pytest
from layout_cases import ELEMENTS, positions, positions_by_order, random_layout, random_order, random_shape

from spyre_mlir.layout import Digit, StickLayout

#: shape, dim order, device size, stride map of layouts.md; fp16.
VECTORS = [
    ([], None, [1, 64], [-1, -1]),
    ([120], None, [2, 64], [64, 1]),
    ([512, 240], None, [4, 512, 64], [64, 240, 1]),
    ([512, 256], None, [4, 512, 64], [64, 256, 1]),
    ([512, 8, 240], None, [8, 4, 512, 64], [240, 64, 1920, 1]),
    ([512, 8, 256], None, [8, 4, 512, 64], [256, 64, 2048, 1]),
    ([5, 100, 150], None, [100, 3, 5, 64], [150, 64, 15000, 1]),
    ([5, 100, 150], [1, 0, 2], [5, 3, 100, 64], [15000, 64, 150, 1]),
    ([512, 256], [1, 0], [8, 256, 64], [16384, 1, 256]),
    ([512, 8, 256], [0, 2, 1], [256, 1, 512, 64], [1, 16384, 2048, 256]),
    ([512, 8, 256], [1, 0, 2], [512, 4, 8, 64], [2048, 64, 256, 1]),
    ([512, 8, 256], [1, 2, 0], [256, 8, 8, 64], [1, 131072, 256, 2048]),
    ([512, 8, 256], [2, 0, 1], [512, 1, 256, 64], [2048, 16384, 1, 256]),
    ([512, 8, 256], [2, 1, 0], [8, 8, 256, 64], [256, 131072, 1, 2048]),
    ([512, 256], [0, 1, -1], [256, 1, 512, 64], [1, -1, 256, -1]),
    ([32, 8192, 17408], None, [8192, 272, 32, 64], [17408, 64, 142606336, 1]),
    ([128, 256, 512], None, [256, 8, 128, 64], [512, 64, 131072, 1]),
]


@pytest.mark.parametrize(("shape", "order", "size", "strides"), VECTORS)
def test_check_vectors(shape, order, size, strides):
    """Device size and stride map of every row of the table in layouts.md."""
    layout = StickLayout.for_tensor(shape, "f16", order)
    assert (list(layout.device_size), list(layout.stride_map)) == (size, strides)


def test_check_vector_of_4_byte_elements():
    layout = StickLayout.for_tensor([1, 1, 4096], "f32")
    assert (layout.device_size, layout.stride_map) == ((1, 128, 1, 32), (-1, 32, -1, 1))


def test_default_of_the_rfc():
    """The stick count is outermost; with two dims both defaults are one layout."""
    layout = StickLayout.for_tensor([1024, 256], "f16", stick_outermost=True)
    assert (layout.device_size, layout.device_strides) == ((4, 1024, 64), (65536, 64, 1))
    assert layout == StickLayout.for_tensor([1024, 256], "f16")
    layout = StickLayout.for_tensor([512, 8, 240], "f16", stick_outermost=True)
    assert (layout.device_size, layout.stride_map) == ((4, 8, 512, 64), (64, 240, 1920, 1))


def test_digits_are_the_map_of_the_attribute():
    """The map in the manual: (d0, d1) -> (d1 floordiv 64, d0, d1 mod 64)."""
    layout = StickLayout.for_tensor([512, 256], "f16")
    assert layout.digits == (Digit(1, 64), Digit(0), Digit(1, 1, 64)) and layout.stick_dim == 1
    sparse = StickLayout.for_tensor([512], "f16", [0, -1])
    assert sparse.digits == (Digit(None), Digit(0), Digit(None)) and sparse.stick_dim is None


@pytest.mark.parametrize("seed", range(300))
def test_dim_orders_place_by_padding_and_transposing(seed):
    """Every element of a random tensor lies where the words of layouts.md put it."""
    rng = random.Random(seed)
    rank = seed % 6
    shape, dtype, outermost = random_shape(rng, rank), rng.choice(list(ELEMENTS)), rng.random() < 0.5
    order = random_order(rng, rank) if seed % 3 else list(range(rank))
    expected, size = positions_by_order(shape, ELEMENTS[dtype], order, outermost)
    layout = StickLayout.for_tensor(shape, dtype, order if seed % 3 else None, outermost)
    assert layout.device_size == size
    assert layout.bytes == int(np.prod(size)) * (2 if dtype == "f16" else 4)
    assert layout.device_strides == tuple(np.zeros(size, np.int8).strides)
    np.testing.assert_array_equal(positions(layout), expected)


@pytest.mark.parametrize("seed", range(200))
def test_extent_is_the_room_that_the_device_array_has(seed):
    """As far as ``extent`` every index has a place of its own; padding is what is beyond the shape."""
    rng = random.Random(seed)
    layout = random_layout(rng, 500)
    room = tuple(layout.extent(dim) for dim in range(len(layout.shape)))
    assert layout.padding == tuple(r - size for r, size in zip(room, layout.shape, strict=True))
    modulo = [digit if digit.modulus else Digit(digit.dim, digit.divisor, size) for digit, size in
              zip(layout.digits, layout.device_size, strict=True)]  # fmt: skip
    places = positions(StickLayout(room, layout.dtype, tuple(modulo)))
    assert len(np.unique(places)) == places.size
    assert places.max(initial=0) * (layout.bytes // np.prod(layout.device_size)) < layout.bytes
    if layout.stick_dim is not None:
        assert places.size == np.prod(layout.device_size)


@pytest.mark.parametrize("seed", range(200))
def test_padded_makes_room_in_one_dim_only(seed):
    """The dim has room for a whole multiple and no more than needed; the order of elements stays."""
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
    layout = StickLayout.for_tensor([3, 70], "f16")
    assert layout.padding == (0, 58) and layout.bytes == 2 * 3 * 128
    assert layout.padded(1, 256).device_size == (4, 3, 64)
    assert layout.padded(1, 128) == layout
    assert layout.padded(0, 64).device_size == (2, 64, 64)
    with pytest.raises(ValueError, match="dim 1 has digits of 64, they cannot fill multiples of 96"):
        layout.padded(1, 96)


def test_a_slice_keeps_its_map():
    """``reshaped_to`` changes sizes, not digits; a modulus stays."""
    layout = StickLayout.for_tensor([512, 256], "f16").padded(0, 1024)
    part = layout.reshaped_to([100, 130])
    assert part.device_size == (3, 1024, 64) and part.digits == layout.digits


@pytest.mark.parametrize("order", [[0], [0, 0], [0, 2], [-1, 0, 1], [0, -1, 1], [0, 1, 2]])
def test_an_order_names_each_dim_once(order):
    with pytest.raises(ValueError, match="must name each of the 2 dims once"):
        StickLayout.for_tensor([4, 4], "f16", order)
