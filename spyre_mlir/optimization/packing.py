# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packing of shapes, intervals in time with heights, inside a capacity: exact, by restarts of ``packing_search.py``.

Sections. Of the times at which a shape begins only those count before whose successor a shape ends or shrinks: what
is live at any other one is live at the next one too.

Restarts. The time to a solution has a heavy tail: one order of branches leads to it at once, another one never (Gomes
et al., "Heavy-tailed phenomena in satisfiability and constraint satisfaction problems", 2000). So each of a few orders
gets a small number of nodes, later a larger one and a little disturbed. The two rules for the choice of sections
interleave: that of the fewest branches solves most hard sets, that of the least slack those without any.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spyre_mlir.optimization.arrays import Array, Floats, distinct

if TYPE_CHECKING:
    from spyre_mlir.optimization.packing_search import PackingProblem

#: Nodes per shape of the first search, and how many times more each later one has.
_FIRST_SEARCH, _SEARCH_GROWTH = 3, 1.03

#: Every so many searches one chooses sections by slack. Prime to the number of orders, so that all pairs occur.
_SLACK_PERIOD = 3

#: By how much of all ranks a shape moves at most when an order is disturbed.
_DISTURBANCE = 0.25


class Shapes(NamedTuple):
    """Groups of items at one offset each. Row k belongs to shape ``owner[k]``, which has no gaps in time.

    It gives the shape the height ``heights[k]`` at the times ``starts[k]`` to ``ends[k]``, both included, for the
    item ``items[k]``. Rows are sorted by shape and time; heights fall within a shape.
    """

    items: Array
    owner: Array
    starts: Array
    ends: Array
    heights: Array


class ShapePacking:
    """The search for offsets of one set of shapes; ``nodes`` are those visited so far.

    ``impossible`` says that it is proven that they cannot be packed. Failed states are kept in a table of
    ``table_rows``, a power of two. Nothing is prepared before the first run.
    """

    def __init__(self, shapes: Shapes, capacity: int, table_rows: int) -> None:
        self._shapes, self._capacity = shapes, capacity
        self._table_rows = table_rows
        self._unit = math.gcd(*shapes.heights.tolist())
        self.nodes = 0
        self.impossible = False

    def run(self, nodes: int) -> bool:
        """Return whether a packing is found within some more nodes."""
        # numba takes a while to import, and most plans need no search.
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
        """The problem, its state, and what searches learn: the table of failed states."""
        from spyre_mlir.optimization.packing_search import start

        problem = _problem(self._shapes, self._capacity, self._unit)
        return problem, start(problem), np.zeros((self._table_rows, 2), np.uint64)

    @functools.cached_property
    def _orders(self) -> Iterator[tuple[Floats, int, int]]:
        return _orders(_ranks(self._shapes, self._prepared[0]))


def _orders(ranks: Sequence[Floats]) -> Iterator[tuple[Floats, int, int]]:
    """Yield for each search the scores, the rule and the nodes."""
    from spyre_mlir.optimization.packing_search import FEWEST_BRANCHES, LEAST_SLACK

    rng = random.Random(0)
    count = len(ranks[0])
    nodes = float(_FIRST_SEARCH * count)
    for number, rank in enumerate(itertools.cycle(ranks)):
        rule = FEWEST_BRANCHES if number % _SLACK_PERIOD else LEAST_SLACK
        most_moved = _DISTURBANCE * count if number >= len(ranks) else 0.0
        moved = np.array([rng.uniform(-most_moved, most_moved) for _ in range(count)])
        yield rank + moved, rule, int(nodes)
        nodes *= _SEARCH_GROWTH


def _ranks(shapes: Shapes, problem: PackingProblem) -> Sequence[Floats]:
    """Orders of the shapes: longest, largest, longest-lived, highest, and of the most bytes x operations first."""
    sections = problem.upper - problem.lower
    begin = problem.column + problem.lower
    height, area = problem.heights[begin], np.add.reduceat(problem.heights, begin)
    lengths = shapes.ends - shapes.starts + 1
    length = np.bincount(shapes.owner, lengths)
    volume = np.bincount(shapes.owner, lengths * shapes.heights)
    # ``lexsort`` compares by the last key first.
    keys = ((height, sections), (area,), (height, length), (sections, height), (volume,))
    return [np.argsort(np.lexsort(key)).astype(np.float64) for key in keys]


def _problem(shapes: Shapes, capacity: int, unit: int) -> PackingProblem:
    """The shapes over sections, in units of bytes."""
    from spyre_mlir.optimization.packing_search import PackingProblem

    roots = np.flatnonzero(np.diff(shapes.owner, prepend=-1))
    begins = distinct(shapes.starts[roots])
    sections = begins[distinct(np.searchsorted(begins, shapes.ends, side="right") - 1)]
    lower = np.searchsorted(sections, shapes.starts)
    length = np.searchsorted(sections, shapes.ends, side="right") - lower
    owner, heights = (np.repeat(column, length) for column in (shapes.owner, shapes.heights // unit))
    begin = np.flatnonzero(np.diff(owner, prepend=-1))
    lower = lower[roots]
    column = begin - lower
    covered = np.arange(len(owner)) - column[owner]
    return PackingProblem(
        # More than all heights is never needed, and a small number keeps sums and hashes exact.
        capacity=min(capacity // unit, int(heights.sum())),
        lower=lower,
        upper=lower + np.bincount(owner),
        column=column,
        heights=heights,
        least=np.minimum.reduceat(heights, begin),
        kind=_kinds(lower, np.split(heights, begin[1:])),
        first=np.searchsorted(np.sort(covered), np.arange(len(sections) + 1)),
        cover=owner[np.argsort(covered, kind="stable")],
    )


def _kinds(lower: Array, heights: Sequence[Array]) -> Array:
    """Number the shapes so that those over the same sections with the same heights have one number."""
    kinds: dict[tuple[int, bytes], int] = {}
    keys = ((section, column.tobytes()) for section, column in zip(lower.tolist(), heights, strict=True))
    return np.array([kinds.setdefault(key, len(kinds)) for key in keys], np.int64)
