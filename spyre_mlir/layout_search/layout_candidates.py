# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Candidate layouts of a tensor: op layouts, relayouts, the states of the layouts that exist, and their costs."""

from __future__ import annotations

import functools
import itertools
import math
import weakref
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.of_space import copy_cost, pass_cost, wait_cost
from spyre_mlir.cost.work import OperationDims
from spyre_mlir.layout.rules import StickAssignment, stick_assignments, stick_digits
from spyre_mlir.layout.space import pieces, refined
from spyre_mlir.layout.stick_layout import StickLayout, elements_per_stick, is_restickified
from spyre_mlir.layout.view import BufferView, ViewError, from_order, natural_order, packed_order
from spyre_mlir.layout.view_transforms import Slice, ViewTransform, applied
from spyre_mlir.layout_search.tensor_graph import InsertSliceBuffer, OpSignature
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS
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
def default_candidates(
    target: Target, shape: tuple[int, ...], dtype: str, stick: int | None, stick_outermost: bool
) -> tuple[LayoutCandidate, ...]:
    """Return the candidates for any tensor: the order of the convention, and the order with rows innermost."""
    order = [*(dim for dim in range(len(shape)) if dim != stick), -1 if stick is None else stick]
    layouts = [StickLayout.for_tensor(target, shape, dtype, order, stick_outermost)]
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
    opcode, waits = "identity", 0
    if source.stick_dim != target.stick_dim:
        opcode, waits = "ReStickifyOpHBM", waiting * wait_cost(source.view.target)
        waits += 0 if is_restickified(source.view.dtype) else _NO_RESTICKIFY
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


#: The factor by which a tensor that may stay in LX is cheaper: not all such tensors fit.
_CHEAPER = 4


# eq=False: there is one object per signature and assignment, so caches can use its identity as the key.
@dataclass(frozen=True, eq=False)
class OpLayout:
    """A stick assignment of an operation in terms of the dims of each operand, not iteration dims (the result last).

    ``stick_dims`` are the dims in the stick; ``tiles`` the part of each operand that one transfer moves, in elements
    per dim; ``portions`` the fractions of the operands' bytes that the operation moves. ``sticks`` are the (dim,
    elements) pairs of operands whose sticks hold several dims, () for the other operands.
    """

    assignment: StickAssignment
    stick_dims: tuple[int | None, ...]
    tiles: tuple[tuple[int, ...], ...]
    portions: tuple[Fraction, ...]
    sticks: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def sparse(self) -> bool:
        """True if no operand has a dim in its stick."""
        return all(stick_dim is None for stick_dim in self.stick_dims)


#: The op layouts of each signature in use.
_OP_LAYOUTS: weakref.WeakKeyDictionary[OpSignature, tuple[OpLayout, ...]] = weakref.WeakKeyDictionary()


def op_layouts(signature: OpSignature) -> tuple[OpLayout, ...]:
    """Return all op layouts of an operation; empty if it has none."""
    if signature not in _OP_LAYOUTS:
        assignments = stick_assignments(signature.opcode, signature.iteration)
        _OP_LAYOUTS[signature] = tuple(_op_layout(signature, assignment) for assignment in assignments)
    return _OP_LAYOUTS[signature]


def _op_layout(signature: OpSignature, assignment: StickAssignment) -> OpLayout:
    sizes, sticks = signature.iteration.sizes, stick_digits(signature.iteration, assignment)
    granules = [1] * len(sizes)
    for dim, count in itertools.chain.from_iterable(sticks):
        if dim is not None:
            granules[dim] = max(granules[dim], count)
    # The division over cores is decided later and depends on the layouts: it cannot shorten the tile here.
    # The rows of a matmul with swapped operands are the rows of its second operand.
    in_order = signature.iteration.reordered(assignment.inputs)
    dims_of_tile = OperationDims(DEVICE_OPS[assignment.opcode].kind, in_order.present)
    tile = dims_of_tile.tile(sizes, granules)
    return OpLayout(
        assignment,
        tuple(
            None if stick_dim is None else dims.index(stick_dim)
            for stick_dim, dims in zip(assignment.stick_dims, signature.maps, strict=True)
        ),
        tuple(tuple(1 if dim is None else tile[dim] for dim in dims) for dims in signature.maps),
        tuple(_portion(signature, operand) for operand in range(len(signature.maps))),
        tuple(
            tuple((dims.index(dim), count) for dim, count in digits) if len(digits) > 1 else ()
            for digits, dims in zip(sticks, signature.maps, strict=True)
        ),
    )


