"""View operations as values: what a transpose, a reshape or a slice does to any view of memory."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from spyre_mlir.layout.offsets import Offsets
from spyre_mlir.layout.view import BufferView, ViewError

_Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Step:
    """One view operation; ``apply`` gives the view of its result, or raises ``ViewError``."""

    def apply(self, source: BufferView) -> BufferView:
        raise NotImplementedError


@dataclass(frozen=True)
class Transpose(Step):
    """Result dim ``j`` is source dim ``permutation[j]``."""

    permutation: tuple[int, ...]

    def apply(self, source: BufferView) -> BufferView:
        return source.transpose(self.permutation)


@dataclass(frozen=True)
class Expand(Step):
    """Each dim becomes a group of adjacent dims; from rank 0 to a shape of ones without groups."""

    groups: _Groups
    shape: tuple[int, ...]

    def apply(self, source: BufferView) -> BufferView:
        return source.expand(self.groups, self.shape) if self.groups else _scalar(source, self.shape)


@dataclass(frozen=True)
class Collapse(Step):
    """Groups of adjacent dims become one dim each; to rank 0 without groups."""

    groups: _Groups

    def apply(self, source: BufferView) -> BufferView:
        return source.collapse(self.groups) if self.groups else _scalar(source, ())


@dataclass(frozen=True)
class Slice(Step):
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
        view = source.slice(self.offsets, self.sizes, self.steps)
        for dim, offsets in self.moves:
            for offset in offsets.modulo(_period(source, dim)):
                self._check_like(view, dim, offset, source)
        return view.drop(self.dropped)

    def _check_like(self, view: BufferView, dim: int, offset: int, source: BufferView) -> None:
        offsets = tuple(offset if at == dim else first for at, first in enumerate(self.offsets))
        other = source.slice(offsets, self.sizes, self.steps)
        if replace(other, offset=view.offset) != view:
            raise ViewError(
                f"a slice of dim {dim} from {offset} lies differently than one from {self.offsets[dim]}"
            )

    def advances(self, source: BufferView) -> dict[int, Fraction]:
        """Elements of the buffer by which the slice goes on per position of each dim that it moves along.

        ``ViewError`` where it does not go on in equal steps.
        """
        return {dim: _advance(source, dim, offsets) for dim, offsets in self.moves}

    def may_overlap(self, other: Slice) -> bool:
        """Whether two slices of one buffer may share an element, in whatever iterations."""
        return all(
            begin < other_end and other_begin < end
            for (begin, end), (other_begin, other_end) in zip(self._reach(), other._reach(), strict=True)
        )

    def _reach(self) -> list[tuple[int, int]]:
        """From where to where it lies in each dim, wherever it moves."""
        last = dict(enumerate(self.offsets)) | {dim: offsets.last for dim, offsets in self.moves}
        return [
            (first, last[dim] + (size - 1) * step + 1)
            for dim, (first, size, step) in enumerate(zip(self.offsets, self.sizes, self.steps, strict=True))
        ]

    def cuts_sticks(self, dim: int, per_stick: int, extent: int) -> bool:
        """Whether, with a dim of ``extent`` in the stick, it ever begins or ends inside one."""
        step = next((offsets.step for moving, offsets in self.moves if moving == dim), 0)
        offset, size = self.offsets[dim], self.sizes[dim]
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
    """Slices whose offsets differ by a multiple of this lie alike: no digit of the dim sees the difference."""
    own = [axis for axis in source.axes if axis.dim == dim]
    outermost = max((axis.divisor for axis in own), default=1)
    inner = (axis.divisor * axis.size for axis in own if axis.divisor != outermost)
    return math.lcm(source.stick_elements(dim), outermost, *inner)


def _scalar(source: BufferView, shape: tuple[int, ...]) -> BufferView:
    """Between rank 0 and a shape of ones: one element either way."""
    return BufferView(shape, source.dtype, (), None, source.elements_per_stick, source.offset)


@functools.lru_cache(maxsize=1 << 16)
def applied(step: Step, source: BufferView) -> BufferView:
    """``step.apply``, remembered: a program repeats few views of few layouts."""
    return step.apply(source)
