# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Selection of the buffers to keep in a memory that cannot hold all of them, ignoring addresses.

A selection keeps some buffers and spills the others; at every time the load of the kept buffers (in-place pairs
shared) is at most the capacity. The least savings that a selection loses are a lower bound for every plan with
one address per buffer. Buffers that are live at no overloaded time are kept.

Conflicts represent the constraints of addresses: a conflict is a set of buffers that cannot all be kept, whatever else
is spilled. Selecting, packing, and selecting again with the conflict of a set that could not be packed ends with the
optimum (logic-based Benders decomposition; Hooker and Ottosson, 2003).

This is the temporal knapsack problem (Bartlett et al., 2005): one row per time, with a need of bytes to free.

Reduction. Times at which no buffer ends before the next start are dropped, because the next start has a higher load.
If i is live whenever j is, is at least as large, saves at most as much and is in no in-place pair, then i is spilled
before j: j could have the address of i.

Search. Lagrange multipliers of the rows bound the loss from below. A sweep over the
times (``sweep``) is a dynamic program over the sets of spilled live buffers. A sweep keeps at most ``width`` states
per time: the lowest bound of the dropped states is a proven bound, and the result is exact if no state is dropped. If
the bounds of the first, narrow sweep do not meet, branch and bound on the rows follows, for few rows, and then sweeps
of 8 times the width.

Invariant. ``bound <= least loss <= limit`` at all times; the search ends when the two are equal, or the budget of
steps is used. Complexity: a sweep decides each buffer once per state, O(buffers * width) steps. Steps, and not
seconds, limit the search, so that all machines give the same result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.arrays import Array, Floats
from spyre_mlir.optimization.bipartite import Child, covers, most_shared
from spyre_mlir.optimization.simplex import Simplex
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.instance import Instance

# Lower bounds of covering problems from linear programming.
#
# Minimise the sum of costs[i] y[i] over y in {0, 1}, such that in every row the coefficients of the chosen items add up
# to at least the row's need. For all multipliers m >= 0
#
# sum(m[r] need[r]) + sum(min(0, costs[i] - sum(m[r] coefficient[r, i])))
#
# is a lower bound (Held and Karp, 1971; Fisher, 1981), and the best multipliers are the dual solution of the
# linear relaxation (``simplex.py``). The multipliers are rounded to integers before use, so the bound is exact.

#: Maximum number of rows times items of one linear program. Larger problems are cut into consecutive rows.
_MOST_CELLS = 1 << 18


@dataclass(frozen=True, eq=False)
class Rows:
    """A covering problem as a sparse matrix: item ``items[e]`` has ``coefficients[e]`` in row ``rows[e]``.

    ``needs`` has an entry per row, at least 1; ``costs`` has an entry per item, at least 0. A coefficient is at most
    the need of its row. All items together cover every need.
    """

    rows: Array
    items: Array
    coefficients: Array
    needs: Array
    costs: Array


@dataclass(frozen=True)
class Multipliers:
    """A lower bound in units of 1 / ``scale``: integers throughout.

    ``of_rows`` are the multipliers. ``reduced`` are the reduced costs: the costs of the items minus the sum of
    multiplier times coefficient. ``bound`` is the lower bound of all choices. Choosing an item with reduced cost
    c > 0, or omitting one with c < 0, raises the bound by abs(c).
    """

    of_rows: list[int]
    reduced: list[int]
    bound: int
    scale: int


