# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exact packing: place all buffers within a capacity, or prove that this is impossible.

``packing`` below packs shapes. A parent and a child at one address are one shape, with the size of each while it is
live. The choice of the sharing pairs is a *joining*; every plan has one. Several joinings are tried in rounds of
growing budgets: the pairs that save the most bytes; only the pairs among them without which the load is too high; no
pairs; then all other joinings. If every joining is impossible, so is the instance. If there are too many joinings, a
relaxation may give the proof: parents are no longer live when their children begin. Buffers that cannot be packed in
the relaxation cannot be packed at all.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from spyre_mlir.optimization.arrays import Array, Floats, distinct
from spyre_mlir.optimization.bipartite import matching
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.instance import Instance

#: Parent by child: the pairs that share an address.
Joining = Mapping[int, int]

#: Maximum number of pairs of shape and section for a search, which needs some 150 bytes for each pair.
_MOST_COVERED = 4_000_000

#: Maximum number of joinings that are tried; maximum number of combinations for an exhaustive enumeration.
_JOININGS, _COMBINATIONS = 64, 4096

#: Nodes of the first joining in the first round, and the growth factor per round. The second joining gets half of
#: these nodes, the third a third, and so on.
_FIRST_ROUND, _ROUND_GROWTH = 20_000, 4

#: Total rows of the tables of failed states: at most 8 MiB.
_TABLE = 1 << 19


@dataclass(frozen=True)
class Packing:
    """``offsets`` of all buffers in bytes, or None; ``proven`` says that no packing exists. ``nodes`` is the work."""

    offsets: Array | None
    proven: bool
    nodes: int


