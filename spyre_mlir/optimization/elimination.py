# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Minimal sums of small tables: the combinatorial core of the layout choice.

Each variable has a few states. Tables over some of the variables hold costs (``inf`` for incompatible states). The
sum of all tables is minimised. Bucket elimination (Dechter, 1999) eliminates one variable after another: it adds up
the tables that contain the variable and minimises over it, which leaves a table over its neighbours. On trees and
narrow graphs these tables stay small and the result is exact. If a table would exceed the limit, the bucket is split
and each part is minimised alone (mini-buckets), which gives a lower bound. A beam search then goes back through the
buckets, guided by this bound. Dominated states are removed first.
"""

from __future__ import annotations

import functools
import hashlib
import heapq
import math
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.algorithms import CACHES
from spyre_mlir.records import dataclass

_Value = TypeVar("_Value")


class BoundedCache(Generic[_Value]):
    """A least-recently-used cache of values by key; the sum of the values' sizes is at most ``limit``."""

    def __init__(self, limit: int, size: Callable[[_Value], int]) -> None:
        self.limit, self.size = limit, size
        self.total = 0
        self._values: OrderedDict[Hashable, _Value] = OrderedDict()
        self._lock = threading.Lock()
        CACHES.append(self)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._values.clear()
            self.total = 0

    def get(self, key: Hashable, build: Callable[[], _Value]) -> _Value:
        """Return the value of a key; build the value if it is missing."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = build()
        with self._lock:
            if key not in self._values:
                self.total += self.size(value)
            self._values[key] = value
            while self.total > self.limit:
                _, oldest = self._values.popitem(last=False)
                self.total -= self.size(oldest)
        return value


# Dominated states: another state of the same variable does not cost more, for any states of its neighbours.
#
# Most states of a layout choice are dominated, for example equivalent orders of dims, or relayouts that no reader can
# use. Without them the tables of the elimination stay small and its result stays the same.

#: Variables in ascending order.
Scope = tuple[int, ...]
Table = NDArray[np.float64]

#: Minimum number of states of a variable that is worth examining.
_FEW = 6
#: Maximum number of comparisons for one variable; a variable that needs more keeps all its states.
_MANY_COMPARISONS = 1 << 22
#: Up to this number, comparisons take less time than the search for equal columns.
_FEW_COMPARISONS = 1 << 16


def undominated(
    sizes: Sequence[int], tables: Mapping[Scope, Table]
) -> tuple[list[NDArray[np.intp]], dict[Scope, Table]]:
    """Return the undominated states of each variable, ascending, and the tables over only these states."""
    reduced = dict(tables)
    states = [np.arange(size) for size in sizes]
    touching: list[list[Scope]] = [[] for _ in sizes]
    for scope in reduced:
        for variable in scope:
            touching[variable].append(scope)
    # A state may become dominated when a neighbour loses states, so neighbours are queued again.
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
        self._alive: list[Table] = []  # keeps tables alive: Python may reuse the id of a freed table

    def needed(self, rows: list[tuple[Table, int]]) -> NDArray[np.intp] | None:
        """Return the undominated states of a variable (None: too many to compare) from its (table, axis) pairs."""
        key = tuple((id(table), axis) for table, axis in rows)
        if key not in self._needed:
            self._alive += [table for table, _ in rows]
            self._needed[key] = _needed(rows)
        return self._needed[key]

    def reduced(self, table: Table, axis: int, states: NDArray[np.intp]) -> Table:
        """Return the table restricted to some states of one axis."""
        key = (id(table), axis, states.tobytes())
        if key not in self._reduced:
            self._alive.append(table)
            self._reduced[key] = table.take(states, axis=axis)
        return self._reduced[key]


def _needed(rows: list[tuple[Table, int]]) -> NDArray[np.intp] | None:
    """Return the states that no other state dominates (of equal states the first); None if too many to compare."""
    states = rows[0][0].shape[rows[0][1]]
    if states < _FEW or states * sum(table.size for table, _ in rows) > _MANY_COMPARISONS:
        return None
    costs = np.concatenate(
        [table.swapaxes(0, axis).reshape(table.shape[axis], -1) for table, axis in rows], axis=1
    )
    columns = np.ascontiguousarray(costs.T)
    if states * columns.size > _FEW_COMPARISONS:
        # Many states of a neighbour have equal columns, of which one is enough.
        columns = np.array(list({column.tobytes(): column for column in columns}.values()))
    no_more = (columns[:, :, None] <= columns[:, None, :]).all(axis=0)
    equal = no_more & no_more.T
    better = no_more & ~equal | equal & _earlier(states)
    return np.flatnonzero(~better.any(axis=0))


@functools.lru_cache(maxsize=1 << 8)
def _earlier(states: int) -> NDArray[np.bool_]:
    """Return a table that is true if the state of the row comes before the state of the column."""
    return np.triu(np.ones((states, states), dtype=bool), 1)


#: A variable with more neighbours is eliminated only after most of its neighbours.
_MANY_NEIGHBOURS = 20


@dataclass(frozen=True)
class Minimum:
    """A state per variable, the ``cost`` of this choice, and a lower ``bound`` of the cost of any choice."""

    states: tuple[int, ...]
    cost: float
    bound: float

    @property
    def proven(self) -> bool:
        """True if no other choice costs less."""
        return self.cost <= self.bound


#: Cache of the smallest sums of recent problems, keyed by a digest of the problem.
MINIMA: BoundedCache[Minimum] = BoundedCache(1 << 18, lambda minimum: 1 + len(minimum.states))


class Sum:
    """A sum of tables; tables over the same variables are added immediately."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes: list[int] = list(sizes)
        self.tables: dict[Scope, Table] = {}

    def add(self, scope: Scope, table: Table) -> None:
        """Add costs over ``scope`` (ascending, without repetition), one axis per variable."""
        if 1 in table.shape:  # a variable with one state is constant
            scope = tuple(variable for variable in scope if self.sizes[variable] > 1)
            table = table.reshape([self.sizes[variable] for variable in scope])
        known = self.tables.get(scope)
        self.tables[scope] = table if known is None else known + table

    def cost(self, states: Sequence[int]) -> float:
        """Return the sum for one choice of states."""
        return float(sum(table[tuple(states[v] for v in scope)] for scope, table in self.tables.items()))

    def minimize(self, limit_entries: int = 1 << 20, width: int = 200) -> Minimum:
        """Return the smallest sum: exact while no table needs more than ``limit_entries``, else by a beam search.

        ``Minimum.cost`` is ``inf`` if no states are compatible (or the beam of ``width`` found none). Evaluations of
        candidates repeat the sums of their program, so a cache minimises equal sums of a compilation only once.
        """
        return MINIMA.get(self._digest(limit_entries, width), lambda: self._minimized(limit_entries, width))

    def _digest(self, *options: int) -> bytes:
        """Return a digest of everything that the smallest sum depends on."""
        digest = hashlib.blake2b(repr((options, self.sizes, list(self.tables))).encode())
        # Equal parts of a program share their table objects.
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
        """Return the best states (None if no states are compatible) and a lower bound of all costs."""
        elimination = _Elimination(self, limit_entries)
        buckets = elimination.run()
        bound = float(self.tables.get((), 0)) + elimination.constant
        states = _retrace(buckets, self.sizes, [0] * len(self.sizes))
        split = next((index for index, bucket in enumerate(buckets) if len(bucket.groups) > 1), None)
        # A choice whose cost equals the bound is the one that the beam would find: always the first of the smallest.
        if split is not None and (states is None or not self.cost(states) == bound < math.inf):
            # The buckets before the first split one are exact, so the beam needs only their messages.
            states = _beam(buckets[split:], self.sizes, width)
            states = states and _retrace(buckets[:split], self.sizes, states)
        return states, bound


