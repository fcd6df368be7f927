# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of a buffer: view operations on a view equal numpy's on an array of addresses."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from layout_cases import (
    SIZES,
    addresses,
    in_numpy,
    positions,
    random_layout,
    random_shape,
    random_step,
    view_step,
)

from spyre_mlir.layout import Axis, BufferView, StickLayout, ViewError
from spyre_mlir.layout.view import from_order, keep_order, natural_order, run_bytes_of_tiles
from spyre_mlir.layout.view_transforms import collapse, drop_dims, expand
from spyre_mlir.target.target import default_target


def view_of(shape: tuple[int, ...], order: list[int] | None = None, dtype: str = "f16") -> BufferView:
    return BufferView.of(StickLayout.for_tensor(default_target(), shape, dtype, order))


@pytest.mark.parametrize("seed", range(1000))
def test_views_address_what_numpy_addresses(seed):
    """Random chains of operations: whatever is not refused shows each element at its source's address."""
    rng = random.Random(seed)
    layout = random_layout(rng, 1500)
    view, where = BufferView.of(layout), positions(layout)
    np.testing.assert_array_equal(addresses(view), where)
    for _ in range(6):
        name, arguments = random_step(rng, view.shape)
        try:
            view = view_step(view, name, arguments)
        except ViewError:
            continue
        where = in_numpy(where, name, arguments)
        assert view.shape == where.shape
        np.testing.assert_array_equal(addresses(view), where, err_msg=f"{name}{arguments}")
        assert list(view.axes) == sorted(view.axes, key=lambda axis: (-axis.stride, axis.dim))
        assert all(axis.size > 1 for axis in view.axes)


def test_few_random_views_are_refused():
    """The test above would hold for views that refuse everything: two in three are not refused."""
    taken = refused = 0
    for seed in range(500):
        rng = random.Random(seed)
        view = BufferView.of(random_layout(rng, 1500))
        name, arguments = random_step(rng, view.shape)
        try:
            view_step(view, name, arguments)
            taken += 1
        except ViewError:
            refused += 1
    assert taken > 2 * refused


@pytest.mark.parametrize("seed", range(200))
def test_rename_is_broadcast_and_transpose(seed):
    """Over iteration dims the address depends only on the dims of the operand."""
    rng = random.Random(seed)
    layout = random_layout(rng, 300)
    rank = len(layout.shape) + rng.randrange(3)
    extents = [rng.choice((1, 2, 3)) for _ in range(rank)]
    dims: list[int | None] = list(rng.sample(range(rank), len(layout.shape)))
    for at, size in enumerate(layout.shape):
        if size == 1 and rng.random() < 0.5:
            dims[at] = None
        else:
            extents[dims[at]] = size
    view = BufferView.of(layout).rename(dims, rank, extents)
    index = np.indices(extents)
    source = tuple(np.zeros(extents, int) if dim is None else index[dim] for dim in dims)
    source = tuple(np.minimum(i, size - 1) for i, size in zip(source, layout.shape, strict=True))
    assert view.shape == tuple(extents)
    np.testing.assert_array_equal(addresses(view), positions(layout)[source])


def test_rename_wants_an_iteration_dim_for_each_dim():
    with pytest.raises(ViewError, match="dim 0 has more than one element but no iteration dim"):
        view_of((3, 4)).rename([None, 0], 1, [4])


def test_rename_leaves_out_a_dim_of_size_1_with_room():
    view = BufferView.of(StickLayout.for_tensor(default_target(), (1, 70), "f16").padded(0, 64))
    assert view.rename([None, 0], 1, [70]).axes == drop_dims(view, [0]).axes == (Axis(0, 64, 2, 64 * 64),)


