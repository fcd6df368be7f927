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
        return replace(
            self,
            shape=tuple(self.shape[dim] for dim in dims),
            strides=tuple(self.strides[dim] for dim in dims),
        )

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
        shape, strides = list(self.shape), list(self.strides)
        # No element depends on this stride; PyTorch reports the same stride.
        stride = shape[dim] * strides[dim] if dim < len(shape) else 1
        shape.insert(dim, 1)
        strides.insert(dim, stride)
        return StridedView(tuple(shape), tuple(strides), self.offset)

    def squeeze(self, dims: Sequence[int]) -> StridedView:
        """Return the view without the dims among ``dims`` that have one element."""
        remaining = [dim for dim, size in enumerate(self.shape) if size != 1 or dim not in dims]
        return self.permute(remaining)

    def expand(self, shape: Sequence[int]) -> StridedView:
        """Return the view with dims of one element repeated and new dims added first; ``shape`` has no -1."""
        new = len(shape) - len(self.shape)
        strides: list[int] = []
        for dim in reversed(range(len(shape))):
            if dim >= new and self.shape[dim - new] == shape[dim]:
                strides.insert(0, self.strides[dim - new])
            elif dim >= new:
                strides.insert(0, 0)
            else:
                # As in PyTorch: a new dim of one element has the stride of a dense array, a new dim that is
                # repeated has stride 0.
                strides.insert(0, shape[dim + 1] * strides[0] if shape[dim] == 1 and strides else 0)
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
    sized = [
        (dim, size, stride) for dim, (size, stride) in enumerate(zip(view.shape, view.strides, strict=True))
    ]
    sized = [dim for dim in sized if dim[1] > 1]
    if view.offset or math.prod(view.shape) != math.prod(layout.shape) or not _is_bijective(sized):
        return None
    whole = StridedView.whole(layout.shape)
    outer = len(layout.outer_digits)
    digits: list[Digit] = []
    for index, digit in enumerate(layout.digits):
        parts = _parts(digit, layout, whole, sized)
        if parts is None:
            return None
        digits.extend(_open(part, view.shape) if index < outer else part for part in parts)
    return StickLayout(layout.target, view.shape, layout.dtype, tuple(digits))


def _open(digit: Digit, shape: Sequence[int]) -> Digit:
    """Return a digit without its modulus if the modulus follows from the shape, as in ``StickLayout.for_tensor``."""
    exact = digit.dim is not None and replace(digit, modulus=None).size(shape) == digit.size(shape)
    return replace(digit, modulus=None) if exact else digit


def _is_bijective(sized: Sequence[tuple[int, int, int]]) -> bool:
    reached = 1
    for _, size, stride in sorted(sized, key=lambda dim: dim[2]):
        if stride != reached:
            return False
        reached *= size
    return True


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
