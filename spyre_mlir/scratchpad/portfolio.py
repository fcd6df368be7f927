# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The default solver: heuristics first, a bound that certifies them, exact search only for what is left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np

from spyre_mlir.optimization.infeasible_subset import infeasible_subset
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.annealing import AnnealingSolver
from spyre_mlir.scratchpad.buffer_selection import Selection, select
from spyre_mlir.scratchpad.competition import reasons
from spyre_mlir.scratchpad.exact import ExactSolver
from spyre_mlir.scratchpad.fitting import (
    Fitting,
    by_area,
    by_size,
    by_worth,
    lowest,
    orders,
)
from spyre_mlir.scratchpad.in_place_packing import pack
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement

#: Steps of annealing for a selection that no order packs, before the exact search is asked.
_ANNEALING_STEPS = 20_000

#: What a selection counts for besides its steps: packing it costs, too.
_STEPS_OF_SELECTION = 5_000

#: Nodes for each question whether a part of a set is a core.
_NODES_OF_CONFLICT = 5_000


@dataclass(frozen=True)
class PortfolioSolver(MemoryPlanSolver):
    """Stops as soon as nothing better can exist, which is mostly after the first heuristics.

    1. Orders and policies on all buffers. All placed: nothing is lost, and that is proven.
    2. A selection that fits by its load alone (``buffer_selection.py``) bounds what every plan loses.
    3. The selections of rising loss, each packed by heuristics or else by the exact search. The first one that
       packs is optimal if none before it was given up. Of one that cannot be packed a core is learnt.
    4. Where the proof fails, the best of all heuristics.

    ``least_peak`` goes on in step 1 until the peak is LOAD or all orders are tried. The budgets are steps of all
    selections and of a single one, and work of all packings and of a single one: nodes times pairs of a buffer and a
    time at which it is live, some 4 ns each.
    """

    name: ClassVar[str] = "portfolio"
    least_peak: bool = False
    selection_steps: int = 300_000
    steps_per_selection: int = 100_000
    packing_work: int = 2_500_000_000
    work_per_packing: int = 1_500_000_000

    def place(self, instance: Instance) -> Placement:
        """Addresses, the bound, and for each spilled buffer the competition that it lost."""
        search = _PortfolioSearch(instance, self)
        search.run()
        selected = np.zeros(len(instance), bool)
        selected[list(search.best)] = True
        return Placement(search.best, search.bound, search.work, reasons(instance, selected))


