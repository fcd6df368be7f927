"""Which buffers to keep in a memory that cannot hold all of them, addresses ignored.

A selection keeps some buffers and spills the others; at every time the load of the kept ones (in-place pairs
shared) is at most the capacity. The least savings that a selection loses are a lower bound for every plan with
one address per buffer. Buffers that are live at no overloaded time are kept.

Where addresses are the problem, cores say so: a core is a set of buffers that cannot all be kept, whatever else
is spilled. Selecting, packing, and selecting again with the core of what could not be packed ends with the
optimum (logic-based Benders decomposition; Hooker and Ottosson, 2003).

Known as the temporal knapsack problem (Bartlett et al., 2005). The search is in ``selection_search.py``, the
bounds that guide it in ``lagrange.py``; here the problem is made small. Times without an end before the next
start are no stops. And if i lives whenever j does, is no smaller, saves no more and is in no in-place pair, then i is
spilled before j is: j could have its address.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.scratchpad.instance import Array, Instance
from spyre_mlir.scratchpad.lagrange import Multipliers, Rows, multipliers
from spyre_mlir.scratchpad.selection_branching import branch
from spyre_mlir.scratchpad.selection_search import Item, Stop, numbers, sweep
from spyre_mlir.scratchpad.sharing import Child, covers, most_shared

#: Entries of the covering problem that the linear program has; of more, only the worst of several stops.
_MOST_ENTRIES = 1 << 18

#: More candidates than this are not compared pair by pair.
_MOST_COMPARED = 2000

#: Rows times items up to which there is branch and bound; the steps that a node counts for, and how many cells for
#: one more.
_MOST_BRANCHED, _STEPS_OF_NODE, _CELLS_OF_STEP = 1 << 19, 50, 500

#: States of the first sweep, and the factor from one sweep to the next.
_FIRST_WIDTH, _WIDER = 16, 8


@dataclass(frozen=True, eq=False)
class Group:
    """Members that lose ``extra`` bytes more, once, if any of them is spilled."""

    members: tuple[int, ...]
    extra: int


@dataclass(frozen=True, eq=False)
class Selection:
    """``kept`` says per buffer whether it stays; it is None if nothing that loses less than ``upper`` was found.

    ``lost`` are the bytes of savings of the spilled buffers (``upper`` if there is none). No selection that
    loses less than ``upper`` loses less than ``bound``. ``steps`` counts states looked at.
    """

    kept: NDArray[np.bool_] | None
    lost: int
    bound: int
    steps: int

    @property
    def exact(self) -> bool:
        """Whether no selection loses less."""
        return self.bound >= self.lost


def select(
    instance: Instance,
    capacity: int,
    *,
    upper: int | None = None,
    cores: Sequence[Collection[int]] = (),
    groups: Sequence[Group] = (),
    budget: int = 200_000,
) -> Selection:
    """The selection that loses least, below ``upper`` bytes and within about ``budget`` steps of search.

    All savings of ``instance`` are positive. No core is kept whole. ``upper`` is what is known already: by
    default one more than the loss of everything.
    """
    limit = int(instance.savings.sum()) + sum(group.extra for group in groups) + 1 if upper is None else upper
    overloaded = bool((instance.loads > capacity).any())
    if not overloaded and not cores:
        everything = np.ones(len(instance), bool)
        return Selection(everything, 0, 0, 0) if limit > 0 else Selection(None, limit, limit, 0)
    return _Problem(instance, capacity, cores, groups).solve(limit, budget)


class _Problem:
    """The covering problem of an instance: which candidates to spill.

    Candidates are numbered by rising index; ``first`` and ``last`` are the stops that each one is live at, the
    last one excluded. One that is live at no stop, but in a core, arrives at the stop that comes next, if need be
    at one behind the last.
    """

    def __init__(
        self, instance: Instance, capacity: int, cores: Sequence[Collection[int]], groups: Sequence[Group]
    ) -> None:
        self.instance, self.capacity = instance, capacity
        self.at = _stops(instance, capacity)
        self.times, self.loads = instance.times[self.at], instance.loads[self.at]
        first = np.searchsorted(self.times, instance.starts)
        last = np.searchsorted(self.times, instance.ends, side="right")
        chosen = last > first
        chosen[[member for core in cores for member in core]] = True
        self.candidates = np.flatnonzero(chosen)
        self.first, self.last = first[self.candidates], last[self.candidates]
        self.sizes = instance.sizes[self.candidates]
        self.savings = instance.savings[self.candidates]
        self.number = {int(index): number for number, index in enumerate(self.candidates)}
        self.cores = [[self.number[member] for member in core] for core in cores]
        self.groups = [
            Group(
                tuple(self.number[member] for member in group.members if member in self.number), group.extra
            )
            for group in groups
        ]
        self.excess = self.loads - capacity
        self.children = [self._children_at(stop) for stop in range(len(self.times))]
        self.needs = self.excess.copy()
        self.covers: dict[int, dict[int, int]] = {}
        self.second_covers: dict[int, tuple[int, dict[int, int]]] = {}
        for stop, children in enumerate(self.children):
            if children:
                self._cover(stop, children)

    def solve(self, upper: int, budget: int) -> Selection:
        """A narrow sweep; then branch and bound where the rows are few; then wider sweeps, until one is exact."""
        # Losses are sums of savings: they differ by at least the greatest common divisor.
        unit = math.gcd(*self.savings.tolist(), *(group.extra for group in self.groups))
        rows = self._rows()
        found = multipliers(rows)
        stops = self._stops(found)
        kept, steps, width = None, 0, _FIRST_WIDTH
        bound = min(_rounded_up(found.bound, found.scale * unit) * unit, upper)
        while bound < upper and (steps == 0 or steps * _WIDER <= budget):
            swept = sweep(stops, found.bound, (upper - unit) * found.scale, width)
            steps += swept.steps
            if swept.best is not None and swept.best.lost < upper:
                kept, upper = self._without(numbers(swept.best.spilled)), swept.best.lost
            behind = upper if swept.behind is None else _rounded_up(swept.behind, found.scale * unit) * unit
            bound = min(max(bound, behind), upper)
            cells = len(rows.needs) * len(rows.costs)
            if width == _FIRST_WIDTH and bound < upper and cells <= _MOST_BRANCHED:
                per_node = _STEPS_OF_NODE + cells // _CELLS_OF_STEP
                branched = branch(rows, self._loss, upper, unit, budget // per_node)
                steps += branched.nodes * per_node
                if branched.spilled is not None:
                    upper = self._loss(branched.spilled) or 0
                    kept = self._without(branched.spilled)
                bound = min(max(bound, branched.bound), upper)
            width *= _WIDER
        return Selection(kept, upper, bound, steps)

    def _without(self, spilled: Sequence[int] | NDArray[np.bool_]) -> NDArray[np.bool_]:
        """All buffers but some candidates, given by number or as a mask."""
        kept = np.ones(len(self.instance), bool)
        kept[self.candidates[spilled]] = False
        return kept

    def _loss(self, spilled: NDArray[np.bool_]) -> int | None:
        """What a choice loses; None if a time is overloaded or a core kept whole."""
        if any(not spilled[core].any() for core in self.cores):
            return None
        if (self.instance.load_of(self._without(spilled))[self.at] > self.capacity).any():
            return None
        extra = sum(group.extra for group in self.groups if spilled[list(group.members)].any())
        return int(self.savings[spilled].sum()) + extra

    def _cover(self, stop: int, children: Sequence[Child]) -> None:
        """What pairs can share, as bytes off the sizes: kept items need their sizes less their parts of a cover.

        A row with a cover that is not tight, or the sizes alone, holds as well, only less sharply.
        """
        unshared = int(self.excess[stop]) + most_shared(children)
        cheap, dear = covers(children)
        if unshared > sum(cheap.values()):
            self.covers[stop], self.needs[stop] = cheap, unshared - sum(cheap.values())
        if unshared > sum(dear.values()):
            self.second_covers[stop] = unshared - sum(dear.values()), dear

    def _rows(self) -> Rows:
        """A row per stop, or per several of them; one per core; and one per second cover."""
        shown = self._shown()
        low, high = np.searchsorted(shown, self.first), np.searchsorted(shown, self.last)
        counts = np.maximum(high - low, 0)
        items = np.repeat(np.arange(len(counts)), counts)
        at_row_0 = np.cumsum(counts) - counts - low  # the entries of an item are one behind the other
        rows = np.arange(len(items)) - np.repeat(at_row_0, counts)
        coefficients = self.sizes[items]
        for row, stop in enumerate(shown.tolist()):
            for item, less in self.covers.get(stop, {}).items():
                coefficients[at_row_0[item] + row] -= less
        entries = [(rows, items, np.clip(coefficients, 0, self.needs[shown][rows]))]
        needs = [*self.needs[shown].tolist()]
        for core in self.cores:
            entries.append((np.full(len(core), len(needs)), np.array(core), np.ones(len(core), np.int64)))
            needs.append(1)
        for stop, (need, cover) in self.second_covers.items():
            live = np.flatnonzero((self.first <= stop) & (self.last > stop))
            less = np.array([cover.get(item, 0) for item in live.tolist()])
            entries.append((np.full(len(live), len(needs)), live, np.clip(self.sizes[live] - less, 0, need)))
            needs.append(need)
        rows, items, coefficients = (np.concatenate(each) for each in zip(*entries, strict=True))
        used = coefficients > 0
        return Rows(rows[used], items[used], coefficients[used], np.array(needs), self._costs())

    def _costs(self) -> Array:
        """What items lose at least when they are spilled, each with its part of the loss of its group."""
        costs = self.savings.copy()
        for group in self.groups:
            costs[list(group.members)] += group.extra // max(1, len(group.members))
        return costs

    def _shown(self) -> Array:
        """The stops that get a row: the worst one of every few, so that the rows are not too many."""
        entries = int(np.maximum(self.last - self.first, 0).sum())
        several = -(-entries // _MOST_ENTRIES)
        stops = np.arange(len(self.times))
        if several <= 1:
            return stops
        parts = np.array_split(stops, max(1, len(stops) // several))
        return np.array([part[np.argmax(self.excess[part])] for part in parts])

    def _stops(self, found: Multipliers) -> list[Stop]:
        """The stops in order of time, and one behind them for what arrives later."""
        arrivals = self._arrivals(found.reduced)
        items = self._items(arrivals, found.reduced)
        prices = dict(zip(self._shown().tolist(), found.of_rows, strict=False))
        gone: list[list[Item]] = [[] for _ in range(len(self.times) + 1)]
        for number, last in enumerate(self.last.tolist()):
            if items[number].bit:
                gone[last].append(items[number])
        stops = []
        for stop in range(len(self.times)):
            need, children = int(self.needs[stop]), self.children[stop]
            must_free = int(self.excess[stop]) + most_shared(children)
            price = prices.get(stop, 0)
            clipped = self._clipped(stop) if price else ()
            deciding = _with_deadlines([items[number] for number in arrivals[stop]], int(self.excess[stop]))
            stops.append(Stop(gone[stop], deciding, must_free, children, price, need, clipped))
        stops.append(Stop(gone[-1], [items[number] for number in arrivals[-1]], 0, (), 0, 0, ()))
        return stops

    def _arrivals(self, reduced: Sequence[int]) -> list[list[int]]:
        """The candidates by the stop at which they are decided, the likeliest to be spilled first."""
        arrivals: list[list[int]] = [[] for _ in range(len(self.times) + 1)]
        for number, first in enumerate(self.first.tolist()):
            arrivals[first].append(number)
        for each in arrivals:
            each.sort(key=lambda number: (reduced[number], number))
        return arrivals

    def _items(self, arrivals: Sequence[Sequence[int]], reduced: Sequence[int]) -> list[Item]:
        """The candidates by number."""
        order = [number for each in arrivals for number in each]
        position = {number: at for at, number in enumerate(order)}
        hits, closes, required = [0] * len(order), [0] * len(order), [0] * len(order)
        group_bits, extras = [0] * len(order), [0] * len(order)
        for at, members in enumerate([*self.cores, *(group.members for group in self.groups)]):
            if not members:
                continue
            bit, final = 1 << at, max(members, key=lambda number: position[number])
            closes[final] |= bit
            for member in members:
                hits[member] |= bit
            if at < len(self.cores):
                required[final] |= bit
                continue
            for member in members:
                group_bits[member], extras[member] = bit, self.groups[at - len(self.cores)].extra
        live = (self.last > self.first).tolist()
        sizes, savings = self.sizes.tolist(), self.savings.tolist()
        after = self._after(position)
        return [
            Item(
                number, 1 << number if live[number] else 0, sizes[number] if live[number] else 0, savings[number],
                reduced[number], after[number], hits[number], closes[number], required[number],
                group_bits[number], extras[number], 0,
            )
            for number in range(len(order))
        ]  # fmt: skip

    def _after(self, position: dict[int, int]) -> list[int]:
        """Per candidate the set of those that are spilled before it is."""
        if len(position) > _MOST_COMPARED or self.groups:
            return [0] * len(position)
        starts, ends = self.instance.starts[self.candidates], self.instance.ends[self.candidates]
        place = np.array([position[number] for number in range(len(position))], np.int64)
        single = ~_paired(self.instance)[self.candidates] & (self.last > self.first)
        found = []
        for j in range(len(position)):
            # What has ended at the stop where j is decided is in no state any more.
            worse = single & (starts <= starts[j]) & (ends >= ends[j]) & (self.last > self.first[j])
            worse &= (self.sizes >= self.sizes[j]) & (self.savings <= self.savings[j]) & (place < place[j])
            same = (starts == starts[j]) & (ends == ends[j])
            same &= (self.sizes == self.sizes[j]) & (self.savings == self.savings[j])
            worse &= ~same | (np.arange(len(position)) < j)
            found.append(sum(1 << int(i) for i in np.flatnonzero(worse)))
        return found

    def _children_at(self, stop: int) -> list[Child]:
        """The candidates that begin at a stop and may share a parent's bytes there."""
        begin, end = np.searchsorted(self.instance.starts, self.times[stop] + np.array([0, 1])).tolist()
        return [
            Child(
                self.number[child],
                int(self.instance.sizes[child]),
                tuple(self.number[parent] for parent in self.instance.parents[child]),
            )
            for child in range(begin, end)
            if self.instance.parents[child]
        ]

    def _clipped(self, stop: int) -> list[tuple[int, int]]:
        """For candidates whose coefficient at a stop is below their size: the bit and the difference."""
        live = np.flatnonzero((self.first <= stop) & (self.last > stop))
        cover = self.covers.get(stop, {})
        less = np.array([cover.get(item, 0) for item in live.tolist()])
        less = self.sizes[live] - np.clip(self.sizes[live] - less, 0, self.needs[stop])
        return [(1 << int(number), int(by)) for number, by in zip(live, less, strict=True) if by]


def _stops(instance: Instance, capacity: int) -> Array:
    """The overloaded entries of ``times`` at which the sets of live buffers are the largest ones."""
    at = np.flatnonzero(instance.loads > capacity)
    following = np.append(instance.times, instance.ends.max(initial=0) + 1)[at + 1]
    ends = np.sort(instance.ends)
    ended = np.searchsorted(ends, following) - np.searchsorted(ends, instance.times[at])
    return at[ended > 0]


def _paired(instance: Instance) -> NDArray[np.bool_]:
    """The buffers with usable in-place parents or children."""
    paired = instance.shareable > 0
    paired[[parent for parents in instance.parents for parent in parents]] = True
    return paired


def _with_deadlines(items: Sequence[Item], need: int) -> list[Item]:
    """The items of a stop, each with the bytes that must be free after it so that the rest can make up the need."""
    rest, found = 0, []
    for item in reversed(items):
        found.append(item._replace(freed_before=need - rest))
        rest += item.size
    return found[::-1]


def _rounded_up(value: int, unit: int) -> int:
    """``value`` in units, rounded up."""
    return -(-value // unit)
