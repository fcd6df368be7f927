# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The DMA tuples of a layout: the loop nest they stand for moves each element to its place."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from layout_cases import (
    ELEMENTS,
    moved,
    positions,
    positions_by_order,
    random_layout,
    random_order,
    random_shape,
)

from spyre_mlir.layout import StickLayout, ViewError
from spyre_mlir.layout.host_transfer import DmaTuples, HostView, dma_tuples
from spyre_mlir.layout.view_transforms import Collapse, Expand, Transpose
from spyre_mlir.target.target import default_target


def test_the_loop_nest_of_the_rfc():
    """(64, 1024, 4), (1, 64, 65536), (1, 256, 64) of RFC 0047, here from outermost to innermost."""
    tuples = dma_tuples(StickLayout.for_tensor(default_target(), [1024, 256], "f16"))
    assert tuples == DmaTuples((4, 1024, 64), (64, 256, 1), (65536, 64, 1), ())
    assert tuples.stick_outermost() == DmaTuples((64, 1024, 4), (1, 256, 64), (1, 64, 65536), ())


def test_partial_sticks_are_bounded():
    """70 columns in two sticks: the loops over sticks and lanes stop at column 70."""
    tuples = dma_tuples(StickLayout.for_tensor(default_target(), [3, 70], "f16"))
    assert tuples.ranges == (2, 3, 64)
    assert tuples.bounds == (((0, 2), (64, 1), 70),)


def test_a_sparse_tensor_moves_lane_0():
    tuples = dma_tuples(StickLayout.for_tensor(default_target(), [5], "f16", [0, -1]))
    assert (tuples.ranges, tuples.host_strides, tuples.device_strides) == ((1, 5, 1), (0, 1, 0), (320, 64, 1))


@pytest.mark.parametrize("seed", range(300))
def test_dim_orders_move_to_the_place_by_definition(seed):
    """Random shapes of rank 0 to 5, types and orders, sparse ones too."""
    rng = random.Random(1000 + seed)
    rank, dtype, outermost = seed % 6, rng.choice(list(ELEMENTS)), rng.random() < 0.5
    shape, order = random_shape(rng, rank), random_order(rng, rank)
    where, size = positions_by_order(shape, ELEMENTS[dtype], order, outermost)
    host = np.arange(math.prod(shape)).reshape(shape)
    expected = np.full(math.prod(size), -1)
    expected[where] = host
    layout = StickLayout.for_tensor(default_target(), shape, dtype, order, outermost)
    np.testing.assert_array_equal(moved(dma_tuples(layout), host, expected.size), expected)
    np.testing.assert_array_equal(moved(dma_tuples(layout).stick_outermost(), host, expected.size), expected)


@pytest.mark.parametrize("seed", range(200))
def test_padded_and_divided_dims_move_to_their_place(seed):
    """Room in any dim and dims in two pieces: nothing lands in the padding."""
    layout = random_layout(random.Random(seed))
    elements = math.prod(layout.device_size)
    host = np.arange(math.prod(layout.shape)).reshape(layout.shape)
    expected = np.full(elements, -1)
    expected[positions(layout)] = host
    np.testing.assert_array_equal(moved(dma_tuples(layout), host, elements), expected)


@pytest.mark.parametrize("seed", range(100))
def test_views_in_pieces_move_to_their_place(seed):
    """Patches of images, their rows and columns one dim: as if the host had made an array of them before."""
    rng = random.Random(seed)
    images, rows, columns = rng.randint(1, 3), rng.choice((1, 2, 4)), rng.choice((2, 4, 8))
    channels, high, wide = rng.randint(1, 3), rng.choice((1, 4, 16)), rng.choice((4, 16, 64))
    array = np.arange(images * channels * rows * high * columns * wide)
    steps = (
        Expand(((0,), (1,), (2, 3), (4, 5)), (images, channels, rows, high, columns, wide)),
        Transpose((0, 2, 4, 1, 3, 5)),
        Collapse(((0,), (1, 2), (3, 4, 5))),
    )
    view = HostView.whole((images, channels, rows * high, columns * wide))
    for step in steps:
        view = view.after(step)
    dense = array.reshape(steps[0].shape).transpose(steps[1].permutation).reshape(view.shape)
    layout = StickLayout.for_tensor(default_target(), view.shape, "f16", rng.sample(range(3), 3))
    size = math.prod(layout.device_size)
    np.testing.assert_array_equal(
        moved(dma_tuples(layout, view), array, size), moved(dma_tuples(layout), dense, size)
    )


def test_pieces_beside_sticks():
    """Sticks of 64 along a dim of pieces of 14."""
    view = HostView((28, 28), (((2, 392), (14, 28)), ((28, 1),)))
    with pytest.raises(ViewError, match="steps of 64 positions do not fall on pieces of 14 of the host"):
        dma_tuples(StickLayout.for_tensor(default_target(), (28, 28), "f16", [1, 0]), view)
    assert dma_tuples(
        StickLayout.for_tensor(default_target(), (28, 28), "f16", [0, 1]), view
    ).host_strides == (
        64,
        392,
        28,
        1,
    )


def test_all_small_tensors_come_back():
    """From host to device and back over every shape up to 3 x 3 x 66 of both widths is the identity."""
    for shape in itertools.product((1, 3), (2, 3), (1, 31, 32, 64, 66)):
        for dtype, dims in itertools.product(("f16", "f32"), itertools.permutations(range(3))):
            layout = StickLayout.for_tensor(default_target(), shape, dtype, dims)
            host = np.arange(math.prod(shape)).reshape(shape)
            memory = moved(dma_tuples(layout), host, math.prod(layout.device_size))
            np.testing.assert_array_equal(memory[positions(layout)], host)
