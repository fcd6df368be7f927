# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of a buffer that each core owns under a division, in a form comparable between operations.

Operations access a buffer through different dims, so a view uses the buffer's coordinates: for each core the begin
of its part and the extent along each device dim. Dims that continue each other are merged, so equal parts have equal
representations, whatever the dims of the operation.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.division.cores import Division
from spyre_mlir.division.slices import shares_of
from spyre_mlir.layout.space import Halos, Space
from spyre_mlir.layout.view import Axis, BufferView, ViewError
from spyre_mlir.records import Statement, dataclass, hash_once

#: Steps along device dims, outermost first: (stride in elements, positions).
Steps = tuple[tuple[int, int], ...]


class CoreRegion(NamedTuple):
    """The sticks at ``start + sum of position_k * stride_k``, each position below its count.

    For a division, numbers are in elements of the buffer, and ``steps`` are by falling stride, without counts of 1; a
    step that continues the next step is merged with it. For a design, numbers are in sticks from the start address of
    the core, with a step for each dim of the operand, innermost first.
    """

    start: int
    steps: Steps

    @property
    def counts(self) -> tuple[int, ...]:
        """The positions along each step."""
        return tuple(count for _, count in self.steps)

    @property
    def span(self) -> int:
        """The distance from the first to the last position, both included."""
        return 1 + sum((count - 1) * stride for stride, count in self.steps)

    def view(self, array: NDArray[Any], start: int) -> NDArray[Any]:
        """Return the region as a view of an array whose last axis has one entry per stick, from ``start`` on."""
        first, unit = (start + self.start) * array.itemsize, array.itemsize
        # The stride of a single position may exceed all memory, but it is never used.
        strides = (stride * unit if count > 1 else 0 for stride, count in self.steps)
        shape = (*array.shape[:-1], *self.counts)
        return np.ndarray(shape, array.dtype, array, first, (*array.strides[:-1], *strides))

    def positions(self, start: int) -> NDArray[np.int64]:
        """Return each position of the region, from ``start`` on."""
        found = np.full(1, start + self.start, np.int64)
        for stride, count in self.steps:
            found = np.add.outer(found, np.arange(count, dtype=np.int64) * stride).ravel()
        return found

    def __str__(self) -> str:
        if not self.steps:
            return f"one stick at element {self.start}"
        counts = " x ".join(str(count) for _, count in self.steps)
        return f"{counts} sticks {' x '.join(str(stride) for stride, _ in self.steps)} elements apart from {self.start}"


@dataclass(frozen=True)
class CoreView:
    """The region of a buffer that each core owns; None for a core whose slice consists only of padding.

    ``partial`` says that the cores hold partial sums. ``slices`` lists the device dims that are sliced, as
    (stride in elements, slices); regions follow from it, so it is not compared. ``image`` is the layout of a region in
    LX: the steps of a full share, without the elements between them in the buffer.
    """

    regions: tuple[CoreRegion | None, ...]
    partial: bool
    slices: tuple[tuple[int, int], ...] = field(compare=False)
    image: Steps

    __hash__ = hash_once

    @property
    def cores(self) -> int:
        """The number of cores."""
        return len(self.regions)

    @property
    def sliced(self) -> str:
        """The slices of the device dims, as text."""
        parts = [f"{slices} slices along stride {stride}" for stride, slices in self.slices]
        return " and ".join(parts) or "not sliced"


@functools.lru_cache(maxsize=1 << 12)
def core_view(space: Space, operand: int, division: Division) -> CoreView:
    """Return the part of an operand's buffer that each core of a division owns: whole sticks, padding included.

    A core owns the part that it reads or writes: every core owns a buffer without a split dim (broadcast). The output
    is ``partial`` if the division splits a reduction dim. Raises ``ViewError`` if a dim lies in several axes and the
    slices do not fall on their boundaries.
    """
    # Cores hold whole sticks, so shares count the padding.
    elements = division.slice_elements(space.units, space.granules)
    reduced_split = any(division.splits[dim] > 1 for dim in space.reduced)
    partial = reduced_split and operand == len(space.views) - 1
    view, slid = space.footprint(operand), space.slid(operand)
    return _core_view(view, space.padded, elements, division.splits, division.owners, partial, slid)


@functools.lru_cache(maxsize=1 << 12)
def local_bytes(space: Space, operand: int, division: Division) -> int:
    """Return the bytes of an operand in the LX of each core: whole sticks of a full share.

    All cores run one program with one set of strides, so a smaller last slice needs as many bytes.
    """
    return share_bytes(space, operand, division.slice_elements(space.units, space.granules))


def slice_elements(space: Space, splits: Sequence[Any]) -> tuple[Any, ...]:
    """Return the elements of the largest slice of each dim, padding included; ``splits`` may be arrays."""
    return tuple(map(operator.mul, shares_of(space.units, splits), space.granules))


