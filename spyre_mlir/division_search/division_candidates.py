# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Division candidates of an operation: its division, other good ones, and divisions that match its neighbours."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.cost_model import operation_cost
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.ring_traffic import relayout_ns
from spyre_mlir.division.cores import Division, core_order
from spyre_mlir.division.matching import Mapping, matching_division, same_slices, view_of
from spyre_mlir.division.ownership import CoreView, is_accessible, local_bytes, mismatch
from spyre_mlir.division.relayout import copy_division, held_view, relayout, ring_division
from spyre_mlir.division.slices import divisors, filled, shares_of, work_distribution
from spyre_mlir.division.spans import out_of_reach
from spyre_mlir.division_search import work_division
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import ViewError
from spyre_mlir.records import dataclass, hash_once
from spyre_mlir.target.ops import DEVICE_OPS, KINDS


@dataclass(frozen=True)
class DividedOp:
    """A divided operation that runs ``executions`` times; ``blocked`` dims keep their slices.

    If ``fixed``, the division must not change.
    """

    opcode: str
    space: Space
    division: Division
    blocked: frozenset[int] = frozenset()
    executions: int = 1
    fixed: bool = False


@dataclass(frozen=True)
class SharedBuffer:
    """A buffer that could be on chip. ``accesses`` are (operation, operand) in program order.

    The first access writes the buffer, unless the buffer comes ``from_host``. For readers whose views do not match, and
    for the host if it is a ``result``, a copy of the buffer in device memory is possible, which runs ``copies`` times.

    ``space`` is the iteration space of a copy of the whole buffer; None if the ring cannot copy the buffer. ``values``
    has for each access the number of the buffer's value that it reads or writes, and how often a relayout before it
    would run; each value is copied separately. The access ``holder`` covers the whole buffer; with ``in_parts``,
    other accesses do not.
    """

    accesses: tuple[tuple[int, int], ...]
    from_host: bool = False
    result: bool = False
    copies: int = 1
    space: Space | None = None
    values: tuple[tuple[int, int], ...] = ()
    holder: int = 0
    in_parts: bool = False

    def value(self, access: int) -> tuple[int, int]:
        """Return the number of the value that an access uses, and how often a relayout before it would run."""
        return self.values[access] if self.values else (0, self.copies)

    def share(self, access: int) -> float:
        """Return an access's share in the runs of a relayout of its value, if all reads of the value share it."""
        number, runs = self.value(access)
        return runs / max(1, self._reads_of_values[number])

    @functools.cached_property
    def _reads_of_values(self) -> Counter[int]:
        reads = range(0 if self.from_host else 1, len(self.accesses))
        return Counter(self.value(access)[0] for access in reads)


@dataclass(frozen=True)
class DivisionCandidate:
    """A division, and the order of its core ids if it is not the default order."""

    division: Division
    mapping: Mapping | None = None

    __hash__ = hash_once


def division_candidates(
    ops: Sequence[DividedOp], buffers: Sequence[SharedBuffer], limit: int
) -> list[tuple[DivisionCandidate, ...]]:
    """Return the candidates of each operation: its division, other good ones, then ones that match its neighbours.

    Divisions that keep dims with subviews whole come before the matching ones. At most ``limit`` per operation, half of
    them for the neighbours, on the largest number of cores of any operation.
    """
    lists = _CandidateLists(ops, limit)
    for buffer in buffers:
        if buffer.in_parts:
            lists.share_whole_dims(buffer)
    # A view propagates along a chain of operations in either direction, and back to the first operations.
    for sweep in (buffers, buffers[::-1], buffers):
        for buffer in sweep:
            lists.match_views(buffer)
    return [tuple(candidates) for candidates in lists.candidates]


def one_core_candidates(ops: Sequence[DividedOp]) -> list[tuple[DivisionCandidate, ...]]:
    """Return the present division and the division on one core of each operation; empty if one core is slower for any.

    Small operations may take less time on one core, which needs no copies to other cores.
    """
    if not all(work_division.is_fast_whole(op.opcode, op.space, op.division.splits) for op in ops):
        return []
    lists = _CandidateLists(ops, 2)
    for index, op in enumerate(ops):
        lists.candidates[index] = lists.candidates[index][:1]
        lists.add(index, ((1,) * len(op.space.sizes), tuple(range(len(op.space.sizes)))))
    return [tuple(candidates) for candidates in lists.candidates]


def read_view(op: DividedOp, operand: int, candidate: DivisionCandidate) -> CoreView | None:
    """Return the view of an operand that the cores read; None if a core's part is not a region of the buffer."""
    view = view_of(op.space, operand, candidate.division)
    return None if view is None or view.partial else view


def written_view(op: DividedOp, candidate: DivisionCandidate) -> CoreView | None:
    """Return the view of the result that the cores hold at the end; None if a part is not a region of the buffer."""
    try:
        return held_view(op.space, len(op.space.views) - 1, candidate.division)
    except ViewError:
        return None


