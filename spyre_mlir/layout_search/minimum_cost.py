# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Choose the cheapest layouts of a whole program.

Every tensor has *candidates*: layouts that its producer can write, and layouts that its readers may ask for. A
*state* of a tensor is the set of its layouts that exist: the produced layout and its relayouts. Costs are tables
over the states of a tensor and of its operands, in whole picoseconds (``cost/of_space.py``):

- an operation moves each operand once, in a layout that one of its op layouts accepts (``rules.py``); only bytes
  and bursts count, because the operand may stay in LX;
- a relayout is a separate operation, executed once for all readers that need it: it reads and writes the whole
  tensor in device memory and waits for both transfers; it runs as often as the producer, outside the loops around
  its readers;
- weights and constants are laid out ahead of time, in any number of layouts, at the cost of their memory only;
- a view does not move data: for each layout of its source it has an image of this layout for free;
- an iter_arg has one layout before, in and after its loop.

The sections below contain the states of each tensor, the op layouts of a node, the requested layouts, the cost of
reading and the reader candidates.

Search. A table over one tensor has the cost of writing each state, a table over two tensors the cost of reading one
for the other, infinite where no op layout fits. The cost of a program is the sum of one entry per table, so the
cheapest program is the minimum of a sum of small tables; ``optimization/elimination.py`` finds it.

Invariant. Each state contains a layout that its producer can write, so a finite sum is a program that can run; pins and
arguments restrict states, and a tensor without states is a ``LayoutError``. Complexity: a tensor of s produced layouts
and t other requested layouts has O(s * t^3) states, because at most three relayouts of it (``MAX_RELAYOUTS``) are
useful; a table has at most the product of two such numbers of entries. Domains and tables of recent programs are
cached, because the programs that tiling and division evaluate differ in few tensors.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.of_space import pass_cost
from spyre_mlir.layout.rules import sentence, violation, why_no_form
from spyre_mlir.layout.stick_layout import is_convertible, is_restickified
from spyre_mlir.layout.view_transforms import Slide
from spyre_mlir.layout_search.layout_candidates import (
    MAX_RELAYOUTS,
    Domain,
    LayoutCandidate,
    OpLayout,
    ProducedLayout,
    State,
    best_order,
    candidate_of,
    copying_cost,
    default_candidates,
    distinct,
    image,
    op_layouts,
    ordered,
    packed,
    packed_like,
    produced_layout,
    relayout_cost,
    relayout_sets,
    results,
    single_stick_dims,
    sized,
    transfer_cost,
    transfer_cost_in_lx,
    uncut,
    viewable,
)
from spyre_mlir.layout_search.layout_choice import LayoutProblem, cheapest_layouts
from spyre_mlir.layout_search.tensor_graph import (
    ArgumentNode,
    Compute,
    Copy,
    Graph,
    InsertSliceBuffer,
    IterArg,
    LayoutError,
    LoopResult,
    TensorNode,
    ViewNode,
    staying_part,
    whole,
)
from spyre_mlir.optimization.elimination import BoundedCache, Minimum, Sum
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, KINDS, Kind
from spyre_mlir.target.target import Target

# The domain of each tensor of a graph: the layouts that its node can produce, and the states with these layouts.

#: Cost of the memory of a weight's layout, as a fraction of the time to move it: decides only between equal costs.
_MEMORY_PRICE = 1 / 1024
#: Cost of an input whose sticks have another order than by default, and of one with another stick dim, as fractions of
#: the device time to read it. The first moves the same pieces; the second transposes, on a host that is 20 times as
#: slow. It is meant for tensors that stay on the device; a tensor sent with each call takes longer to arrive.
_ORDER_PRICE, _STICK_PRICE = 1 / 64, 1 / 4
#: Cache of the domains of recent programs, bounded by states: the programs to evaluate differ in few tensors.
_DOMAINS: BoundedCache[Domain] = BoundedCache(1 << 16, lambda domain: len(domain.states))


