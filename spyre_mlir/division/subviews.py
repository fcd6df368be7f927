# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subviews of buffers in LX: the location of a part of the region that each core holds. No IR.

In a core's LX the sticks of its region of a buffer are contiguous, by the steps of a full share
(``ownership.mismatch``). An operation may access a subview of the region. The address of a subview is one number for
all cores, so its offset from the region's first stick and its strides must be the same on all cores.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from spyre_mlir.division.ownership import CoreRegion, CoreView, Steps, mismatch
from spyre_mlir.records import dataclass

_MISMATCH = "core division mismatch: "


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


@functools.lru_cache(maxsize=1 << 13)
def subview_mismatch(resident: CoreView, accessed: CoreView, *, writes: bool = False) -> str | None:
    """Return why cores cannot access a buffer, or a subview, that is ``resident`` in LX; None if they can.

    An operation that ``writes`` a subview has to write it on every core that holds it.
    """
    # In most cases an operation accesses the whole region.
    reason = mismatch(resident, accessed)
    if reason is None:
        return None
    subview = _located(resident, accessed)
    if not isinstance(subview, Subview):
        return subview or reason
    return _unwritten(resident, accessed) if writes else None


def subview_of(resident: CoreView, accessed: CoreView) -> Subview:
    """Return the subview of LX that the cores access; ``ValueError`` if they cannot (``subview_mismatch``)."""
    subview = _located(resident, accessed)
    if not isinstance(subview, Subview):
        raise ValueError(subview or mismatch(resident, accessed))
    return subview


@functools.lru_cache(maxsize=1 << 13)
def _located(resident: CoreView, accessed: CoreView) -> Subview | str | None:
    """Return the subview, or why cores have it at different offsets; None if they do not hold it."""
    if resident.partial or accessed.partial or len(resident.regions) != len(accessed.regions):
        return None
    offset = None
    for core, (whole, region) in enumerate(zip(resident.regions, accessed.regions, strict=True)):
        if region is None:
            continue
        if whole is None or not _contains(whole, region):
            return None
        distance = _offset(resident.image, region.start - whole.start, accessed.image)
        if distance is None:
            return None
        # All cores share one address; idle cores do not need one.
        if offset is not None and distance != offset:
            return (
                f"{_MISMATCH}core {core} touches what is {distance} sticks behind the first that it holds, but core 0"
                f" {offset}, and an address in LX is the same on all cores"
            )
        offset = distance
    subview = Subview(offset or 0, resident.image)
    return _unaddressable(subview, accessed.image) or subview


def _unaddressable(subview: Subview, accessed: Steps) -> str | None:
    """Return why a design cannot address a subview: a gap must be a multiple of the step of the next inner dim."""
    strides = sorted(subview.stride(stride) for stride, count in accessed if count > 1)
    for inner, outer in itertools.pairwise(strides):
        if outer % inner:
            return f"its steps are {inner} and {outer} sticks of LX, and a design has gaps of whole steps"
    return None


def _unwritten(resident: CoreView, written: CoreView) -> str | None:
    """Return why some core holds the written part but does not write it: several cores hold equal parts."""
    writers: dict[CoreRegion | None, int] = {}
    for core, (region, part) in enumerate(zip(resident.regions, written.regions, strict=True)):
        first = writers.setdefault(region, core)
        if part != written.regions[first]:
            there = written.regions[first]
            return f"{_MISMATCH}cores {first} and {core} hold the same, but write {there} and {part}"
    return None


def _contains(whole: CoreRegion, part: CoreRegion) -> bool:
    """Return whether all sticks of one region are sticks of the other."""
    reached = _reach(whole.steps, part.start - whole.start, part.steps)
    if reached is None:
        return False
    return all(last < count for (_, last), (_, count) in zip(reached, whole.steps, strict=True))


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
    return tuple(_counts(image))


def _counts(image: Steps) -> Iterator[int]:
    for index in range(len(image)):
        sticks = 1
        for _, count in image[index + 1 :]:
            sticks *= count
        yield sticks
