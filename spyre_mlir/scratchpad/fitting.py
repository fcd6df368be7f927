# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fit buffers into a memory one by one: the engine of the heuristic solvers, and the solvers of a single order.

Each buffer in turn gets an address that is free over its whole live range, or none; no buffer moves later. So a
heuristic consists of an order and a policy that chooses one of the gaps. The gaps of a buffer are between the placed
buffers whose live ranges overlap its live range. In place of a partner (a parent or child, see ``Instance``) a buffer
needs no gap: such an address is preferred under every policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.arrays import Array
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement

#: Free ranges large enough for the buffer: addresses, ascending, and sizes in bytes.
Gaps = tuple[list[int] | Array, list[int] | Array]

#: Chooses an address from at least one gap; the second argument is the capacity.
Policy = Callable[[Gaps, int], int]

#: Neighbours in time per buffer up to which lists are faster than arrays. Measured with 200 and 2,000 buffers,
#: 2026-11-21: both take about 18 us per buffer at 100.
_FEW_NEIGHBOURS = 100


def lowest(gaps: Gaps, _: int) -> int:
    """Choose the lowest address of some ``gaps``: first fit."""
    return int(gaps[0][0])


def tightest(gaps: Gaps, _: int) -> int:
    """Choose the gap with the smallest remainder, the lowest one in a tie: best fit."""
    addresses, gap_bytes = gaps
    return int(addresses[np.argmin(gap_bytes)])


def outermost(gaps: Gaps, capacity: int) -> int:
    """Choose address 0, or else the address above all placed buffers, or else the lowest gap."""
    addresses, gap_bytes = gaps
    reaches_the_end = addresses[-1] + gap_bytes[-1] == capacity
    return int(addresses[-1] if addresses[0] > 0 and reaches_the_end else addresses[0])


def fit(instance: Instance, order: Iterable[int], policy: Policy = lowest) -> dict[int, int]:
    """Place the buffers of an ``instance`` one after another in an ``order`` of indices, in gaps that others leave.

    The ``policy`` chooses an address from the gaps that are large enough; ``lowest`` is first fit. Returns the
    addresses in bytes of the buffers that found a gap, by buffer index, in the order of placement.
    """
    return Fitting(instance).fit(order, policy)