class Domains:
    """Build the domains of a graph in program order; ``LayoutError`` for a pin or a view that no layout satisfies."""

    def __init__(
        self,
        graph: Graph,
        op_layouts: Sequence[tuple[OpLayout, ...]],
        reader_candidates: Sequence[tuple[LayoutCandidate, ...]],
        requested_layouts: Sequence[tuple[LayoutCandidate, ...]],
        stick_outermost: bool,
    ) -> None:
        self.target, self.nodes = graph.target, graph.nodes
        self.op_layouts = op_layouts
        self.reader_candidates = reader_candidates
        self.requested_layouts = requested_layouts
        self.stick_outermost = stick_outermost
        self.domains: list[Domain] = []
        #: The number of readers of each tensor, including the readers of its views.
        self._readers = [0] * len(self.nodes)
        # A view comes after its source: in reverse order the readers of the view are counted before the view.
        for index, readers in reversed([*enumerate(graph.readers())]):
            for reader, _ in readers:
                is_view = isinstance(self.nodes[reader], ViewNode)
                self._readers[index] += max(1, self._readers[reader]) if is_view else 1
        # The layers of a model repeat: equal domains are one object, so that their cost tables are shared.
        self._known: dict[Hashable, Domain] = {}

    def build(self) -> list[Domain]:
        """Return one domain per node."""
        for index, node in enumerate(self.nodes):
            produced = self._produced(index, node)
            if node.pin is not None and not isinstance(node, ViewNode):
                produced = self._pinned(index, node, candidate_of(node.pin), produced)
            # More readers do not add states; a larger count would only make equal domains distinct.
            readers = min(self._readers[index], MAX_RELAYOUTS + 1)
            # Windows exist only as a view: a relayout is placed before the view, not between the view and its reader.
            slides = isinstance(node, ViewNode) and isinstance(node.step, Slide)
            targets = self.reader_candidates[index] if is_convertible(node.dtype) and not slides else ()
            is_argument = isinstance(node, ArgumentNode)
            constants = (node.free, node.by_price, node.updated, node.layouts) if is_argument else ()
            key = (type(node), produced, targets, readers, node.times, node.pin, node.from_host, constants)
            if key not in self._known:
                states = functools.partial(_domain, node, produced, targets, readers)
                self._known[key] = _DOMAINS.get(key, states)
            self.domains.append(self._known[key])
        return self.domains

    def _default(self, node: TensorNode, stick: int | None) -> tuple[LayoutCandidate, ...]:
        return default_candidates(self.target, node.shape, node.dtype, stick, self.stick_outermost)

    # -- produced layouts -----------------------------------------------------------------------------

    def _produced(self, index: int, node: TensorNode) -> tuple[ProducedLayout, ...]:
        """Return the layouts that a node can produce, without regard to pins."""
        if isinstance(node, ArgumentNode):
            return tuple(map(produced_layout, self._of_argument(index, node)))
        if isinstance(node, Compute):
            inputs = tuple(self.domains[operand].candidates for operand in node.operands)
            op_layouts, requests = self.op_layouts[index], self.requested_layouts[index]
            sizes = node.shape, node.dtype, self.stick_outermost
            return results(node.signature, op_layouts, inputs, requests, *sizes)
        if isinstance(node, ViewNode):
            return self._images(index, node)
        if isinstance(node, InsertSliceBuffer):
            stick_dims: tuple[int | None, ...] = uncut(self.target, node) or (None,)
            # The best stick dim of a buffer that a loop carries does not follow from the parts, so sparse is
            # a candidate, too.
            if node.carried and None not in stick_dims:
                stick_dims = (None, *stick_dims)
            candidates = [c for stick in reversed(stick_dims) for c in self._default(node, stick)]
            # With the stick count outermost, each part along the stick dim is contiguous.
            for stick in stick_dims:
                if stick is not None:
                    order = (stick, *(dim for dim in sized(node.shape) if dim != stick))
                    candidates.append(ordered(self.target, node.shape, node.dtype, stick, order))
            # The first part is the argument that the insertions update, if they update one.
            for part in node.parts[:1]:
                source = self.nodes[part.source]
                if isinstance(source, ArgumentNode) and source.updated:
                    updated = self.domains[part.source].candidates
                    candidates += [each for each in updated if each.stick_dim in stick_dims]
            return tuple(map(produced_layout, distinct(candidates)))
        source = node.inputs[0]
        if isinstance(node, IterArg | LoopResult):
            return self.domains[source].produced
        return tuple(map(produced_layout, self._copies(node, self.domains[source].candidates)))

    def _of_argument(self, index: int, node: ArgumentNode) -> tuple[LayoutCandidate, ...]:
        if node.free and node.layouts:
            return tuple(map(candidate_of, node.layouts))
        # By convention the stick dim is the last dim, even if this dim has size 1.
        default = self._default(node, len(node.shape) - 1 if node.shape else None)
        if node.free:
            return self.reader_candidates[index] or default
        # The host lays out an input: in its pinned layout, in the default layout, or in a layout the plan chooses.
        if node.pin is not None:
            return (candidate_of(node.pin),)
        return distinct((default[0], *self.reader_candidates[index])) if node.by_price else default[:1]

    def _images(self, index: int, node: ViewNode) -> tuple[ProducedLayout, ...]:
        sources = self.domains[node.source].candidates
        images = (image(node.step, source) for source in sources)
        views = distinct(view for view in images if view is not None)
        if views:
            return tuple(map(produced_layout, views))
        try:
            # No layout of the source has such a view; the message gives the error for the first layout as the
            # reason.
            node.step.apply(sources[0].view)
        except ValueError as error:
            raise LayoutError(index, f"this view has no device form: {error}") from error
        raise AssertionError("a step is a view or says why not")

    def _copies(self, node: TensorNode, sources: tuple[LayoutCandidate, ...]) -> tuple[LayoutCandidate, ...]:
        """Return the pin, or dense layouts: with the stick dim and the order of the source, and with each stick dim."""
        if node.pin is not None:
            return (candidate_of(node.pin),)
        candidates = []
        for source in sources:
            candidates.append(self._default(node, source.stick_dim)[0])
            if source.addressable and source.stick_dim is not None:
                candidates.append(
                    ordered(self.target, node.shape, node.dtype, source.stick_dim, source.order)
                )
        return distinct((*candidates, *(self._default(node, dim)[0] for dim in sized(node.shape))))

    def _pinned(
        self, index: int, node: TensorNode, pin: LayoutCandidate, produced: tuple[ProducedLayout, ...]
    ) -> tuple[ProducedLayout, ...]:
        """Return the pinned layout with each op layout that can write its stick; ``LayoutError`` if none can."""
        # An operation can write any order of dims, so only the stick dims have to be equal.
        layouts = [
            produced_layout(pin, layout.op_layout)
            for layout in produced
            if layout.candidate.stick_dim == pin.stick_dim
        ]
        for part in node.parts if isinstance(node, InsertSliceBuffer) else ():
            try:
                part.place.apply(pin.view)
            except ValueError as error:
                subview = f"its part at {list(part.place.offsets)} does not fit it"
                raise LayoutError(index, f"the pinned layout breaks a rule: {subview}: {error}") from error
        problem = pin.view.why_not_addressable() if isinstance(node, Compute) else None
        if problem is not None:
            raise LayoutError(index, f"the pinned layout breaks a rule: {problem}")
        if layouts or not isinstance(node, Compute):
            return tuple(dict.fromkeys(layouts)) or (produced_layout(pin),)
        signature, assignment = node.signature, self.op_layouts[index][0].assignment
        stick = None if pin.stick_dim is None else signature.maps[-1][pin.stick_dim]
        reason = violation(assignment.opcode, signature.iteration, (*assignment.stick_dims[:-1], stick))
        reason = reason or f"'{assignment.opcode}' cannot produce dim {pin.stick_dim} in the stick"
        raise LayoutError(index, f"the pinned layout breaks a rule: {reason}")


