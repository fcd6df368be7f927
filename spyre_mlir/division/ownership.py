# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What each core owns of a buffer under a division, comparable between operations.

Operations see a buffer through dims of their own, so a view is told in the buffer's coordinates: for each
core where its part begins and how far it goes along each device dim. Dims that continue each other are one,
so equal parts are written alike, whatever the operation calls its dims.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from spyre_mlir.division.cores import Division
from spyre_mlir.division.slices import shares_of
from spyre_mlir.layout.sliding_windows import Halos
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import Axis, BufferView, ViewError
from spyre_mlir.records import dataclass
from spyre_mlir.target.sliding import Sliding

#: Steps along device dims, outermost first: (stride in elements, positions).
Steps = tuple[tuple[int, int], ...]


class CoreRegion(NamedTuple):
    """The sticks at ``start + sum of position_k * stride_k`` elements, each position below its count.

    ``steps`` are by falling stride, without counts of 1; one that goes on where the next ends is merged with it.
    """

    start: int
    steps: Steps

    def __str__(self) -> str:
        if not self.steps:
            return f"one stick at element {self.start}"
        counts = " x ".join(str(count) for _, count in self.steps)
        return f"{counts} sticks {' x '.join(str(stride) for stride, _ in self.steps)} elements apart from {self.start}"


