"""Where a buffer can be: in device memory, in LX as its writer leaves it, and there again as its readers want it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spyre_mlir.cost.ring import relayout_ns
from spyre_mlir.division.copies import copy_division
from spyre_mlir.division.ownership import CoreView, local_bytes, mismatch
from spyre_mlir.division.relayout import relayout
from spyre_mlir.division.variants import Variant, Work, left_view, read_view
from spyre_mlir.layout.space import Space

#: How many views of a writer, and of each reader, a relayout is thought of: the first ones are the best by themselves.
_RELAID = 4


@dataclass(frozen=True)
class Home:
    """What each core has of a buffer on chip, and whether a copy of it is in device memory, too.

    ``relaid``: what the cores get of it over the ring, for readers that want it so, in ``relayout_ns``.
    """

    view: CoreView
    copied: bool
    relaid: CoreView | None = None
    relayout_ns: float = 0.0

    def serves(self, view: CoreView | None) -> bool:
        """Whether cores that want this view find it on chip."""
        return _finds(self.view, view) or _finds(self.relaid, view)

    def relays(self, view: CoreView | None) -> bool:
        """Whether they find it only where the ring has carried it."""
        return _finds(self.relaid, view) and not _finds(self.view, view)


def _finds(have: CoreView | None, view: CoreView | None) -> bool:
    return have is not None and view is not None and mismatch(have, view) is None


@dataclass(frozen=True)
class Kept:
    """Whether the host gives a buffer or reads it, and the space of a copy of it; None if the ring cannot copy it."""

    given: bool
    result: bool
    space: Space | None


@dataclass(frozen=True)
class Touch:
    """An operand of a work, which has some variants, that writes a buffer or reads it."""

    work: Work
    operand: int
    writes: bool
    variants: tuple[Variant, ...]

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """Touches are keys of caches; variants make them long."""
        return hash((self.work, self.operand, self.writes, self.variants))

    def view(self, variant: Variant) -> CoreView | None:
        """What the cores have of the buffer, or want of it; None if that is no region of it."""
        if self.writes:
            return left_view(self.work, variant)
        return read_view(self.work, self.operand, variant)

    def fitting(self, capacity: int, most: int | None = None) -> Iterator[CoreView]:
        """The views that have room in LX."""
        for variant in self.variants[:most]:
            view = self.view(variant)
            if view is not None and local_bytes(self.work.space, self.operand, variant.division) <= capacity:
                yield view


@functools.lru_cache(maxsize=1 << 12)
def homes_of(
    touches: tuple[Touch, ...], buffer: Kept, capacity: int, relayouts: bool
) -> tuple[Home | None, ...]:
    """The homes of a buffer, device memory first, ``capacity`` being the bytes of LX.

    In LX it is as its writer leaves it, or, if it is given, as any reader wants it; then also where the ring carries
    it. Equal buffers of a program have the same homes, which are the same object.
    """
    if buffer.given:
        views = dict.fromkeys(view for touch in touches for view in touch.fitting(capacity))
        return (None, *(Home(view, copied=True) for view in views if _is_a_copy(buffer.space, view)))
    left = list(dict.fromkeys(touches[0].fitting(capacity)))
    kinds = (True,) if buffer.result else (False, True) if len(touches) > 2 else (False,)
    able = {view: [way for way in kinds if not way or _is_a_copy(buffer.space, view)] for view in left}
    found = [Home(view, copied) for view in left for copied in able[view]]
    if relayouts and buffer.space is not None:
        reads = (touch for touch in touches if not touch.writes)
        wanted = dict.fromkeys(view for touch in reads for view in touch.fitting(capacity, _RELAID))
        ways = list(_relayouts(buffer.space, left[:_RELAID], list(wanted)))
        found += [Home(*way[:1], copied, *way[1:]) for way in ways for copied in able[way[0]]]
    return (None, *found)


def _is_a_copy(space: Space | None, view: CoreView) -> bool:
    """Whether a clone can take a buffer from device memory to the cores so, or back: not from some of them alone."""
    if space is not None:
        return copy_division(space, view) is not None
    return len(set(view.regions)) == len(view.regions)


def _relayouts(
    space: Space, left: Sequence[CoreView], wanted: Sequence[CoreView]
) -> Iterator[tuple[CoreView, CoreView, float]]:
    """From which view to which the ring can carry a buffer, and how long that takes."""
    for target in wanted:
        made = copy_division(space, target)
        if made is None:
            continue
        whole = space.repeated(made.copies)
        for source in left:
            moved = None if mismatch(source, target) is None else relayout(whole, source, made.division)
            if moved is not None:
                yield source, target, relayout_ns(moved)