class Fitting:
    """The engine for one instance, on which many orders can be tried.

    Memory is linear in the number of buffers: if few buffers are live together, a list of the neighbours in time of
    each buffer; else arrays that are scanned.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.sizes: list[int] = instance.sizes.tolist()
        self.savings: list[int] = instance.savings.tolist()
        self.partners = [list(parents) for parents in instance.parents]
        for child, parents in enumerate(instance.parents):
            for parent in parents:
                self.partners[parent].append(child)
        # Overlapping pairs are counted from sorted begins and ends, because listing them may be too expensive.
        begun = np.searchsorted(instance.starts, instance.ends, side="right")
        over = np.searchsorted(np.sort(instance.ends), instance.starts)
        self._neighbours: list[list[int]] | None = None
        if int((begun - over - 1).sum()) > _FEW_NEIGHBOURS * len(instance):
            return
        # For each buffer the buffers that are live with it at some time.
        self._neighbours, live = [], []
        ends = instance.ends.tolist()
        for index, start in enumerate(instance.starts.tolist()):
            live = [other for other in live if ends[other] >= start]
            for other in live:
                self._neighbours[other].append(index)
            self._neighbours.append(live.copy())
            live.append(index)

    def fit(
        self, order: Iterable[int], policy: Policy = lowest, placed: Mapping[int, int] | None = None
    ) -> dict[int, int]:
        """Place buffers as the function ``fit`` does, given the addresses of the buffers in ``placed``."""
        memory: _Listed | _Scanned
        if self._neighbours is None:
            memory = _Scanned(self.instance, self.sizes)
        else:
            memory = _Listed(self.instance, self.sizes, self._neighbours)
        capacity = self.instance.space.capacity
        addresses = dict(placed or {})
        for index, address in addresses.items():
            memory.put(index, address)
        for index in order:
            # In place a buffer needs no further bytes, so this is preferred under every policy.
            address = self._in_place(index, addresses, memory) if self.partners[index] else None
            if address is None:
                gaps = memory.gaps(index)
                address = policy(gaps, capacity) if len(gaps[0]) else None
            if address is not None:
                addresses[index] = address
                memory.put(index, address)
        return addresses

    def _in_place(self, index: int, addresses: dict[int, int], memory: _Listed | _Scanned) -> int | None:
        """Return the lowest address of a partner that does not overlap any other buffer."""
        partners = [other for other in self.partners[index] if other in addresses]
        for address in sorted({addresses[other] for other in partners}):
            here = {other for other in partners if addresses[other] == address}
            end = address + self.sizes[index]
            if end <= self.instance.space.capacity and here.issuperset(memory.inside(index, address, end)):
                return address
        return None


class _Listed:
    """The placed buffers, looked up in a list of neighbours per buffer."""

    def __init__(self, instance: Instance, sizes: Sequence[int], neighbours: Sequence[Sequence[int]]) -> None:
        self._capacity = instance.space.capacity
        self._sizes = sizes
        self._neighbours = neighbours
        self._places: list[tuple[int, int] | None] = [None] * len(sizes)

    def put(self, index: int, address: int) -> None:
        """Place a buffer at an address."""
        self._places[index] = (address, address + self._sizes[index])

    def gaps(self, index: int) -> Gaps:
        """Return the free ranges in which a buffer fits."""
        size, places, free = self._sizes[index], self._places, 0
        addresses, gap_bytes = [], []
        live = sorted([place for other in self._neighbours[index] if (place := places[other])])
        # The end of the memory closes the last gap.
        for begin, end in [*live, (self._capacity, self._capacity)]:
            if begin - free >= size:
                addresses.append(free)
                gap_bytes.append(begin - free)
            if end > free:
                free = end
        return addresses, gap_bytes

    def inside(self, index: int, begin: int, end: int) -> Iterator[int]:
        """Yield the buffers live with ``index`` that have bytes in a range."""
        places = self._places
        for other in self._neighbours[index]:
            if (place := places[other]) and place[0] < end and begin < place[1]:
                yield other


class _Scanned:
    """The placed buffers as arrays in the order of their addresses, which are scanned for each new buffer."""

    def __init__(self, instance: Instance, sizes: Sequence[int]) -> None:
        self._capacity = instance.space.capacity
        self._sizes = sizes
        # First and last uses as indices among the first uses: small numbers with the same overlaps.
        self._firsts: list[int] = np.searchsorted(instance.times, instance.starts).tolist()
        self._lasts: list[int] = (np.searchsorted(instance.times, instance.ends, side="right") - 1).tolist()
        self._count = 0
        self._bytes = np.zeros((2, len(sizes) + 1), np.int64)  # begins and ends
        self._ranges = np.zeros((3, len(sizes) + 1), np.int32)  # first and last uses, indices

    def put(self, index: int, address: int) -> None:
        """Place a buffer at an address."""
        count = self._count
        row = int(self._bytes[0, :count].searchsorted(address))
        for table in (self._bytes, self._ranges):
            table[:, row + 1 : count + 1] = table[:, row:count]
        self._bytes[:, row] = address, address + self._sizes[index]
        self._ranges[:, row] = self._firsts[index], self._lasts[index], index
        self._count += 1

    def gaps(self, index: int) -> Gaps:
        """Return the free ranges in which a buffer fits."""
        live = self._live(index)
        gap_bytes = np.empty(len(live) + 1, np.int64)
        gap_bytes[:-1] = self._bytes[0].take(live)
        gap_bytes[-1] = self._capacity
        free = np.zeros(len(live) + 1, np.int64)
        np.maximum.accumulate(self._bytes[1].take(live), out=free[1:])
        gap_bytes -= free
        large_enough = (gap_bytes >= self._sizes[index]).nonzero()[0]
        return free.take(large_enough), gap_bytes.take(large_enough)

    def inside(self, index: int, begin: int, end: int) -> Iterator[int]:
        """Yield the buffers live with ``index`` that have bytes in a range."""
        live = self._live(index)
        met = (self._bytes[0][live] < end) & (self._bytes[1][live] > begin)
        yield from self._ranges[2][live[met]].tolist()

    def _live(self, index: int) -> NDArray[np.intp]:
        """Return the rows of the placed buffers that are live with ``index``."""
        firsts, lasts, _ = self._ranges[:, : self._count]
        return ((firsts <= self._lasts[index]) & (lasts >= self._firsts[index])).nonzero()[0]


def orders(instance: Instance) -> Iterator[tuple[Iterable[int], Policy]]:
    """Yield orders and policies; on compiler programs the first ones nearly always place all buffers that fit."""
    starts, sizes, lifetimes = instance.starts, instance.sizes, instance.ends - instance.starts
    yield by_size(instance), lowest
    yield by_lifetime(instance), lowest
    # The first use, then falling size; ``lexsort`` compares by the last key first.
    yield np.lexsort((-sizes, starts)).tolist(), lowest
    yield by_first_use(instance), outermost
    yield by_lifetime(instance), tightest
    yield by_area(instance), lowest
    # Falling size, then falling lifetime, and the reverse.
    yield np.lexsort((-lifetimes, -sizes)).tolist(), tightest
    yield np.lexsort((-sizes, -lifetimes)).tolist(), lowest
    yield by_worth(instance), lowest


def by_first_use(instance: Instance) -> Iterable[int]:
    """Order by the first use; ties as given."""
    return range(len(instance))


def by_size(instance: Instance) -> list[int]:
    """Order by falling size; ties by the first use."""
    return np.argsort(-instance.sizes, kind="stable").tolist()


def by_lifetime(instance: Instance) -> list[int]:
    """Order by rising lifetime; ties by the first use."""
    return np.argsort(instance.ends - instance.starts, kind="stable").tolist()


def by_area(instance: Instance) -> list[int]:
    """Order by falling size times lifetime."""
    return np.argsort(-_areas(instance), kind="stable").tolist()


def by_worth(instance: Instance) -> list[int]:
    """Order by falling saving per byte and time: for memories that cannot hold everything."""
    return np.argsort(-instance.savings / _areas(instance), kind="stable").tolist()


def _areas(instance: Instance) -> NDArray[np.float64]:
    """Return bytes times operations as floats, because the products may exceed 64 bits."""
    return instance.sizes.astype(np.float64) * (instance.ends - instance.starts + 1)


# Solvers that place all buffers in one order by one policy.


@dataclass(frozen=True)
class OneOrderSolver(MemoryPlanSolver):
    """Place the buffers in the ``order`` of the class, by default the first uses, in gaps that ``policy`` chooses."""

    most_buffers: ClassVar[int] = 100_000
    order: ClassVar[Callable[[Instance], Iterable[int]]] = staticmethod(by_first_use)
    policy: ClassVar[Policy] = staticmethod(lowest)

    def place(self, instance: Instance) -> Placement:
        """Return addresses of the buffers of an ``instance`` that find a gap."""
        return Placement(fit(instance, self.order(instance), self.policy), work=len(instance))


@dataclass(frozen=True)
class GreedyLayoutSolver(OneOrderSolver):
    """Place each buffer at its first use: in place of a parent, at address 0, above all buffers, or in a gap.

    This is the order of an allocator at run time. All buffers placed earlier began earlier, so bytes that are free at
    the first use stay free. The solver ignores later buffers: a small buffer at address 0 can block a large buffer
    that begins when all others are dead.
    """

    name: ClassVar[str] = "greedy"
    policy = staticmethod(outermost)


@dataclass(frozen=True)
class FirstFitLayoutSolver(OneOrderSolver):
    """Place by rising lifetime, ties by the first use, in the lowest gap that is free over the whole live range."""

    name: ClassVar[str] = "firstfit"
    order = staticmethod(by_lifetime)


@dataclass(frozen=True)
class BestFitLayoutSolver(OneOrderSolver):
    """Place in the order of first fit, but in the gap with the smallest remainder."""

    name: ClassVar[str] = "bestfit"
    order = staticmethod(by_lifetime)
    policy = staticmethod(tightest)


@dataclass(frozen=True)
class LargestFirstSolver(OneOrderSolver):
    """Place by falling size, ties by the first use, in the lowest gap: ``order-by-size`` of other planners.

    The copies of a buffer count as one block, so they stay together. This order is not better than others in
    general: unlike for bin packing, no bound is known for blocks with lifetimes, and some sets need more memory.
    """

    name: ClassVar[str] = "largest-first"
    order = staticmethod(by_size)