def _domain(
    node: TensorNode, produced: tuple[ProducedLayout, ...], targets: tuple[LayoutCandidate, ...], readers: int
) -> Domain:
    """Return the states of a tensor with relayouts to ``targets``, at most as many as its readers can use."""
    states = _states(node, produced, targets, readers)
    # The default layout of an argument by price comes first.
    return Domain(produced, states, [_cost(node, state, produced[0].candidate) for state in states])


def _states(
    node: TensorNode, produced: tuple[ProducedLayout, ...], targets: tuple[LayoutCandidate, ...], readers: int
) -> list[State]:
    """Return the states of a tensor: subsets of its produced layouts, each with the useful sets of relayouts."""
    is_free, is_view = isinstance(node, ArgumentNode) and node.free, isinstance(node, ViewNode)
    if isinstance(node, ArgumentNode) and is_free and node.layouts:
        return [State(produced[0], tuple(layout.candidate for layout in produced))]
    states: list[State] = []
    if is_view and node.pin is not None:
        # Views in the pinned layout, and relayouts of other views, which no reader reads.
        pin = candidate_of(node.pin)
        for layout in produced:
            is_pin = layout.candidate.layout == pin.layout
            for relayouts in relayout_sets((pin,), targets, readers):
                converted = relayouts if is_pin else (pin, *relayouts)
                states.append(State(layout, (layout.candidate,), converted, sealed=not is_pin))
        return states
    # A tensor that is laid out ahead of time has any layouts, at most one per stick and per reader. A view has the
    # views of one layout of the source, or of two if there are two readers.
    most = MAX_RELAYOUTS if is_free else 2 if is_view else 1
    for count in range(1, min(max(readers, 1), most, len(produced)) + 1):
        for subset in itertools.combinations(produced, count):
            base = tuple(layout.candidate for layout in subset)
            if len({(each.stick_dim, each.sticks if is_free else ()) for each in base}) == count:
                sets = [()] if is_free else relayout_sets(base, targets, readers)
                states += [State(subset[0], base, each) for each in sets if len(base) + len(each) <= 4]
    return states


