# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cheapest layouts of a whole program.

Every tensor has *candidates*: layouts that its producer can make, and layouts that its readers may ask for. A
*state* of a tensor says which of them exist: the produced layout and the relayouts of it. Costs are tables over
the states of a tensor and of its operands, in whole picoseconds (``cost/of_tensor.py``):

- an operation moves each operand once, in a layout that one of its op layouts accepts (``rules.py``); that counts
  bytes and bursts only, for it may stay in LX;
- a relayout is an operation of its own, once for all readers that need it: it reads and writes the whole
  tensor in device memory and waits for both; it runs as often as the producer does, so it stands outside
  the loops that its readers are in;
- weights and constants are laid out ahead of time, in any layouts, at the cost of their memory alone;
- a view moves nothing: its images of the layouts of its source exist for free;
- an iter_arg has one layout before, in and after its loop.

``sparsity.py`` has the op layouts of a node, ``reader_candidates.py`` what its readers ask for, ``domains.py`` its
states, ``edges.py`` the cost of reading; ``optimization/elimination.py`` finds the smallest sum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.layout.rules import sentence
from spyre_mlir.layout.stick_layout import is_convertible
from spyre_mlir.layout_search.domains import Domains
from spyre_mlir.layout_search.edges import INFINITE, CopyOf, Edge, InsertInto, OperandEdge, SameBuffer, ViewOf
from spyre_mlir.layout_search.layout_candidates import LayoutCandidate, relayout_cost
from spyre_mlir.layout_search.layout_choice import LayoutProblem, cheapest_layouts
from spyre_mlir.layout_search.reader_candidates import ReaderCandidates
from spyre_mlir.layout_search.requested_layouts import requested_layouts
from spyre_mlir.layout_search.sparsity import op_layouts_of
from spyre_mlir.layout_search.states import State
from spyre_mlir.layout_search.tensor_graph import (
    ArgumentNode,
    Compute,
    Copy,
    Graph,
    InsertedSlice,
    InsertSliceBuffer,
    IterArg,
    LayoutError,
    LoopResult,
    TensorNode,
    ViewNode,
    in_loop,
    whole,
)
from spyre_mlir.optimization.bounded_cache import BoundedCache
from spyre_mlir.optimization.elimination import Minimum, Sum
from spyre_mlir.records import dataclass

#: Nodes whose tensor is a buffer that no single operation writes.
_BUFFERS = (InsertSliceBuffer, IterArg, LoopResult)

#: Cost tables of the last programs by edge and domains, at most so many bytes.
_TABLES: BoundedCache[NDArray[np.float64]] = BoundedCache(1 << 28, lambda table: table.nbytes)


def _is_buffer(node: TensorNode) -> bool:
    """Return whether insertions may go on with the memory of a tensor."""
    return isinstance(node, _BUFFERS) or (isinstance(node, ArgumentNode) and node.updated)


@dataclass(frozen=True)
class PlannedRelayout:
    """A copy of a tensor from one of its layouts into another; ``cost`` in picoseconds."""

    source: LayoutCandidate
    target: LayoutCandidate
    cost: int


@dataclass(frozen=True)
class Decision:
    """The layouts of one tensor in a plan.

    ``reads`` are the layouts in which its node reads each input; for a view, one per layout in
    ``state.base``. ``in_place`` tells for each part of a buffer whether its producer writes it there. ``options``
    counts the layouts that the node could have produced.
    """

    state: State
    reads: tuple[LayoutCandidate, ...]
    in_place: tuple[bool, ...]
    relayouts: tuple[PlannedRelayout, ...]
    options: int


@dataclass(frozen=True)
class LayoutPlan:
    """A decision per tensor; ``cost`` and ``bound`` (no plan costs less) in picoseconds."""

    decisions: tuple[Decision, ...]
    cost: float
    bound: float

    @property
    def proven(self) -> bool:
        """True if no other choice among the candidates costs less."""
        return self.cost <= self.bound


def choose(
    graph: Graph,
    *,
    stick_outermost: bool = False,
    limit_entries: int = 1 << 21,
    width: int = 200,
    choice: str = "elimination",
) -> LayoutPlan:
    """Return the cheapest consistent layouts of all tensors, by the layout ``choice`` of a name.

    ``stick_outermost`` is the convention of the default order. Exact while no table of the elimination has
    more than ``limit_entries``, else a beam of ``width`` with a bound. ``LayoutError`` if nothing fits.
    """
    problem = Problem(graph, stick_outermost)
    total, names = problem.sum(), tuple(node.name for node in graph.nodes)
    tables = LayoutProblem(tuple(total.sizes), total.tables, names, limit_entries, width)
    return problem.plan(cheapest_layouts(choice, tables))


