"""View operations as values: what a transpose, a reshape or a slice does to any view of memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from spyre_mlir.layout.view import BufferView

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
    """A rectangular part, without the ``dropped`` dims of size 1."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    dropped: tuple[int, ...] = ()

    def apply(self, source: BufferView) -> BufferView:
        return source.slice(self.offsets, self.sizes, self.steps).drop(self.dropped)


def _scalar(source: BufferView, shape: tuple[int, ...]) -> BufferView:
    """Between rank 0 and a shape of ones: one element either way."""
    return BufferView(shape, source.dtype, (), None, source.elements_per_stick, source.offset)


@functools.lru_cache(maxsize=1 << 16)
def applied(step: Step, source: BufferView) -> BufferView:
    """``step.apply``, remembered: a program repeats few views of few layouts."""
    return step.apply(source)
