# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The states of a tensor: which of its layouts exist, the produced one and its relayouts."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.of_tensor import pass_cost
from spyre_mlir.layout_search.layout_candidates import LayoutCandidate, cheapest, distinct, relayout_cost
from spyre_mlir.layout_search.op_layouts import OpLayout, transfer_cost, transfer_cost_in_loop
from spyre_mlir.records import dataclass

#: Relayouts of one tensor; readers never need more than three dims of one tensor in the stick at once.
MAX_RELAYOUTS = 3
#: Memory of a further layout of a weight, as a part of the time to move it: decides between equals only.
_MEMORY_PRICE = 1 / 1024
#: Price of an input in another order of its sticks than the default, and with another dim in them, as parts of the
#: time of the device to read it. The first moves the same pieces; the second transposes, on a host a twentieth as
#: fast, what stays on the device for the calls that matter: a tensor that comes anew with each takes longer to come.
_ORDER_PRICE, _STICK_PRICE = 1 / 64, 1 / 4


# eq=False: there is one object per layout and op layout, so identity compares, and hashing costs nothing.
@dataclass(frozen=True, eq=False)
class ProducedLayout:
    """A layout that a node produces, by an op layout of its operation (None: no operation). See ``produced_layout``."""

    candidate: LayoutCandidate
    op_layout: OpLayout | None = None


#: All produced layouts that are in use, see ``candidate``.
_PRODUCED: weakref.WeakValueDictionary[tuple[LayoutCandidate, OpLayout | None], ProducedLayout] = (
    weakref.WeakValueDictionary()
)


@functools.lru_cache(maxsize=1 << 16)
def produced_layout(candidate: LayoutCandidate, op_layout: OpLayout | None = None) -> ProducedLayout:
    """Return the one object for a layout and an op layout."""
    return _PRODUCED.setdefault((candidate, op_layout), ProducedLayout(candidate, op_layout))


@dataclass(frozen=True)
class State:
    """The layouts of a tensor that exist: ``base`` without a relayout, ``converted`` by relayouts of those.

    ``sealed``: readers see the converted ones alone, as of a view that is pinned to another layout.
    """

    produced: ProducedLayout
    base: tuple[LayoutCandidate, ...]
    converted: tuple[LayoutCandidate, ...] = ()
    sealed: bool = False

    @property
    def available(self) -> tuple[LayoutCandidate, ...]:
        """The layouts that readers may read."""
        return self.converted if self.sealed else self.base + self.converted

    def converted_from(self, target: LayoutCandidate) -> LayoutCandidate:
        """Return the source of a relayout: the cheapest base; if ``sealed``, of all but the first, the first."""
        sources = self.base
        if self.sealed and target is not self.converted[0]:
            sources = self.converted[:1]
        return cheapest(sources, target)


class Domain:
    """The states of one tensor, in arrays for the cost tables.

    ``available`` has a row per state: indices into ``candidates``, the first repeated to fill the row.
    ``produced_index`` is that of each state into ``produced``, ``costs`` what a state costs by itself (picoseconds).
    """

    def __init__(
        self, produced: Sequence[ProducedLayout], states: Sequence[State], costs: Sequence[float]
    ) -> None:
        self.produced = tuple(produced)
        self.states = tuple(states)
        self.candidates = distinct(candidate for state in states for candidate in state.available)
        index = {candidate: k for k, candidate in enumerate(self.candidates)}
        rows = [[index[candidate] for candidate in state.available] for state in states]
        width = max(map(len, rows))
        self.available = np.array([row + row[:1] * (width - len(row)) for row in rows])
        produced_index = {layout: k for k, layout in enumerate(self.produced)}
        self.produced_index: NDArray[np.intp] = np.array([produced_index[state.produced] for state in states])
        self.costs = np.array(costs, dtype=np.float64)


def state_cost(state: State, from_host: bool = False, in_loop: bool = False) -> float:
    """Return the picoseconds of writing the result, which may stay in LX ``in_loop``, and of its relayouts."""
    produced, transfer = state.produced, transfer_cost_in_loop if in_loop else transfer_cost
    result = 0 if produced.op_layout is None else transfer(produced.op_layout, -1, produced.candidate)
    assert result is not None
    return result + sum(
        relayout_cost(state.converted_from(target), target, from_host) for target in state.converted
    )


def memory_cost(state: State) -> int:
    """Return the cost of layouts ahead of time: almost nothing, but of equals the smaller memory wins."""
    targets = ((candidate, candidate.view.target) for candidate in state.base)
    transfers = (pass_cost(target, candidate.bytes, target.burst_bytes) for candidate, target in targets)
    # Costs are whole picoseconds, whose sums are exact in floats: equal plans get equal costs.
    return round(_MEMORY_PRICE * sum(transfers))


def host_cost(candidate: LayoutCandidate, usual: LayoutCandidate, stays: bool) -> int:
    """Return what it costs that the host lays an input out otherwise than by default (``usual``).

    One that ``stays``, for the program changes it, comes once.
    """
    if candidate is usual:
        return 0
    target = candidate.view.target
    price = _ORDER_PRICE if stays or candidate.stick_dim == usual.stick_dim else _STICK_PRICE
    return round(price * pass_cost(target, candidate.bytes, target.burst_bytes))


def relayout_sets(
    base: tuple[LayoutCandidate, ...], targets: tuple[LayoutCandidate, ...], readers: int
) -> list[tuple[LayoutCandidate, ...]]:
    """Return the sets of relayouts that can be of use to so many readers, the empty one first."""
    useful = [target for target in targets if target not in base]
    limit = min(readers, MAX_RELAYOUTS, len(useful))
    return [subset for count in range(limit + 1) for subset in itertools.combinations(useful, count)]


def argument_states(produced: tuple[ProducedLayout, ...], readers: int) -> list[State]:
    """Return the states of what is laid out ahead of time: any layouts, at most one per stick and reader."""
    states = []
    for count in range(1, max(1, min(readers, MAX_RELAYOUTS, len(produced))) + 1):
        for subset in itertools.combinations(produced, count):
            base = tuple(layout.candidate for layout in subset)
            if len({(candidate.stick_dim, candidate.sticks) for candidate in base}) == count:
                states.append(State(subset[0], base))
    return states


def view_states(
    produced: tuple[ProducedLayout, ...], targets: tuple[LayoutCandidate, ...], readers: int
) -> list[State]:
    """Return views of one layout of the source, or of two if there are readers for both; and relayouts of them."""
    states = []
    for count in range(1, min(2, max(readers, 1), len(produced)) + 1):
        for subset in itertools.combinations(produced, count):
            base = tuple(layout.candidate for layout in subset)
            if len({candidate.stick_dim for candidate in base}) == count:
                sets = (r for r in relayout_sets(base, targets, readers) if len(base) + len(r) <= 4)
                states += [State(subset[0], base, relayouts) for relayouts in sets]
    return states


def pinned_view_states(
    produced: tuple[ProducedLayout, ...],
    pin: LayoutCandidate,
    targets: tuple[LayoutCandidate, ...],
    readers: int,
) -> list[State]:
    """Return views that have the pinned layout, and relayouts to it of the others, which no reader sees."""
    sets = relayout_sets((pin,), targets, readers)
    return [
        State(layout, (layout.candidate,), relayouts)
        if layout.candidate.layout == pin.layout
        else State(layout, (layout.candidate,), (pin, *relayouts), sealed=True)
        for layout in produced
        for relayouts in sets
    ]