def _cost(node: TensorNode, state: State, usual: LayoutCandidate) -> float:
    """Return the picoseconds of writing a tensor and of its relayouts.

    Layouts that the host prepares cost near 0, so that their memory only decides between equal costs. An input that
    does not have the default layout ``usual`` has a cost for the host.
    """
    target, candidate = usual.view.target, state.produced.candidate
    if isinstance(node, ArgumentNode) and node.free:
        transfers = sum(pass_cost(target, layout.bytes, target.burst_bytes) for layout in state.base)
        # Costs are whole picoseconds; sums of integers are exact in floats, so equal plans have equal costs.
        return round(_MEMORY_PRICE * transfers)
    op_layout, part = state.produced.op_layout, staying_part(node)
    written = 0 if op_layout is None else transfer_cost_in_lx(op_layout, -1, candidate, part)
    assert written is not None
    relayouts = (
        relayout_cost(state.converted_from(layout), layout, node.from_host) for layout in state.converted
    )
    cost = node.times * (written + sum(relayouts))
    if isinstance(node, ArgumentNode) and node.by_price and candidate is not usual:
        # An updated input stays on the device, so it is transferred only once.
        is_cheap = node.updated or candidate.stick_dim == usual.stick_dim
        price = _ORDER_PRICE if is_cheap else _STICK_PRICE
        cost += round(price * pass_cost(target, candidate.bytes, target.burst_bytes))
    return cost


#: Nodes whose tensor is a buffer that no single operation writes.
_BUFFERS = (InsertSliceBuffer, IterArg, LoopResult)

#: Cache of the cost tables of recent programs, keyed by edge and domains, bounded by bytes.
_TABLES: BoundedCache[NDArray[np.float64]] = BoundedCache(1 << 28, lambda table: table.nbytes)


@dataclass(frozen=True)
class PlannedRelayout:
    """A copy of a tensor from one of its layouts into another; ``cost`` in picoseconds."""

    source: LayoutCandidate
    target: LayoutCandidate
    cost: int


@dataclass(frozen=True)
class Decision:
    """The layouts of one tensor in a plan.

    ``reads`` are the layouts in which the node reads each input; a view has one per layout in ``state.base``.
    ``in_place`` is true for each part of a buffer that the producer of the part writes into the buffer. ``options``
    is the number of layouts that the node could have produced.
    """

    state: State
    reads: tuple[LayoutCandidate, ...]
    in_place: tuple[bool, ...]
    relayouts: tuple[PlannedRelayout, ...]
    options: int


@dataclass(frozen=True)
class LayoutPlan:
    """A decision per tensor, with ``cost`` and ``bound`` in picoseconds; no plan costs less than ``bound``."""

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
    """Return the cheapest consistent layouts of all tensors, by the layout ``choice`` with this name.

    ``stick_outermost`` is the convention of the default order. The result is exact while no table of the elimination
    has more than ``limit_entries``, else of a beam of ``width`` with a bound. ``LayoutError`` if no layouts fit.
    """
    problem = Problem(graph, stick_outermost)
    total, names = problem.sum(), tuple(node.name for node in graph.nodes)
    tables = LayoutProblem(tuple(total.sizes), total.tables, names, limit_entries, width)
    return problem.plan(cheapest_layouts(choice, tables))


