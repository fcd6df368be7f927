# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Candidate layouts of a tensor, and the cost of relayouts between them."""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Iterable, Sequence

from spyre_mlir.cost.of_tensor import copy_cost, wait_cost
from spyre_mlir.layout.orders import from_order, natural_order, packed_order
from spyre_mlir.layout.space import pieces, refined
from spyre_mlir.layout.stick_layout import StickLayout, is_restickified
from spyre_mlir.layout.view import BufferView, ViewError
from spyre_mlir.layout.view_transforms import ViewTransform, applied
from spyre_mlir.target.target import Target

#: Picoseconds added to the cost of a relayout that the back end likely rejects. This is more than a program takes, so
#: such a relayout is chosen only if nothing else is possible.
_NO_RESTICKIFY = 10**10


class LayoutCandidate:
    """One layout that a tensor may have. There is one object per layout, so ``is`` compares candidates.

    ``view`` is the view of memory, ``stick_dim`` the dim in the stick (None: sparse). ``addressable`` is true if a
    device operation can read the layout. ``bytes`` are the bytes of a pass over the tensor, padding included.
    ``sticks`` are the (dim, elements) pairs of a stick that holds several dims; its main dim is ``stick_dim``.
    """

    def __init__(self, view: BufferView) -> None:
        self.view = view
        self.stick_dim = view.main_stick_dim
        self.sticks = tuple((axis.dim, axis.size) for axis in view.stick_axes)
        self.addressable = view.why_not_addressable() is None
        self.bytes = math.prod(axis.size for axis in view.axes) * view.target.stick_bytes

    @functools.cached_property
    def layout(self) -> StickLayout:
        """The layout of a buffer with this view, with dims of size 1 outermost."""
        if not self.addressable:
            return self.view.layout
        if self.sticks:
            return packed_order(self.view.target, self.view.shape, self.view.dtype, self.sticks, self.order)
        return from_order(self.view.target, self.view.shape, self.view.dtype, self.stick_dim, self.order)

    @functools.cached_property
    def order(self) -> tuple[int, ...]:
        """The logical dim of each device dim, outermost first."""
        return tuple(axis.dim for axis in self.view.axes)

    def __repr__(self) -> str:
        return f"Candidate(stick {self.stick_dim}, order {list(self.order)})"


#: All candidates in use. A bounded cache alone would create a second object for a view that it has evicted.
_CANDIDATES: weakref.WeakValueDictionary[BufferView, LayoutCandidate] = weakref.WeakValueDictionary()


@functools.lru_cache(maxsize=1 << 16)
def candidate(view: BufferView) -> LayoutCandidate:
    """Return the one candidate of a view."""
    return _CANDIDATES.setdefault(view, LayoutCandidate(view))


@functools.lru_cache(maxsize=1 << 16)
def candidate_of(layout: StickLayout) -> LayoutCandidate:
    """Return the candidate of a whole buffer."""
    return candidate(BufferView.of(layout))


@functools.lru_cache(maxsize=1 << 16)
def image(step: ViewTransform, source: LayoutCandidate) -> LayoutCandidate | None:
    """Return the layout of a view operation's result for a layout of its source; None if it cannot be a view."""
    try:
        return candidate(applied(step, source.view))
    except ViewError:
        return None


@functools.lru_cache(maxsize=1 << 12)
def default_layout(
    target: Target, shape: tuple[int, ...], dtype: str, stick: int | None, stick_outermost: bool
) -> StickLayout:
    """Return the layout of the convention with ``stick`` in the stick (None: sparse)."""
    others = [dim for dim in range(len(shape)) if dim != stick]
    return StickLayout.for_tensor(
        target, shape, dtype, [*others, -1 if stick is None else stick], stick_outermost
    )


@functools.lru_cache(maxsize=1 << 12)
def default_candidates(
    target: Target, shape: tuple[int, ...], dtype: str, stick: int | None, stick_outermost: bool
) -> tuple[LayoutCandidate, ...]:
    """Return the candidates for any tensor: the order of the convention, and the order with rows innermost."""
    layouts = [default_layout(target, shape, dtype, stick, stick_outermost)]
    # With fewer dims both orders are the same.
    if len(shape) > (1 if stick is None else 2):
        layouts.append(natural_order(target, shape, dtype, stick))
    return distinct(map(candidate_of, layouts))


