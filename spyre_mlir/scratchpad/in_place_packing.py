# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exact packing: all buffers inside a capacity, or the proof that this is impossible.

Shapes are packed by ``optimization/packing.py``. A parent and a child at one address are one shape, which has the
size of each while it lives. Which pairs share is a choice, and every plan belongs to one such *joining*. Several are
tried in rounds of growing budgets: the pairs that save the most bytes, of these only those without which the load is
too high, none, then all others. If each of them is impossible, so is the instance. There can be too many for that;
then a relaxation may give the proof: no parent is live any more when its child begins. What cannot be packed even so
cannot be packed.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from spyre_mlir.optimization.arrays import Array
from spyre_mlir.optimization.bipartite import matching
from spyre_mlir.optimization.packing import ShapePacking, Shapes
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.instance import Instance

#: Parent by child: the pairs that share an address.
Joining = Mapping[int, int]

#: Pairs of shape and section beyond which no search begins: it needs some 150 bytes for each.
_MOST_COVERED = 4_000_000

#: How many joinings are tried, and among how many combinations they are sought one by one.
_JOININGS, _COMBINATIONS = 64, 4096

#: Nodes of the first joining in the first round, and how many times more each later round has. The second joining
#: has half as many, the third a third, and so on.
_FIRST_ROUND, _ROUND_GROWTH = 20_000, 4

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
    # LOAD bounds every packing from below.
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
        # A power of two for each search, the relaxed one included, and together at most ``_TABLE``.
        table = _TABLE >> len(joinings).bit_length()
        self._open = [ShapePacking(_joined(instance, joining), capacity, table) for joining in joinings]
        self._relaxed = None if self._complete else ShapePacking(_relaxed(instance), capacity, table)

    def run(self) -> Packing:
        """Rounds until a joining is packed, all are impossible, or the budget is spent."""
        round_ = _FIRST_ROUND
        while (self._open or self._relaxed) and self._nodes < self._budget:
            # The first joinings are the likeliest ones, so they get the most nodes.
            for number, search in enumerate(self._open, start=1):
                if self._run(search, -(-round_ // number)):
                    return Packing(search.offsets(self._count), False, self._nodes)
            self._open = [search for search in self._open if not search.impossible]
            if self._relaxed is not None and self._run(self._relaxed, round_):
                self._relaxed = None
            if self._relaxed is not None and self._relaxed.impossible:
                return Packing(None, True, self._nodes)
            round_ *= _ROUND_GROWTH
        # That all joinings are impossible is a proof only if there are no others.
        return Packing(None, self._complete and not self._open, self._nodes)

    def _run(self, search: ShapePacking, nodes: int) -> bool:
        before = search.nodes
        is_packed = search.run(min(nodes, self._budget - self._nodes))
        self._nodes += search.nodes - before
        return is_packed


def _joined(instance: Instance, joining: Joining) -> Shapes:
    """The chains of a joining, and all other buffers alone. A parent, no smaller, hides the begin of its child."""
    child_of = {parent: child for child, parent in joining.items()}
    chains = [list(_followed(root, child_of)) for root in range(len(instance)) if root not in joining]
    members = np.array([buffer for chain in chains for buffer in chain], np.int64)
    owner = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains])
    starts, ends = instance.starts[members], instance.ends[members]
    children = np.flatnonzero(owner[1:] == owner[:-1]) + 1
    starts[children] = ends[children - 1] + 1
    return Shapes(members, owner, starts, ends, instance.sizes[members])


def _followed(buffer: int, step: Mapping[int, int]) -> Iterator[int]:
    yield buffer
    while buffer in step:
        buffer = step[buffer]
        yield buffer


def _relaxed(instance: Instance) -> Shapes:
    """No parent is live at its last use; what is live at no other time is left out."""
    ends = instance.ends.copy()
    ends[sorted({parent for parents in instance.parents for parent in parents})] -= 1
    live = np.flatnonzero(instance.starts <= ends)
    return Shapes(live, np.arange(len(live)), instance.starts[live], ends[live], instance.sizes[live])


def _joinings(instance: Instance, capacity: int) -> tuple[list[Joining], bool]:
    """Joinings whose load is no more than the capacity, the most promising ones first; whether these are all."""
    unshared = _loads_apart(instance)
    time_indices = np.searchsorted(instance.times, instance.starts)

    def fits(joining: Joining) -> bool:
        loads = unshared.copy()
        children = list(joining)
        np.subtract.at(loads, time_indices[children], instance.sizes[children])
        return loads.max() <= capacity

    children = sorted(_children(instance), key=lambda child: (-instance.sizes[child], child))
    largest = _largest_joining(instance, children)
    needed = _largest_joining(
        instance, [child for child in children if unshared[time_indices[child]] > capacity]
    )
    few = math.prod(len(parents) + 1 for parents in instance.parents) <= _COMBINATIONS
    others = _combinations(instance) if few else _random_joinings(instance)
    joinings = itertools.chain(
        (_Links(instance).join_all(pairs.items()) for pairs in (largest, needed)), [{}], others
    )
    different = list(itertools.islice(_different(filter(fits, joinings)), _JOININGS + 1))
    return different[:_JOININGS], few and len(different) <= _JOININGS


def _different(joinings: Iterable[Joining]) -> Iterator[Joining]:
    seen = set()
    for joining in joinings:
        pairs = frozenset(joining.items())
        if pairs not in seen:
            seen.add(pairs)
            yield joining


def _children(instance: Instance) -> list[int]:
    return [child for child, parents in enumerate(instance.parents) if parents]


def _largest_joining(instance: Instance, children: Sequence[int]) -> Joining:
    """A largest set of pairs with different parents, the smallest parents preferred.

    If larger children come first no set of pairs saves more bytes at any time.
    """
    parents = {
        child: sorted(instance.parents[child], key=lambda parent: (instance.sizes[parent], parent))
        for child in children
    }
    return dict(sorted(matching(parents).items(), key=lambda pair: pair[1]))


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
        pairs = list(_largest_joining(instance, sorted(children, key=lambda child: priority[child])).items())
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
        """Return the pairs (child, parent) that can be joined after the ones before."""
        for child, parent in pairs:
            if self._can_join(child, parent):
                self._parent[child], self._child[parent] = parent, child
        return self._parent

    def _can_join(self, child: int, parent: int) -> bool:
        if child in self._parent or parent in self._child:
            return False
        time = self._instance.starts[child]
        older = self._live(parent, self._parent, lambda buffer: self._instance.ends[buffer] == time)
        younger = self._live(child, self._child, lambda buffer: self._instance.starts[buffer] == time)
        return all(old in self._instance.parents[young] for old in older for young in younger)

    def _live(self, buffer: int, step: Mapping[int, int], is_live: Callable[[int], bool]) -> list[int]:
        return list(itertools.takewhile(is_live, _followed(buffer, step)))