# -- broadcast ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200))
def test_broadcast_repeats_as_numpy_does(seed):
    """New dims and dims of size 1 show the same addresses at each position; others keep their own."""
    rng = random.Random(seed)
    layout = random_layout(rng, 200)
    rank = len(layout.shape) + rng.randrange(3)
    dims = sorted(rng.sample(range(rank), len(layout.shape)))
    shape = [rng.choice((1, 2, 3)) for _ in range(rank)]
    for at, size in zip(dims, layout.shape, strict=True):
        shape[at] = size if size > 1 else shape[at]
    view = BufferView.of(layout).broadcast(shape, dims)
    kept = positions(layout).reshape([layout.shape[dims.index(d)] if d in dims else 1 for d in range(rank)])
    np.testing.assert_array_equal(addresses(view), np.broadcast_to(kept, shape))


def test_a_repeated_dim_with_room_stays_at_its_element():
    """A dim of size 1 that is padded to 64 rows: only the first row is repeated."""
    view = BufferView.of(StickLayout.for_tensor(default_target(), (1, 70), "f16").padded(0, 64)).broadcast(
        (5, 70), (0, 1)
    )
    assert view.axes == (Axis(1, 64, 2, 64 * 64),)


def test_a_repeated_dim_needs_no_room():
    """The layout of a repeated dim has a place for each position: none of it is padding."""
    layout = view_of((70,)).broadcast((5, 70), (1,)).layout
    assert layout.padding == (0, 58) and layout.bytes == 2 * 128


def test_only_a_sparse_tensor_is_repeated_in_the_stick():
    """Rows of one element each fill an operation's sticks of columns; rows with separate sticks do not."""
    sparse, rows = view_of((5,), [0, -1]), view_of((5,))
    assert sparse.broadcast((5, 128), (0,), stick=1).stick_dim is None
    assert view_of((5, 1)).broadcast((5, 128), (0, 1), stick=1) == sparse.broadcast((5, 128), (0,), stick=1)
    assert rows.broadcast((128, 5), (1,), stick=1).stick_dim == 1
    with pytest.raises(ViewError, match="dim 1 is repeated in the stick, but the stick holds dim 0: only a"):
        rows.broadcast((5, 128), (0,), stick=1)


def test_a_dim_with_several_elements_is_not_repeated():
    with pytest.raises(ViewError, match="dim 0 of size 3 cannot become 4: only a dim of size 1 is repeated"):
        view_of((3, 4)).broadcast((4, 4), (0, 1))
    with pytest.raises(ViewError, match="each of the 2 dims needs a dim of its own in the result"):
        view_of((3, 3)).broadcast((3, 4), (0, 0))


# -- legal views --------------------------------------------------------------------------------------

LEGAL = {
    "transpose with a stick": ((3, 70), "transpose", [1, 0]),
    "expand rows": ((12, 70), "expand", [[0, 1], [2]], (3, 4, 70)),
    "expand rows by a prime": ((35, 70), "expand", [[0, 1], [2]], (5, 7, 70)),
    "expand the stick dim at whole sticks": ((3, 192), "expand", [[0], [1, 2]], (3, 3, 64)),
    "expand the stick dim in three": ((3, 768), "expand", [[0], [1, 2, 3]], (3, 2, 3, 128)),
    "expand a padded stick dim by 1": ((3, 70), "expand", [[0], [1, 2, 3]], (3, 1, 70, 1)),
    "expand a rank by 1": ((70,), "expand", [[0, 1, 2]], (1, 1, 70)),
    "collapse rows": ((3, 4, 70), "collapse", [[0, 1], [2]], [1, 0, 2]),
    "collapse rows of a stick dim of one": ((3, 4, 1), "collapse", [[0, 1, 2]], [1, 0, 2]),
    "collapse into whole sticks": ((3, 128), "collapse", [[0, 1]]),
    "collapse ones into a padded stick": ((1, 1, 70), "collapse", [[0, 1, 2]]),
    "collapse ones behind a padded stick": ((1, 70, 1), "collapse", [[0, 1, 2]], [0, 2, 1]),
    "slice rows": ((12, 70), "slice", [3, 0], [5, 70], [1, 1]),
    "slice rows by a step": ((12, 70), "slice", [1, 0], [4, 70], [3, 1]),
    "one row": ((12, 70), "slice", [7, 0], [1, 70], [1, 1]),
    "the first columns": ((12, 70), "slice", [0, 0], [12, 5], [1, 1]),
    "whole sticks": ((12, 200), "slice", [0, 64], [12, 64], [1, 1]),
    "from a stick to the end": ((12, 200), "slice", [0, 128], [12, 72], [1, 1]),
    "one column at a stick": ((12, 200), "slice", [0, 128], [12, 1], [1, 1]),
    "one column by a step": ((12, 200), "slice", [0, 64], [12, 1], [1, 3]),
    "everything": ((12, 200), "slice", [0, 0], [12, 200], [1, 1]),
    "drop ones": ((1, 12, 1, 70), "drop", [0, 2]),
    "drop a stick dim of one": ((12, 1), "drop", [1]),
}