def _portion(signature: OpSignature, operand: int) -> Fraction:
    """Return the fraction of an operand that an operation moves: 1, or for a table one row per gathered index."""
    iteration = signature.iteration
    if operand == 0 and iteration.windows:
        # The view of windows contains an element once for each window that contains it.
        return Fraction(1, math.prod(iteration.sizes[dim] for dim in iteration.windows & iteration.reduced))
    if operand != DEVICE_OPS[signature.opcode].table:
        return Fraction(1)
    rows = math.prod(iteration.sizes[dim] for dim in iteration.present[-1] - iteration.present[operand])
    return Fraction(rows, math.prod(iteration.sizes[dim] for dim in iteration.reduced))


@functools.lru_cache(maxsize=1 << 16)
def transfer_cost(op_layout: OpLayout, operand: int, candidate: LayoutCandidate) -> int | None:
    """Return the picoseconds to move one operand (-1: the result) once; None if it cannot have this layout."""
    required = op_layout.stick_dims[operand], op_layout.sticks[operand]
    if (candidate.stick_dim, candidate.sticks) != required or not candidate.addressable:
        return None
    moved = math.ceil(candidate.bytes * op_layout.portions[operand])
    return pass_cost(candidate.view.target, moved, candidate.view.run_bytes(op_layout.tiles[operand]))


def transfer_cost_in_lx(
    op_layout: OpLayout, operand: int, candidate: LayoutCandidate, part: float
) -> int | None:
    """Return the transfer cost of a tensor that mostly stays in LX if it needs at most a ``part`` of all scratchpads.

    At the full cost a conversion, which always passes through device memory, would seem cheap.
    """
    cost = transfer_cost(op_layout, operand, candidate)
    target = candidate.view.target
    is_small = candidate.bytes <= part * target.usable_lx_bytes * target.cores
    return cost // _CHEAPER if cost is not None and is_small else cost


#: Maximum number of relayouts of one tensor; its readers need at most three of its dims in the stick.
MAX_RELAYOUTS = 3


# eq=False: there is one object per layout and op layout, so objects compare and hash by identity.
@dataclass(frozen=True, eq=False)
class ProducedLayout:
    """A layout that a node produces, with an op layout (None: not an operation). Created by ``produced_layout``."""

    candidate: LayoutCandidate
    op_layout: OpLayout | None = None


#: All produced layouts in use (see ``layout_candidates.candidate``).
_PRODUCED: weakref.WeakValueDictionary[tuple[LayoutCandidate, OpLayout | None], ProducedLayout] = (
    weakref.WeakValueDictionary()
)


@functools.lru_cache(maxsize=1 << 16)
def produced_layout(candidate: LayoutCandidate, op_layout: OpLayout | None = None) -> ProducedLayout:
    """Return the one object for a layout and an op layout."""
    return _PRODUCED.setdefault((candidate, op_layout), ProducedLayout(candidate, op_layout))


@dataclass(frozen=True)
class State:
    """The layouts of a tensor that exist: ``base`` without a relayout, ``converted`` by relayouts of ``base``.

    ``sealed``: readers may read only ``converted``, for example of a view that is pinned to another layout.
    """

    produced: ProducedLayout
    base: tuple[LayoutCandidate, ...]
    converted: tuple[LayoutCandidate, ...] = ()
    sealed: bool = False

    @property
    def available(self) -> tuple[LayoutCandidate, ...]:
        """The layouts that readers may read."""
        return self.converted if self.sealed else self.base + self.converted

    def converted_from(self, target: LayoutCandidate) -> LayoutCandidate:
        """Return the source of a relayout: the cheapest base; if ``sealed``, later relayouts read the first."""
        sources = self.base
        if self.sealed and target is not self.converted[0]:
            sources = self.converted[:1]
        return cheapest(sources, target)


class Domain:
    """The states of one tensor, in arrays for the cost tables.

    ``available`` has a row per state: indices into ``candidates``, the first index repeated to fill the row.
    ``produced_index`` has the index into ``produced`` for each state, ``costs`` the own cost of a state (picoseconds).
    """

    def __init__(
        self, produced: Sequence[ProducedLayout], states: Sequence[State], costs: Sequence[float]
    ) -> None:
        self.produced = tuple(produced)
        self.states = tuple(states)
        self.candidates = distinct(candidate for state in states for candidate in state.available)
        index = {candidate: k for k, candidate in enumerate(self.candidates)}
        rows = [[index[candidate] for candidate in state.available] for state in states]
        width = max(map(len, rows))
        self.available = np.array([row + row[:1] * (width - len(row)) for row in rows])
        produced_index = {layout: k for k, layout in enumerate(self.produced)}
        self.produced_index: NDArray[np.intp] = np.array([produced_index[state.produced] for state in states])
        self.costs = np.array(costs, dtype=np.float64)


