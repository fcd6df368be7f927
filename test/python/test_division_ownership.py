# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The elements that each core owns: checked element by element, and between operations with different dims."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import numpy as np
import pytest
from division_spaces import Operand, matmul_of, space_of
from layout_cases import addresses, random_form, random_layout, random_step, view_step

from spyre_mlir.division import CoreView, Division, core_view, local_bytes, mismatch, same_owners
from spyre_mlir.division.ownership import subview_mismatch
from spyre_mlir.layout import BufferView, Digit, StickLayout, ViewError
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view_transforms import collapse
from spyre_mlir.target.target import default_target


def divided(space: Space, *splits: int) -> Division:
    return Division.of(splits, space.units, space.reduced)


def last_view(space: Space, *splits: int) -> CoreView:
    """Return the elements of the result that each core owns."""
    return core_view(space, len(space.views) - 1, divided(space, *splits))


ROWS = space_of((512, 1024), Operand((0, 1)), Operand((0, 1)))


def test_rows_and_columns_of_a_tensor():
    """[512, 1024] lies as [16, 512, 64]: 32 slices of rows, and 4 x 8 with the rows fastest."""
    rows = last_view(ROWS, 32, 1)
    assert rows.regions[3] == (3 * 16 * 64, ((512 * 64, 16), (64, 16)))
    both = last_view(ROWS, 4, 8)
    assert both.regions[5] == (2 * 512 * 64 + 128 * 64, ((512 * 64, 2), (64, 128)))
    assert both.slices == ((512 * 64, 8), (64, 4))


def test_a_producer_and_a_reader_with_the_same_slices():
    """A row-wise reduction reads what a pointwise operation over the same rows wrote."""
    reduction = space_of((512, 1024), Operand((0, 1)), Operand((0,), (0, -1)))
    read = core_view(reduction, 0, divided(reduction, 32, 1))
    assert same_owners(last_view(ROWS, 32, 1), read) and mismatch(last_view(ROWS, 32, 1), read) is None
    columns = mismatch(last_view(ROWS, 1, 16), read)
    assert "the writer runs on 16 cores" in str(columns)


def test_the_order_of_dims_decides_who_owns_what():
    """The same 4 x 8 slices by an operation whose loops stand the other way round: other cores."""
    turned = space_of((1024, 512), Operand((1, 0)), Operand((1, 0)))
    written, read = last_view(ROWS, 4, 8), core_view(turned, 0, divided(turned, 8, 4))
    # A view with equal regions that was sliced along another stride, and was asked about before, has its own sentence.
    other = replace(read, slices=((65536, 8), (64, 4)))
    assert other == read and "8 slices along stride 65536" in str(subview_mismatch(written, other))
    assert "8 slices along stride 65536" in str(mismatch(written, other))
    assert str(mismatch(written, read)) == (
        "core division mismatch: core 1 writes 2 x 128 sticks 32768 x 64 elements apart from 8192"
        " (8 slices along stride 32768 and 4 slices along stride 64), but reads 2 x 128 sticks"
        " 32768 x 64 elements apart from 65536 (8 slices along stride 32768 and 4 slices along stride 64)"
    )
    again = replace(divided(turned, 8, 4), owners=Division.mixed_radix((8, 4), (1, 0)).owners)
    assert same_owners(written, core_view(turned, 0, again))


def test_dims_that_one_operation_sees_as_one():
    """[4, 128, 256] and [512, 256] of the same memory: 4 slices of the first dim are 4 slices of the rows."""
    layout = StickLayout.for_tensor(default_target(), (4, 128, 256), "f16", (1, 0, 2), stick_outermost=True)
    whole = BufferView.of(layout)
    apart = Space(whole.shape, (whole,), (frozenset({0, 1, 2}),))
    merged = collapse(whole, [[0, 1], [2]])
    together = Space(merged.shape, (merged,), (frozenset({0, 1}),))
    assert same_owners(last_view(apart, 4, 1, 2), last_view(together, 4, 2))
    assert same_owners(last_view(apart, 4, 2, 1), last_view(together, 8, 1)) is False  # dim 0 is fastest
    assert not same_owners(last_view(apart, 1, 8, 1), last_view(together, 8, 1))


def test_every_core_owns_what_is_broadcast():
    """A row vector under 32 slices of rows, and the columns of a matmul's weight under m4 n8."""
    space = space_of((512, 1024), Operand((1,)), Operand((0, 1)))
    assert set(core_view(space, 0, divided(space, 32, 1)).regions) == {(0, ((64, 16),))}
    product = matmul_of(64, 4096, 512)
    weight = core_view(product, 1, divided(product, 4, 8, 1))
    assert weight.regions[0] == weight.regions[3] != weight.regions[4] and len(set(weight.regions)) == 8


