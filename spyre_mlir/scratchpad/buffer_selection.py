# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selection of the buffers to keep in a memory that cannot hold all of them, ignoring addresses.

A selection keeps some buffers and spills the others; at every time the load of the kept buffers (in-place pairs
shared) is at most the capacity. The least savings that a selection loses are a lower bound for every plan with
one address per buffer. Buffers that are live at no overloaded time are kept.

Conflicts represent the constraints of addresses: a conflict is a set of buffers that cannot all be kept, whatever else
is spilled. Selecting, packing, and selecting again with the conflict of a set that could not be packed ends with the
optimum (logic-based Benders decomposition; Hooker and Ottosson, 2003).

This is the temporal knapsack problem (Bartlett et al., 2005). The bounds that guide the search are in
``optimization/lagrange.py``; the problem is reduced first. A time is not a stop if no buffer ends before the next
start. And if i is live whenever j is, is at least as large, saves at most as much and is in no in-place pair, then i
is spilled before j: j could have the address of i.
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

#: Maximum rows times items for branch and bound; the steps that a node counts as; the cells that count as one more
#: step.
_MOST_BRANCHED, _STEPS_OF_NODE, _CELLS_OF_STEP = 1 << 19, 50, 500

#: Number of states of the first sweep, and its growth factor from one sweep to the next.
_FIRST_WIDTH, _WIDER = 16, 8


@dataclass(frozen=True, eq=False)
class Selection:
    """``selected`` says per buffer whether it is kept; None if no selection that loses less than ``upper`` was found.

    ``lost`` is the savings of the spilled buffers in bytes (``upper`` if no selection was found). No selection that
    loses less than ``upper`` loses less than ``bound``. ``steps`` is the number of visited states.
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
    """Return the selection that loses least, below ``upper`` bytes and within about ``budget`` steps of search.

    All savings of ``instance`` are positive. At least one buffer of each conflict is spilled. ``upper`` is a known
    upper bound of the loss: by default one more than the loss of everything.
    """
    limit = int(instance.savings.sum()) + sum(group.extra for group in groups) + 1 if upper is None else upper
    overloaded = bool((instance.loads > capacity).any())
    if not overloaded and not conflicts:
        everything = np.ones(len(instance), bool)
        return Selection(everything, 0, 0, 0) if limit > 0 else Selection(None, limit, limit, 0)
    return _solve(SelectionProblem(instance, capacity, conflicts, groups), limit, budget)


def _solve(problem: SelectionProblem, upper: int, budget: int) -> Selection:
    """Run a narrow sweep; then branch and bound if the rows are few; then wider sweeps, until one is exact."""
    # Losses are sums of savings: they differ by at least the greatest common divisor.
    unit = math.gcd(*problem.savings.tolist(), *(group.extra for group in problem.groups))
    rows = problem.rows()
    duals = multipliers(rows)
    stops = SelectionSweep(problem, duals).stops()
    selected, steps, width = None, 0, _FIRST_WIDTH
    bound = min(_rounded_up(duals.bound, duals.scale * unit) * unit, upper)
    while bound < upper and (steps == 0 or steps * _WIDER <= budget):
        # Only losses below ``upper`` matter, and these are less by at least one unit.
        swept = sweep(stops, duals.bound, (upper - unit) * duals.scale, width)
        steps += swept.steps
        if swept.best is not None and swept.best.lost < upper:
            selected, upper = problem.without(spilled_items(swept.best.spilled)), swept.best.lost
        behind = upper if swept.behind is None else _rounded_up(swept.behind, duals.scale * unit) * unit
        bound = min(max(bound, behind), upper)
        cells = len(rows.needs) * len(rows.costs)
        # Branch once, after the narrow sweep has given an upper bound for pruning.
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
    """Return ``value`` in units, rounded up."""
    return -(-value // unit)


# Branch and bound over the linear relaxation: choose the items that cover all needs at the least cost.
#
# The search is depth first. Each node solves the relaxation from its parent's final state, rounds the solution up and
# drops items that are not needed (sometimes a better choice), fixes the items whose reduced costs allow only one value,
# and branches on the item with the least clear value in the relaxation. Branch and bound is strong if many items
# compete at few stops; the sweep over time below is strong over many stops with few items each.

Spilled = NDArray[np.bool_]

#: Returns the loss of a choice, or None if the choice is not allowed.
Loss = Callable[[Spilled], int | None]

#: Values this close to an integer count as integers.
_INTEGRAL = 1e-6


@dataclass(frozen=True, eq=False)
class Branched:
    """The best choice found below the limit, if any; no such choice loses less than ``bound``."""

    spilled: Spilled | None
    bound: int
    nodes: int


@dataclass(frozen=True, eq=False)
class RelaxedNode:
    """``choices`` are 1 for spilled, 0 for kept, -1 for open items; ``bound`` is the parent's bound, in bytes."""

    relaxation: Simplex
    choices: Array
    bound: int


