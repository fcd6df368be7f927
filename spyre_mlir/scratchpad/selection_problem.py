# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The covering problem of a selection: choose the candidates to spill so that no time is overloaded."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.arrays import Array
from spyre_mlir.optimization.bipartite import Child, covers, most_shared
from spyre_mlir.optimization.lagrange import Rows
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.instance import Instance

#: Maximum entries of the linear program; of larger problems it has only the worst of several stops.
_MOST_ENTRIES = 1 << 18


@dataclass(frozen=True, eq=False)
class Group:
    """Members that together lose ``extra`` more bytes, once, if any of them is spilled."""

    members: tuple[int, ...]
    extra: int


class SelectionProblem:
    """The covering problem of an instance: choose the candidates to spill.

    Candidates are numbered by rising index. ``first`` and ``last`` are the half-open range of stops at which each
    candidate is live. A candidate in a conflict that is live at no stop arrives at the next stop, which may be an
    additional one after the last stop.
    """

    def __init__(
        self, instance: Instance, capacity: int, conflicts: Sequence[Collection[int]], groups: Sequence[Group]
    ) -> None:
        self.instance, self.capacity = instance, capacity
        self.time_indices = _overloaded(instance, capacity)
        self.times, self.loads = instance.times[self.time_indices], instance.loads[self.time_indices]
        first = np.searchsorted(self.times, instance.starts)
        last = np.searchsorted(self.times, instance.ends, side="right")
        chosen = last > first
        # Conflicts may also contain buffers that are live at no overloaded time.
        chosen[[member for conflict in conflicts for member in conflict]] = True
        self.candidates = np.flatnonzero(chosen)
        self.first, self.last = first[self.candidates], last[self.candidates]
        self.sizes = instance.sizes[self.candidates]
        self.savings = instance.savings[self.candidates]
        self.candidate_of = {int(index): candidate for candidate, index in enumerate(self.candidates)}
        self.conflicts = [[self.candidate_of[member] for member in conflict] for conflict in conflicts]
        self.groups = [
            Group(
                tuple(self.candidate_of[member] for member in group.members if member in self.candidate_of),
                group.extra,
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

    def without(self, spilled: Sequence[int] | NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the mask of all buffers except the candidates ``spilled``, given as indices or as a mask."""
        selected = np.ones(len(self.instance), bool)
        selected[self.candidates[spilled]] = False
        return selected

    def loss(self, spilled: NDArray[np.bool_]) -> int | None:
        """Return the loss of a choice; None if a time is overloaded or a conflict is kept whole."""
        if any(not spilled[conflict].any() for conflict in self.conflicts):
            return None
        if (self.instance.load_of(self.without(spilled))[self.time_indices] > self.capacity).any():
            return None
        extra = sum(group.extra for group in self.groups if spilled[list(group.members)].any())
        return int(self.savings[spilled].sum()) + extra

    def _cover(self, stop: int, children: Sequence[Child]) -> None:
        """Set the bytes that pairs can share: kept items need their sizes minus their parts of a cover.

        A row with a cover that is not tight, or with only the sizes, is also valid, but weaker.
        """
        unshared = int(self.excess[stop]) + most_shared(children)
        cheap, dear = covers(children)
        if unshared > sum(cheap.values()):
            self.covers[stop], self.needs[stop] = cheap, unshared - sum(cheap.values())
        if unshared > sum(dear.values()):
            self.second_covers[stop] = unshared - sum(dear.values()), dear

    def rows(self) -> Rows:
        """Return the covering problem: a row per stop, or per several; one per conflict; one per second cover."""
        shown = self.shown()
        low, high = np.searchsorted(shown, self.first), np.searchsorted(shown, self.last)
        counts = np.maximum(high - low, 0)
        items = np.repeat(np.arange(len(counts)), counts)
        row_0_entry = np.cumsum(counts) - counts - low  # the entries of an item are consecutive
        rows = np.arange(len(items)) - np.repeat(row_0_entry, counts)
        coefficients = self.sizes[items]
        for row, stop in enumerate(shown.tolist()):
            for item, less in self.covers.get(stop, {}).items():
                coefficients[row_0_entry[item] + row] -= less
        # A coefficient above the need of its row would weaken the relaxation.
        entries = [(rows, items, np.clip(coefficients, 0, self.needs[shown][rows]))]
        needs = [*self.needs[shown].tolist()]
        for conflict in self.conflicts:
            entries.append(
                (np.full(len(conflict), len(needs)), np.array(conflict), np.ones(len(conflict), np.int64))
            )
            needs.append(1)
        for stop, (need, cover) in self.second_covers.items():
            live = np.flatnonzero((self.first <= stop) & (self.last > stop))
            less = np.array([cover.get(item, 0) for item in live.tolist()])
            entries.append((np.full(len(live), len(needs)), live, np.clip(self.sizes[live] - less, 0, need)))
            needs.append(need)
        rows, items, coefficients = (np.concatenate(columns) for columns in zip(*entries, strict=True))
        used = coefficients > 0
        return Rows(rows[used], items[used], coefficients[used], np.array(needs), self._costs())

    def _costs(self) -> Array:
        """Return the least loss of each item when it is spilled, including its part of the loss of its group."""
        costs = self.savings.copy()
        for group in self.groups:
            # Rounded down: the parts sum to at most the loss of the group, so the bound stays valid.
            costs[list(group.members)] += group.extra // max(1, len(group.members))
        return costs

    def shown(self) -> Array:
        """Return the stops that get a row: the worst stop of every few, to limit the number of rows."""
        entries = int(np.maximum(self.last - self.first, 0).sum())
        several = -(-entries // _MOST_ENTRIES)
        stops = np.arange(len(self.times))
        if several <= 1:
            return stops
        parts = np.array_split(stops, max(1, len(stops) // several))
        return np.array([part[np.argmax(self.excess[part])] for part in parts])

    def _children_at(self, stop: int) -> list[Child]:
        """Return the candidates that begin at a stop and may share a parent's bytes there."""
        begin, end = np.searchsorted(self.instance.starts, self.times[stop] + np.array([0, 1])).tolist()
        return [
            Child(
                self.candidate_of[child],
                int(self.instance.sizes[child]),
                tuple(self.candidate_of[parent] for parent in self.instance.parents[child]),
            )
            for child in range(begin, end)
            if self.instance.parents[child]
        ]


def _overloaded(instance: Instance, capacity: int) -> Array:
    """Return the overloaded entries of ``times`` at which the sets of live buffers are maximal."""
    indices = np.flatnonzero(instance.loads > capacity)
    following = np.append(instance.times, instance.ends.max(initial=0) + 1)[indices + 1]
    ends = np.sort(instance.ends)
    ended = np.searchsorted(ends, following) - np.searchsorted(ends, instance.times[indices])
    return indices[ended > 0]
