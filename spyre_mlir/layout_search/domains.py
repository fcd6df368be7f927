# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The domain of each tensor of a graph: the layouts that its node can produce, and the states with these layouts."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Sequence

from spyre_mlir.cost.of_tensor import pass_cost
from spyre_mlir.layout.rules import violation
from spyre_mlir.layout.stick_layout import is_convertible
from spyre_mlir.layout.view_transforms import Slide
from spyre_mlir.layout_search.layout_candidates import (
    MAX_RELAYOUTS,
    Domain,
    LayoutCandidate,
    OpLayout,
    ProducedLayout,
    State,
    candidate_of,
    default_candidates,
    distinct,
    image,
    ordered,
    produced_layout,
    relayout_cost,
    relayout_sets,
    results,
    sized,
    transfer_cost,
    transfer_cost_in_loop,
    uncut,
)
from spyre_mlir.layout_search.tensor_graph import (
    ArgumentNode,
    Compute,
    Graph,
    InsertSliceBuffer,
    IterArg,
    LayoutError,
    LoopResult,
    TensorNode,
    ViewNode,
    in_loop,
)
from spyre_mlir.optimization.bounded_cache import BoundedCache

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
                subview = f"its part at {list(part.place.offsets)} has no place in it"
                raise LayoutError(index, f"the pinned layout breaks a rule: {subview}: {error}") from error
        problem = pin.view.why_not_addressable() if isinstance(node, Compute) else None
        if problem is not None:
            raise LayoutError(index, f"the pinned layout breaks a rule: {problem}")
        if layouts or not isinstance(node, Compute):
            return tuple(dict.fromkeys(layouts)) or (produced_layout(pin),)
        signature, assignment = node.signature, self.op_layouts[index][0].assignment
        stick = None if pin.stick_dim is None else signature.maps[-1][pin.stick_dim]
        reason = violation(assignment.opcode, signature.iteration, (*assignment.stick_dims[:-1], stick))
        reason = reason or f"'{assignment.opcode}' makes no result with dim {pin.stick_dim} in the stick"
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
    op_layout, transfer = state.produced.op_layout, transfer_cost_in_loop if in_loop(node) else transfer_cost
    written = 0 if op_layout is None else transfer(op_layout, -1, candidate)
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
