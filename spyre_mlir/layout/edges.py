"""How a node reads an input: in which of its layouts, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.layout.candidates import Candidate, copying_cost, distinct, image
from spyre_mlir.layout.operations import transfer_cost
from spyre_mlir.layout.states import Domain, Own, State

INFINITE = float("inf")


class Edge:
    """How a node reads an input: what that costs, and in which layout."""

    def price(self, held: Candidate, own: Own) -> float:
        """Picoseconds to read the input as ``held`` for a result like ``own``; infinite if it cannot be."""
        raise NotImplementedError

    def table(self, read: Domain, made: Domain) -> NDArray[np.float64]:
        """The cheapest layout that each state of the input holds, per state of the result."""
        prices = np.array([[self.price(held, own) for own in made.owns] for held in read.candidates])
        return prices[read.held].min(axis=1)[:, made.own]

    def reads(self, source: State, result: State) -> list[Candidate]:
        """The layouts that are read."""
        return [min(source.held, key=lambda held: self.price(held, result.own))]


@dataclass(frozen=True)
class Operand(Edge):
    """An operation reads an operand: all of it once, in a layout that its way takes."""

    position: int

    def price(self, held: Candidate, own: Own) -> float:
        assert own.way is not None
        cost = transfer_cost(own.way, self.position, held)
        return INFINITE if cost is None else cost


@dataclass(frozen=True)
class CopyOf(Edge):
    """A copy reads its source, whatever its layout."""

    def price(self, held: Candidate, own: Own) -> float:
        return copying_cost(held, own.held)


@dataclass(frozen=True)
class ViewOf(Edge):
    """A view exists in what it makes of the layouts that its source has, for nothing."""

    step: object

    def table(self, read: Domain, made: Domain) -> NDArray[np.float64]:
        images = [image(self.step, held) for held in read.candidates]
        bases = distinct(held for state in made.states for held in state.base)
        holds = np.array([[held in state.base for state in made.states] for held in bases])
        there = np.zeros((len(read.states), len(bases)), dtype=bool)
        at = {held: position for position, held in enumerate(bases)}
        for row, held in zip(there, read.held, strict=True):
            row[[at[images[k]] for k in held if images[k] in at]] = True
        missing = (holds[None, :, :] & ~there[:, :, None]).any(axis=1)
        return np.where(missing, INFINITE, 0.0)

    def reads(self, source: State, result: State) -> list[Candidate]:
        return [next(held for held in source.held if image(self.step, held) is base) for base in result.base]


@dataclass(frozen=True)
class PutInto(Edge):
    """A part is made in its place, or copied there; if its stick changes it is converted before (or, to the
    whole buffer, instead).

    One whose layout has to be ``exact`` (it is pinned, or the buffer of a loop) is made in a place that lies
    like it, not merely one with its stick. A ``partial`` one, a buffer that is not written all over yet, is never
    copied where its place can be its own.
    """

    place: object
    in_place: bool
    exact: bool
    partial: bool = False

    def price(self, held: Candidate, own: Own) -> float:
        target = image(self.place, own.held)
        if target is None:
            return INFINITE
        copies = 1 if held.lane == target.lane or target is own.held else 2
        return copies * copying_cost(held, target)

    def fits(self, source: State, own: Own) -> bool:
        """Whether the part is made in its place."""
        place = image(self.place, own.held)
        if not self.in_place or place is None or place.lane != source.own.held.lane:
            return False
        return not self.exact or place.layout == source.own.held.layout

    def table(self, read: Domain, made: Domain) -> NDArray[np.float64]:
        costs = super().table(read, made)
        if self.partial and self.in_place:
            costs = np.full(costs.shape, INFINITE)
        for row, state in zip(costs, read.states, strict=True):
            row[np.array([self.fits(state, own) for own in made.owns])[made.own]] = 0
        return costs

    def reads(self, source: State, result: State) -> list[Candidate]:
        if self.fits(source, result.own):
            return [source.own.held]
        return super().reads(source, result)


@dataclass(frozen=True)
class Same(Edge):
    """What a loop carries is one buffer; what it is next may be a conversion that is ``made`` for it."""

    made: bool

    def price(self, held: Candidate, own: Own) -> float:
        return 0 if held is own.held else INFINITE

    def table(self, read: Domain, made: Domain) -> NDArray[np.float64]:
        if self.made:
            return super().table(read, made)
        prices = np.array([[self.price(source.held, own) for own in made.owns] for source in read.owns])
        return prices[read.own][:, made.own]
