# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of a device buffer: transpose, expand, collapse, slice and broadcast, without data movement.

A view is a logical shape over the memory of a buffer: each *axis* has the number of elements that one step of one
digit of a logical dim advances. Composition with a view operation either returns a view or
raises ``ViewError`` with the reason; then the data has to be moved (a restickify).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.layout.stick_layout import Digit, StickLayout, elements_per_stick
from spyre_mlir.records import dataclass, hash_once
from spyre_mlir.target.target import Target


class ViewError(ValueError):
    """A view that the device layout cannot express; the text is the reason."""


#: A dim: an index in a shape, a label in a design.
_Dim = TypeVar("_Dim", int, str)


@dataclass(frozen=True)
class Axis(Generic[_Dim]):
    """``(index[dim] floordiv divisor) mod size`` steps of ``stride`` elements."""

    dim: _Dim
    divisor: int
    size: int
    stride: int


@dataclass(frozen=True)
class BufferView:
    """A tensor of ``shape`` in device memory, ``offset`` elements into its buffer.

    ``axes`` are the digits that number the sticks; ``stick_dim`` is the logical dim inside the stick (None: sparse).
    Axes are canonical: sorted by decreasing stride, neighbours merged, axes of size 1 dropped.

    If the stick holds several dims, ``stick_axes`` are the digits inside the stick by decreasing stride, and
    ``stick_dim`` is the dim of the last digit, whose elements are contiguous.
    """

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[Axis[int], ...]
    stick_dim: int | None
    elements_per_stick: int
    offset: int = 0
    stick_axes: tuple[Axis[int], ...] = ()
    target: Target = field(kw_only=True, repr=False)

    __hash__ = hash_once

    @classmethod
    def of(cls, layout: StickLayout) -> BufferView:
        """Return the view of the whole buffer of a layout; ``ViewError`` if its last digits do not fill a stick."""
        return _whole(layout)

    @functools.cached_property
    def layout(self) -> StickLayout:
        """The layout attribute of this view: only the map, without strides and offset."""
        digits = []
        for axis in self.axes:
            outermost = all(other.divisor <= axis.divisor for other in self.axes if other.dim == axis.dim)
            exact = -(-self.shape[axis.dim] // axis.divisor) == axis.size
            digits.append(Digit(axis.dim, axis.divisor, None if outermost and exact else axis.size))
        if self.stick_axes:
            digits += [Digit(axis.dim, axis.divisor, axis.size) for axis in self.stick_axes]
        else:
            stick = self.stick_dim
            digits.append(Digit(None) if stick is None else Digit(stick, 1, self.elements_per_stick))
        return StickLayout(self.target, self.shape, self.dtype, tuple(digits))

    @property
    def stick_dims(self) -> tuple[int, ...]:
        """The logical dims inside the stick, ascending; empty if sparse."""
        if self.stick_axes:
            return tuple(sorted({axis.dim for axis in self.stick_axes}))
        return () if self.stick_dim is None else (self.stick_dim,)

    @property
    def main_stick_dim(self) -> int | None:
        """The dim with the most elements in a stick; None if the view is sparse."""
        return max(self.stick_dims, key=self.stick_elements) if self.stick_axes else self.stick_dim

    def stick_elements(self, dim: int) -> int:
        """Return the number of positions of a dim in one stick; 1 for a dim that is not in the stick."""
        if self.stick_axes:
            return math.prod(axis.size for axis in self.stick_axes if axis.dim == dim)
        return self.elements_per_stick if dim == self.stick_dim else 1

    def canonical(self) -> BufferView:
        """Return the view with neighbouring axes merged and axes of size 1 dropped."""
        axes = _merged([axis for axis in self.axes if axis.size > 1])
        stick_dim = self.stick_dim
        if stick_dim is not None and self.shape[stick_dim] == 1 and not self.stick_axes:
            stick_dim = None  # a stick of one element is sparse
        is_canonical = (axes, stick_dim) == (self.axes, self.stick_dim)
        return self if is_canonical else replace(self, axes=axes, stick_dim=stick_dim)

    # -- view operations ------------------------------------------------------------------------------

    def with_dims(
        self,
        shape: Sequence[int],
        axes: Iterable[Axis[int]],
        dims: Sequence[int | None] | Mapping[int, int | None],
    ) -> BufferView:
        """Return a view of ``shape`` with other ``axes``, in whose sticks dim ``k`` is ``dims[k]``."""
        stick_axes = []
        for axis in self.stick_axes:
            dim = dims[axis.dim]
            if dim is None:
                raise ViewError(f"dim {axis.dim} cannot be left out: the stick also has other dims")
            stick_axes.append(replace(axis, dim=dim))
        stick_dim = None if self.stick_dim is None else dims[self.stick_dim]
        return replace(
            self, shape=tuple(shape), axes=tuple(axes), stick_dim=stick_dim, stick_axes=tuple(stick_axes)
        )

    def transpose(self, permutation: Sequence[int]) -> BufferView:
        """Return the view whose dim ``j`` is dim ``permutation[j]`` of this one."""
        where = {source: result for result, source in enumerate(permutation)}
        axes = (replace(axis, dim=where[axis.dim]) for axis in self.axes)
        return self.with_dims([self.shape[source] for source in permutation], axes, where).canonical()

    def rename(self, dims: Sequence[int | None], rank: int, extents: Sequence[int]) -> BufferView:
        """Return the view over iteration dims: dim ``k`` is iteration dim ``dims[k]`` (None: a dim of size 1)."""
        axes = []
        for axis in self.axes:
            dim = dims[axis.dim]
            if dim is not None:
                axes.append(replace(axis, dim=dim))
            elif self.shape[axis.dim] > 1:
                raise ViewError(f"dim {axis.dim} has more than one element but no iteration dim")
        return self.with_dims(extents[:rank], axes, dims).canonical()

    def broadcast(self, shape: Sequence[int], dims: Sequence[int], stick: int | None = None) -> BufferView:
        """Return the view repeated to ``shape``: dim ``k`` is result dim ``dims[k]``, dims not in ``dims`` are new.

        A new dim, and a dim of size 1 that becomes longer, has the same elements at each position.
        ``stick`` is the result dim that the operation requires in the stick. A tensor that is repeated along
        this dim must be stick-sparse: the device loads the one element of a stick into all slots (docs/layouts.md).
        Raise ``ViewError`` otherwise, and if a dim of more than one element would change its size.
        """
        if len(set(dims)) != len(self.shape):
            raise ViewError(f"each of the {len(self.shape)} dims needs a dim of its own in the result")
        for source, result in enumerate(dims):
            if self.shape[source] not in (1, shape[result]):
                raise ViewError(
                    f"dim {source} of size {self.shape[source]} cannot become {shape[result]}: only a dim of"
                    " size 1 is repeated"
                )
        same = {result for source, result in enumerate(dims) if self.shape[source] == shape[result]}
        for source in self.stick_dims:
            if dims[source] not in same:
                raise ViewError(f"dim {source} of size 1 cannot be repeated: the stick holds other dims too")
        if stick is not None and stick not in same and self.stick_dim is not None:
            raise ViewError(
                f"dim {stick} is repeated in the stick, but the stick holds dim {dims[self.stick_dim]}: only a"
                " stick-sparse tensor can be"
            )
        present = tuple(axis for axis in self.axes if dims[axis.dim] in same)
        return replace(self, axes=present).rename(dims, len(shape), shape)

    def slice(self, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> BufferView:
        """Return the view of a rectangular part (tensor.extract_slice)."""
        view = self
        for dim, (offset, size, step) in enumerate(zip(offsets, sizes, steps, strict=True)):
            if (offset, size, step) != (0, self.shape[dim], 1):
                view = view._sliced(dim, offset, size, step)
        return view.canonical()

    def _sliced(self, dim: int, offset: int, size: int, step: int) -> BufferView:
        """Return the view of ``size`` elements of a dim from ``offset`` by ``step``; ``ViewError`` for cut sticks."""
        if size == 1:
            step = 1  # one element has no step
        per_stick = self.stick_elements(dim)
        if dim in self.stick_dims and (offset % per_stick or step != 1):
            raise ViewError(f"a slice from {offset} by {step} cuts the sticks of dim {dim}")
        axes, start = [], self.offset
        axes_of_dim = [axis for axis in self.axes if axis.dim == dim]
        for axis in self.axes:
            if axis.dim != dim:
                axes.append(axis)
                continue
            first, last = offset // axis.divisor, (offset + (size - 1) * step) // axis.divisor
            start += first % axis.size * axis.stride
            # The part stays within one step of this digit, so the offset expresses it.
            if first == last:
                continue
            if offset % axis.divisor or (step != 1 and (axis.divisor != 1 or len(axes_of_dim) > 1)):
                raise ViewError(f"a slice from {offset} by {step} does not fall on the tiles of dim {dim}")
            # The rest of the last stick becomes padding, but the rest of a larger piece would be sticks of other
            # elements.
            if (offset + size) % axis.divisor and axis.divisor != per_stick:
                raise ViewError(
                    f"a slice to {offset + size} ends inside a piece of {axis.divisor} of dim {dim}"
                )
            if first % axis.size + last - first >= axis.size and offset % (axis.divisor * axis.size):
                raise ViewError(f"a slice from {offset} wraps around a tile of dim {dim}")
            # A part within one period of the digit has a shorter axis; a longer part begins at the start of a
            # period and has the whole axis.
            if first % axis.size + last - first < axis.size:
                axes.append(Axis(dim, axis.divisor, (last - first) // step + 1, axis.stride * step))
            else:
                axes.append(axis)
        shape = tuple(size if k == dim else extent for k, extent in enumerate(self.shape))
        return replace(self, shape=shape, axes=tuple(axes), offset=start)

    # -- queries --------------------------------------------------------------------------------------

    def axis_of(self, dim: int) -> Axis[int] | None:
        """Return the first axis of a dim; None if the dim has no axis (size 1, or within one stick)."""
        return next((axis for axis in self.axes if axis.dim == dim), None)

    def extent(self, dim: int) -> int:
        """Return the positions of a dim that the view reaches, padding included."""
        reached = [axis.divisor * axis.size for axis in self.axes if axis.dim == dim]
        return max(reached, default=self.stick_elements(dim))

    def why_not_addressable(self) -> str | None:
        """Return why a device operation cannot address this view with one stride per dim; None if it can."""
        for dim in self.stick_dims:
            parts = sum(axis.dim == dim for axis in self.stick_axes)
            if parts > 1:
                return f"its sticks hold dim {dim} in {parts} parts"
        for dim in range(len(self.shape)):
            axes = [axis for axis in self.axes if axis.dim == dim]
            if len(axes) > 1:
                return f"dim {dim} lies in memory in {len(axes)} separate pieces"
            if axes and axes[0].divisor != self.stick_elements(dim):
                return f"dim {dim} advances in tiles of {axes[0].divisor}"
        return None

    def run_bytes(self, tile: Sequence[int]) -> int:
        """Return a lower bound of the contiguous bytes in a transfer of one tile: whole sticks, at least one.

        ``tile`` has a size in elements for each dim; a size beyond the dim means the whole dim. A tile
        begins at a multiple of its size in each dim and is whole. For every tile, consider the sticks that hold an
        element of it: no maximal run of adjacent sticks is shorter than the result. The result is the length of
        the shortest such run if each dim has one axis (``why_not_addressable``). It may be less for a dim in pieces
        that do not align with the tiles.
        """
        run, reach = 1, self.elements_per_stick
        for axis in reversed(self.axes):
            if axis.stride != run * reach:
                break
            run *= self.steps(axis, tile[axis.dim])  # if not the whole axis, the next stride is larger
        return run * self.target.stick_bytes

    def steps(self, axis: Axis[int], size: int) -> int:
        """Return the least number of adjacent steps of an axis in a tile of ``size`` elements of its dim."""
        extent = self.shape[axis.dim]
        size = min(size, extent)
        if axis.divisor * axis.size < extent:
            # The axis starts again at its end: each part of a tile between two ends is a multiple of this.
            size = math.gcd(size, axis.divisor * axis.size)
        if axis.divisor == self.stick_elements(axis.dim):
            return min(-(-size // axis.divisor), axis.size)  # a partial stick counts
        return min(max(size // axis.divisor, 1), axis.size)


def run_bytes_of_tiles(view: BufferView, tiles: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the ``run_bytes`` of many tiles, one tile per column."""
    runs, goes_on = np.ones(tiles.shape[1], np.int64), np.ones(tiles.shape[1], bool)
    for axis in reversed(view.axes):
        goes_on &= axis.stride == runs * view.elements_per_stick
        if not goes_on.any():
            break
        sizes, which = np.unique(tiles[axis.dim], return_inverse=True)
        steps = np.array([view.steps(axis, size) for size in sizes.tolist()])[which]
        runs = np.where(goes_on, runs * steps, runs)
    return runs * view.target.stick_bytes


@functools.lru_cache(maxsize=4096)
def _whole(layout: StickLayout) -> BufferView:
    axes = [
        Axis(digit.dim, digit.divisor, digit.size(layout.shape), stride)
        for digit, stride in zip(layout.outer_digits, layout.device_strides, strict=False)
        if digit.dim is not None
    ]
    view = BufferView(
        layout.shape,
        layout.dtype,
        tuple(axes),
        layout.stick_dim,
        layout.elements_per_stick,
        stick_axes=_stick_axes(layout),
        target=layout.target,
    )
    return view.canonical()


def _stick_axes(layout: StickLayout) -> tuple[Axis[int], ...]:
    """Return the digits inside the stick; none if the stick holds one dim, which ``stick_dim`` names."""
    digits, per_stick = layout.stick_digits, layout.elements_per_stick
    if not digits or digits == (Digit(digits[0].dim, 1, per_stick),):
        return ()
    if len(digits) == 1:
        # A digit without a modulus is one stick if the dim fits.
        (digit,) = digits
        assert digit.dim is not None
        if digit.modulus is not None or digit.divisor != 1 or layout.shape[digit.dim] > per_stick:
            raise ViewError(
                f"the last digit has positions of dim {digit.dim} that are not one stick of"
                f" {per_stick} elements"
            )
        return ()
    strides = layout.device_strides[-len(digits) :]
    axes = _merged(
        [
            Axis(digit.dim, digit.divisor, digit.size(layout.shape), stride)
            for digit, stride in zip(digits, strides, strict=True)
            if digit.dim is not None
        ]
    )
    counted = dict.fromkeys(layout.stick_dims, 1)
    for axis in sorted(axes, key=lambda axis: axis.divisor):
        if axis.divisor != counted[axis.dim]:
            raise ViewError(
                f"a stick has positions of dim {axis.dim} from {axis.divisor} on, but {counted[axis.dim]} before"
            )
        counted[axis.dim] *= axis.size
    return axes if len(axes) > 1 else ()


def _merged(axes: Sequence[Axis[int]]) -> tuple[Axis[int], ...]:
    """Sort axes by decreasing stride; merge neighbouring axes of a dim if one begins where the other ends."""
    merged: list[Axis[int]] = []
    for axis in sorted(axes, key=lambda axis: (axis.dim, -axis.divisor, -axis.stride)):
        end = axis.dim, axis.divisor * axis.size, axis.stride * axis.size
        if merged and (merged[-1].dim, merged[-1].divisor, merged[-1].stride) == end:
            axis = replace(axis, size=merged.pop().size * axis.size)
        merged.append(axis)
    # Equal strides are ordered by dim, so that equal views have equal axes.
    return tuple(sorted(merged, key=lambda axis: (-axis.stride, axis.dim)))


# Orders of the device dims: the layouts of an operation's result in addition to the default.


def keep_order(
    target: Target, shape: Sequence[int], dtype: str, stick: int | None, like: BufferView | None
) -> StickLayout:
    """Return a dense layout with ``stick`` in the stick and the dims in the memory order of ``like``.

    Return the default order if ``like`` is None, has another stick dim, or has several dims in the stick.
    """
    if like is None or like.stick_dim != stick or like.stick_axes:
        others = [dim for dim in range(len(shape)) if dim != stick]
        return StickLayout.for_tensor(target, shape, dtype, [*others, -1 if stick is None else stick])
    return from_order(target, shape, dtype, stick, [axis.dim for axis in like.axes])


def from_order(
    target: Target, shape: Sequence[int], dtype: str, stick: int | None, order: Sequence[int]
) -> StickLayout:
    """Return the dense layout with these device dims, outermost first; the stick dim represents its stick count.

    Dims that ``order`` omits (size 1, one stick) come outermost.
    """
    sticks = () if stick is None else ((stick, elements_per_stick(target, dtype)),)
    return _dense(target, shape, dtype, sticks, order)


def _dense(
    target: Target, shape: Sequence[int], dtype: str, sticks: Sequence[tuple[int, int]], order: Sequence[int]
) -> StickLayout:
    elements = dict(sticks)
    missing = [dim for dim in range(len(shape)) if dim not in order]
    counts = [Digit(dim, elements.get(dim, 1)) for dim in (*missing, *order)]
    within_stick = [Digit(dim, 1, count) for dim, count in sticks] or [Digit(None)]
    return StickLayout(target, tuple(shape), dtype, (*counts, *within_stick))


def packed_order(
    target: Target,
    shape: Sequence[int],
    dtype: str,
    sticks: Sequence[tuple[int, int]],
    order: Sequence[int] = (),
) -> StickLayout:
    """Return a dense layout whose sticks hold (dim, elements) of several dims, each dim once, outermost first.

    ``order`` contains the device dims outermost first, as in ``from_order``. By default the dims in the stick are
    innermost: the layout of an 8-bit [K, N] with ``sticks`` ((N, 64), (K, 2)) is (N floordiv 64, K floordiv 2,
    N mod 64, K mod 2), as torch-spyre lays out the kernel of a matmul.
    """
    elements = dict(sticks)
    others = (dim for dim in range(len(shape)) if dim not in elements)
    return _dense(target, shape, dtype, sticks, order or [*others, *elements])


def natural_order(target: Target, shape: Sequence[int], dtype: str, stick: int | None) -> StickLayout:
    """Return a dense layout whose device dims are in logical order, then the stick count, then the last other dim."""
    # The rows of one matrix are contiguous, and the batches follow each other. The default order puts dim 0
    # innermost, which takes up to 8.3x as long on a batched matmul for the same bytes, as the developers of
    # torch-spyre measured (untraced, docs/sources.md).
    others = [dim for dim in range(len(shape)) if dim != stick]
    count = [] if stick is None else [stick]
    return from_order(target, shape, dtype, stick, [*others[:-1], *count, *others[-1:]])
