"""Exact packing: all buffers inside a capacity, or the proof that this is impossible.

``pack`` is the interface, ``packing_search`` the search for shapes. This module has what lies between:

In place. A parent and a child at one address are one shape, which has the size of each while it lives. Which pairs
share is a choice, and every plan belongs to one such *joining*. Several are tried in rounds of growing budgets: the
pairs that save the most bytes, of these only those without which the load is too high, none, then all others. If
each of them is impossible, so is the instance. There can be too many for that; then a relaxation may give the proof:
no parent is live any more when its child begins. What cannot be packed even so cannot be packed.

Sections. Of the times at which a shape begins only those count before whose successor a shape ends or shrinks: what
is live at any other one is live at the next one too.

Restarts. The time to a solution has a heavy tail: one order of branches leads to it at once, another one never (Gomes
et al., "Heavy-tailed phenomena in satisfiability and constraint satisfaction problems", 2000). So each of a few orders
gets a small number of nodes, in later rounds a larger one and a little disturbed.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.scratchpad.instance import Array, Instance

if TYPE_CHECKING:
    from spyre_mlir.scratchpad.packing_search import Problem, State

#: Parent by child: the pairs that share an address.
Joining = Mapping[int, int]

#: Pairs of shape and section beyond which no search begins: it needs some 150 bytes for each.
_MOST_COVERED = 4_000_000

#: How many joinings are tried, and among how many combinations they are sought one by one.
_JOININGS, _COMBINATIONS = 64, 4096

#: Nodes of the first joining in the first round, and how many times more each later round has. The second joining
#: has half as many, the third a third, and so on.
_FIRST_ROUND, _ROUND_GROWTH = 20_000, 4

#: Nodes per shape of the first searches, and how many times more those of each later round have.
_FIRST_SEARCH, _SEARCH_GROWTH = 3, 1.5

#: By how much of all ranks a shape moves at most when an order is disturbed.
_DISTURBANCE = 0.25

#: Rows of the tables of failed states, all together: at most 8 MiB.
_TABLE = 1 << 19


@dataclass(frozen=True)
class Packing:
    """``offsets`` of all buffers in bytes, or None: then ``proven`` says that there are none. ``nodes`` is the work."""

    offsets: Array | None
    proven: bool
    nodes: int


def pack(instance: Instance, capacity: int, budget: int) -> Packing:
    """All buffers inside ``capacity`` bytes, with at most ``budget`` nodes of search. In-place pairs may share.

    Offsets are sums of sizes, so they are aligned. Deterministic.
    """
    if not len(instance):
        return Packing(np.zeros(0, np.int64), False, 0)
    if instance.load > capacity:
        return Packing(None, True, 0)
    if _covered(instance) > _MOST_COVERED:
        return Packing(None, False, 0)
    return _Attempts(instance, capacity, budget).run()


def _covered(instance: Instance) -> int:
    """At least the pairs of shape and section."""
    ended = np.searchsorted(instance.times, instance.ends, side="right")
    return int((ended - np.searchsorted(instance.times, instance.starts)).sum())


class _Attempts:
    """The searches for each joining and for the relaxation; ``nodes`` are those of all."""

    def __init__(self, instance: Instance, capacity: int, budget: int) -> None:
        self._count = len(instance)
        self._budget = budget
        self._nodes = 0
        joinings, self._complete = _joinings(instance, capacity)
        table = _TABLE >> len(joinings).bit_length()
        self._open = [_Search(_joined(instance, joining), capacity, table) for joining in joinings]
        self._relaxed = None if self._complete else _Search(_relaxed(instance), capacity, table)

    def run(self) -> Packing:
        """Rounds until a joining is packed, all are impossible, or the budget is spent."""
        round_ = _FIRST_ROUND
        while (self._open or self._relaxed) and self._nodes < self._budget:
            for number, search in enumerate(self._open, start=1):
                if self._run(search, -(-round_ // number)):
                    return Packing(search.offsets(self._count), False, self._nodes)
            self._open = [search for search in self._open if not search.impossible]
            if self._relaxed is not None and self._run(self._relaxed, round_):
                self._relaxed = None
            if self._relaxed is not None and self._relaxed.impossible:
                return Packing(None, True, self._nodes)
            round_ *= _ROUND_GROWTH
        return Packing(None, self._complete and not self._open, self._nodes)

    def _run(self, search: _Search, nodes: int) -> bool:
        before = search.nodes
        found = search.run(min(nodes, self._budget - self._nodes))
        self._nodes += search.nodes - before
        return found


class _Shapes(NamedTuple):
    """Groups of buffers at one offset each. Row k belongs to shape ``owner[k]``, which has no gaps in time.

    It gives the shape the height ``heights[k]`` at the times ``starts[k]`` to ``ends[k]``, both included, for the
    buffer ``buffers[k]``. Rows are sorted by shape and time; heights fall within a shape.
    """

    buffers: Array
    owner: Array
    starts: Array
    ends: Array
    heights: Array


def _joined(instance: Instance, joining: Joining) -> _Shapes:
    """The chains of a joining, and all other buffers alone. A parent, no smaller, hides the begin of its child."""
    child_of = {parent: child for child, parent in joining.items()}
    chains = [list(_followed(root, child_of)) for root in range(len(instance)) if root not in joining]
    buffers = np.array([at for chain in chains for at in chain], np.int64)
    owner = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains])
    starts, ends = instance.starts[buffers], instance.ends[buffers]
    children = np.flatnonzero(owner[1:] == owner[:-1]) + 1
    starts[children] = ends[children - 1] + 1
    return _Shapes(buffers, owner, starts, ends, instance.sizes[buffers])


def _followed(at: int, step: Mapping[int, int]) -> Iterator[int]:
    yield at
    while at in step:
        at = step[at]
        yield at


def _relaxed(instance: Instance) -> _Shapes:
    """No parent is live at its last use; what is live at no other time is left out."""
    ends = instance.ends.copy()
    ends[sorted({parent for parents in instance.parents for parent in parents})] -= 1
    kept = np.flatnonzero(instance.starts <= ends)
    return _Shapes(kept, np.arange(len(kept)), instance.starts[kept], ends[kept], instance.sizes[kept])


def _joinings(instance: Instance, capacity: int) -> tuple[list[Joining], bool]:
    """Joinings whose load is no more than the capacity, the most promising ones first; whether these are all."""
    apart = _loads_apart(instance)
    at = np.searchsorted(instance.times, instance.starts)

    def fits(joining: Joining) -> bool:
        loads = apart.copy()
        children = list(joining)
        np.subtract.at(loads, at[children], instance.sizes[children])
        return loads.max() <= capacity

    children = sorted(_children(instance), key=lambda child: (-instance.sizes[child], child))
    most = _matching(instance, children)
    needed = _matching(instance, [child for child in children if apart[at[child]] > capacity])
    few = math.prod(len(parents) + 1 for parents in instance.parents) <= _COMBINATIONS
    others = _combinations(instance) if few else _random_joinings(instance)
    joinings = itertools.chain(
        (_Links(instance).join_all(each.items()) for each in (most, needed)), [{}], others
    )
    found = list(itertools.islice(_different(filter(fits, joinings)), _JOININGS + 1))
    return found[:_JOININGS], few and len(found) <= _JOININGS


def _different(joinings: Iterable[Joining]) -> Iterator[Joining]:
    seen = set()
    for joining in joinings:
        pairs = frozenset(joining.items())
        if pairs not in seen:
            seen.add(pairs)
            yield joining


def _children(instance: Instance) -> list[int]:
    return [child for child, parents in enumerate(instance.parents) if parents]


def _matching(instance: Instance, children: Sequence[int]) -> Joining:
    """A largest set of pairs with different parents; no child goes without for the sake of a later one.

    By augmenting paths (Kuhn). If larger children come first no set of pairs saves more bytes at any time.
    """
    child_of: dict[int, int] = {}

    def find(child: int, seen: set[int]) -> bool:
        for parent in sorted(instance.parents[child], key=lambda parent: (instance.sizes[parent], parent)):
            if parent in seen:
                continue
            seen.add(parent)
            if parent not in child_of or find(child_of[parent], seen):
                child_of[parent] = child
                return True
        return False

    for child in children:
        find(child, set())
    return {child: parent for parent, child in sorted(child_of.items())}


def _loads_apart(instance: Instance) -> Array:
    """Per entry of ``times`` the sizes of all live buffers, nothing shared."""
    begun, ended = (
        np.concatenate([[0], np.cumsum(instance.sizes[np.argsort(times, kind="stable")])])
        for times in (instance.starts, instance.ends)
    )
    until = np.searchsorted(np.sort(instance.starts), instance.times, side="right")
    before = np.searchsorted(np.sort(instance.ends), instance.times)
    return begun[until] - ended[before]


def _random_joinings(instance: Instance) -> Iterator[Joining]:
    """Some joinings of many, by matchings in which size counts less and less."""
    rng = random.Random(0)
    children = _children(instance)
    for number in range(_JOININGS):
        priority = {
            child: -instance.sizes[child] * rng.random() ** (number / _JOININGS) for child in children
        }
        pairs = list(_matching(instance, sorted(children, key=lambda child: priority[child])).items())
        rng.shuffle(pairs)
        yield _Links(instance).join_all(pairs)


def _combinations(instance: Instance) -> Iterator[Joining]:
    """Every joining: for each child one of its parents, or none. Those with more pairs first, roughly."""
    children = _children(instance)
    for parents in itertools.product(*((*instance.parents[child], None) for child in children)):
        pairs = zip(children, parents, strict=True)
        chosen = [(child, parent) for child, parent in pairs if parent is not None]
        joining = _Links(instance).join_all(chosen)
        if len(joining) == len(chosen):
            yield joining


class _Links:
    """Chains of pairs.

    The neighbours of a buffer whose only use is the hand-over are live together, so they share an address with it
    only if they are a pair as well.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._parent: dict[int, int] = {}
        self._child: dict[int, int] = {}

    def join_all(self, pairs: Iterable[tuple[int, int]]) -> Joining:
        """Those of the pairs (child, parent) that can be joined after the ones before."""
        for child, parent in pairs:
            if self._can_join(child, parent):
                self._parent[child], self._child[parent] = parent, child
        return self._parent

    def _can_join(self, child: int, parent: int) -> bool:
        if child in self._parent or parent in self._child:
            return False
        time = self._instance.starts[child]
        older = self._live(parent, self._parent, lambda at: self._instance.ends[at] == time)
        younger = self._live(child, self._child, lambda at: self._instance.starts[at] == time)
        return all(old in self._instance.parents[young] for old in older for young in younger)

    def _live(self, at: int, step: Mapping[int, int], is_live: Callable[[int], bool]) -> list[int]:
        return list(itertools.takewhile(is_live, _followed(at, step)))


