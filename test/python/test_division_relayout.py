# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Relayouts and copies: the sticks of each core before and after, compared with all sticks listed one by one."""

from __future__ import annotations

import itertools
import random

import pytest
from division_spaces import Operand, legal_splits, matmul_of, space_of

from spyre_mlir.division import Division, core_view
from spyre_mlir.division.ownership import CoreView
from spyre_mlir.division.relayout import CopyDivision, copy_division, distribution_of, held_view, relayout
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.space import Space, refined
from spyre_mlir.layout.view import BufferView
from spyre_mlir.target.target import default_target

SHAPE = (8, 32, 256)
COPY = refined([BufferView.of(StickLayout.for_tensor(default_target(), SHAPE, "f16"))] * 2)
MATMUL = matmul_of(512, 1024, 256)
FIRST = refined([MATMUL.views[0].rename((0, None, 1), 2, (512, 256))] * 2)


def sticks(view: CoreView) -> list[set[int]]:
    """The sticks that each core has, one by one."""
    found = []
    for region in view.regions:
        if region is None:
            found.append(set())
            continue
        ranges = [range(0, stride * count, stride) for stride, count in region.steps]
        found.append({region.start + sum(steps) for steps in itertools.product(*ranges)})
    return found


def held(space: Space, distribution) -> list[set[int]]:
    """The sticks of a distribution over the dims of a copy, by the strides of the view."""
    view, found = space.views[0], []
    for own in distribution.owners:
        if own is None:
            found.append(set())
            continue
        axes = []
        for dim, (split, slice_) in enumerate(zip(distribution.splits, own, strict=True)):
            share = -(-space.units[dim] // split)
            stride = next((axis.stride for axis in view.axes if axis.dim == dim), 0)
            units = range(slice_ * share, min((slice_ + 1) * share, space.units[dim]))
            axes.append([unit * stride for unit in units])
        found.append({sum(steps) for steps in itertools.product(*axes)})
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_distribution_holds_what_its_view_says(seed: int):
    """Random divisions of three dims, in any order of the core ids."""
    rng = random.Random(seed)
    splits = rng.choice(legal_splits(COPY.units, 32))
    order = rng.sample(range(3), 3)
    view = core_view(COPY, 1, Division.mixed_radix(splits, order))
    found = distribution_of(COPY, 0, view)
    assert found is not None
    assert held(COPY, found) == sticks(view)


@pytest.mark.parametrize("seed", range(40))
def test_a_copy_gives_each_core_what_a_matmul_reads(seed: int):
    """The first matrix of a matmul in random slices and core orders: cores that differ in columns share rows."""
    rng = random.Random(seed)
    splits = rng.choice(legal_splits(MATMUL.units, 32))
    wanted = core_view(MATMUL, 0, Division.mixed_radix(splits, rng.sample(range(3), 3)))
    made = copy_division(FIRST, wanted)
    assert made is not None and made.copies == splits[1]
    space = FIRST.repeated(made.copies)
    assert sticks(core_view(space, 1, made.division)) == sticks(wanted)
    assert len(set(made.division.owners)) == len(made.division.owners)


def test_the_finishing_cores_hold_a_split_sum():
    """M 2 x K 4: core 3 and core 7 hold the halves, the others nothing."""
    division = Division.of((2, 1, 4), MATMUL.units, MATMUL.reduced)
    view = held_view(MATMUL, 2, division)
    assert [core for core, region in enumerate(view.regions) if region is not None] == [3, 7]
    assert not view.partial
    everything = set().union(*sticks(core_view(MATMUL, 2, Division.mixed_radix((1, 1, 1)))))
    assert set().union(*sticks(view)) == everything


def test_a_relayout_from_finishing_cores():
    """The slices of cores 3 and 7 go to eight cores, each a slice of the columns."""
    division = Division.of((2, 1, 4), MATMUL.units, MATMUL.reduced)
    result = refined([MATMUL.views[2].rename((0, 1, None), 2, (512, 1024))] * 2)
    found = relayout(result, held_view(MATMUL, 2, division), Division.mixed_radix((1, 8)))
    assert found is not None
    assert found.source.splits == (2, 1)
    assert [own for own in found.source.owners if own is not None] == [(0, 0), (1, 0)]
    assert found.target.owners == tuple((0, core) for core in range(8))


def test_cores_that_the_copy_does_not_run_on_hold_nothing():
    """4 cores read all data of 8 cores, and 8 cores all data of 4: both distributions have 8 cores."""
    view = core_view(COPY, 1, Division.mixed_radix((8, 1, 1)))
    gathered = relayout(COPY, view, Division.mixed_radix((1, 4, 1)))
    assert gathered is not None and None not in gathered.source.owners
    assert gathered.target.owners[:4] == ((0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 0))
    assert gathered.target.owners[4:] == (None,) * 4
    fewer = core_view(COPY, 1, Division.mixed_radix((4, 1, 1)))
    found = relayout(COPY, fewer, Division.mixed_radix((1, 8, 1)))
    assert found is not None and found.source.owners[4:] == (None,) * 4


def test_what_is_not_whole_has_no_distribution():
    """A part of a buffer, and sums that are not finished, are nothing that the ring could copy."""
    view = core_view(COPY, 1, Division.mixed_radix((8, 1, 1)))
    half = CoreView(view.regions[:4], False, view.slices, view.image)
    assert distribution_of(COPY, 0, half) is None
    partial = core_view(MATMUL, 2, Division.of((2, 1, 4), MATMUL.units, MATMUL.reduced))
    result = refined([MATMUL.views[2].rename((0, 1, None), 2, (512, 1024))] * 2)
    assert partial.partial and distribution_of(result, 0, partial) is None


def test_the_innermost_dim_of_lx_is_first():
    """The order follows the strides: rows within a column of sticks, here."""
    view = core_view(COPY, 1, Division.mixed_radix((8, 1, 1)))
    found = relayout(COPY, view, Division.mixed_radix((1, 8, 1)))
    assert found is not None
    strides = {axis.dim: axis.stride for axis in COPY.views[1].axes}
    assert sorted(range(3), key=strides.__getitem__) == list(found.order)


def test_a_sparse_buffer_has_one_stick_per_position():
    """Row sums: every row is a stick, so any division of the rows is a distribution."""
    sums = space_of((512, 64), Operand((0, 1)), Operand((0,), (0, -1))).views[1]
    space = refined([sums.rename((0, None), 1, (512,))] * 2)
    view = core_view(space, 1, Division.mixed_radix((16,)))
    found = distribution_of(space, 0, view)
    assert found is not None and found.splits == (16,)


def test_digits_are_numbers_in_mixed_radix():
    """Two digits of one dim, the first one fastest."""
    made = CopyDivision((4, 2), (((1, 2), (4, 2)), ((2, 2),)))
    assert made.division.owners == ((0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (3, 0), (2, 1), (3, 1))