class Problem:
    """The choice as a sum of cost tables: each domain is a variable, each edge of the graph a table."""

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
                # A loop yields its iter_arg unchanged: both sides of the edge are the same variable.
                if source == index:
                    total.add((index,), np.ascontiguousarray(table.diagonal()))
                elif source < index:
                    total.add((source, index), table)
                else:  # a yielded value comes after its iter_arg; scopes are ascending
                    total.add((index, source), np.ascontiguousarray(table.T))
        return total

    def _table(self, node: TensorNode, index: int, position: int, source: int) -> NDArray[np.float64]:
        """Return the costs of one edge: states of the input x states of the result."""
        domain, result = self.domains[source], self.domains[index]
        edge = self._edge(node, position)
        # Elimination recognises equal subproblems by the identity of their tables, so each table is created once.
        key = (edge, domain, result, node.times)
        if key not in self._tables:
            self._tables[key] = _TABLES.get(key, lambda: node.times * edge.table(domain, result))
        return self._tables[key]

    def _edge(self, node: TensorNode, position: int) -> Edge:
        if isinstance(node, Compute):
            return OperandEdge(position, staying_part(self.nodes[node.operands[position]]))
        if isinstance(node, ViewNode):
            return ViewOf(node.step)
        if isinstance(node, InsertSliceBuffer):
            part = node.parts[position]
            source = self.nodes[part.source]
            # Insertions may write into the memory of a buffer, which needs no copy if the part is the whole buffer.
            is_buffer = isinstance(source, _BUFFERS) or (isinstance(source, ArgumentNode) and source.updated)
            if is_buffer:
                in_place = part.place == whole(node.shape)
            else:
                in_place = len(self.readers[part.source]) == 1 and isinstance(source, Compute | Copy)
            exact = source.pin is not None or is_buffer
            return InsertInto(part.place, in_place and not part.out_of_place, exact, part.partial)
        if isinstance(node, IterArg | LoopResult):
            return SameBuffer(may_convert=isinstance(node, IterArg) and position == 1)
        return CopyOf()

    def plan(self, minimum: Minimum) -> LayoutPlan:
        """Return the decisions of a minimum; ``LayoutError`` if its cost is infinite."""
        if minimum.cost == INFINITE:
            # Report the first operation on a type without relayouts, if there is one.
            for index, node in enumerate(self.nodes):
                dtypes = [self.nodes[operand].dtype for operand in node.inputs if isinstance(node, Compute)]
                if isinstance(node, Compute) and not all(map(is_convertible, dtypes)):
                    reason = "an operand has an unsupported layout, and no operation converts 8-bit tensors"
                    raise LayoutError(index, f"{reason}: {sentence(node.signature.opcode)}")
            raise LayoutError(len(self.nodes) - 1, "its tensors have no compatible layouts")
        states = [domain.states[index] for domain, index in zip(self.domains, minimum.states, strict=True)]
        decisions = tuple(self._decision(index, node, states) for index, node in enumerate(self.nodes))
        return LayoutPlan(decisions, minimum.cost, minimum.bound)

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


# Op layouts: the op layouts of each operation of a graph; stick-sparse ones only if an input can be sparse.

#: Whether a tensor may be stick-sparse; None if the readers of the tensor decide.
_Sparsity = bool | None


def op_layouts_of(graph: Graph) -> list[tuple[OpLayout, ...]]:
    """Return the op layouts to try for each node; () for a node that is not an operation.

    Raise ``LayoutError`` for an operation without a legal op layout.
    """
    sparsity: list[_Sparsity] = []
    layouts: list[tuple[OpLayout, ...]] = []
    for index, node in enumerate(graph.nodes):
        legal: tuple[OpLayout, ...] = ()
        if isinstance(node, Compute):
            legal = op_layouts(node.signature)
            if not legal:
                raise LayoutError(index, why_no_form(node.signature.opcode, node.signature.iteration))
            operands = [sparsity[tensor] for tensor in node.operands]
            # With all operands sparse, a whole stick moves per element: converting dense inputs never pays off.
            if not any(operands) and (None not in operands or False in operands):
                legal = tuple(layout for layout in legal if not layout.sparse) or legal
            if index in graph.ineligible:
                ineligible = graph.ineligible[index]
                legal = tuple(layout for layout in legal if layout.assignment.inputs != ineligible) or legal
        layouts.append(legal)
        sparsity.append(_sparsity(graph.target, node, sparsity, legal))
    return layouts


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


# Requested layouts: layouts that matmuls request of tensors that reach them through views and pointwise operations.

#: Number of requests that are tried for one tensor; the requests of its first readers are kept.
_MAX_REQUESTS = 3


def requested_layouts(
    graph: Graph, op_layouts: Sequence[tuple[OpLayout, ...]], stick_outermost: bool
) -> list[tuple[LayoutCandidate, ...]]:
    """Return for each tensor the layouts with which a later matmul needs no copy; () for most tensors.

    The batch dims are one dim in the matmul, and a view may merge other dims into a contracted dim. Such dims have to
    be neighbours in memory; the orders derived from the dims of the tensor alone may not include such an order.
    """
    requests: list[tuple[LayoutCandidate, ...]] = [()] * len(graph.nodes)
    readers = graph.readers()

    def of_reader(node: TensorNode, reader: int, position: int) -> Iterator[LayoutCandidate]:
        """Yield the requests of one reader, as layouts of the tensor that it reads."""
        other, tensor = graph.nodes[reader], (graph.target, node.shape, node.dtype)
        if isinstance(other, ViewNode):
            # The layout of the source for which the view has the requested layout, if there is one.
            inverse = other.step.inverse(node.shape)
            for request in requests[reader] if inverse is not None else ():
                source = image(inverse, request)
                is_dense = source is not None and source.addressable and not source.sticks
                if source is not None and is_dense and source.stick_dim is not None:
                    yield ordered(*tensor, source.stick_dim, source.order)
        elif isinstance(other, Compute) and KINDS[other.signature.opcode] is Kind.MATMUL:
            for stick in single_stick_dims(op_layouts[reader], position):
                if stick is not None:
                    yield default_candidates(*tensor, stick, stick_outermost)[-1]
        elif isinstance(other, Compute) and KINDS[other.signature.opcode] is Kind.POINTWISE:
            # The operand in the order of the result, if it has all dims of the result.
            dims, result = other.signature.maps[position], other.signature.maps[-1]
            axis = {dim: number for number, dim in enumerate(dims)}
            is_whole = len(dims) == len(result) and set(dims) == set(result)
            for request in requests[reader] if is_whole else ():
                if request.stick_dim is not None:
                    order = tuple(axis[result[dim]] for dim in request.order)
                    yield ordered(*tensor, axis[result[request.stick_dim]], order)

    # In reverse order, so that the requests of readers are known before the tensors that they read are visited.
    for index in reversed(range(len(graph.nodes))):
        of_readers = (of_reader(graph.nodes[index], *reader) for reader in readers[index])
        requests[index] = distinct(itertools.chain.from_iterable(of_readers))[:_MAX_REQUESTS]
    return requests