def test_a_split_reduction_leaves_parts_of_sums():
    """Partners own the same outputs, none of them finished; their inputs are whole values."""
    space = matmul_of(512, 64, 512)
    division = divided(space, 8, 1, 4)
    result = core_view(space, 2, division)
    assert result.partial and not core_view(space, 0, division).partial
    assert result.regions[0] == result.regions[3] != result.regions[4]
    assert "partial sums" in str(mismatch(result, result))


def test_a_slice_of_a_buffer_is_another_part_of_it():
    """Rows 64 to 127 on 4 cores, of a buffer whose 512 rows were written by 4 and by 32."""
    part = ROWS.views[0].slice((64, 0), (64, 1024), (1, 1))
    space = Space(part.shape, (part,), (frozenset({0, 1}),))
    read = last_view(space, 4, 1)
    assert [region.start for region in read.regions if region] == [64 * (64 + 16 * core) for core in range(4)]
    assert read.regions == last_view(ROWS, 32, 1).regions[4:8]
    assert "core 0 writes" in str(mismatch(last_view(ROWS, 4, 1), read))


def test_padding_beyond_the_room_of_a_tensor_is_not_owned():
    """65 rows that another operand holds in sticks: the second core has one of its 64 rows."""
    space = space_of((65, 128), Operand((0, 1)), Operand((1, 0)))
    assert space.padded == (128, 128)
    view = core_view(space, 0, divided(space, 2, 1))
    assert view.regions == ((0, ((65 * 64, 2), (64, 64))), (64 * 64, ((65 * 64, 2),)))


def test_a_core_without_work_owns_nothing():
    """65 sticks in 32 slices of 3: the last ten cores have none."""
    space = space_of((65 * 64,), Operand((0,)))
    regions = last_view(space, 32).regions
    assert regions.count(None) == 10 and regions[21] == (63 * 64, ((64, 2),)) and regions[22] is None


def test_slices_have_to_fall_on_pieces():
    """4 pieces of 96 rows, each with 2 columns of sticks: slices of 96, 192 or 48 rows fall on them."""
    layout = StickLayout(
        default_target(), (384, 128), "f16", (Digit(0, 96), Digit(1, 64), Digit(0, 1, 96), Digit(1, 1, 64))
    )
    view = BufferView.of(layout)
    space = Space(view.shape, (view,), (frozenset({0, 1}),))
    assert last_view(space, 4, 1).regions[1] == (2 * 96 * 64, ((64, 192),))
    assert last_view(space, 2, 1).regions[1] == (4 * 96 * 64, ((64, 384),))
    assert last_view(space, 8, 1).regions[3] == ((2 * 96 + 48) * 64, ((96 * 64, 2), (64, 48)))
    with pytest.raises(ViewError, match="elements 0 to 127 of dim 0 do not fall on its pieces of 96 x 4"):
        last_view(space, 3, 1)


# -- in LX --------------------------------------------------------------------------------------------


def test_each_core_has_room_for_a_full_share():
    """16 rows of 16 sticks; 8 columns of sticks; and of 65 sticks in 32 slices the largest, 3, on all cores."""
    assert local_bytes(ROWS, 1, divided(ROWS, 32, 1)) == 16 * 16 * 128
    assert local_bytes(ROWS, 1, divided(ROWS, 4, 2)) == 128 * 8 * 128
    line = space_of((65 * 64,), Operand((0,)))
    assert local_bytes(line, 0, divided(line, 32)) == 3 * 128


def test_what_lacks_a_dim_has_no_room_for_it():
    """A broadcast row has all its sticks on every core; a sum over the columns has one stick per row."""
    space = space_of((512, 1024), Operand((1,)), Operand((0,), (0, -1)), Operand((0, 1)))
    division = divided(space, 32, 1)
    assert [local_bytes(space, operand, division) for operand in range(3)] == [16 * 128, 16 * 128, 256 * 128]


def test_sticks_of_float32_are_half_as_long():
    """128 columns are 4 sticks of float32 and 2 of float16, which are what can be sliced."""
    space = space_of((8, 128), Operand((0, 1), dtype="f32"), Operand((0, 1)))
    assert [local_bytes(space, operand, divided(space, 1, 2)) for operand in (0, 1)] == [8 * 2 * 128, 8 * 128]


def test_lx_keeps_a_slice_without_what_is_between():
    """Rows 16 to 31 of every column of sticks, without gaps; a smaller last slice has the same strides."""
    view = last_view(ROWS, 32, 1)
    assert view.image == ((512 * 64, 16), (64, 16))
    odd = space_of((65, 128), Operand((0, 1)))
    assert last_view(odd, 4, 1).image == ((65 * 64, 2), (64, 17))
    assert last_view(odd, 4, 1).regions[3] == (3 * 17 * 64, ((65 * 64, 2), (64, 14)))


def test_one_region_may_have_two_images():
    """Beyond the 65 rows of a buffer goes an operation that has them in a stick: its columns lie 128 rows apart."""
    plain = space_of((65, 128), Operand((0, 1)))
    beyond = space_of((65, 128), Operand((0, 1)), Operand((1, 0)))
    written, read = last_view(plain, 1, 1), core_view(beyond, 0, divided(beyond, 1, 1))
    assert same_owners(written, read)
    assert str(mismatch(written, read)) == (
        "core division mismatch: each core stores 130 sticks 64 elements apart from 0, but the reader expects"
        " 2 x 128 sticks 4160 x 64 elements apart from 0"
    )