class Problem:
    """The choice as a sum of cost tables: domains are the variables, edges of the graph the tables."""

    def __init__(self, graph: Graph, stick_outermost: bool) -> None:
        self.nodes = graph.nodes
        self.readers = graph.readers()
        op_layouts = op_layouts_of(graph)
        self.reader_candidates = ReaderCandidates(graph, op_layouts, stick_outermost).collect()
        requests = requested_layouts(graph, op_layouts, stick_outermost)
        domains = Domains(graph, op_layouts, self.reader_candidates, requests, stick_outermost)
        self.domains = domains.build()
        self._tables: dict[tuple, NDArray[np.float64]] = {}

    def sum(self) -> Sum:
        """Return all costs as tables over the states of tensors."""
        total = Sum([len(domain.states) for domain in self.domains])
        for index, node in enumerate(self.nodes):
            total.add((index,), self.domains[index].costs)
            for position, source in enumerate(node.inputs):
                table = self._table(node, index, position, source)
                # A loop that yields its iter_arg unchanged: the edge has one variable on both sides.
                if source == index:
                    total.add((index,), np.ascontiguousarray(table.diagonal()))
                elif source < index:
                    total.add((source, index), table)
                else:  # a yielded value comes after its iter_arg; scopes are ascending
                    total.add((index, source), np.ascontiguousarray(table.T))
        return total

    def _table(self, node: TensorNode, index: int, position: int, source: int) -> NDArray[np.float64]:
        """Costs of one edge: states of the input x states of the result."""
        domain, result = self.domains[source], self.domains[index]
        edge = self._edge(node, position)
        # Elimination recognises equal subproblems by the identity of their tables, so each is made once.
        key = (edge, domain, result, node.times)
        if key not in self._tables:
            self._tables[key] = _TABLES.get(key, lambda: node.times * edge.table(domain, result))
        return self._tables[key]

    def _edge(self, node: TensorNode, position: int) -> Edge:
        if isinstance(node, Compute):
            return OperandEdge(position, in_loop(self.nodes[node.operands[position]]))
        if isinstance(node, ViewNode):
            return ViewOf(node.step)
        if isinstance(node, InsertSliceBuffer):
            part = node.parts[position]
            source = self.nodes[part.source]
            exact = source.pin is not None or _is_buffer(source)
            return InsertInto(part.place, self._may_be_in_place(node, part), exact, part.partial)
        if isinstance(node, IterArg | LoopResult):
            return SameBuffer(may_convert=isinstance(node, IterArg) and position == 1)
        return CopyOf()

    def _may_be_in_place(self, node: InsertSliceBuffer, part: InsertedSlice) -> bool:
        """Return whether a part needs no copy: an operation writes it for nobody else, or it is the buffer itself."""
        source = self.nodes[part.source]
        if part.out_of_place:
            return False
        if _is_buffer(source):
            return part.place == whole(node.shape)
        return len(self.readers[part.source]) == 1 and isinstance(source, Compute | Copy)

    def plan(self, minimum: Minimum) -> LayoutPlan:
        """Return the decisions of a minimum; ``LayoutError`` if its cost is infinite."""
        if minimum.cost == INFINITE:
            raise self._misfit()
        states = [domain.states[index] for domain, index in zip(self.domains, minimum.states, strict=True)]
        decisions = tuple(self._decision(index, node, states) for index, node in enumerate(self.nodes))
        return LayoutPlan(decisions, minimum.cost, minimum.bound)

    def _misfit(self) -> LayoutError:
        """The error where nothing fits: of the first operation on a type without relayouts, if there is one."""
        for index, node in enumerate(self.nodes):
            if isinstance(node, Compute) and not all(
                is_convertible(self.nodes[operand].dtype) for operand in node.operands
            ):
                rule = sentence(node.signature.opcode)
                reason = "an operand does not lie as it must, and no operation converts 8-bit tensors"
                return LayoutError(index, f"{reason}: {rule}")
        return LayoutError(len(self.nodes) - 1, "no layouts of its tensors go together")

    def _decision(self, index: int, node: TensorNode, states: list[State]) -> Decision:
        state = states[index]
        relayouts = []
        for target in state.converted:
            source = state.converted_from(target)
            cost = node.times * relayout_cost(source, target, node.from_host)
            relayouts.append(PlannedRelayout(source, target, cost))
        reads: list[LayoutCandidate] = []
        in_place: list[bool] = []
        for position, source in enumerate(node.inputs):
            edge = self._edge(node, position)
            reads += edge.reads(states[source], state)
            in_place.append(isinstance(edge, InsertInto) and edge.fits(states[source], state.produced))
        options = len(self.domains[index].produced)
        return Decision(state, tuple(reads), tuple(in_place), tuple(relayouts), options)
