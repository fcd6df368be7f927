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

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.layout.rules import sentence, why_no_form
from spyre_mlir.layout.stick_layout import is_convertible, is_restickified
from spyre_mlir.layout.view_transforms import ViewTransform
from spyre_mlir.layout_search.domains import Domains
from spyre_mlir.layout_search.layout_candidates import (
    LayoutCandidate,
    candidate_of,
    copying_cost,
    default_candidates,
    distinct,
    image,
    ordered,
    packed,
    packed_like,
    relayout_cost,
)
from spyre_mlir.layout_search.layout_choice import LayoutProblem, cheapest_layouts
from spyre_mlir.layout_search.op_layouts import OpLayout, op_layouts, transfer_cost, transfer_cost_in_loop
from spyre_mlir.layout_search.producer_candidates import (
    best_order,
    is_batched,
    single_stick_dims,
    sized,
    uncut,
    viewable,
)
from spyre_mlir.layout_search.states import Domain, ProducedLayout, State
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
from spyre_mlir.target.ops import DEVICE_OPS, KINDS, Kind
from spyre_mlir.target.target import Target

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


# The op layouts that each operation of a graph may have; the stick-sparse ones only where an input can be sparse.

#: Whether a tensor may be stick-sparse; None for one that is sparse or dense as its readers like.
_Sparsity = bool | None


def op_layouts_of(graph: Graph) -> list[tuple[OpLayout, ...]]:
    """Return the op layouts to try for each node, () for one that is no operation.

    ``LayoutError`` for an operation without a legal one.
    """
    sparsity: list[_Sparsity] = []
    layouts: list[tuple[OpLayout, ...]] = []
    for index, node in enumerate(graph.nodes):
        legal: tuple[OpLayout, ...] = ()
        if isinstance(node, Compute):
            legal = _legal(index, node, [sparsity[tensor] for tensor in node.operands])
        layouts.append(legal)
        sparsity.append(_sparsity(graph.target, node, sparsity, legal))
    return layouts


def _legal(index: int, node: Compute, operands: list[_Sparsity]) -> tuple[OpLayout, ...]:
    layouts = op_layouts(node.signature)
    if not layouts:
        raise LayoutError(index, why_no_form(node.signature.opcode, node.signature.iteration))
    # All operands sparse moves a whole stick per element: nobody would convert dense inputs to that.
    if any(operands) or (None in operands and False not in operands):
        return layouts
    return tuple(layout for layout in layouts if not layout.sparse) or layouts


def _sparsity(
    target: Target, node: TensorNode, sparsity: list[_Sparsity], legal: tuple[OpLayout, ...]
) -> _Sparsity:
    if not sized(node.shape) or isinstance(node, IterArg | LoopResult):
        return None
    if isinstance(node, ArgumentNode):
        return None if node.free else node.pin is None or candidate_of(node.pin).stick_dim is None
    if isinstance(node, Compute):
        return any(layout.stick_dims[-1] is None for layout in legal)
    if isinstance(node, InsertSliceBuffer):
        return not uncut(target, node)
    source = sparsity[node.inputs[0]]
    return source is None or source


# Requested layouts: what matmuls ask of the tensors that reach them through views and pointwise operations.

#: Requests of one tensor that are tried, those of its first readers.
_MAX_REQUESTS = 3


def requested_layouts(
    graph: Graph, op_layouts: Sequence[tuple[OpLayout, ...]], stick_outermost: bool
) -> list[tuple[LayoutCandidate, ...]]:
    """Return for each tensor the layouts with which a matmul behind it needs no copy; () for most tensors.

    Batch dims are one in the matmul, and so may be dims that a view merges into a contracted one: they have to be
    neighbours in memory, which no order that follows the dims of the tensor alone may give.
    """
    requests: list[tuple[LayoutCandidate, ...]] = [()] * len(graph.nodes)
    readers = graph.readers()

    def of_reader(node: TensorNode, reader: int, position: int) -> Iterator[LayoutCandidate | None]:
        """Yield the requests of one reader, as layouts of what it reads."""
        other = graph.nodes[reader]
        if isinstance(other, ViewNode):
            for request in requests[reader]:
                yield _before_view(other.step, node, request)
        elif isinstance(other, Compute) and KINDS[other.signature.opcode] is Kind.MATMUL:
            for stick in single_stick_dims(op_layouts[reader], position):
                if stick is not None:
                    target = other.signature.iteration.target
                    yield default_candidates(target, node.shape, node.dtype, stick, stick_outermost)[-1]
        elif isinstance(other, Compute) and KINDS[other.signature.opcode] is Kind.POINTWISE:
            for request in requests[reader]:
                yield _of_operand(other, position, node, request)

    # From the last to the first, so that a request is known before the tensors in front of it are seen.
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        candidates = (
            candidate
            for reader, position in readers[index]
            for candidate in of_reader(node, reader, position)
            if candidate is not None
        )
        requests[index] = distinct(candidates)[:_MAX_REQUESTS]
    return requests


