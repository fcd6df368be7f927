# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Subviews of buffers in LX: where each core finds a part of the region that it holds. No IR.

A core's LX has its region of a buffer stick behind stick, by the steps of a full share (``ownership.mismatch``). An
operation may access a subview of that. Its address is one number, the same on all cores, so the subview has to begin
equally far behind the region's first stick on each of them, and its sticks must follow each other alike on all.
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
    """A subview ``offset`` sticks behind the first one that a core holds; ``image`` is how LX holds the region."""

    offset: int
    image: Steps

    def stride(self, stride: int) -> int:
        """Sticks of LX between two that are ``stride`` elements of the buffer apart; ``ValueError`` if none are."""
        step = _step_of(self.image, stride)
        if step is None:
            raise ValueError(f"no two sticks of {CoreRegion(0, self.image)} are {stride} elements apart")
        index, times = step
        return times * _stick_strides(self.image)[index]


@functools.lru_cache(maxsize=1 << 13)
def subview_mismatch(resident: CoreView, accessed: CoreView, *, writes: bool = False) -> str | None:
    """Return why cores cannot access a buffer, or a subview of it, as it is ``resident`` in LX; None if they can.

    An operation that ``writes`` a subview has to write it on every core that holds it.
    """
    # Mostly an operation accesses the whole region.
    reason = mismatch(resident, accessed)
    if reason is None:
        return None
    subview = _located(resident, accessed)
    if not isinstance(subview, Subview):
        return subview or reason
    return _unwritten(resident, accessed) if writes else None


def subview_of(resident: CoreView, accessed: CoreView) -> Subview:
    """Return where in LX the cores find what they access; ``ValueError`` where they cannot (``subview_mismatch``)."""
    subview = _located(resident, accessed)
    if not isinstance(subview, Subview):
        raise ValueError(subview or mismatch(resident, accessed))
    return subview


@functools.lru_cache(maxsize=1 << 13)
def _located(resident: CoreView, accessed: CoreView) -> Subview | str | None:
    """Return where a subview is, or why cores have it at several places; None if they do not have it."""
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
        # One address serves all cores, and idle ones need none.
        if offset is not None and distance != offset:
            return (
                f"{_MISMATCH}core {core} touches what is {distance} sticks behind the first that it holds, but core 0"
                f" {offset}, and an address in LX is the same on all cores"
            )
        offset = distance
    subview = Subview(offset or 0, resident.image)
    return _unaddressable(subview, accessed.image) or subview


def _unaddressable(subview: Subview, accessed: Steps) -> str | None:
    """Return why a design cannot walk a subview: a gap is whole steps of the dim inside it."""
    strides = sorted(subview.stride(stride) for stride, count in accessed if count > 1)
    for inner, outer in itertools.pairwise(strides):
        if outer % inner:
            return f"its steps are {inner} and {outer} sticks of LX, and a design has gaps of whole steps"
    return None


def _unwritten(resident: CoreView, written: CoreView) -> str | None:
    """Why some core that holds what is written does not write it: parts are held more than once."""
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
    """Sticks of LX up to one that is ``distance`` elements of the buffer away; None if they are not in the image.

    Where a share goes beyond the room of the buffer, what follows its last stick in LX is not what follows it in the
    buffer, so no position may reach the next one of the step above.
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
    """For each step the positions of the first stick that is touched and of the last; None if it is none of them."""
    if distance < 0:
        return None
    first = []
    # Steps are by falling stride, so a division leaves to the next what the larger ones do not reach.
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
    """The largest step of which a stride is a multiple, and how many times it is that."""
    for index, (step, _) in enumerate(steps):
        if stride % step == 0:
            return index, stride // step
    return None


@functools.lru_cache(maxsize=1 << 12)
def _stick_strides(image: Steps) -> tuple[int, ...]:
    """Sticks of LX between neighbours along each step: as many as all smaller ones have."""
    return tuple(_counts(image))


def _counts(image: Steps) -> Iterator[int]:
    for index in range(len(image)):
        sticks = 1
        for _, count in image[index + 1 :]:
            sticks *= count
        yield sticks
