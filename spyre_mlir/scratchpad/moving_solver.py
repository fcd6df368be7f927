"""The solver of plans that move buffers."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace
from spyre_mlir.scratchpad.cores import shrink
from spyre_mlir.scratchpad.gaps import gap_instance, gaps_of, groups_of
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.plan import MovingPlan, Residency
from spyre_mlir.scratchpad.portfolio import PortfolioSolver
from spyre_mlir.scratchpad.selection import select

#: What a selection counts for besides its steps: packing it costs, too.
_STEPS_OF_SELECTION = 5_000

#: Nodes for each question whether a part of a set is a core.
_NODES_OF_CORE = 5_000


@dataclass(frozen=True)
class MovingSolver:
    """Plans buffers that may leave the memory after a use and come back before a later one; options are fields.

    1. A plan with one address per buffer, from the ``portfolio``. Nothing lost: no plan is better.
    2. The gaps between uses that fit by their load alone, with the least loss, bound what every plan moves.
    3. Of selections of rising loss the residencies are packed, by the ``portfolio`` too. The first selection that
       packs is optimal if none before it was given up. Of one that cannot be packed a core is learnt; what could be
       packed of it is a plan.

    The plan is the best of all these, so it never moves more than the one with one address per buffer. Deterministic:
    ``selection_steps`` bound all selections, ``steps_per_selection`` a single one, and the ``portfolio`` has its own
    budgets.
    """

    portfolio: PortfolioSolver = field(
        default_factory=lambda: PortfolioSolver(packing_work=500_000_000, work_per_packing=250_000_000)
    )
    selection_steps: int = 300_000
    steps_per_selection: int = 200_000

    def plan(self, buffers: Sequence[LifetimeBoundBuffer], space: MemorySpace) -> MovingPlan:
        """A plan of the buffers; ``PlanError`` if they make no sense."""
        search = _Search(Instance.of(buffers, space), self)
        search.run()
        sizes = {buffer.name: space.bytes_of(buffer) for buffer in buffers}
        ends = [each.address + sizes[each.buffer] for each in search.best]
        return MovingPlan(
            residencies=tuple(sorted(search.best, key=lambda each: (each.first, each.address))),
            traffic=search.traffic,
            bound=min(search.bound, search.traffic),
            peak=max(ends, default=0),
            work=search.work,
        )


def moved_bytes(buffer: LifetimeBoundBuffer, residencies: Iterable[Residency]) -> int:
    """The traffic of a buffer with these residencies (``MovingPlan``)."""
    kept = [(each.first, each.last) for each in residencies]
    first, *others = buffer.traffic_of_each_use
    if kept == [(buffer.first, buffer.last)]:
        return min(first, buffer.traffic_if_placed)
    pairs = zip(itertools.pairwise(buffer.uses), others, strict=True)
    return first + sum(
        moved for (start, end), moved in pairs if not any(a <= start and end <= b for a, b in kept)
    )


@dataclass(frozen=True)
class _Run:
    """Gaps of a buffer that follow each other, by number: a residency without an address."""

    buffer: LifetimeBoundBuffer
    first: int
    last: int
    saving: int
    gaps: tuple[int, ...]

    def at(self, address: int) -> Residency:
        """The residency at an address."""
        return Residency(self.buffer.name, self.first, self.last, address)


class _Search:
    """The best residencies so far, what they move, and the bound."""

    def __init__(self, instance: Instance, options: MovingSolver) -> None:
        self.instance, self.options = instance, options
        self.gaps = gaps_of(instance)
        self.groups = groups_of(self.gaps)
        self.traffic = sum(buffer.traffic_if_spilled for buffer in instance.buffers)
        self.least = self.traffic - sum(gap.saving for gap in self.gaps) - sum(g.extra for g in self.groups)
        self.bound = self.least
        self.best: list[Residency] = []
        self.work = 0

    def run(self) -> None:
        """The steps of the solver, in order, until the bound is met."""
        plan = PortfolioSolver().plan(self.instance.buffers, self.instance.space)
        self.work += plan.work
        placed = [each for each in self.instance.buffers if each.name in plan.addresses]
        self._offer(Residency(each.name, each.first, each.last, plan.addresses[each.name]) for each in placed)
        if self.traffic > self.bound:
            self._select_and_pack()

    def _offer(self, residencies: Iterable[Residency]) -> None:
        """Keeps residencies if they move less."""
        of_buffers: dict[str, list[Residency]] = {}
        for each in residencies:
            of_buffers.setdefault(each.buffer, []).append(each)
        moved = sum(moved_bytes(each, of_buffers.get(each.name, ())) for each in self.instance.buffers)
        if moved < self.traffic:
            self.best = [each for some in of_buffers.values() for each in some]
            self.traffic = moved

    def _select_and_pack(self) -> None:
        """Packs selections of rising loss; the bound rises with them until one is given up."""
        gaps, cores = gap_instance(self.instance, self.gaps), []
        steps_left, proving = self.options.selection_steps, True
        while steps_left > 0:
            upper, budget = self.traffic - self.least, min(steps_left, self.options.steps_per_selection)
            capacity = self.instance.space.capacity
            selected = select(gaps, capacity, upper=upper, cores=cores, groups=self.groups, budget=budget)
            steps_left -= selected.steps + _STEPS_OF_SELECTION
            self.work += selected.steps
            if proving:
                self.bound = max(self.bound, self.least + selected.bound)
            if selected.kept is None:
                return
            proving = proving and selected.exact
            runs = self._runs(selected.kept)
            residencies = self._instance(runs)
            placed = self.options.portfolio.place(residencies)
            self.work += placed.work
            self._offer(runs[at].at(address) for at, address in placed.addresses.items())
            if len(placed.addresses) == len(runs):
                return
            core, proven = _core(residencies)
            proving = proving and proven
            cores.append(sorted(gap for at in core for gap in runs[at].gaps))

    def _runs(self, kept: NDArray[np.bool_]) -> list[_Run]:
        """The kept gaps as residencies, in order of time."""
        order = np.flatnonzero(kept).tolist()
        order.sort(key=lambda at: (self.gaps[at].buffer, self.gaps[at].number))
        found: list[list[int]] = []
        for at in order:
            gap, before = self.gaps[at], self.gaps[found[-1][-1]] if found else None
            if before is not None and (before.buffer, before.end) == (gap.buffer, gap.start):
                found[-1].append(at)
            else:
                found.append([at])
        return sorted(map(self._run, found), key=lambda run: run.first)

    def _run(self, some: Sequence[int]) -> _Run:
        first, last = self.gaps[some[0]], self.gaps[some[-1]]
        buffer = self.instance.buffers[first.buffer]
        saving = sum(self.gaps[at].saving for at in some)
        if (first.start, last.end) == (buffer.first, buffer.last):
            saving += first.extra
        return _Run(buffer, first.start, last.end, saving, tuple(some))

    def _instance(self, runs: Sequence[_Run]) -> Instance:
        """The residencies as buffers of the names 0, 1, ..; the first ones of a buffer may take a parent's place."""
        ending = {(run.buffer.name, run.last): str(at) for at, run in enumerate(runs)}
        found = []
        for at, run in enumerate(runs):
            parents = run.buffer.in_place_parents if run.first == run.buffer.first else ()
            able = (ending.get((name, run.first)) for name in parents)
            found.append(
                LifetimeBoundBuffer(
                    str(at), run.buffer.size, (run.first, run.last), copies=run.buffer.copies,
                    in_place_parents=tuple(filter(None, able)), spilled_traffic=run.saving, placed_traffic=0,
                )
            )  # fmt: skip
        return Instance.of(found, self.instance.space)


def _core(instance: Instance) -> tuple[list[int], bool]:
    """Buffers that cannot all be packed, and whether that is proven: all of them, if it is not."""
    # numba takes a while to import, and most plans need no exact search.
    from spyre_mlir.scratchpad.packing import pack

    def is_impossible(members: list[int]) -> bool:
        return pack(instance.subset(members), instance.space.capacity, _NODES_OF_CORE).proven

    everything = list(range(len(instance)))
    if not is_impossible(everything):
        return everything, False
    return shrink(everything, is_impossible), True
