# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The states of a tensor: the sets of its layouts that exist, the produced layout and its relayouts."""

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

#: Maximum number of relayouts of one tensor; its readers need at most three of its dims in the stick.
MAX_RELAYOUTS = 3
#: Cost of the memory of a weight's layout, as a fraction of the time to move it: decides only between equal costs.
_MEMORY_PRICE = 1 / 1024
#: Cost of an input whose sticks have another order than by default, and of one with another stick dim, as fractions of
#: the device time to read it. The first moves the same pieces; the second transposes, on a host that is 20 times as
#: slow. It is meant for tensors that stay on the device; a tensor sent with each call takes longer to arrive.
_ORDER_PRICE, _STICK_PRICE = 1 / 64, 1 / 4


# eq=False: there is one object per layout and op layout, so objects compare and hash by identity.
@dataclass(frozen=True, eq=False)
class ProducedLayout:
    """A layout that a node produces, with an op layout (None: not an operation). Created by ``produced_layout``."""

    candidate: LayoutCandidate
    op_layout: OpLayout | None = None


#: All produced layouts in use (see ``layout_candidates.candidate``).
_PRODUCED: weakref.WeakValueDictionary[tuple[LayoutCandidate, OpLayout | None], ProducedLayout] = (
    weakref.WeakValueDictionary()
)


@functools.lru_cache(maxsize=1 << 16)
def produced_layout(candidate: LayoutCandidate, op_layout: OpLayout | None = None) -> ProducedLayout:
    """Return the one object for a layout and an op layout."""
    return _PRODUCED.setdefault((candidate, op_layout), ProducedLayout(candidate, op_layout))


@dataclass(frozen=True)
class State:
    """The layouts of a tensor that exist: ``base`` without a relayout, ``converted`` by relayouts of ``base``.

    ``sealed``: readers may read only ``converted``, for example of a view that is pinned to another layout.
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
        """Return the source of a relayout: the cheapest base; if ``sealed``, later relayouts read the first."""
        sources = self.base
        if self.sealed and target is not self.converted[0]:
            sources = self.converted[:1]
        return cheapest(sources, target)


class Domain:
    """The states of one tensor, in arrays for the cost tables.

    ``available`` has a row per state: indices into ``candidates``, the first index repeated to fill the row.
    ``produced_index`` has the index into ``produced`` for each state, ``costs`` the own cost of a state (picoseconds).
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
    """Return the cost of layouts that the host prepares: near 0, so that memory only decides between equal costs."""
    targets = ((candidate, candidate.view.target) for candidate in state.base)
    transfers = (pass_cost(target, candidate.bytes, target.burst_bytes) for candidate, target in targets)
    # Costs are whole picoseconds; sums of integers are exact in floats, so equal plans have equal costs.
    return round(_MEMORY_PRICE * sum(transfers))


def host_cost(candidate: LayoutCandidate, usual: LayoutCandidate, stays: bool) -> int:
    """Return the cost of an input layout that is not the default layout ``usual``.

    An input that ``stays`` on the device, because the program updates it, is transferred only once.
    """
    if candidate is usual:
        return 0
    target = candidate.view.target
    price = _ORDER_PRICE if stays or candidate.stick_dim == usual.stick_dim else _STICK_PRICE
    return round(price * pass_cost(target, candidate.bytes, target.burst_bytes))


def relayout_sets(
    base: tuple[LayoutCandidate, ...], targets: tuple[LayoutCandidate, ...], readers: int
) -> list[tuple[LayoutCandidate, ...]]:
    """Return the sets of relayouts that can be useful for this number of ``readers``, the empty set first."""
    useful = [target for target in targets if target not in base]
    limit = min(readers, MAX_RELAYOUTS, len(useful))
    return [subset for count in range(limit + 1) for subset in itertools.combinations(useful, count)]


def argument_states(produced: tuple[ProducedLayout, ...], readers: int) -> list[State]:
    """Return the states of a tensor laid out ahead of time: any layouts, at most one per stick and per reader."""
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
    """Return states with views of one layout of the source, or of two if there are two readers; and relayouts."""
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
    """Return states with views in the pinned layout, and with relayouts of other views, which no reader reads."""
    sets = relayout_sets((pin,), targets, readers)
    return [
        State(layout, (layout.candidate,), relayouts)
        if layout.candidate.layout == pin.layout
        else State(layout, (layout.candidate,), (pin, *relayouts), sealed=True)
        for layout in produced
        for relayouts in sets
    ]
