# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Edges of the graph: the cost of reading an input, and the layouts in which it is read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.layout_search.layout_candidates import LayoutCandidate, copying_cost, distinct, image
from spyre_mlir.layout_search.op_layouts import transfer_cost, transfer_cost_in_loop
from spyre_mlir.layout_search.states import Domain, ProducedLayout, State
from spyre_mlir.records import dataclass

INFINITE = float("inf")


class Edge:
    """One input of a node: subclasses say what reading it costs. All costs are picoseconds."""

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        """Return the cost of reading the input in layout ``source`` for a ``result``; infinite if it cannot be."""
        raise NotImplementedError

    def table(self, source: Domain, result: Domain) -> NDArray[np.float64]:
        """Return the cost by state of the input (rows) and of the result, each by its cheapest layout."""
        costs = np.array([[self.cost(read, to) for to in result.produced] for read in source.candidates])
        return costs[source.available].min(axis=1)[:, result.produced_index]

    def reads(self, source: State, result: State) -> list[LayoutCandidate]:
        """Return the layouts that are read."""
        return [min(source.available, key=lambda read: self.cost(read, result.produced))]


@dataclass(frozen=True)
class OperandEdge(Edge):
    """An operation reads an operand: all of it once, as its op layout says; one ``in_loop`` may be in LX."""

    position: int
    in_loop: bool = False

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        """Return the time of the transfer."""
        assert result.op_layout is not None
        transfer = transfer_cost_in_loop if self.in_loop else transfer_cost
        cost = transfer(result.op_layout, self.position, source)
        return INFINITE if cost is None else cost


@dataclass(frozen=True)
class CopyOf(Edge):
    """A copy reads its source, whatever its layout."""

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        """Return the time of the copy."""
        return copying_cost(source, result.candidate)


@dataclass(frozen=True)
class ViewOf(Edge):
    """A view has the images of the layouts that its source has, for nothing."""

    step: object

    def table(self, source: Domain, result: Domain) -> NDArray[np.float64]:
        """Return 0 where the source has a layout for each base of the view, else infinity."""
        images = [image(self.step, read) for read in source.candidates]
        bases = distinct(base for state in result.states for base in state.base)
        column = {base: index for index, base in enumerate(bases)}
        needed = np.zeros((len(bases), len(result.states)), dtype=np.float32)
        for index, state in enumerate(result.states):
            needed[[column[base] for base in state.base], index] = 1
        # An image that is no base of the view serves none of its states.
        shown = [column.get(view, -1) if view is not None else -1 for view in images]
        existing = np.array(shown)[source.available][:, :, None] == np.arange(len(bases))
        # Counts of the bases that are missing, as a product of matrices: small numbers are exact in floats.
        missing = (~existing.any(axis=1)).astype(np.float32) @ needed
        return np.where(missing > 0, INFINITE, 0.0)

    def reads(self, source: State, result: State) -> list[LayoutCandidate]:
        """Return the layout of the source behind each base of the view."""
        return [
            next(read for read in source.available if image(self.step, read) is base) for base in result.base
        ]


@dataclass(frozen=True)
class InsertInto(Edge):
    """A tensor is inserted into a subview of a buffer: its producer writes it there, or it is copied there.

    If its stick changes it is converted before (or, to the whole buffer, instead). One whose layout has to be
    ``exact`` (it is pinned, or the buffer of a loop) is in place only where the subview has that very layout, not
    merely its stick. A ``partial`` one, a buffer that is not written all over yet, is never copied where it may be
    in place.
    """

    place: object
    may_be_in_place: bool
    exact: bool
    partial: bool = False

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        """Return the time of the copy into the subview, and of a relayout before if the stick changes."""
        target = image(self.place, result.candidate)
        if target is None:
            return INFINITE
        copies = 1 if source.stick_dim == target.stick_dim or target is result.candidate else 2
        return copies * copying_cost(source, target)

    def fits(self, source: State, result: ProducedLayout) -> bool:
        """Return whether the producer writes the tensor right into the subview."""
        subview, candidate = image(self.place, result.candidate), source.produced.candidate
        if not self.may_be_in_place or subview is None or subview.stick_dim != candidate.stick_dim:
            return False
        return not self.exact or subview.layout == candidate.layout

    def table(self, source: Domain, result: Domain) -> NDArray[np.float64]:
        """Return the cost of shorter runs where the tensor is in place, else that of the copy."""
        costs = super().table(source, result)
        if self.partial and self.may_be_in_place:
            # A copy would read what is not written yet.
            costs = np.full(costs.shape, INFINITE)
        for row, state in zip(costs, source.states, strict=True):
            fits = np.array([self.fits(state, layout) for layout in result.produced])
            in_place = np.array(
                [
                    self._in_place_cost(state.produced, layout) if fit else 0
                    for layout, fit in zip(result.produced, fits, strict=True)
                ]
            )
            row[:] = np.where(fits[result.produced_index], in_place[result.produced_index], row)
        return costs

    def _in_place_cost(self, source: ProducedLayout, result: ProducedLayout) -> int:
        """Return by how much it takes longer to write the subview than a buffer of the tensor alone."""
        subview = image(self.place, result.candidate)
        if subview is None:
            return 0
        if source.op_layout is None:
            # A copy, or a buffer of parts, whose runs are those of its copy.
            alone, in_place = (
                copying_cost(source.candidate, target) for target in (source.candidate, subview)
            )
            return round(max(0, in_place - alone))
        alone, in_place = (
            transfer_cost(source.op_layout, -1, candidate) for candidate in (source.candidate, subview)
        )
        return 0 if alone is None or in_place is None else max(0, in_place - alone)

    def reads(self, source: State, result: State) -> list[LayoutCandidate]:
        """Return the produced layout if in place, else the cheapest to copy."""
        if self.fits(source, result.produced):
            return [source.produced.candidate]
        return super().reads(source, result)


@dataclass(frozen=True)
class SameBuffer(Edge):
    """An iter_arg and the result of its loop are the buffer of their input.

    ``may_convert``: a yielded value may also be a relayout, made for the loop; the initial value is the buffer.
    """

    may_convert: bool

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        """Return 0 for one layout on both sides."""
        return 0 if source is result.candidate else INFINITE

    def table(self, source: Domain, result: Domain) -> NDArray[np.float64]:
        """Return 0 where the layouts agree: those that exist, or the produced ones alone."""
        if self.may_convert:
            return super().table(source, result)
        costs = np.array(
            [[self.cost(read.candidate, to) for to in result.produced] for read in source.produced]
        )
        return costs[source.produced_index][:, result.produced_index]
