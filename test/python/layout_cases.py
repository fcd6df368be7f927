"""Random layouts, and where they put each element: the definition in layouts.md, written with numpy alone."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np

from spyre_mlir.layout import BufferView, Digit, StickLayout

ELEMENTS = {"f16": 64, "f32": 32, "i32": 32}
SIZES = (1, 1, 2, 3, 4, 5, 8, 12, 31, 32, 33, 63, 64, 65, 96, 128, 130, 192)


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
    layout = StickLayout.for_tensor(shape, dtype, random_order(rng, rank), rng.random() < 0.5)
    if rng.random() < 0.3:
        *outer, lane = layout.digits
        layout = StickLayout(shape, dtype, (*rng.sample(outer, len(outer)), lane))
    if rng.random() < 0.3:
        layout = _with_pieces(rng, layout)
    for dim in range(rank):
        if rng.random() < 0.15 and shape[dim] > 1 and math.prod(layout.device_size) < 30_000:
            layout = layout.padded(dim, 2 * ELEMENTS[dtype])
    return layout


def _with_pieces(rng: random.Random, layout: StickLayout) -> StickLayout:
    """One dim that is not the stick as ``(d floordiv n, d mod n)``, the pieces anywhere."""
    dims = [d for d, size in enumerate(layout.shape) if d != layout.stick_dim and size % 2 == 0 and size > 2]
    if not dims:
        return layout
    dim = rng.choice(dims)
    piece = rng.choice([n for n in (2, 4, 32, 64) if layout.shape[dim] % n == 0 and n < layout.shape[dim]])
    others = [digit for digit in layout.digits[:-1] if digit.dim != dim]
    for digit in (Digit(dim, piece), Digit(dim, 1, piece)):
        others.insert(rng.randrange(len(others) + 1), digit)
    return StickLayout(layout.shape, layout.dtype, (*others, layout.digits[-1]))


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
    """The same from a dim order, without digits: pad, cut into sticks, transpose. And the device size."""
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


def addresses(view: BufferView) -> np.ndarray:
    """The address of each element: the definition of a view."""
    index = np.indices(view.shape)
    where = np.full(view.shape, view.offset, np.int64)
    for axis in view.axes:
        where += index[axis.dim] // axis.divisor % axis.size * axis.stride
    if view.lane is not None:
        where += index[view.lane] % view.elements_per_stick
    return where
