# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""User-defined layout constraints: the conventions of docs/layouts.md, and messages for invalid constraints."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from layout_cases import ELEMENTS, positions, positions_by_order, random_form, random_order, random_shape

from spyre_mlir.errors import CompileError
from spyre_mlir.layout import Digit, StickLayout
from spyre_mlir.layout.requests import LayoutRequest, why_not_a_layout, with_element_type
from spyre_mlir.target.target import default_target

#: Host size, request, device size, stride map: the rows of test_layout.py, by stick dims where it names a dim order.
REQUESTS = [
    ([512, 8, 256], {}, [8, 4, 512, 64], [256, 64, 2048, 1]),
    ([512, 8, 256], {"stick_dims": [2]}, [8, 4, 512, 64], [256, 64, 2048, 1]),
    ([512, 8, 256], {"stick_dims": [-1]}, [8, 4, 512, 64], [256, 64, 2048, 1]),
    ([512, 8, 256], {"stick_dims": [1]}, [256, 1, 512, 64], [1, 16384, 2048, 256]),
    ([512, 8, 256], {"stick_dims": [0]}, [256, 8, 8, 64], [1, 131072, 256, 2048]),
    ([512, 8, 256], {"dim_order": [2, 1, 0]}, [8, 8, 256, 64], [256, 131072, 1, 2048]),
    ([512, 8, 256], {"dim_order": [2, 1, 0], "stick_dims": [0]}, [8, 8, 256, 64], [256, 131072, 1, 2048]),
    ([512, 256], {"stick_dims": []}, [256, 1, 512, 64], [1, -1, 256, -1]),
    ([512, 256], {"dim_order": [0, 1, -1]}, [256, 1, 512, 64], [1, -1, 256, -1]),
    ([1024, 256], {"stick_outermost": True}, [4, 1024, 64], [64, 256, 1]),
    ([2, 1024, 256], {"stick_outermost": True}, [4, 1024, 2, 64], [64, 256, 262144, 1]),
    ([], {"stick_dims": []}, [1, 64], [-1, -1]),
]


@pytest.mark.parametrize(("shape", "given", "device_size", "stride_map"), REQUESTS)
def test_conventions(shape, given, device_size, stride_map):
    layout = LayoutRequest.of_mapping(given, "'x'").layout(default_target(), shape, "f16", "'x'")
    assert (list(layout.device_size), list(layout.stride_map)) == (device_size, stride_map)


def test_sticks_of_several_dims():
    """The operands of int8 and int4 matmuls: the innermost dim of the stick is named last."""
    layout = LayoutRequest((0, 1)).layout(default_target(), (512, 256), "i8", "'x'")
    assert layout.digits == (Digit(1, 2), Digit(0, 64), Digit(0, 1, 64), Digit(1, 1, 2))
    assert LayoutRequest((0, 1)).layout(default_target(), (512, 256), "i4", "'x'").device_size == (
        64,
        8,
        64,
        4,
    )
    assert LayoutRequest((1, 0, 1)).layout(default_target(), (512, 256), "i4", "'x'").device_size[-3:] == (
        8,
        2,
        16,
    )


def test_types_of_the_host_have_the_sticks_of_the_device():
    """Booleans and bf16 are 2 bytes on the device, i64 is 4."""
    held = {
        each: LayoutRequest().layout(default_target(), (512,), each, "'x'").device_size[-1]
        for each in ("i1", "bf16", "i64")
    }
    assert held == {"i1": 64, "bf16": 64, "i64": 32}


