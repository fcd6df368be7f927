"""The states of a tensor: which of its layouts exist, its own and the conversions made of it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.of_tensor import pass_cost
from spyre_mlir.layout.candidates import Candidate, cheapest, conversion_cost, distinct
from spyre_mlir.layout.operations import Way, transfer_cost
from spyre_mlir.target.device import device

#: Layouts of one tensor beside its own; more than three dims of one tensor are never wanted at once.
MOST_CONVERSIONS = 3
#: Memory of a further layout of a weight, as a part of the time to move it: decides between equals only.
_MEMORY_PRICE = 1 / 1024


@dataclass(frozen=True, eq=False)
class Own:
    """A layout that a producer makes, and the way it works then (None: it has but one). Made by ``owning``."""

    held: Candidate
    way: Way | None = None


@functools.lru_cache(maxsize=1 << 16)
def owning(held: Candidate, way: Way | None = None) -> Own:
    """The one object for a layout and a way."""
    return Own(held, way)


@dataclass(frozen=True)
class State:
    """The layouts of a tensor that exist: ``base`` without a conversion, ``converted`` made of those."""

    own: Own
    base: tuple[Candidate, ...]
    converted: tuple[Candidate, ...] = ()
    sealed: bool = False

    @property
    def held(self) -> tuple[Candidate, ...]:
        """The layouts that readers may take: all that exist, or if ``sealed`` the converted one alone."""
        return self.converted if self.sealed else self.base + self.converted

    def converted_from(self, target: Candidate) -> Candidate:
        """What ``target`` is made of; if ``sealed`` the first conversion is made of the base, the others of it."""
        sources = self.base
        if self.sealed and target is not self.converted[0]:
            sources = self.converted[:1]
        return cheapest(sources, target)


class Domain:
    """The states of one tensor, in arrays: which candidates each holds and what it costs by itself."""

    def __init__(self, owns: Sequence[Own], states: Sequence[State], costs: Sequence[float]) -> None:
        self.owns = tuple(owns)
        self.states = tuple(states)
        self.candidates = distinct(held for state in states for held in state.held)
        at = {held: position for position, held in enumerate(self.candidates)}
        own_at = {own: position for position, own in enumerate(self.owns)}
        width = max(len(state.held) for state in states)
        self.held = np.array(
            [
                [at[held] for held in (*state.held, *state.held[:1] * (width - len(state.held)))]
                for state in states
            ]
        )
        self.own: NDArray[np.intp] = np.array([own_at[state.own] for state in states])
        self.costs = np.array(costs, dtype=np.float64)


def state_cost(state: State, from_host: bool = False) -> float:
    """Picoseconds to write the result and to make its conversions."""
    written = 0 if state.own.way is None else transfer_cost(state.own.way, -1, state.own.held)
    assert written is not None
    made = ((state.converted_from(target), target) for target in state.converted)
    return written + sum(conversion_cost(source, target, from_host) for source, target in made)


def memory_cost(state: State) -> int:
    """What layouts ahead of time count: almost nothing, but of equals the smaller memory wins."""
    return round(_MEMORY_PRICE * sum(pass_cost(held.bytes, device().burst_bytes) for held in state.base))


def conversions(
    base: tuple[Candidate, ...], wanted: tuple[Candidate, ...], readers: int
) -> list[tuple[Candidate, ...]]:
    """The sets of conversions that can be of use to so many readers."""
    useful = [held for held in wanted if held not in base]
    most = min(readers, MOST_CONVERSIONS)
    return [
        chosen
        for count in range(min(most, len(useful)) + 1)
        for chosen in itertools.combinations(useful, count)
    ]


def given_states(owns: tuple[Own, ...], readers: int) -> list[State]:
    """Layouts ahead of time: any of them, at most one per stick and reader."""
    states = []
    for count in range(1, max(1, min(readers, MOST_CONVERSIONS, len(owns))) + 1):
        for chosen in itertools.combinations(owns, count):
            if len({(own.held.lane, own.held.sticks) for own in chosen}) == count:
                states.append(State(chosen[0], tuple(own.held for own in chosen)))
    return states


def view_states(owns: tuple[Own, ...], wanted: tuple[Candidate, ...], readers: int) -> list[State]:
    """Views of one layout of the source, or of two if there are readers for both; and conversions of them."""
    states = []
    for count in range(1, min(2, max(readers, 1), len(owns)) + 1):
        for chosen in itertools.combinations(owns, count):
            base = tuple(own.held for own in chosen)
            if len({held.lane for held in base}) == count:
                extras = conversions(base, wanted, readers)
                states += [State(chosen[0], base, extra) for extra in extras if len(base) + len(extra) <= 4]
    return states


def pinned_view_states(
    owns: tuple[Own, ...], pin: Candidate, wanted: tuple[Candidate, ...], readers: int
) -> list[State]:
    """Views that lie as the pin says, and copies that do; no reader takes the view of those itself."""
    extras = conversions((pin,), wanted, readers)
    return [
        State(own, (own.held,), extra)
        if own.held.layout == pin.layout
        else State(own, (own.held,), (pin, *extra), sealed=True)
        for own in owns
        for extra in extras
    ]