def pack(instance: Instance, capacity: int, budget: int) -> Packing:
    """Pack all buffers in ``capacity`` bytes, with at most ``budget`` nodes of search. In-place pairs may share.

    Offsets are sums of sizes, so they are aligned. The result is deterministic.
    """
    if not len(instance):
        return Packing(np.zeros(0, np.int64), False, 0)
    # LOAD is a lower bound of every packing.
    if instance.load > capacity:
        return Packing(None, True, 0)
    # An upper bound of the number of pairs of shape and section.
    ended = np.searchsorted(instance.times, instance.ends, side="right")
    if int((ended - np.searchsorted(instance.times, instance.starts)).sum()) > _MOST_COVERED:
        return Packing(None, False, 0)
    joinings, are_all = _joinings(instance, capacity)
    # A power of two for each search, including the relaxation, and together at most ``_TABLE``.
    table = _TABLE >> len(joinings).bit_length()
    searches = [ShapePacking(_joined(instance, joining), capacity, table) for joining in joinings]
    relaxation: ShapePacking | None = None
    if not are_all:
        # Parents are not live at their last use; buffers with only this use are omitted.
        ends = instance.ends.copy()
        ends[sorted({parent for parents in instance.parents for parent in parents})] -= 1
        live = np.flatnonzero(instance.starts <= ends)
        shapes = Shapes(live, np.arange(len(live)), instance.starts[live], ends[live], instance.sizes[live])
        relaxation = ShapePacking(shapes, capacity, table)
    nodes, round_ = 0, _FIRST_ROUND
    while (searches or relaxation) and nodes < budget:
        # The first joinings are the most likely to succeed, so they get the most nodes.
        for number, search in enumerate(searches, start=1):
            before = search.nodes
            is_packed = search.run(min(-(-round_ // number), budget - nodes))
            nodes += search.nodes - before
            if is_packed:
                return Packing(search.offsets(len(instance)), False, nodes)
        searches = [search for search in searches if not search.impossible]
        if relaxation is not None:
            before = relaxation.nodes
            is_packed = relaxation.run(min(round_, budget - nodes))
            nodes += relaxation.nodes - before
            if relaxation.impossible:
                return Packing(None, True, nodes)
            relaxation = None if is_packed else relaxation
        round_ *= _ROUND_GROWTH
    # If all tried joinings are impossible, this is a proof only if there are no other joinings.
    return Packing(None, are_all and not searches, nodes)


def _joined(instance: Instance, joining: Joining) -> Shapes:
    """Return the chains of a joining, and single buffers, as shapes. A (not smaller) parent hides its child's begin."""
    child_of = {parent: child for child, parent in joining.items()}
    chains = [_chain(root, child_of) for root in range(len(instance)) if root not in joining]
    members = np.array([buffer for chain in chains for buffer in chain], np.int64)
    owner = np.repeat(np.arange(len(chains)), [len(chain) for chain in chains])
    starts, ends = instance.starts[members], instance.ends[members]
    children = np.flatnonzero(owner[1:] == owner[:-1]) + 1
    starts[children] = ends[children - 1] + 1
    return Shapes(members, owner, starts, ends, instance.sizes[members])


def _chain(buffer: int, step: Mapping[int, int]) -> list[int]:
    """Return a buffer and all buffers that follow it by ``step``."""
    chain = [buffer]
    while chain[-1] in step:
        chain.append(step[chain[-1]])
    return chain


def _joinings(instance: Instance, capacity: int) -> tuple[list[Joining], bool]:
    """Return joinings whose load is at most the capacity, the most promising first, and whether these are all."""
    # The load at each of the ``times`` without sharing: the sizes that have begun minus the sizes that have ended.
    begun, ended = (
        np.concatenate([[0], np.cumsum(instance.sizes[np.argsort(times, kind="stable")])])
        for times in (instance.starts, instance.ends)
    )
    until = np.searchsorted(np.sort(instance.starts), instance.times, side="right")
    unshared = begun[until] - ended[np.searchsorted(np.sort(instance.ends), instance.times)]
    time_indices = np.searchsorted(instance.times, instance.starts)
    children = [child for child, parents in enumerate(instance.parents) if parents]
    by_size = sorted(children, key=lambda child: (-instance.sizes[child], child))
    overloaded = [child for child in by_size if unshared[time_indices[child]] > capacity]
    likely = (_largest_joining(instance, subset).items() for subset in (by_size, overloaded))
    few = math.prod(len(parents) + 1 for parents in instance.parents) <= _COMBINATIONS
    others = _combinations(instance, children) if few else _random_joinings(instance, children)
    different: dict[frozenset[tuple[int, int]], Joining] = {}
    for joining in itertools.chain((_join_all(instance, pairs) for pairs in likely), [{}], others):
        loads, joined = unshared.copy(), list(joining)
        np.subtract.at(loads, time_indices[joined], instance.sizes[joined])
        if loads.max() <= capacity:
            different.setdefault(frozenset(joining.items()), joining)
        if len(different) > _JOININGS:
            return list(different.values())[:_JOININGS], False
    return list(different.values()), few


def _largest_joining(instance: Instance, children: Sequence[int]) -> Joining:
    """Return a maximum set of pairs with different parents, preferring the smallest parents.

    If larger children come first, no set of pairs saves more bytes at any time.
    """

    def parents_by_size(child: int) -> list[int]:
        return sorted(instance.parents[child], key=lambda parent: (instance.sizes[parent], parent))

    pairs = matching({child: parents_by_size(child) for child in children})
    return dict(sorted(pairs.items(), key=lambda pair: pair[1]))


def _random_joinings(instance: Instance, children: Sequence[int]) -> Iterator[Joining]:
    """Yield some of many joinings, by random matchings in which size has less and less weight."""
    rng = random.Random(0)
    for number in range(_JOININGS):
        weight = number / _JOININGS
        priority = {child: -instance.sizes[child] * rng.random() ** weight for child in children}
        pairs = list(_largest_joining(instance, sorted(children, key=priority.__getitem__)).items())
        rng.shuffle(pairs)
        yield _join_all(instance, pairs)


def _combinations(instance: Instance, children: Sequence[int]) -> Iterator[Joining]:
    """Yield every joining: for each child one of its parents, or none. Roughly, joinings with more pairs come first."""
    for parents in itertools.product(*((*instance.parents[child], None) for child in children)):
        pairs = zip(children, parents, strict=True)
        chosen = [(child, parent) for child, parent in pairs if parent is not None]
        joining = _join_all(instance, chosen)
        if len(joining) == len(chosen):
            yield joining


def _join_all(instance: Instance, pairs: Iterable[tuple[int, int]]) -> Joining:
    """Return the pairs (child, parent) that can be joined, given the pairs before them.

    If the only use of a buffer is both its begin and its end, its parent and its child are live together there, so all
    three share an address only if parent and child are a pair as well.
    """
    parent_of: dict[int, int] = {}
    child_of: dict[int, int] = {}

    def live(chain: list[int], times: Array, time: int) -> list[int]:
        return list(itertools.takewhile(lambda buffer: times[buffer] == time, chain))

    for child, parent in pairs:
        if child in parent_of or parent in child_of:
            continue
        time = instance.starts[child]
        older = live(_chain(parent, parent_of), instance.ends, time)
        younger = live(_chain(child, child_of), instance.starts, time)
        if all(old in instance.parents[young] for old in older for young in younger):
            parent_of[child], child_of[parent] = parent, child
    return parent_of


# Exact packing of shapes (intervals in time with heights) within a capacity, by restarts of ``packing_search.py``.
#
# Sections. A time at which a shape begins is a section only if a shape ends or shrinks before the next such time;
# shapes that are live at any other time are also live at the next time.
#
# Restarts. The time to a solution has a heavy tail: one order of branches finds it at once, another one never (Gomes
# et al., "Heavy-tailed phenomena in satisfiability and constraint satisfaction problems", 2000). So each of a few
# orders gets a small number of nodes, and later a larger number with a slightly disturbed order. The two rules for the
# choice of sections alternate: fewest branches solves most hard sets, least slack solves sets without slack.

#: Nodes per shape of the first search, and the growth factor per search.
_FIRST_SEARCH, _SEARCH_GROWTH = 3, 1.03

#: One search per this number of searches chooses sections by slack. Coprime to the number of orders: all pairs occur.
_SLACK_PERIOD = 3

#: Maximum move of a shape in a disturbed order, as a fraction of all ranks.
_DISTURBANCE = 0.25


class Shapes(NamedTuple):
    """Shapes: groups of items with one offset each. Row k belongs to shape ``owner[k]``, which has no gaps in time.

    Row k gives the shape the height ``heights[k]`` at the times ``starts[k]`` to ``ends[k]``, both included, for the
    item ``items[k]``. Rows are sorted by shape and time; heights fall within a shape.
    """

    items: Array
    owner: Array
    starts: Array
    ends: Array
    heights: Array


class ShapePacking:
    """The search for offsets of one set of shapes; ``nodes`` is the number of nodes visited so far.

    ``impossible`` says that the shapes are proven not to fit. Failed states are kept in a table of ``table_rows`` rows,
    a power of two. All data is prepared lazily, in the first run.
    """

    def __init__(self, shapes: Shapes, capacity: int, table_rows: int) -> None:
        self._shapes, self._capacity = shapes, capacity
        self._table_rows = table_rows
        self._unit = math.gcd(*shapes.heights.tolist())
        self.nodes = 0
        self.impossible = False

    def run(self, nodes: int) -> bool:
        """Return whether a packing is found within ``nodes`` more nodes."""
        # Importing numba takes time, and most plans need no search.
        from spyre_mlir.optimization.packing_search import IMPOSSIBLE, PLACED, search

        end = self.nodes + nodes
        while self.nodes < end and not self.impossible:
            scores, rule, node_limit = next(self._orders)
            budget = min(node_limit, end - self.nodes)
            problem, state, failed = self._prepared
            outcome, visited = search(problem, state, scores, rule, budget, failed)
            self.nodes += visited
            if outcome == PLACED:
                return True
            self.impossible = outcome == IMPOSSIBLE
        return False

    def offsets(self, count: int) -> Array:
        """Return the offsets of ``count`` items, after a packing was found."""
        offsets = np.zeros(count, np.int64)
        offsets[self._shapes.items] = self._prepared[1].offset[self._shapes.owner] * self._unit
        return offsets

    @functools.cached_property
    def _prepared(self):
        """The problem over sections, its state, and the table of failed states that searches fill."""
        from spyre_mlir.optimization.packing_search import PackingProblem, start

        shapes = self._shapes
        roots = np.flatnonzero(np.diff(shapes.owner, prepend=-1))
        begins = distinct(shapes.starts[roots])
        sections = begins[distinct(np.searchsorted(begins, shapes.ends, side="right") - 1)]
        lower = np.searchsorted(sections, shapes.starts)
        length = np.searchsorted(sections, shapes.ends, side="right") - lower
        owner, heights = (
            np.repeat(column, length) for column in (shapes.owner, shapes.heights // self._unit)
        )
        begin = np.flatnonzero(np.diff(owner, prepend=-1))
        lower = lower[roots]
        column = begin - lower
        covered = np.arange(len(owner)) - column[owner]
        # Shapes over the same sections with the same heights are of one kind.
        kinds: dict[tuple[int, bytes], int] = {}
        columns = (part.tobytes() for part in np.split(heights, begin[1:]))
        kind = [kinds.setdefault(key, len(kinds)) for key in zip(lower.tolist(), columns, strict=True)]
        problem = PackingProblem(
            # More than the sum of all heights is never needed, and a small number keeps sums and hashes exact.
            capacity=min(self._capacity // self._unit, int(heights.sum())),
            lower=lower,
            upper=lower + np.bincount(owner),
            column=column,
            heights=heights,
            least=np.minimum.reduceat(heights, begin),
            kind=np.array(kind, np.int64),
            first=np.searchsorted(np.sort(covered), np.arange(len(sections) + 1)),
            cover=owner[np.argsort(covered, kind="stable")],
        )
        return problem, start(problem), np.zeros((self._table_rows, 2), np.uint64)

    @functools.cached_property
    def _orders(self) -> Iterator[tuple[Floats, int, int]]:
        """The scores, the rule and the number of nodes of each search, in turn."""
        from spyre_mlir.optimization.packing_search import FEWEST_BRANCHES, LEAST_SLACK

        shapes, problem = self._shapes, self._prepared[0]
        sections = problem.upper - problem.lower
        begin = problem.column + problem.lower
        height, area = problem.heights[begin], np.add.reduceat(problem.heights, begin)
        lengths = shapes.ends - shapes.starts + 1
        length = np.bincount(shapes.owner, lengths)
        volume = np.bincount(shapes.owner, lengths * shapes.heights)
        # Longest, largest, longest live range, highest, or most bytes x operations first: ``lexsort`` compares by the
        # last key first.
        keys = ((height, sections), (area,), (height, length), (sections, height), (volume,))
        ranks = [np.argsort(np.lexsort(key)).astype(np.float64) for key in keys]
        rng, count = random.Random(0), len(begin)
        nodes = float(_FIRST_SEARCH * count)
        for number, rank in enumerate(itertools.cycle(ranks)):
            rule = FEWEST_BRANCHES if number % _SLACK_PERIOD else LEAST_SLACK
            most_moved = _DISTURBANCE * count if number >= len(ranks) else 0.0
            moved = np.array([rng.uniform(-most_moved, most_moved) for _ in range(count)])
            yield rank + moved, rule, int(nodes)
            nodes *= _SEARCH_GROWTH
