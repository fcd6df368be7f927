# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Solvers that search: annealing, exact search, and the portfolio of all with a bound, which is the default.

The searches are imported on use: the heuristics place the buffers of most programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import ClassVar

import numpy as np

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.fitting import (
    Fitting,
    by_area,
    by_lifetime,
    by_size,
    by_worth,
    lowest,
    orders,
)
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement, competition

#: Temperatures at the beginning and the end, as fractions of all savings (or of LOAD).
_HOT, _COLD = 0.0001, 0.000001

#: Steps that an order costs in addition to one step per buffer, roughly in proportion to its time.
_STEPS_OF_ORDER = 50

#: Steps of annealing for a selection that no order packs, before the exact search.
_ANNEALING_STEPS = 20_000

#: Additional steps that a selection counts as, because packing it also takes time.
STEPS_OF_SELECTION = 5_000

#: Nodes for each query whether a subset is a conflict.
NODES_OF_CONFLICT = 5_000


@dataclass(frozen=True)
class FittedOrder:
    order: list[int]
    addresses: dict[int, int]
    lost: int
    peak: int

    @property
    def cost(self) -> tuple[int, int]:
        """Lost savings, then the peak, in bytes."""
        return self.lost, self.peak


@dataclass(frozen=True)
class AnnealingSolver(MemoryPlanSolver):
    """Change an order and fit again, each buffer in the lowest gap; worse orders are accepted while it is hot.

    This is simulated annealing over the order of placement, after Imanishi and Xu (ISMM 2024).
    The solver minimises the lost savings, then the peak. It starts with the best of three orders, so it is never worse
    than these. It stops when nothing is lost and the peak is LOAD, or after ``steps``: one per buffer of each order,
    and some per order. Random numbers come from ``random.random``, whose sequence Python guarantees for a ``seed``.
    """

    name: ClassVar[str] = "annealing"
    seed: int = 0
    steps: int = 100_000

    def place(self, instance: Instance) -> Placement:
        """Return the addresses of the best order found."""
        import random

        fitting, rng = Fitting(instance), random.Random(self.seed)
        first = [_fitted(fitting, order(instance), 0, {}) for order in (by_lifetime, by_size, by_worth)]
        state = best = min(first, key=lambda state: state.cost)
        steps = len(instance) + _STEPS_OF_ORDER
        work = len(first) * steps
        while work < self.steps and best.cost > (0, instance.load):
            # Move one buffer earlier: any buffer, or one that causes the cost (it is lost, or else ends at the peak).
            order, addresses = state.order, state.addresses
            blamed = [index for index in order if index not in addresses]
            if not blamed:
                blamed = [index for index in order if addresses[index] + fitting.sizes[index] == state.peak]
            # Half of the moves are of causes of the cost, half of any buffer, so that every order can be reached.
            movable = blamed if rng.random() < 0.5 else order
            # Not ``choice`` or ``randrange``: Python guarantees equal sequences only for ``random``.
            old = order.index(movable[int(rng.random() * len(movable))])
            to = int(rng.random() * (old + 1))
            moved = [*order[:to], order[old], *order[to:old], *order[old + 1 :]]
            new = _fitted(fitting, moved, to, addresses)
            work += steps
            temperature = _HOT * (_COLD / _HOT) ** (work / self.steps)
            worse = _energy(instance, new) - _energy(instance, state)
            # Worse orders are accepted while it is hot, to leave local minima.
            if worse <= 0 or rng.random() < math.exp(-worse / temperature):
                state = new
            best = min(best, new, key=lambda state: state.cost)
        return Placement(best.addresses, work=work)


def _fitted(fitting: Fitting, order: list[int], same: int, addresses: dict[int, int]) -> FittedOrder:
    """Return the state of an order whose first ``same`` buffers keep their addresses."""
    # Fitting is greedy: the same beginning of an order has the same addresses.
    placed = {index: addresses[index] for index in order[:same] if index in addresses}
    fitted = fitting.fit(order[same:], placed=placed)
    savings, sizes = fitting.savings, fitting.sizes
    lost = sum(savings) - sum(savings[index] for index in fitted)
    return FittedOrder(
        order, fitted, lost, max((address + sizes[index] for index, address in fitted.items()), default=0)
    )