@functools.lru_cache(maxsize=1 << 12)
def ordered(
    target: Target, shape: tuple[int, ...], dtype: str, stick: int | None, order: tuple[int, ...]
) -> LayoutCandidate:
    """Return the dense candidate with these device dims, outermost first."""
    return candidate_of(from_order(target, shape, dtype, stick, order))


@functools.lru_cache(maxsize=1 << 12)
def packed(
    target: Target, shape: tuple[int, ...], dtype: str, sticks: tuple[tuple[int, int], ...]
) -> LayoutCandidate:
    """Return the dense candidate whose sticks hold several dims; the other dims are outermost, in logical order."""
    return candidate_of(packed_order(target, shape, dtype, sticks))


def packed_like(
    target: Target,
    step: ViewTransform,
    shape: tuple[int, ...],
    dtype: str,
    targets: Iterable[LayoutCandidate],
) -> tuple[LayoutCandidate, ...]:
    """Return the packed candidates of a source whose views by ``step`` have the sticks of one of the targets."""
    sticks = {each.sticks for each in targets if each.sticks}
    # Sorted, because a set has no order and the order of candidates decides between equal costs.
    counts = dict.fromkeys(tuple(count for _, count in digits) for digits in sorted(sticks))
    dims = [dim for dim, size in enumerate(shape) if size > 1]
    candidates = [
        packed(target, shape, dtype, tuple(zip(stick_dims, elements, strict=True)))
        for elements in counts
        for stick_dims in itertools.permutations(dims, len(elements))
    ]
    images = ((source, image(step, source)) for source in candidates)
    return distinct(source for source, view in images if view is not None and view.sticks in sticks)


def distinct(candidates: Iterable[LayoutCandidate]) -> tuple[LayoutCandidate, ...]:
    """Return candidates without repetitions, in order of first appearance."""
    return tuple(dict.fromkeys(candidates))


@functools.lru_cache(maxsize=1 << 16)
def relayout_cost(source: LayoutCandidate, target: LayoutCandidate, from_host: bool = False) -> int:
    """Return the picoseconds of copying a tensor from one layout into another, once.

    The copy is a separate operation between two buffers in device memory. If the pieces of the source do not align
    with the sticks of the target, two operations are needed; each has the cost of a copy that keeps the layout.
    """
    # A restickify keeps both of its buffers out of LX, so the producer and the readers of the tensor also have to
    # wait; a tensor that comes from the host does not have a producer.
    waiting = 1 if from_host else 2
    opcode, waits = (
        ("identity", 0)
        if source.stick_dim == target.stick_dim
        else ("ReStickifyOpHBM", waiting * wait_cost(source.view.target))
    )
    if opcode != "identity" and not is_restickified(source.view.dtype):
        waits += _NO_RESTICKIFY
    try:
        return copy_cost(opcode, refined([_padded_for(source, target), _padded_for(target, source)])) + waits
    except ViewError:
        return sum(copy_cost(opcode, refined([copy.view, copy.view])) for copy in (source, target)) + waits


def _padded_for(candidate: LayoutCandidate, other: LayoutCandidate) -> BufferView:
    """Return the view of a candidate, padded to whole pieces of the dims that lie in pieces in ``other``."""
    layout = candidate.layout
    for dim, piece in pieces(other.view):
        layout = layout.padded(dim, piece)
    return candidate.view if layout is candidate.layout else BufferView.of(layout)


def copying_cost(source: LayoutCandidate, target: LayoutCandidate) -> int:
    """Return the picoseconds of a copy that the program contains anyway: a relayout if the stick dim changes.

    Otherwise the operands of the copy may stay in LX, as for other operations: only bytes and bursts count.
    """
    waits = 2 * wait_cost(source.view.target) if source.stick_dim == target.stick_dim else 0
    return relayout_cost(source, target) - waits


def cheapest(sources: Sequence[LayoutCandidate], target: LayoutCandidate) -> LayoutCandidate:
    """Return the first source whose relayout to ``target`` takes the shortest time."""
    if len(sources) == 1:
        return sources[0]
    return min(sources, key=lambda source: relayout_cost(source, target))