# Edges of the graph: the cost of reading an input, and the layouts in which it is read.

INFINITE = float("inf")


class Edge:
    """One input of a node: subclasses compute the cost of reading the input. All costs are in picoseconds."""

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        """Return the cost of reading the input in layout ``source`` for a ``result``; infinite if it is impossible."""
        raise NotImplementedError

    def table(self, source: Domain, result: Domain) -> NDArray[np.float64]:
        """Return the cost by state of the input (rows) and of the result; of each input state the cheapest layout."""
        costs = np.array([[self.cost(read, to) for to in result.produced] for read in source.candidates])
        return costs[source.available].min(axis=1)[:, result.produced_index]

    def reads(self, source: State, result: State) -> list[LayoutCandidate]:
        """Return the layouts that are read."""
        return [min(source.available, key=lambda read: self.cost(read, result.produced))]


@dataclass(frozen=True)
class OperandEdge(Edge):
    """An operation reads a whole operand once, as required by its op layout.

    The operand is mostly read from LX if it needs at most a ``part`` of all scratchpads.
    """

    position: int
    part: float = 0

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        assert result.op_layout is not None
        cost = transfer_cost_in_lx(result.op_layout, self.position, source, self.part)
        return INFINITE if cost is None else cost


@dataclass(frozen=True)
class CopyOf(Edge):
    """A copy reads its source in any layout."""

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        return copying_cost(source, result.candidate)


@dataclass(frozen=True)
class ViewOf(Edge):
    """A view has the images of the layouts of its source, at no cost."""

    step: object

    def table(self, source: Domain, result: Domain) -> NDArray[np.float64]:
        """Return 0 if the source has a layout for each base of the view, else infinity."""
        images = [image(self.step, read) for read in source.candidates]
        bases = distinct(base for state in result.states for base in state.base)
        column = {base: index for index, base in enumerate(bases)}
        needed = np.zeros((len(bases), len(result.states)), dtype=np.float32)
        for index, state in enumerate(result.states):
            needed[[column[base] for base in state.base], index] = 1
        # An image that is not a base of the view is of no use to the states of the view.
        shown = [column.get(view, -1) if view is not None else -1 for view in images]
        existing = np.array(shown)[source.available][:, :, None] == np.arange(len(bases))
        # Count the missing bases with a matrix product: small numbers are exact in floats.
        missing = (~existing.any(axis=1)).astype(np.float32) @ needed
        return np.where(missing > 0, INFINITE, 0.0)

    def reads(self, source: State, result: State) -> list[LayoutCandidate]:
        """Return for each base of the view the layout of the source whose image is this base."""
        return [
            next(read for read in source.available if image(self.step, read) is base) for base in result.base
        ]


