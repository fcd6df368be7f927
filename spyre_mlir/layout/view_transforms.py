# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""View transforms: transpose, reshape and slice as values that can be applied to any view of memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from spyre_mlir.layout.view import Axis, BufferView, ViewError
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class Offsets:
    """The numbers ``first + k * step`` for ``k`` from 0 to ``count - 1``; ``step`` is never negative.

    The result of arithmetic contains every number that the operands can give, and perhaps more.
    """

    first: int
    step: int = 0
    count: int = 1

    @property
    def last(self) -> int:
        """The largest number."""
        return self.first + self.step * (self.count - 1)

    def __add__(self, other: Offsets) -> Offsets:
        return _between(self.first + other.first, self.last + other.last, math.gcd(self.step, other.step))

    def __mul__(self, factor: int) -> Offsets:
        first, last = sorted((self.first * factor, self.last * factor))
        return _between(first, last, abs(self.step * factor))

    def __floordiv__(self, divisor: int) -> Offsets:
        # If the divisor does not divide the step, the quotients are unevenly spaced; step 1 covers all of them.
        step = 1 if self.step % divisor else self.step // divisor
        return _between(self.first // divisor, self.last // divisor, step)

    def __mod__(self, modulus: int) -> Offsets:
        if self.first // modulus == self.last // modulus:  # no number wraps around
            return Offsets(self.first % modulus, self.step, self.count)
        # All numbers have the same remainder by this; after a wraparound nothing more is known of them.
        step = math.gcd(self.step, modulus)
        return _between(self.first % step, self.first % step + modulus - step, step)

    def modulo(self, period: int) -> Iterator[int]:
        """Yield some of the numbers, at least one for each remainder by ``period`` that occurs."""
        distinct = period // math.gcd(self.step, period)
        return (self.first + k * self.step for k in range(min(self.count, distinct)))


def _between(first: int, last: int, step: int) -> Offsets:
    """Return the offsets from ``first`` to ``last``; their distance is a multiple of ``step``."""
    return Offsets(first, step, (last - first) // step + 1) if last > first else Offsets(first)


_Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ViewTransform:
    """One view operation."""

    def apply(self, source: BufferView) -> BufferView:
        """Return the view of the operation's result; ``ViewError`` if no strides and digits express it."""
        raise NotImplementedError

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform | None:
        """Return the transform from the result back to the source of this ``shape``; None if there is none."""
        return None


@dataclass(frozen=True)
class Transpose(ViewTransform):
    """Result dim ``j`` is source dim ``permutation[j]``."""

    permutation: tuple[int, ...]

    def apply(self, source: BufferView) -> BufferView:
        return source.transpose(self.permutation)

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform:
        return Transpose(tuple(sorted(range(len(shape)), key=self.permutation.__getitem__)))


@dataclass(frozen=True)
class Expand(ViewTransform):
    """Each dim becomes a group of adjacent dims; without groups, rank 0 becomes a shape of ones."""

    groups: _Groups
    shape: tuple[int, ...]

    def apply(self, source: BufferView) -> BufferView:
        return expand(source, self.groups, self.shape) if self.groups else _scalar(source, self.shape)

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform:
        return Collapse(self.groups)


@dataclass(frozen=True)
class Collapse(ViewTransform):
    """Each group of adjacent dims becomes one dim; without groups, the result has rank 0."""

    groups: _Groups

    def apply(self, source: BufferView) -> BufferView:
        return collapse(source, self.groups) if self.groups else _scalar(source, ())

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform:
        return Expand(self.groups, shape)


@dataclass(frozen=True)
class Slide(ViewTransform):
    """Each of ``dims`` becomes two dims: positions of a window, and positions inside the window; windows overlap.

    ``strides`` and ``dilations`` are the steps of these two dims in the source, ``sizes`` their extents. The view does
    not contain the padding ``before`` the first element; its reader handles it (``layout/space.py``).
    """

    dims: tuple[int, ...]
    sizes: tuple[tuple[int, int], ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]

    def apply(self, source: BufferView) -> BufferView:
        """Split the axis of each dim into an axis for window positions and an axis inside the window."""
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
        return source.with_dims(shape, axes, where).canonical()

    def source_index(self, index: Sequence[int]) -> tuple[int, ...]:
        """Return the source index of a view index; it is negative in padding before the first element."""
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

    If the slice moves with a loop, ``offsets`` are the offsets of the first iteration, and ``moves`` has (dim, all
    offsets). The view is the view at ``offsets``; ``ViewError`` if the slice has another layout at other offsets.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    dropped: tuple[int, ...] = ()
    moves: tuple[tuple[int, Offsets], ...] = ()

    def apply(self, source: BufferView) -> BufferView:
        """Slice at ``offsets``, after a check that the slices of all iterations have the same layout."""
        view = source.slice(self.offsets, self.sizes, self.steps)
        for dim, moving in self.moves:
            # Slices have the same layout at offsets whose distance is a multiple of all inner digits.
            axes = [axis for axis in source.axes if axis.dim == dim]
            outermost = max((axis.divisor for axis in axes), default=1)
            inner = (axis.divisor * axis.size for axis in axes if axis.divisor != outermost)
            for offset in moving.modulo(math.lcm(source.stick_elements(dim), outermost, *inner)):
                offsets = (*self.offsets[:dim], offset, *self.offsets[dim + 1 :])
                other = source.slice(offsets, self.sizes, self.steps)
                if replace(other, offset=view.offset) != view:
                    raise ViewError(
                        f"a slice of dim {dim} from {offset} lies differently than one from {self.offsets[dim]}"
                    )
        return drop_dims(view, self.dropped)

    def advances(self, source: BufferView) -> dict[int, Fraction]:
        """Return the stride of the slice, in elements of the buffer, per position of each dim that it moves along.

        Raise ``ViewError`` if the slice does not advance in equal steps.
        """
        strides = {}
        for dim, offsets in self.moves:
            positions = offsets.first + offsets.step * np.arange(offsets.count)
            begins = np.zeros(offsets.count, np.int64)
            for axis in source.axes:
                if axis.dim == dim:
                    begins += positions // axis.divisor % axis.size * axis.stride
            steps = np.diff(begins)
            if np.any(steps != steps[:1]):
                raise ViewError(
                    f"a slice that moves along dim {dim} by {offsets.step} does not move in equal steps"
                )
            strides[dim] = Fraction(int(steps[0]), offsets.step) if steps.size else Fraction(0)
        return strides

    def may_overlap(self, other: Slice) -> bool:
        """Return whether two slices of one buffer may share an element, in any pair of iterations."""
        return all(
            begin < other_end and other_begin < end
            for (begin, end), (other_begin, other_end) in zip(self._reach(), other._reach(), strict=True)
        )

    def _reach(self) -> list[tuple[int, int]]:
        """Return the begin and end of the slice in each dim, over all iterations."""
        last = dict(enumerate(self.offsets)) | {dim: offsets.last for dim, offsets in self.moves}
        return [
            (first, last[dim] + (size - 1) * step + 1)
            for dim, (first, size, step) in enumerate(zip(self.offsets, self.sizes, self.steps, strict=True))
        ]

    def cuts_sticks(self, dim: int, per_stick: int, extent: int) -> bool:
        """Return whether the slice begins or ends inside a stick in some iteration; ``dim`` has size ``extent``."""
        step = next((offsets.step for moving, offsets in self.moves if moving == dim), 0)
        offset, size = self.offsets[dim], self.sizes[dim]
        # After the end of the dim a stick has only padding, but a slice that moves also ends elsewhere.
        ends_inside = size % per_stick != 0 and (step != 0 or offset + size != extent)
        return offset % per_stick != 0 or step % per_stick != 0 or ends_inside


def _scalar(source: BufferView, shape: tuple[int, ...]) -> BufferView:
    """Return a view of one element, as a tensor of rank 0 or of a shape of ones."""
    return BufferView(
        shape, source.dtype, (), None, source.elements_per_stick, source.offset, target=source.target
    )


@functools.lru_cache(maxsize=1 << 16)
def applied(step: ViewTransform, source: BufferView) -> BufferView:
    """Return ``step.apply(source)``, cached: a program repeats a few views of a few layouts."""
    return step.apply(source)


# Reshapes of views: merge groups of adjacent dims, or split a dim into a group, without data movement.
#
# These are the shapes of ``tensor.collapse_shape`` and ``tensor.expand_shape``. A reshape that cuts sticks, or the
# pieces in which a dim lies, raises ``ViewError`` with the reason.


def collapse(view: BufferView, groups: Sequence[Sequence[int]]) -> BufferView:
    """Return the view in which each group of adjacent dims is one dim (tensor.collapse_shape)."""
    target: dict[int, tuple[int, int]] = {}
    shape = []
    for result, group in enumerate(groups):
        weight = 1
        for dim in reversed(group):
            target[dim] = (result, weight)
            weight *= view.shape[dim]
        shape.append(weight)
    # Only the outermost dim of a group may have padding: other padding would lie between elements of the new dim.
    first = {next((d for d in group if view.shape[d] > 1), None) for group in groups}
    for dim in view.stick_dims:
        result, weight = target[dim]
        merged = [other for other in view.stick_dims if target[other][0] == result]
        if len(merged) > 1:
            raise ViewError(f"stick dims {merged} cannot become one dim")
        if weight != 1:
            raise ViewError(f"stick dim {dim} is not the innermost of its group")
        if dim not in first and shape[result] > 1 and view.shape[dim] % view.stick_elements(dim):
            raise ViewError(f"stick dim {dim} of size {view.shape[dim]} is padded inside its group")
    axes = []
    for axis in view.axes:
        if axis.dim not in first and view.shape[axis.dim] % (axis.divisor * axis.size):
            raise ViewError(
                f"dim {axis.dim} of size {view.shape[axis.dim]} is padded and not outermost in its group"
            )
        result, weight = target[axis.dim]
        axes.append(Axis(result, axis.divisor * weight, axis.size, axis.stride))
    return view.with_dims(shape, axes, {dim: result for dim, (result, _) in target.items()}).canonical()


def expand(view: BufferView, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> BufferView:
    """Return the view in which each dim is split into a group of adjacent dims (tensor.expand_shape)."""
    weights: dict[int, int] = {}
    for group in groups:
        weight = 1
        for dim in reversed(group):
            weights[dim] = weight
            weight *= shape[dim]
    where = {}
    for dim in view.stick_dims:
        # The innermost dim of more than one element counts the elements in the stick.
        sized = [part for part in groups[dim] if shape[part] > 1]
        if len(sized) > 1 and shape[sized[-1]] % view.stick_elements(dim):
            raise ViewError(f"expanding the stick dim cuts sticks: inner size {shape[sized[-1]]}")
        where[dim] = sized[-1] if sized else groups[dim][-1]
    axes = [part for axis in view.axes for part in _split(axis, groups[axis.dim], shape, weights)]
    return view.with_dims(shape, axes, where).canonical()


def drop_dims(view: BufferView, dims: Sequence[int]) -> BufferView:
    """Return the view without these dims of size 1 (a rank-reduced slice)."""
    remaining = [dim for dim in range(len(view.shape)) if dim not in dims]
    where = {**dict.fromkeys(dims), **{dim: new for new, dim in enumerate(remaining)}}
    axes = [replace(axis, dim=new) for axis in view.axes if (new := where[axis.dim]) is not None]
    return view.with_dims([view.shape[dim] for dim in remaining], axes, where)


def _split(
    axis: Axis[int], group: Sequence[int], shape: Sequence[int], weights: dict[int, int]
) -> list[Axis[int]]:
    """Return the axes into which one axis splits, for the dims of an expanded group."""
    low, high = axis.divisor, axis.divisor * axis.size
    sized = [dim for dim in group if shape[dim] > 1]
    parts = []
    falls = all(
        not low < boundary < high or (boundary % low == 0 and high % boundary == 0)
        for boundary in (weights[dim] for dim in sized[:-1])
    )
    for dim in sized:
        begin = weights[dim]
        # The padding of the old dim goes to the outermost new dim.
        end = begin * shape[dim] if dim != sized[0] else max(high, begin * shape[dim])
        lo, hi = max(low, begin), min(high, end)
        if lo < hi:
            falls &= lo % begin == 0 and lo % low == 0 and hi % lo == 0
            parts.append(Axis(dim, lo // begin, hi // lo, axis.stride * (lo // low)))
    if not falls:
        raise ViewError(
            f"sizes {[shape[d] for d in group]} do not fall on tiles of {axis.divisor} x {axis.size}"
        )
    return parts