@dataclass(frozen=True)
class CoreView:
    """The region of a buffer that each core owns, None where its slice lies in nothing but padding.

    ``partial`` says that cores hold parts of sums there. ``slices`` tells which device dims are sliced, as
    (stride in elements, slices); the regions follow from it, so it is not compared. ``image`` is how LX holds a
    region: the steps of a full share, without what lies between them in the buffer.
    """

    regions: tuple[CoreRegion | None, ...]
    partial: bool
    slices: tuple[tuple[int, int], ...] = field(compare=False)
    image: Steps

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Views are keys of caches; regions make them long."""
        return hash((self.regions, self.partial, self.image))


@functools.lru_cache(maxsize=1 << 12)
def core_view(space: Space, operand: int, division: Division) -> CoreView:
    """Return what each core of a division owns of the buffer of an operand, whole sticks, its padding included.

    A core owns what it reads or writes: a buffer without a split dim (broadcast) is owned by every core.
    The output of a division that splits a reduction dim is ``partial``. ``ViewError`` if slices do not fall on
    the pieces of a dim that lies in several.
    """
    # Cores hold whole sticks, so shares count the padding.
    elements = tuple(map(operator.mul, shares_of(space.units, division.splits), space.granules))
    reduced_split = any(division.splits[dim] > 1 for dim in space.reduced)
    partial = reduced_split and operand == len(space.views) - 1
    view, slid = space.footprint(operand), space.slid(operand)
    return _core_view(view, space.padded, elements, division.splits, division.owners, partial, slid)


@functools.lru_cache(maxsize=1 << 12)
def local_bytes(space: Space, operand: int, division: Division) -> int:
    """Bytes that an operand takes in the LX of each core: whole sticks of a full share.

    All cores run one program with one set of strides, so a smaller last slice takes as much.
    """
    return share_bytes(space, operand, division.splits)


def share_bytes(space: Space, operand: int, splits: Sequence[int]) -> int:
    """Bytes of an operand in a full share, whole sticks, with so many slices of each dim."""
    view, sticks = space.views[operand], 1
    shares = map(operator.mul, shares_of(space.units, splits), space.granules)
    accessed = space.accessed(operand, shares)
    for dim in space.present[operand]:
        sticks *= accessed[dim] // view.stick_elements(dim)
    return sticks * space.target.stick_bytes


def same_owners(one: CoreView, other: CoreView) -> bool:
    """Return whether each core owns the same part of the buffer in both."""
    return one.regions == other.regions


@functools.lru_cache(maxsize=1 << 13)
def mismatch(writer: CoreView, reader: CoreView) -> str | None:
    """Why a reader cannot take a buffer from where the writer's cores left it; None if it can.

    In LX the sticks of a region lie one behind the other, by the steps of a full share: the stick ``sum of
    position_k * stride_k`` elements behind the first one is number ``sum of position_k * (product of the counts
    of all smaller strides)``. That depends on the image alone (merging two steps keeps the number), so where
    regions and images are equal both find each stick at the same address, also on a core with a smaller last
    slice: its positions are some of a full share's. Equal regions have equal images unless an operation goes
    beyond the room of the buffer. No number depends on the count of the largest stride, so a reader may take
    fewer positions of that: the writer's room for padding is larger than what the reader iterates over.
    """
    if writer.partial:
        return "core division mismatch: the writer leaves parts of sums on its cores, not the finished values"
    if len(writer.regions) != len(reader.regions):
        return (
            f"core division mismatch: the writer runs on {len(writer.regions)} cores ({_sliced(writer)}),"
            f" the reader on {len(reader.regions)} ({_sliced(reader)})"
        )
    for core, (written, read) in enumerate(zip(writer.regions, reader.regions, strict=True)):
        if not _holds(written, read):
            return (
                f"core division mismatch: core {core} writes {_text(written)} ({_sliced(writer)}),"
                f" but reads {_text(read)} ({_sliced(reader)})"
            )
    if not _leads(writer.image, reader.image):
        stored, read_image = (_text(CoreRegion(0, view.image)) for view in (writer, reader))
        return f"core division mismatch: each core keeps {stored}, but the reader takes it as {read_image}"
    return None


def _holds(written: CoreRegion | None, read: CoreRegion | None) -> bool:
    """Return whether a core reads what it wrote, or the first positions of it along the outermost step."""
    if written is None or read is None:
        return written is read
    return written.start == read.start and _leads(written.steps, read.steps)


def _leads(whole: Steps, part: Steps) -> bool:
    """Return whether ``part`` is all of ``whole``, or fewer positions of its outermost step."""
    if not whole or part == whole:
        return part == whole
    # A count of 1 is no step, so a reader of one outermost position has only the inner ones.
    outermost, *inner = whole
    rest = (
        list(part[1:]) if part and part[0][0] == outermost[0] and part[0][1] <= outermost[1] else list(part)
    )
    return rest == inner


def _text(region: CoreRegion | None) -> str:
    return "nothing" if region is None else str(region)


def _sliced(view: CoreView) -> str:
    parts = [f"{slices} slices along stride {stride}" for stride, slices in view.slices]
    return " and ".join(parts) or "not sliced"


@functools.lru_cache(maxsize=1 << 12)
def _core_view(
    view: BufferView,
    padded: tuple[int, ...],
    shares: tuple[int, ...],
    splits: tuple[int, ...],
    owners: tuple[tuple[int, ...], ...],
    partial: bool,
    slid: Halos,
) -> CoreView:
    """``shares`` are the elements of a slice of each dim, of ``padded`` elements in all.

    ``view`` has the positions of memory; a slice of a dim that is ``slid`` over touches those of its neighbours, too.
    """
    dims = sorted({axis.dim for axis in view.axes})
    sliding = dict(slid)
    parts_of_dim = {
        dim: _parts(view, dim, _pieces(padded[dim], shares[dim], splits[dim], sliding.get(dim)))
        for dim in dims
    }
    merged: dict[tuple[Steps, ...], Steps] = {}
    regions: list[CoreRegion | None] = []
    for owner in owners:
        contributions = [parts_of_dim[dim][owner[dim]] for dim in dims]
        owned = [part for part in contributions if part is not None]
        if len(owned) < len(contributions):
            regions.append(None)
            continue
        steps = tuple([part.steps for part in owned])
        # Most cores have the same steps.
        if steps not in merged:
            merged[steps] = _merged(steps)
        regions.append(CoreRegion(view.offset + sum([part.start for part in owned]), merged[steps]))
    slices = tuple((axis.stride, splits[axis.dim]) for axis in view.axes if splits[axis.dim] > 1)
    return _unique(CoreView(tuple(regions), partial, slices, _image(view, _touched(shares, slid))), slices)


@functools.lru_cache(maxsize=1 << 13)
def _unique(view: CoreView, _slices: tuple[tuple[int, int], ...]) -> CoreView:
    """The one object for equal views with equal slices: keys of caches are then compared by identity."""
    return view


def _touched(shares: tuple[int, ...], slid: Halos) -> tuple[int, ...]:
    """Positions of memory that a full share of each dim touches."""
    touched = list(shares)
    for dim, window in slid:
        touched[dim] = window.most_accessed(shares[dim])
    return tuple(touched)


def _pieces(extent: int, share: int, slices: int, window: Sliding | None) -> list[tuple[int, int]]:
    """Return for each slice of a dim its first position in memory, and how many it touches."""
    pieces = [(first, min(share, extent - first)) for first in range(0, slices * share, share)]
    return pieces if window is None else [window.accessed(*piece) for piece in pieces]


def _image(view: BufferView, shares: tuple[int, ...]) -> Steps:
    """The steps of a full share of every dim; a dim with one axis has all its positions, beyond its room too."""
    dims = [axis.dim for axis in view.axes]
    steps = []
    for axis in view.axes:
        count = -(-shares[axis.dim] // axis.divisor)
        if dims.count(axis.dim) > 1:
            begin, end = _range(axis, 0, shares[axis.dim] - 1)
            count = end - begin
        steps.append((axis.stride, count))
    return _merged([tuple(step for step in steps if step[1] > 1)])


def _parts(view: BufferView, dim: int, pieces: Sequence[tuple[int, int]]) -> list[CoreRegion | None]:
    """Contribution of each slice of a dim to a region: where it begins, and its steps."""
    axes = [axis for axis in view.axes if axis.dim == dim]
    room = max(axis.divisor * axis.size for axis in axes)
    parts: list[CoreRegion | None] = []
    for first, count in pieces:
        last = min(first + count, room) - 1
        if last < first:
            parts.append(None)
            continue
        ranges = [_range(axis, first, last) for axis in axes]
        start = sum(begin * axis.stride for axis, (begin, _) in zip(axes, ranges, strict=True))
        steps = ((axis.stride, end - begin) for axis, (begin, end) in zip(axes, ranges, strict=True))
        parts.append(CoreRegion(start, tuple(step for step in steps if step[1] > 1)))
    return parts


def _range(axis: Axis, first: int, last: int) -> tuple[int, int]:
    """The positions of an axis, half open, that elements ``first`` to ``last`` of its dim touch.

    Slices follow each other from 0 on: one that begins inside a position comes after one that ends there. So
    one that is let through lies in one position, or is a run of whole ones that does not go beyond the last
    and on from the first unless it has them all.
    """
    begin, end = first // axis.divisor, last // axis.divisor
    if begin != end and (last + 1) % axis.divisor:
        raise ViewError(
            f"elements {first} to {last} of dim {axis.dim} do not fall on its pieces of"
            f" {axis.divisor} x {axis.size}"
        )
    return begin % axis.size, end % axis.size + 1


def _merged(parts: Sequence[Steps]) -> Steps:
    """By falling stride, those that go on where the next one ends as one with it."""
    merged: list[tuple[int, int]] = []
    for stride, count in sorted((step for part in parts for step in part), reverse=True):
        if merged and merged[-1][0] == stride * count:
            count *= merged.pop()[1]
        merged.append((stride, count))
    return tuple(merged)
