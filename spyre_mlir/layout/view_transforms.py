# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""View transforms: transpose, reshape and slice as values that can be applied to any view of memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction

import numpy as np

from spyre_mlir.layout.view import Axis, BufferView, ViewError, required_dim
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


@dataclass(frozen=True)
class Index:
    """An index in loops: its possible values, and its stride per iteration of each loop.

    ``moves`` maps each loop to a stride that is not 0; None if the index does not advance in equal steps.
    """

    offsets: Offsets
    moves: Mapping[Hashable, int] | None = field(default_factory=dict)

    def __add__(self, other: Index) -> Index:
        if self.moves is None or other.moves is None:
            return Index(self.offsets + other.offsets, None)
        total = dict(self.moves)
        for loop, step in other.moves.items():
            total[loop] = total.get(loop, 0) + step
        return Index(self.offsets + other.offsets, _without_zeros(total))

    def __mul__(self, factor: int) -> Index:
        moves = None if self.moves is None else _without_zeros({k: v * factor for k, v in self.moves.items()})
        return Index(self.offsets * factor, moves)

    def __floordiv__(self, divisor: int) -> Index:
        # The quotient of an index that advances may stay the same for some iterations: its steps may differ.
        return Index(self.offsets // divisor, None if self.moves else self.moves)

    def __mod__(self, modulus: int) -> Index:
        return Index(self.offsets % modulus, None if self.moves else self.moves)


def _without_zeros(moves: dict[Hashable, int]) -> dict[Hashable, int]:
    return {loop: step for loop, step in moves.items() if step}


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
        """Permute the dims."""
        return source.transpose(self.permutation)

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform:
        """Permute the dims back."""
        return Transpose(tuple(sorted(range(len(shape)), key=self.permutation.__getitem__)))


@dataclass(frozen=True)
class Expand(ViewTransform):
    """Each dim becomes a group of adjacent dims; without groups, rank 0 becomes a shape of ones."""

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
    """Each group of adjacent dims becomes one dim; without groups, the result has rank 0."""

    groups: _Groups

    def apply(self, source: BufferView) -> BufferView:
        """Merge the dims."""
        return collapse(source, self.groups) if self.groups else _scalar(source, ())

    def inverse(self, shape: tuple[int, ...]) -> ViewTransform:
        """Split the dims again."""
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
        return replace(
            source,
            shape=tuple(shape),
            axes=tuple(axes),
            stick_dim=None if source.stick_dim is None else where[source.stick_dim],
            stick_axes=tuple(replace(axis, dim=where[axis.dim]) for axis in source.stick_axes),
        ).canonical()

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

        Raise ``ViewError`` if the slice does not advance in equal steps.
        """
        return {dim: _advance(source, dim, offsets) for dim, offsets in self.moves}

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
    """Return the distance between offsets at which slices have the same layout: a multiple of all inner digits."""
    axes = [axis for axis in source.axes if axis.dim == dim]
    outermost = max((axis.divisor for axis in axes), default=1)
    inner = (axis.divisor * axis.size for axis in axes if axis.divisor != outermost)
    return math.lcm(source.stick_elements(dim), outermost, *inner)


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
        _check_stick_collapses(view, dim, first, target, shape)
    axes = []
    for axis in view.axes:
        if axis.dim not in first and view.shape[axis.dim] % (axis.divisor * axis.size):
            raise ViewError(
                f"dim {axis.dim} of size {view.shape[axis.dim]} is padded and not outermost in its group"
            )
        result, weight = target[axis.dim]
        axes.append(Axis(result, axis.divisor * weight, axis.size, axis.stride))
    return replace(
        view,
        shape=tuple(shape),
        axes=tuple(axes),
        stick_dim=None if view.stick_dim is None else target[view.stick_dim][0],
        stick_axes=tuple(replace(axis, dim=target[axis.dim][0]) for axis in view.stick_axes),
    ).canonical()


def _check_stick_collapses(
    view: BufferView,
    dim: int,
    first: set[int | None],
    target: dict[int, tuple[int, int]],
    shape: Sequence[int],
) -> None:
    result, weight = target[dim]
    merged = [other for other in view.stick_dims if target[other][0] == result]
    if len(merged) > 1:
        raise ViewError(f"stick dims {merged} cannot become one dim")
    if weight != 1:
        raise ViewError(f"stick dim {dim} is not the innermost of its group")
    if dim not in first and shape[result] > 1 and view.shape[dim] % view.stick_elements(dim):
        raise ViewError(f"stick dim {dim} of size {view.shape[dim]} is padded inside its group")


def expand(view: BufferView, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> BufferView:
    """Return the view in which each dim is split into a group of adjacent dims (tensor.expand_shape)."""
    weights: dict[int, int] = {}
    for group in groups:
        weight = 1
        for dim in reversed(group):
            weights[dim] = weight
            weight *= shape[dim]
    where = {dim: _expanded_stick(view, dim, groups[dim], shape) for dim in view.stick_dims}
    axes = [part for axis in view.axes for part in _split(axis, groups[axis.dim], shape, weights)]
    return replace(
        view,
        shape=tuple(shape),
        axes=tuple(axes),
        stick_dim=None if view.stick_dim is None else where[view.stick_dim],
        stick_axes=tuple(replace(axis, dim=where[axis.dim]) for axis in view.stick_axes),
    ).canonical()


def _expanded_stick(view: BufferView, dim: int, group: Sequence[int], shape: Sequence[int]) -> int:
    """Return the dim of a group that counts elements in the stick: the innermost dim of more than one element."""
    sized = [part for part in group if shape[part] > 1]
    if len(sized) > 1 and shape[sized[-1]] % view.stick_elements(dim):
        raise ViewError(f"expanding the stick dim cuts sticks: inner size {shape[sized[-1]]}")
    return sized[-1] if sized else group[-1]


def drop_dims(view: BufferView, dims: Sequence[int]) -> BufferView:
    """Return the view without these dims of size 1 (a rank-reduced slice)."""
    remaining = [dim for dim in range(len(view.shape)) if dim not in dims]
    where = {dim: new for new, dim in enumerate(remaining)}
    axes = tuple(replace(axis, dim=where[axis.dim]) for axis in view.axes if axis.dim in where)
    stick_axes = tuple(
        replace(axis, dim=required_dim(where.get(axis.dim), axis.dim)) for axis in view.stick_axes
    )
    stick_dim = None if view.stick_dim is None else where[view.stick_dim]
    shape = tuple(view.shape[dim] for dim in remaining)
    return replace(view, shape=shape, axes=axes, stick_dim=stick_dim, stick_axes=stick_axes)


def _split(axis: Axis, group: Sequence[int], shape: Sequence[int], weights: dict[int, int]) -> list[Axis]:
    """Return the axes into which one axis splits, for the dims of an expanded group."""
    low, high = axis.divisor, axis.divisor * axis.size
    sized = [dim for dim in group if shape[dim] > 1]
    parts = []
    for dim in sized:
        begin = weights[dim]
        # The padding of the old dim goes to the outermost new dim.
        end = begin * shape[dim] if dim != sized[0] else max(high, begin * shape[dim])
        lo, hi = max(low, begin), min(high, end)
        if lo >= hi:
            continue
        if lo % begin or lo % low or hi % lo:
            raise ViewError(
                f"sizes {[shape[d] for d in group]} do not fall on tiles of {axis.divisor} x {axis.size}"
            )
        parts.append(Axis(dim, lo // begin, hi // lo, axis.stride * (lo // low)))
    for boundary in (weights[dim] for dim in sized[:-1]):
        if low < boundary < high and (boundary % low or high % boundary):
            raise ViewError(
                f"sizes {[shape[d] for d in group]} do not fall on tiles of {axis.divisor} x {axis.size}"
            )
    return parts
