# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A division that follows another operation: it owns the same regions, or there is none."""

from __future__ import annotations

import itertools
import math
import random

from division_spaces import Operand, matmul_of, space_of

from spyre_mlir.division import CoreView, Division, core_view
from spyre_mlir.division.matching import matching_division, same_slices
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.space import Space, refined
from spyre_mlir.layout.view_transforms import expand
from spyre_mlir.target.target import default_target

ROWS = space_of((512, 1024), Operand((0, 1)), Operand((0, 1)))
TURNED = space_of((1024, 512), Operand((1, 0)), Operand((1, 0)))


def owned(space: Space, operand: int, *splits: int) -> CoreView:
    return core_view(space, operand, Division.mixed_radix(splits))


def test_the_loops_of_the_reader_stand_the_other_way_round():
    """The slices change places, and so does the order of the cores."""
    assert matching_division(TURNED, 0, owned(ROWS, 1, 4, 8)) == ((8, 4), (1, 0))


def test_a_copy_is_divided_as_its_reader():
    """In the buffer's own coordinates."""
    whole = BufferView.of(StickLayout.for_tensor(default_target(), (512, 1024), "f16"))
    assert matching_division(refined([whole, whole]), 0, owned(ROWS, 0, 32, 1)) == ((32, 1), (0, 1))


def test_dims_that_the_operand_lacks_stay_whole():
    """A vector in 16 slices, as a reduction leaves it, read by an operation over the matrix."""
    broadcast = space_of((512, 1024), Operand((0, 1)), Operand((1,)), Operand((0, 1)))
    vector = space_of((512, 1024), Operand((0, 1)), Operand((1,)))
    found = matching_division(broadcast, 1, owned(vector, 1, 1, 16))
    assert found is not None and found[0] == (1, 16)


def test_none_where_cores_share_a_region():
    """Both of 2 cores read all columns of the weight."""
    product = matmul_of(128, 256, 512)
    shared = owned(product, 1, 2, *[1] * (len(product.sizes) - 1))
    assert len(set(shared.regions)) == 1
    whole = space_of((256, 512), Operand((0, 1)), Operand((0, 1)))
    assert matching_division(whole, 0, shared) is None


def test_exactly_the_divisions_that_own_the_same():
    """Against all splits in all orders of a second operation over the same buffer, 200 random ones."""
    rng = random.Random(11)
    kinds = [ROWS, TURNED, *_reshaped()]
    hits = 0
    for _ in range(200):
        one, other = rng.choice(kinds), rng.choice(kinds)
        rank = len(one.sizes)
        splits = tuple(rng.choice((1, 1, 2, 4, 8)) for _ in range(rank))
        if math.prod(splits) > 32 or any(n > u for n, u in zip(splits, one.units, strict=True)):
            continue
        order = rng.sample(range(rank), rank)
        wanted = core_view(one, 0, Division.mixed_radix(splits, order))
        possible = {
            Division.mixed_radix(counts, turn).owners
            for counts in itertools.product((1, 2, 4, 8, 16, 32), repeat=len(other.sizes))
            if math.prod(counts) == math.prod(splits)
            and all(n <= u for n, u in zip(counts, other.units, strict=True))
            for turn in itertools.permutations(range(len(other.sizes)))
            if core_view(other, 0, Division.mixed_radix(counts, turn)) == wanted
        }
        found = matching_division(other, 0, wanted)
        assert (found is None) == (not possible)
        if found is not None:
            assert Division.mixed_radix(*found).owners in possible
            hits += 1
    assert hits > 50


def _reshaped() -> list[Space]:
    """The buffer of [512, 1024] seen as [8, 64, 1024] and with both dims turned."""
    whole = BufferView.of(StickLayout.for_tensor(default_target(), (512, 1024), "f16"))
    apart = expand(whole, [[0, 1], [2]], (8, 64, 1024))
    return [Space(apart.shape, (apart, apart), (frozenset({0, 1, 2}),) * 2)]


def part_of_rows(first: int, rows: int) -> Space:
    """A copy of some rows of a tensor of 64 x 256."""
    part = BufferView.of(StickLayout.for_tensor(default_target(), (64, 256), "f16")).slice(
        (first, 0), (rows, 256), (1, 1)
    )
    return refined([part, BufferView.of(StickLayout.for_tensor(default_target(), (rows, 256), "f16"))])


def test_parts_are_sliced_alike_along_the_dims_that_they_share():
    """Rows from 8 on: the slices of columns match the whole; rows cannot be divided by the same number."""
    whole, part = part_of_rows(0, 64), part_of_rows(8, 55)
    columns = Division.mixed_radix((1, 4))
    assert same_slices(part, 0, whole, 0, columns) == ((1, 4), (1, 0))
    assert matching_division(part, 0, core_view(whole, 0, columns)) is None
    assert same_slices(part, 0, whole, 0, Division.mixed_radix((16, 1))) is None


def test_a_part_from_the_start_follows_the_whole():
    """The first 56 of 64 rows in room for all of them: each core has its sticks of both."""
    whole, part = part_of_rows(0, 64), part_of_rows(0, 56)
    columns = core_view(whole, 0, Division.mixed_radix((1, 4)))
    assert matching_division(part, 0, columns) is None
    assert matching_division(part, 0, columns, in_parts=True) == ((1, 4), (1, 0))
