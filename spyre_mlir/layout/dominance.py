"""States that no cheapest choice needs: another state of the same variable costs no more with any neighbour.

Orders of dims that nothing distinguishes, conversions that nobody can use: most states of a layout choice
are of this kind. Leaving them out keeps the tables of the elimination small and its result the same.
"""

from __future__ import annotations

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
    while waiting:
        variable = waiting.popleft()
        queued.discard(variable)
        needed = _needed([_by_state(reduced[scope], scope, variable) for scope in touching[variable]])
        if needed is None or len(needed) == len(kept[variable]):
            continue
        kept[variable] = kept[variable][needed]
        for scope in touching[variable]:
            reduced[scope] = reduced[scope].take(needed, axis=scope.index(variable))
            for other in scope:
                if other != variable and other not in queued and len(kept[other]) >= _FEW:
                    queued.add(other)
                    waiting.append(other)
    return kept, reduced


def _by_state(table: Table, scope: Scope, variable: int) -> Table:
    """One row per state of the variable."""
    axis = scope.index(variable)
    return np.moveaxis(table, axis, 0).reshape(table.shape[axis], -1)


def _needed(rows: list[Table]) -> NDArray[np.intp] | None:
    """The states without another that costs no more anywhere (of equal ones the first); None if too many."""
    costs = np.concatenate(rows, axis=1)
    states, columns = costs.shape
    if states < _FEW or states * states * columns > _MANY_COMPARISONS:
        return None
    no_more = (costs[:, None, :] <= costs[None, :, :]).all(axis=2)
    equal = no_more & no_more.T
    better = no_more & ~equal | np.triu(equal, 1)
    return np.flatnonzero(~better.any(axis=0))
