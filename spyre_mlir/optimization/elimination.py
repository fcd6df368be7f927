# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Minimal sums of small tables: the combinatorial core of the layout choice.

Variables have a few states each; tables over some of them hold costs (``inf`` where states do not go
together); the sum of all tables is to be smallest. Bucket elimination (Dechter, 1999) takes one variable
after the other: it adds up the tables that mention it and minimises it away, which leaves a table over its
neighbours. On trees and narrow graphs these stay small and the result is exact. Where one would grow beyond
the limit, the bucket is split and each part is minimised alone (mini-buckets): a lower bound. A beam then
goes back through the buckets, guided by that bound. Dominated states (``dominance.py``) are left out before.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.bounded_cache import BoundedCache
from spyre_mlir.records import dataclass

# Dominated states: another state of the same variable costs no more, whatever its neighbours are.
#
# Orders of dims that nothing distinguishes, relayouts that no reader can use: most states of a layout choice are of
# this kind. Without them the tables of the elimination stay small and its result stays the same.

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


#: A variable with more neighbours waits until most of them are gone.
_MANY_NEIGHBOURS = 20


@dataclass(frozen=True)
class Minimum:
    """A state per variable with its ``cost``; no choice costs less than ``bound``."""

    states: tuple[int, ...]
    cost: float
    bound: float

    @property
    def proven(self) -> bool:
        """True if no other choice costs less."""
        return self.cost <= self.bound


#: The smallest sums of the last problems, by what they depend on.
MINIMA: BoundedCache[Minimum] = BoundedCache(1 << 18, lambda minimum: 1 + len(minimum.states))


