# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Views of a dense host array by sizes, strides and an offset, as in PyTorch; and the layout of such a view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from spyre_mlir.layout.stick_layout import Digit, StickLayout
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class StridedView:
    """A view of ``shape`` of an array that begins at element ``offset``, with ``strides`` in elements.

    The operations have the semantics, sizes and strides of PyTorch; dims and indices are in range and not negative.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def whole(cls, shape: Sequence[int]) -> StridedView:
        """Return the view of all of a dense row-major array."""
        strides = [math.prod(max(size, 1) for size in shape[dim + 1 :]) for dim in range(len(shape))]
        return cls(tuple(shape), tuple(strides))

    @property
    def end(self) -> int:
        """The index after the last element that the view addresses."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return self.offset + last + 1 if math.prod(self.shape) else self.offset

    @property
    def elements(self) -> StridedView:
        """The view with stride 0 for dims of one element: views of the same elements become equal."""
        used = [stride if size > 1 else 0 for size, stride in zip(self.shape, self.strides, strict=True)]
        return replace(self, strides=tuple(used))

    def permute(self, dims: Sequence[int]) -> StridedView:
        """Return the view whose dim ``k`` is ``dims[k]`` of this one."""
        shape, strides = (tuple(entries[dim] for dim in dims) for entries in (self.shape, self.strides))
        return replace(self, shape=shape, strides=strides)

    def select(self, dim: int, index: int) -> StridedView:
        """Return the view at one index of a dim, without that dim."""
        rest = self.permute([other for other in range(len(self.shape)) if other != dim])
        return replace(rest, offset=self.offset + index * self.strides[dim])

    def slice(self, dim: int, start: int, stop: int, step: int) -> StridedView:
        """Return the positions ``start``, ``start + step``, .. below ``stop`` of a dim."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + start * strides[dim]
        shape[dim] = max(0, -((start - stop) // step))
        strides[dim] *= step
        return StridedView(tuple(shape), tuple(strides), offset)

    def unsqueeze(self, dim: int) -> StridedView:
        """Return the view with a new dim of one element before ``dim``."""
        # No element depends on this stride; PyTorch reports the same stride.
        stride = self.shape[dim] * self.strides[dim] if dim < len(self.shape) else 1
        shape = (*self.shape[:dim], 1, *self.shape[dim:])
        return StridedView(shape, (*self.strides[:dim], stride, *self.strides[dim:]), self.offset)

    def squeeze(self, dims: Sequence[int]) -> StridedView:
        """Return the view without the dims among ``dims`` that have one element."""
        remaining = [dim for dim, size in enumerate(self.shape) if size != 1 or dim not in dims]
        return self.permute(remaining)

    def expand(self, shape: Sequence[int]) -> StridedView:
        """Return the view with dims of one element repeated and new dims added first; ``shape`` has no -1."""
        new = len(shape) - len(self.shape)
        strides: list[int] = []
        for dim in reversed(range(len(shape))):
            stride = 0
            if dim >= new and self.shape[dim - new] == shape[dim]:
                stride = self.strides[dim - new]
            elif dim < new and shape[dim] == 1 and strides:
                # As in PyTorch, a new dim of one element has the stride of a dense array.
                stride = shape[dim + 1] * strides[0]
            strides.insert(0, stride)
        return StridedView(tuple(shape), tuple(strides), self.offset)

    def view(self, shape: Sequence[int]) -> StridedView | None:
        """Return the view of the same elements in another shape; None if no strides express this view."""
        sizes, strides = list(shape), []
        for elements, stride in self._runs():
            count = 1
            while sizes and (count < elements or sizes[-1] == 1):
                strides.insert(0, count * stride)
                count *= sizes.pop()
            if count != elements:
                return None
        return None if sizes else StridedView(tuple(shape), tuple(strides), self.offset)

    def _runs(self) -> list[tuple[int, int]]:
        """Return (elements, stride) of each group of dims through which one stride leads, innermost first."""
        if not self.shape:
            return [(1, 1)]
        runs = [(self.shape[-1], self.strides[-1])]
        for size, stride in zip(self.shape[-2::-1], self.strides[-2::-1], strict=True):
            elements, inner = runs[-1]
            # A dim of one element joins any run, since its stride is never used.
            if size == 1 or stride == elements * inner:
                runs[-1] = (size * elements, inner)
            else:
                runs.append((size, stride))
        return runs


def layout_of_view(layout: StickLayout, view: StridedView) -> StickLayout | None:
    """Return the layout of a view that contains every element of a tensor of ``layout`` once; None for other views.

    A digit of the tensor becomes a digit of the view's dim that counts the same elements, or several digits if the
    view splits the dim. A padded dim has to stay one dim.
    """
    dims = zip(range(len(view.shape)), view.shape, view.strides, strict=True)
    sized = [(dim, size, stride) for dim, size, stride in dims if size > 1]
    if view.offset or math.prod(view.shape) != math.prod(layout.shape):
        return None
    # The view contains every element once if each stride is the number of elements in all smaller strides.
    reached = 1
    for _, size, stride in sorted(sized, key=lambda dim: dim[2]):
        if stride != reached:
            return None
        reached *= size
    whole = StridedView.whole(layout.shape)
    outer = len(layout.outer_digits)
    digits: list[Digit] = []
    for index, digit in enumerate(layout.digits):
        parts = _parts(digit, layout, whole, sized)
        if parts is None:
            return None
        for part in parts:
            # A modulus that follows from the shape is omitted, as in ``StickLayout.for_tensor``.
            exact = replace(part, modulus=None)
            is_exact = (
                index < outer and part.dim is not None and exact.size(view.shape) == part.size(view.shape)
            )
            digits.append(exact if is_exact else part)
    return StickLayout(layout.target, view.shape, layout.dtype, tuple(digits))


def _parts(
    digit: Digit, layout: StickLayout, whole: StridedView, sized: Sequence[tuple[int, int, int]]
) -> list[Digit] | None:
    """Return the digits of the view that together count like one digit of the tensor, outermost first; None if none."""
    if digit.dim is None or layout.shape[digit.dim] == 1:
        is_stick_digit = layout.stick_digits == (digit,)
        return [Digit(None)] if is_stick_digit or digit.size(layout.shape) == 1 else None
    size, unit = layout.shape[digit.dim], whole.strides[digit.dim]
    for dim, extent, stride in sized:
        # A dim that stays whole keeps its digit, with its padding.
        if (extent, stride) == (size, unit):
            return [replace(digit, dim=dim)]
    low, count = digit.divisor * unit, digit.size(layout.shape)
    high = low * count
    if size % digit.divisor or high > size * unit or layout.extent(digit.dim) != size:
        return None
    parts: list[Digit] = []
    for dim, extent, stride in sorted(sized, key=lambda dim: -dim[2]):
        begin, end = max(low, stride), min(high, stride * extent)
        if begin >= end:
            continue
        if begin % stride or end % begin or (stride * extent) % end:
            return None
        parts.append(Digit(dim, begin // stride, end // begin))
    return parts if math.prod(part.modulus or 1 for part in parts) == count else None