@pytest.mark.parametrize("case", LEGAL)
def test_legal_views_are_not_refused(case):
    """One case per sentence on views of a tiled tensor that need no data movement."""
    shape, name, *arguments = LEGAL[case]
    order = arguments.pop() if name == "collapse" and len(arguments) > 1 else None
    view = view_of(shape, order)
    result = view_step(view, name, arguments)
    np.testing.assert_array_equal(addresses(result), in_numpy(addresses(view), name, tuple(arguments)))


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 5, 1), (12,), (2, 64), (3, 1, 128)])
def test_heads_split_and_merge(shape):
    """Expanding and collapsing again is where one began, for every shape whose inner part is whole."""
    view = view_of((*shape, 64))
    flat = view_of((math.prod(shape), 64))
    expanded = expand(flat, [list(range(len(shape))), [len(shape)]], (*shape, 64))
    assert collapse(expanded, [list(range(len(shape))), [len(shape)]]) == flat
    np.testing.assert_array_equal(addresses(expanded).ravel(), addresses(flat).ravel())
    assert view.transpose(range(len(shape) + 1)) == view


# -- illegal views ------------------------------------------------------------------------------------

ILLEGAL = {
    "cuts sticks": ((3, 128), "expand", ([[0], [1, 2]], (3, 4, 32)), "cuts sticks"),
    "slices inside a stick": ((3, 128), "slice", ([0, 5], [3, 64], [1, 1]), "cuts the sticks of dim 1"),
    "every other column": ((3, 128), "slice", ([0, 0], [3, 64], [1, 2]), "cuts the sticks of dim 1"),
    "collapses a padded stick": ((3, 70), "collapse", ([[0, 1]],), "padded"),
    "collapses a stick outermost": ((64, 3), "collapse", ([[0, 1]],), "not the innermost"),
}


@pytest.mark.parametrize("case", ILLEGAL)
def test_illegal_views_are_refused_with_the_reason(case):
    shape, name, arguments, reason = ILLEGAL[case]
    view = view_of(shape, [1, 0] if "outermost" in case else None)
    with pytest.raises(ViewError, match=reason):
        view_step(view, name, arguments)


def test_a_stick_of_one_element_is_sparse():
    """For any layout of a dim of size 1, its views equal the views of a sparse stick."""
    assert view_of((5, 1)) == view_of((5, 1), [0, 1, -1])
    assert view_of((5, 1)).axes == (Axis(0, 1, 5, 64),)


def test_why_not_plain():
    """A device operation walks one stride per dim."""
    assert view_of((12, 128)).why_not_addressable() is None
    assert collapse(view_of((3, 4, 64), [1, 0, 2]), [[0, 1], [2]]).why_not_addressable() is None
    pieces = collapse(view_of((3, 4, 64)), [[0, 1], [2]])
    assert pieces.why_not_addressable() == "dim 0 lies in memory in 2 separate pieces"
    with_gap = collapse(view_of((3, 128)), [[0, 1]])
    assert with_gap.why_not_addressable() == "dim 0 lies in memory in 2 separate pieces"


