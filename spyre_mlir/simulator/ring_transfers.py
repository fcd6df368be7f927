# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Relayout over the ring: every core gathers its part of a buffer from the LX of the cores that hold it.

A *piece* is the part of one slice of the source that a core needs. It comes from the nearest core that holds the slice;
ties go to the lower core id. All cores read before any core writes. Bits are copied unchanged, including padding.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.core_slices import IdentityTable
from spyre_mlir.records import dataclass
from spyre_mlir.simulator.access import Access, access_error, bad_read, element_text
from spyre_mlir.simulator.boxes import Box, share_of
from spyre_mlir.simulator.memory import POISON, AddressSpace, CoreViews, spread
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.workers import run_tasks
from spyre_mlir.target.formats import FORMATS


@dataclass(frozen=True)
class _Piece:
    """A rectangle of the iteration space, ``begins[k]`` to ``ends[k]`` of label ``k``, and its slices."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    slices: tuple[int, ...]

    def index(self, box: Box) -> tuple[slice, ...]:
        """Return the index of the piece in the windows of a box, whose stick label has two axes: sticks and slots."""
        (axis,) = box.whole.inside
        lanes = box.whole.shape[axis + 1]
        units = [lanes if k == axis else 1 for k in range(len(box.origin))]
        places = zip(self.begins, self.ends, box.origin, units, strict=True)
        index = [slice((begin - low) // unit, (end - low) // unit) for begin, end, low, unit in places]
        return (*index[: axis + 1], slice(None), *index[axis + 1 :])


@dataclass(frozen=True)
class _Move:
    """A piece that a core gets from a source core, and its index in the windows of both."""

    piece: _Piece
    source: int
    inside: tuple[slice, ...]
    target: tuple[slice, ...]


#: The moves of plans, by the receiving core.
_MOVES: IdentityTable[int, list[_Move]] = IdentityTable()


def relayout(plan: Plan, sources: Sequence[Access], targets: Sequence[Access], space: AddressSpace) -> int:
    """Copy to each core of ``targets`` its part of the ``sources``; return the bytes that move between cores."""
    # Source and result are disjoint: a core may write before another core has read.
    low, high = min(target.address for target in targets), max(target.end for target in targets)
    for source in sources:
        if source.address < high and low < source.end:
            text = f"it overlaps the output '{targets[0].region.name}'; expected source and result to be disjoint."
            raise access_error(plan, source, "overlap", text)
    gather = _Gather(plan, sources, targets[0].box, space)
    results = gather.parts(targets)
    for target, (data, tags) in zip(targets, results, strict=True):
        views = _views(target, space, data.dtype)
        views.write(data[None])
        if tags is None:
            views.write_tag(target.region.tag)
        else:
            views.write_tags(tags)
    return gather.moved_bytes


def relayout_again(
    plan: Plan, sources: Sequence[Access], targets: Sequence[Access], space: AddressSpace
) -> Callable[[], None]:
    """Return a function that repeats the copies of a relayout, which was checked before."""
    return _Gather(plan, sources, targets[0].box, space).again(targets)


def ring_distance(nodes: int, one: int, other: int) -> int:
    """Return the hops between two cores of a ring of ``nodes`` cores, which are all cores of the device."""
    around = abs(one - other)
    return min(around, nodes - around)


def _views(access: Access, space: AddressSpace, raw: np.dtype) -> CoreViews:
    place = space.place(access.region, access.core, access.address)
    return CoreViews(space.memory(access.region), access.box.whole, [place], raw)


class _Gather:
    """Reader of the parts of a relayout's result, one of which is ``box``."""

    def __init__(self, plan: Plan, sources: Sequence[Access], box: Box, space: AddressSpace) -> None:
        self._plan, self._space = plan, space
        design, operand = plan.design, plan.design.operands[0]
        self._raw = FORMATS[operand.data_format].raw
        labels = zip(design.sizes, box.varies, box.extents, strict=True)
        self._shares = [
            share_of(design, operand, label) if varies else extent for label, varies, extent in labels
        ]
        self._sources = {source.core: source for source in sources}
        self.moved_bytes = 0

    def parts(self, targets: Sequence[Access]) -> list[tuple[NDArray[Any], NDArray[Any] | None]]:
        """Return the bits and tags of each core's part, in its window's shape; no tags if all are the source's."""
        moves = [self._moves(target) for target in targets]
        used = sorted({move.source for of_target in moves for move in of_target})
        held = {core: self._held(self._sources[core]) for core in used}
        tasks = [
            functools.partial(self._data, target, of_target, held)
            for target, of_target in zip(targets, moves, strict=True)
        ]
        results = []
        for target, of_target, data in zip(targets, moves, run_tasks(tasks), strict=True):
            moved = sum(data[move.target].nbytes for move in of_target if move.source != target.core)
            self.moved_bytes += moved
            results.append((data, self._tags(target, of_target, held)))
        return results

    def again(self, targets: Sequence[Access]) -> Callable[[], None]:
        """Return a function that copies the bits to the windows of cores again."""
        pairs = [
            (
                bits[move.target],
                _views(self._sources[move.source], self._space, self._raw).bits()[0][move.inside],
            )
            for target in targets
            for bits in [_views(target, self._space, self._raw).bits()[0]]
            for move in self._moves(target)
        ]

        def move() -> None:
            """Copy each piece."""
            for part, source in pairs:
                part[...] = source

        return move

    def _moves(self, target: Access) -> list[_Move]:
        moves = _MOVES.entries_of(self._plan)
        if target.core not in moves:
            moves[target.core] = [
                _Move(piece, source.core, piece.index(source.box), piece.index(target.box))
                for piece in self._pieces(target.box)
                for source in [self._nearest(piece, target)]
            ]
        return moves[target.core]

    def _held(self, source: Access) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return the data of a core, and its tags unless all of it was written through the source."""
        views = _views(source, self._space, self._raw)
        is_whole = views.are_written_by([source.region.tag])
        return views.bits()[0], None if is_whole else views.tags()[0]

    def _data(
        self,
        target: Access,
        moves: Sequence[_Move],
        held: Mapping[int, tuple[NDArray[Any], NDArray[Any] | None]],
    ) -> NDArray[Any]:
        data = np.empty(target.box.whole.shape, self._raw)
        for move in moves:
            data[move.target] = held[move.source][0][move.inside]
        return data

    def _tags(
        self,
        target: Access,
        moves: Sequence[_Move],
        held: Mapping[int, tuple[NDArray[Any], NDArray[Any] | None]],
    ) -> NDArray[Any] | None:
        if all(held[move.source][1] is None for move in moves):
            return None
        tags = np.full(target.box.whole.shape, spread(target.region.tag, self._raw))
        for move in moves:
            source, of_source = self._sources[move.source], held[move.source][1]
            if of_source is None:
                continue
            source_tags = of_source[move.inside]
            good = source_tags == spread(source.region.tag, self._raw)
            # Only a part with other tags needs a check of its padding.
            if not good.all():
                self._check_valid(move.piece, source, source_tags, good)
                tags[move.target][~good] = spread(POISON, self._raw)
        return tags

    @functools.cached_property
    def _holders(self) -> dict[tuple[int, ...], list[Access]]:
        """The cores that hold each slice of the source."""
        holders: dict[tuple[int, ...], list[Access]] = {}
        for source in self._sources.values():
            slices = tuple(low // share for low, share in zip(source.box.origin, self._shares, strict=True))
            holders.setdefault(slices, []).append(source)
        return holders

    def _pieces(self, box: Box) -> Iterator[_Piece]:
        """Yield the pieces of a box, which is cut at the slice boundaries of the source."""
        ends = [low + extent for low, extent in zip(box.origin, box.extents, strict=True)]
        parts = list(zip(box.origin, ends, self._shares, strict=True))
        ranges = (range(low // share, (end - 1) // share + 1) for low, end, share in parts)
        for slices in itertools.product(*ranges):
            cuts = list(zip(slices, parts, strict=True))
            begins = tuple(max(low, index * share) for index, (low, _, share) in cuts)
            yield _Piece(
                begins, tuple(min(end, (index + 1) * share) for index, (_, end, share) in cuts), slices
            )

    def _nearest(self, piece: _Piece, target: Access) -> Access:
        if piece.slices not in self._holders:
            position = [begin - low for begin, low in zip(piece.begins, target.box.origin, strict=True)]
            text = f"{element_text(self._plan, target.box, position)} is not in the LX of any core."
            raise access_error(self._plan, target, "not-held", text)
        holders, nodes = self._holders[piece.slices], self._plan.design.target.device_cores
        # Ties go to the lower core id, as in ``cost/ring_traffic.py``, so that the bytes per link agree.
        return min(holders, key=lambda holder: (ring_distance(nodes, holder.core, target.core), holder.core))

    def _check_valid(self, piece: _Piece, source: Access, tags: NDArray[Any], good: NDArray[Any]) -> None:
        """Check that only padding may be data that was never written."""
        box = source.box
        places = list(zip(piece.begins, piece.ends, box.origin, box.valid, strict=True))
        extents = [end - begin for begin, end, _, _ in places]
        valid = tuple(slice(max(0, min(end, low + count) - begin)) for begin, end, low, count in places)
        wrong = ~good.reshape(extents)[valid]
        if not wrong.any():
            return
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        position = tuple(i + begin - low for i, (begin, _, low, _) in zip(index, places, strict=True))
        raise bad_read(self._plan, source, int(tags.reshape(extents)[index]), position, self._space)