#: Tables in the order in which they are added up.
_Terms = list[tuple[Scope, Table]]


@dataclass(frozen=True)
class _Bucket:
    """A variable, the groups of tables minimised over it, and the message (a table over the rest) of each group.

    The sum of a group is not kept, because it has many entries and few of them are read again.
    """

    variable: int
    groups: list[tuple[Scope, _Terms]]
    messages: list[tuple[Scope, Table]]


class _Elimination:
    """Elimination in the order of the smallest next table; variables with many neighbours come last."""

    def __init__(self, source: Sum, limit_entries: int) -> None:
        self.sizes = source.sizes
        self.limit = limit_entries
        self.constant = 0.0  # part of the cost of every choice
        self.tables: dict[Scope, Table] = {}
        self._minima: dict[tuple, tuple[Table, float]] = {}
        self._sum = np.empty(0)  # buffer that each sum reuses
        self._unique: dict[tuple, Table] = {}
        self.scopes_of: list[dict[Scope, None]] = [{} for _ in source.sizes]
        self.neighbours: list[dict[int, int]] = [{} for _ in source.sizes]  # with the number of shared scopes
        for scope, table in source.tables.items():
            self._insert(scope, table)

    def run(self) -> list[_Bucket]:
        """Eliminate all variables and return their buckets in elimination order."""
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
            if current > effort:  # the effort has grown since it was queued; if it fell, it was queued again
                heapq.heappush(waiting, (current, variable))
                continue
            eliminated.add(variable)
            neighbours = list(self.neighbours[variable])
            groups, messages = [], []
            for members in self._groups(variable):
                scope = tuple(sorted({variable}.union(*members)))
                rest = tuple(other for other in scope if other != variable)
                # The smallest tables first, so that few additions are of tables over the whole union.
                members.sort(key=lambda member: (self.tables[member].size, member))
                message, constant = self._minimized(variable, members, scope)
                self.constant += constant
                groups.append((scope, [(member, self.tables[member]) for member in members]))
                messages.append((rest, message))
            for scope in list(self.scopes_of[variable]):
                self._remove(scope)
            for scope, table in messages:
                self._insert(scope, table)
            buckets.append(_Bucket(variable, groups, messages))
            for neighbour in neighbours:
                heapq.heappush(waiting, (self._effort(neighbour), neighbour))
        return buckets

    def _effort(self, variable: int) -> int:
        """Return the entries of the table that eliminating a variable builds; 2^64 or more with many neighbours."""
        around = self.neighbours[variable]
        if len(around) > _MANY_NEIGHBOURS:
            return (1 << 64) + len(around)
        return self.sizes[variable] * math.prod([self.sizes[other] for other in around])

    def _minimized(self, variable: int, members: list[Scope], union: Scope) -> tuple[Table, float]:
        """Return the minimum over the variable of a sum of tables, and the constant subtracted from the minimum."""
        # Equal parts of a program share their table objects, so each such sum is computed once.
        axis_of = {other: position for position, other in enumerate(union)}
        parts = [(id(self.tables[scope]), *(axis_of[other] for other in scope)) for scope in members]
        key = (axis_of[variable], self.sizes[variable], *parts)
        if key not in self._minima:
            # With the variable as the first axis, numpy compares whole rows.
            message = self._total(members, union, axis_of[variable]).min(axis=0)
            constant = float(message.min())  # infinite: no states are compatible
            # The remainder is canonical: messages that differ only by a constant become one object.
            if math.isfinite(constant):
                message = message - constant
            self._minima[key] = (self._canonical(message), constant)
        return self._minima[key]

    def _canonical(self, table: Table) -> Table:
        """Return one object for all equal tables, so that equal sums are recognised by identity."""
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
        """Return the tables of a variable, in as few groups as the limit allows."""
        # The widest scopes open the groups, so that narrower scopes fit into these groups.
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

    def _total(self, members: list[Scope], union: Scope, first_axis: int) -> Table:
        """Return the sum of tables over their union, with one axis first, in memory that the next sum overwrites."""
        order = (first_axis, *(axis for axis in range(len(union)) if axis != first_axis))
        shape = tuple(self.sizes[union[axis]] for axis in order)
        if not members:
            return np.zeros(shape)
        size = math.prod(shape)
        if len(self._sum) < size:
            self._sum = np.empty(size)
        whole = self._sum[:size].reshape(shape)
        first, *tables = (
            self.tables[scope].reshape([self.sizes[v] if v in scope else 1 for v in union]).transpose(order)
            for scope in members
        )
        total = first.astype(np.float64, copy=False)
        for table in tables:
            is_whole = np.broadcast_shapes(total.shape, table.shape) == shape
            total = np.add(total, table, out=whole if is_whole else None)
        return total


