# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checked accesses of operands on cores: their boxes and addresses, and the errors of a read."""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import IdentityTable
from spyre_mlir.records import dataclass
from spyre_mlir.simulator.boxes import Box, share_of
from spyre_mlir.simulator.memory import (
    NOBODY,
    PARTIAL,
    POISON,
    AddressRange,
    AddressSpace,
    CoreViews,
    spread,
    tag_pattern,
)
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.run_outcome import SimulationError
from spyre_mlir.simulator.workers import run_tasks
from spyre_mlir.target.formats import FORMATS

#: Explanation appended to a read of memory that no result was written to, by shadow tag.
_LEFT = {
    POISON: " (an earlier operation left padding there)",
    PARTIAL: " (an earlier operation left a part of a sum there)",
}


@dataclass(frozen=True)
class Access:
    """One operand on one core: a box at an address, in a buffer."""

    operand: int
    core: int
    box: Box
    address: int
    region: AddressRange

    @property
    def end(self) -> int:
        return self.address + self.box.span_bytes

    @property
    def key(self) -> tuple[int, int, int]:
        """A key that is equal for cores that load the same elements."""
        return (self.operand, self.address, id(self.box))


@dataclass(frozen=True, eq=False)
class OperandAccesses:
    """One operand on all cores that have a part of it: its box and the address of the box, by core."""

    operand: int
    region: AddressRange
    boxes: Mapping[int, Box]
    addresses: Mapping[int, int]

    def __getitem__(self, core: int) -> Access:
        return Access(self.operand, core, self.boxes[core], self.addresses[core], self.region)

    def __iter__(self) -> Iterator[Access]:
        return (self[core] for core in self.boxes)

    def __len__(self) -> int:
        return len(self.boxes)

    @functools.cached_property
    def span(self) -> tuple[int, int]:
        """The lowest address of all parts, and the address after the last byte."""
        ends = (self.addresses[core] + box.span_bytes for core, box in self.boxes.items())
        return min(self.addresses.values()), max(ends)

    def meets(self, other: OperandAccesses) -> bool:
        """Return whether the spans of two operands in one memory overlap."""
        if self.region.lx != other.region.lx or not len(self) or not len(other):
            return False
        return self.span[0] < other.span[1] and other.span[0] < self.span[1]


def resolve(
    plan: Plan, regions: tuple[AddressRange, ...], symbols: dict[int, int], space: AddressSpace
) -> list[OperandAccesses]:
    """Resolve and check the address of every operand on every core that has a part of it."""
    accesses = []
    for k, (operand, region) in enumerate(zip(plan.design.operands, regions, strict=True)):
        if region.lx != (operand.memory == "lx"):
            text = f"the design has it in {operand.memory}, its buffer is in {'lx' if region.lx else 'hbm'}."
            raise SimulationError("manifest", text, design=plan.design, tensor=region.name)
        unbound = [] if region.lx else [symbol for symbol in operand.start if symbol not in symbols]
        if unbound:
            text = f"symbol {unbound[0]} of its start address is not bound by the bundle."
            raise SimulationError("symbol", text, design=plan.design, tensor=region.name)
        addresses = {
            core: operand.start[core] if region.lx else symbols[operand.start[core]] for core in plan.boxes[k]
        }
        checked = OperandAccesses(k, region, plan.boxes[k], addresses)
        if not _is_inside(plan, checked):
            # Check one access at a time, because the message names the first access that fails.
            for access in checked:
                _check_access(plan, access, space)
        accesses.append(checked)
    return accesses


def _is_inside(plan: Plan, accesses: OperandAccesses) -> bool:
    """Return whether all parts of an operand are in its buffer, aligned, and within the address span of a core."""
    region, target = accesses.region, plan.design.target
    if not len(accesses):
        return True
    unit = target.lx_alignment_bytes if region.lx else target.hbm_alignment_bytes
    low, high = accesses.span
    if low < region.start or region.end < high or any(a % unit for a in accesses.addresses.values()):
        return False
    far = region.lx or accesses.operand in plan.op.indirect
    return far or max(box.span_bytes for box in accesses.boxes.values()) <= target.span_bytes


def _check_access(plan: Plan, access: Access, space: AddressSpace) -> None:
    region, address = access.region, access.address
    target = plan.design.target
    unit = target.lx_alignment_bytes if region.lx else target.hbm_alignment_bytes
    if region.start <= address and access.end <= region.end and address % unit == 0:
        # Each row of an indirect access has its own address, so the span limit does not apply.
        far = access.operand in plan.op.indirect
        if region.lx or far or access.box.span_bytes <= target.span_bytes:
            return
        text = f"it spans {access.box.span_bytes} bytes, but a core can address {target.span_bytes}."
        raise access_error(plan, access, "span", text)
    if address % unit:
        raise access_error(plan, access, "alignment", f"its start is not a multiple of {unit} bytes.")
    inside = (
        f"it covers [{address:#x}, {access.end:#x}), but its buffer is [{region.start:#x}, {region.end:#x})."
    )
    if region.lx and access.end > space.lx_limit_bytes:
        raise access_error(plan, access, "lx-capacity", f"{inside} LX ends at {space.lx_limit_bytes:#x}.")
    raise access_error(plan, access, "out-of-bounds", inside)