class _Search:
    """Restarts of the search for one set of shapes; ``nodes`` are those so far.

    ``impossible`` says that it is proven that they cannot be packed. Nothing is prepared before the first run.
    """

    def __init__(self, shapes: _Shapes, capacity: int, table: int) -> None:
        self._shapes, self._capacity = shapes, capacity
        self._table = table
        self._unit = math.gcd(*shapes.heights.tolist())
        self.nodes = 0
        self.impossible = False

    def run(self, nodes: int) -> bool:
        """Whether a packing is found within some more nodes."""
        # numba takes a while to import, and most plans need no search.
        from spyre_mlir.scratchpad.packing_search import IMPOSSIBLE, PLACED, search

        end = self.nodes + nodes
        while self.nodes < end and not self.impossible:
            scores, rule, most = next(self._orders)
            budget = min(most, end - self.nodes)
            outcome, visited = search(
                self._problem, self._state, scores, rule, budget, self._failures, self._failed
            )
            self.nodes += visited
            if outcome == PLACED:
                return True
            self.impossible = outcome == IMPOSSIBLE
        return False

    def offsets(self, count: int) -> Array:
        """The offsets in bytes of ``count`` buffers, after a packing was found."""
        found = np.zeros(count, np.int64)
        found[self._shapes.buffers] = self._state.offset[self._shapes.owner] * self._unit
        return found

    @functools.cached_property
    def _problem(self) -> Problem:
        return _problem(self._shapes, self._capacity, self._unit)

    @functools.cached_property
    def _state(self) -> State:
        from spyre_mlir.scratchpad.packing_search import start

        return start(self._problem)

    @functools.cached_property
    def _failures(self) -> Array:
        return np.ones(len(self._state.floor), np.int64)

    @functools.cached_property
    def _failed(self) -> NDArray[np.uint64]:
        return np.zeros((self._table, 2), np.uint64)

    @functools.cached_property
    def _orders(self) -> Iterator[tuple[NDArray[np.float64], int, int]]:
        return _orders(_ranks(self._shapes, self._problem))