def branch(problem: Rows, loss: Loss, upper: int, unit: int, nodes: int) -> Branched:
    """Return the choice with the least loss below ``upper``, a multiple of ``unit``, within ``nodes`` nodes.

    The rows are necessary conditions of an allowed choice; they need not be sufficient. ``loss`` is at least the sum
    of the costs.
    """
    return BranchAndBound(problem, loss, upper, unit).run(nodes)


class BranchAndBound:
    def __init__(self, problem: Rows, loss: Loss, upper: int, unit: int) -> None:
        self.problem, self.loss, self.upper, self.unit = problem, loss, upper, unit
        self.matrix = dense(problem)
        self.best: Spilled | None = None

    def run(self, nodes: int) -> Branched:
        """Process nodes from a stack, the likelier child of each first."""
        count = len(self.problem.costs)
        # Rows are scaled to need 1, so that one tolerance fits all rows.
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
        """Return the children of a node, the likelier one last; none if nothing better can be below the node."""
        choices, relaxation = node.choices, node.relaxation
        if not self._can_cover(choices):
            return []
        relaxation.run()
        duals = exact(self.problem, relaxation.duals())
        reduced = np.array(duals.reduced)
        # An item that is fixed against its reduced cost raises the bound by the reduced cost (``Multipliers``).
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
        """Keep a choice if it is the best so far."""
        lost = self.loss(spilled)
        if lost is not None and lost < self.upper:
            self.best, self.upper = spilled, lost

    def _needed(self, spilled: Spilled) -> Spilled:
        """Remove the items that no row needs from a choice, the most expensive items first."""
        needed = spilled.copy()
        surplus = self.matrix[:, spilled].sum(axis=1) - self.problem.needs
        chosen = np.flatnonzero(spilled)
        for item in chosen[np.argsort(-self.problem.costs[chosen], kind="stable")].tolist():
            without = surplus - self.matrix[:, item]
            if (without >= 0).all():
                surplus, needed[item] = without, False
        return needed

    def _fixed(self, relaxation: Simplex, choices: Array, reduced: Array, gap: int) -> Array:
        """Fix open items whose opposite choice would raise the bound by more than the gap; return the choices."""
        decided = np.where(reduced > gap, 0, np.where(-reduced > gap, 1, -1))
        new = (choices < 0) & (decided >= 0)
        for item in np.flatnonzero(new).tolist():
            relaxation.fix(item, float(decided[item]))
        return np.where(new, decided, choices)

    def _unclear(self, values: Floats, choices: Array, reduced: Array) -> int:
        """Return the open item nearest to one half, or, if all are integers, with the lowest reduced cost."""
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


# The stops of a selection problem, as input of the sweep over time.

#: Maximum number of candidates that are compared pair by pair.
_MOST_COMPARED = 2000


class SelectionSweep:
    """Stops and items of a selection problem, with the multipliers of its rows."""

    def __init__(self, problem: SelectionProblem, duals: Multipliers) -> None:
        self.problem = problem
        self.reduced, self.row_multipliers = duals.reduced, duals.of_rows

    def stops(self) -> list[Stop]:
        """Return the stops in order of time, and one more after them for items that arrive later."""
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
        """Return the candidates by the stop at which they are decided, the likeliest to be spilled first."""
        arrivals: list[list[int]] = [[] for _ in range(len(self.problem.times) + 1)]
        for candidate, first in enumerate(self.problem.first.tolist()):
            arrivals[first].append(candidate)
        for arrivals_of_stop in arrivals:
            arrivals_of_stop.sort(key=lambda candidate: (self.reduced[candidate], candidate))
        return arrivals

    def _items(self, arrivals: Sequence[Sequence[int]]) -> list[Item]:
        """Return the items of the candidates, by candidate index."""
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
        """Return for each candidate the set of candidates that are spilled before it."""
        # The members of a group share its extra loss, so no member dominates another.
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
            # Items that have ended at the stop where j is decided are no longer in any state.
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
        """Return (bit, difference) of candidates whose coefficient at a stop is below their size."""
        live = np.flatnonzero((self.problem.first <= stop) & (self.problem.last > stop))
        cover = self.problem.covers.get(stop, {})
        less = np.array([cover.get(item, 0) for item in live.tolist()])
        less = self.problem.sizes[live] - np.clip(
            self.problem.sizes[live] - less, 0, self.problem.needs[stop]
        )
        return [(1 << int(candidate), int(by)) for candidate, by in zip(live, less, strict=True) if by]


