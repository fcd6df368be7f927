# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random layouts, and where they put each element: the definition in docs/layouts.md, written with numpy alone."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from spyre_mlir.layout import BufferView, Digit, StickLayout
from spyre_mlir.layout.host_transfer import DmaTuples
from spyre_mlir.layout.rules import Iteration
from spyre_mlir.layout.view_transforms import collapse, drop_dims, expand
from spyre_mlir.target.target import default_target

ELEMENTS = {"f16": 64, "f32": 32, "i32": 32}
ALL_ELEMENTS = {
    **ELEMENTS,
    "bf16": 64,
    "i1": 64,
    "i8": 128,
    "f8E4M3FN": 128,
    "f8E5M2": 128,
    "i4": 256,
}
SIZES = (1, 1, 2, 3, 4, 5, 8, 12, 31, 32, 33, 63, 64, 65, 96, 128, 130, 192)


def iteration(
    sizes: tuple[int, ...], *present: str, reduced: str = "", dtypes: str = "", windows: str = ""
) -> Iteration:
    """An iteration whose sets of dims are written as digits: ``iteration((64, 32), "01", "1")``."""
    sets = tuple(frozenset(map(int, dims)) for dims in present)
    types = tuple(dtypes.split()) or ("f16",) * len(sets)
    return Iteration(
        default_target(), sizes, sets, frozenset(map(int, reduced)), types, frozenset(map(int, windows))
    )


def random_shape(rng: random.Random, rank: int, most: int = 4000) -> tuple[int, ...]:
    """Sizes around the stick lengths; few enough elements to look at each."""
    while True:
        shape = tuple(rng.choice(SIZES) for _ in range(rank))
        if math.prod(shape) <= most:
            return shape


def random_order(rng: random.Random, rank: int) -> list[int]:
    """A ``dim_order``, one in four stick-sparse."""
    order = rng.sample(range(rank), rank)
    return [*order, -1] if rng.random() < 0.25 else order


def random_layout(rng: random.Random, most: int = 4000) -> StickLayout:
    """Any layout: by dim order or by device dims, padded or not, some with a dim in two pieces."""
    rank = rng.randrange(6)
    shape, dtype = random_shape(rng, rank, most), rng.choice(list(ELEMENTS))
    layout = StickLayout.for_tensor(
        default_target(), shape, dtype, random_order(rng, rank), rng.random() < 0.5
    )
    if rng.random() < 0.3:
        *outer, lane = layout.digits
        layout = StickLayout(default_target(), shape, dtype, (*rng.sample(outer, len(outer)), lane))
    if rng.random() < 0.3:
        layout = with_pieces(rng, layout)
    for dim in range(rank):
        if rng.random() < 0.15 and shape[dim] > 1 and math.prod(layout.device_size) < 30_000:
            layout = layout.padded(dim, 2 * ELEMENTS[dtype])
    return layout


def with_pieces(rng: random.Random, layout: StickLayout) -> StickLayout:
    """Return a layout with one dim outside of the stick as ``(d floordiv n, d mod n)``, the pieces anywhere."""
    dims = [d for d, size in enumerate(layout.shape) if d != layout.stick_dim and size % 2 == 0 and size > 2]
    if not dims:
        return layout
    dim = rng.choice(dims)
    piece = rng.choice([n for n in (2, 4, 32, 64) if layout.shape[dim] % n == 0 and n < layout.shape[dim]])
    others = [digit for digit in layout.digits[:-1] if digit.dim != dim]
    for digit in (Digit(dim, piece), Digit(dim, 1, piece)):
        others.insert(rng.randrange(len(others) + 1), digit)
    return StickLayout(default_target(), layout.shape, layout.dtype, (*others, layout.digits[-1]))


def random_sticks(rng: random.Random, rank: int, per_stick: int) -> list[tuple[int, int]]:
    """Return the dims of one stick, (dim, elements) outermost first: one to three, no two adjacent of one dim."""
    sticks: list[tuple[int, int]] = []
    while per_stick > 1:
        dim = rng.choice([d for d in range(rank) if not sticks or d != sticks[0][0]] or [0])
        last = len(sticks) == 2 or rank == 1
        elements = per_stick if last else 2 ** rng.randint(1, per_stick.bit_length() - 1)
        sticks.insert(0, (dim, elements))
        per_stick //= elements
    return sticks


def random_form(rng: random.Random, most: int = 4000) -> StickLayout:
    """A layout of any element type: sparse, of one stick dim or of several, padded or not, of either default."""
    rank, dtype, outermost = rng.randrange(6), rng.choice(list(ALL_ELEMENTS)), rng.random() < 0.5
    shape = random_shape(rng, rank, most)
    if rank == 0 or rng.random() < 0.4:
        order = random_order(rng, rank) if rng.random() < 0.8 else None
        layout = StickLayout.for_tensor(default_target(), shape, dtype, order, outermost)
    else:
        sticks = random_sticks(rng, rank, ALL_ELEMENTS[dtype])
        others = rng.sample([d for d in range(rank) if d != sticks[-1][0]], rank - 1)
        order = [*others, sticks[-1][0]] if rng.random() < 0.8 else None
        layout = StickLayout.for_tensor(default_target(), shape, dtype, order, outermost, sticks)
    for dim in range(rank):
        if rng.random() < 0.15 and math.prod(layout.device_size) < 30_000:
            layout = layout.padded(dim, 2 * ALL_ELEMENTS[dtype])
    return layout