def _orders(ranks: Sequence[NDArray[np.float64]]) -> Iterator[tuple[NDArray[np.float64], int, int]]:
    """For each search the scores, the rule and the nodes."""
    from spyre_mlir.scratchpad.packing_search import FEWEST_BRANCHES, MOST_FAILURES

    rng = random.Random(0)
    count = len(ranks[0])
    nodes, most_moved = float(_FIRST_SEARCH * count), 0.0
    while True:
        for rank in ranks:
            for rule in (FEWEST_BRANCHES, MOST_FAILURES):
                moved = np.array([rng.uniform(-most_moved, most_moved) for _ in range(count)])
                yield rank + moved, rule, int(nodes)
        nodes *= _SEARCH_GROWTH
        most_moved = _DISTURBANCE * count


def _ranks(shapes: _Shapes, problem: Problem) -> Sequence[NDArray[np.float64]]:
    """Orders of the shapes: longest, largest, longest-lived, highest, and of the most bytes x operations first."""
    sections = problem.upper - problem.lower
    begin = problem.at + problem.lower
    height, area = problem.heights[begin], np.add.reduceat(problem.heights, begin)
    lives = shapes.ends - shapes.starts + 1
    life = np.bincount(shapes.owner, lives)
    volume = np.bincount(shapes.owner, lives * shapes.heights)
    keys = ((height, sections), (area,), (height, life), (sections, height), (volume,))
    return [np.argsort(np.lexsort(key)).astype(np.float64) for key in keys]


