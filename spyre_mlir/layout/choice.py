"""The cheapest layouts of a whole program.

Every tensor has *candidates*: layouts that its producer can make, and layouts that its readers may want it
converted to. A *state* of a tensor says which of them exist: its own and the conversions made of it. Costs
are tables over the states of a tensor and of what it reads, in whole picoseconds (``cost/of_tensor.py``):

- an operation moves each operand once, in a layout that one of its forms takes (``rules.py``); that counts bytes
  and bursts only, for it may stay in LX;
- a conversion is an operation of its own, once for all readers that want it: it reads and writes the whole
  tensor in device memory and waits for both; it runs as often as the producer does, so it stands outside
  the loops that its readers are in;
- what is given ahead of time (weights, constants) has any layouts at the price of their memory alone;
- a view moves nothing: what it makes of its source's layouts is there for free;
- what a loop carries has one layout before, in and after it.

``offers.py`` has the candidates of a node, ``states.py`` its states, ``edges.py`` what reading costs;
``elimination.py`` finds the smallest sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.layout.candidates import (
    Candidate,
    candidate_of,
    conversion_cost,
    distinct,
    image,
    ordered,
    packed,
    packed_like,
    plain_candidates,
)
from spyre_mlir.layout.edges import INFINITE, CopyOf, Edge, Operand, PutInto, Same, ViewOf
from spyre_mlir.layout.elimination import Minimum, Sum
from spyre_mlir.layout.graph import (
    Assembled,
    Carried,
    Compute,
    Copy,
    Given,
    Graph,
    Node,
    Part,
    Result,
    View,
    whole,
)
from spyre_mlir.layout.offers import (
    best_order,
    is_batched,
    lanes_of,
    last_dim,
    results,
    sized,
    uncut,
    viewable,
)
from spyre_mlir.layout.operations import Way, ways
from spyre_mlir.layout.rules import sentence, violation, why_no_form
from spyre_mlir.layout.states import (
    MOST_CONVERSIONS,
    Domain,
    Own,
    State,
    conversions,
    given_states,
    memory_cost,
    owning,
    pinned_view_states,
    state_cost,
    view_states,
)
from spyre_mlir.layout.stick_layout import is_convertible
from spyre_mlir.target.ops import DEVICE_OPS, KINDS, Kind

#: Tensors that are buffers without an operation that makes them.
_BUFFERS = (Assembled, Carried, Result)


class LayoutError(ValueError):
    """A program that no layouts fit; ``node`` is the tensor that shows it."""

    def __init__(self, node: int, reason: str) -> None:
        super().__init__(reason)
        self.node = node


@dataclass(frozen=True)
class Conversion:
    """A tensor copied from one of its layouts into another; costs are picoseconds."""

    source: Candidate
    target: Candidate
    cost: int


@dataclass(frozen=True)
class Decision:
    """What the choice says of one tensor.

    ``reads`` are the layouts in which its node reads each input; for a view, one per layout in
    ``state.base``. ``in_place`` are the parts of a buffer that are made right in their place. ``options``
    counts the layouts that its producer could have made.
    """

    state: State
    reads: tuple[Candidate, ...]
    in_place: tuple[bool, ...]
    conversions: tuple[Conversion, ...]
    options: int


@dataclass(frozen=True)
class Plan:
    """A decision per tensor; ``cost`` and ``bound`` (no plan costs less) in picoseconds."""

    decisions: tuple[Decision, ...]
    cost: float
    bound: float

    @property
    def proven(self) -> bool:
        """Whether no other choice among the candidates costs less."""
        return self.cost <= self.bound


def choose(
    graph: Graph, *, stick_outermost: bool = False, limit_entries: int = 1 << 21, width: int = 200
) -> Plan:
    """The cheapest consistent layouts of all tensors.

    ``stick_outermost`` is the convention of the default order. Exact while no table of the elimination has
    more than ``limit_entries``, else a beam of ``width`` with a bound. ``LayoutError`` if nothing fits.
    """
    problem = Problem(graph, stick_outermost)
    return problem.plan(problem.sum().minimize(limit_entries, width))


class Problem:
    """The candidates and states of a graph, and the sum of their costs."""

    def __init__(self, graph: Graph, stick_outermost: bool) -> None:
        self.nodes = graph.nodes
        self.readers = graph.readers()
        self.uses = self._uses()
        self.stick_outermost = stick_outermost
        self._domains: dict[tuple, Domain] = {}
        self._tables: dict[tuple, NDArray[np.float64]] = {}
        self.ways = self._possible_ways()
        self.wanted = self._wanted()
        self.domains: list[Domain] = []
        for index, node in enumerate(self.nodes):
            self.domains.append(self._domain(index, node))

    def _uses(self) -> list[int]:
        """How many readers each tensor has, those of its views included."""
        uses = [0] * len(self.nodes)
        for index in reversed(range(len(self.nodes))):
            for reader, _ in self.readers[index]:
                uses[index] += max(1, uses[reader]) if isinstance(self.nodes[reader], View) else 1
        return uses

    # -- candidates -----------------------------------------------------------------------------------

    def _possible_ways(self) -> list[tuple[Way, ...]]:
        """The ways of each operation; all operands are sparse only where an input is, or none can be else."""
        sparse: list[bool | None] = []  # None: a tensor that may as well be sparse
        found: list[tuple[Way, ...]] = []
        for index, node in enumerate(self.nodes):
            possible: tuple[Way, ...] = ()
            if isinstance(node, Compute):
                possible = self._ways(index, node, tuple(sparse[at] for at in node.operands))
            found.append(possible)
            sparse.append(self._may_be_sparse(node, sparse, possible))
        return found

    def _ways(self, index: int, node: Compute, sparse: tuple[bool | None, ...]) -> tuple[Way, ...]:
        found = ways(node.signature)
        if not found:
            raise LayoutError(index, why_no_form(node.signature.opcode, node.signature.iteration))
        if any(sparse) or (None in sparse and False not in sparse):
            return found
        return tuple(way for way in found if not way.sparse) or found

    def _may_be_sparse(self, node: Node, sparse: list[bool | None], possible: tuple[Way, ...]) -> bool | None:
        if not sized(node.shape) or isinstance(node, Carried | Result):
            return None
        if isinstance(node, Given):
            return None if node.free else node.pin is None or candidate_of(node.pin).lane is None
        if isinstance(node, Compute):
            return any(way.lanes[-1] is None for way in possible)
        if isinstance(node, Assembled):
            return not uncut(node)
        source = sparse[node.inputs[0]]
        return source is None or source

    def _wanted(self) -> list[tuple[Candidate, ...]]:
        """The layouts that readers may want a tensor in, last tensor first for views pass wishes on."""
        wanted: list[tuple[Candidate, ...]] = [()] * len(self.nodes)
        batched = [False] * len(self.nodes)
        for index in reversed(range(len(self.nodes))):
            node = self.nodes[index]
            lanes: dict[int | None, None] = {}
            for reader, position in self.readers[index]:
                batched[index] |= batched[reader] if self._keeps_order(reader) else self._batched(reader)
                lanes |= dict.fromkeys(self._wanted_lanes(node, reader, position))
                if isinstance(node, Given) and node.free and self._is_wanted_sparse(reader, wanted[reader]):
                    lanes[None] = None
            if sized(node.shape):
                targets = self._targets(index, node, tuple(lanes), batched[index])
                several = self._packed(index, node, wanted)
                several += () if is_convertible(node.dtype) else self._in_one_piece(index, node, tuple(lanes))
                wanted[index] = distinct((*targets, *several, *self._pins_of_carried(index)))
        return wanted

    def _packed(self, index: int, node: Node, wanted: list[tuple[Candidate, ...]]) -> tuple[Candidate, ...]:
        """The layouts with several dims in the stick that readers want, through views too."""
        found: list[Candidate] = []
        for reader, position in self.readers[index]:
            other = self.nodes[reader]
            if isinstance(other, View) and not is_convertible(node.dtype):
                found += packed_like(other.step, node.shape, node.dtype, wanted[reader])
            sticks = dict.fromkeys(way.sticks[position] for way in self.ways[reader])
            found += [packed(node.shape, node.dtype, each) for each in sticks if each]
        return distinct(found)

    def _in_one_piece(self, index: int, node: Node, lanes: tuple[int | None, ...]) -> tuple[Candidate, ...]:
        """The layouts whose other dims lie together, for reshapes of what no conversion can bring in order."""
        if not any(isinstance(self.nodes[reader], View) for reader, _ in self.readers[index]):
            return ()
        dims = range(len(node.shape))
        orders = [
            (lane, [*dims] if lane is None else [lane, *(d for d in dims if d != lane)]) for lane in lanes
        ]
        return tuple(ordered(node.shape, node.dtype, lane, tuple(order)) for lane, order in orders)

    def _pins_of_carried(self, index: int) -> list[Candidate]:
        """What loops want that carry a tensor on, where a user says so."""
        loops = [self.nodes[reader] for reader, _ in self.readers[index]]
        if isinstance(self.nodes[index], Assembled):
            return []
        return [candidate_of(node.pin) for node in loops if isinstance(node, Carried) and node.pin]

    def _keeps_order(self, reader: int) -> bool:
        """Whether what a node makes is read as its input would be: a view, a copy, an operation on one tensor."""
        node = self.nodes[reader]
        if not isinstance(node, Compute):
            return isinstance(node, View | Copy)
        tensors = sum(bool(sized(self.nodes[each].shape)) for each in node.operands)
        return KINDS[node.signature.opcode] is Kind.POINTWISE and tensors == 1

    def _batched(self, reader: int) -> bool:
        node = self.nodes[reader]
        return isinstance(node, Compute) and is_batched(node.signature)

    def _wanted_lanes(self, node: Node, reader: int, position: int) -> tuple[int | None, ...]:
        other = self.nodes[reader]
        if isinstance(other, Compute):
            return lanes_of(self.ways[reader], position)
        if isinstance(other, View):
            return viewable(other.step, node.shape, node.dtype, self.stick_outermost)
        if isinstance(other, Carried):
            return () if isinstance(node, Assembled) else (*sized(node.shape), None)
        return sized(node.shape) if isinstance(node, Given) and node.free else ()

    def _is_wanted_sparse(self, reader: int, wanted: tuple[Candidate, ...]) -> bool:
        """Whether a reader is a view that others want sparse alone, as the positions of a lookup."""
        return isinstance(self.nodes[reader], View) and {held.lane for held in wanted} == {None}

    def _plain(self, node: Node, lane: int | None) -> tuple[Candidate, ...]:
        return plain_candidates(node.shape, node.dtype, lane, self.stick_outermost)

    def _targets(
        self, index: int, node: Node, lanes: tuple[int | None, ...], batched: bool
    ) -> tuple[Candidate, ...]:
        if node.pin is not None:
            return self._targets_of_pinned(node, lanes)
        if isinstance(node, Given) and node.free:
            orders = [
                ordered(node.shape, node.dtype, lane, rows) for lane in lanes for rows in self._rows(index)
            ]
            return distinct((*(held for lane in lanes for held in self._plain(node, lane)), *orders))
        readers = (self.nodes[reader] for reader, _ in self.readers[index])
        steps = [node.step for node in readers if isinstance(node, View)]
        return tuple(best_order(self._plain(node, lane), steps, batched) for lane in lanes)

    def _rows(self, index: int) -> list[tuple[int, ...]]:
        """Orders of a table, outermost first, in which the rows that readers want lie in one piece each."""
        found = []
        for reader, position in self.readers[index]:
            node = self.nodes[reader]
            if isinstance(node, Compute) and position == DEVICE_OPS[node.signature.opcode].table:
                rows = node.signature.iteration.reduced
                dims = enumerate(node.signature.maps[position])
                found.append(tuple(at for _, at in sorted((dim not in rows, at) for at, dim in dims)))
        return found

    def _targets_of_pinned(self, node: Node, lanes: tuple[int | None, ...]) -> tuple[Candidate, ...]:
        return tuple(self._plain(node, lane)[0] for lane in lanes)

    # -- states ---------------------------------------------------------------------------------------

    def _domain(self, index: int, node: Node) -> Domain:
        owns = self._owns(index, node)
        if node.pin is not None and not isinstance(node, View):
            owns = self._pinned(index, node, owns)
        readers = min(self.uses[index], MOST_CONVERSIONS + 1)
        wanted = self.wanted[index] if is_convertible(node.dtype) else ()
        given = (node.free, node.layouts) if isinstance(node, Given) else ()
        key = (type(node), owns, wanted, readers, node.times, node.pin, node.from_host, given)
        if key not in self._domains:
            self._domains[key] = self._new_domain(node, owns, wanted, readers)
        return self._domains[key]

    def _owns(self, index: int, node: Node) -> tuple[Own, ...]:
        if isinstance(node, Given):
            if node.free and node.layouts:
                return tuple(owning(candidate_of(layout)) for layout in node.layouts)
            if node.free:
                return tuple(map(owning, self.wanted[index] or self._plain(node, last_dim(node.shape))))
            return (
                owning(candidate_of(node.pin) if node.pin else self._plain(node, last_dim(node.shape))[0]),
            )
        if isinstance(node, Compute):
            inputs = tuple(self.domains[at].candidates for at in node.operands)
            return results(
                node.signature, self.ways[index], inputs, node.shape, node.dtype, self.stick_outermost
            )
        if isinstance(node, View):
            return self._images(index, node)
        if isinstance(node, Assembled):
            lanes: tuple[int | None, ...] = uncut(node) or (None,)
            if node.carried and None not in lanes:
                lanes = (None, *lanes)
            return tuple(owning(held) for lane in reversed(lanes) for held in self._plain(node, lane))
        source = node.inputs[0]
        if isinstance(node, Carried | Result):
            return self.domains[source].owns
        return tuple(map(owning, self._copies(node, self.domains[source].candidates)))

    def _images(self, index: int, node: View) -> tuple[Own, ...]:
        sources = self.domains[node.source].candidates
        found = distinct(made for held in sources if (made := image(node.step, held)) is not None)
        if found:
            return tuple(map(owning, found))
        try:
            node.step.apply(sources[0].view)
        except ValueError as error:
            raise LayoutError(index, f"this view has no device form: {error}") from error
        raise AssertionError("a step is a view or says why not")

    def _copies(self, node: Node, sources: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
        """Dense layouts: with the stick, and if it can the order, of what is copied; and with any other stick."""
        if node.pin is not None:
            return (candidate_of(node.pin),)
        found = []
        for held in sources:
            found.append(self._plain(node, held.lane)[0])
            if held.plain and held.lane is not None:
                found.append(ordered(node.shape, node.dtype, held.lane, held.order))
        return distinct((*found, *(self._plain(node, dim)[0] for dim in sized(node.shape))))

    def _pinned(self, index: int, node: Node, owns: tuple[Own, ...]) -> tuple[Own, ...]:
        assert node.pin is not None
        held = candidate_of(node.pin)
        found = tuple(dict.fromkeys(owning(held, own.way) for own in owns if own.held.lane == held.lane))
        if isinstance(node, Assembled):
            self._check_places(index, node, held)
        apart = held.view.why_not_plain() if isinstance(node, Compute) else None
        if apart is not None:
            raise LayoutError(index, f"the pinned layout breaks a rule: {apart}")
        if found or not isinstance(node, Compute):
            return found or (owning(held),)
        signature, form = node.signature, self.ways[index][0].form
        lane = None if held.lane is None else signature.maps[-1][held.lane]
        reason = violation(form.opcode, signature.iteration, (*form.lanes[:-1], lane))
        reason = reason or f"'{form.opcode}' makes no result with dim {held.lane} in the stick"
        raise LayoutError(index, f"the pinned layout breaks a rule: {reason}")

    def _check_places(self, index: int, node: Assembled, held: Candidate) -> None:
        for part in node.parts:
            try:
                part.place.apply(held.view)
            except ValueError as error:
                what = f"its part at {list(part.place.offsets)} has no place in it"
                raise LayoutError(index, f"the pinned layout breaks a rule: {what}: {error}") from error

    def _new_domain(
        self, node: Node, owns: tuple[Own, ...], wanted: tuple[Candidate, ...], readers: int
    ) -> Domain:
        if isinstance(node, Given) and node.free:
            all_of_them = [State(owns[0], tuple(own.held for own in owns))]
            states = all_of_them if node.layouts else given_states(owns, readers)
            return Domain(owns, states, [memory_cost(state) for state in states])
        if isinstance(node, View):
            if node.pin is None:
                states = view_states(owns, wanted, readers)
            else:
                states = pinned_view_states(owns, candidate_of(node.pin), wanted, readers)
        else:
            states = [
                State(own, (own.held,), extra)
                for own in owns
                for extra in conversions((own.held,), wanted, readers)
            ]
        return Domain(owns, states, [node.times * state_cost(state, node.from_host) for state in states])

    # -- the sum --------------------------------------------------------------------------------------

    def sum(self) -> Sum:
        """All costs as tables over the states of tensors."""
        total = Sum([len(domain.states) for domain in self.domains])
        for index, node in enumerate(self.nodes):
            domain = self.domains[index]
            total.add((index,), domain.costs)
            for position, source in enumerate(node.inputs):
                table = self._table(node, index, position, source)
                if source == index:
                    total.add((index,), np.ascontiguousarray(table.diagonal()))
                elif source < index:
                    total.add((source, index), table)
                else:
                    total.add((index, source), np.ascontiguousarray(table.T))
        return total

    def _table(self, node: Node, index: int, position: int, source: int) -> NDArray[np.float64]:
        """Costs of one edge: states of the tensor read x states of the tensor made."""
        read, made = self.domains[source], self.domains[index]
        edge = self._edge(index, node, position)
        key = (edge, id(read), id(made), node.times)
        if key not in self._tables:
            self._tables[key] = node.times * edge.table(read, made)
        return self._tables[key]

    def _edge(self, index: int, node: Node, position: int) -> Edge:
        if isinstance(node, Compute):
            return Operand(position)
        if isinstance(node, View):
            return ViewOf(node.step)
        if isinstance(node, Assembled):
            part, source = node.parts[position], self.nodes[node.parts[position].source]
            exact = source.pin is not None or isinstance(source, _BUFFERS)
            return PutInto(part.place, self._made_in_place(node, part), exact, part.partial)
        if isinstance(node, Carried | Result):
            return Same(isinstance(node, Carried) and position == 1)
        return CopyOf()

    def _made_in_place(self, node: Assembled, part: Part) -> bool:
        """Whether a part is made where it is put: by an operation, for nobody else; or is the buffer itself."""
        source = self.nodes[part.source]
        if part.apart:
            return False
        if isinstance(source, _BUFFERS):
            return part.place == whole(node.shape)
        return len(self.readers[part.source]) == 1 and isinstance(source, Compute | Copy)

    # -- the plan -------------------------------------------------------------------------------------

    def plan(self, minimum: Minimum) -> Plan:
        """The decisions of a minimum."""
        if minimum.cost == INFINITE:
            raise self._misfit()
        states = [domain.states[at] for domain, at in zip(self.domains, minimum.states, strict=True)]
        decisions = tuple(self._decision(index, node, states) for index, node in enumerate(self.nodes))
        return Plan(decisions, minimum.cost, minimum.bound)

    def _misfit(self) -> LayoutError:
        """The error where nothing fits: of the first operation on what cannot be converted, if there is one."""
        for index, node in enumerate(self.nodes):
            if isinstance(node, Compute) and not all(
                is_convertible(self.nodes[at].dtype) for at in node.operands
            ):
                rule = sentence(node.signature.opcode)
                reason = "an operand does not lie as it must, and no operation converts 8-bit tensors"
                return LayoutError(index, f"{reason}: {rule}")
        return LayoutError(len(self.nodes) - 1, "no layouts of its tensors go together")

    def _decision(self, index: int, node: Node, states: list[State]) -> Decision:
        state = states[index]
        made = []
        for target in state.converted:
            source = state.converted_from(target)
            cost = node.times * conversion_cost(source, target, node.from_host)
            made.append(Conversion(source, target, cost))
        reads: list[Candidate] = []
        in_place: list[bool] = []
        for position, source in enumerate(node.inputs):
            edge = self._edge(index, node, position)
            reads += edge.reads(states[source], state)
            in_place.append(isinstance(edge, PutInto) and edge.fits(states[source], state.own))
        options = len(self.domains[index].owns)
        return Decision(state, tuple(reads), tuple(in_place), tuple(made), options)
