# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The spill and reload planner: the solver of plans that spill and reload buffers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.infeasible_subset import infeasible_subset
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffer_selection import select
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.gaps import gap_instance, gaps_of, groups_of
from spyre_mlir.scratchpad.in_place_packing import pack
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.memory_plan import Residency, SpillAndReloadPlan
from spyre_mlir.scratchpad.portfolio import PortfolioSolver

#: Additional steps that a selection counts as, because packing it also takes time.
_STEPS_OF_SELECTION = 5_000

#: Nodes for each query whether a subset is a conflict.
_NODES_OF_CONFLICT = 5_000


@dataclass(frozen=True)
class SpillAndReloadSolver:
    """Plan buffers that may be spilled after a use and reloaded before a later use; options are fields.

    1. Plan one address per buffer with the ``portfolio``. If nothing is lost, no plan is better.
    2. The gaps between uses that fit by load, ignoring addresses, with the least loss, bound the traffic of every plan.
    3. Pack the residencies of selections of rising loss, also with the ``portfolio``. The first selection that packs
       is optimal if no earlier one was given up. A selection that cannot be packed gives a conflict for the next ones;
       its packed part is a plan.

    The result is the best of all these plans, so it never moves more than the plan with one address per buffer. It is
    deterministic: ``selection_steps`` limits all selections, ``steps_per_selection`` a single one, and the
    ``portfolio`` has its own budgets.
    """

    portfolio: PortfolioSolver = field(
        default_factory=lambda: PortfolioSolver(packing_work=500_000_000, work_per_packing=250_000_000)
    )
    selection_steps: int = 300_000
    steps_per_selection: int = 200_000

    def plan(self, buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace) -> SpillAndReloadPlan:
        """Plan buffers that may be spilled and reloaded.

        Args:
            buffers: The buffers, in any order; names are unique.
            space: The memory that they share.

        Returns:
            Residencies of the buffers, with the traffic in bytes.

        Raises:
            PlanError: The buffers are invalid.
        """
        search = _SpillSearch(Instance.of(buffers, space), self)
        search.run()
        sizes = {buffer.name: space.bytes_of(buffer) for buffer in buffers}
        ends = [residency.address + sizes[residency.buffer] for residency in search.best]
        return SpillAndReloadPlan(
            residencies=tuple(
                sorted(search.best, key=lambda residency: (residency.first, residency.address))
            ),
            traffic=search.traffic,
            bound=min(search.bound, search.traffic),
            peak=max(ends, default=0),
            work=search.work,
        )


def moved_bytes(buffer: LifetimeBoundBuffer, residencies: Iterable[Residency]) -> int:
    """Return the traffic of a buffer with the given residencies (``SpillAndReloadPlan``)."""
    ranges = [(residency.first, residency.last) for residency in residencies]
    first, *others = buffer.traffic_of_each_use
    if ranges == [(buffer.first, buffer.last)]:
        return min(first, buffer.traffic_if_placed)
    pairs = zip(itertools.pairwise(buffer.uses), others, strict=True)
    return first + sum(
        moved for (start, end), moved in pairs if not any(a <= start and end <= b for a, b in ranges)
    )


@dataclass(frozen=True)
class _GapRun:
    """Consecutive gaps of a buffer, by index: a residency without an address."""

    buffer: LifetimeBoundBuffer
    first: int
    last: int
    saving: int
    gaps: tuple[int, ...]

    def placed_at(self, address: int) -> Residency:
        """Return the residency at an address."""
        return Residency(self.buffer.name, self.first, self.last, address)