@dataclass(frozen=True)
class InsertInto(Edge):
    """A tensor is inserted into a subview of a buffer: its producer writes it there, or a copy does.

    If the stick dim changes, a relayout precedes the copy; into the whole buffer, the relayout replaces the copy. An
    ``exact`` tensor (pinned, or the buffer of a loop) is in place only if the subview has the same layout, not
    only the same stick dim. A ``partial`` tensor, a buffer that is not completely written yet, is never copied if it
    may be in place.
    """

    place: object
    may_be_in_place: bool
    exact: bool
    partial: bool = False

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        """Return the time of the copy into the subview, plus the relayout before it if the stick dim changes."""
        target = image(self.place, result.candidate)
        if target is None:
            return INFINITE
        copies = 1 if source.stick_dim == target.stick_dim or target is result.candidate else 2
        return copies * copying_cost(source, target)

    def fits(self, source: State, result: ProducedLayout) -> bool:
        """Return whether the producer can write the tensor directly into the subview."""
        subview, candidate = image(self.place, result.candidate), source.produced.candidate
        if not self.may_be_in_place or subview is None or subview.stick_dim != candidate.stick_dim:
            return False
        return not self.exact or subview.layout == candidate.layout

    def table(self, source: Domain, result: Domain) -> NDArray[np.float64]:
        """Return the cost of shorter runs if the tensor is in place, else the cost of the copy."""
        costs = super().table(source, result)
        if self.partial and self.may_be_in_place:
            # A copy would read elements that are not written yet.
            costs = np.full(costs.shape, INFINITE)
        for row, state in zip(costs, source.states, strict=True):
            fits = [self.fits(state, layout) for layout in result.produced]
            in_place = [
                self._in_place_cost(state.produced, layout) if fit else 0
                for layout, fit in zip(result.produced, fits, strict=True)
            ]
            index = result.produced_index
            row[:] = np.where(np.array(fits)[index], np.array(in_place)[index], row)
        return costs

    def _in_place_cost(self, source: ProducedLayout, result: ProducedLayout) -> int:
        """Return the additional time to write the subview, compared with a separate buffer of the tensor."""
        subview = image(self.place, result.candidate)
        if subview is None:
            return 0
        if source.op_layout is None:
            # A copy, or a buffer of parts: the cost of the runs is the cost of a copy.
            costs = [copying_cost(source.candidate, target) for target in (source.candidate, subview)]
        else:
            costs = [transfer_cost(source.op_layout, -1, target) for target in (source.candidate, subview)]
        alone, in_place = costs
        return 0 if alone is None or in_place is None else max(0, in_place - alone)

    def reads(self, source: State, result: State) -> list[LayoutCandidate]:
        """Return the produced layout if the tensor is in place, else the layout that is cheapest to copy."""
        if self.fits(source, result.produced):
            return [source.produced.candidate]
        return super().reads(source, result)


@dataclass(frozen=True)
class SameBuffer(Edge):
    """An iter_arg, or the result of a loop, has the same buffer as its input.

    ``may_convert``: a yielded value may also be a relayout for the loop; the initial value is always the buffer.
    """

    may_convert: bool

    def cost(self, source: LayoutCandidate, result: ProducedLayout) -> float:
        """Return 0 if both sides have the same layout, else infinity."""
        return 0 if source is result.candidate else INFINITE

    def table(self, source: Domain, result: Domain) -> NDArray[np.float64]:
        """Return 0 if the layouts are equal, else infinity; with ``may_convert`` any existing layout is accepted."""
        if self.may_convert:
            return super().table(source, result)
        costs = np.array(
            [[self.cost(read.candidate, to) for to in result.produced] for read in source.produced]
        )
        return costs[source.produced_index][:, result.produced_index]


# Reader candidates: the layouts that the readers of a tensor may ask for; a relayout may convert the tensor to one.

_StickDims = tuple[int | None, ...]


