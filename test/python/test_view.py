"""Views of a buffer: numpy does to an array of addresses what the view operations do to a view."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from layout_cases import SIZES, addresses, positions, random_layout, random_shape

from spyre_mlir.layout import Axis, BufferView, StickLayout, ViewError
from spyre_mlir.layout.orders import batch_outermost, from_order, keep_order


def view_of(shape: tuple[int, ...], order: list[int] | None = None, dtype: str = "f16") -> BufferView:
    return BufferView.of(StickLayout.for_tensor(shape, dtype, order))


#: One operation: its name and its arguments.
Step = tuple[str, tuple]


def in_numpy(where: np.ndarray, name: str, arguments: tuple) -> np.ndarray:
    """What a view operation does to an array."""
    if name == "transpose":
        return where.transpose(*arguments)
    if name == "collapse":
        return where.reshape([math.prod(where.shape[dim] for dim in group) for group in arguments[0]])
    if name == "expand":
        return where.reshape(arguments[1])
    if name == "drop":
        return where.squeeze(tuple(arguments[0]))
    regions = zip(*arguments, strict=True)
    return where[tuple(slice(o, o + (n - 1) * step + 1, step) for o, n, step in regions)]


def random_step(rng: random.Random, shape: tuple[int, ...]) -> Step:
    makers = [_transpose, _drop]
    makers += [_slice] if shape else []
    makers += [_expand] if 0 < len(shape) < 6 else []
    makers += [_collapse] if len(shape) > 1 else []
    return rng.choice(makers)(rng, shape)


def _transpose(rng: random.Random, shape: tuple[int, ...]) -> Step:
    return "transpose", (rng.sample(range(len(shape)), len(shape)),)


def _collapse(rng: random.Random, shape: tuple[int, ...]) -> Step:
    first = rng.randrange(len(shape) - 1)
    last = rng.randrange(first + 1, len(shape))
    groups = (
        [[d] for d in range(first)]
        + [list(range(first, last + 1))]
        + [[d] for d in range(last + 1, len(shape))]
    )
    return "collapse", (groups,)


def _expand(rng: random.Random, shape: tuple[int, ...]) -> Step:
    dim = rng.randrange(len(shape))
    divisor = rng.choice([n for n in range(1, shape[dim] + 1) if shape[dim] % n == 0])
    parts = rng.choice(
        [(divisor, shape[dim] // divisor), (1, divisor, shape[dim] // divisor), (shape[dim], 1)]
    )
    result = (*shape[:dim], *parts, *shape[dim + 1 :])
    groups = [[d] for d in range(dim)] + [list(range(dim, dim + len(parts)))]
    groups += [[d + len(parts) - 1] for d in range(dim + 1, len(shape))]
    return "expand", (groups, result)


def _slice(rng: random.Random, shape: tuple[int, ...]) -> Step:
    regions = [(0, size, 1) for size in shape]
    for dim in rng.sample(range(len(shape)), rng.randint(1, len(shape))):
        offset = rng.choice([0, rng.randrange(shape[dim]), rng.randrange(shape[dim]) // 64 * 64])
        step = rng.choice([1, 1, 1, 2, 3])
        most = (shape[dim] - offset - 1) // step + 1
        regions[dim] = (offset, rng.randint(1, most), step)
    return "slice", tuple(list(column) for column in zip(*regions, strict=True))


def _drop(rng: random.Random, shape: tuple[int, ...]) -> Step:
    ones = [dim for dim, size in enumerate(shape) if size == 1]
    return "drop", (rng.sample(ones, rng.randint(0, len(ones))),)


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
            view = getattr(view, name)(*arguments)
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
            getattr(view, name)(*arguments)
            taken += 1
        except ViewError:
            refused += 1
    assert taken > 2 * refused


@pytest.mark.parametrize("seed", range(200))
def test_rename_is_broadcast_and_transpose(seed):
    """Over iteration dims the address depends on the dims that the operand has, and on nothing else."""
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


# -- what must not be refused -------------------------------------------------------------------------

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
    """One case per sentence of what a tiled tensor can show without moving data."""
    shape, name, *arguments = LEGAL[case]
    order = arguments.pop() if name == "collapse" and len(arguments) > 1 else None
    view = view_of(shape, order)
    result = getattr(view, name)(*arguments)
    np.testing.assert_array_equal(addresses(result), in_numpy(addresses(view), name, tuple(arguments)))


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 5, 1), (12,), (2, 64), (3, 1, 128)])
def test_heads_split_and_merge(shape):
    """Expanding and collapsing again is where one began, for every shape whose inner part is whole."""
    view = view_of((*shape, 64))
    flat = view_of((math.prod(shape), 64))
    expanded = flat.expand([list(range(len(shape))), [len(shape)]], (*shape, 64))
    assert expanded.collapse([list(range(len(shape))), [len(shape)]]) == flat
    np.testing.assert_array_equal(addresses(expanded).ravel(), addresses(flat).ravel())
    assert view.transpose(range(len(shape) + 1)) == view


# -- what must be refused -----------------------------------------------------------------------------

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
        getattr(view, name)(*arguments)


def test_a_stick_of_one_element_is_sparse():
    """Whatever the layout says of a dim of size 1, nothing tells it from a sparse stick."""
    assert view_of((5, 1)) == view_of((5, 1), [0, 1, -1])
    assert view_of((5, 1)).axes == (Axis(0, 1, 5, 64),)


def test_why_not_plain():
    """A device operation walks one stride per dim."""
    assert view_of((12, 128)).why_not_plain() is None
    assert view_of((3, 4, 64), [1, 0, 2]).collapse([[0, 1], [2]]).why_not_plain() is None
    pieces = view_of((3, 4, 64)).collapse([[0, 1], [2]])
    assert pieces.why_not_plain() == "dim 0 lies in memory in 2 separate pieces"
    with_gap = view_of((3, 128)).collapse([[0, 1]])
    assert with_gap.why_not_plain() == "dim 0 lies in memory in 2 separate pieces"


@pytest.mark.parametrize("seed", range(200))
def test_the_layout_of_a_view_is_its_map(seed):
    """Dense views: the attribute on the type gives the view back, its offset and gaps aside."""
    rng = random.Random(seed)
    view = BufferView.of(random_layout(rng, 300))
    again = BufferView.of(view.layout)
    assert [(a.dim, a.divisor, a.size) for a in again.axes] == [(a.dim, a.divisor, a.size) for a in view.axes]
    assert again.lane == view.lane


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
    layout = from_order(shape, "f16", stick, order)
    assert _is_dense(layout) and layout.stick_dim == stick
    assert _order(layout) == order


@pytest.mark.parametrize("seed", range(100))
def test_keep_order_follows_the_operand(seed):
    """With the stick of ``like`` its order, whatever its gaps; with another stick the default."""
    rng = random.Random(seed)
    shape = tuple(rng.choice(SIZES[2:]) for _ in range(rng.randrange(1, 4)))
    like = BufferView.of(StickLayout.for_tensor(shape, "f16", rng.sample(range(len(shape)), len(shape))))
    stick = rng.choice([like.lane, rng.choice(range(len(shape))), None])
    layout = keep_order(shape, "f16", stick, like)
    assert _is_dense(layout) and layout.stick_dim == stick
    if stick == like.lane:
        assert _order(layout) == [axis.dim for axis in like.axes]
    else:
        others = [dim for dim in range(len(shape)) if dim != stick]
        assert layout == StickLayout.for_tensor(shape, "f16", [*others, -1 if stick is None else stick])
    assert keep_order(shape, "f16", 0, None) == StickLayout.for_tensor(
        shape, "f16", [*range(1, len(shape)), 0]
    )


def test_batch_outermost():
    """[batch, rows, columns]: batch, stick count, rows, stick; a second row dim goes behind the batch."""
    layout = batch_outermost((4, 65, 130), "f16", 2, 1)
    assert layout.device_size == (4, 3, 65, 64)
    assert batch_outermost((4, 5, 65, 130), "f16", 3, 1).device_size == (4, 5, 3, 65, 64)
    assert batch_outermost((4, 5, 65, 130), "f16", 3, 2).device_size == (4, 5, 3, 65, 64)
    assert batch_outermost((65, 130), "f16", 1, 0).device_size == (3, 65, 64)
    assert batch_outermost((4, 130), "f16", 1, 1).device_size == (4, 3, 64)
    assert batch_outermost((65, 130), "f16", 0, 0).device_size == (2, 130, 64)
