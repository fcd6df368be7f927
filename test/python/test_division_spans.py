# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Span reduction: the span of one core in a tensor, and the fewest slices that keep it within the limit."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest
from division_spaces import Operand, legal_splits, matmul_of, random_space, space_of
from layout_cases import addresses, random_layout

from spyre_mlir.division import SpanError, required_splits, span_bytes, work_distribution
from spyre_mlir.layout import Axis, BufferView, Digit, StickLayout
from spyre_mlir.layout.space import Space
from spyre_mlir.target.target import default_target

MEBIBYTE = 1 << 20
TRANSPOSED = space_of((131072, 5120), Operand((0, 1)), Operand((1, 0)))


def test_a_span_is_from_the_first_to_the_last_stick():
    """[512, 240] fp16 has the device size [4, 512, 64]: 4 columns of sticks, then rows, then one stick."""
    space = space_of((512, 240), Operand((0, 1)))
    column = 512 * 128
    assert [span_bytes(space, 0, splits) for splits in ((1, 1), (1, 2), (2, 2))] == [
        4 * column,
        2 * column,
        column + column // 2,
    ]
    assert [span_bytes(space, 0, splits) for splits in ((1, 4), (8, 4), (512, 4))] == [
        column,
        column // 8,
        128,
    ]


def test_a_part_of_a_tensor_has_the_strides_of_all_of_it():
    """Rows 0 to 15 of 512: the columns are still 512 rows apart."""
    part = space_of((512, 240), Operand((0, 1))).views[0].slice((0, 0), (16, 240), (1, 1))
    space = Space((16, 240), (part,), (frozenset({0, 1}),))
    assert span_bytes(space, 0, (1, 1)) == (3 * 512 + 16) * 128 and span_bytes(space, 0, (1, 4)) == 16 * 128


def _window() -> Space:
    """Return a window of 3 over 64 places, 1280 bytes apart: both dims iterate over the same positions."""
    axes = (Axis(0, 1, 64, 640), Axis(1, 1, 3, 640))
    view = BufferView((64, 3), "f16", axes, None, 64, target=default_target())
    return Space((64, 3), (view,), (frozenset({0, 1}),))


def test_dims_that_run_through_the_same_positions_count_together():
    """A core with 16 of 64 places sees 18 positions, with one position of the window 16."""
    spans = [span_bytes(_window(), 0, splits) for splits in ((1, 1), (4, 1), (4, 3))]
    assert spans == [65 * 1280 + 128, 17 * 1280 + 128, 15 * 1280 + 128]


def test_the_fewest_cores_come_before_the_largest_span():
    """16 positions fit: 8 x 1 slices see 10, 4 x 3 see 16; with 3 committed only the latter are left."""
    assert required_splits(_window(), 32, 16 * 1280) == (8, 1)
    assert required_splits(_window(), 32, 16 * 1280, committed=(1, 3)) == (4, 3)