def share_bytes(space: Space, operand: int, shares: Sequence[Any]) -> Any:
    """Return the bytes of an operand in a slice of ``shares`` elements of each dim: whole sticks."""
    view, sticks = space.views[operand], 1
    accessed = space.accessed(operand, shares)
    for dim in space.present[operand]:
        sticks *= accessed[dim] // view.stick_elements(dim)
    return sticks * space.target.stick_bytes


def same_owners(one: CoreView, other: CoreView) -> bool:
    """Return whether each core owns the same part of the buffer in both views."""
    return one.regions == other.regions


class Mismatch(Statement, title="core division mismatch"):
    """Why the cores of an operation cannot access a buffer as it is distributed over their LX."""


class PartialSums(Mismatch, sentence="the writer leaves partial sums on its cores, not the final values"):
    """The writer's division splits a reduction."""


class CoreCounts(
    Mismatch,
    sentence="the writer runs on {writer.cores} cores ({writer.sliced}),"
    " the reader on {reader.cores} ({reader.sliced})",
):
    """Writer and reader run on different numbers of cores."""

    writer: CoreView
    reader: CoreView


class OtherRegion(Mismatch):
    """A core reads a region that it did not write."""

    core: int
    writer: CoreView
    reader: CoreView

    @property
    def detail(self) -> str:
        written, read = (
            f"{view.regions[self.core] or 'nothing'} ({view.sliced})" for view in (self.writer, self.reader)
        )
        return f"core {self.core} writes {written}, but reads {read}"


class OtherImage(Mismatch, sentence="each core stores {stored}, but the reader expects {read}"):
    """The reader expects the sticks of a region at other addresses than the writer."""

    stored: CoreRegion
    read: CoreRegion


class UnequalCopies(
    Mismatch, sentence="cores {first} and {core} hold the same data, but write {there} and {part}"
):
    """Two cores hold equal parts of a buffer, but write different parts."""

    first: int
    core: int
    there: CoreRegion | None
    part: CoreRegion | None


class UnequalOffsets(
    Mismatch,
    sentence="core {core} accesses its data at an offset of {offset} sticks, but core 0 at {first}, and an address in"
    " LX is the same on all cores",
):
    """Two cores access parts at different offsets, in sticks of LX."""

    core: int
    offset: int
    first: int


class StepGap(
    Mismatch,
    title="",
    sentence="its steps are {inner} and {outer} sticks of LX, and a design has gaps of whole steps",
):
    """A step of the accessed part is not a multiple of the next inner step; both are in sticks of LX."""

    inner: int
    outer: int


def mismatch(writer: CoreView, reader: CoreView) -> Mismatch | None:
    """Return why a reader cannot read a buffer in LX as the writer's cores left it; None if it can."""
    return _for_views(_mismatch(writer, reader), writer, reader)


def _for_views(reason: Mismatch | None, writer: CoreView, reader: CoreView) -> Mismatch | None:
    """Return the reason with the given views: a cached one may have equal views that are sliced along other dims."""
    if not isinstance(reason, (CoreCounts, OtherRegion)):
        return reason
    if reason.writer is writer and reason.reader is reader:
        return reason
    return dataclasses.replace(reason, writer=writer, reader=reader)


@functools.lru_cache(maxsize=1 << 13)
def _mismatch(writer: CoreView, reader: CoreView) -> Mismatch | None:
    """Return why a reader cannot read a buffer in LX as the writer's cores left it; None if it can.

    In LX the sticks of a region are contiguous, by the steps of a full share: the stick at ``sum of position_k *
    stride_k`` elements after the first stick has the index ``sum of position_k * (product of the counts of all
    smaller strides)``. The index depends only on the image (merging two steps keeps it), so with equal regions and
    images reader and writer find each stick at the same address. This holds also on a core with a smaller last slice,
    whose positions are a subset of a full share. Equal regions have equal images unless an operation exceeds the
    buffer's extent. No index depends on the count of the largest stride, so a reader may read fewer positions of the
    largest stride: the writer's padding may extend beyond the iteration space of the reader.
    """
    if writer.partial:
        return PartialSums()
    if len(writer.regions) != len(reader.regions):
        return CoreCounts(writer, reader)
    for core, (written, read) in enumerate(zip(writer.regions, reader.regions, strict=True)):
        # A core reads the region that it wrote, or its first positions along the outermost step.
        holds = written is read
        if written is not None and read is not None:
            holds = written.start == read.start and _leads(written.steps, read.steps)
        if not holds:
            return OtherRegion(core, writer, reader)
    if not _leads(writer.image, reader.image):
        return OtherImage(CoreRegion(0, writer.image), CoreRegion(0, reader.image))
    return None