def relayout_sets(
    base: tuple[LayoutCandidate, ...], targets: tuple[LayoutCandidate, ...], readers: int
) -> list[tuple[LayoutCandidate, ...]]:
    """Return the sets of relayouts that can be useful for this number of ``readers``, the empty set first."""
    useful = [target for target in targets if target not in base]
    limit = min(readers, MAX_RELAYOUTS, len(useful))
    return [subset for count in range(limit + 1) for subset in itertools.combinations(useful, count)]


#: The number of orders of the non-stick dims that are tried for the result of one op layout.
_MAX_ORDERS = 3


def sized(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dims of more than one element."""
    return tuple(dim for dim, size in enumerate(shape) if size > 1)


@functools.lru_cache(maxsize=1 << 12)
def single_stick_dims(op_layouts: tuple[OpLayout, ...], position: int) -> tuple[int | None, ...]:
    """Return the stick dims of an operand in the op layouts whose stick for it holds one dim (None: sparse)."""
    return tuple(
        dict.fromkeys(layout.stick_dims[position] for layout in op_layouts if not layout.sticks[position])
    )


@functools.lru_cache(maxsize=1 << 12)
def viewable(
    target: Target, step: ViewTransform, shape: tuple[int, ...], dtype: str, stick_outermost: bool
) -> tuple[int | None, ...]:
    """Return the stick dims with which a view operation needs no data movement in some order; else (None,): sparse."""
    candidates_by_dim = {
        dim: default_candidates(target, shape, dtype, dim, stick_outermost) for dim in sized(shape)
    }
    legal = [
        dim for dim, candidates in candidates_by_dim.items() if any(image(step, each) for each in candidates)
    ]
    return tuple(legal) or (None,)


def best_order(
    candidates: tuple[LayoutCandidate, ...], steps: Sequence[ViewTransform], batched: bool
) -> LayoutCandidate:
    """Return the order that most views accept and leave addressable; among equals, rows innermost if ``batched``."""
    if len(candidates) == 1:
        return candidates[0]
    preferred = tuple(reversed(candidates)) if batched else candidates

    def score(candidate: LayoutCandidate) -> int:
        """Count accepted views once, addressable ones twice."""
        images = (image(step, candidate) for step in steps)
        return sum(1 + view.addressable for view in images if view is not None)

    # ``max`` returns the first of equal candidates, so the order of ``preferred`` matters.
    return max(preferred, key=score)


def uncut(target: Target, node: InsertSliceBuffer) -> tuple[int, ...]:
    """Return the dims along which no inserted slice begins or ends inside a stick."""
    return _uncut_dims(target, node.shape, node.dtype, tuple(part.place for part in node.parts))


@functools.lru_cache(maxsize=1 << 10)
def _uncut_dims(
    target: Target, shape: tuple[int, ...], dtype: str, places: tuple[Slice, ...]
) -> tuple[int, ...]:
    """Return the dims of which no slice of ``places`` cuts a stick."""
    per_stick = elements_per_stick(target, dtype)
    return tuple(
        dim
        for dim in sized(shape)
        if not any(place.cuts_sticks(dim, per_stick, shape[dim]) for place in places)
    )


@functools.lru_cache(maxsize=1 << 14)
def results(
    signature: OpSignature,
    op_layouts: tuple[OpLayout, ...],
    inputs: tuple[tuple[LayoutCandidate, ...], ...],
    requests: tuple[LayoutCandidate, ...],
    shape: tuple[int, ...],
    dtype: str,
    stick_outermost: bool,
) -> tuple[ProducedLayout, ...]:
    """Return for each op layout the orders of inputs, the requests, the default order and that with rows innermost."""
    produced: list[ProducedLayout] = []
    target = signature.iteration.target
    axis = {dim: k for k, dim in enumerate(signature.maps[-1]) if dim is not None}
    # The inputs that have all dims of the result, whose order the result may therefore have.
    followed = [
        (position, dims, operand)
        for position, (dims, operands) in enumerate(zip(signature.maps, inputs, strict=False))
        if set(axis) <= set(dims)
        for operand in operands
        if operand.addressable
    ]
    for op_layout in op_layouts:
        stick_dim = op_layout.stick_dims[-1]
        candidates: list[LayoutCandidate] = []
        for position, dims, operand in followed if stick_dim is not None else ():
            if operand.stick_dim == op_layout.stick_dims[position]:
                order = [axis[dim] for dim in (dims[k] for k in operand.order) if dim in axis]
                candidates.append(ordered(target, shape, dtype, stick_dim, tuple(order)))
        # Inherited orders come first, so the limit drops default orders.
        candidates += default_candidates(target, shape, dtype, stick_dim, stick_outermost)
        requested = (request for request in requests if request.stick_dim == stick_dim)
        orders = distinct((*distinct(candidates)[:_MAX_ORDERS], *requested))
        produced += [produced_layout(result, op_layout) for result in orders]
    return tuple(produced)
