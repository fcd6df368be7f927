"""A part of what the cores hold of a buffer in LX: where each of them finds it there. No IR.

A core's LX has its region of a buffer stick behind stick, by the steps of a full share (``ownership.mismatch``). An
operation may touch a part of that. Its address is one number, the same on all cores, so the part has to begin equally
far behind the region's first stick on each of them, and to be no part of it in another way on any.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from spyre_mlir.division.ownership import CoreView, Region, Steps, mismatch

_MISMATCH = "core division mismatch: "


@dataclass(frozen=True)
class Part:
    """``offset`` sticks behind the first one that a core holds; ``image`` is how LX holds the region."""

    offset: int
    image: Steps

    def stride(self, stride: int) -> int:
        """Sticks of LX between two that are ``stride`` elements of the buffer apart; ``ValueError`` if none are."""
        found = _step_of(self.image, stride)
        if found is None:
            raise ValueError(f"no two sticks of {Region(0, self.image)} are {stride} elements apart")
        at, times = found
        return times * _stick_strides(self.image)[at]


def why_apart(held: CoreView, touched: CoreView, *, writes: bool = False) -> str | None:
    """Why the cores cannot touch a buffer, or a part of it, in the LX that holds it so; None if they can.

    Who ``writes`` a part has to write it wherever it is held.
    """
    problem = mismatch(held, touched)
    if problem is None:
        return None
    part = _located(held, touched)
    if not isinstance(part, Part):
        return part or problem
    return _left_out(held, touched) if writes else None


def part_of(held: CoreView, touched: CoreView) -> Part:
    """Where in LX the cores find what they touch; ``ValueError`` where they cannot (``why_apart``)."""
    part = _located(held, touched)
    if not isinstance(part, Part):
        raise ValueError(part or mismatch(held, touched))
    return part


@functools.lru_cache(maxsize=1 << 13)
def _located(held: CoreView, touched: CoreView) -> Part | str | None:
    """Where a part is, or why cores have it at several places; None if they do not have it."""
    if held.partial or touched.partial or len(held.regions) != len(touched.regions):
        return None
    offset = None
    for core, (own, region) in enumerate(zip(held.regions, touched.regions, strict=True)):
        if region is None:
            continue
        if own is None or not _contains(own, region):
            return None
        found = _offset(held.image, region.start - own.start, touched.image)
        if found is None:
            return None
        if offset is not None and found != offset:
            return (
                f"{_MISMATCH}core {core} touches what is {found} sticks behind the first that it holds, but core 0"
                f" {offset}, and an address in LX is the same on all cores"
            )
        offset = found
    return Part(offset or 0, held.image)


def _left_out(held: CoreView, written: CoreView) -> str | None:
    """Why some core that holds what is written does not write it: parts are held more than once."""
    writers: dict[Region | None, int] = {}
    for core, (region, here) in enumerate(zip(held.regions, written.regions, strict=True)):
        first = writers.setdefault(region, core)
        if here != written.regions[first]:
            there = written.regions[first]
            return f"{_MISMATCH}cores {first} and {core} hold the same, but write {there} and {here}"
    return None


def _contains(whole: Region, part: Region) -> bool:
    """Whether all sticks of one region are sticks of the other."""
    reached = _reach(whole.steps, part.start - whole.start, part.steps)
    if reached is None:
        return False
    return all(last < count for (_, last), (_, count) in zip(reached, whole.steps, strict=True))


def _offset(image: Steps, distance: int, touched: Steps) -> int | None:
    """Sticks of LX up to one that is ``distance`` elements of the buffer away; None if ``touched`` is not in the image.

    Where a share goes beyond the room of the buffer, what follows its last stick in LX is not what follows it in the
    buffer, so no position may reach the next one of the step above.
    """
    reached = _reach(image, distance, touched)
    if reached is None:
        return None
    above = [None, *(stride for stride, _ in image)]
    for (_, last), (stride, count), limit in zip(reached, image, above, strict=False):
        if last >= count or (limit is not None and last * stride >= limit):
            return None
    return sum(first * each for (first, _), each in zip(reached, _stick_strides(image), strict=True))


def _reach(steps: Steps, distance: int, touched: Steps) -> list[tuple[int, int]] | None:
    """For each step the positions of the first stick that is touched and of the last; None if it is none of them."""
    if distance < 0:
        return None
    first = []
    for stride, _ in steps:
        position, distance = divmod(distance, stride)
        first.append(position)
    if distance:
        return None
    last = list(first)
    for stride, count in touched:
        found = _step_of(steps, stride)
        if found is None:
            return None
        at, times = found
        last[at] += times * (count - 1)
    return list(zip(first, last, strict=True))


def _step_of(steps: Steps, stride: int) -> tuple[int, int] | None:
    """The largest step of which a stride is a multiple, and how many times it is that."""
    for at, (own, _) in enumerate(steps):
        if stride % own == 0:
            return at, stride // own
    return None


@functools.lru_cache(maxsize=1 << 12)
def _stick_strides(image: Steps) -> tuple[int, ...]:
    """Sticks of LX between neighbours along each step: as many as all smaller ones have."""
    return tuple(_counts(image))


def _counts(image: Steps) -> Iterator[int]:
    for at in range(len(image)):
        sticks = 1
        for _, count in image[at + 1 :]:
            sticks *= count
        yield sticks
