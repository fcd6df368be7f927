"""Views of a dense host array: what of it an argument takes, as the host's transfer can address it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.layout.steps import Collapse, Expand, Slice, Step, Transpose


@dataclass(frozen=True)
class HostView:
    """A tensor of ``shape`` inside a host array: element ``i`` is at ``offset + sum(i_k * strides[k])``.

    ``array_shape`` is that of the whole host array; strides and offset count its elements.
    """

    array_shape: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @classmethod
    def whole(cls, shape: Sequence[int]) -> HostView:
        """All of a dense row-major array."""
        return cls(
            tuple(shape), tuple(shape), tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))
        )

    def after(self, step: Step) -> HostView | None:
        """The view after a view operation; None where one stride per dim cannot say it."""
        if isinstance(step, Transpose):
            order = step.permutation
            return self._with([self.shape[dim] for dim in order], [self.strides[dim] for dim in order])
        if isinstance(step, Slice):
            return self._sliced(step)
        if isinstance(step, Expand):
            return self._expanded(step)
        return self._collapsed(step) if isinstance(step, Collapse) else None

    def _with(self, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> HostView:
        return HostView(self.array_shape, tuple(shape), tuple(strides), self.offset + offset)

    def _sliced(self, step: Slice) -> HostView:
        kept = [dim for dim in range(len(self.shape)) if dim not in step.dropped]
        offset = sum(first * stride for first, stride in zip(step.offsets, self.strides, strict=True))
        strides = [self.strides[dim] * step.steps[dim] for dim in kept]
        return self._with([step.sizes[dim] for dim in kept], strides, offset)

    def _expanded(self, step: Expand) -> HostView:
        strides = [1] * len(step.shape)
        for source, group in enumerate(step.groups):
            stride = self.strides[source]
            for dim in reversed(group):
                strides[dim] = stride
                stride *= step.shape[dim]
        return self._with(step.shape, strides)

    def _collapsed(self, step: Collapse) -> HostView | None:
        shape, strides = [], []
        for group in step.groups:
            sized = [dim for dim in group if self.shape[dim] > 1]
            for outer, inner in itertools.pairwise(sized):
                if self.strides[outer] != self.strides[inner] * self.shape[inner]:
                    return None
            shape.append(math.prod(self.shape[dim] for dim in group))
            strides.append(self.strides[sized[-1]] if sized else 1)
        return self._with(shape, strides)
