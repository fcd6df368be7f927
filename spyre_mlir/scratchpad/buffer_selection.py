# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which buffers to keep in a memory that cannot hold all of them, addresses ignored.

A selection keeps some buffers and spills the others; at every time the load of the kept ones (in-place pairs
shared) is at most the capacity. The least savings that a selection loses are a lower bound for every plan with
one address per buffer. Buffers that are live at no overloaded time are kept.

Where addresses are the problem, conflicts say so: a conflict is a set of buffers that cannot all be kept, whatever else
is spilled. Selecting, packing, and selecting again with the conflict of what could not be packed ends with the
optimum (logic-based Benders decomposition; Hooker and Ottosson, 2003).

Known as the temporal knapsack problem (Bartlett et al., 2005). The bounds that guide the search are in
``optimization/lagrange.py``; the problem is made small first. Times without an end before the next start are no
stops. And if i lives whenever j does, is no smaller, saves no more and is in no in-place pair, then i is spilled
before j is: j could have its address.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.arrays import Array, Floats
from spyre_mlir.optimization.bipartite import Child, most_shared
from spyre_mlir.optimization.lagrange import Multipliers, Rows, dense, exact, multipliers
from spyre_mlir.optimization.simplex import Simplex
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.selection_problem import Group, SelectionProblem

#: Rows times items up to which there is branch and bound; the steps that a node counts for, and how many cells for
#: one more.
_MOST_BRANCHED, _STEPS_OF_NODE, _CELLS_OF_STEP = 1 << 19, 50, 500

#: States of the first sweep, and the factor from one sweep to the next.
_FIRST_WIDTH, _WIDER = 16, 8


@dataclass(frozen=True, eq=False)
class Selection:
    """``selected`` says per buffer whether it stays; it is None if nothing that loses less than ``upper`` was found.

    ``lost`` are the bytes of savings of the spilled buffers (``upper`` if there is none). No selection that
    loses less than ``upper`` loses less than ``bound``. ``steps`` counts states looked at.
    """

    selected: NDArray[np.bool_] | None
    lost: int
    bound: int
    steps: int

    @property
    def exact(self) -> bool:
        """Return whether no selection loses less."""
        return self.bound >= self.lost


def select(
    instance: Instance,
    capacity: int,
    *,
    upper: int | None = None,
    conflicts: Sequence[Collection[int]] = (),
    groups: Sequence[Group] = (),
    budget: int = 200_000,
) -> Selection:
    """The selection that loses least, below ``upper`` bytes and within about ``budget`` steps of search.

    All savings of ``instance`` are positive. No conflict is kept whole. ``upper`` is what is known already: by
    default one more than the loss of everything.
    """
    limit = int(instance.savings.sum()) + sum(group.extra for group in groups) + 1 if upper is None else upper
    overloaded = bool((instance.loads > capacity).any())
    if not overloaded and not conflicts:
        everything = np.ones(len(instance), bool)
        return Selection(everything, 0, 0, 0) if limit > 0 else Selection(None, limit, limit, 0)
    return _solve(SelectionProblem(instance, capacity, conflicts, groups), limit, budget)


