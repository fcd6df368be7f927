"""States that no cheapest choice needs: another state of the same variable costs no more with any neighbour.

Orders of dims that nothing distinguishes, conversions that nobody can use: most states of a layout choice
are of this kind. Leaving them out keeps the tables of the elimination small and its result the same.
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


def undominated(
    sizes: Sequence[int], tables: Mapping[Scope, Table]
) -> tuple[list[NDArray[np.intp]], dict[Scope, Table]]:
    """The states to keep of each variable, ascending, and the tables over those alone."""
    reduced = dict(tables)
    kept = [np.arange(size) for size in sizes]
    touching: list[list[Scope]] = [[] for _ in sizes]
    for scope in reduced:
        for variable in scope:
            touching[variable].append(scope)
    waiting = deque(variable for variable, size in enumerate(sizes) if size >= _FEW and touching[variable])
    queued = set(waiting)
    seen = _Seen()
    while waiting:
        variable = waiting.popleft()
        queued.discard(variable)
        needed = seen.needed([(reduced[scope], scope.index(variable)) for scope in touching[variable]])
        if needed is None or len(needed) == len(kept[variable]):
            continue
        kept[variable] = kept[variable][needed]
        for scope in touching[variable]:
            reduced[scope] = seen.taken(reduced[scope], scope.index(variable), needed)
            for other in scope:
                if other != variable and other not in queued and len(kept[other]) >= _FEW:
                    queued.add(other)
                    waiting.append(other)
    return kept, reduced


class _Seen:
    """What was found of tables before: a program repeats few tables many times, as the same objects."""

    def __init__(self) -> None:
        self._needed: dict[tuple[tuple[int, int], ...], NDArray[np.intp] | None] = {}
        self._taken: dict[tuple[int, int, bytes], Table] = {}
        self._alive: list[Table] = []  # what an id names must not go away

    def needed(self, rows: list[tuple[Table, int]]) -> NDArray[np.intp] | None:
        """The states of a variable to keep; ``rows`` are its tables and its axis in each."""
        key = tuple((id(table), axis) for table, axis in rows)
        if key not in self._needed:
            self._alive += [table for table, _ in rows]
            self._needed[key] = _needed([_by_state(table, axis) for table, axis in rows])
        return self._needed[key]

    def taken(self, table: Table, axis: int, states: NDArray[np.intp]) -> Table:
        """A table over some states of one of its axes."""
        key = (id(table), axis, states.tobytes())
        if key not in self._taken:
            self._alive.append(table)
            self._taken[key] = table.take(states, axis=axis)
        return self._taken[key]


def _by_state(table: Table, axis: int) -> Table:
    """One row per state of the variable."""
    return table.swapaxes(0, axis).reshape(table.shape[axis], -1)


def _needed(rows: list[Table]) -> NDArray[np.intp] | None:
    """The states without another that costs no more anywhere (of equal ones the first); None if too many."""
    costs = np.concatenate(rows, axis=1)
    states, columns = costs.shape
    if states < _FEW or states * states * columns > _MANY_COMPARISONS:
        return None
    no_more = (costs[:, None, :] <= costs[None, :, :]).all(axis=2)
    equal = no_more & no_more.T
    better = no_more & ~equal | equal & _earlier(states)
    return np.flatnonzero(~better.any(axis=0))


@functools.lru_cache(maxsize=1 << 8)
def _earlier(states: int) -> NDArray[np.bool_]:
    """Whether a state (row) comes before another (column)."""
    return np.triu(np.ones((states, states), dtype=bool), 1)