REFUSED = {
    "a dim too far": ({"stick_dims": [2]}, "has the stick dim 2, but the tensor has rank 2"),
    "before the first": ({"stick_dims": [-3]}, "has the stick dim -3, but the tensor has rank 2"),
    "a stick dim twice": ({"stick_dims": [1, -1]}, "has the stick_dims [1, -1], which name a dim twice"),
    "a missing dim": ({"dim_order": [1]}, "which must name each of the 2 dims once"),
    "a dim twice": ({"dim_order": [1, 1]}, "which must name each of the 2 dims once"),
    "sparse too early": ({"dim_order": [0, -1, 1]}, "which must name each of the 2 dims once"),
    "contradiction": ({"dim_order": [0, 1], "stick_dims": [0]}, "but its dim_order is [0, 1]"),
    "another contradiction": ({"dim_order": [0, 1], "stick_dims": []}, "but its dim_order is [0, 1]"),
    "a number": ({"stick_dims": 0}, "The stick_dims of the layout of 'x' must be a list of integers, not 0"),
    "floats": ({"dim_order": [0.0, 1.0]}, "must be a list of integers"),
    "booleans": ({"stick_dims": [True]}, "must be a list of integers"),
    "another name": ({"sticks": [0]}, "has no 'sticks'; it has stick_dims, dim_order, stick_outermost"),
    "no mapping": ([0], "is a mapping such as {'stick_dims': [0]}, not [0]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    given, words = REFUSED[case]
    with pytest.raises(CompileError) as raised:
        LayoutRequest.of_mapping(given, "'x'").layout(default_target(), (3, 70), "f16", "'x'")
    assert words in raised.value.message and "'x'" in raised.value.message and raised.value.message[-1] == "."


def test_types_that_the_device_has_not():
    with pytest.raises(
        CompileError, match="The layout of 'x' cannot be chosen: the device does not support f64"
    ):
        LayoutRequest().layout(default_target(), (3,), "f64", "'x'")


def test_text_of_the_command_line():
    assert LayoutRequest.parse("stick-dims=0 stick-outermost") == LayoutRequest((0,), None, True)
    assert LayoutRequest.parse("dim-order=1,0,-1") == LayoutRequest(None, (1, 0, -1))
    assert LayoutRequest.parse("stick-dims=") == LayoutRequest(())


# -- other sticks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(100))
def test_the_same_order_in_another_type(seed):
    """From f32 to f16 and back: where the definition by dim order puts the elements of that type."""
    rng = random.Random(seed)
    shape, outermost = random_shape(rng, seed % 5), rng.random() < 0.5
    order = random_order(rng, len(shape))
    layout = StickLayout.for_tensor(default_target(), shape, "f32", order, outermost)
    for dtype in ("f16", "f32"):
        layout = with_element_type(layout, dtype)
        where, size = positions_by_order(shape, ELEMENTS[dtype], order, outermost)
        assert layout.device_size == size
        np.testing.assert_array_equal(positions(layout), where)


def test_sticks_that_cannot_be_joined():
    """Padding for three sticks of 32 is not padding for whole sticks of 64; nor are half sticks between other dims."""
    padded = StickLayout(default_target(), (70,), "f32", (Digit(0, 32, 3), Digit(0, 1, 32)))
    pieces = StickLayout(
        default_target(), (128, 2), "f32", (Digit(0, 64), Digit(1), Digit(0, 32, 2), Digit(0, 1, 32))
    )
    for layout in (padded, pieces):
        with pytest.raises(ValueError, match="dim 0 is not cut in whole sticks of 64"):
            with_element_type(layout, "f16")


# -- valid layouts ------------------------------------------------------------------------------------


def test_maps_are_layouts_where_no_two_elements_share_a_place():
    """Every map of one or two digits and a lane over two dims, by brute force over its elements."""
    parts = [Digit(None), *(Digit(d, n, m) for d in (0, 1) for n in (1, 2, 64) for m in (None, 2))]
    reasons = []
    for outer in (*itertools.product(parts, repeat=1), *itertools.product(parts, repeat=2)):
        for lane in (Digit(None), Digit(1, 1, 64)):
            layout = StickLayout(default_target(), (4, 100), "f16", (*outer, lane))
            where, reason = positions(layout), why_not_a_layout(layout)
            reasons.append(reason)
            if reason is None or "share places" in reason:
                assert (len(np.unique(where)) < where.size) == (reason is not None), layout
    assert reasons.count(None) == 6 and reasons.count("the digits of d1 overlap") > 5


@pytest.mark.parametrize("seed", range(100))
def test_layouts_are_layouts(seed):
    assert why_not_a_layout(random_form(random.Random(seed))) is None


def test_sticks_of_another_length_are_no_layout():
    layout = StickLayout(default_target(), (70,), "f32", (Digit(0, 64), Digit(0, 1, 64)))
    assert why_not_a_layout(layout) == "its last result must be 'd0 mod 32' or 0 for f32"
    assert why_not_a_layout(StickLayout(default_target(), (), "f32", ())) == "it has no results"