def _solve(problem: SelectionProblem, upper: int, budget: int) -> Selection:
    """A narrow sweep; then branch and bound where the rows are few; then wider sweeps, until one is exact."""
    # Losses are sums of savings: they differ by at least the greatest common divisor.
    unit = math.gcd(*problem.savings.tolist(), *(group.extra for group in problem.groups))
    rows = problem.rows()
    duals = multipliers(rows)
    stops = SelectionSweep(problem, duals).stops()
    selected, steps, width = None, 0, _FIRST_WIDTH
    bound = min(_rounded_up(duals.bound, duals.scale * unit) * unit, upper)
    while bound < upper and (steps == 0 or steps * _WIDER <= budget):
        # Only losses below ``upper`` are of interest, and they are less by a whole unit.
        swept = sweep(stops, duals.bound, (upper - unit) * duals.scale, width)
        steps += swept.steps
        if swept.best is not None and swept.best.lost < upper:
            selected, upper = problem.without(spilled_items(swept.best.spilled)), swept.best.lost
        behind = upper if swept.behind is None else _rounded_up(swept.behind, duals.scale * unit) * unit
        bound = min(max(bound, behind), upper)
        cells = len(rows.needs) * len(rows.costs)
        # Once, when the narrow sweep has given an upper bound to prune with.
        if width == _FIRST_WIDTH and bound < upper and cells <= _MOST_BRANCHED:
            per_node = _STEPS_OF_NODE + cells // _CELLS_OF_STEP
            branched = branch(rows, problem.loss, upper, unit, budget // per_node)
            steps += branched.nodes * per_node
            if branched.spilled is not None:
                upper = problem.loss(branched.spilled) or 0
                selected = problem.without(branched.spilled)
            bound = min(max(bound, branched.bound), upper)
        width *= _WIDER
    return Selection(selected, upper, bound, steps)


def _rounded_up(value: int, unit: int) -> int:
    """``value`` in units, rounded up."""
    return -(-value // unit)


# Branch and bound over the linear relaxation: which items cover all needs at the least cost.
#
# Depth first. Each node solves the relaxation where its parent left it, rounds the solution up and drops what is
# not needed (a better choice, now and then), fixes the items whose reduced costs leave no other way, and branches
# on the item that the relaxation knows least about. It is strong where many items compete at few stops; over many
# stops with few items each the sweep over time is (``temporal_knapsack.py``).

Spilled = NDArray[np.bool_]

#: What the loss of a choice is, or None if it is not allowed.
Loss = Callable[[Spilled], int | None]

#: Values this close to an integer are one.
_INTEGRAL = 1e-6


@dataclass(frozen=True, eq=False)
class Branched:
    """The best choice found, if any is below the limit; no such choice loses less than ``bound``."""

    spilled: Spilled | None
    bound: int
    nodes: int


@dataclass(frozen=True, eq=False)
class RelaxedNode:
    """``choices`` are 1 for spilled, 0 for kept, -1 for open items; ``bound`` that of the parent, scaled to bytes."""

    relaxation: Simplex
    choices: Array
    bound: int


def branch(problem: Rows, loss: Loss, upper: int, unit: int, nodes: int) -> Branched:
    """The choice with the least loss below ``upper``, a multiple of ``unit``, within some nodes.

    The rows must hold for every allowed choice; they need not be all that makes it allowed. ``loss`` is at least
    the sum of the costs.
    """
    return BranchAndBound(problem, loss, upper, unit).run(nodes)


class BranchAndBound:
    def __init__(self, problem: Rows, loss: Loss, upper: int, unit: int) -> None:
        self.problem, self.loss, self.upper, self.unit = problem, loss, upper, unit
        self.matrix = dense(problem)
        self.best: Spilled | None = None

    def run(self, nodes: int) -> Branched:
        """Nodes from a stack, the likelier child of each first."""
        count = len(self.problem.costs)
        # With rows that need 1 one tolerance serves all.
        scaled = self.matrix / self.problem.needs[:, None]
        stack = [RelaxedNode(Simplex(scaled, self.problem.costs.astype(np.float64)), np.full(count, -1), 0)]
        visited = 0
        while stack and visited < nodes:
            node = stack.pop()
            if node.bound < self.upper:
                visited += 1
                stack += self._expand(node)
        return Branched(self.best, min([self.upper, *(node.bound for node in stack)]), visited)

    def _expand(self, node: RelaxedNode) -> list[RelaxedNode]:
        """The children of a node, the likelier one last; none if nothing better can be below it."""
        choices, relaxation = node.choices, node.relaxation
        if not self._can_cover(choices):
            return []
        relaxation.run()
        duals = exact(self.problem, relaxation.duals())
        reduced = np.array(duals.reduced)
        # An item that is fixed against its reduced cost raises the bound by that (``Multipliers``).
        bound = duals.bound + sum(np.maximum(reduced[choices == 1], 0).tolist())
        bound += sum(np.maximum(-reduced[choices == 0], 0).tolist())
        values = relaxation.solution()
        self._offer(self._needed(np.where(choices < 0, values > _INTEGRAL, choices == 1)))
        gap = (self.upper - self.unit) * duals.scale - bound
        if gap < 0:
            return []
        choices = self._fixed(relaxation, choices, reduced, gap)
        if (choices >= 0).all():
            self._offer(choices == 1)
            return []
        item = self._unclear(values, choices, reduced)
        likelier = int(values[item] >= 0.5)
        at_least = -(-bound // (duals.scale * self.unit)) * self.unit
        return [_child(relaxation, choices, item, value, at_least) for value in (1 - likelier, likelier)]

    def _can_cover(self, choices: Array) -> bool:
        return bool((self.matrix[:, choices != 0].sum(axis=1) >= self.problem.needs).all())

    def _offer(self, spilled: Spilled) -> None:
        """Keeps a choice if it is the best one."""
        lost = self.loss(spilled)
        if lost is not None and lost < self.upper:
            self.best, self.upper = spilled, lost

    def _needed(self, spilled: Spilled) -> Spilled:
        """A choice without the items that no row needs, the dearest ones first."""
        needed = spilled.copy()
        surplus = self.matrix[:, spilled].sum(axis=1) - self.problem.needs
        chosen = np.flatnonzero(spilled)
        for item in chosen[np.argsort(-self.problem.costs[chosen], kind="stable")].tolist():
            without = surplus - self.matrix[:, item]
            if (without >= 0).all():
                surplus, needed[item] = without, False
        return needed

    def _fixed(self, relaxation: Simplex, choices: Array, reduced: Array, gap: int) -> Array:
        """The choices, with those made that would raise the bound by more than the gap if made otherwise."""
        decided = np.where(reduced > gap, 0, np.where(-reduced > gap, 1, -1))
        new = (choices < 0) & (decided >= 0)
        for item in np.flatnonzero(new).tolist():
            relaxation.fix(item, float(decided[item]))
        return np.where(new, decided, choices)

    def _unclear(self, values: Floats, choices: Array, reduced: Array) -> int:
        """The open item that is nearest to one half, or if all are integers with the lowest reduced cost."""
        distance = np.where(choices < 0, np.abs(values - 0.5), 1.0)
        item = int(np.argmin(distance))
        if distance[item] < 0.5 - _INTEGRAL:
            return item
        return int(np.argmin(np.where(choices < 0, np.abs(reduced), np.iinfo(np.int64).max)))


def _child(relaxation: Simplex, choices: Array, item: int, value: int, bound: int) -> RelaxedNode:
    relaxation, choices = relaxation.copy(), choices.copy()
    relaxation.fix(item, float(value))
    choices[item] = value
    return RelaxedNode(relaxation, choices, bound)


# The stops of a selection problem, as the sweep over time takes them.

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


# The sweep over time that finds the cheapest selection: dynamic programming with bounds.
#
# The stops are the overloaded times. At each one the items that arrive are decided one after the other, keep or
# spill; then enough bytes must be free. What matters for the future of a partial selection is which live items it
# has spilled and which cores it has hit: of two that agree in that the cheaper one stays (a state). Each state
# carries a lower bound of all its completions, from Lagrange multipliers: it starts at the bound of the whole
# problem and grows by every decision against a reduced cost and by what a stop frees beyond its need. States whose
# bound is above the limit end there. At most ``width`` states go on; the lowest bound of those that had to stay
# behind says how good the result is at least.

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