# -- every element ------------------------------------------------------------------------------------


def _sticks(view: CoreView, core: int, per_stick: int) -> set[int]:
    region = view.regions[core]
    if region is None:
        return set()
    positions = itertools.product(*(range(count) for _, count in region.steps))
    strides = [stride for stride, _ in region.steps]
    return {
        (region.start + sum(at * stride for at, stride in zip(position, strides, strict=True))) // per_stick
        for position in positions
    }


def _touched(space: Space, operand: int, division: Division) -> list[set[int]]:
    """Return the sticks of all elements, padded ones too, whose index is in the slices of a core."""
    view, per_stick = space.views[operand], space.views[operand].elements_per_stick
    where = addresses(replace(view, shape=space.padded)) // per_stick
    index = np.indices(space.padded)
    exists = np.ones(space.padded, bool)
    for dim in range(len(space.padded)):
        rooms = [axis.divisor * axis.size for axis in view.axes if axis.dim == dim]
        exists &= index[dim] < max(rooms, default=space.padded[dim])
    touched = []
    for own in division.owners:
        mine = exists.copy()
        for dim, (slice_, split) in enumerate(zip(own, division.splits, strict=True)):
            share = math.ceil(space.units[dim] / split) * (space.padded[dim] // space.units[dim])
            mine &= index[dim] // share == slice_
        touched.append(set(where[mine].tolist()))
    return touched


def _random_view(rng: random.Random) -> BufferView:
    """A layout, perhaps seen through a slice, a transpose, a collapse or an expand that it allows."""
    view = BufferView.of(rng.choice((random_layout, random_form))(rng, 1200))
    name, arguments = random_step(rng, view.shape)
    try:
        return view_step(view, name, arguments)
    except ViewError:
        return view


@pytest.mark.parametrize("seed", range(300))
def test_each_core_owns_the_sticks_of_its_elements(seed):
    """Random views under random divisions, even and uneven, with an operand that has another stick dim."""
    rng = random.Random(seed)
    view = _random_view(rng)
    rank = len(view.shape)
    other = BufferView.of(
        StickLayout.for_tensor(default_target(), view.shape, "f16", rng.sample(range(rank), rank))
    )
    dims = frozenset(range(rank))
    space = Space(view.shape, (view, other), (dims, dims))
    splits = [min(rng.choice((1, 2, 3, 4)), units) for units in space.units]
    division = Division.mixed_radix(splits, rng.sample(range(rank), rank))
    try:
        found = core_view(space, 0, division)
    except ViewError:
        assert view.why_not_addressable() is not None
        return
    touched = _touched(space, 0, division)
    for core in range(division.cores):
        assert _sticks(found, core, view.elements_per_stick) == touched[core], f"core {core}"


@pytest.mark.parametrize("seed", range(100))
def test_equal_views_are_equal_ownership(seed):
    """Two operations see one buffer through other dims: the views are equal where the sticks of all cores are."""
    rng = random.Random(seed)
    layout = StickLayout.for_tensor(default_target(), (4, 6, 128), "f16", (1, 0, 2), stick_outermost=True)
    seen = [BufferView.of(layout), collapse(BufferView.of(layout), [[0, 1], [2]])]
    seen.append(seen[0].transpose((2, 0, 1)))
    found, touched = [], []
    for view in rng.sample(seen, 2):
        rank = len(view.shape)
        space = Space(view.shape, (view,), (frozenset(range(rank)),))
        splits = [rng.choice([n for n in (1, 2, 4) if units % n == 0]) for units in space.units]
        division = Division.mixed_radix(splits, rng.sample(range(rank), rank))
        found.append(core_view(space, 0, division))
        touched.append(_touched(space, 0, division))
    assert same_owners(*found) == (touched[0] == touched[1])
    assert (mismatch(*found) is None) == (touched[0] == touched[1])


def test_a_reader_of_fewer_sticks():
    """A writer whose room is 5 sticks a row, a reader of 3: the first ones, at the same places of LX.

    Fewer rows would have other addresses: the number of rows determines the index of a stick.
    """
    layout = StickLayout.for_tensor(default_target(), (130, 320), "f16")
    whole = BufferView.of(layout)

    def view_of_part(rows: int, columns: int) -> CoreView:
        part = Space((rows, columns), (whole,), (frozenset({0, 1}),))
        return core_view(part, 0, Division.of((1, 1), part.units))

    written = view_of_part(130, 320)
    assert mismatch(written, view_of_part(130, 192)) is None
    assert mismatch(written, view_of_part(130, 64)) is None
    assert mismatch(view_of_part(130, 192), written) is not None
    assert "but reads" in str(mismatch(written, view_of_part(128, 320)))
