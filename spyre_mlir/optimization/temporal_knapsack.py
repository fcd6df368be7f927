# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The sweep over time that finds the cheapest selection: dynamic programming with bounds.

The stops are the overloaded times. At each one the items that arrive are decided one after the other, keep or
spill; then enough bytes must be free. What matters for the future of a partial selection is which live items it
has spilled and which cores it has hit: of two that agree in that the cheaper one stays (a state). Each state
carries a lower bound of all its completions, from Lagrange multipliers: it starts at the bound of the whole
problem and grows by every decision against a reduced cost and by what a stop frees beyond its need. States whose
bound is above the limit end there. At most ``width`` states go on; the lowest bound of those that had to stay
behind says how good the result is at least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from spyre_mlir.optimization.bipartite import Child, most_shared

#: The spilled live items and the hit cores, as bit sets.
Key = tuple[int, int]

#: Spilled items, the last one first.
Link = tuple[int, "Link"] | None


class Item(NamedTuple):
    """A buffer to decide on. ``bit`` is its bit in the set of spilled items, 0 if it is live at no stop.

    It may be spilled only if all of ``after`` are. Spilled it loses ``cost``, and ``extra`` if no other of its
    group is spilled yet. ``hits`` are the bits of its cores and its group; ``closes`` those of which it is the
    last member, and ``required`` those among them that must be hit by then. ``freed_before`` are the bytes that
    have to be free, at the latest, once it is decided.
    """

    number: int
    bit: int
    size: int
    cost: int
    reduced: int
    after: int
    hits: int
    closes: int
    required: int
    group: int
    extra: int
    freed_before: int


class Stop(NamedTuple):
    """An overloaded time: ``gone`` and ``arrivals`` since the one before.

    ``must_free`` are the bytes that spilled items and kept pairs must make up; ``children`` and their parents are
    numbers of items. The multiplier prices what is
    freed beyond ``need``, in which each spilled item counts its size less its entry in ``clipped``.
    """

    gone: Sequence[Item]
    arrivals: Sequence[Item]
    must_free: int
    children: Sequence[Child]
    multiplier: int
    need: int
    clipped: Sequence[tuple[int, int]]


class PartialSelection(NamedTuple):
    """``bound`` is scaled, ``lost`` and ``freed`` are bytes."""

    bound: int
    lost: int
    freed: int
    spilled: Link


class Swept(NamedTuple):
    """The cheapest selection found, or None; ``behind`` is the lowest scaled bound of the states left behind."""

    best: PartialSelection | None
    behind: int | None
    steps: int


def sweep(stops: Sequence[Stop], bound: int, limit: int, width: int) -> Swept:
    """The cheapest selection with a scaled bound of at most ``limit``; exact if nothing was left behind."""
    states: dict[Key, PartialSelection] = {(0, 0): PartialSelection(bound, 0, 0, None)}
    behind: int | None = None
    steps = 0
    for stop in stops:
        if stop.gone:
            states = _without(states, stop.gone)
        for item in stop.arrivals:
            steps += len(states)
            states = _decide(states, item, limit)
            if len(states) > width:
                # The sort is stable and dictionaries keep their order, so equal bounds are cut alike on
                # every machine.
                ranked = sorted(states.items(), key=lambda entry: entry[1].bound)
                behind = min(x for x in (behind, ranked[width][1].bound) if x is not None)
                states = dict(ranked[:width])
        states = _check(states, stop, limit)
    best = min(states.values(), key=lambda state: state.lost, default=None)
    return Swept(best, behind, steps)


def _without(states: dict[Key, PartialSelection], gone: Sequence[Item]) -> dict[Key, PartialSelection]:
    """The states after some items have ended; of those that are equal now the cheaper one."""
    ended = sum(item.bit for item in gone)
    remaining: dict[Key, PartialSelection] = {}
    for (mask, hit), state in states.items():
        leaving = mask & ended
        if leaving:
            freed = sum(item.size for item in gone if item.bit & leaving)
            state = state._replace(freed=state.freed - freed)
        _keep_cheaper(remaining, (mask ^ leaving, hit), state)
    return remaining


def _decide(states: dict[Key, PartialSelection], item: Item, limit: int) -> dict[Key, PartialSelection]:
    """Every state with the item kept and with it spilled."""
    decided: dict[Key, PartialSelection] = {}
    for (mask, hit), state in states.items():
        bound = state.bound - min(item.reduced, 0)
        if bound <= limit and state.freed >= item.freed_before and not item.required & ~hit:
            _keep_cheaper(decided, (mask, hit & ~item.closes), state._replace(bound=bound))
        bound = state.bound + max(item.reduced, 0)
        freed = state.freed + item.size
        if bound <= limit and freed >= item.freed_before and mask & item.after == item.after:
            lost = state.lost + item.cost + (0 if item.group & hit else item.extra)
            spilled = PartialSelection(bound, lost, freed, (item.number, state.spilled))
            _keep_cheaper(decided, (mask | item.bit, (hit | item.hits) & ~item.closes), spilled)
    return decided


def _check(states: dict[Key, PartialSelection], stop: Stop, limit: int) -> dict[Key, PartialSelection]:
    """The states that free enough at the stop, with the price of what they free beyond the need."""
    checked: dict[Key, PartialSelection] = {}
    for key, state in states.items():
        mask = key[0]
        if state.freed + _shared(stop.children, mask) < stop.must_free:
            continue
        if stop.multiplier:
            counted = state.freed - sum(less for bit, less in stop.clipped if mask & bit)
            state = state._replace(bound=state.bound + stop.multiplier * (counted - stop.need))
            if state.bound > limit:
                continue
        checked[key] = state
    return checked


def _shared(children: Sequence[Child], spilled: int) -> int:
    """Bytes that kept children share with kept parents."""
    if not children:
        return 0
    sharing = [
        child._replace(parents=tuple(parent for parent in child.parents if not spilled >> parent & 1))
        for child in children
        if not spilled >> child.item & 1
    ]
    return most_shared(sharing)


def _keep_cheaper(states: dict[Key, PartialSelection], key: Key, state: PartialSelection) -> None:
    known = states.get(key)
    if known is None or (state.lost, state.bound) < (known.lost, known.bound):
        states[key] = state


def spilled_items(spilled: Link) -> list[int]:
    """The items of a link, rising."""
    items = []
    while spilled is not None:
        item, spilled = spilled
        items.append(item)
    return sorted(items)