class _SpillSearch:
    """The best residencies so far, their traffic, and the bound."""

    def __init__(self, instance: Instance, options: SpillAndReloadSolver) -> None:
        self.instance, self.options = instance, options
        self.gaps = gaps_of(instance)
        self.groups = groups_of(self.gaps)
        self.traffic = sum(buffer.traffic_if_spilled for buffer in instance.buffers)
        self.least = self.traffic - sum(gap.saving for gap in self.gaps) - sum(g.extra for g in self.groups)
        self.bound = self.least
        self.best: list[Residency] = []
        self.work = 0

    def run(self) -> None:
        """Run the steps of the solver, in order, until the bound is met."""
        plan = PortfolioSolver().plan(self.instance.buffers, self.instance.space)
        self.work += plan.work
        placed = [buffer for buffer in self.instance.buffers if buffer.name in plan.addresses]
        self._offer(
            Residency(buffer.name, buffer.first, buffer.last, plan.addresses[buffer.name])
            for buffer in placed
        )
        if self.traffic > self.bound:
            self._select_and_pack()

    def _offer(self, residencies: Iterable[Residency]) -> None:
        """Keep residencies if they move less."""
        of_buffers: dict[str, list[Residency]] = {}
        for residency in residencies:
            of_buffers.setdefault(residency.buffer, []).append(residency)
        moved = sum(moved_bytes(buffer, of_buffers.get(buffer.name, ())) for buffer in self.instance.buffers)
        if moved < self.traffic:
            self.best = list(itertools.chain.from_iterable(of_buffers.values()))
            self.traffic = moved

    def _select_and_pack(self) -> None:
        """Pack selections of rising loss; the bound rises with them until one is given up."""
        gaps, conflicts = gap_instance(self.instance, self.gaps), []
        steps_left, proving = self.options.selection_steps, True
        while steps_left > 0:
            upper, budget = self.traffic - self.least, min(steps_left, self.options.steps_per_selection)
            capacity = self.instance.space.capacity
            selection = select(
                gaps, capacity, upper=upper, conflicts=conflicts, groups=self.groups, budget=budget
            )
            steps_left -= selection.steps + _STEPS_OF_SELECTION
            self.work += selection.steps
            if proving:
                self.bound = max(self.bound, self.least + selection.bound)
            if selection.selected is None:
                return
            proving = proving and selection.exact
            runs = self._runs(selection.selected)
            residencies = self._instance(runs)
            placed = self.options.portfolio.place(residencies)
            self.work += placed.work
            self._offer(runs[index].placed_at(address) for index, address in placed.addresses.items())
            if len(placed.addresses) == len(runs):
                return
            conflict, proven = _conflict(residencies)
            # Forbidding a set without a proof may forbid the optimum.
            proving = proving and proven
            conflicts.append(sorted(gap for index in conflict for gap in runs[index].gaps))

    def _runs(self, selected: NDArray[np.bool_]) -> list[_GapRun]:
        """Return the kept gaps as residencies, in order of time."""
        order = np.flatnonzero(selected).tolist()
        order.sort(key=lambda index: (self.gaps[index].buffer, self.gaps[index].number))
        runs: list[list[int]] = []
        for index in order:
            gap, before = self.gaps[index], self.gaps[runs[-1][-1]] if runs else None
            if before is not None and (before.buffer, before.end) == (gap.buffer, gap.start):
                runs[-1].append(index)
            else:
                runs.append([index])
        return sorted(map(self._run, runs), key=lambda run: run.first)

    def _run(self, members: Sequence[int]) -> _GapRun:
        first, last = self.gaps[members[0]], self.gaps[members[-1]]
        buffer = self.instance.buffers[first.buffer]
        saving = sum(self.gaps[index].saving for index in members)
        if (first.start, last.end) == (buffer.first, buffer.last):
            # The first use writes nothing to device memory only if the buffer is never spilled.
            saving += first.extra
        return _GapRun(buffer, first.start, last.end, saving, tuple(members))

    def _instance(self, runs: Sequence[_GapRun]) -> Instance:
        """Return the residencies as buffers named 0, 1, ..; a buffer's first one may take a parent's address."""
        ending = {(run.buffer.name, run.last): str(index) for index, run in enumerate(runs)}
        buffers = []
        for index, run in enumerate(runs):
            # A reloaded buffer comes from device memory, so it has no parent.
            parents = run.buffer.in_place_parents if run.first == run.buffer.first else ()
            able = (ending.get((name, run.first)) for name in parents)
            buffers.append(
                LifetimeBoundBuffer(
                    str(index), run.buffer.size, (run.first, run.last), copies=run.buffer.copies,
                    in_place_parents=tuple(filter(None, able)), spilled_traffic=run.saving, placed_traffic=0,
                )
            )  # fmt: skip
        return Instance.of(buffers, self.instance.space)


def _conflict(instance: Instance) -> tuple[list[int], bool]:
    """Return buffers that cannot all be packed, and whether this is proven; all buffers if it is not."""

    def is_impossible(members: list[int]) -> bool:
        return pack(instance.subset(members), instance.space.capacity, _NODES_OF_CONFLICT).proven

    everything = list(range(len(instance)))
    if not is_impossible(everything):
        return everything, False
    return infeasible_subset(everything, is_impossible), True
