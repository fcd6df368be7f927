# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The iteration space of one device operation over its operands' memory.

Dims are iteration dims of the operation; each operand is a ``BufferView`` over them (missing dims are broadcast).
A dim that is in the stick of any operand is padded to whole sticks for all operands.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from spyre_mlir.layout.rules import Iteration
from spyre_mlir.layout.view import Axis, BufferView, ViewError
from spyre_mlir.records import dataclass, hash_once
from spyre_mlir.target.sliding import Sliding
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class SymbolicDim:
    """A dim of ``factor`` times the run-time size ``name``, a multiple of ``granularity`` up to ``max_value``."""

    name: str
    granularity: int
    max_value: int
    factor: int = 1

    @property
    def extent(self) -> int:
        """The largest extent of the dim in elements."""
        return self.factor * self.max_value

    @property
    def step(self) -> int:
        """The elements by which the dim grows, which is also its smallest extent."""
        return self.factor * self.granularity

    @property
    def tag(self) -> str:
        """The run-time size with its factor, as a term."""
        return self.name if self.factor == 1 else f"{self.factor}*{self.name}"

    def scaled(self, factor: int) -> SymbolicDim:
        """Return the dim with ``factor`` elements in place of each element."""
        return replace(self, factor=self.factor * factor)

    def divided(self, divisor: int) -> SymbolicDim | None:
        """Return the dim that counts groups of ``divisor`` elements; None if some size would cut a group."""
        if self.factor % divisor == 0:
            return replace(self, factor=self.factor // divisor)
        return None


#: The dims of a tensor, or of an iteration space, that are symbolic.
SymbolicDims = dict[int, SymbolicDim]


@dataclass(frozen=True)
class SlidingWindow(Sliding):
    """A window of iteration dim ``kernel``; iteration dim ``output`` counts the positions of the window."""

    output: int
    kernel: int


Windows = tuple[SlidingWindow, ...]

#: The elements of a dim that a core has in addition to its slice, as windows with stride 1: (dim, window) pairs.
Halos = tuple[tuple[int, Sliding], ...]


def halo_of(before: int, after: int, size: int) -> Sliding:
    """Return the window of a halo of ``before`` and ``after`` positions around a slice of a dim of ``size``."""
    return Sliding(1 + before + after, 1, 1, before, size)


def window_dims(windows: Windows) -> frozenset[int]:
    """Return the dims of the windows and the dims that the windows slide along."""
    return frozenset(dim for window in windows for dim in (window.output, window.kernel))


@dataclass(frozen=True)
class Space:
    """Iteration dims with their ``sizes`` and, for each operand, its view over all dims and the dims that it has.

    The last operand is the output. ``reduced`` dims are dims that the output does not have. ``windows`` slide over
    the first operand; in the view of this operand their elements overlap. ``halos`` are the halos of the result of a
    shuffle. ``symbolic`` dims have their largest size.
    """

    sizes: tuple[int, ...]
    views: tuple[BufferView, ...]
    present: tuple[frozenset[int], ...]
    reduced: frozenset[int] = frozenset()
    windows: Windows = ()
    halos: Halos = ()
    symbolic: tuple[tuple[int, SymbolicDim], ...] = ()

    __hash__ = hash_once

    @property
    def target(self) -> Target:
        """The device whose memory the operands are in."""
        return self.views[-1].target

    @functools.cached_property
    def padded(self) -> tuple[int, ...]:
        """Extents in elements, padded to whole granules: whole sticks for a dim in the stick of any operand."""
        return tuple(
            -(-size // granule) * granule for size, granule in zip(self.sizes, self.granules, strict=True)
        )

    @functools.cached_property
    def stick_elements(self) -> tuple[int, ...]:
        """The elements of each dim in its longest stick; 1 for a dim that is not in a stick."""
        elements = [1] * len(self.sizes)
        for view in self.views:
            for dim in view.stick_dims:
                elements[dim] = max(elements[dim], view.stick_elements(dim))
        return tuple(elements)

    @property
    def positions(self) -> tuple[int, ...]:
        """Extents in rows or sticks."""
        return tuple(
            padded // count if count > 1 else size
            for size, padded, count in zip(self.sizes, self.padded, self.stick_elements, strict=True)
        )

    @functools.cached_property
    def granules(self) -> tuple[int, ...]:
        """The smallest divisible part of each dim in elements: a window, the longest stick, 1 for a dim in no stick.

        For a symbolic dim a granule is a fixed fraction of the dim, because a slice is the same fraction at every size.
        So only the sticks of one step can be divided, and only by divisors of the stick bytes, so that the address of
        a slice is linear in the size. Raise ``ViewError`` if a step does not consist of whole sticks.
        """
        granules = [
            self._filled(dim, elements) if elements > 1 else 1
            for dim, elements in enumerate(self.stick_elements)
        ]
        for window in self.windows:
            granules[window.kernel] = self.sizes[window.kernel]
        for dim, size in self.symbolic:
            if size.step % granules[dim]:
                raise ViewError(
                    f"the run-time size '{size.name}' grows by {size.step} positions of a dim in sticks of "
                    f"{granules[dim]}"
                )
            # Rows are sticks apart: each of ``parts`` slices begins at a whole number of bytes per position.
            parts = math.gcd(size.step // granules[dim], self.target.stick_bytes)
            granules[dim] = size.extent // parts
        return tuple(granules)

    def _filled(self, dim: int, elements: int) -> int:
        """Return the granule of a dim in sticks of ``elements`` that fills the room of all its operands.

        A tensor of f32 that is cast from or to f16 has room for whole sticks of f16. An operation that fills this room
        accesses the sticks that the casts access, so the tensor can stay in LX whatever the parity of its sticks.
        """
        if dim in window_dims(self.windows):
            return elements
        room = min(
            view.extent(dim) for view, dims in zip(self.views, self.present, strict=True) if dim in dims
        )
        if room <= -(-self.sizes[dim] // elements) * elements:
            return elements
        # A stick of the narrowest type holds one element per byte.
        wider = (
            elements << doublings for doublings in range((self.target.stick_bytes // elements).bit_length())
        )
        return next(
            (granule for granule in wider if -(-self.sizes[dim] // granule) * granule == room), elements
        )

    @functools.cached_property
    def units(self) -> tuple[int, ...]:
        """Extents in granules: what can be divided over cores."""
        return tuple(-(-size // granule) for size, granule in zip(self.sizes, self.granules, strict=True))

    def has_equal_slices(self, splits: Sequence[int]) -> bool:
        """Return whether each slice of a symbolic dim, split as in ``splits``, is the same part of it at every size."""
        return all(self.units[dim] % splits[dim] == 0 for dim, _ in self.symbolic)

    @property
    def iteration(self) -> Iteration:
        """The iteration for the stick rules."""
        dtypes = tuple(view.dtype for view in self.views)
        return Iteration(
            self.target, self.sizes, self.present, self.reduced, dtypes, window_dims(self.windows)
        )

    def footprint(self, operand: int) -> BufferView:
        """Return the view of an operand without overlaps: each position that windows slide over occurs once.

        The view of the first operand has an axis for the positions of a window and an axis for the positions inside it.
        In the result the ``output`` dim counts the positions in memory, and the ``kernel`` dim has size 1.
        """
        view = self.views[operand]
        if not self.windows or operand != 0:
            return view
        outputs, kernels = {window.output: window for window in self.windows}, set[int]()
        shape, axes = list(view.shape), []
        for window in self.windows:
            shape[window.output], shape[window.kernel] = window.size, 1
            kernels.add(window.kernel)
        for axis in view.axes:
            if axis.dim in outputs:
                window = outputs[axis.dim]
                axes.append(Axis(axis.dim, 1, window.size, axis.stride // window.stride))
            elif axis.dim not in kernels:
                axes.append(axis)
        # Not canonical: a dim of one position keeps its place in the order of the dims.
        axes.sort(key=lambda axis: (-axis.stride, axis.dim))
        return replace(view, shape=tuple(shape), axes=tuple(axes))

    def accessed(self, operand: int, shares: Iterable[Any]) -> list[Any]:
        """Return at most how many elements of each dim of an operand's footprint a core with ``shares`` accesses."""
        accessed = list(shares)
        for window in self.windows if operand == 0 else ():
            accessed[window.kernel] = 1
        for dim, window in self.slid(operand):
            accessed[dim] = window.most_accessed(accessed[dim])
        return accessed

    def slid(self, operand: int) -> tuple[tuple[int, Sliding], ...]:
        """Return the (dim, window) pairs of an operand for dims whose slices reach into neighbouring slices."""
        if operand == len(self.views) - 1:
            return self.halos
        return tuple((window.output, window) for window in self.windows) if operand == 0 else ()

    def repeated(self, copies: int) -> Space:
        """Return the space with a new last dim of size ``copies`` that no operand has; the space itself for 1."""
        if copies == 1:
            return self
        rank, sizes = len(self.sizes), (*self.sizes, copies)
        views = tuple(view.rename(range(rank), rank + 1, sizes) for view in self.views)
        return replace(self, sizes=sizes, views=views)


def gathered(space: Space, table: int) -> Space:
    """Return the space of the data that a gather moves: only the rows of its table that are read, at any index.

    In ``space`` the reduced dim counts the rows of the table. In the result this dim has size 1, and the table has the
    dims of the gathered indices instead: one row for each index. Bytes, spans and divisions then follow as for a copy.
    """
    (row,) = space.reduced
    sizes = tuple(1 if dim == row else size for dim, size in enumerate(space.sizes))
    positions = sorted(space.present[-1] - space.present[table])
    view = space.views[table]
    # A row that is read may be anywhere, so the distance between rows is the whole table: no two rows are
    # neighbours.
    distance = max((axis.stride * axis.size for axis in view.axes), default=view.elements_per_stick)
    axes = []
    for dim in reversed(positions):
        axes.append(Axis(dim, 1, sizes[dim], distance))
        distance *= sizes[dim]
    others = [axis for axis in view.axes if axis.dim != row]
    rows = replace(view, shape=sizes, axes=tuple([*reversed(axes), *others])).canonical()
    views = [replace(other, shape=sizes) for other in space.views]
    views[table] = rows
    present = list(space.present)
    present[table] = space.present[-1]
    return Space(sizes, tuple(views), tuple(present), symbolic=space.symbolic)


def refined(views: Sequence[BufferView]) -> Space:
    """Return the space of a copy: logical dims that lie in pieces in any operand are split where the pieces meet.

    All ``views`` have the same shape. Raise ``ViewError`` if the pieces of two views do not align.
    """
    shape = views[0].shape
    boundaries = [{1} for _ in shape]
    for view in views:
        for axis in view.axes:
            # An axis that counts sticks does not cut the dim: it begins where the positions in the stick end.
            if axis.divisor != view.stick_elements(axis.dim):
                boundaries[axis.dim].add(axis.divisor)
    # The ascending divisors at which pieces of each dim begin: [1] if the dim is one piece in all views.
    cuts = [sorted(starts) for starts in boundaries]
    for dim, starts in enumerate(cuts):
        for low, high in itertools.pairwise(starts):
            if high % low:
                raise ViewError(f"pieces of {low} and of {high} elements of dim {dim} do not fall together")
    if all(len(starts) == 1 for starts in cuts):
        every = frozenset(range(len(shape)))
        return Space(shape, tuple(view.canonical() for view in views), (every,) * len(views))
    first, sizes = [], []
    for size, starts in zip(shape, cuts, strict=True):
        first.append(len(sizes))
        inner = [end // begin for begin, end in itertools.pairwise(starts)]
        # Cuts are ascending, but dims are outermost first, hence the reversal.
        sizes += [*inner, -(-size // starts[-1])][::-1]
    parts = tuple(_split(view, cuts, first, tuple(sizes)) for view in views)
    return Space(tuple(sizes), parts, (frozenset(range(len(sizes))),) * len(views))


def pieces(view: BufferView) -> list[tuple[int, int]]:
    """Return the dims that lie in pieces of a stick's elements and are not in the stick (``StickLayout.tiled``)."""
    per_stick = view.elements_per_stick
    axes = (axis for axis in view.axes if axis.divisor == per_stick > 1)
    return [(axis.dim, per_stick) for axis in axes if view.stick_elements(axis.dim) == 1]


def _split(view: BufferView, cuts: list[list[int]], first: list[int], sizes: tuple[int, ...]) -> BufferView:
    axes: list[Axis[int]] = []
    for dim in view.stick_dims:
        if any(cut % view.stick_elements(dim) for cut in cuts[dim][1:]):
            raise ViewError(f"the sticks of dim {dim} do not fall on the cuts at {cuts[dim][1:]}")
    for axis in view.axes:
        starts = cuts[axis.dim]
        for piece, begin in enumerate(starts):
            target = first[axis.dim] + len(starts) - 1 - piece
            room = axis.divisor * axis.size
            end = min(room, begin * sizes[target]) if piece else room  # padding beyond the piece is unused
            low, high = max(begin, axis.divisor), min(end, *starts[piece + 1 : piece + 2], room)
            if low >= high:
                continue
            if high % low or low % axis.divisor or low % begin:
                raise ViewError(f"tiles of {axis.divisor} of dim {axis.dim} do not fall on a cut at {begin}")
            axes.append(Axis(target, low // begin, high // low, axis.stride * (low // axis.divisor)))
    innermost = [begin + len(starts) - 1 for begin, starts in zip(first, cuts, strict=True)]
    has_same_sticks = all(innermost[dim] == dim for dim in view.stick_dims)
    # Most views have no dim in pieces, and a view is costly to build.
    if sizes != view.shape or tuple(axes) != view.axes or not has_same_sticks:
        view = view.with_dims(sizes, axes, innermost)
    return view.canonical()