def test_a_dim_in_pieces():
    """4 pieces of 96 rows, each with 2 columns of sticks: slices of 48 rows begin and end inside one piece."""
    layout = StickLayout(
        default_target(), (384, 128), "f16", (Digit(0, 96), Digit(1, 64), Digit(0, 1, 96), Digit(1, 1, 64))
    )
    space = Space((384, 128), (BufferView.of(layout),), (frozenset({0, 1}),))
    column = 96 * 128
    assert [span_bytes(space, 0, splits) for splits in ((1, 1), (4, 1))] == [8 * column, 2 * column]
    assert [span_bytes(space, 0, splits) for splits in ((4, 2), (8, 2))] == [column, column // 2]
    assert span_bytes(space, 0, (6, 2)) == 3 * column, "the second slice of 64 rows touches two pieces"


def test_a_slice_that_goes_on_in_the_next_piece():
    """Row 0 of all 4 pieces, then row 1, ..: the second slice of 64 rows has the last and the first of 96."""
    layout = StickLayout(default_target(), (384, 64), "f16", (Digit(0, 1, 96), Digit(0, 96), Digit(1, 1, 64)))
    space = Space((384, 64), (BufferView.of(layout),), (frozenset({0, 1}),))
    assert [span_bytes(space, 0, (n, 1)) // (4 * 128) for n in (1, 6, 8)] == [96, 95, 47]


@pytest.mark.parametrize("seed", range(100))
def test_no_core_reaches_further_than_its_span(seed):
    """Random layouts, also with dims in pieces, and random slices: from the first to the last element."""
    rng = random.Random(seed)
    view = BufferView.of(random_layout(rng, 1200))
    space = Space(view.shape, (view,), (frozenset(range(len(view.shape))),))
    splits = [min(rng.choice((1, 2, 3, 4, 8)), units) for units in space.units]
    where, index = addresses(view), np.indices(view.shape)
    shares = [space.granules[dim] * math.ceil(space.units[dim] / n) for dim, n in enumerate(splits)]
    for own in itertools.product(*map(range, splits)):
        mine = np.ones(view.shape, bool)
        for dim, (slice_, share) in enumerate(zip(own, shares, strict=True)):
            mine &= index[dim] // share == slice_
        if mine.any():
            reach = (int(np.ptp(where[mine])) + 1) * (128 // view.elements_per_stick)
            assert reach <= span_bytes(space, 0, splits)


def test_the_reduction_of_a_large_product_is_split():
    """A[8192, 32768] is 512 MiB with its sticks outermost, W[32768, 4096] 256 MiB: K = 2 and half the rows of A.

    The limit is 4 KiB less than 256 MiB, so all rows do not fit.
    """
    space = matmul_of(8192, 4096, 32768)
    assert [span_bytes(space, at, (1, 1, 1)) // MEBIBYTE for at in range(3)] == [512, 256, 64]
    assert span_bytes(space, 0, (1, 1, 2)) == 256 * MEBIBYTE == default_target().span_bytes + 4096
    assert required_splits(space, 32) == (2, 1, 2)
    assert required_splits(space, 32, limit_bytes=256 * MEBIBYTE) == (1, 1, 2)
    assert work_distribution(space.units, space.reduced, 32, (2, 1, 2)) == (16, 1, 2)


def test_a_transposed_weight_needs_both_dims():
    """[131072, 5120] in [80, 131072, 64], out [2048, 5120, 64]: 5 and 8 slices, too many together for 32.

    5 slices are 256 MiB each, which is too much by 4 KiB where a core has all rows.
    """
    assert [view.layout.device_size for view in TRANSPOSED.views] == [(80, 131072, 64), (2048, 5120, 64)]
    assert required_splits(TRANSPOSED, 32, exempt=frozenset({1})) == (1, 8)
    assert required_splits(TRANSPOSED, 32, 256 * MEBIBYTE, exempt=frozenset({1})) == (1, 5)
    assert required_splits(TRANSPOSED, 32, exempt=frozenset({0})) == (8, 1)
    assert required_splits(TRANSPOSED, 40) == (8, 5)
    with pytest.raises(SpanError, match=r"spans 320864256 bytes.* 268431360.*\[8, 4\] slices of"):
        required_splits(TRANSPOSED, 32)


def test_what_is_committed_is_a_lower_bound():
    """5 needed where the rows are in two: a committed 4 makes 5, 8 stays 8; the other dim keeps its 2."""
    only_input = {"exempt": frozenset({1})}
    assert required_splits(TRANSPOSED, 32, committed=(2, 4), **only_input) == (2, 5)
    assert required_splits(TRANSPOSED, 32, committed=(1, 8), **only_input) == (1, 8)
    with pytest.raises(ValueError, match="need more than 8 cores"):
        required_splits(TRANSPOSED, 8, committed=(3, 3))


def test_a_dim_that_must_stay_whole_is_not_split():
    with pytest.raises(SpanError, match=r"dims \[1\] must stay whole") as error:
        required_splits(TRANSPOSED, 32, blocked=frozenset({1}))
    assert error.value.operand == 0


def test_a_prime_outermost_dim_cannot_be_split():
    """8191 rows of 64 KiB: there is no divisor up to 32, and splits of inner dims hardly help."""
    space = space_of((8191, 32, 1024), Operand((0, 1, 2), (1, 0, 2)))
    assert space.views[0].layout.device_size == (8191, 16, 32, 64)
    with pytest.raises(SpanError, match=r"cannot be split legally: .* slices of \[8191, 32, 16\]"):
        required_splits(space, 32)


def test_an_outermost_dim_of_few_positions_is_split_whole_and_the_next_one_too():
    """3 x 4 parts of 120 MiB: 3 slices leave 4 parts, of which 2 fit."""
    space = space_of((3, 4, 15 << 16, 64), Operand((0, 1, 2, 3), (2, 0, 1, 3)))
    assert required_splits(space, 32) == (3, 2, 1, 1)
    with pytest.raises(SpanError):
        required_splits(space, 5)


def test_two_reduction_dims_are_an_error():
    """A sum over both outer dims of a tensor of which one slice of each would fit."""
    space = space_of((3, 4, 15 << 16, 64), Operand((0, 1, 2, 3), (2, 0, 1, 3)), Operand((2, 3)))
    with pytest.raises(SpanError, match=r"only if reduction dims \[0, 1\] are split \[3, 2\] times"):
        required_splits(space, 32)


def test_types_of_two_sizes_share_a_stick_dim():
    """f32 sticks have 32 elements, but division units have 64: 70 units, of which 5 slices of 14 fit."""
    space = space_of((1 << 16, 70 * 64), Operand((0, 1)), Operand((0, 1), dtype="f32"))
    assert space.units == (1 << 16, 70)
    assert span_bytes(space, 1, (1, 1)) == 2 * span_bytes(space, 0, (1, 1)) == 1120 * MEBIBYTE
    assert required_splits(space, 32) == (1, 5) and span_bytes(space, 1, (1, 5)) == 224 * MEBIBYTE


@pytest.mark.parametrize("seed", range(200))
def test_the_fewest_slices_that_fit(seed):
    """Random spaces: legal splits with fewer slices do not fit; an error if no splits fit."""
    rng = random.Random(seed)
    sizes = [rng.choice((1, 2, 3, 4, 7, 12, 30, 64, 65, 192, 256)) for _ in range(rng.randint(1, 4))]
    space, cores = random_space(rng, sizes), rng.randint(2, 32)
    whole = max(_definition(space, at, (1,) * len(sizes)) for at in range(len(space.views)))
    limit = max(128, whole // rng.choice((1, 2, 3, 4, 6, 12)))
    fitting = [splits for splits in legal_splits(space.units, cores) if _fits(space, splits, limit)]
    legal = [splits for splits in fitting if sum(splits[dim] > 1 for dim in space.reduced) <= 1]
    if not legal:
        with pytest.raises(SpanError):
            required_splits(space, cores, limit)
        return
    found = required_splits(space, cores, limit)
    assert found in legal
    assert math.prod(found) == min(map(math.prod, legal))


def _fits(space: Space, splits: tuple[int, ...], limit: int) -> bool:
    return all(_definition(space, at, splits) <= limit for at in range(len(space.views)))


def _definition(space: Space, operand: int, splits: tuple[int, ...]) -> int:
    """Position by position: the steps from the first to the last element of the first slices, and a stick."""
    view, steps = space.views[operand], 0
    for axis in view.axes:
        share = space.padded[axis.dim] // splits[axis.dim]
        touched = {at // axis.divisor for at in range(share)} & set(range(axis.size))
        steps += (len(touched) - 1) * axis.stride
    return steps * (4 if view.dtype == "f32" else 2) + 128


def test_more_slices_never_span_more():
    """Over random spaces and all pairs of splits of which one has at least as many slices of each dim."""
    rng = random.Random(0)
    for _ in range(30):
        space = random_space(rng, [rng.choice((4, 6, 64, 128, 192)) for _ in range(2)])
        spans = {splits: span_bytes(space, 0, splits) for splits in legal_splits(space.units, 12)}
        for few, many in itertools.permutations(spans, 2):
            if all(a <= b for a, b in zip(few, many, strict=True)):
                assert spans[many] <= spans[few]
