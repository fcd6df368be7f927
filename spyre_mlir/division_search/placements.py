# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Placements of a buffer: device memory, LX as its writer leaves it, and LX relaid out as its readers need it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from spyre_mlir.cost.cost_model import operation_cost
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.ring_traffic import relayout_ns
from spyre_mlir.division.copies import copy_division, ring_division
from spyre_mlir.division.cores import Division
from spyre_mlir.division.matching import same_slices, view_of
from spyre_mlir.division.ownership import CoreView, local_bytes, mismatch
from spyre_mlir.division.relayout import relayout
from spyre_mlir.division.subviews import subview_mismatch
from spyre_mlir.division_search.division_candidates import (
    DividedOp,
    DivisionCandidate,
    read_view,
    written_view,
)
from spyre_mlir.layout.space import Space
from spyre_mlir.records import dataclass

#: Number of views of a writer, and of each reader, between which relayouts are considered: the first ones, the best.
_RELAYOUT_VIEWS = 4


@dataclass(frozen=True)
class BufferPlacement:
    """A view of a buffer on chip; with ``in_hbm`` a copy of the buffer is also in device memory.

    A clone makes the copy in ``copy_ns``, or loads the argument from device memory. ``relayout_view`` is the view that
    the cores get over the ring in ``relayout_ns``, for readers that need it.
    """

    view: CoreView
    in_hbm: bool
    copy_ns: float = 0.0
    relayout_view: CoreView | None = None
    relayout_ns: float = 0.0

    def accepts_reader(self, view: CoreView | None) -> bool:
        """Return whether cores can read this view on chip."""
        return is_resident(self.view, view) or is_resident(self.relayout_view, view)

    def accepts_writer(self, view: CoreView | None) -> bool:
        """Return whether cores that write this view, of all or a part of the buffer, can write it on chip."""
        return view is not None and (
            view == self.view or subview_mismatch(self.view, view, writes=True) is None
        )

    def needs_relayout(self, view: CoreView | None) -> bool:
        """Return whether cores can read this view only after the relayout."""
        return is_resident(self.relayout_view, view) and not is_resident(self.view, view)


def is_resident(resident: CoreView | None, view: CoreView | None) -> bool:
    """Return whether cores that hold the view ``resident`` of a buffer on chip can read ``view`` there."""
    return resident is not None and view is not None and subview_mismatch(resident, view) is None


@dataclass(frozen=True)
class BufferSource:
    """A buffer without its accesses: ``from_host`` is an argument, a ``result`` is read by the host.

    ``space`` is the iteration space of a copy of the buffer; None if the ring cannot copy it. ``holder`` is the index
    of the access that determines how the cores hold it in LX.
    """

    from_host: bool
    result: bool
    space: Space | None
    holder: int = 0


@dataclass(frozen=True)
class BufferAccess:
    """An operand that reads or writes a buffer, with the division candidates of its operation."""

    op: DividedOp
    operand: int
    writes: bool
    candidates: tuple[DivisionCandidate, ...]

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Cached hash: accesses are keys of caches, and ``candidates`` is long."""
        return hash((self.op, self.operand, self.writes, self.candidates))

    def view(self, candidate: DivisionCandidate) -> CoreView | None:
        """Return the view that the cores write or read; None if a core's part is not a region of the buffer."""
        if self.writes:
            return written_view(self.op, candidate)
        return read_view(self.op, self.operand, candidate)

    def fitting(self, capacity: int, limit: int | None = None) -> Iterator[CoreView]:
        """Yield the views that fit in ``capacity`` bytes of LX."""
        for candidate in self.candidates[:limit]:
            view = self.view(candidate)
            if view is not None and local_bytes(self.op.space, self.operand, candidate.division) <= capacity:
                yield view


@functools.lru_cache(maxsize=1 << 12)
def placements_of(
    accesses: tuple[BufferAccess, ...], buffer: BufferSource, capacity: int, relayouts: bool
) -> tuple[BufferPlacement | None, ...]:
    """Return the placements of a buffer, device memory first; ``capacity`` is the size of LX in bytes.

    In LX the buffer has a view of its holder (its writer, if one operation makes it), or of any reader if it comes from
    the host; then also views that the ring can produce. Equal buffers of a program get the same tuple object.
    """
    if buffer.from_host:
        views = dict.fromkeys(view for access in accesses for view in access.fitting(capacity))
        return (None, *(placement for view in views for placement in _with_clone(buffer, view)))
    written = list(dict.fromkeys(accesses[buffer.holder].fitting(capacity)))
    by_writer = {view: _as_written(buffer, view, len(accesses) > 2) for view in written}
    placements = [placement for group in by_writer.values() for placement in group]
    if relayouts and buffer.space is not None:
        reads = (access for access in accesses if not access.writes)
        requested = dict.fromkeys(
            view for access in reads for view in _requested(access, buffer.space, capacity)
        )
        # Relayouts come last: the comparison without relayouts cuts the list before the first of them.
        for source, target, nanoseconds in _relayouts(
            buffer.space, written[:_RELAYOUT_VIEWS], list(requested)
        ):
            placements += [
                replace(placement, relayout_view=target, relayout_ns=nanoseconds)
                for placement in by_writer[source]
            ]
    return (None, *placements)


def _requested(access: BufferAccess, space: Space, capacity: int) -> Iterator[CoreView]:
    """Yield views that a relayout could give a reader; for a reader of a part, views of the whole in its slices."""
    for candidate in access.candidates[:_RELAYOUT_VIEWS]:
        view = access.view(candidate)
        if view is None or local_bytes(access.op.space, access.operand, candidate.division) > capacity:
            continue
        if ring_division(space, view) is None:
            mapping = same_slices(space, 1, access.op.space, access.operand, candidate.division)
            whole = None if mapping is None else Division.mixed_radix(*mapping)
            fits = whole is not None and local_bytes(space, 1, whole) <= capacity
            view = view_of(space, 1, whole) if whole is not None and fits else None
        if view is not None:
            yield view


def _as_written(buffer: BufferSource, view: CoreView, readers_differ: bool) -> list[BufferPlacement]:
    """Return placements with the writer's view: only on chip, or with a copy if the host or other readers need it."""
    alone = [] if buffer.result else [BufferPlacement(view, in_hbm=False)]
    return [*alone, *_with_clone(buffer, view)] if buffer.result or readers_differ else alone


def _with_clone(buffer: BufferSource, view: CoreView) -> list[BufferPlacement]:
    """Return placements with a clone, from device memory if the buffer comes from the host, else to device memory.

    [] if no clone has cores with such views, as when only the finishing cores of a split reduction hold the buffer.
    """
    division = None if buffer.space is None else copy_division(buffer.space, view)
    if buffer.space is None or division is None:
        return []
    space, in_lx = buffer.space.repeated(division.copies), frozenset({1 if buffer.from_host else 0})
    clone = operation_work("identity", space, division.division, in_lx)
    return [BufferPlacement(view, in_hbm=True, copy_ns=operation_cost(clone).total_ns)]


def _relayouts(
    space: Space, written: Sequence[CoreView], requested: Sequence[CoreView]
) -> Iterator[tuple[CoreView, CoreView, float]]:
    """Yield (source view, target view, nanoseconds) of each relayout that the ring can do."""
    for target in requested:
        copy = ring_division(space, target)
        if copy is None:
            continue
        whole = replace(space, halos=copy.halos).repeated(copy.copies)
        # A view that matches needs no relayout.
        for source in written:
            transfer = None if mismatch(source, target) is None else relayout(whole, source, copy.division)
            if transfer is not None:
                yield source, target, relayout_ns(transfer)
