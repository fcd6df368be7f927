# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The division of a copy after which cores hold a given view of a buffer; cores may hold equal parts. No IR."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from spyre_mlir.division.cores import Division
from spyre_mlir.division.matching import begins_of
from spyre_mlir.division.ownership import CoreRegion, CoreView, core_view, same_owners
from spyre_mlir.division.relayout import Distribution, distribution_of
from spyre_mlir.layout.sliding_windows import Halos, halo_of
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import ViewError
from spyre_mlir.records import dataclass

#: A digit of a core id, ``core floordiv step mod count``.
Digit = tuple[int, int]


@dataclass(frozen=True)
class CopyDivision:
    """Slices per dim, the digits of core ids that count them, and the number of ``copies`` (cores with each part).

    If ``copies`` > 1, the copies are the last dim. The slice index of a dim is a mixed-radix number of its digits, the
    first digit fastest. With ``halos``, cores also get the surroundings of their slices, which only the ring can do.
    """

    splits: tuple[int, ...]
    digits: tuple[tuple[Digit, ...], ...]
    copies: int = 1
    halos: Halos = ()

    @functools.cached_property
    def division(self) -> Division:
        """Return the division with the slices of each core."""
        cores = range(math.prod(self.splits))
        owners = tuple(tuple(_slice(core, digits) for digits in self.digits) for core in cores)
        return Division(self.splits, owners)


def copy_division(space: Space, view: CoreView) -> CopyDivision | None:
    """Return the division of a copy of a whole buffer, with iteration ``space``, after which the cores have ``view``.

    None if the regions are not slices of the space's dims or not the whole buffer, or if core ids do not count them.
    """
    division = ring_division(space, view)
    return None if division is None or division.halos else division


@functools.lru_cache(maxsize=1 << 13)
def ring_division(space: Space, view: CoreView) -> CopyDivision | None:
    """Return the division of a copy over the ring, whose cores may also have the surroundings of their slices."""
    distribution, halos = distribution_of(space, 0, view), ()
    if distribution is None:
        distribution, halos = _without_halos(space, view)
    if distribution is None or any(slices is None for slices in distribution.owners):
        return None
    owners = [slices for slices in distribution.owners if slices is not None]
    copies, rest = divmod(len(owners), math.prod(distribution.splits))
    # All parts need the same number of copies: digits of core ids cannot express anything else.
    if rest:
        return None
    dims = [_digits(owners, dim, split) for dim, split in enumerate(distribution.splits)]
    remaining = _free_digits(sorted(digit for digits in dims for digit in digits), len(owners))
    if remaining is None or math.prod(count for _, count in remaining) != copies:
        return None
    copy = CopyDivision(distribution.splits, tuple(dims), halos=halos)
    if copies > 1:
        copy = CopyDivision((*distribution.splits, copies), (*dims, remaining), copies, halos)
    return copy if _matches(space, copy, view) else None


def _matches(space: Space, copy: CopyDivision, view: CoreView) -> bool:
    """Return whether the cores get exactly the regions of the view, each of the copies on a different core."""
    # Digits were derived from single cores; the resulting division has to give the whole view.
    if len(set(copy.division.owners)) != len(copy.division.owners):
        return False
    try:
        copied = replace(space, halos=copy.halos).repeated(copy.copies)
        if not copy.halos:
            # The source may be a part of a buffer: readers check where it lies, the copy does not.
            return same_owners(core_view(copied, 0, copy.division), view)
        copied_view = core_view(copied, 1, copy.division)
        # A halo widens the region in LX: readers find rows by the steps of the region that a core holds.
        return same_owners(copied_view, view) and copied_view.image == view.image
    except ViewError:
        return False


def _without_halos(space: Space, view: CoreView) -> tuple[Distribution | None, Halos]:
    """Return the slices in the middle of the regions of a view, and the halos around these slices.

    The first slice has no halo before it, so its end gives the halo after a slice; the begin of the second slice gives
    the halo before it. The caller has to check that the other slices have the same halos and that none is missing.
    """
    regions = [region for region in view.regions if region is not None]
    begins = [_position(space, region.start) for region in regions]
    lasts = [
        _position(space, region.start + sum(stride * (count - 1) for stride, count in region.steps))
        for region in regions
    ]
    if view.partial or len(regions) < len(view.regions) or () in (*begins, *lasts):
        return None, ()
    halos, starts = [], [sorted(set(starts_of_dim)) for starts_of_dim in zip(*begins, strict=True)]
    for dim, starts_of_dim in enumerate(starts):
        share = -(-space.units[dim] // len(starts_of_dim))
        if len(starts_of_dim) == 1 or space.granules[dim] > 1 or starts_of_dim[0]:
            continue
        behind = max(last[dim] for begin, last in zip(begins, lasts, strict=True) if not begin[dim])
        before, after = share - starts_of_dim[1], behind + 1 - share
        if min(before, after) >= 0 and max(before, after) > 0:
            halos.append((dim, halo_of(before, after, space.units[dim])))
    owners = tuple(tuple(map(list.index, starts, begin)) for begin in begins)
    splits = tuple(map(len, starts))
    return (Distribution(splits, owners) if halos else None), tuple(halos)


def _position(space: Space, element: int) -> tuple[int, ...]:
    """Return the position of an element of the copy along each dim; () if it is before the first element."""
    (begin,) = begins_of(space.views[1], len(space.sizes), [CoreRegion(element, ())])
    return begin or ()


def _digits(owners: Sequence[tuple[int, ...]], dim: int, split: int) -> tuple[Digit, ...]:
    """Return the digit that counts the slices of a dim; its step is the number of cores until the slice changes."""
    if split == 1:
        return ()
    step = next((core for core, slices in enumerate(owners) if slices[dim] != owners[0][dim]), len(owners))
    return ((step, split),)


def _free_digits(used: Sequence[Digit], cores: int) -> tuple[Digit, ...] | None:
    """Return the digits of a core id that no dim uses, the fastest first; None if digits overlap."""
    digits, weight = [], 1
    for step, count in (*used, (cores, 1)):
        # Two dims would use the same digit.
        if step % weight:
            return None
        if step > weight:
            digits.append((weight, step // weight))
        weight = step * count
    return tuple(digits)


def _slice(core: int, digits: Sequence[Digit]) -> int:
    """Return the slice index that the digits of a core id give."""
    number, weight = 0, 1
    for step, count in digits:
        number += weight * (core // step % count)
        weight *= count
    return number