def _problem(shapes: _Shapes, capacity: int, unit: int) -> Problem:
    """The shapes over sections, in units of bytes."""
    from spyre_mlir.scratchpad.packing_search import Problem

    roots = np.flatnonzero(np.diff(shapes.owner, prepend=-1))
    begins = np.unique(shapes.starts[roots])
    sections = begins[np.unique(np.searchsorted(begins, shapes.ends, side="right") - 1)]
    lower = np.searchsorted(sections, shapes.starts)
    length = np.searchsorted(sections, shapes.ends, side="right") - lower
    owner, heights = (np.repeat(each, length) for each in (shapes.owner, shapes.heights // unit))
    begin = np.flatnonzero(np.diff(owner, prepend=-1))
    lower = lower[roots]
    at = begin - lower
    covered = np.arange(len(owner)) - at[owner]
    return Problem(
        # More than all heights is never needed, and a small number keeps sums and hashes exact.
        capacity=min(capacity // unit, int(heights.sum())),
        lower=lower,
        upper=lower + np.bincount(owner),
        at=at,
        heights=heights,
        least=np.minimum.reduceat(heights, begin),
        kind=_kinds(lower, np.split(heights, begin[1:])),
        first=np.searchsorted(np.sort(covered), np.arange(len(sections) + 1)),
        cover=owner[np.argsort(covered, kind="stable")],
    )


def _kinds(lower: Array, heights: Sequence[Array]) -> Array:
    """The same number for shapes over the same sections with the same heights."""
    numbers: dict[tuple[int, bytes], int] = {}
    keys = ((at, each.tobytes()) for at, each in zip(lower.tolist(), heights, strict=True))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
