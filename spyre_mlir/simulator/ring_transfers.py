"""A relayout: every core gathers its part of a buffer from the LX of cores that hold it, over the ring.

Each *piece*, what a core wants of one slice of the source, comes from the nearest core that holds the slice, of equally
near ones from the one of the lower id. All cores read before any writes. Bits go as they are, those of padding too.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.access import Access, access_error, bad_read, element_text
from spyre_mlir.simulator.boxes import Box, share_of
from spyre_mlir.simulator.core_views import CoreViews
from spyre_mlir.simulator.memory import POISON, AddressSpace, spread
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.target.formats import FORMATS


@dataclass(frozen=True)
class _Piece:
    """A rectangle of the iteration space, ``begins[k]`` to ``ends[k]`` of label ``k``, and the slices it lies in."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    slices: tuple[int, ...]

    def index(self, box: Box) -> tuple[slice, ...]:
        """Its place in the windows of a box, whose stick label has an axis of sticks and one of lanes."""
        (axis,) = box.whole.inside
        lanes = box.whole.shape[axis + 1]
        units = [lanes if k == axis else 1 for k in range(len(box.origin))]
        places = zip(self.begins, self.ends, box.origin, units, strict=True)
        index = [slice((begin - low) // unit, (end - low) // unit) for begin, end, low, unit in places]
        return (*index[: axis + 1], slice(None), *index[axis + 1 :])


def relayout(plan: Plan, sources: Sequence[Access], targets: Sequence[Access], space: AddressSpace) -> int:
    """Give each core of ``targets`` its part of what the cores of ``sources`` hold; the bytes that change the core."""
    _check_apart(plan, sources, targets)
    gather = _Gather(plan, sources, targets[0].box, space)
    results = [gather.part(target) for target in targets]
    for target, (data, tags) in zip(targets, results, strict=True):
        views = _views(target, space, data.dtype)
        views.write(data[None])
        if tags is None:
            views.write_tag(target.region.tag)
        else:
            views.write_tags(tags)
    return gather.moved_bytes


def ring_distance(nodes: int, one: int, other: int) -> int:
    """Hops between two cores of a ring of so many, which are all cores of the device."""
    around = abs(one - other)
    return min(around, nodes - around)


def _check_apart(plan: Plan, sources: Sequence[Access], targets: Sequence[Access]) -> None:
    """Source and result share no byte: what a core writes there another one may not have read yet."""
    low, high = min(target.address for target in targets), max(target.end for target in targets)
    for source in sources:
        if source.address < high and low < source.end:
            text = f"it overlaps the output '{targets[0].region.name}', which a relayout must not."
            raise access_error(plan, source, "overlap", text)


def _views(access: Access, space: AddressSpace, raw: np.dtype) -> CoreViews:
    place = space.place(access.region, access.core, access.address)
    return CoreViews(space.memory(access.region), access.box.whole, [place], raw)


class _Gather:
    """Reads the parts of a relayout's result, of which ``box`` is one."""

    def __init__(self, plan: Plan, sources: Sequence[Access], box: Box, space: AddressSpace) -> None:
        self._plan, self._space = plan, space
        design, operand = plan.design, plan.design.operands[0]
        self._raw = FORMATS[operand.data_format].raw
        labels = zip(design.sizes, box.varies, box.extents, strict=True)
        self._shares = [
            share_of(design, operand, label) if varies else extent for label, varies, extent in labels
        ]
        self._holders: dict[tuple[int, ...], list[Access]] = {}
        for source in sources:
            slices = tuple(low // share for low, share in zip(source.box.origin, self._shares, strict=True))
            self._holders.setdefault(slices, []).append(source)
        self.moved_bytes = 0

    def part(self, target: Access) -> tuple[NDArray, NDArray | None]:
        """The bits and the tags of a core's part, in the shape of its window; no tags where all is of the source."""
        box, is_whole = target.box, True
        data, tags = np.empty(box.whole.shape, self._raw), np.empty(box.whole.shape, self._raw)
        for piece in self._pieces(box):
            source = self._nearest(piece, target)
            inside, there = piece.index(source.box), piece.index(box)
            views = _views(source, self._space, self._raw)
            data[there] = views.bits()[0][inside]
            self.moved_bytes += data[there].nbytes * (source.core != target.core)
            if views.are_written_by([source.region.tag]):
                tags[there] = spread(target.region.tag, self._raw)
                continue
            is_whole = False
            source_tags = views.tags()[0][inside]
            good = source_tags == spread(source.region.tag, self._raw)
            # Only a part that is not all good is worth a look at its padding.
            if not good.all():
                self._check_valid(piece, source, source_tags, good)
            tags[there] = np.where(good, spread(target.region.tag, self._raw), spread(POISON, self._raw))
        return data, None if is_whole else tags

    def _pieces(self, box: Box) -> Iterator[_Piece]:
        """A box cut where the slices of the source meet."""
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
            text = f"{element_text(self._plan, target.box, position)} is in the LX of no core."
            raise access_error(self._plan, target, "not-held", text)
        holders, nodes = self._holders[piece.slices], self._plan.design.target.device_cores
        # Ties go to the lower core id, as in ``cost/ring_traffic.py``, so that bytes per link agree.
        return min(holders, key=lambda holder: (ring_distance(nodes, holder.core, target.core), holder.core))

    def _check_valid(self, piece: _Piece, source: Access, tags: NDArray, good: NDArray) -> None:
        """Only padding may be what nobody wrote."""
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
