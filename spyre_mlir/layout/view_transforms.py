# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""View transforms: transpose, reshape and slice as values that apply to any view of memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from spyre_mlir.layout.offsets import Offsets
from spyre_mlir.layout.view import Axis, BufferView, ViewError
from spyre_mlir.layout.view_reshapes import collapse, drop_dims, expand
from spyre_mlir.records import dataclass

_Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ViewTransform:
    """One view operation."""

    def apply(self, source: BufferView) -> BufferView:
        """Return the view of the operation's result; ``ViewError`` if no strides and digits express it."""
        raise NotImplementedError

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform | None:
        """Return the transform that takes a result back to the source, of this shape; None if there is none."""
        return None


@dataclass(frozen=True)
class Transpose(ViewTransform):
    """Result dim ``j`` is source dim ``permutation[j]``."""

    permutation: tuple[int, ...]

    def apply(self, source: BufferView) -> BufferView:
        """Permute the dims."""
        return source.transpose(self.permutation)

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform:
        """Permute the dims back."""
        return Transpose(tuple(sorted(range(len(shape)), key=self.permutation.__getitem__)))


@dataclass(frozen=True)
class Expand(ViewTransform):
    """Each dim becomes a group of adjacent dims; from rank 0 to a shape of ones without groups."""

    groups: _Groups
    shape: tuple[int, ...]

    def apply(self, source: BufferView) -> BufferView:
        """Split the dims."""
        return expand(source, self.groups, self.shape) if self.groups else _scalar(source, self.shape)

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform:
        """Merge the dims again."""
        return Collapse(self.groups)


@dataclass(frozen=True)
class Collapse(ViewTransform):
    """Groups of adjacent dims become one dim each; to rank 0 without groups."""

    groups: _Groups

    def apply(self, source: BufferView) -> BufferView:
        """Merge the dims."""
        return collapse(source, self.groups) if self.groups else _scalar(source, ())

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform:
        """Split the dims again."""
        return Expand(self.groups, shape)


@dataclass(frozen=True)
class Slide(ViewTransform):
    """Each of ``dims`` becomes two: positions of a window, and positions in it, whose elements overlap.

    ``strides`` and ``dilations`` are the steps of both in the source, ``sizes`` their extents. The view is that without
    the padding ``before`` the first element, of which the reader knows (``layout/sliding_windows.py``).
    """

    dims: tuple[int, ...]
    sizes: tuple[tuple[int, int], ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]

    def apply(self, source: BufferView) -> BufferView:
        """Give windows an axis of their own."""
        where = {dim: dim + sum(other < dim for other in self.dims) for dim in range(len(source.shape))}
        slid = {dim: number for number, dim in enumerate(self.dims)}
        shape = [
            extent
            for dim, size in enumerate(source.shape)
            for extent in (self.sizes[slid[dim]] if dim in slid else (size,))
        ]
        if set(slid) & set(source.stick_dims):
            raise ViewError(
                f"windows slide along dim {min(set(slid) & set(source.stick_dims))}, which is in the stick"
            )
        axes = []
        for axis in source.axes:
            if axis.dim not in slid:
                axes.append(replace(axis, dim=where[axis.dim]))
                continue
            if axis.divisor != 1 or sum(other.dim == axis.dim for other in source.axes) > 1:
                raise ViewError(f"windows slide along dim {axis.dim}, which lies in pieces")
            (positions, extent), number = self.sizes[slid[axis.dim]], slid[axis.dim]
            axes.append(Axis(where[axis.dim], 1, positions, axis.stride * self.strides[number]))
            axes.append(Axis(where[axis.dim] + 1, 1, extent, axis.stride * self.dilations[number]))
        return replace(
            source,
            shape=tuple(shape),
            axes=tuple(axes),
            stick_dim=None if source.stick_dim is None else where[source.stick_dim],
            stick_axes=tuple(replace(axis, dim=where[axis.dim]) for axis in source.stick_axes),
        ).canonical()

    def source_index(self, index: Sequence[int]) -> tuple[int, ...]:
        """Return the index in the source of an index of the view; negative before the first element."""
        remaining = iter(index)
        steps = {
            dim: numbers
            for dim, *numbers in zip(self.dims, self.strides, self.dilations, self.before, strict=True)
        }
        source: list[int] = []
        for position in remaining:
            if len(source) in steps:
                stride, dilation, before = steps[len(source)]
                position = stride * position + dilation * next(remaining) - before
            source.append(position)
        return tuple(source)


