"""The division of a copy whose cores get of a buffer what a view says: several the same part if it says so. No IR."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.division.cores import Division
from spyre_mlir.division.ownership import CoreView, core_view, same_owners
from spyre_mlir.division.relayout import distribution_of
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import ViewError

#: A digit of a core id, ``core floordiv step mod count``.
Digit = tuple[int, int]


@dataclass(frozen=True)
class CopyDivision:
    """``copies`` cores get each part. Slices per dim, the copies last if there are several; the digits of core ids.

    The slice of a dim is a number in mixed radix of its digits, the first one fastest.
    """

    splits: tuple[int, ...]
    digits: tuple[tuple[Digit, ...], ...]
    copies: int = 1

    @functools.cached_property
    def division(self) -> Division:
        """The same with what each core has."""
        cores = range(math.prod(self.splits))
        owners = tuple(tuple(_number(core, digits) for digits in self.digits) for core in cores)
        return Division(self.splits, owners)


@functools.lru_cache(maxsize=1 << 13)
def copy_division(space: Space, view: CoreView) -> CopyDivision | None:
    """How a copy of a whole buffer, of ``space``, is divided for its cores to have what ``view`` says.

    None if that are no slices of its dims, not the whole buffer, or if core ids do not count them.
    """
    wanted = distribution_of(space, 0, view)
    if wanted is None or any(own is None for own in wanted.owners):
        return None
    owners = [own for own in wanted.owners if own is not None]
    copies, rest = divmod(len(owners), math.prod(wanted.splits))
    if rest:
        return None
    dims = [_digits(owners, dim, split) for dim, split in enumerate(wanted.splits)]
    left = _left(sorted(digit for digits in dims for digit in digits), len(owners))
    if left is None or math.prod(count for _, count in left) != copies:
        return None
    made = CopyDivision(wanted.splits, tuple(dims))
    if copies > 1:
        made = CopyDivision((*wanted.splits, copies), (*dims, left), copies)
    return made if _gives(space, made, view) else None


def _gives(space: Space, made: CopyDivision, view: CoreView) -> bool:
    """Whether the cores get just what the view says, each of the copies on a core of its own."""
    if len(set(made.division.owners)) != len(made.division.owners):
        return False
    try:
        return same_owners(core_view(space.repeated(made.copies), 0, made.division), view)
    except ViewError:
        return False


def _digits(owners: Sequence[tuple[int, ...]], dim: int, split: int) -> tuple[Digit, ...]:
    """The digit that counts the slices of a dim: they change after so many cores."""
    if split == 1:
        return ()
    step = next((core for core, own in enumerate(owners) if own[dim] != owners[0][dim]), len(owners))
    return ((step, split),)


def _left(used: Sequence[Digit], cores: int) -> tuple[Digit, ...] | None:
    """The digits of a core id that no dim counts, the fastest first; None if digits overlap."""
    left, at = [], 1
    for step, count in (*used, (cores, 1)):
        if step % at:
            return None
        if step > at:
            left.append((at, step // at))
        at = step * count
    return tuple(left)


def _number(core: int, digits: Sequence[Digit]) -> int:
    """What the digits of a core id count."""
    number, weight = 0, 1
    for step, count in digits:
        number += weight * (core // step % count)
        weight *= count
    return number