class _PortfolioSearch:
    """The best addresses so far, what they lose, and the bound."""

    def __init__(self, instance: Instance, options: PortfolioSolver) -> None:
        self.instance, self.options = instance, options
        self.capacity = instance.space.capacity
        self.fitting = Fitting(instance)
        self.savings = sum(self.fitting.savings)
        self.best: Mapping[int, int] = {}
        self.lost, self.peak = self.savings, 0
        self.bound = self.work = 0
        self.packing_left, self.steps_left = options.packing_work, options.selection_steps

    def run(self) -> None:
        """The steps of the solver, in order, until the bound is met."""
        for addresses in self._heuristics():
            self._offer(addresses)
            if self.lost == 0 and (not self.options.least_peak or self.peak == self.instance.load):
                return
        if self.lost:
            self._select_and_pack()
        if self.lost > self.bound:
            self._try_others()

    def _heuristics(self) -> Iterator[Mapping[int, int]]:
        """Every heuristic on all buffers, the one that succeeds most often first."""
        for order, policy in orders(self.instance):
            self.work += len(self.instance)
            yield self.fitting.fit(order, policy)

    def _offer(self, addresses: Mapping[int, int]) -> None:
        """Keeps addresses if they lose less, or the same with a lower peak."""
        lost = self.savings - sum(self.fitting.savings[index] for index in addresses)
        peak = max((address + self.fitting.sizes[index] for index, address in addresses.items()), default=0)
        if (lost, peak) < (self.lost, self.peak) or not self.best:
            self.best, self.lost, self.peak = addresses, lost, peak

    def _select_and_pack(self) -> None:
        """Packs selections of rising loss; the bound rises with them until one is given up."""
        conflicts: list[list[int]] = []
        proving = True
        while self.steps_left > 0 and self.packing_left > 0:
            selection = self._selection(conflicts)
            if proving:
                self.bound = max(self.bound, min(selection.bound, self.lost))
            if selection.selected is None:
                return
            # A selection that was given up might have packed: no later bound covers it.
            proving = proving and selection.exact
            members = np.flatnonzero(selection.selected).tolist()
            if self._pack_with_heuristics(members):
                return
            addresses, impossible = self._pack(members)
            if addresses is not None:
                self._offer(addresses)
                return
            proving = proving and impossible
            # Without a proof the set is forbidden as a whole, so that the next selection is another one.
            conflicts.append(infeasible_subset(members, self._is_impossible) if impossible else members)

    def _selection(self, conflicts: list[list[int]]) -> Selection:
        budget = min(self.steps_left, self.options.steps_per_selection)
        selection = select(self.instance, self.capacity, upper=self.lost, conflicts=conflicts, budget=budget)
        self.steps_left -= selection.steps + _STEPS_OF_SELECTION
        self.work += selection.steps
        return selection

    def _pack_with_heuristics(self, members: list[int]) -> bool:
        """Offer what the orders, or annealing, place of a selection, with more; return whether one places all of it."""
        inside = set(members)
        for order, policy in orders(self.instance):
            self.work += len(self.instance)
            addresses = self.fitting.fit([index for index in order if index in inside], policy)
            self._offer(self._with_others(addresses))
            if len(addresses) == len(members):
                return True
        annealed = AnnealingSolver(steps=_ANNEALING_STEPS).place(self.instance.subset(members))
        self.work += annealed.work
        addresses = {members[index]: address for index, address in annealed.addresses.items()}
        self._offer(self._with_others(addresses))
        return len(addresses) == len(members)

    def _with_others(self, addresses: Mapping[int, int]) -> Mapping[int, int]:
        """Addresses, and those of all other buffers that find a gap between them."""
        rest = [index for index in by_worth(self.instance) if index not in addresses]
        return self.fitting.fit(rest, lowest, addresses)

    def _pack(self, members: list[int], node_limit: int | None = None) -> tuple[dict[int, int] | None, bool]:
        """The addresses that the exact search finds for a selection; else whether it is proven that there are none.

        The search has work for at most ``node_limit`` nodes, if that is given.
        """
        subset = self.instance.subset(members)
        per_node = _pairs(subset)
        nodes = max(1, min(self.packing_left, self.options.work_per_packing) // per_node)
        packing = pack(subset, self.capacity, nodes if node_limit is None else min(nodes, node_limit))
        self.packing_left -= packing.nodes * per_node
        self.work += packing.nodes
        if packing.offsets is None:
            return None, packing.proven
        return dict(zip(members, packing.offsets.tolist(), strict=True)), False

    def _is_impossible(self, members: list[int]) -> bool:
        """Return whether it is proven, with little work, that buffers cannot all be placed."""
        # A heuristic that places all of them is quicker than a search.
        if any(
            len(self.fitting.fit(order)) == len(members) for order in _short_orders(self.instance, members)
        ):
            return False
        return self.packing_left > 0 and self._pack(members, _NODES_OF_CONFLICT)[1]

    def _try_others(self) -> None:
        """Without a proof, the other searches have a say: no solver of ours moves less."""
        for solver in (AnnealingSolver(), ExactSolver()):
            placement = solver.place(self.instance)
            self.work += placement.work
            self._offer(placement.addresses)
            self._offer(self._with_others(placement.addresses))


def _short_orders(instance: Instance, members: list[int]) -> Iterator[list[int]]:
    inside = set(members)
    for order in (by_size, by_area):
        yield [index for index in order(instance) if index in inside]


def _pairs(instance: Instance) -> int:
    """Pairs of a buffer and a time of a first use at which it is live: what a node of the exact search looks at."""
    first = np.searchsorted(instance.times, instance.starts)
    return 1 + int((np.searchsorted(instance.times, instance.ends, side="right") - first).sum())