@dataclass(frozen=True)
class Slice(ViewTransform):
    """A rectangular part, without the ``dropped`` dims of size 1.

    Where it moves with a loop, ``offsets`` are the first ones, and ``moves`` has (dim, all its offsets). Its
    view is that at ``offsets``; a ``ViewError`` if it lies differently at others.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    dropped: tuple[int, ...] = ()
    moves: tuple[tuple[int, Offsets], ...] = ()

    def apply(self, source: BufferView) -> BufferView:
        """Slice at ``offsets``, after a check that the slices of all other iterations lie alike."""
        view = source.slice(self.offsets, self.sizes, self.steps)
        for dim, offsets in self.moves:
            for offset in offsets.modulo(_period(source, dim)):
                self._check_like(view, dim, offset, source)
        return drop_dims(view, self.dropped)

    def _check_like(self, view: BufferView, dim: int, offset: int, source: BufferView) -> None:
        offsets = tuple(offset if position == dim else first for position, first in enumerate(self.offsets))
        other = source.slice(offsets, self.sizes, self.steps)
        if replace(other, offset=view.offset) != view:
            raise ViewError(
                f"a slice of dim {dim} from {offset} lies differently than one from {self.offsets[dim]}"
            )

    def advances(self, source: BufferView) -> dict[int, Fraction]:
        """Return the stride of the slice, in elements of the buffer, per position of each dim that it moves along.

        ``ViewError`` where it does not advance in equal steps.
        """
        return {dim: _advance(source, dim, offsets) for dim, offsets in self.moves}

    def may_overlap(self, other: Slice) -> bool:
        """Return whether two slices of one buffer may share an element, in whatever iterations."""
        return all(
            begin < other_end and other_begin < end
            for (begin, end), (other_begin, other_end) in zip(self._reach(), other._reach(), strict=True)
        )

    def _reach(self) -> list[tuple[int, int]]:
        """Begin and end of the slice in each dim, over all iterations."""
        last = dict(enumerate(self.offsets)) | {dim: offsets.last for dim, offsets in self.moves}
        return [
            (first, last[dim] + (size - 1) * step + 1)
            for dim, (first, size, step) in enumerate(zip(self.offsets, self.sizes, self.steps, strict=True))
        ]

    def cuts_sticks(self, dim: int, per_stick: int, extent: int) -> bool:
        """Return whether the slice ever begins or ends inside a stick, with a dim of ``extent`` in the stick."""
        step = next((offsets.step for moving, offsets in self.moves if moving == dim), 0)
        offset, size = self.offsets[dim], self.sizes[dim]
        # Behind the end of the dim a stick has padding only, but a slice that moves ends elsewhere, too.
        ends_inside = size % per_stick != 0 and (step != 0 or offset + size != extent)
        return offset % per_stick != 0 or step % per_stick != 0 or ends_inside


def _advance(source: BufferView, dim: int, offsets: Offsets) -> Fraction:
    if offsets.count == 1:
        return Fraction(0)
    positions = offsets.first + offsets.step * np.arange(offsets.count)
    begins = np.zeros(offsets.count, np.int64)
    for axis in source.axes:
        if axis.dim == dim:
            begins += positions // axis.divisor % axis.size * axis.stride
    steps = np.diff(begins)
    if np.any(steps != steps[0]):
        raise ViewError(f"a slice that moves along dim {dim} by {offsets.step} does not move in equal steps")
    return Fraction(int(steps[0]), offsets.step)


def _period(source: BufferView, dim: int) -> int:
    """The distance of offsets at which slices lie alike: a multiple of all inner digits of the dim."""
    axes = [axis for axis in source.axes if axis.dim == dim]
    outermost = max((axis.divisor for axis in axes), default=1)
    inner = (axis.divisor * axis.size for axis in axes if axis.divisor != outermost)
    return math.lcm(source.stick_elements(dim), outermost, *inner)


def _scalar(source: BufferView, shape: tuple[int, ...]) -> BufferView:
    """A view of one element, as a tensor of rank 0 or of a shape of ones."""
    return BufferView(
        shape, source.dtype, (), None, source.elements_per_stick, source.offset, target=source.target
    )


@functools.lru_cache(maxsize=1 << 16)
def applied(step: ViewTransform, source: BufferView) -> BufferView:
    """Return ``step.apply(source)``, cached: a program repeats few views of few layouts."""
    return step.apply(source)