def _energy(instance: Instance, state: FittedOrder) -> float:
    """Return the energy of a state, at most 1 if nothing is lost."""
    if state.lost:
        return 1 + state.lost / int(instance.savings.sum())
    return min(state.peak / instance.load - 1, 1)


@dataclass(frozen=True)
class ExactSolver(MemoryPlanSolver):
    """Place all buffers, if the search succeeds within ``nodes`` nodes (``in_place_packing.py``).

    If not, drop the buffers that save the least per byte and time, 1, 2, 4, .. more at a time, until the rest is
    packed, each try with an eighth of the nodes. Then put back dropped buffers that find a gap. This choice of dropped
    buffers is simple; ``PortfolioSolver`` makes a better one.
    """

    name: ClassVar[str] = "branch-and-bound"
    nodes: int = 2_000_000

    def place(self, instance: Instance) -> Placement:
        """Return addresses of all or some buffers; the bound is the least saving if not all of them can fit."""
        from spyre_mlir.scratchpad.in_place_packing import pack

        order = list(by_worth(instance))
        packing = pack(instance, instance.space.capacity, self.nodes)
        bound = int(instance.savings.min()) if packing.proven else 0
        selected, dropped, work = np.arange(len(instance)), 0, packing.nodes
        while packing.offsets is None:
            # Few tries, because each is a separate search.
            # The loop ends, because an empty set of buffers packs.
            dropped = 2 * dropped + 1
            selected = np.sort(np.array(order[:-dropped], np.int64))
            packing = pack(instance.subset(selected.tolist()), instance.space.capacity, self.nodes // 8)
            work += packing.nodes
        addresses = dict(zip(selected.tolist(), packing.offsets.tolist(), strict=True))
        rest = [index for index in order if index not in addresses]
        return Placement(Fitting(instance).fit(rest, lowest, addresses), bound, work)


@dataclass(frozen=True)
class PortfolioSolver(MemoryPlanSolver):
    """Try solvers in turn and stop as soon as no better plan can exist, mostly after the first heuristics.

    1. Try orders and policies on all buffers. If all are placed, nothing is lost, which is optimal.
    2. A selection that fits by load, ignoring addresses (``buffer_selection.py``), bounds the loss of every plan.
    3. Pack selections of rising loss by heuristics or else by the exact search. The first selection that packs is
       optimal if no earlier one was given up. A selection that cannot be packed gives a conflict for the next ones.
    4. Without a proof, the result is the best of all heuristics.

    With ``least_peak``, step 1 continues until the peak is LOAD or all orders are tried. The budgets are steps of all
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
        """Return addresses, the bound, and for each spilled buffer the buffers that it competes with."""
        search = _PortfolioSearch(instance, self)
        search.run()
        selected = np.zeros(len(instance), bool)
        selected[list(search.best)] = True
        return Placement(search.best, search.bound, search.work, competition(instance, selected))


class _PortfolioSearch:
    """The best addresses so far, their loss, and the bound."""

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
        """Run the steps of the solver, in order, until the bound is met."""
        for order, policy in orders(self.instance):
            self.work += len(self.instance)
            self._offer(self.fitting.fit(order, policy))
            if self.lost == 0 and (not self.options.least_peak or self.peak == self.instance.load):
                return
        if self.lost:
            self._select_and_pack()
        if self.lost <= self.bound:
            return
        # Without a proof the results of the other searches are offered, so that no other solver moves less.
        for solver in (AnnealingSolver(), ExactSolver()):
            placement = solver.place(self.instance)
            self.work += placement.work
            self._offer(placement.addresses)
            self._offer(self._with_others(placement.addresses))

    def _offer(self, addresses: Mapping[int, int]) -> None:
        """Keep addresses if they lose less, or lose the same with a lower peak."""
        lost = self.savings - sum(self.fitting.savings[index] for index in addresses)
        peak = max((address + self.fitting.sizes[index] for index, address in addresses.items()), default=0)
        if (lost, peak) < (self.lost, self.peak) or not self.best:
            self.best, self.lost, self.peak = addresses, lost, peak

    def _select_and_pack(self) -> None:
        """Pack selections of rising loss; the bound rises with them until one is given up."""
        from spyre_mlir.scratchpad.buffer_selection import select

        conflicts: list[list[int]] = []
        proving = True
        while self.steps_left > 0 and self.packing_left > 0:
            budget = min(self.steps_left, self.options.steps_per_selection)
            selection = select(
                self.instance, self.capacity, upper=self.lost, conflicts=conflicts, budget=budget
            )
            self.steps_left -= selection.steps + STEPS_OF_SELECTION
            self.work += selection.steps
            if proving:
                self.bound = max(self.bound, min(selection.bound, self.lost))
            if selection.selected is None:
                return
            # A selection that was given up might have packed, so later bounds are not valid.
            proving = proving and selection.exact
            members = np.flatnonzero(selection.selected).tolist()
            if self._pack_with_heuristics(members):
                return
            addresses, impossible = self._pack(members)
            if addresses is not None:
                self._offer(addresses)
                return
            proving = proving and impossible
            # Without a proof the whole set is forbidden, so that the next selection differs.
            conflicts.append(infeasible_subset(members, self._is_impossible) if impossible else members)

    def _pack_with_heuristics(self, members: list[int]) -> bool:
        """Offer placements of a selection by orders and annealing, with others; return whether one places all of it."""
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
        """Return the given addresses plus addresses of all other buffers that find a gap."""
        rest = [index for index in by_worth(self.instance) if index not in addresses]
        return self.fitting.fit(rest, lowest, addresses)

    def _pack(self, members: list[int], node_limit: int | None = None) -> tuple[dict[int, int] | None, bool]:
        """Return the addresses that the exact search finds for a selection, or None and whether this is proven.

        The search visits at most ``node_limit`` nodes, if it is given.
        """
        from spyre_mlir.scratchpad.in_place_packing import pack

        subset = self.instance.subset(members)
        # A node of the exact search visits all pairs of a buffer and a time at which it is live.
        first = np.searchsorted(subset.times, subset.starts)
        last = np.searchsorted(subset.times, subset.ends, side="right")
        per_node = 1 + int((last - first).sum())
        nodes = max(1, min(self.packing_left, self.options.work_per_packing) // per_node)
        packing = pack(subset, self.capacity, nodes if node_limit is None else min(nodes, node_limit))
        self.packing_left -= packing.nodes * per_node
        self.work += packing.nodes
        if packing.offsets is None:
            return None, packing.proven
        return dict(zip(members, packing.offsets.tolist(), strict=True)), False

    def _is_impossible(self, members: list[int]) -> bool:
        """Return whether the buffers are proven, with little work, not to fit together."""
        inside = set(members)
        # A heuristic that places all of them is faster than a search.
        for order in (by_size, by_area):
            fitted = self.fitting.fit([index for index in order(self.instance) if index in inside])
            if len(fitted) == len(members):
                return False
        return self.packing_left > 0 and self._pack(members, NODES_OF_CONFLICT)[1]


#: Maximum number of queries for one set.
_MOST_QUESTIONS = 64


def infeasible_subset(members: list[int], is_infeasible: Callable[[list[int]], bool]) -> list[int]:
    """Return a subset of ``members`` (ascending, so in order of time) that is also infeasible.

    Removes runs of members, long runs first, if ``is_infeasible`` returns that the rest is proven infeasible. Without
    a proof the members stay, so the result is not always minimal.
    """
    subset, run, questions = members, len(members) // 2, 0
    while run and questions < _MOST_QUESTIONS:
        begin = 0
        while begin < len(subset) and questions < _MOST_QUESTIONS:
            rest = subset[:begin] + subset[begin + run :]
            questions += 1
            if rest and is_infeasible(rest):
                subset = rest
            else:
                begin += run
        run = min(run, len(subset)) // 2
    return subset