class Sum:
    """Tables to be added up; those over the same variables are added at once."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes: list[int] = list(sizes)
        self.tables: dict[Scope, Table] = {}

    def add(self, scope: Scope, table: Table) -> None:
        """Add costs over ``scope`` (ascending, without repetition), one axis per variable."""
        if 1 in table.shape:  # a variable of one state decides nothing
            scope = tuple(variable for variable in scope if self.sizes[variable] > 1)
            table = table.reshape([self.sizes[variable] for variable in scope])
        known = self.tables.get(scope)
        self.tables[scope] = table if known is None else known + table

    def cost(self, states: Sequence[int]) -> float:
        """Return the sum at one choice of states."""
        return float(sum(table[tuple(states[v] for v in scope)] for scope, table in self.tables.items()))

    def minimize(self, limit_entries: int = 1 << 20, width: int = 200) -> Minimum:
        """Return the smallest sum: exact while no table needs more than ``limit_entries``, else by a beam.

        ``Minimum.cost`` is ``inf`` if no states go together (or the beam of ``width`` found none). Evaluations ask for
        the sums of the program that they evaluate, so equal sums of a compilation are minimized once.
        """
        return MINIMA.get(self._digest(limit_entries, width), lambda: self._minimized(limit_entries, width))

    def _digest(self, *options: int) -> bytes:
        """Return a digest of all that the smallest sum depends on."""
        digest = hashlib.blake2b(repr((options, self.sizes, list(self.tables))).encode())
        # Equal parts of a program have the same objects as tables.
        digests: dict[int, bytes] = {}
        for table in self.tables.values():
            if id(table) not in digests:
                digests[id(table)] = hashlib.blake2b(table.astype(np.float64).tobytes()).digest()
            digest.update(digests[id(table)])
        return digest.digest()

    def _minimized(self, limit_entries: int, width: int) -> Minimum:
        undominated_states, tables = undominated(self.sizes, self.tables)
        small = Sum([len(states) for states in undominated_states])
        for scope, table in tables.items():
            small.add(scope, table)
        states, bound = small._search(limit_entries, width)
        if states is None:
            return Minimum((), math.inf, bound)
        chosen = tuple(
            int(original[state]) for original, state in zip(undominated_states, states, strict=True)
        )
        return Minimum(chosen, self.cost(chosen), bound)

    def _search(self, limit_entries: int, width: int) -> tuple[list[int] | None, float]:
        """The best states, None if none go together, and a lower bound of all costs."""
        elimination = _Elimination(self, limit_entries)
        buckets = elimination.run()
        bound = float(self.tables.get((), 0)) + elimination.constant
        states = _retrace(buckets, self.sizes)
        is_split = any(len(bucket.groups) > 1 for bucket in buckets)
        # A choice that costs the bound is the one that the beam would find: always the first of its smallest ones.
        if is_split and (states is None or not self.cost(states) == bound < math.inf):
            states = _beam(buckets, self.sizes, width)
        return states, bound


#: Tables in the order in which they are added up.
_Terms = list[tuple[Scope, Table]]


@dataclass(frozen=True)
class _Bucket:
    """A variable, the groups of tables minimised over it, and the message (a table over the rest) of each group.

    The sum of a group has many entries, of which few are read again: it is not kept.
    """

    variable: int
    groups: list[tuple[Scope, _Terms]]
    messages: list[tuple[Scope, Table]]


class _Elimination:
    """Elimination in the order of the smallest table to build next; variables with many neighbours come last."""

    def __init__(self, source: Sum, limit_entries: int) -> None:
        self.sizes = source.sizes
        self.limit = limit_entries
        self.constant = 0.0  # part of the cost of every choice
        self.tables: dict[Scope, Table] = {}
        self._minima: dict[tuple, tuple[Table, float]] = {}
        self._sum = np.empty(0)  # the memory of each sum in turn
        self._unique: dict[tuple, Table] = {}
        self.scopes_of: list[dict[Scope, None]] = [{} for _ in source.sizes]
        self.neighbours: list[dict[int, int]] = [{} for _ in source.sizes]  # and how many scopes they share
        for scope, table in source.tables.items():
            self._insert(scope, table)

    def run(self) -> list[_Bucket]:
        """Eliminate all variables and return their buckets in that order."""
        variables = [variable for variable, size in enumerate(self.sizes) if size > 1]
        waiting = [(self._effort(variable), variable) for variable in variables]
        heapq.heapify(waiting)
        eliminated: set[int] = set()
        buckets = []
        while waiting:
            effort, variable = heapq.heappop(waiting)
            if variable in eliminated:
                continue
            current = self._effort(variable)
            if current > effort:  # it has grown since it was queued; where it fell, it was queued again
                heapq.heappush(waiting, (current, variable))
                continue
            eliminated.add(variable)
            neighbours = list(self.neighbours[variable])
            buckets.append(self._eliminate(variable))
            for neighbour in neighbours:
                heapq.heappush(waiting, (self._effort(neighbour), neighbour))
        return buckets

    def _effort(self, variable: int) -> int:
        """Entries of the table that eliminating a variable builds; with many neighbours more than any of those."""
        around = self.neighbours[variable]
        if len(around) > _MANY_NEIGHBOURS:
            return (1 << 64) + len(around)
        return self.sizes[variable] * math.prod([self.sizes[other] for other in around])

    def _eliminate(self, variable: int) -> _Bucket:
        groups, messages = [], []
        for members in self._groups(variable):
            scope = tuple(sorted({variable}.union(*members)))
            rest = tuple(other for other in scope if other != variable)
            # The smallest first: as few additions as possible are of tables over the whole union.
            members.sort(key=lambda member: (self.tables[member].size, member))
            message, constant = self._minimized(variable, members, scope)
            self.constant += constant
            groups.append((scope, [(member, self.tables[member]) for member in members]))
            messages.append((rest, message))
        for scope in list(self.scopes_of[variable]):
            self._remove(scope)
        for scope, table in messages:
            self._insert(scope, table)
        return _Bucket(variable, groups, messages)

    def _minimized(self, variable: int, members: list[Scope], union: Scope) -> tuple[Table, float]:
        """The minimum of a sum of tables over the variable, and the constant taken out of that minimum."""
        # Equal parts of a program have the same tables, which are the same objects: each such sum is made once.
        axis_of = {other: position for position, other in enumerate(union)}
        parts = [(id(self.tables[scope]), *(axis_of[other] for other in scope)) for scope in members]
        key = (axis_of[variable], self.sizes[variable], *parts)
        if key not in self._minima:
            total = self._total(members, union)
            message = total.min(axis=axis_of[variable])
            constant = float(message.min())  # infinite: no states go together
            # What is left is canonical: messages that differ by a constant alone become one object.
            if math.isfinite(constant):
                message = message - constant
            self._minima[key] = (self._canonical(message), constant)
        return self._minima[key]

    def _canonical(self, table: Table) -> Table:
        """The one object for equal tables, by which equal sums are recognised."""
        return self._unique.setdefault((table.shape, table.tobytes()), table)

    def _remove(self, scope: Scope) -> None:
        del self.tables[scope]
        for variable in scope:
            del self.scopes_of[variable][scope]
            around = self.neighbours[variable]
            for other in scope:
                if other != variable:
                    around[other] -= 1
                    if not around[other]:
                        del around[other]

    def _insert(self, scope: Scope, table: Table) -> None:
        if not scope:
            return
        known = self.tables.get(scope)
        self.tables[scope] = table if known is None else self._canonical(known + table)
        if known is not None:
            return
        for variable in scope:
            self.scopes_of[variable][scope] = None
            around = self.neighbours[variable]
            for other in scope:
                if other != variable:
                    around[other] = around.get(other, 0) + 1

    def _groups(self, variable: int) -> list[list[Scope]]:
        """The tables of a variable, in as few groups as the limit allows."""
        # The widest scopes open the groups, so that narrow ones find a place in them.
        scopes = sorted(self.scopes_of[variable], key=lambda scope: (-len(scope), scope))
        entries = self.sizes[variable] * math.prod([self.sizes[other] for other in self.neighbours[variable]])
        if entries <= self.limit or not scopes:
            return [scopes]
        groups: list[list[Scope]] = []
        unions: list[set[int]] = []
        for scope in scopes:
            for members, union in zip(groups, unions, strict=True):
                if math.prod(self.sizes[v] for v in union.union(scope)) <= self.limit:
                    members.append(scope)
                    union.update(scope)
                    break
            else:
                groups.append([scope])
                unions.append(set(scope))
        return groups

    def _total(self, members: list[Scope], union: Scope) -> Table:
        """The sum of tables over their union, in memory that the next sum overwrites."""
        shape = tuple(self.sizes[v] for v in union)
        if not members:
            return np.zeros(shape)
        size = math.prod(shape)
        if len(self._sum) < size:
            self._sum = np.empty(size)
        whole = self._sum[:size].reshape(shape)
        first, *tables = (
            self.tables[scope].reshape([self.sizes[v] if v in scope else 1 for v in union])
            for scope in members
        )
        total = first.astype(np.float64, copy=False)
        for table in tables:
            is_whole = np.broadcast_shapes(total.shape, table.shape) == shape
            total = np.add(total, table, out=whole if is_whole else None)
        return total


def _added(terms: Sequence[Table], size: int) -> Table:
    """The sum of tables of which each has a variable of so many states; of none it is zero."""
    return functools.reduce(np.add, terms) if terms else np.zeros(size)


def _retrace(buckets: list[_Bucket], sizes: Sequence[int]) -> list[int] | None:
    """The best state of each variable, from the last one back to the first; exact where no bucket is split."""
    states = [0] * len(sizes)
    for bucket in reversed(buckets):
        rows = [
            table[tuple([slice(None) if v == bucket.variable else states[v] for v in scope])]
            for _, terms in bucket.groups
            for scope, table in terms
        ]
        row = _added(rows, sizes[bucket.variable])
        state = int(row.argmin())
        if row[state] == math.inf:
            return None
        states[bucket.variable] = state
    return states


def _beam(buckets: list[_Bucket], sizes: Sequence[int], width: int) -> list[int] | None:
    """Go back through split buckets with the ``width`` partial choices of the smallest bound.

    The bound of a choice stays up to date: the message of a group is replaced by the cost of the group.
    """
    first_use: dict[int, int] = {}
    for position, bucket in enumerate(buckets):
        for scope, _ in bucket.groups:
            for variable in scope:
                first_use.setdefault(variable, position)
    # The variables that are known and still asked for, and their states in each partial choice, a row each.
    alive: list[int] = []
    rows = np.zeros((0, 1), np.intp)
    bounds = np.zeros(1)
    trace: list[tuple[int, NDArray[np.intp], NDArray[np.intp]]] = []
    for position in reversed(range(len(buckets))):
        bucket, live = buckets[position], dict(zip(alive, rows, strict=True))
        extended = bounds[:, None] + np.zeros(sizes[bucket.variable])
        for _, terms in bucket.groups:
            values = [_values_at(table, scope, live, bucket.variable) for scope, table in terms]
            extended += _added(values, sizes[bucket.variable])
        for scope, table in bucket.messages:
            if scope:
                message = _values_at(table, scope, live, None)
                # Infinity less infinity is undefined; where a message is infinite its group is as well.
                extended -= np.where(np.isinf(message), 0, message)[:, None]
        flat = extended.ravel()
        possible = np.flatnonzero(flat < math.inf)
        best = possible[_smallest(flat[possible], width)]
        if not len(best):
            return None
        parents, chosen = np.divmod(best, sizes[bucket.variable])
        bounds = flat[best]
        trace.append((bucket.variable, parents, chosen))
        # One selection of rows and columns: there may be hundreds of variables.
        known = [*alive, bucket.variable]
        stays = [row for row, variable in enumerate(known) if first_use[variable] < position]
        alive = [known[row] for row in stays]
        rows = np.vstack([rows[:, parents], chosen])[stays]
    states = [0] * len(sizes)
    row = 0
    for variable, parents, chosen in reversed(trace):
        states[variable] = int(chosen[row])
        row = int(parents[row])
    return states


def _smallest(values: Table, count: int) -> NDArray[np.intp]:
    """Return the positions of the ``count`` smallest values, from the smallest; of equal ones the first."""
    if len(values) <= count:
        return np.argsort(values, kind="stable")
    # Few are below the last one that counts: only those need the order.
    near = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return near[np.argsort(values[near], kind="stable")][:count]


def _values_at(table: Table, scope: Scope, live: dict[int, NDArray[np.intp]], free: int | None) -> Table:
    """The values of a table at the states of each partial choice; over all states of ``free`` as the last axis."""
    index = tuple(slice(None) if v == free else live[v] for v in scope)
    values = table[index]
    if free is not None and scope[0] == free and len(scope) > 1:
        # Numpy leaves a leading slice in front of the axis of the index arrays.
        values = values.T
    return values
