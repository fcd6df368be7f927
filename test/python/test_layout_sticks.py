# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sticks that hold several dims: the forms of 1-byte and 4-bit matmuls, and what views of them are legal."""

from __future__ import annotations

import random

import numpy as np
import pytest
from layout_cases import (
    ALL_ELEMENTS,
    addresses,
    in_numpy,
    positions,
    positions_by_sticks,
    random_form,
    random_shape,
    random_step,
    random_sticks,
    view_step,
)

from spyre_mlir.layout import Axis, BufferView, Digit, StickLayout, ViewError
from spyre_mlir.layout.space import Space, refined
from spyre_mlir.layout.view import keep_order
from spyre_mlir.layout.view_transforms import collapse
from spyre_mlir.target.target import default_target

#: The forms of 8 and 4 bits (docs/layouts.md), of inputs [M=32, K=512] and [K=512, N=256]: type, shape, sticks, digits,
#: device size.
FORMS = {
    "int8 input 1": (
        *("i8", (32, 512), ((1, 128),)),
        *((Digit(1, 128), Digit(0), Digit(1, 1, 128)), (4, 32, 128)),
    ),
    "fp8 input 2": (
        *("f8E4M3FN", (512, 256), ((0, 2), (1, 64))),
        *((Digit(1, 64), Digit(0, 2), Digit(0, 1, 2), Digit(1, 1, 64)), (4, 256, 2, 64)),
    ),
    "int4 input 1": (
        *("i4", (32, 512), ((1, 16), (0, 2), (1, 8))),
        *((Digit(1, 128), Digit(0, 2), Digit(1, 8, 16), Digit(0, 1, 2), Digit(1, 1, 8)), (4, 16, 16, 2, 8)),
    ),
    "int4 input 2": (
        *("i4", (512, 256), ((0, 4), (1, 64))),
        *((Digit(1, 64), Digit(0, 4), Digit(0, 1, 4), Digit(1, 1, 64)), (4, 128, 4, 64)),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_matmul_inputs(form):
    """Digits, device size and bytes, and that the stick is found again in the digits."""
    dtype, shape, sticks, digits, size = FORMS[form]
    layout = StickLayout.for_tensor(default_target(), shape, dtype, sticks=sticks)
    assert (layout.digits, layout.device_size) == (digits, size)
    assert layout.bytes == shape[0] * shape[1] // (2 if dtype == "i4" else 1)
    assert layout.stick_digits == digits[-len(sticks) :] and layout.stick_dim == 1
    assert layout.stick_dims == tuple(sorted({dim for dim, _ in sticks}))


def test_partial_sticks_pad_every_stick_dim():
    """7 x 70 of int8 in sticks of 2 x 64: 8 x 128 places, 4 x 2 sticks."""
    layout = StickLayout.for_tensor(default_target(), (7, 70), "i8", sticks=((0, 2), (1, 64)))
    assert (layout.padding, layout.bytes) == ((1, 58), 4 * 2 * 128)
    assert layout.padded(0, 128).device_size == (2, 64, 2, 64)
    assert layout.stride_map == (64, 140, 70, 1)


def test_a_dim_within_one_stick_has_no_more_room():
    """K = 2 fills the stick and nothing numbers its sticks: the position in the stick is not stretched."""
    layout = StickLayout(default_target(), (2, 128), "i8", (Digit(1, 64), Digit(0, 1, 2), Digit(1, 1, 64)))
    assert layout.padded(0, 4) == layout


def test_orders_of_a_tensor_with_several_stick_dims():
    """The last of the order is the innermost of the stick; the others are divided where they stand."""
    sticks = ((1, 2), (2, 64))
    layout = StickLayout.for_tensor(default_target(), (5, 6, 128), "i8", [1, 0, 2], sticks=sticks)
    assert layout.digits[:-2] == (Digit(0), Digit(2, 64), Digit(1, 2))
    layout = StickLayout.for_tensor(
        default_target(), (5, 6, 128), "i8", [1, 0, 2], stick_outermost=True, sticks=sticks
    )
    assert layout.digits[:-2] == (Digit(2, 64), Digit(0), Digit(1, 2))
    assert StickLayout.for_tensor(
        default_target(), (5, 6), "i8", sticks=((0, 128),)
    ) == StickLayout.for_tensor(default_target(), (5, 6), "i8", [1, 0])


WRONG = [
    (((0, 2), (1, 32)), None, "A stick of i8 has 128 elements, not 64."),
    ((), None, "A stick of i8 has 128 elements, not 1."),
    (((2, 2), (1, 64)), None, "The stick names dim 2, but the tensor has rank 2."),
    (((0, 1), (1, 128)), None, "A stick has at least 2 elements of each dim, not 1 of dim 0."),
    (((0, 2), (1, 64)), [1, 0], r"dim_order \[1, 0\] must end in dim 1, the innermost of the stick."),
    (((0, 2), (1, 64)), [0, 1, -1], r"dim_order \[0, 1, -1\] must end in dim 1, the innermost of the stick."),
    (((0, 2), (1, 64)), [1], r"dim_order \[1\] must name each of the 2 dims once: dim 0 is missing."),
]


@pytest.mark.parametrize(("sticks", "order", "text"), WRONG)
def test_wrong_sticks(sticks, order, text):
    with pytest.raises(ValueError, match=text):
        StickLayout.for_tensor(default_target(), (4, 256), "i8", order, sticks=sticks)


@pytest.mark.parametrize("seed", range(200))
def test_random_sticks_place_by_padding_and_transposing(seed):
    """Cutting each dim into its parts and transposing the parts gives the position of every element."""
    rng = random.Random(seed)
    rank, dtype, outermost = rng.randint(1, 5), rng.choice(list(ALL_ELEMENTS)), rng.random() < 0.5
    shape, sticks = random_shape(rng, rank), random_sticks(rng, rank, ALL_ELEMENTS[dtype])
    last = sticks[-1][0]
    order = [*rng.sample([dim for dim in range(rank) if dim != last], rank - 1), last]
    expected, size = positions_by_sticks(shape, sticks, order, outermost)
    layout = StickLayout.for_tensor(default_target(), shape, dtype, order, outermost, sticks)
    assert layout.device_size == size
    assert len(layout.stick_digits) == len(sticks)
    np.testing.assert_array_equal(positions(layout), expected)


# -- views --------------------------------------------------------------------------------------------


def weight(shape: tuple[int, ...] = (6, 128)) -> BufferView:
    """The int8 second input of a matmul, [K, N] with K = 2 and N = 64 in the stick."""
    rank = len(shape)
    return BufferView.of(
        StickLayout.for_tensor(default_target(), shape, "i8", sticks=((rank - 2, 2), (rank - 1, 64)))
    )


def test_the_view_of_several_stick_dims():
    """The element slot is innermost, axes inside the stick are separate, each dim has one stride outside of it."""
    view = weight()
    assert (view.stick_dim, view.stick_dims) == (1, (0, 1))
    assert view.axes == (Axis(1, 64, 2, 384), Axis(0, 2, 3, 128))
    assert view.stick_axes == (Axis(0, 1, 2, 64), Axis(1, 1, 64, 1))
    assert [view.stick_elements(dim) for dim in (0, 1)] == [2, 64]
    assert view.why_not_addressable() is None and view.main_stick_dim == 1
    twice = StickLayout.for_tensor(default_target(), (8, 64), "i4", sticks=((1, 16), (0, 2), (1, 8)))
    assert BufferView.of(twice).why_not_addressable() == "its sticks hold dim 1 in 2 parts"


def test_a_lane_of_one_element_stays_beside_other_dims():
    """With N = 1 the stick still holds two of K, 64 slots apart: it is not sparse."""
    view = weight((6, 1))
    assert view.stick_dim == 1 and view.layout.digits == (Digit(0, 2), Digit(0, 1, 2), Digit(1, 1, 64))


def test_parts_of_one_dim_that_follow_each_other_are_one():
    """(d0 floordiv 8 mod 16, d0 mod 8) is d0 mod 128: an ordinary stick."""
    digits = (Digit(0, 128), Digit(0, 8, 16), Digit(0, 1, 8))
    assert BufferView.of(StickLayout(default_target(), (200,), "i8", digits)) == BufferView.of(
        StickLayout.for_tensor(default_target(), (200,), "i8")
    )


@pytest.mark.parametrize("seed", range(600))
def test_views_address_what_numpy_addresses(seed):
    """Chains of view operations of any form, of every type; the layout of the result keeps the order."""
    rng = random.Random(seed)
    layout = random_form(rng, 1500)
    view, where = BufferView.of(layout), positions(layout)
    np.testing.assert_array_equal(addresses(view), where)
    for _ in range(5):
        name, arguments = random_step(rng, view.shape)
        try:
            view = view_step(view, name, arguments)
        except ViewError:
            continue
        where = in_numpy(where, name, arguments)
        np.testing.assert_array_equal(addresses(view), where, err_msg=f"{name}{arguments}")
    again = BufferView.of(view.layout)
    assert (again.stick_dim, again.stick_axes) == (view.stick_dim, view.stick_axes)
    np.testing.assert_array_equal(np.argsort(addresses(again), None), np.argsort(where, None))


LEGAL = {
    "transpose": ((6, 128), "transpose", ([1, 0],)),
    "slice of whole sticks": ((6, 128), "slice", ([2, 64], [3, 60], [1, 1])),
    "one batch": ((3, 6, 128), "slice", ([1, 0, 0], [1, 6, 128], [1, 1, 1])),
    "every other batch": ((4, 6, 128), "slice", ([1, 0, 0], [2, 6, 128], [2, 1, 1])),
    "split of the batch": ((6, 2, 64), "expand", ([[0, 1], [2], [3]], (2, 3, 2, 64))),
    "merge of batches": ((2, 3, 2, 64), "collapse", ([[0, 1], [2], [3]],)),
    "split of K at whole sticks": ((12, 64), "expand", ([[0, 1], [2]], (3, 4, 64))),
    "merge of batch and whole sticks of K": ((3, 4, 64), "collapse", ([[0, 1], [2]],)),
    "ones around a padded K": ((1, 5, 64), "collapse", ([[0, 1], [2]],)),
    "a K of one split into ones": ((1, 64), "expand", ([[0, 1], [2]], (1, 1, 64))),
    "ones merged into a K of one": ((1, 1, 64), "collapse", ([[0, 1], [2]],)),
    "drop a batch of one": ((1, 6, 128), "drop", ([0],)),
}


@pytest.mark.parametrize("case", LEGAL)
def test_views_that_leave_the_stick_alone_are_legal(case):
    shape, name, arguments = LEGAL[case]
    view = weight(shape)
    result = view_step(view, name, arguments)
    np.testing.assert_array_equal(addresses(result), in_numpy(addresses(view), name, arguments))
    assert sorted(a.size for a in result.stick_axes) == [2, 64]


ILLEGAL = {
    "half a stick of K": ((6, 128), "slice", ([1, 0], [4, 128], [1, 1]), "cuts the sticks of dim 0"),
    "every other K": ((6, 128), "slice", ([0, 0], [3, 128], [2, 1]), "cuts the sticks of dim 0"),
    "K split inside a stick": ((6, 64), "expand", ([[0, 1], [2]], (2, 3, 64)), "cuts sticks: inner size 3"),
    "K and N merged": ((4, 64), "collapse", ([[0, 1]],), r"stick dims \[0, 1\] cannot become one dim"),
    "K and N of one": ((1, 1), "collapse", ([[0, 1]],), r"stick dims \[0, 1\] cannot become one dim"),
    "batch and a padded K": ((2, 5, 64), "collapse", ([[0, 1], [2]],), "dim 1 of size 5 is padded"),
    "batch and a K of one": ((2, 1, 64), "collapse", ([[0, 1], [2]],), "stick dim 1 of size 1 is padded"),
    "a K of one dropped": (
        (1, 64),
        "drop",
        ([0],),
        "dim 0 cannot be left out: the stick also has other dims",
    ),
    "a K of one renamed away": ((1, 64), "rename", ([None, 0], 1, [64]), "dim 0 cannot be left out"),
    "a K of one repeated": ((1, 64), "broadcast", ((3, 64), (0, 1)), "dim 0 of size 1 cannot be repeated"),
    "repeated in the stick": (
        (2, 64),
        "broadcast",
        ((2, 9, 64), (0, 2), 1),
        "dim 1 is repeated in the stick",
    ),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_views_that_touch_the_stick_are_refused_with_the_reason(case):
    shape, name, arguments, reason = ILLEGAL[case]
    with pytest.raises(ViewError, match=reason):
        view_step(weight(shape), name, arguments)


NO_STICK = [
    (
        (Digit(0), Digit(1, 1, 32)),
        "the last digit has positions of dim 1 that are not one stick of 64 elements",
    ),
    ((Digit(0), Digit(1)), "the last digit has positions of dim 1 that are not one stick of 64 elements"),
    ((Digit(1, 32), Digit(1, 4, 2), Digit(0, 1, 32)), "positions of dim 1 from 4 on, but 1 before"),
]


@pytest.mark.parametrize(("digits", "reason"), NO_STICK)
def test_last_digits_that_are_no_stick(digits, reason):
    with pytest.raises(ViewError, match=reason):
        BufferView.of(StickLayout(default_target(), (32, 70), "f16", digits))


# -- iteration spaces and orders ----------------------------------------------------------------------


def test_a_space_counts_whole_sticks_of_every_stick_dim():
    """K counts in twos, N in 64s."""
    view = weight((7, 70))
    space = Space((7, 70), (view, view), (frozenset({0, 1}),) * 2)
    assert (space.padded, space.units) == ((8, 128), (4, 2))


def test_a_copy_of_sticks_in_pieces():
    """[3, 4, 64] merged to 12 rows, with 12 rows of one dim: cut at 4, twos of K inside the cut."""
    views = [collapse(weight((3, 4, 64)), [[0, 1], [2]]), weight((12, 64))]
    space = refined(views)
    assert space.sizes == (3, 4, 64) and space.padded == (3, 4, 64)
    for before, after in zip(views, space.views, strict=True):
        assert after.stick_dims == (1, 2)
        np.testing.assert_array_equal(addresses(after).reshape(12, 64), addresses(before))


def test_a_copy_whose_cuts_part_a_stick():
    pieces = BufferView.of(
        StickLayout(default_target(), (12, 64), "i8", (Digit(0, 1, 3), Digit(1), Digit(0, 3), Digit(None)))
    )
    with pytest.raises(ViewError, match=r"the sticks of dim 0 do not fall on the cuts at \[3\]"):
        refined([pieces, weight((12, 64))])


def test_the_order_of_several_stick_dims_is_not_kept():
    """A result with one stick dim has the default order."""
    like = BufferView.of(
        StickLayout.for_tensor(default_target(), (3, 6, 256), "i8", [1, 0, 2], sticks=((1, 2), (2, 64)))
    )
    assert keep_order(default_target(), (3, 6, 256), "i8", 2, like) == StickLayout.for_tensor(
        default_target(), (3, 6, 256), "i8"
    )