def positions(layout: StickLayout) -> np.ndarray:
    """The position of each element in the device array: the definition of a layout, by its digits."""
    index = np.indices(layout.shape)
    sizes = layout.device_size
    where = np.zeros(layout.shape, np.int64)
    for digit, size in zip(layout.digits, sizes, strict=True):
        part = 0
        if digit.dim is not None:
            part = index[digit.dim] // digit.divisor
            part = part if digit.modulus is None else part % digit.modulus
        where = where * size + part
    return where


def positions_by_order(
    shape: Sequence[int], per_stick: int, order: Sequence[int], stick_outermost: bool
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return positions and device size from a dim order, without digits: pad, cut into sticks, transpose."""
    *others, stick = order or [-1]
    outer = others[1:]
    rank = len(shape)
    if stick == -1:  # a stick dim of one element that nobody indexes
        padded, stick = [*shape, per_stick], rank
    else:
        padded = [-(-size // per_stick) * per_stick if d == stick else size for d, size in enumerate(shape)]
    cut = [*padded[:stick], padded[stick] // per_stick, per_stick, *padded[stick + 1 :]]
    at = {dim: dim + (dim > stick) for dim in range(rank)} | {"count": stick, "lane": stick + 1}
    middle = ["count", *outer] if stick_outermost else [*outer, "count"]
    axes = [at[name] for name in (*middle, *others[:1], "lane")]
    size = tuple(cut[axis] for axis in axes)
    device = np.arange(math.prod(size)).reshape(size)
    host = device.transpose(np.argsort(axes)).reshape(padded)
    host = host[..., 0] if stick == rank else host
    return host[tuple(slice(extent) for extent in shape)], size


def positions_by_sticks(
    shape: Sequence[int], sticks: Sequence[tuple[int, int]], order: Sequence[int], stick_outermost: bool
) -> tuple[np.ndarray, tuple[int, ...]]:
    """Return positions for a stick of several dims: pad each dim to whole sticks, cut it into parts, transpose."""
    held = [math.prod(n for d, n in sticks if d == dim) for dim in range(len(shape))]
    counts = [-(-size // each) for size, each in zip(shape, held, strict=True)]
    cut, names = [], []
    for dim, count in enumerate(counts):
        cut += [count, *(n for d, n in sticks if d == dim)]
        names += [("count", dim), *(("part", at) for at, (d, _) in enumerate(sticks) if d == dim)]
    *others, last = order
    outer = [last, *others[1:]] if stick_outermost else [*others[1:], last]
    wanted = [("count", dim) for dim in (*outer, *others[:1])] + [("part", at) for at in range(len(sticks))]
    axes = [names.index(name) for name in wanted]
    size = tuple(cut[axis] for axis in axes)
    device = np.arange(math.prod(size)).reshape(size)
    host = device.transpose(np.argsort(axes)).reshape(
        [c * each for c, each in zip(counts, held, strict=True)]
    )
    return host[tuple(slice(extent) for extent in shape)], size


def addresses(view: BufferView) -> np.ndarray:
    """The address of each element: the definition of a view."""
    index = np.indices(view.shape)
    where = np.full(view.shape, view.offset, np.int64)
    for axis in view.axes:
        where += index[axis.dim] // axis.divisor % axis.size * axis.stride
    for axis in view.stick_axes:
        where += index[axis.dim] // axis.divisor % axis.size * axis.stride
    if view.stick_dim is not None and not view.stick_axes:
        where += index[view.stick_dim] % view.elements_per_stick
    return where


# -- transfers ----------------------------------------------------------------------------------------


def moved(tuples: DmaTuples, host: np.ndarray, device_elements: int) -> np.ndarray:
    """Runs the loop nest of RFC 0047: the device array, -1 where nothing was put."""
    device = np.full(device_elements, -1)
    loops = np.indices(tuples.ranges).reshape(len(tuples.ranges), -1)
    inside = np.ones(loops.shape[1], bool)
    for which, weights, size in tuples.bounds:
        inside &= sum(loops[at] * weight for at, weight in zip(which, weights, strict=True)) < size
    loops = loops[:, inside]
    sources = np.array(tuples.host_strides) @ loops
    targets = np.array(tuples.device_strides) @ loops
    assert len(np.unique(targets)) == targets.size == host.size, "an element is moved twice or not at all"
    device[targets] = host.ravel()[sources]
    return device


# -- view operations ----------------------------------------------------------------------------------

#: One operation: its name and its arguments.
Step = tuple[str, tuple]


def in_numpy(where: np.ndarray, name: str, arguments: tuple) -> np.ndarray:
    """Apply a view operation to an array."""
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


def view_step(view: BufferView, name: str, arguments: Sequence[object]) -> BufferView:
    """Apply the view operation ``name``."""
    return (
        {"collapse": collapse, "drop": drop_dims, "expand": expand}.get(name) or getattr(BufferView, name)
    )(view, *arguments)


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
