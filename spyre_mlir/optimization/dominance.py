# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Dominated states: another state of the same variable costs no more, whatever its neighbours are.

Orders of dims that nothing distinguishes, relayouts that no reader can use: most states of a layout choice are of
this kind. Without them the tables of the elimination stay small and its result stays the same.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

#: Variables in ascending order.
Scope = tuple[int, ...]
Table = NDArray[np.float64]

#: Variables with fewer states are not worth looking at.
_FEW = 6
#: Comparisons for one variable; one with so many neighbours is left as it is.
_MANY_COMPARISONS = 1 << 22
#: So few comparisons take less time than the search for equal columns.
_FEW_COMPARISONS = 1 << 16


def undominated(
    sizes: Sequence[int], tables: Mapping[Scope, Table]
) -> tuple[list[NDArray[np.intp]], dict[Scope, Table]]:
    """Return the undominated states of each variable, ascending, and the tables over those alone."""
    reduced = dict(tables)
    states = [np.arange(size) for size in sizes]
    touching: list[list[Scope]] = [[] for _ in sizes]
    for scope in reduced:
        for variable in scope:
            touching[variable].append(scope)
    # A state may become dominated when a neighbour loses states: its neighbours wait again.
    waiting = deque(variable for variable, size in enumerate(sizes) if size >= _FEW and touching[variable])
    queued = set(waiting)
    cache = _Cache()
    while waiting:
        variable = waiting.popleft()
        queued.discard(variable)
        needed = cache.needed([(reduced[scope], scope.index(variable)) for scope in touching[variable]])
        if needed is None or len(needed) == len(states[variable]):
            continue
        states[variable] = states[variable][needed]
        for scope in touching[variable]:
            reduced[scope] = cache.reduced(reduced[scope], scope.index(variable), needed)
            for other in scope:
                if other != variable and other not in queued and len(states[other]) >= _FEW:
                    queued.add(other)
                    waiting.append(other)
    return states, reduced


class _Cache:
    """Results by the identity of tables: a program repeats few tables many times, as the same objects."""

    def __init__(self) -> None:
        self._needed: dict[tuple[tuple[int, int], ...], NDArray[np.intp] | None] = {}
        self._reduced: dict[tuple[int, int, bytes], Table] = {}
        self._alive: list[Table] = []  # an id may be given to a new table once its own is freed

    def needed(self, rows: list[tuple[Table, int]]) -> NDArray[np.intp] | None:
        """Return the undominated states of a variable (None: too many to compare) from its (table, axis) pairs."""
        key = tuple((id(table), axis) for table, axis in rows)
        if key not in self._needed:
            self._alive += [table for table, _ in rows]
            self._needed[key] = _needed(rows)
        return self._needed[key]

    def reduced(self, table: Table, axis: int, states: NDArray[np.intp]) -> Table:
        """Return a table over some states of one of its axes."""
        key = (id(table), axis, states.tobytes())
        if key not in self._reduced:
            self._alive.append(table)
            self._reduced[key] = table.take(states, axis=axis)
        return self._reduced[key]


def _by_state(table: Table, axis: int) -> Table:
    """One row per state of the variable."""
    return table.swapaxes(0, axis).reshape(table.shape[axis], -1)


def _needed(rows: list[tuple[Table, int]]) -> NDArray[np.intp] | None:
    """The states without another that costs no more anywhere (of equal ones the first); None if too many."""
    states = rows[0][0].shape[rows[0][1]]
    if states < _FEW or states * sum(table.size for table, _ in rows) > _MANY_COMPARISONS:
        return None
    costs = np.concatenate([_by_state(table, axis) for table, axis in rows], axis=1)
    columns = np.ascontiguousarray(costs.T)
    if states * columns.size > _FEW_COMPARISONS:
        # States of a neighbour repeat few columns, and a column counts once.
        columns = np.array(list({column.tobytes(): column for column in columns}.values()))
    no_more = (columns[:, :, None] <= columns[:, None, :]).all(axis=0)
    equal = no_more & no_more.T
    better = no_more & ~equal | equal & _earlier(states)
    return np.flatnonzero(~better.any(axis=0))


@functools.lru_cache(maxsize=1 << 8)
def _earlier(states: int) -> NDArray[np.bool_]:
    """A table that is true where a state (row) comes before another (column)."""
    return np.triu(np.ones((states, states), dtype=bool), 1)
