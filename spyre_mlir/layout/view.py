"""Views of a device buffer: transpose, expand, collapse, slice, without moving a byte.

A view is a logical shape over somebody else's memory: each *axis* says that one step of one digit of a
logical dim advances so many elements. Composition with a view operation either gives a view again or
raises ``ViewError`` with the reason; then the data has to be moved (a restickify).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spyre_mlir.layout.stick_layout import Digit, StickLayout


class ViewError(ValueError):
    """A view that the device layout cannot express; the text is the reason."""


@dataclass(frozen=True)
class Axis:
    """``(index[dim] floordiv divisor) mod size`` steps of ``stride`` elements."""

    dim: int
    divisor: int
    size: int
    stride: int


@dataclass(frozen=True)
class BufferView:
    """A tensor of ``shape`` in device memory, ``offset`` elements into its buffer.

    ``axes`` are all digits but the lane; ``lane`` is the logical dim inside the stick (None: sparse).
    Axes are kept canonical: neighbours merged, size 1 dropped, by falling stride.
    """

    shape: tuple[int, ...]
    dtype: str
    axes: tuple[Axis, ...]
    lane: int | None
    elements_per_stick: int
    offset: int = 0

    @classmethod
    def of(cls, layout: StickLayout) -> BufferView:
        """The whole buffer of a layout."""
        axes = [
            Axis(digit.dim, digit.divisor, digit.size(layout.shape), stride)
            for digit, stride in zip(layout.digits[:-1], layout.device_strides, strict=False)
            if digit.dim is not None
        ]
        view = cls(layout.shape, layout.dtype, tuple(axes), layout.stick_dim, layout.elements_per_stick)
        return view._canonical()

    @property
    def layout(self) -> StickLayout:
        """The layout attribute of this view: its map alone, without strides and offset."""
        digits = [self._digit(axis) for axis in self.axes]
        lane = Digit(None) if self.lane is None else Digit(self.lane, 1, self.elements_per_stick)
        return StickLayout(self.shape, self.dtype, (*digits, lane))

    def _digit(self, axis: Axis) -> Digit:
        outermost = all(other.divisor <= axis.divisor for other in self.axes if other.dim == axis.dim)
        exact = -(-self.shape[axis.dim] // axis.divisor) == axis.size
        return Digit(axis.dim, axis.divisor, None if outermost and exact else axis.size)

    def _canonical(self) -> BufferView:
        axes = sorted(
            (axis for axis in self.axes if axis.size > 1),
            key=lambda axis: (axis.dim, -axis.divisor, -axis.stride),
        )
        merged: list[Axis] = []
        for axis in axes:
            last = merged[-1] if merged else None
            if (
                last is not None
                and last.dim == axis.dim
                and last.divisor == axis.divisor * axis.size
                and last.stride == axis.stride * axis.size
            ):
                merged[-1] = Axis(axis.dim, axis.divisor, last.size * axis.size, axis.stride)
            else:
                merged.append(axis)
        lane = self.lane
        if lane is not None and self.shape[lane] == 1:
            lane = None  # a stick of one element is sparse
        return replace(self, axes=tuple(sorted(merged, key=lambda axis: (-axis.stride, axis.dim))), lane=lane)

    # -- view operations ------------------------------------------------------------------------------

    def transpose(self, permutation: Sequence[int]) -> BufferView:
        """Result dim ``j`` is source dim ``permutation[j]``."""
        where = {source: result for result, source in enumerate(permutation)}
        return replace(
            self,
            shape=tuple(self.shape[source] for source in permutation),
            axes=tuple(replace(axis, dim=where[axis.dim]) for axis in self.axes),
            lane=None if self.lane is None else where[self.lane],
        )._canonical()

    def rename(self, dims: Sequence[int | None], rank: int, extents: Sequence[int]) -> BufferView:
        """The view over iteration dims: logical dim ``k`` is iteration dim ``dims[k]`` (None: a dim of size 1)."""
        shape = list(extents)
        axes = tuple(replace(axis, dim=_named(dims[axis.dim], axis.dim)) for axis in self.axes)
        lane = None if self.lane is None else dims[self.lane]
        return replace(self, shape=tuple(shape[:rank]), axes=axes, lane=lane)._canonical()

    def collapse(self, groups: Sequence[Sequence[int]]) -> BufferView:
        """Groups of adjacent dims become one dim each (tensor.collapse_shape)."""
        target: dict[int, tuple[int, int]] = {}
        shape = []
        for result, group in enumerate(groups):
            weight = 1
            for dim in reversed(group):
                target[dim] = (result, weight)
                weight *= self.shape[dim]
            shape.append(weight)
        first = {next((d for d in group if self.shape[d] > 1), None) for group in groups}
        axes = []
        for axis in self.axes:
            if axis.dim not in first and self.shape[axis.dim] % (axis.divisor * axis.size):
                raise ViewError(
                    f"dim {axis.dim} of size {self.shape[axis.dim]} is padded and not outermost in its group"
                )
            result, weight = target[axis.dim]
            axes.append(Axis(result, axis.divisor * weight, axis.size, axis.stride))
        lane = None
        if self.lane is not None:
            self._check_lane_collapses(first, target)
            lane = target[self.lane][0]
        return replace(self, shape=tuple(shape), axes=tuple(axes), lane=lane)._canonical()

    def _check_lane_collapses(self, first: set[int | None], target: dict[int, tuple[int, int]]) -> None:
        assert self.lane is not None
        if target[self.lane][1] != 1:
            raise ViewError(f"stick dim {self.lane} is not the innermost of its group")
        if self.lane not in first and self.shape[self.lane] % self.elements_per_stick:
            raise ViewError(
                f"stick dim {self.lane} of size {self.shape[self.lane]} is padded inside its group"
            )

    def expand(self, groups: Sequence[Sequence[int]], shape: Sequence[int]) -> BufferView:
        """Each dim becomes a group of adjacent dims (tensor.expand_shape)."""
        weights: dict[int, int] = {}
        for group in groups:
            weight = 1
            for dim in reversed(group):
                weights[dim] = weight
                weight *= shape[dim]
        axes = [part for axis in self.axes for part in _split(axis, groups[axis.dim], shape, weights)]
        lane = None
        if self.lane is not None:
            lane = self._expanded_lane(groups[self.lane], shape)
        return replace(self, shape=tuple(shape), axes=tuple(axes), lane=lane)._canonical()

    def _expanded_lane(self, group: Sequence[int], shape: Sequence[int]) -> int | None:
        sized = [dim for dim in group if shape[dim] > 1]
        if not sized:
            return None
        if len(sized) > 1 and shape[sized[-1]] % self.elements_per_stick:
            raise ViewError(f"expanding the stick dim cuts sticks: inner size {shape[sized[-1]]}")
        return sized[-1]

    def slice(self, offsets: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> BufferView:
        """A rectangular part (tensor.extract_slice)."""
        view = self
        for dim, (offset, size, step) in enumerate(zip(offsets, sizes, steps, strict=True)):
            if (offset, size, step) != (0, self.shape[dim], 1):
                view = view._sliced(dim, offset, size, step)
        return view._canonical()

    def _sliced(self, dim: int, offset: int, size: int, step: int) -> BufferView:
        if size == 1:
            step = 1  # one element has no step
        if self.lane == dim and (offset % self.elements_per_stick or step != 1):
            raise ViewError(f"a slice from {offset} by {step} cuts the sticks of dim {dim}")
        axes, start = [], self.offset
        own = [axis for axis in self.axes if axis.dim == dim]
        for axis in self.axes:
            if axis.dim != dim:
                axes.append(axis)
                continue
            first, last = offset // axis.divisor, (offset + (size - 1) * step) // axis.divisor
            start += first % axis.size * axis.stride
            if first == last:
                continue
            if offset % axis.divisor or (step != 1 and (axis.divisor != 1 or len(own) > 1)):
                raise ViewError(f"a slice from {offset} by {step} does not fall on the tiles of dim {dim}")
            if (offset + size) % axis.divisor and axis.divisor != (
                self.elements_per_stick if dim == self.lane else 1
            ):
                raise ViewError(
                    f"a slice to {offset + size} ends inside a piece of {axis.divisor} of dim {dim}"
                )
            if first % axis.size + last - first >= axis.size and offset % (axis.divisor * axis.size):
                raise ViewError(f"a slice from {offset} wraps around a tile of dim {dim}")
            if first % axis.size + last - first < axis.size:
                axes.append(Axis(dim, axis.divisor, (last - first) // step + 1, axis.stride * step))
            else:
                axes.append(axis)
        shape = tuple(size if k == dim else extent for k, extent in enumerate(self.shape))
        return replace(self, shape=shape, axes=tuple(axes), offset=start)

    def drop(self, dims: Sequence[int]) -> BufferView:
        """Without dims of size 1 (a rank-reduced slice)."""
        kept = [dim for dim in range(len(self.shape)) if dim not in dims]
        where = {dim: new for new, dim in enumerate(kept)}
        axes = tuple(replace(axis, dim=where[axis.dim]) for axis in self.axes)
        lane = None if self.lane is None else where[self.lane]
        return replace(self, shape=tuple(self.shape[dim] for dim in kept), axes=axes, lane=lane)

    # -- questions ------------------------------------------------------------------------------------

    def axis_of(self, dim: int) -> Axis | None:
        """The one axis of a dim; None if it has none (size 1, or within one stick)."""
        return next((axis for axis in self.axes if axis.dim == dim), None)

    def why_not_plain(self) -> str | None:
        """Why a device operation cannot address this view with one stride per dim, or None if it can."""
        for dim in range(len(self.shape)):
            axes = [axis for axis in self.axes if axis.dim == dim]
            if len(axes) > 1:
                return f"dim {dim} lies in memory in {len(axes)} separate pieces"
            expected = self.elements_per_stick if dim == self.lane else 1
            if axes and axes[0].divisor != expected:
                return f"dim {dim} advances in tiles of {axes[0].divisor}"
        return None


def _named(dim: int | None, source: int) -> int:
    if dim is None:
        raise ViewError(f"dim {source} has more than one element but no iteration dim")
    return dim


def _split(axis: Axis, group: Sequence[int], shape: Sequence[int], weights: dict[int, int]) -> list[Axis]:
    """The parts of one digit that fall to each dim of an expanded group."""
    low, high = axis.divisor, axis.divisor * axis.size
    sized = [dim for dim in group if shape[dim] > 1]
    parts = []
    for dim in sized:
        begin = weights[dim]
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