class ReaderCandidates:
    """Collect the reader candidates of all tensors of a graph, from the last tensor to the first.

    In this order the candidates of a view are complete before the candidates of its source, which must provide them.
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
        """Return the candidates of each tensor; () for a tensor of one element, which any reader accepts."""
        for index in reversed(range(len(self.nodes))):
            node, dims = self.nodes[index], dict[int | None, None]()
            for reader, position in self.readers[index]:
                self._follow_order(index, reader)
                dims |= dict.fromkeys(self._stick_dims(node, reader, position))
                # ``viewable`` does not return sparse in addition to stick dims, but this view is read sparse.
                if isinstance(node, ArgumentNode) and node.free and self._is_sparse_view(node, reader):
                    dims[None] = None
            if not sized(node.shape):
                continue
            stick_dims = tuple(dims)
            candidates = [*self._by_stick_dim(index, node, stick_dims), *self._packed(index, node)]
            if not is_convertible(node.dtype):
                candidates += self._in_logical_order(index, node, stick_dims)
            # A loop may yield the tensor in the pinned layout of its iter_arg; a buffer before a loop has the pin.
            if not isinstance(node, InsertSliceBuffer):
                loops = (self.nodes[reader] for reader, _ in self.readers[index])
                pins = (loop.pin for loop in loops if isinstance(loop, IterArg) and loop.pin)
                candidates += map(candidate_of, pins)
            self.candidates[index] = distinct(candidates)
        return self.candidates

    def _packed(self, index: int, node: TensorNode) -> tuple[LayoutCandidate, ...]:
        """Return the layouts with several dims in the stick that readers need, directly or through views."""
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
        """Return the layouts whose dims except the stick dim keep their logical order, so that reshapes are views.

        These are for elements without relayouts: no relayout could replace the default order, with dim 0 innermost.
        """
        if not any(isinstance(self.nodes[reader], ViewNode) for reader, _ in self.readers[index]):
            return ()
        dims = range(len(node.shape))
        orders = {
            stick: (*dims,) if stick is None else (stick, *(dim for dim in dims if dim != stick))
            for stick in stick_dims
        }
        return tuple(
            ordered(self.target, node.shape, node.dtype, stick, order) for stick, order in orders.items()
        )

    def _follow_order(self, index: int, reader: int) -> None:
        """Record whether a batched matmul reads the order of a tensor.

        A view, a copy or an operation on one tensor keeps the order of its input.
        """
        node = self.nodes[reader]
        if not isinstance(node, Compute):
            self.batched[index] |= isinstance(node, ViewNode | Copy) and self.batched[reader]
            return
        kind, iteration = DEVICE_OPS[node.signature.opcode].kind, node.signature.iteration
        if kind is Kind.POINTWISE and sum(bool(sized(self.nodes[each].shape)) for each in node.operands) == 1:
            self.batched[index] |= self.batched[reader]
        elif kind is Kind.MATMUL:
            shared = iteration.present[0] & iteration.present[1]
            self.batched[index] |= bool(shared - iteration.reduced)

    def _stick_dims(self, node: TensorNode, reader: int, position: int) -> _StickDims:
        """Return the stick dims with which one reader may read a tensor."""
        other = self.nodes[reader]
        if isinstance(other, Compute):
            return single_stick_dims(self.op_layouts[reader], position)
        if isinstance(other, ViewNode):
            return viewable(self.target, other.step, node.shape, node.dtype, self.stick_outermost)
        if isinstance(other, IterArg):
            # The buffer before a loop is never converted (``SameBuffer``), but a yielded value may be.
            return () if isinstance(node, InsertSliceBuffer) else (*sized(node.shape), None)
        # An argument may be inserted into a buffer with any stick dim; a result is converted by the insertion.
        chosen = isinstance(node, ArgumentNode) and (node.free or node.by_price)
        return sized(node.shape) if chosen else ()

    def _is_sparse_view(self, node: ArgumentNode, reader: int) -> bool:
        """Return whether a reader is a view that is read sparse, for example the indices of a gather.

        The view is only read sparse, or it may be read sparse and the device cannot restickify its type.
        """
        stick_dims = {candidate.stick_dim for candidate in self.candidates[reader]}
        is_sparse = stick_dims == {None} or (None in stick_dims and not is_restickified(node.dtype))
        return isinstance(self.nodes[reader], ViewNode) and is_sparse

    def _default(self, node: TensorNode, stick: int | None) -> tuple[LayoutCandidate, ...]:
        return default_candidates(self.target, node.shape, node.dtype, stick, self.stick_outermost)

    def _by_stick_dim(
        self, index: int, node: TensorNode, stick_dims: _StickDims
    ) -> tuple[LayoutCandidate, ...]:
        """Return the dense layouts with each of these dims in the stick, in the orders that are worth a relayout."""
        if node.pin is not None:
            return tuple(self._default(node, stick)[0] for stick in stick_dims)
        if isinstance(node, ArgumentNode) and node.free:
            # Weights are laid out before the program runs: every order is free, so all orders are tried.
            orders = [
                ordered(self.target, node.shape, node.dtype, stick, order)
                for stick in stick_dims
                for order in self._row_orders(index)
            ]
            return distinct((*(c for stick in stick_dims for c in self._default(node, stick)), *orders))
        if isinstance(node, ArgumentNode) and node.by_price:
            # Views may make any dim the rows, so an order with each dim innermost is tried, too.
            candidates: list[LayoutCandidate] = []
            for stick in stick_dims:
                dims = [dim for dim in sized(node.shape) if dim != stick]
                rows = dims if stick is not None else []
                orders = [(*(dim for dim in dims if dim != row), stick, row) for row in rows]
                candidates += self._default(node, stick)
                candidates += [ordered(self.target, node.shape, node.dtype, stick, order) for order in orders]
            return distinct(candidates)
        readers = (self.nodes[reader] for reader, _ in self.readers[index])
        steps = [node.step for node in readers if isinstance(node, ViewNode)]
        return tuple(
            best_order(self._default(node, stick), steps, self.batched[index]) for stick in stick_dims
        )

    def _row_orders(self, index: int) -> list[tuple[int, ...]]:
        """Return orders of a table, outermost first, in which each row that a gather reads is contiguous."""
        orders = []
        for reader, position in self.readers[index]:
            node = self.nodes[reader]
            if isinstance(node, Compute) and position == DEVICE_OPS[node.signature.opcode].table:
                rows = node.signature.iteration.reduced
                dims = node.signature.maps[position]
                orders.append(tuple(sorted(range(len(dims)), key=lambda axis: dims[axis] not in rows)))
        return orders
