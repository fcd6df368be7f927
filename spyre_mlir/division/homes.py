"""Where a buffer can be: in device memory, in LX as its writer leaves it, and there again as its readers want it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spyre_mlir.cost.model import operation_cost
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.ring import relayout_ns
from spyre_mlir.division.copies import copy_division
from spyre_mlir.division.ownership import CoreView, local_bytes, mismatch
from spyre_mlir.division.parts import why_apart
from spyre_mlir.division.relayout import relayout
from spyre_mlir.division.variants import Variant, Work, left_view, read_view
from spyre_mlir.layout.space import Space

#: How many views of a writer, and of each reader, a relayout is thought of: the first ones are the best by themselves.
_RELAID = 4


@dataclass(frozen=True)
class Home:
    """What each core has of a buffer on chip, and whether a copy of it is in device memory, too.

    A clone makes the copy in ``copy_ns``, or brings what is given. ``relaid``: what the cores get of it over the ring,
    for readers that want it so, in ``relayout_ns``.
    """

    view: CoreView
    copied: bool
    copy_ns: float = 0.0
    relaid: CoreView | None = None
    relayout_ns: float = 0.0

    def serves(self, view: CoreView | None) -> bool:
        """Whether cores that want this view find it on chip."""
        return _finds(self.view, view) or _finds(self.relaid, view)

    def takes(self, view: CoreView | None) -> bool:
        """Whether cores that have the buffer so, or write a part of it, leave that where it is on chip."""
        return view is not None and (view == self.view or why_apart(self.view, view, writes=True) is None)

    def relays(self, view: CoreView | None) -> bool:
        """Whether they find it only where the ring has carried it."""
        return _finds(self.relaid, view) and not _finds(self.view, view)


def _finds(have: CoreView | None, view: CoreView | None) -> bool:
    return have is not None and view is not None and why_apart(have, view) is None


@dataclass(frozen=True)
class Kept:
    """Whether the host gives a buffer or reads it, and the space of a copy of it; None if the ring cannot copy it.

    ``holder`` is the number of the touch that says how LX holds it.
    """

    given: bool
    result: bool
    space: Space | None
    holder: int = 0


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

    In LX it is as its holder has it, its writer if one operation makes it, or, if it is given, as any reader wants
    it; then also where the ring carries it. Equal buffers of a program have the same homes, which are the same object.
    """
    if buffer.given:
        views = dict.fromkeys(view for touch in touches for view in touch.fitting(capacity))
        return (None, *(home for view in views for home in _copied(buffer, view)))
    left = list(dict.fromkeys(touches[buffer.holder].fitting(capacity)))
    here = {view: _left_at(buffer, view, len(touches) > 2) for view in left}
    found = [home for homes in here.values() for home in homes]
    if relayouts and buffer.space is not None:
        reads = (touch for touch in touches if not touch.writes)
        wanted = dict.fromkeys(view for touch in reads for view in touch.fitting(capacity, _RELAID))
        for source, target, nanoseconds in _relayouts(buffer.space, left[:_RELAID], list(wanted)):
            found += [replace(home, relaid=target, relayout_ns=nanoseconds) for home in here[source]]
    return (None, *found)


def _left_at(buffer: Kept, view: CoreView, several: bool) -> list[Home]:
    """As its writer leaves it: on chip alone unless the host reads it, and with a copy if some of ``several`` may."""
    alone = [] if buffer.result else [Home(view, copied=False)]
    return [*alone, *_copied(buffer, view)] if buffer.result or several else alone


def _copied(buffer: Kept, view: CoreView) -> list[Home]:
    """With a clone from device memory if it is given, else to there; [] if no clone has cores with such parts.

    So it is where only the finishing cores of a split reduction hold any.
    """
    made = None if buffer.space is None else copy_division(buffer.space, view)
    if buffer.space is None or made is None:
        return []
    space, in_lx = buffer.space.repeated(made.copies), frozenset({1 if buffer.given else 0})
    clone = operation_work("identity", space, made.division, in_lx)
    return [Home(view, copied=True, copy_ns=operation_cost(clone).total_ns)]


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