def _before_view(step: ViewTransform, node: TensorNode, request: LayoutCandidate) -> LayoutCandidate | None:
    """Return the layout of the source of a view that gives the view a layout; None if there is none."""
    inverse = step.inverse(node.shape)
    source = None if inverse is None else image(inverse, request)
    if source is None or not source.addressable or source.sticks or source.stick_dim is None:
        return None
    return ordered(request.view.target, node.shape, node.dtype, source.stick_dim, source.order)


def _of_operand(
    operation: Compute, position: int, node: TensorNode, request: LayoutCandidate
) -> LayoutCandidate | None:
    """Return the layout of an operand in the order of the result; None if it does not have all dims of that."""
    dims, result = operation.signature.maps[position], operation.signature.maps[-1]
    if request.stick_dim is None or len(dims) != len(result) or set(dims) != set(result):
        return None
    axis = {dim: number for number, dim in enumerate(dims)}
    order = tuple(axis[result[dim]] for dim in request.order)
    return ordered(request.view.target, node.shape, node.dtype, axis[result[request.stick_dim]], order)


# Edges of the graph: the cost of reading an input, and the layouts in which it is read.

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


# Reader candidates: the layouts that the readers of a tensor may ask for, to which a relayout may convert it.

_StickDims = tuple[int | None, ...]


