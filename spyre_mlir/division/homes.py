"""Where a buffer can be: in device memory, in LX as its writer leaves it, and there again as its readers want it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spyre_mlir.cost.ring import relayout_ns
from spyre_mlir.division.copies import copy_division
from spyre_mlir.division.ownership import CoreView, local_bytes, mismatch
from spyre_mlir.division.relayout import relayout
from spyre_mlir.division.variants import Shared, Variant, Work, left_view, read_view
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


def homes_of(
    works: Sequence[Work],
    variants: Sequence[Sequence[Variant]],
    buffer: Shared,
    capacity: int,
    relayouts: bool,
) -> tuple[Home, ...]:
    """The homes of a buffer, ``capacity`` being the bytes of LX: views of its writer, of any reader of a given one."""
    if buffer.given:
        views = _wanted(works, variants, buffer.accesses, capacity)
        return tuple(Home(view, copied=True) for view in views if _is_a_copy(buffer, view))
    at, operand = buffer.accesses[0]
    views = _left(works[at], operand, variants[at], capacity)
    several = len(buffer.accesses) > 2
    kinds = (True,) if buffer.result else (False, True) if several else (False,)
    found = [Home(view, copied) for view in views for copied in kinds]
    if relayouts and buffer.space is not None:
        reads = [(at, operand) for at, operand in buffer.accesses if operand < len(works[at].space.views) - 1]
        wanted = _wanted(works, [some[:_RELAID] for some in variants], reads, capacity)
        ways = list(_relayouts(buffer.space, views[:_RELAID], wanted))
        found += [Home(*way[:1], copied, *way[1:]) for way in ways for copied in kinds]
    return tuple(found)


def _left(work: Work, operand: int, variants: Sequence[Variant], capacity: int) -> list[CoreView]:
    """The views that a writer leaves."""
    views: dict[CoreView, None] = {}
    for variant in variants:
        view = left_view(work, variant)
        if view is not None and local_bytes(work.space, operand, variant.division) <= capacity:
            views[view] = None
    return list(views)


def _wanted(
    works: Sequence[Work],
    variants: Sequence[Sequence[Variant]],
    accesses: Sequence[tuple[int, int]],
    capacity: int,
) -> list[CoreView]:
    """The views that readers want."""
    views: dict[CoreView, None] = {}
    for at, operand in accesses:
        for variant in variants[at]:
            view = read_view(works[at], operand, variant)
            if view is not None and local_bytes(works[at].space, operand, variant.division) <= capacity:
                views[view] = None
    return list(views)


def _is_a_copy(buffer: Shared, view: CoreView) -> bool:
    """Whether a clone can bring a given buffer to the cores so."""
    if buffer.space is not None:
        return copy_division(buffer.space, view) is not None
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