def element_text(plan: Plan, box: Box, position: Sequence[int]) -> str:
    """Return an element of a box as text, by its coordinates in the whole operation."""
    coordinates = [
        (label, box.origin[a] + position[a]) for a, label in enumerate(plan.design.sizes) if box.varies[a]
    ]
    return "its element " + ", ".join(f"{label} {i}" for label, i in coordinates)


def bad_read(
    plan: Plan, access: Access, pattern: int, position: tuple[int, ...], space: AddressSpace
) -> SimulationError:
    """Return the error of reading an element that has the shadow ``pattern``."""
    design, box = plan.design, access.box
    address = box.whole.address_of(position, access.address)
    element = element_text(plan, box, position)
    width = FORMATS[design.operands[access.operand].data_format].bytes
    tag = pattern & 0xFFFF
    # Different tags in one element do not identify a writer: the element counts as never written.
    if pattern == tag_pattern(tag, width) and tag not in (NOBODY, POISON, PARTIAL):
        text = f"{element} is read after its bytes were overwritten through {space.owner(tag)}."
        return access_error(plan, access, "stale", text, address)
    for axis, (label, size) in enumerate(design.sizes.items()):
        end = size - design.padding.get(label, 0)
        if box.varies[axis] and box.origin[axis] + position[axis] >= end:
            text = f"{element} is undefined padding of dim '{label}' that reaches the result."
            return access_error(plan, access, "padding", text, address)
    text = f"{element} is read but was never written{_LEFT.get(tag, '')}."
    return access_error(plan, access, "uninitialised", text, address)


def access_error(
    plan: Plan, access: Access, kind: str, text: str, address: int | None = None
) -> SimulationError:
    return SimulationError(
        kind,
        text,
        design=plan.design,
        tensor=access.region.name,
        core=access.core,
        address=access.address if address is None else address,
    )


def check_positions(plan: Plan, accesses: Sequence[Access], operands: Sequence[NDArray[Any]]) -> None:
    """Check that every position is a row of the table; the error names the first core and position that is not."""
    assert plan.op.index is not None and plan.op.table is not None
    positions = operands[plan.op.index].view(np.int32)
    access, rows = accesses[plan.op.index], _rows(plan, operands[plan.op.table].shape)
    wrong = (positions < 0) | (positions >= rows)
    if not wrong.any():
        return
    position = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = (
        f"{element_text(plan, access.box, position)} is {positions[position]}, but the table has {rows} rows."
    )
    raise access_error(plan, access, "position", text, access.box.whole.address_of(position, access.address))


def rows_bytes(plan: Plan, positions: Access, table: Access) -> int:
    """Return the bytes of the rows that a core reads of a table."""
    # Rows have equal sizes; a row is moved once for each position that names it.
    return table.box.accessed_bytes // _rows(plan, table.box.extents) * math.prod(positions.box.valid)


def _rows(plan: Plan, extents: Sequence[int]) -> int:
    """Return the number of rows of a table: the extent of the dim that the result lacks."""
    return extents[plan.work.reduced[0]]


# Relayout over the ring: every core gathers its part of a buffer from the LX of the cores that hold it.
#
# A *piece* is the part of one slice of the source that a core needs. It comes from the nearest core that holds the
# slice; ties go to the lower core id. All cores read before any core writes. Bits are copied unchanged, including
# padding.


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


def relayout(
    plan: Plan,
    sources: Sequence[Access],
    targets: Sequence[Access],
    space: AddressSpace,
    rng: random.Random | None = None,
) -> Generator[None, None, int]:
    """Copy to each core of ``targets`` its part of the ``sources``; return the bytes that move between cores.

    With ``rng``, the cores copy one after the other in a random order, one for each item.
    """
    # Source and result are disjoint: a core may write before another core has read.
    low, high = min(target.address for target in targets), max(target.end for target in targets)
    for source in sources:
        if source.address < high and low < source.end and space.is_checked:
            text = f"it overlaps the output '{targets[0].region.name}'; expected source and result to be disjoint."
            raise access_error(plan, source, "overlap", text)
    gather = _Gather(plan, sources, targets[0].box, space)
    if rng is not None:
        targets = rng.sample(targets, len(targets))
    results = gather.parts(targets) if rng is None else (gather.parts([each])[0] for each in targets)
    for target, (data, tags) in zip(targets, results, strict=True):
        views = _views(target, space, data.dtype)
        views.write(data[None])
        if tags is None:
            views.write_tag(target.region.tag)
        else:
            views.write_tags(tags)
        if rng is not None:
            yield
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
        is_whole = not self._space.is_checked or views.are_written_by([source.region.tag])
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