class ReaderCandidates:
    """Collects the reader candidates of all tensors of a graph, from the last one to the first.

    In that order the candidates of a view are complete before those of its source, which has to provide them.
    """

    def __init__(
        self, graph: Graph, op_layouts: Sequence[tuple[OpLayout, ...]], stick_outermost: bool
    ) -> None:
        self.target, self.nodes = graph.target, graph.nodes
        self.readers = graph.readers()
        self.op_layouts = op_layouts
        self.stick_outermost = stick_outermost
        self.candidates: list[tuple[LayoutCandidate, ...]] = [()] * len(self.nodes)
        self.batched = [False] * len(self.nodes)

    def collect(self) -> list[tuple[LayoutCandidate, ...]]:
        """Return the candidates of each tensor; () for a tensor of one element, which lies as any reader likes."""
        for index in reversed(range(len(self.nodes))):
            self._collect(index, self.nodes[index])
        return self.candidates

    def _collect(self, index: int, node: TensorNode) -> None:
        dims: dict[int | None, None] = {}
        for reader, position in self.readers[index]:
            self.batched[index] |= (
                self.batched[reader] if self._keeps_order(reader) else self._is_batched(reader)
            )
            dims |= dict.fromkeys(self._stick_dims(node, reader, position))
            # ``viewable`` names no sparse stick beside dense ones, but this view is read sparse.
            if isinstance(node, ArgumentNode) and node.free and self._is_sparse_view(node, reader):
                dims[None] = None
        if not sized(node.shape):
            return
        stick_dims = tuple(dims)
        candidates = [*self._by_stick_dim(index, node, stick_dims), *self._packed(index, node)]
        if not is_convertible(node.dtype):
            candidates += self._in_logical_order(index, node, stick_dims)
        self.candidates[index] = distinct([*candidates, *self._pins_of_iter_args(index)])

    def _packed(self, index: int, node: TensorNode) -> tuple[LayoutCandidate, ...]:
        """The layouts with several dims in the stick that readers need, through views too."""
        candidates: list[LayoutCandidate] = []
        for reader, position in self.readers[index]:
            other = self.nodes[reader]
            if isinstance(other, ViewNode) and not is_convertible(node.dtype):
                candidates += packed_like(
                    self.target, other.step, node.shape, node.dtype, self.candidates[reader]
                )
            sticks = dict.fromkeys(layout.sticks[position] for layout in self.op_layouts[reader])
            candidates += [packed(self.target, node.shape, node.dtype, digits) for digits in sticks if digits]
        return distinct(candidates)

    def _in_logical_order(
        self, index: int, node: TensorNode, stick_dims: _StickDims
    ) -> tuple[LayoutCandidate, ...]:
        """The layouts whose dims but the stick keep their logical order, so that reshapes of them are views.

        For elements that no relayout converts: there the default order, dim 0 innermost, could not be mended.
        """
        if not any(isinstance(self.nodes[reader], ViewNode) for reader, _ in self.readers[index]):
            return ()
        dims = range(len(node.shape))
        orders = [
            (stick, [*dims] if stick is None else [stick, *(d for d in dims if d != stick)])
            for stick in stick_dims
        ]
        return tuple(
            ordered(self.target, node.shape, node.dtype, stick, tuple(order)) for stick, order in orders
        )

    def _pins_of_iter_args(self, index: int) -> list[LayoutCandidate]:
        """The pinned layouts of loops that yield the tensor; the buffer before a loop has the pin itself."""
        loops = [self.nodes[reader] for reader, _ in self.readers[index]]
        if isinstance(self.nodes[index], InsertSliceBuffer):
            return []
        return [candidate_of(node.pin) for node in loops if isinstance(node, IterArg) and node.pin]

    def _keeps_order(self, reader: int) -> bool:
        """Return whether a node hands the order of its input on: a view, a copy, an operation on one tensor."""
        node = self.nodes[reader]
        if not isinstance(node, Compute):
            return isinstance(node, ViewNode | Copy)
        tensors = sum(bool(sized(self.nodes[operand].shape)) for operand in node.operands)
        return KINDS[node.signature.opcode] is Kind.POINTWISE and tensors == 1

    def _is_batched(self, reader: int) -> bool:
        node = self.nodes[reader]
        return isinstance(node, Compute) and is_batched(node.signature)

    def _stick_dims(self, node: TensorNode, reader: int, position: int) -> _StickDims:
        """The stick dims in which one reader may read a tensor."""
        other = self.nodes[reader]
        if isinstance(other, Compute):
            return single_stick_dims(self.op_layouts[reader], position)
        if isinstance(other, ViewNode):
            return viewable(self.target, other.step, node.shape, node.dtype, self.stick_outermost)
        if isinstance(other, IterArg):
            # The buffer before a loop is never converted (``SameBuffer``), a yielded value may be.
            return () if isinstance(node, InsertSliceBuffer) else (*sized(node.shape), None)
        # Into a buffer an argument goes with any stick; a result is converted on its way.
        chosen = isinstance(node, ArgumentNode) and (node.free or node.by_price)
        return sized(node.shape) if chosen else ()

    def _is_sparse_view(self, node: ArgumentNode, reader: int) -> bool:
        """Return whether a reader is a view that is read sparse, as the positions of a gather are.

        It is read so alone, or may be, and the device cannot give it another stick.
        """
        stick_dims = {candidate.stick_dim for candidate in self.candidates[reader]}
        is_sparse = stick_dims == {None} or (None in stick_dims and not is_restickified(node.dtype))
        return isinstance(self.nodes[reader], ViewNode) and is_sparse

    def _default(self, node: TensorNode, stick: int | None) -> tuple[LayoutCandidate, ...]:
        return default_candidates(self.target, node.shape, node.dtype, stick, self.stick_outermost)

    def _by_stick_dim(
        self, index: int, node: TensorNode, stick_dims: _StickDims
    ) -> tuple[LayoutCandidate, ...]:
        """The dense layouts with each of these dims in the stick, in the orders worth a relayout."""
        if node.pin is not None:
            return tuple(self._default(node, stick)[0] for stick in stick_dims)
        if isinstance(node, ArgumentNode) and node.free:
            # Weights are laid out before the program runs: every order is free, so all of them are tried.
            orders = [
                ordered(self.target, node.shape, node.dtype, stick, order)
                for stick in stick_dims
                for order in self._row_orders(index)
            ]
            return distinct((*(c for stick in stick_dims for c in self._default(node, stick)), *orders))
        if isinstance(node, ArgumentNode) and node.by_price:
            return distinct(c for stick in stick_dims for c in self._by_row(node, stick))
        readers = (self.nodes[reader] for reader, _ in self.readers[index])
        steps = [node.step for node in readers if isinstance(node, ViewNode)]
        return tuple(
            best_order(self._default(node, stick), steps, self.batched[index]) for stick in stick_dims
        )

    def _by_row(self, node: TensorNode, stick: int | None) -> tuple[LayoutCandidate, ...]:
        """The default orders, and those with each dim in turn innermost: through views any may be the rows."""
        dims = [dim for dim in sized(node.shape) if dim != stick]
        orders = [(*(dim for dim in dims if dim != row), stick, row) for row in dims if stick is not None]
        rows = (ordered(self.target, node.shape, node.dtype, stick, order) for order in orders)
        return distinct((*self._default(node, stick), *rows))

    def _row_orders(self, index: int) -> list[tuple[int, ...]]:
        """Orders of a table, outermost first, in which each row that a gather reads lies in one piece."""
        orders = []
        for reader, position in self.readers[index]:
            node = self.nodes[reader]
            if isinstance(node, Compute) and position == DEVICE_OPS[node.signature.opcode].table:
                rows = node.signature.iteration.reduced
                dims = node.signature.maps[position]
                orders.append(tuple(sorted(range(len(dims)), key=lambda axis: dims[axis] not in rows)))
        return orders