def _first_candidates(op: DividedOp, cores: int, limit: int) -> list[DivisionCandidate]:
    """Return the operation's division, the same without split reduction (few cores hold its result), and cheap ones."""
    candidates = [DivisionCandidate(op.division)]
    if op.fixed or any(op.division.splits[dim] > 1 for dim in op.blocked):
        return candidates
    for splits, order in _other_mappings(op, cores):
        if not _in_reach(op.space, splits, DEVICE_OPS[op.opcode].indirect):
            continue
        division = Division.of(splits, op.space.units, op.space.reduced)
        division = replace(division, owners=Division.mixed_radix(splits, order).owners)
        is_new = all(division.owners != other.division.owners for other in candidates)
        if len(candidates) < limit and is_new:
            candidates.append(DivisionCandidate(division, (splits, order)))
    return candidates


def _other_mappings(op: DividedOp, cores: int) -> Iterator[Mapping]:
    """Yield splits with the order of their core ids, the best first."""
    space, splits = op.space, op.division.splits
    by_cost = KINDS[op.opcode].is_divided_by_cost
    whole = tuple(1 if dim in space.reduced else n for dim, n in enumerate(splits))
    options = [whole] if whole != splits else []
    # With a smaller last slice the busiest core may have less work.
    if by_cost and not space.symbolic:
        options += work_division.cheapest_uneven(op.opcode, space, cores, op.blocked)
    elif not space.symbolic:
        uneven = work_distribution(space.units, space.reduced, cores, blocked=op.blocked, uneven=True)
        largest, share = (math.prod(shares_of(space.units, slices)) for slices in (splits, uneven))
        options += [uneven] if share < largest else []
    if space.windows:
        # Cores that have all rows and columns of their channels need no data of their neighbours.
        slid = op.blocked | {window.output for window in space.windows}
        options.append(work_distribution(space.units, space.reduced, cores, blocked=slid))
    cheap: dict[tuple[int, ...], None] = {}
    if not by_cost:
        options += work_division.cheaper_splits(op.opcode, space, cores, splits, op.blocked)
    if by_cost:
        in_hbm = work_division.cheapest_splits(op.opcode, space, cores, op.blocked)
        on_chip = work_division.cheapest_on_chip(op.opcode, space, cores, op.blocked)
        cheap = dict.fromkeys((splits, *on_chip, *in_hbm))
    for option in (*options, *cheap):
        yield option, core_order(option, space.reduced)
    if KINDS[op.opcode].on_array and len(space.views) == 3:
        # In this order, cores that share rows of the first matrix are neighbours on the ring.
        columns = space.present[1] - space.present[0]
        for option in cheap:
            slow = {dim: dim not in space.reduced or option[dim] == 1 for dim in range(len(option))}
            order = sorted(core_order(option, space.reduced), key=lambda dim: (slow[dim], dim not in columns))
            yield option, tuple(order)


@functools.lru_cache(maxsize=1 << 13)
def _in_reach(space: Space, splits: tuple[int, ...], exempt: frozenset[int]) -> bool:
    return out_of_reach(space, splits, exempt) is None