def _is_paired(instance: Instance) -> NDArray[np.bool_]:
    """Return the mask of the buffers with usable in-place parents or children."""
    paired = instance.shareable > 0
    paired[[parent for parents in instance.parents for parent in parents]] = True
    return paired


def _with_deadlines(items: Sequence[Item], need: int) -> list[Item]:
    """Return the items of a stop, each with the bytes that must be free before it so that the rest covers the need."""
    rest, dated = 0, []
    for item in reversed(items):
        dated.append(item._replace(freed_before=need - rest))
        rest += item.size
    return dated[::-1]


# The sweep over time that finds the cheapest selection: dynamic programming with bounds.
#
# The stops are the overloaded times. At each stop the arriving items are decided one after another, keep or spill;
# then enough bytes must be free. The future of a partial selection depends only on its spilled live items and on the
# conflicts that it has hit: of two partial selections with equal ones the cheaper one is kept (a state). Each state
# has a lower bound of all its completions, from Lagrange multipliers: it starts at the bound of the whole problem and
# grows by every decision against a reduced cost and by the bytes freed beyond the need of a stop. A state whose bound
# exceeds the limit is dropped. At most ``width`` states continue; the lowest bound of the other states bounds the
# error of the result.

#: The spilled live items and the hit conflicts, as bit sets.
Key = tuple[int, int]

#: Linked list of spilled items, the last one first.
Link = tuple[int, "Link"] | None


class Item(NamedTuple):
    """A buffer to decide on. ``bit`` is its bit in the set of spilled items, 0 if it is live at no stop.

    The item may be spilled only if all of ``after`` are spilled. Spilling loses ``cost``, and also ``extra`` if no
    other member of its group is spilled yet. ``hits`` are the bits of its conflicts and its group. ``closes`` are the
    bits of sets whose last member is the item, and ``required`` the bits among these that must be hit by then.
    ``freed_before`` is the minimum number of bytes that must be free when the item is decided.
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
    """An overloaded time, with the items ``gone`` and the ``arrivals`` since the previous stop.

    ``must_free`` is the number of bytes that spilled items and kept pairs must free; ``children`` and their parents
    are item numbers. The multiplier is the cost of a byte freed beyond ``need``; for this, each spilled item counts
    its size minus its entry in ``clipped``.
    """

    gone: Sequence[Item]
    arrivals: Sequence[Item]
    must_free: int
    children: Sequence[Child]
    multiplier: int
    need: int
    clipped: Sequence[tuple[int, int]]


class PartialSelection(NamedTuple):
    """A state of the sweep. ``bound`` is scaled, ``lost`` and ``freed`` are bytes."""

    bound: int
    lost: int
    freed: int
    spilled: Link


class Swept(NamedTuple):
    """The cheapest selection found, or None; ``behind`` is the lowest scaled bound of the dropped states."""

    best: PartialSelection | None
    behind: int | None
    steps: int


def sweep(stops: Sequence[Stop], bound: int, limit: int, width: int) -> Swept:
    """Return the cheapest selection with a scaled bound of at most ``limit``; exact if no state was dropped."""
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
    """Return the states after some items have ended; of states that are now equal, only the cheaper one."""
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
    """Return every state with the item kept and with the item spilled."""
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
    """Return the states that free enough bytes at the stop, with the cost of bytes freed beyond the need."""
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
    """Return the bytes that kept children share with kept parents."""
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
    """Return the items of a linked list, ascending."""
    items = []
    while spilled is not None:
        item, spilled = spilled
        items.append(item)
    return sorted(items)
