# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The stops of a selection problem, as the sweep over time takes them (``optimization/temporal_knapsack.py``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.bipartite import most_shared
from spyre_mlir.optimization.lagrange import Multipliers
from spyre_mlir.optimization.temporal_knapsack import Item, Stop
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.selection_problem import SelectionProblem

#: More candidates than this are not compared pair by pair.
_MOST_COMPARED = 2000


class SelectionSweep:
    """Stops and items of a selection problem, with the multipliers of its rows."""

    def __init__(self, problem: SelectionProblem, duals: Multipliers) -> None:
        self.problem = problem
        self.reduced, self.row_multipliers = duals.reduced, duals.of_rows

    def stops(self) -> list[Stop]:
        """Return the stops in order of time, and one behind them for what arrives later."""
        arrivals = self._arrivals()
        items = self._items(arrivals)
        prices = dict(zip(self.problem.shown().tolist(), self.row_multipliers, strict=False))
        gone: list[list[Item]] = [[] for _ in range(len(self.problem.times) + 1)]
        for candidate, last in enumerate(self.problem.last.tolist()):
            if items[candidate].bit:
                gone[last].append(items[candidate])
        stops = []
        for stop in range(len(self.problem.times)):
            need, children = int(self.problem.needs[stop]), self.problem.children[stop]
            must_free = int(self.problem.excess[stop]) + most_shared(children)
            price = prices.get(stop, 0)
            clipped = self._clipped(stop) if price else ()
            deciding = _with_deadlines(
                [items[candidate] for candidate in arrivals[stop]], int(self.problem.excess[stop])
            )
            stops.append(Stop(gone[stop], deciding, must_free, children, price, need, clipped))
        stops.append(Stop(gone[-1], [items[candidate] for candidate in arrivals[-1]], 0, (), 0, 0, ()))
        return stops

    def _arrivals(self) -> list[list[int]]:
        """The candidates by the stop at which they are decided, the likeliest to be spilled first."""
        arrivals: list[list[int]] = [[] for _ in range(len(self.problem.times) + 1)]
        for candidate, first in enumerate(self.problem.first.tolist()):
            arrivals[first].append(candidate)
        for arrivals_of_stop in arrivals:
            arrivals_of_stop.sort(key=lambda candidate: (self.reduced[candidate], candidate))
        return arrivals

    def _items(self, arrivals: Sequence[Sequence[int]]) -> list[Item]:
        """The candidates by number."""
        order = [candidate for arrivals_of_stop in arrivals for candidate in arrivals_of_stop]
        rank = {candidate: bit_index for bit_index, candidate in enumerate(order)}
        hits, closes, required = [0] * len(order), [0] * len(order), [0] * len(order)
        group_bits, extras = [0] * len(order), [0] * len(order)
        for bit_index, members in enumerate(
            [*self.problem.conflicts, *(group.members for group in self.problem.groups)]
        ):
            if not members:
                continue
            bit, final = 1 << bit_index, max(members, key=lambda candidate: rank[candidate])
            closes[final] |= bit
            for member in members:
                hits[member] |= bit
            if bit_index < len(self.problem.conflicts):
                required[final] |= bit
                continue
            for member in members:
                group_bits[member], extras[member] = (
                    bit,
                    self.problem.groups[bit_index - len(self.problem.conflicts)].extra,
                )
        live = (self.problem.last > self.problem.first).tolist()
        sizes, savings = self.problem.sizes.tolist(), self.problem.savings.tolist()
        after = self._after(rank)
        return [
            Item(
                candidate, 1 << candidate if live[candidate] else 0, sizes[candidate] if live[candidate] else 0,
                savings[candidate], self.reduced[candidate], after[candidate], hits[candidate], closes[candidate],
                required[candidate], group_bits[candidate], extras[candidate], 0,
            )
            for candidate in range(len(order))
        ]  # fmt: skip

    def _after(self, rank: dict[int, int]) -> list[int]:
        """Per candidate the set of those that are spilled before it is."""
        # What a group loses in addition is shared, so that no candidate of one dominates.
        if len(rank) > _MOST_COMPARED or self.problem.groups:
            return [0] * len(rank)
        starts, ends = (
            self.problem.instance.starts[self.problem.candidates],
            self.problem.instance.ends[self.problem.candidates],
        )
        rank_of = np.array([rank[candidate] for candidate in range(len(rank))], np.int64)
        single = ~_is_paired(self.problem.instance)[self.problem.candidates] & (
            self.problem.last > self.problem.first
        )
        masks = []
        for j in range(len(rank)):
            # What has ended at the stop where j is decided is in no state any more.
            worse = (
                single
                & (starts <= starts[j])
                & (ends >= ends[j])
                & (self.problem.last > self.problem.first[j])
            )
            worse &= (
                (self.problem.sizes >= self.problem.sizes[j])
                & (self.problem.savings <= self.problem.savings[j])
                & (rank_of < rank_of[j])
            )
            same = (starts == starts[j]) & (ends == ends[j])
            same &= (self.problem.sizes == self.problem.sizes[j]) & (
                self.problem.savings == self.problem.savings[j]
            )
            worse &= ~same | (np.arange(len(rank)) < j)
            masks.append(sum(1 << int(i) for i in np.flatnonzero(worse)))
        return masks

    def _clipped(self, stop: int) -> list[tuple[int, int]]:
        """For candidates whose coefficient at a stop is below their size: the bit and the difference."""
        live = np.flatnonzero((self.problem.first <= stop) & (self.problem.last > stop))
        cover = self.problem.covers.get(stop, {})
        less = np.array([cover.get(item, 0) for item in live.tolist()])
        less = self.problem.sizes[live] - np.clip(
            self.problem.sizes[live] - less, 0, self.problem.needs[stop]
        )
        return [(1 << int(candidate), int(by)) for candidate, by in zip(live, less, strict=True) if by]


def _is_paired(instance: Instance) -> NDArray[np.bool_]:
    """The buffers with usable in-place parents or children."""
    paired = instance.shareable > 0
    paired[[parent for parents in instance.parents for parent in parents]] = True
    return paired


def _with_deadlines(items: Sequence[Item], need: int) -> list[Item]:
    """The items of a stop, each with the bytes that must be free after it so that the rest can make up the need."""
    rest, dated = 0, []
    for item in reversed(items):
        dated.append(item._replace(freed_before=need - rest))
        rest += item.size
    return dated[::-1]
