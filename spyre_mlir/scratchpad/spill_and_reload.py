# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans that spill buffers after a use and reload them before a later use, possibly at another address.

A *gap* is the part of a buffer's live range between two consecutive uses, which a plan keeps or not. If a gap is kept,
the buffer occupies its bytes at both ends and between them, and the use at the end reads them for free. If not, this
use reads them from device memory. A buffer that is written first and has a gap that is not kept is also written to
device memory, once. Consecutive kept gaps are a *residency*, which has one address; the first residency begins with the
operation that writes the buffer.

So each gap is a separate buffer for ``buffer_selection.py``. It shares its bytes with the previous gap at the use
between them. The write is the extra loss of the group of all gaps of a buffer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffer_selection import Group, select
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.in_place_packing import pack
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.portfolio import (
    NODES_OF_CONFLICT,
    STEPS_OF_SELECTION,
    PortfolioSolver,
    infeasible_subset,
)
from spyre_mlir.scratchpad.solver import Residency, SpillAndReloadPlan


@dataclass(frozen=True)
class Gap:
    """A gap from one use of a buffer to the next: the saving, and the ``extra`` saving if all gaps are kept.

    ``buffer`` is the index of the buffer in the instance, ``number`` the index of the gap in the buffer. Unit: bytes.
    """

    buffer: int
    number: int
    start: int
    end: int
    saving: int
    extra: int


def gaps_of(instance: Instance) -> list[Gap]:
    """Return the gaps that fit alone and save traffic, in order of time."""
    gaps = []
    for index, buffer in enumerate(instance.buffers):
        first, *others = buffer.traffic_of_each_use
        if others:
            # The traffic of the first use is saved only if all gaps are kept.
            extra, ranges = max(0, first - buffer.traffic_if_placed), list(itertools.pairwise(buffer.uses))
        else:
            # A buffer with one use has a single gap, from this use to itself.
            extra, ranges, others = max(0, buffer.saving), [(buffer.first, buffer.last)], [0]
        for number, ((start, end), saving) in enumerate(zip(ranges, others, strict=True)):
            if instance.fits[index] and saving + extra > 0:
                gaps.append(Gap(index, number, start, end, saving, extra))
    # ``gap_instance`` keeps this order, and an ``Instance`` is in the order of first uses.
    return sorted(gaps, key=lambda gap: (gap.start, gap.buffer, gap.number))


def groups_of(gaps: Sequence[Gap]) -> list[Group]:
    """Return the group of gaps of each buffer that saves more if all its gaps are kept."""
    members: dict[int, list[int]] = {}
    for index, gap in enumerate(gaps):
        members.setdefault(gap.buffer, []).append(index)
    return [
        Group(tuple(indices), gaps[indices[0]].extra)
        for indices in members.values()
        if gaps[indices[0]].extra
    ]


def gap_instance(instance: Instance, gaps: Sequence[Gap]) -> Instance:
    """Return an instance of the gaps as buffers.

    The parent of a gap is the previous gap. The parents of a first gap are the gaps of the buffer's parents that end
    there: the address of a buffer that is not kept any longer is free, even if the buffer is read later.
    """
    index = {(gap.buffer, gap.number): gap_index for gap_index, gap in enumerate(gaps)}
    ending: dict[tuple[int, int], list[int]] = {}
    for gap_index, gap in enumerate(gaps):
        ending.setdefault((gap.buffer, gap.end), []).append(gap_index)
    number = {buffer.name: gap_index for gap_index, buffer in enumerate(instance.buffers)}
    parents = []
    for gap in gaps:
        if gap.number:
            # The previous gap is in the list as well: either all gaps of a buffer save traffic or none,
            # since ``check_buffers`` refuses later uses that move nothing.
            parents.append((index[gap.buffer, gap.number - 1],))
            continue
        buffer = instance.buffers[gap.buffer]
        eligible = []
        for parent in (number[name] for name in buffer.in_place_parents):
            single = instance.buffers[parent].copies == buffer.copies == 1
            if single and instance.sizes[gap.buffer] <= instance.sizes[parent]:
                eligible += ending.get((parent, gap.start), ())
        parents.append(tuple(eligible))
    gap_index = np.array([gap.buffer for gap in gaps], np.int64)
    return Instance(
        tuple(instance.buffers[gap.buffer] for gap in gaps), instance.space, starts=np.array([gap.start for gap in
        gaps], np.int64), ends=np.array([gap.end for gap in gaps], np.int64), sizes=instance.sizes[gap_index],
        savings=np.array([gap.saving for gap in gaps], np.int64), parents=tuple(parents),
    )  # fmt: skip


@dataclass(frozen=True)
class SpillAndReloadBound:
    """A lower bound ``traffic`` of any plan, with or without reloads, in bytes of device memory.

    ``attained`` says whether some choice of gaps within the capacity has exactly this traffic, ignoring addresses and
    the cost of moves on the chip; if not, the least such traffic is higher.
    """

    traffic: int
    attained: bool


def spill_and_reload_bound(
    buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace, budget: int = 200_000
) -> SpillAndReloadBound:
    """Return the bound, after about ``budget`` steps of search; ``PlanError`` if the buffers are invalid."""
    instance = Instance.of(buffers, space)
    gaps = gaps_of(instance)
    groups = groups_of(gaps)
    selection = select(gap_instance(instance, gaps), space.capacity, groups=groups, budget=budget)
    spilled = sum(buffer.traffic_if_spilled for buffer in buffers)
    saved = sum(gap.saving for gap in gaps) + sum(group.extra for group in groups)
    return SpillAndReloadBound(spilled - saved + selection.bound, selection.exact)


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
        """Plan ``buffers`` (names are unique; any order) that share ``space`` and may be spilled and reloaded.

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


class _GapRun(NamedTuple):
    """Consecutive gaps of a buffer, by index: a residency without an address."""

    buffer: LifetimeBoundBuffer
    first: int
    last: int
    saving: int
    gaps: list[int]


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
            steps_left -= selection.steps + STEPS_OF_SELECTION
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
            self._offer(
                Residency(runs[index].buffer.name, runs[index].first, runs[index].last, address)
                for index, address in placed.addresses.items()
            )
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
        residencies = []
        for members in runs:
            gap, last = self.gaps[members[0]], self.gaps[members[-1]]
            buffer = self.instance.buffers[gap.buffer]
            saving = sum(self.gaps[index].saving for index in members)
            if (gap.start, last.end) == (buffer.first, buffer.last):
                # The first use writes nothing to device memory only if the buffer is never spilled.
                saving += gap.extra
            residencies.append(_GapRun(buffer, gap.start, last.end, saving, members))
        return sorted(residencies, key=lambda run: run.first)

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
        return pack(instance.subset(members), instance.space.capacity, NODES_OF_CONFLICT).proven

    everything = list(range(len(instance)))
    if not is_impossible(everything):
        return everything, False
    return infeasible_subset(everything, is_impossible), True