def multipliers(problem: Rows) -> Multipliers:
    """Return the best multipliers, or good ones if the problem is large.

    If the problem is cut, each part gets a fraction of an item's cost: the fraction of the item's rows that are in
    the part.
    """
    count = np.bincount(problem.items, minlength=len(problem.costs))
    weights = np.zeros(len(problem.needs))
    # Ranges of rows with at most ``_MOST_CELLS`` cells each, but at least one row.
    height = len(problem.needs)
    step = max(1, _MOST_CELLS // max(1, len(np.unique(problem.items))))
    for begin in range(0, height, step):
        end = min(begin + step, height)
        inside = np.flatnonzero((problem.rows >= begin) & (problem.rows < end))
        items, columns = np.unique(problem.items[inside], return_inverse=True)
        matrix = np.zeros((end - begin, len(items)))
        rows = problem.rows[inside]
        matrix[rows - begin, columns] = problem.coefficients[inside] / problem.needs[rows]
        here = np.bincount(columns, minlength=len(items))
        relaxation = Simplex(matrix, problem.costs[items] * here / count[items])
        relaxation.run()
        weights[begin:end] = relaxation.duals()
    return exact(problem, weights)


def exact(problem: Rows, weights: Floats) -> Multipliers:
    """Round the multipliers to integers, and compute reduced costs and bound from them without rounding."""
    largest = np.cumsum(weights)[-1:].sum() + problem.costs.max(initial=0)
    scale = 1 << max(0, min(20, 60 - int(largest).bit_length()))  # products stay below 2 ** 63
    # Any multipliers >= 0 give a bound, so rounding makes the bound weaker but not invalid.
    of_rows = np.floor(weights * scale / problem.needs).astype(np.int64)
    reduced = problem.costs * scale
    np.subtract.at(reduced, problem.items, problem.coefficients * of_rows[problem.rows])
    # Add in Python: each product fits 64 bits, but their sum may not.
    listed = reduced.tolist()
    needed = sum((of_rows * problem.needs).tolist())
    return Multipliers(of_rows.tolist(), listed, needed + sum(cost for cost in listed if cost < 0), scale)


def dense(problem: Rows) -> Array:
    """Return the coefficients as a matrix of rows and items."""
    matrix = np.zeros((len(problem.needs), len(problem.costs)), np.int64)
    matrix[problem.rows, problem.items] = problem.coefficients
    return matrix


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
    if not conflicts and not (instance.loads > capacity).any():
        everything = np.ones(len(instance), bool)
        return Selection(everything, 0, 0, 0) if limit > 0 else Selection(None, limit, limit, 0)
    problem = SelectionProblem(instance, capacity, conflicts, groups)
    # Losses are sums of savings: they differ by at least the greatest common divisor.
    unit = math.gcd(*problem.savings.tolist(), *(group.extra for group in problem.groups))
    rows = problem.rows()
    duals = multipliers(rows)
    points = sweep_points(problem, duals)
    selected, steps, width = None, 0, _FIRST_WIDTH
    bound = min(_least_loss(duals.bound, duals.scale, unit), limit)
    # A narrow sweep; then branch and bound if the rows are few; then wider sweeps, until one is exact.
    while bound < limit and (steps == 0 or steps * _WIDER <= budget):
        # Only losses below ``limit`` matter, and these are less by at least one unit.
        swept = sweep(points, duals.bound, (limit - unit) * duals.scale, width)
        steps += swept.steps
        if swept.best is not None and swept.best.lost < limit:
            selected, limit = problem.without(spilled_items(swept.best.spilled)), swept.best.lost
        dropped = limit if swept.dropped is None else _least_loss(swept.dropped, duals.scale, unit)
        bound = min(max(bound, dropped), limit)
        cells = len(rows.needs) * len(rows.costs)
        # Branch once, after the narrow sweep has given an upper bound for pruning.
        if width == _FIRST_WIDTH and bound < limit and cells <= _MOST_BRANCHED:
            per_node = _STEPS_OF_NODE + cells // _CELLS_OF_STEP
            branched = BranchAndBound(rows, problem.loss, limit, unit).run(budget // per_node)
            steps += branched.nodes * per_node
            if branched.spilled is not None:
                limit = problem.loss(branched.spilled) or 0
                selected = problem.without(branched.spilled)
            bound = min(max(bound, branched.bound), limit)
        width *= _WIDER
    return Selection(selected, limit, bound, steps)


def _least_loss(bound: int, scale: int, unit: int) -> int:
    """Return the least loss, a multiple of ``unit`` bytes, that is at least a ``bound`` in units of 1 / ``scale``."""
    return -(-bound // (scale * unit)) * unit


# The covering problem of a selection: choose the candidates to spill so that no time is overloaded.

#: Maximum entries of the linear program; of larger problems it has only the worst of several points.
_MOST_ENTRIES = 1 << 18


class Group(NamedTuple):
    """Members that together lose ``extra`` more bytes, once, if any of them is spilled."""

    members: tuple[int, ...]
    extra: int


class SelectionProblem:
    """The covering problem of an instance: choose the candidates to spill.

    Candidates are numbered by rising index. ``first`` and ``last`` are the half-open range of points at which each
    candidate is live. A candidate in a conflict that is live at no point arrives at the next point, which may be an
    additional one after the last point.
    """

    def __init__(
        self, instance: Instance, capacity: int, conflicts: Sequence[Collection[int]], groups: Sequence[Group]
    ) -> None:
        self.instance, self.capacity = instance, capacity
        # The overloaded entries of ``times`` at which the sets of live buffers are maximal.
        overloaded = np.flatnonzero(instance.loads > capacity)
        following = np.append(instance.times, instance.ends.max(initial=0) + 1)[overloaded + 1]
        ends = np.sort(instance.ends)
        ended = np.searchsorted(ends, following) - np.searchsorted(ends, instance.times[overloaded])
        self.time_indices = overloaded[ended > 0]
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
        self.groups = []
        for members, extra in groups:
            eligible = (self.candidate_of[member] for member in members if member in self.candidate_of)
            self.groups.append(Group(tuple(eligible), extra))
        self.excess = self.loads - capacity
        self.needs = self.excess.copy()
        # The candidates that begin at each point and may share a parent's bytes there.
        self.children: list[list[Child]] = []
        # The bytes that pairs can share: kept items need their sizes minus their parts of a cover. A row with a cover
        # that is not tight, or with only the sizes, is also valid, but weaker.
        self.covers: dict[int, dict[int, int]] = {}
        self.second_covers: dict[int, tuple[int, dict[int, int]]] = {}
        for point, time in enumerate(self.times):
            begin, end = np.searchsorted(instance.starts, time + np.array([0, 1])).tolist()
            children = []
            for child in range(begin, end):
                parents = tuple(self.candidate_of[parent] for parent in instance.parents[child])
                if parents:
                    children.append(Child(self.candidate_of[child], int(instance.sizes[child]), parents))
            self.children.append(children)
            if not children:
                continue
            unshared = int(self.excess[point]) + most_shared(children)
            cheap, costly = covers(children)
            if unshared > sum(cheap.values()):
                self.covers[point], self.needs[point] = cheap, unshared - sum(cheap.values())
            if unshared > sum(costly.values()):
                self.second_covers[point] = unshared - sum(costly.values()), costly

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

    def rows(self) -> Rows:
        """Return the covering problem: a row per point, or per several; one per conflict; one per second cover."""
        shown = self.shown()
        low, high = np.searchsorted(shown, self.first), np.searchsorted(shown, self.last)
        counts = np.maximum(high - low, 0)
        items = np.repeat(np.arange(len(counts)), counts)
        row_0_entry = np.cumsum(counts) - counts - low  # the entries of an item are consecutive
        rows = np.arange(len(items)) - np.repeat(row_0_entry, counts)
        coefficients = self.sizes[items]
        for row, point in enumerate(shown.tolist()):
            for item, less in self.covers.get(point, {}).items():
                coefficients[row_0_entry[item] + row] -= less
        entries = [(rows, items, np.clip(coefficients, 0, self.needs[shown][rows]))]
        needs = [*self.needs[shown].tolist()]
        for conflict in self.conflicts:
            entries.append(
                (np.full(len(conflict), len(needs)), np.array(conflict), np.ones(len(conflict), np.int64))
            )
            needs.append(1)
        for point, (need, cover) in self.second_covers.items():
            live, coefficients = self.coefficients(point, cover, need)
            entries.append((np.full(len(live), len(needs)), live, coefficients))
            needs.append(need)
        rows, items, coefficients = (np.concatenate(columns) for columns in zip(*entries, strict=True))
        used = coefficients > 0
        costs = self.savings.copy()
        for group in self.groups:
            # Rounded down: the parts sum to at most the loss of the group, so the bound stays valid.
            costs[list(group.members)] += group.extra // max(1, len(group.members))
        return Rows(rows[used], items[used], coefficients[used], np.array(needs), costs)

    def coefficients(self, point: int, cover: Mapping[int, int], need: int) -> tuple[Array, Array]:
        """Return the items that are live at a point, and their coefficients: sizes minus their parts of a cover.

        A coefficient above the need of its row would weaken the relaxation.
        """
        live = np.flatnonzero((self.first <= point) & (self.last > point))
        less = np.array([cover.get(item, 0) for item in live.tolist()])
        return live, np.clip(self.sizes[live] - less, 0, need)

    def shown(self) -> Array:
        """Return the points that get a row: the worst point of every few, to limit the number of rows."""
        entries = int(np.maximum(self.last - self.first, 0).sum())
        several = -(-entries // _MOST_ENTRIES)
        points = np.arange(len(self.times))
        if several <= 1:
            return points
        parts = np.array_split(points, max(1, len(points) // several))
        return np.array([part[np.argmax(self.excess[part])] for part in parts])


# Branch and bound over the linear relaxation: choose the items that cover all needs at the least cost.
#
# The search is depth first. Each node solves the relaxation from its parent's final state, rounds the solution up and
# drops items that are not needed (sometimes a better choice), fixes the items whose reduced costs allow only one value,
# and branches on the item with the least clear value in the relaxation. Branch and bound is strong if many items
# compete at few points; the sweep over time below is strong over many points with few items each.

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


class BranchAndBound:
    """The search for the choice with the least loss below ``upper``; all losses are multiples of ``unit``.

    The rows are necessary conditions of an allowed choice; they need not be sufficient. ``loss`` is at least the sum
    of the costs.
    """

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
        choices, relaxation, costs = node.choices, node.relaxation, self.problem.costs
        if (self.matrix[:, choices != 0].sum(axis=1) < self.problem.needs).any():
            return []
        relaxation.run()
        duals = exact(self.problem, relaxation.duals())
        reduced = np.array(duals.reduced)
        # An item that is fixed against its reduced cost raises the bound by the reduced cost (``Multipliers``).
        bound = duals.bound + sum(np.maximum(reduced[choices == 1], 0).tolist())
        bound += sum(np.maximum(-reduced[choices == 0], 0).tolist())
        # The solution rounded up, without the items that no row needs, the most expensive items first.
        values = relaxation.solution()
        spilled = np.where(choices < 0, values > _INTEGRAL, choices == 1)
        surplus = self.matrix[:, spilled].sum(axis=1) - self.problem.needs
        chosen = np.flatnonzero(spilled)
        for item in chosen[np.argsort(-costs[chosen], kind="stable")].tolist():
            without = surplus - self.matrix[:, item]
            if (without >= 0).all():
                surplus, spilled[item] = without, False
        self._offer(spilled)
        gap = (self.upper - self.unit) * duals.scale - bound
        if gap < 0:
            return []
        # Open items are fixed if their opposite choice would raise the bound by more than the gap.
        decided = np.where(reduced > gap, 0, np.where(-reduced > gap, 1, -1))
        new = (choices < 0) & (decided >= 0)
        for item in np.flatnonzero(new).tolist():
            relaxation.fix(item, float(decided[item]))
        choices = np.where(new, decided, choices)
        if (choices >= 0).all():
            self._offer(choices == 1)
            return []
        # Branch on the open item nearest to one half, or, if all are integers, with the lowest reduced cost.
        distance = np.where(choices < 0, np.abs(values - 0.5), 1.0)
        item = int(np.argmin(distance))
        if distance[item] >= 0.5 - _INTEGRAL:
            item = int(np.argmin(np.where(choices < 0, np.abs(reduced), np.iinfo(np.int64).max)))
        likelier = int(values[item] >= 0.5)
        children = []
        for value in (1 - likelier, likelier):
            bound_of_child = _least_loss(bound, duals.scale, self.unit)
            child = RelaxedNode(relaxation.copy(), choices.copy(), bound_of_child)
            child.relaxation.fix(item, float(value))
            child.choices[item] = value
            children.append(child)
        return children

    def _offer(self, spilled: Spilled) -> None:
        """Keep a choice if it is the best so far."""
        lost = self.loss(spilled)
        if lost is not None and lost < self.upper:
            self.best, self.upper = spilled, lost


# The points of a selection problem, as input of the sweep over time.

#: Maximum number of candidates that are compared pair by pair.
_MOST_COMPARED = 2000


def sweep_points(problem: SelectionProblem, duals: Multipliers) -> list[TimePoint]:
    """Return the points in order of time, and one more after them for items that arrive later."""
    arrivals: list[list[int]] = [[] for _ in range(len(problem.times) + 1)]
    firsts = problem.first.tolist()
    # At each point, the candidates that are the likeliest to be spilled come first.
    for candidate in sorted(range(len(firsts)), key=duals.reduced.__getitem__):
        arrivals[firsts[candidate]].append(candidate)
    items = _items(problem, duals, list(itertools.chain.from_iterable(arrivals)))
    gone: list[list[KnapsackItem]] = [[] for _ in arrivals]
    for item, last in zip(items, problem.last.tolist(), strict=True):
        if item.bit:
            gone[last].append(item)
    prices = dict(zip(problem.shown().tolist(), duals.of_rows, strict=False))
    points = []
    for point, children in enumerate(problem.children):
        excess, price = int(problem.excess[point]), prices.get(point, 0)
        # Before an item is decided, enough bytes must be free for the items after it to cover the rest of the need.
        deciding, freed_before = [], excess
        for candidate in reversed(arrivals[point]):
            deciding.append(items[candidate]._replace(freed_before=freed_before))
            freed_before -= items[candidate].size
        reductions: list[tuple[int, int]] = []
        if price:
            live, coefficients = problem.coefficients(
                point, problem.covers.get(point, {}), problem.needs[point]
            )
            less = (problem.sizes[live] - coefficients).tolist()
            reductions = [
                (1 << candidate, by) for candidate, by in zip(live.tolist(), less, strict=True) if by
            ]
        points.append(
            TimePoint(
                gone[point], deciding[::-1], excess + most_shared(children), children, price,
                int(problem.needs[point]), reductions,
            )
        )  # fmt: skip
    return [*points, TimePoint(gone[-1], [items[candidate] for candidate in arrivals[-1]], 0, (), 0, 0, ())]


def _items(problem: SelectionProblem, duals: Multipliers, order: Sequence[int]) -> list[KnapsackItem]:
    """Return the items of the candidates, by candidate index; ``order`` is the order in which they are decided."""
    rank = {candidate: bit_index for bit_index, candidate in enumerate(order)}
    hits, closes, required = [0] * len(order), [0] * len(order), [0] * len(order)
    group_bits, extras = [0] * len(order), [0] * len(order)
    sets = [*((members, None) for members in problem.conflicts), *problem.groups]
    for bit_index, (members, extra) in enumerate(sets):
        if not members:
            continue
        bit, final = 1 << bit_index, max(members, key=rank.__getitem__)
        closes[final] |= bit
        required[final] |= bit if extra is None else 0
        for member in members:
            hits[member] |= bit
            if extra is not None:
                group_bits[member], extras[member] = bit, extra
    live = (problem.last > problem.first).tolist()
    sizes, savings, after = problem.sizes.tolist(), problem.savings.tolist(), _spilled_before(problem, rank)
    return [
        KnapsackItem(
            candidate, 1 << candidate if live[candidate] else 0, sizes[candidate] if live[candidate] else 0,
            savings[candidate], duals.reduced[candidate], after[candidate], hits[candidate], closes[candidate],
            required[candidate], group_bits[candidate], extras[candidate], 0,
        )
        for candidate in range(len(order))
    ]  # fmt: skip


def _spilled_before(problem: SelectionProblem, rank: Mapping[int, int]) -> list[int]:
    """Return for each candidate the set of candidates that are spilled before it."""
    # The members of a group share its extra loss, so no member dominates another.
    if len(rank) > _MOST_COMPARED or problem.groups:
        return [0] * len(rank)
    instance, candidates, numbers = problem.instance, problem.candidates, np.arange(len(rank))
    starts, ends = instance.starts[candidates], instance.ends[candidates]
    sizes, savings = problem.sizes, problem.savings
    is_paired = instance.shareable > 0
    is_paired[[parent for parents in instance.parents for parent in parents]] = True
    single = ~is_paired[candidates] & (problem.last > problem.first)
    rank_of = np.array([rank[candidate] for candidate in range(len(rank))], np.int64)
    masks = []
    for j in range(len(rank)):
        # Items that have ended at the point where j is decided are no longer in any state.
        worse = single & (starts <= starts[j]) & (ends >= ends[j]) & (problem.last > problem.first[j])
        worse &= (sizes >= sizes[j]) & (savings <= savings[j]) & (rank_of < rank_of[j])
        same = (starts == starts[j]) & (ends == ends[j]) & (sizes == sizes[j]) & (savings == savings[j])
        worse &= ~same | (numbers < j)
        masks.append(sum(1 << int(i) for i in np.flatnonzero(worse)))
    return masks


# The sweep over time that finds the cheapest selection: dynamic programming with bounds.
#
# The points are the overloaded times. At each point the arriving items are decided one after another, keep or spill;
# then enough bytes must be free. The future of a partial selection depends only on its spilled live items and on the
# conflicts that it has hit: of two partial selections with equal ones the cheaper one is kept (a state). Each state
# has a lower bound of all its completions, from Lagrange multipliers: it starts at the bound of the whole problem and
# grows by every decision against a reduced cost and by the bytes freed beyond the need of a point. A state whose bound
# exceeds the limit is dropped. At most ``width`` states continue; the lowest bound of the other states bounds the
# error of the result.

#: The spilled live items and the hit conflicts, as bit sets.
Key = tuple[int, int]

#: Linked list of spilled items, the last one first.
Link = tuple[int, "Link"] | None


class KnapsackItem(NamedTuple):
    """A buffer to decide on. ``bit`` is its bit in the set of spilled items, 0 if it is live at no point.

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


class TimePoint(NamedTuple):
    """An overloaded time, with the items ``gone`` and the ``arrivals`` since the previous point.

    ``must_free`` is the number of bytes that spilled items and kept pairs must free; ``children`` and their parents
    are item numbers. The multiplier is the cost of a byte freed beyond ``need``; for this, each spilled item counts
    its size minus its entry in ``reductions``.
    """

    gone: Sequence[KnapsackItem]
    arrivals: Sequence[KnapsackItem]
    must_free: int
    children: Sequence[Child]
    multiplier: int
    need: int
    reductions: Sequence[tuple[int, int]]


class PartialSelection(NamedTuple):
    """A state of the sweep. ``bound`` is scaled, ``lost`` and ``freed`` are bytes."""

    bound: int
    lost: int
    freed: int
    spilled: Link


class Swept(NamedTuple):
    """The cheapest selection found, or None; ``dropped`` is the lowest scaled bound of the dropped states."""

    best: PartialSelection | None
    dropped: int | None
    steps: int


def sweep(points: Sequence[TimePoint], bound: int, limit: int, width: int) -> Swept:
    """Return the cheapest selection with a scaled bound of at most ``limit``; exact if no state was dropped."""
    states: dict[Key, PartialSelection] = {(0, 0): PartialSelection(bound, 0, 0, None)}
    dropped: int | None = None
    steps = 0
    for point in points:
        if point.gone:
            ended = sum(item.bit for item in point.gone)
            before, states = states, {}
            # Of states that are equal after these items have ended, only the cheaper one is kept.
            for (mask, hit), state in before.items():
                leaving = mask & ended
                if leaving:
                    freed = sum(item.size for item in point.gone if item.bit & leaving)
                    state = state._replace(freed=state.freed - freed)
                _keep_cheaper(states, (mask ^ leaving, hit), state)
        for item in point.arrivals:
            steps += len(states)
            states = _decide(states, item, limit)
            if len(states) > width:
                # The sort is stable and dictionaries keep their order, so equal bounds are cut alike on
                # every machine.
                ranked = sorted(states.items(), key=lambda entry: entry[1].bound)
                dropped = min(x for x in (dropped, ranked[width][1].bound) if x is not None)
                states = dict(ranked[:width])
        # States that free enough bytes at the point, with the cost of bytes freed beyond the need.
        before, states = states, {}
        for (mask, hit), state in before.items():
            # Kept children share bytes with kept parents.
            sharing = [
                child._replace(parents=tuple(parent for parent in child.parents if not mask >> parent & 1))
                for child in point.children
                if not mask >> child.item & 1
            ]
            if state.freed + (most_shared(sharing) if sharing else 0) < point.must_free:
                continue
            if point.multiplier:
                counted = state.freed - sum(less for bit, less in point.reductions if mask & bit)
                state = state._replace(bound=state.bound + point.multiplier * (counted - point.need))
                if state.bound > limit:
                    continue
            states[mask, hit] = state
    best = min(states.values(), key=lambda state: state.lost, default=None)
    return Swept(best, dropped, steps)


def _decide(
    states: dict[Key, PartialSelection], item: KnapsackItem, limit: int
) -> dict[Key, PartialSelection]:
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