class _CandidateLists:
    """The candidates of each operation so far, at most ``limit``."""

    def __init__(self, ops: Sequence[DividedOp], limit: int) -> None:
        self.ops, self.limit = ops, limit
        self.cores = max((op.space.target.cores for op in ops), default=1)
        # The other half is for candidates that match neighbours.
        self.candidates = [_first_candidates(op, self.cores, -(-limit // 2)) for op in ops]
        self._known = [
            {(candidate.division.splits, candidate.division.owners) for candidate in candidates}
            for candidates in self.candidates
        ]

    def share_whole_dims(self, buffer: SharedBuffer) -> None:
        """Add divisions of all operations that access a buffer along only those dims that each access covers whole."""
        # The dims of each operand that are not reduced, keyed by (stride in the buffer, number of units).
        dims: list[dict[tuple[int, int], int]] = []
        for index, operand in buffer.accesses:
            space = self.ops[index].space
            axes = (axis for axis in space.views[operand].axes if axis.dim not in space.reduced)
            dims.append({(axis.stride, space.units[axis.dim]): axis.dim for axis in axes})
        shared, cores = {}, self.cores
        # By falling stride: outermost dims are divided first, as long as cores are left.
        for step in sorted(set.intersection(*map(set, dims)), reverse=True):
            shared[step] = divisors(step[1], cores)[-1]
            cores //= shared[step]
        for (index, _), dim_of_step in zip(buffer.accesses, dims, strict=True):
            splits = [1] * len(self.ops[index].space.sizes)
            for step, split in shared.items():
                splits[dim_of_step[step]] = split
            order = dict.fromkeys([*(dim_of_step[step] for step in shared), *range(len(splits))])
            self.add(index, (tuple(splits), tuple(order)))

    def match_views(self, buffer: SharedBuffer) -> None:
        """Give each access of a buffer the views of other accesses of the buffer with the same first element.

        If the buffer is accessed in subviews, an access gets the views of all others.
        """
        views: dict[CoreView, tuple[Space, int, Division]] = {}
        for index, operand in buffer.accesses:
            for candidate in self.candidates[index]:
                view = read_view(self.ops[index], operand, candidate)
                if view is not None and None not in view.regions:
                    views.setdefault(view, (self.ops[index].space, operand, candidate.division))
        for index, operand in buffer.accesses:
            if self._is_open(index):
                mappings = self._matching(index, operand, views, buffer.in_parts)
                room = self.limit - len(self.candidates[index])
                if len(mappings) > room:
                    # Half of the room is for the first views, which are the views of the nearest operations, and half
                    # for the fastest divisions.
                    splits = tuple(each for each, _ in mappings[room // 2 :])
                    order = work_division.by_on_chip_cost(
                        self.ops[index].opcode, self.ops[index].space, splits
                    )
                    mappings[room // 2 :] = [mappings[room // 2 + position] for position in order]
                for mapping in mappings:
                    self.add(index, mapping)

    def _matching(
        self,
        index: int,
        operand: int,
        views: dict[CoreView, tuple[Space, int, Division]],
        in_parts: bool,
    ) -> list[Mapping]:
        """Return the mappings with which an operation accesses an operand in one of ``views``."""
        space, found = self.ops[index].space, dict[Mapping, None]()
        for view, source in views.items():
            mapping = None
            if _first_element(view) == space.footprint(operand).offset:
                mapping = matching_division(space, operand, view, in_parts)
            if mapping is None and in_parts:
                mapping = same_slices(space, operand, *source)
            if mapping is not None:
                found[mapping] = None
        return list(found)

    def _is_open(self, index: int) -> bool:
        return not self.ops[index].fixed and len(self.candidates[index]) < self.limit

    def add(self, index: int, mapping: Mapping) -> None:
        """Add the candidate of a mapping to the candidates of an operation, if it is legal and new."""
        op = self.ops[index]
        blocked = tuple((dim, op.division.splits[dim]) for dim in sorted(op.blocked))
        candidate = _candidate(op.opcode, op.space, mapping, blocked) if self._is_open(index) else None
        if candidate is None:
            return
        division = candidate.division.splits, candidate.division.owners
        if division not in self._known[index]:
            self._known[index].add(division)
            self.candidates[index].append(candidate)


@functools.lru_cache(maxsize=1 << 12)
def _first_element(view: CoreView) -> int:
    """Return the first element that any core accesses; every core has a region.

    If a buffer is read in many parts, an operation can only have the views of one part.
    """
    return min(region.start for region in view.regions if region is not None)


@functools.lru_cache(maxsize=1 << 13)
def _candidate(
    opcode: str, space: Space, mapping: Mapping, blocked: tuple[tuple[int, int], ...]
) -> DivisionCandidate | None:
    """Return the candidate of a mapping; None if it is not legal. ``blocked`` dims have the given slices."""
    splits, order = mapping
    if any(splits[dim] != split for dim, split in blocked):
        return None
    if any(filled(units, split) < split for units, split in zip(space.units, splits, strict=True)):
        return None  # slices of the whole buffer, of which a part does not fill this number
    if sum(splits[dim] > 1 for dim in space.reduced) > 1:
        return None
    if not _in_reach(space, splits, DEVICE_OPS[opcode].indirect):
        return None
    return DivisionCandidate(Division.mixed_radix(splits, order), mapping)


#: Number of views of a writer, and of each reader, between which relayouts are considered: the first ones, the best.
_RELAYOUT_VIEWS = 6


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

    def needs_relayout(self, view: CoreView | None) -> bool:
        """Return whether cores can read this view only after the relayout."""
        return is_resident(self.relayout_view, view) and not is_resident(self.view, view)


def is_resident(resident: CoreView | None, view: CoreView | None, *, writes: bool = False) -> bool:
    """Return whether cores that hold the view ``resident`` of a buffer on chip can read or write ``view`` there."""
    return resident is not None and view is not None and is_accessible(resident, view, writes=writes)


@dataclass(frozen=True)
class Placements:
    """The placements of a buffer, None (device memory) first; equal buffers of a program share one object."""

    options: tuple[BufferPlacement | None, ...]

    __hash__ = hash_once

    @functools.cached_property
    def views(self) -> tuple[CoreView | None, ...]:
        """The different views of all placements, and None."""
        in_lx = [option for option in self.options if option is not None]
        return tuple(
            dict.fromkeys((None, *(view for each in in_lx for view in (each.view, each.relayout_view))))
        )

    @functools.cached_property
    def columns(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_], NDArray[np.float64]]:
        """For each placement: the indices of its two views in ``views``, ``in_hbm`` and ``relayout_ns``."""
        index, memory = {view: number for number, view in enumerate(self.views)}, (None, None, True, 0.0)
        rows = [
            memory if each is None else (each.view, each.relayout_view, each.in_hbm, each.relayout_ns)
            for each in self.options
        ]
        resident, moved, in_hbm, relayout = zip(*rows, strict=True)
        first, second = (np.array([index[view] for view in views]) for views in (resident, moved))
        return first, second, np.array(in_hbm), np.array(relayout)


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

    __hash__ = hash_once

    def view(self, candidate: DivisionCandidate) -> CoreView | None:
        """Return the view that the cores write or read; None if a core's part is not a region of the buffer."""
        if self.writes:
            return written_view(self.op, candidate)
        return read_view(self.op, self.operand, candidate)

    def fitting(self, capacity: int) -> Iterator[CoreView]:
        """Yield the views that fit in ``capacity`` bytes of LX."""
        for candidate in self.candidates:
            view = self.view(candidate)
            if view is not None and local_bytes(self.op.space, self.operand, candidate.division) <= capacity:
                yield view


@functools.lru_cache(maxsize=1 << 12)
def placements_of(
    accesses: tuple[BufferAccess, ...], buffer: BufferSource, capacity: int, relayouts: bool
) -> Placements:
    """Return the placements of a buffer; ``capacity`` is the size of LX in bytes.

    In LX the buffer has a view of its holder (its writer, if one operation makes it), or of any reader if it comes from
    the host; then also views that the ring can produce.
    """
    if buffer.from_host:
        views = dict.fromkeys(view for access in accesses for view in access.fitting(capacity))
        return Placements((None, *(placement for view in views for placement in _with_clone(buffer, view))))
    written = list(dict.fromkeys(accesses[buffer.holder].fitting(capacity)))
    # Only on chip, or with a copy in device memory if the host or other readers need it.
    by_writer = {view: [] if buffer.result else [BufferPlacement(view, in_hbm=False)] for view in written}
    for view, group in by_writer.items() if buffer.result or len(accesses) > 2 else ():
        group += _with_clone(buffer, view)
    placements = [placement for group in by_writer.values() for placement in group]
    if relayouts and buffer.space is not None:
        requested: dict[CoreView, None] = {}
        for access in accesses:
            own: dict[CoreView, None] = {}
            for candidate in access.candidates if not access.writes else ():
                view = _requested_view(access, candidate, buffer.space, capacity)
                if view is not None and len(own) < _RELAYOUT_VIEWS:
                    own[view] = None
            requested |= own
        # Relayouts come last: the comparison without relayouts cuts the list before the first of them.
        for target in requested:
            for source in written[:_RELAYOUT_VIEWS]:
                nanoseconds = _relayout_ns(buffer.space, source, target)
                if nanoseconds is not None:
                    placements += [
                        BufferPlacement(source, placement.in_hbm, placement.copy_ns, target, nanoseconds)
                        for placement in by_writer[source]
                    ]
    return Placements((None, *placements))


def _requested_view(
    access: BufferAccess, candidate: DivisionCandidate, space: Space, capacity: int
) -> CoreView | None:
    """Return the view that a relayout could give a reader; for a reader of a part, a view of the whole in its slices.

    None if the ring cannot make the view, or if it needs more than ``capacity`` bytes of LX.
    """
    view = access.view(candidate)
    if view is None or local_bytes(access.op.space, access.operand, candidate.division) > capacity:
        return None
    if ring_division(space, view) is not None:
        return view
    mapping = same_slices(space, 1, access.op.space, access.operand, candidate.division)
    whole = None if mapping is None else Division.mixed_radix(*mapping)
    fits = whole is not None and local_bytes(space, 1, whole) <= capacity
    return view_of(space, 1, whole) if whole is not None and fits else None


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


@functools.lru_cache(maxsize=1 << 14)
def _relayout_ns(space: Space, source: CoreView, target: CoreView) -> float | None:
    """Return the nanoseconds of a relayout; None if the ring cannot do it, or if the views match without it."""
    copy = _ring_copy(space, target)
    if copy is None or mismatch(source, target) is None:
        return None
    transfer = relayout(copy[0], source, copy[1])
    return None if transfer is None else relayout_ns(transfer)


@functools.lru_cache(maxsize=1 << 13)
def _ring_copy(space: Space, target: CoreView) -> tuple[Space, Division] | None:
    """Return the iteration space and the division of a copy over the ring that results in a view."""
    copy = ring_division(space, target)
    return None if copy is None else (replace(space, halos=copy.halos).repeated(copy.copies), copy.division)