@pytest.mark.parametrize("seed", range(200))
def test_the_layout_of_a_view_is_its_map(seed):
    """Dense views: the attribute on the type gives the view back, its offset and gaps aside."""
    rng = random.Random(seed)
    view = BufferView.of(random_layout(rng, 300))
    again = BufferView.of(view.layout)
    assert [(a.dim, a.divisor, a.size) for a in again.axes] == [(a.dim, a.divisor, a.size) for a in view.axes]
    assert again.stick_dim == view.stick_dim


# -- orders of the device dims ------------------------------------------------------------------------


def _order(layout: StickLayout) -> list[int]:
    return [axis.dim for axis in BufferView.of(layout).axes]


def _is_dense(layout: StickLayout) -> bool:
    rows = math.prod(size for dim, size in enumerate(layout.shape) if dim != layout.stick_dim)
    sticks = (
        1 if layout.stick_dim is None else -(-layout.shape[layout.stick_dim] // layout.elements_per_stick)
    )
    return layout.bytes == rows * sticks * 128


@pytest.mark.parametrize("seed", range(100))
def test_from_order_is_dense_in_that_order(seed):
    rng = random.Random(seed)
    rank = rng.randrange(1, 5)
    shape = random_shape(rng, rank)
    stick = rng.choice([None, *range(rank)])
    dims = [
        dim for dim in range(rank) if (shape[dim] > 1 and dim != stick) or (dim == stick and shape[dim] > 64)
    ]
    order = rng.sample(dims, len(dims))
    layout = from_order(default_target(), shape, "f16", stick, order)
    assert _is_dense(layout) and layout.stick_dim == stick
    assert _order(layout) == order


@pytest.mark.parametrize("seed", range(100))
def test_keep_order_follows_the_operand(seed):
    """With the stick of ``like`` its order, whatever its gaps; with another stick the default."""
    rng = random.Random(seed)
    shape = tuple(rng.choice(SIZES[2:]) for _ in range(rng.randrange(1, 4)))
    like = BufferView.of(
        StickLayout.for_tensor(default_target(), shape, "f16", rng.sample(range(len(shape)), len(shape)))
    )
    stick = rng.choice([like.stick_dim, rng.choice(range(len(shape))), None])
    layout = keep_order(default_target(), shape, "f16", stick, like)
    assert _is_dense(layout) and layout.stick_dim == stick
    if stick == like.stick_dim:
        assert _order(layout) == [axis.dim for axis in like.axes]
    else:
        others = [dim for dim in range(len(shape)) if dim != stick]
        assert layout == StickLayout.for_tensor(
            default_target(), shape, "f16", [*others, -1 if stick is None else stick]
        )
    assert keep_order(default_target(), shape, "f16", 0, None) == StickLayout.for_tensor(
        default_target(), shape, "f16", [*range(1, len(shape)), 0]
    )


def test_natural_order():
    """[batch, rows, columns]: batch, stick count, rows, stick; sparse: as on the host."""
    assert natural_order(default_target(), (4, 65, 130), "f16", 2).device_size == (4, 3, 65, 64)
    assert natural_order(default_target(), (4, 5, 65, 130), "f16", 3).device_size == (4, 5, 3, 65, 64)
    assert natural_order(default_target(), (65, 130), "f16", 1).device_size == (3, 65, 64)
    assert natural_order(default_target(), (65, 130), "f16", 0).device_size == (2, 130, 64)
    assert natural_order(default_target(), (4, 65, 130), "f16", None).device_size == (4, 65, 130, 64)


def test_runs_of_many_tiles_are_those_of_each():
    """Tiles of many sizes at once, some larger than the dims, have the runs that each has alone."""
    for seed in range(50):
        rng = random.Random(seed)
        view = BufferView.of(random_layout(rng))
        tiles = np.array([[rng.randint(1, 2 * size) for _ in range(20)] for size in view.shape])
        tiles = tiles.reshape(-1, 20)
        expected = [view.run_bytes(tile) for tile in tiles.T.tolist()]
        assert run_bytes_of_tiles(view, tiles).tolist() == expected, f"seed {seed}"