def _leads(whole: Steps, part: Steps) -> bool:
    """Return whether ``part`` is all of ``whole``, or fewer positions of its outermost step."""
    if not whole or part == whole:
        return part == whole
    # A count of 1 is not a step, so a reader of one outermost position has only the inner steps.
    (stride, count), *inner = whole
    has_outermost = bool(part) and part[0][0] == stride and part[0][1] <= count
    return list(part[1:] if has_outermost else part) == inner


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
    """Return the view of slices of ``shares`` elements per dim; each dim has ``padded`` elements.

    ``view`` has the positions in memory. A slice of a dim in ``slid`` also accesses positions of its neighbours.
    """
    dims = sorted({axis.dim for axis in view.axes})
    # The contribution of each slice of each dim to a region: the begin and the steps.
    parts_of_dim: dict[int, list[CoreRegion | None]] = {dim: [] for dim in dims}
    accessed = list(shares)
    windows = dict(slid)
    for dim in dims:
        axes = [axis for axis in view.axes if axis.dim == dim]
        room, window = max(axis.divisor * axis.size for axis in axes), windows.get(dim)
        for begin in range(0, splits[dim] * shares[dim], shares[dim]):
            first, count = begin, min(shares[dim], padded[dim] - begin)
            if window is not None:
                first, count = window.accessed(first, count)
            last = min(first + count, room) - 1
            if last < first:
                parts_of_dim[dim].append(None)
                continue
            ranges = [_range(axis, first, last) for axis in axes]
            start = sum(low * axis.stride for axis, (low, _) in zip(axes, ranges, strict=True))
            steps = ((axis.stride, high - low) for axis, (low, high) in zip(axes, ranges, strict=True))
            parts_of_dim[dim].append(CoreRegion(start, tuple(step for step in steps if step[1] > 1)))
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
    # The image has a full share of every dim; a dim with one axis has all positions, even beyond its extent.
    for dim, window in slid:
        accessed[dim] = window.most_accessed(shares[dim])
    counts = []
    for axis in view.axes:
        count = -(-accessed[axis.dim] // axis.divisor)
        if sum(other.dim == axis.dim for other in view.axes) > 1:
            begin, end = _range(axis, 0, accessed[axis.dim] - 1)
            count = end - begin
        counts.append((axis.stride, count))
    image = _merged([tuple(step for step in counts if step[1] > 1)])
    return _unique(CoreView(tuple(regions), partial, slices, image), slices)


@functools.lru_cache(maxsize=1 << 13)
def _unique(view: CoreView, _slices: tuple[tuple[int, int], ...]) -> CoreView:
    """Return one object for all equal views with equal slices, so that cache keys are compared by identity."""
    return view


def _range(axis: Axis[int], first: int, last: int) -> tuple[int, int]:
    """Return the half-open range of positions of an axis that elements ``first`` to ``last`` of its dim access.

    Slices follow each other from 0 on: a slice that begins inside a position follows a slice that ends there. So an
    accepted slice lies within one position, or is a run of whole positions that does not wrap from the last position
    to the first unless it has all of them.
    """
    begin, end = first // axis.divisor, last // axis.divisor
    if begin != end and (last + 1) % axis.divisor:
        raise ViewError(
            f"elements {first} to {last} of dim {axis.dim} do not fall on its pieces of"
            f" {axis.divisor} x {axis.size}"
        )
    return begin % axis.size, end % axis.size + 1


def _merged(parts: Sequence[Steps]) -> Steps:
    """Return the steps by falling stride; a step that continues the next step is merged with it."""
    merged: list[tuple[int, int]] = []
    for stride, count in sorted((step for part in parts for step in part), reverse=True):
        if merged and merged[-1][0] == stride * count:
            count *= merged.pop()[1]
        merged.append((stride, count))
    return tuple(merged)


@dataclass(frozen=True)
class Subview:
    """A subview ``offset`` sticks after the region's first stick; ``image`` is the layout of the region in LX."""

    offset: int
    image: Steps

    def stride(self, stride: int) -> int:
        """Return the stride in LX sticks for a ``stride`` in buffer elements; ``ValueError`` if there is none."""
        step = _step_of(self.image, stride)
        if step is None:
            raise ValueError(f"no two sticks of {CoreRegion(0, self.image)} are {stride} elements apart")
        index, times = step
        return times * _stick_strides(self.image)[index]


def subview_mismatch(resident: CoreView, accessed: CoreView, *, writes: bool = False) -> Mismatch | None:
    """Return why cores cannot access a buffer, or a subview, that is ``resident`` in LX; None if they can.

    An operation that ``writes`` a subview has to write it on every core that holds it.
    """
    return _for_views(_subview_mismatch(resident, accessed, writes), resident, accessed)


def is_accessible(resident: CoreView, accessed: CoreView, *, writes: bool = False) -> bool:
    """Return whether ``subview_mismatch`` returns None."""
    return _subview_mismatch(resident, accessed, writes) is None


@functools.lru_cache(maxsize=1 << 14)
def _subview_mismatch(resident: CoreView, accessed: CoreView, writes: bool) -> Mismatch | None:
    """Return what ``subview_mismatch`` returns, for views that are compared by their regions alone."""
    # In most cases an operation accesses the whole region.
    reason = _mismatch(resident, accessed)
    if reason is None:
        return None
    subview = _located(resident, accessed)
    if not isinstance(subview, Subview):
        return subview or reason
    # Several cores may hold equal parts, and each of these cores has to write its part.
    writers: dict[CoreRegion | None, int] = {}
    for core, (region, part) in enumerate(zip(resident.regions, accessed.regions, strict=True)):
        first = writers.setdefault(region, core)
        if writes and part != accessed.regions[first]:
            return UnequalCopies(first, core, accessed.regions[first], part)
    return None


def subview_of(resident: CoreView, accessed: CoreView) -> Subview:
    """Return the subview of LX that the cores access; ``ValueError`` if they cannot (``subview_mismatch``)."""
    subview = _located(resident, accessed)
    if not isinstance(subview, Subview):
        raise ValueError(subview or mismatch(resident, accessed))
    return subview


@functools.lru_cache(maxsize=1 << 13)
def _located(resident: CoreView, accessed: CoreView) -> Subview | Mismatch | None:
    """Return the subview, or why cores have it at different offsets; None if they do not hold it."""
    if resident.partial or accessed.partial or len(resident.regions) != len(accessed.regions):
        return None
    offset = None
    for core, (whole, region) in enumerate(zip(resident.regions, accessed.regions, strict=True)):
        if region is None:
            continue
        if whole is None:
            return None
        # All sticks of the region have to be sticks of the region that the core holds.
        reached = _reach(whole.steps, region.start - whole.start, region.steps)
        counts = [count for _, count in whole.steps]
        if reached is None or any(last >= count for (_, last), count in zip(reached, counts, strict=True)):
            return None
        distance = _offset(resident.image, region.start - whole.start, accessed.image)
        if distance is None:
            return None
        # All cores share one address; idle cores do not need one.
        if offset is not None and distance != offset:
            return UnequalOffsets(core, distance, offset)
        offset = distance
    subview = Subview(offset or 0, resident.image)
    # A design has gaps of whole steps: each step must be a multiple of the next inner step.
    strides = sorted(subview.stride(stride) for stride, count in accessed.image if count > 1)
    for inner, outer in itertools.pairwise(strides):
        if outer % inner:
            return StepGap(inner, outer)
    return subview


def _offset(image: Steps, distance: int, accessed: Steps) -> int | None:
    """Return the offset in LX sticks of ``distance`` elements of the buffer; None if it is not in the image.

    If a share exceeds the buffer's extent, the successors of its last stick in LX and in the buffer differ, so no
    position may reach the next position of the next larger step.
    """
    reached = _reach(image, distance, accessed)
    if reached is None:
        return None
    above = [None, *(stride for stride, _ in image)]
    for (_, last), (stride, count), limit in zip(reached, image, above, strict=False):
        if last >= count or (limit is not None and last * stride >= limit):
            return None
    return sum(first * sticks for (first, _), sticks in zip(reached, _stick_strides(image), strict=True))


def _reach(steps: Steps, distance: int, accessed: Steps) -> list[tuple[int, int]] | None:
    """Return for each step the positions of the first and the last accessed stick; None if not on the steps."""
    if distance < 0:
        return None
    first = []
    # Steps are by falling stride, so the remainder of a division belongs to the smaller steps.
    for stride, _ in steps:
        position, distance = divmod(distance, stride)
        first.append(position)
    if distance:
        return None
    last = list(first)
    for stride, count in accessed:
        step = _step_of(steps, stride)
        if step is None:
            return None
        index, times = step
        last[index] += times * (count - 1)
    return list(zip(first, last, strict=True))


def _step_of(steps: Steps, stride: int) -> tuple[int, int] | None:
    """Return the index of the largest step that divides a stride, and the quotient; None if no step does."""
    for index, (step, _) in enumerate(steps):
        if stride % step == 0:
            return index, stride // step
    return None


@functools.lru_cache(maxsize=1 << 12)
def _stick_strides(image: Steps) -> tuple[int, ...]:
    """Return the LX sticks between neighbours along each step: the product of the counts of all smaller steps."""
    counts = [count for _, count in image]
    return tuple(math.prod(counts[index + 1 :]) for index in range(len(counts)))
