# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Iteration spaces: whole sticks, granules, and the copies whose dims lie in pieces."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from layout_cases import addresses, random_layout

from spyre_mlir.layout import Axis, BufferView, Digit, StickLayout, ViewError
from spyre_mlir.layout.space import Space, refined
from spyre_mlir.layout.view_transforms import collapse
from spyre_mlir.target.target import default_target


def view_of(shape: tuple[int, ...], order: list[int] | None = None, dtype: str = "f16") -> BufferView:
    return BufferView.of(StickLayout.for_tensor(default_target(), shape, dtype, order))


def whole(*views: BufferView) -> Space:
    """The space of operands that all have all dims."""
    return Space(views[0].shape, views, (frozenset(range(len(views[0].shape))),) * len(views))


def test_a_stick_dim_counts_whole_sticks_for_every_operand():
    """[65, 70], one operand sticks on each dim: both dims are padded."""
    space = whole(view_of((65, 70)), view_of((65, 70), [1, 0]))
    assert space.padded == (128, 128) and space.units == (2, 2)
    assert whole(view_of((65, 70))).padded == (65, 128)
    assert whole(view_of((65, 70))).units == (65, 2)


def test_the_longest_stick_counts():
    """A cast: sticks of 64 and of 32 elements of one dim; 70 is two granules of 64."""
    space = whole(view_of((3, 70)), view_of((3, 70), dtype="f32"))
    assert (space.granules[1], space.padded, space.units) == (64, (3, 128), (3, 2))
    assert whole(view_of((3, 70), dtype="f32")).units == (3, 3)


def test_sparse_operands_have_no_granule():
    space = whole(view_of((65,), [0, -1]))
    assert (space.granules[0], space.padded, space.units) == (1, (65,), (65,))


def test_a_copy_between_orders_needs_no_cut():
    space = refined([view_of((3, 5, 70)), view_of((3, 5, 70), [1, 0, 2])])
    assert space.sizes == (3, 5, 70) and space.padded == (3, 5, 128)


def test_a_copy_out_of_pieces_is_cut_where_they_meet():
    """Rows 15 = 3 x 5 that were merged against the memory order: two dims again."""
    merged = collapse(view_of((3, 5, 70)), [[0, 1], [2]])
    space = refined([merged, view_of((15, 70))])
    assert space.sizes == (3, 5, 70)
    assert space.present == (frozenset({0, 1, 2}),) * 2
    assert space.views[1].axes == (Axis(2, 64, 2, 960), Axis(0, 1, 3, 320), Axis(1, 1, 5, 64))


def test_a_stick_dim_in_pieces():
    """[3, 128] merged into 384: sticks within rows; the copy has 3 rows of 128 in sticks of 64."""
    merged = collapse(view_of((3, 128)), [[0, 1]])
    space = refined([merged, view_of((384,))])
    assert space.sizes == (3, 128) and space.padded == (3, 128) and space.units == (3, 2)
    assert space.views[1].stick_dim == 1


def test_pieces_that_do_not_fall_together():
    """12 = 3 x 4 in one operand, 2 x 6 in the other, and tiles of 96 against sticks of 64."""
    views = [collapse(view_of(shape), [[0, 1], [2]]) for shape in ((3, 4, 64), (2, 6, 64))]
    with pytest.raises(ViewError, match="pieces of 4 and of 6 elements of dim 0 do not fall together"):
        refined(views)
    tiles = BufferView.of(
        StickLayout(default_target(), (192,), "f16", (Digit(0, 1, 96), Digit(0, 96), Digit(None)))
    )
    with pytest.raises(ViewError, match=r"the sticks of dim 0 do not fall on the cuts at \[96\]"):
        refined([tiles, view_of((192,))])


def other_layout(rng: random.Random, shape: tuple[int, ...], dtype: str) -> StickLayout:
    order = rng.sample(range(len(shape)), len(shape))
    return StickLayout.for_tensor(
        default_target(), shape, dtype, [*order, -1] if rng.random() < 0.2 else order, rng.random() < 0.5
    )


@pytest.mark.parametrize("seed", range(400))
def test_refining_keeps_every_address(seed):
    """Copies between random views: each index of the cut dims has the address that it had before."""
    rng = random.Random(seed)
    source = BufferView.of(random_layout(rng, 1500))
    rank = len(source.shape)
    if rank > 1 and rng.random() < 0.5:
        first = rng.randrange(rank - 1)
        groups = [[d] for d in range(first)] + [[first, first + 1]] + [[d] for d in range(first + 2, rank)]
        try:
            source = collapse(source, groups)
        except ViewError:
            pass
    views = [source, BufferView.of(other_layout(rng, source.shape, source.dtype))]
    try:
        space = refined(views)
    except ViewError:
        assert any(view.why_not_addressable() for view in views)
        return
    cuts = [_cuts(views, dim) for dim in range(len(source.shape))]
    assert len(space.sizes) == sum(map(len, cuts))
    parts = _digits(source.shape, cuts)
    assert all(part.max(initial=0) < size for part, size in zip(parts, space.sizes, strict=True))
    for before, after in zip(views, space.views, strict=True):
        assert after.shape == space.sizes and after.why_not_addressable() is None
        np.testing.assert_array_equal(addresses(after)[tuple(parts)], addresses(before))
    for dim, size in enumerate(source.shape):
        before = sum(len(cut) for cut in cuts[:dim])
        assert math.prod(space.sizes[before : before + len(cuts[dim])]) >= size


def _cuts(views: list[BufferView], dim: int) -> list[int]:
    """Return the begins of the pieces of a dim, the innermost first; sticks are not pieces."""
    cuts = {1}
    for view in views:
        stick = view.elements_per_stick if view.stick_dim == dim else 1
        cuts |= {axis.divisor for axis in view.axes if axis.dim == dim} - {stick}
    return sorted(cuts)


def _digits(shape: tuple[int, ...], cuts: list[list[int]]) -> list[np.ndarray]:
    """For each index its position in each cut dim, the outermost piece first."""
    parts = []
    for index, own in zip(np.indices(shape), cuts, strict=True):
        for begin, end in reversed(list(zip(own, [*own[1:], None], strict=True))):
            parts.append(index // begin if end is None else index // begin % (end // begin))
    return parts
