# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Layouts as plan files write them: by dim order, room aside."""

from __future__ import annotations

import random

import pytest
from layout_cases import ELEMENTS, random_layout, random_order, random_shape

from spyre_mlir.layout import Digit, StickLayout
from spyre_mlir.layout.requests import LayoutRequest, request_of, same_order, without_room
from spyre_mlir.layout.view import from_order, natural_order
from spyre_mlir.target.target import default_target


@pytest.mark.parametrize("seed", range(100))
def test_a_dim_order_is_told_again(seed: int):
    """The layout of a constraint has a constraint, which gives the same memory."""
    rng = random.Random(seed)
    shape, dtype = random_shape(rng, rng.randint(1, 4)), rng.choice(list(ELEMENTS))
    asked = LayoutRequest(dim_order=tuple(random_order(rng, len(shape))), stick_outermost=rng.random() < 0.5)
    layout = asked.layout(default_target(), shape, dtype, "x")
    told = request_of(layout)
    assert told is not None and told.layout(default_target(), shape, dtype, "x").same_memory(layout)


@pytest.mark.parametrize("seed", range(100))
def test_a_request_never_names_another_layout(seed: int):
    """If a layout has a request, the request gives the position of every element, except for padding."""
    layout = random_layout(random.Random(seed))
    told = request_of(layout)
    if told is not None:
        assert told.layout(default_target(), layout.shape, layout.dtype, "x").same_memory(
            without_room(layout)
        )


@pytest.mark.parametrize("seed", range(50))
def test_room_does_not_count(seed: int):
    """A padded dim is the same order; without room the padding is gone, and twice is once."""
    rng = random.Random(seed)
    shape = random_shape(rng, rng.randint(2, 3))
    plain = StickLayout.for_tensor(default_target(), shape, "f16", rng.sample(range(len(shape)), len(shape)))
    dim = rng.choice([dim for dim in range(len(shape)) if dim != plain.stick_dim])
    padded = plain.padded(dim, 64)
    assert same_order(plain, padded) and without_room(padded).bytes == plain.bytes
    assert without_room(without_room(padded)) == without_room(padded)


def test_other_orders_are_others():
    """The stick is the same, but other dims are innermost."""
    one, other = (
        StickLayout.for_tensor(default_target(), (4, 6, 128), "f16", order)
        for order in ([0, 1, 2], [1, 0, 2])
    )
    assert not same_order(one, other)


def test_the_natural_order_has_a_dim_order():
    """Rows of each matrix are together: the natural order of the layout choice."""
    layout = natural_order(default_target(), (3, 4, 5, 128), "f16", 3)
    assert request_of(layout) == LayoutRequest(dim_order=(2, 0, 1, 3))


def test_a_stick_count_innermost_is_told_by_its_map_alone():
    """The sticks of one row are adjacent, which a dim order cannot express."""
    assert request_of(from_order(default_target(), (4, 6, 128), "f16", 2, [0, 1, 2])) is None


def test_several_dims_in_the_stick_are_told_by_the_map_alone():
    """The operand of an int8 matmul."""
    assert (
        request_of(StickLayout.for_tensor(default_target(), (512, 256), "i8", None, False, ((0, 2), (1, 64))))
        is None
    )


def test_a_piece_of_a_dim_is_no_room():
    """A modulus that cuts a dim in two pieces stays."""
    digits = (Digit(0, 4), Digit(1, 64), Digit(0, 1, 4), Digit(1, 1, 64))
    layout = StickLayout(default_target(), (8, 128), "f16", digits)
    assert without_room(layout) == layout and request_of(layout) is None