def _added(terms: Sequence[Table], size: int) -> Table:
    """Return the sum of tables that share a variable of ``size`` states; zero without tables."""
    return functools.reduce(np.add, terms) if terms else np.zeros(size)


def _retrace(buckets: list[_Bucket], sizes: Sequence[int], known: Sequence[int]) -> list[int] | None:
    """Return ``known`` with the best state of each bucket, from the last to the first; exact if no bucket is split."""
    states = list(known)
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
    # The variables that are known and still needed, and a row for each with its states in the partial choices.
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
                # Infinity minus infinity is undefined; if a message is infinite, its group is infinite too.
                extended -= np.where(np.isinf(message), 0, message)[:, None]
        flat = extended.ravel()
        possible = np.flatnonzero(flat < math.inf)
        best = possible[_smallest(flat[possible], width)]
        if not len(best):
            return None
        parents, chosen = np.divmod(best, sizes[bucket.variable])
        bounds = flat[best]
        trace.append((bucket.variable, parents, chosen))
        # Select rows and columns at once, because there may be hundreds of variables.
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
    """Return the indices of the ``count`` smallest values, ascending; ties keep their order."""
    if len(values) <= count:
        return np.argsort(values, kind="stable")
    # Few values are at most the ``count``-th smallest: only these need sorting.
    near = np.flatnonzero(values <= np.partition(values, count - 1)[count - 1])
    return near[np.argsort(values[near], kind="stable")][:count]


def _values_at(table: Table, scope: Scope, live: dict[int, NDArray[np.intp]], free: int | None) -> Table:
    """Return the values of a table at the states of each partial choice; the last axis is the variable ``free``."""
    index = tuple(slice(None) if v == free else live[v] for v in scope)
    values = table[index]
    if free is not None and scope[0] == free and len(scope) > 1:
        # Numpy puts a leading slice before the axis of the index arrays.
        values = values.T
    return values
