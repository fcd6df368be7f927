"""The cheapest layouts of a whole program.

Every tensor has *candidates*: layouts that its producer can make, and layouts that its readers may want it
converted to. A *state* of a tensor says which of them exist: its own and the conversions made of it. Costs
are tables over the states of a tensor and of what it reads, in effective bytes (``cost/transfer.py``):

- an operation moves each operand once, in a layout that one of its forms takes (``rules.py``);
- a conversion reads and writes the whole tensor, once, for all readers that want it; it runs as often as
  the producer does, so it stands outside the loops that its readers are in;
- what is given ahead of time (weights, constants) has any layouts at the price of their memory alone;
- a view moves nothing: what it makes of its source's layouts is there for free;
- what a loop carries has one layout before, in and after it.

``elimination.py`` finds the smallest sum.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.layout.candidates import (
    Candidate,
    candidate_of,
    cheapest,
    conversion_cost,
    conversion_price,
    distinct,
    image,
    ordered,
    plain_candidates,
)
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
    Signature,
    View,
    whole,
)
from spyre_mlir.layout.operations import Way, transfer_cost, ways
from spyre_mlir.layout.rules import violation, why_no_form
from spyre_mlir.layout.steps import Step
from spyre_mlir.layout.stick_layout import elements_per_stick
from spyre_mlir.target.ops import DEVICE_OPS, Kind

_INFINITE = float("inf")

#: Tensors that are buffers without an operation that makes them.
_BUFFERS = (Assembled, Carried, Result)

#: Layouts of one tensor beside its own; more than three dims of one tensor are never wanted at once.
_MOST_CONVERSIONS = 3
#: Orders of the non-stick dims that are tried for the result of one form.
_MOST_ORDERS = 3
#: Memory of a further layout of a weight, as a part of its bytes: decides between equals only.
_MEMORY_PRICE = 1 / 1024


class LayoutError(ValueError):
    """A program that no layouts fit; ``node`` is the tensor that shows it."""

    def __init__(self, node: int, reason: str) -> None:
        super().__init__(reason)
        self.node = node


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


@dataclass(frozen=True)
class Conversion:
    """A tensor copied from one of its layouts into another; costs are effective bytes."""

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
    """A decision per tensor; ``cost`` and ``bound`` (no plan costs less) in effective bytes."""

    decisions: tuple[Decision, ...]
    cost: float
    bound: float

    @property
    def proven(self) -> bool:
        """Whether no other choice among the candidates costs less."""
        return self.cost <= self.bound


def choose(
    graph: Graph, *, stick_outermost: bool = False, limit_entries: int = 1 << 20, width: int = 200
) -> Plan:
    """The cheapest consistent layouts of all tensors.

    ``stick_outermost`` is the convention of the default order. Exact while no table of the elimination has
    more than ``limit_entries``, else a beam of ``width`` with a bound. ``LayoutError`` if nothing fits.
    """
    problem = Problem(graph, stick_outermost)
    return problem.plan(problem.sum().minimize(limit_entries, width))


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
        if not _sized(node.shape) or isinstance(node, Carried | Result):
            return None
        if isinstance(node, Given):
            return None if node.free else node.pin is None or candidate_of(node.pin).lane is None
        if isinstance(node, Compute):
            return any(way.lanes[-1] is None for way in possible)
        if isinstance(node, Assembled):
            return not _uncut(node)
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
                batched[index] |= (
                    batched[reader] if isinstance(self.nodes[reader], View) else self._batched(reader)
                )
                lanes |= dict.fromkeys(self._wanted_lanes(node, reader, position))
            if _sized(node.shape):
                targets = self._targets(index, node, tuple(lanes), batched[index])
                wanted[index] = distinct((*targets, *self._pins_of_carried(index)))
        return wanted

    def _pins_of_carried(self, index: int) -> list[Candidate]:
        """What loops want that carry a tensor on, where a user says so."""
        loops = [self.nodes[reader] for reader, _ in self.readers[index]]
        if isinstance(self.nodes[index], Assembled):
            return []
        return [candidate_of(node.pin) for node in loops if isinstance(node, Carried) and node.pin]

    def _batched(self, reader: int) -> bool:
        node = self.nodes[reader]
        return isinstance(node, Compute) and _is_batched(node.signature)

    def _wanted_lanes(self, node: Node, reader: int, position: int) -> tuple[int | None, ...]:
        other = self.nodes[reader]
        if isinstance(other, Compute):
            return _lanes_of(self.ways[reader], position)
        if isinstance(other, View):
            return _viewable(other.step, node.shape, node.dtype, self.stick_outermost)
        if isinstance(other, Carried):
            return () if isinstance(node, Assembled) else (*_sized(node.shape), None)
        return _sized(node.shape) if isinstance(node, Given) and node.free else ()

    def _plain(self, node: Node, lane: int | None) -> tuple[Candidate, ...]:
        return plain_candidates(node.shape, node.dtype, lane, self.stick_outermost)

    def _targets(
        self, index: int, node: Node, lanes: tuple[int | None, ...], batched: bool
    ) -> tuple[Candidate, ...]:
        if node.pin is not None:
            return self._targets_of_pinned(node, lanes)
        if isinstance(node, Given) and node.free:
            return tuple(held for lane in lanes for held in self._plain(node, lane))
        readers = (self.nodes[reader] for reader, _ in self.readers[index])
        steps = [node.step for node in readers if isinstance(node, View)]
        return tuple(_best_order(self._plain(node, lane), steps, batched) for lane in lanes)

    def _targets_of_pinned(self, node: Node, lanes: tuple[int | None, ...]) -> tuple[Candidate, ...]:
        return tuple(self._plain(node, lane)[0] for lane in lanes)

    # -- states ---------------------------------------------------------------------------------------

    def _domain(self, index: int, node: Node) -> Domain:
        owns = self._owns(index, node)
        if node.pin is not None and not isinstance(node, View):
            owns = self._pinned(index, node, owns)
        readers = min(self.uses[index], _MOST_CONVERSIONS + 1)
        key = (type(node), owns, self.wanted[index], readers, node.times, node.pin, _is_free(node))
        if key not in self._domains:
            self._domains[key] = self._new_domain(node, owns, self.wanted[index], readers)
        return self._domains[key]

    def _owns(self, index: int, node: Node) -> tuple[Own, ...]:
        if isinstance(node, Given):
            if node.free:
                return tuple(map(owning, self.wanted[index] or self._plain(node, _last(node.shape))))
            return (owning(candidate_of(node.pin) if node.pin else self._plain(node, _last(node.shape))[0]),)
        if isinstance(node, Compute):
            inputs = tuple(self.domains[at].candidates for at in node.operands)
            return _results(
                node.signature, self.ways[index], inputs, node.shape, node.dtype, self.stick_outermost
            )
        if isinstance(node, View):
            return self._images(index, node)
        if isinstance(node, Assembled):
            lanes: tuple[int | None, ...] = _uncut(node) or (None,)
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
        return distinct((*found, *(self._plain(node, dim)[0] for dim in _sized(node.shape))))

    def _pinned(self, index: int, node: Node, owns: tuple[Own, ...]) -> tuple[Own, ...]:
        assert node.pin is not None
        held = candidate_of(node.pin)
        found = tuple(dict.fromkeys(owning(held, own.way) for own in owns if own.held.lane == held.lane))
        if isinstance(node, Assembled):
            self._check_places(index, node, held)
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
            states = _subsets(owns, readers)
            costs = [_MEMORY_PRICE * sum(held.bytes for held in state.base) for state in states]
            return Domain(owns, states, [round(cost) for cost in costs])
        if isinstance(node, View):
            if node.pin is None:
                states = _view_states(owns, wanted, readers)
            else:
                states = _pinned_views(owns, candidate_of(node.pin), wanted, readers)
        else:
            states = [
                State(own, (own.held,), extra)
                for own in owns
                for extra in _conversions((own.held,), wanted, readers)
            ]
        return Domain(owns, states, [node.times * _cost(state) for state in states])

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

    def _edge(self, index: int, node: Node, position: int) -> _Edge:
        if isinstance(node, Compute):
            return _Operand(position)
        if isinstance(node, View):
            return _ViewOf(node.step)
        if isinstance(node, Assembled):
            part, source = node.parts[position], self.nodes[node.parts[position].source]
            exact = source.pin is not None or isinstance(source, _BUFFERS)
            return _PutInto(part.place, self._made_in_place(node, part), exact)
        if isinstance(node, Carried | Result):
            return _Same(isinstance(node, Carried) and position == 1)
        return _CopyOf()

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
        if minimum.cost == _INFINITE:
            raise LayoutError(len(self.nodes) - 1, "no layouts of its tensors go together")
        states = [domain.states[at] for domain, at in zip(self.domains, minimum.states, strict=True)]
        decisions = tuple(self._decision(index, node, states) for index, node in enumerate(self.nodes))
        return Plan(decisions, minimum.cost, minimum.bound)

    def _decision(self, index: int, node: Node, states: list[State]) -> Decision:
        state = states[index]
        conversions = []
        for target in state.converted:
            source = state.converted_from(target)
            conversions.append(Conversion(source, target, node.times * conversion_cost(source, target)))
        reads: list[Candidate] = []
        in_place: list[bool] = []
        for position, source in enumerate(node.inputs):
            edge = self._edge(index, node, position)
            reads += edge.reads(states[source], state)
            in_place.append(isinstance(edge, _PutInto) and edge.fits(states[source], state.own))
        options = len(self.domains[index].owns)
        return Decision(state, tuple(reads), tuple(in_place), tuple(conversions), options)


# -- edges --------------------------------------------------------------------------------------------


class _Edge:
    """How a node reads an input: what that costs, and in which layout."""

    def price(self, held: Candidate, own: Own) -> float:
        """Effective bytes to read the input as ``held`` for a result like ``own``; infinite if it cannot be."""
        raise NotImplementedError

    def table(self, read: Domain, made: Domain) -> NDArray[np.float64]:
        """The cheapest layout that each state of the input holds, per state of the result."""
        prices = np.array([[self.price(held, own) for own in made.owns] for held in read.candidates])
        return prices[read.held].min(axis=1)[:, made.own]

    def reads(self, source: State, result: State) -> list[Candidate]:
        """The layouts that are read."""
        return [min(source.held, key=lambda held: self.price(held, result.own))]


@dataclass(frozen=True)
class _Operand(_Edge):
    position: int

    def price(self, held: Candidate, own: Own) -> float:
        assert own.way is not None
        cost = transfer_cost(own.way, self.position, held)
        return _INFINITE if cost is None else cost


@dataclass(frozen=True)
class _CopyOf(_Edge):
    def price(self, held: Candidate, own: Own) -> float:
        return conversion_price(held, own.held)


@dataclass(frozen=True)
class _ViewOf(_Edge):
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
        return np.where(missing, _INFINITE, 0.0)

    def reads(self, source: State, result: State) -> list[Candidate]:
        return [next(held for held in source.held if image(self.step, held) is base) for base in result.base]


@dataclass(frozen=True)
class _PutInto(_Edge):
    """A part is made in its place, or copied there; if its stick changes it is converted before (or, to the
    whole buffer, instead).

    One whose layout has to be ``exact`` (it is pinned, or the buffer of a loop) is made in a place that lies
    like it, not merely one with its stick.
    """

    place: object
    in_place: bool
    exact: bool

    def price(self, held: Candidate, own: Own) -> float:
        target = image(self.place, own.held)
        if target is None:
            return _INFINITE
        copies = 1 if held.lane == target.lane or target is own.held else 2
        return copies * conversion_price(held, target)

    def fits(self, source: State, own: Own) -> bool:
        """Whether the part is made in its place."""
        place = image(self.place, own.held)
        if not self.in_place or place is None or place.lane != source.own.held.lane:
            return False
        return not self.exact or place.layout == source.own.held.layout

    def table(self, read: Domain, made: Domain) -> NDArray[np.float64]:
        costs = super().table(read, made)
        for row, state in zip(costs, read.states, strict=True):
            row[np.array([self.fits(state, own) for own in made.owns])[made.own]] = 0
        return costs

    def reads(self, source: State, result: State) -> list[Candidate]:
        if self.fits(source, result.own):
            return [source.own.held]
        return super().reads(source, result)


@dataclass(frozen=True)
class _Same(_Edge):
    """What a loop carries is one buffer; what it is next may be a conversion that is ``made`` for it."""

    made: bool

    def price(self, held: Candidate, own: Own) -> float:
        return 0 if held is own.held else _INFINITE

    def table(self, read: Domain, made: Domain) -> NDArray[np.float64]:
        if self.made:
            return super().table(read, made)
        prices = np.array([[self.price(source.held, own) for own in made.owns] for source in read.owns])
        return prices[read.own][:, made.own]


# -- candidates of one node ---------------------------------------------------------------------------


def _sized(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(dim for dim, size in enumerate(shape) if size > 1)


def _last(shape: tuple[int, ...]) -> int | None:
    """The default stick: the last dim, as the convention has it even where that has size 1."""
    return len(shape) - 1 if shape else None


def _is_free(node: Node) -> bool:
    return isinstance(node, Given) and node.free


@functools.lru_cache(maxsize=1 << 12)
def _is_batched(signature: Signature) -> bool:
    iteration = signature.iteration
    product = DEVICE_OPS[signature.opcode].kind is Kind.MATMUL
    return product and bool(iteration.present[0] & iteration.present[1] - iteration.reduced)


@functools.lru_cache(maxsize=1 << 12)
def _lanes_of(possible: tuple[Way, ...], position: int) -> tuple[int | None, ...]:
    return tuple(dict.fromkeys(way.lanes[position] for way in possible))


@functools.lru_cache(maxsize=1 << 12)
def _viewable(
    step: Step, shape: tuple[int, ...], dtype: str, stick_outermost: bool
) -> tuple[int | None, ...]:
    """The sticks with which a view operation is a view in some order; sparse if there is none."""

    def legal(dim: int) -> bool:
        return any(image(step, held) for held in plain_candidates(shape, dtype, dim, stick_outermost))

    return tuple(filter(legal, _sized(shape))) or (None,)


def _best_order(found: tuple[Candidate, ...], steps: Sequence[object], batched: bool) -> Candidate:
    """The order that the most views accept and leave addressable; of equals, rows innermost if ``batched``."""
    if len(found) == 1:
        return found[0]
    preferred = tuple(reversed(found)) if batched else found
    if not steps:
        return preferred[0]

    def accepted(held: Candidate) -> int:
        images = [image(step, held) for step in steps]
        return sum(made is not None and 1 + made.plain for made in images)

    return max(preferred, key=accepted)


def _uncut(node: Assembled) -> tuple[int, ...]:
    """The dims that no place of a part cuts inside a stick."""
    return _uncut_dims(node.shape, node.dtype, tuple(part.place for part in node.parts))


@functools.lru_cache(maxsize=1 << 10)
def _uncut_dims(shape: tuple[int, ...], dtype: str, places: tuple) -> tuple[int, ...]:
    per_stick = elements_per_stick(dtype)

    return tuple(
        dim
        for dim in _sized(shape)
        if not any(place.cuts_sticks(dim, per_stick, shape[dim]) for place in places)
    )


@functools.lru_cache(maxsize=1 << 14)
def _results(
    signature: Signature,
    possible: tuple[Way, ...],
    inputs: tuple[tuple[Candidate, ...], ...],
    shape: tuple[int, ...],
    dtype: str,
    stick_outermost: bool,
) -> tuple[Own, ...]:
    """Per way the orders that an input has, the default one, and the one with its rows innermost."""
    found: list[Own] = []
    for way in possible:
        lane = way.lanes[-1]
        layouts = [*_inherited(signature, way, inputs, shape, dtype)]
        layouts += plain_candidates(shape, dtype, lane, stick_outermost)
        found += [owning(held, way) for held in distinct(layouts)[:_MOST_ORDERS]]
    return tuple(found)


def _inherited(
    signature: Signature,
    way: Way,
    inputs: tuple[tuple[Candidate, ...], ...],
    shape: tuple[int, ...],
    dtype: str,
) -> list[Candidate]:
    """The result in the order of an input that has all its dims, first input first."""
    lane = way.lanes[-1]
    if lane is None:
        return []
    result = signature.maps[-1]
    where: dict[int | None, int] = {dim: at for at, dim in enumerate(result) if dim is not None}
    found = []
    for position, candidates in enumerate(inputs):
        dims = signature.maps[position]
        if not set(where) <= set(dims):
            continue
        for held in candidates:
            if held.lane == way.lanes[position] and held.plain:
                order = [where[dims[dim]] for dim in held.order if dims[dim] in where]
                found.append(ordered(shape, dtype, lane, tuple(order)))
    return found


# -- states of one node -------------------------------------------------------------------------------


def _cost(state: State) -> float:
    """Effective bytes to write the result and to make its conversions."""
    written = 0 if state.own.way is None else transfer_cost(state.own.way, -1, state.own.held)
    assert written is not None
    return written + sum(conversion_price(state.converted_from(target), target) for target in state.converted)


def _conversions(
    base: tuple[Candidate, ...], wanted: tuple[Candidate, ...], readers: int
) -> list[tuple[Candidate, ...]]:
    """The sets of conversions that can be of use to so many readers."""
    useful = [held for held in wanted if held not in base]
    most = min(readers, _MOST_CONVERSIONS)
    return [
        chosen
        for count in range(min(most, len(useful)) + 1)
        for chosen in itertools.combinations(useful, count)
    ]


def _subsets(owns: tuple[Own, ...], readers: int) -> list[State]:
    """Layouts ahead of time: any of them, at most one per stick and reader."""
    states = []
    for count in range(1, max(1, min(readers, _MOST_CONVERSIONS, len(owns))) + 1):
        for chosen in itertools.combinations(owns, count):
            if len({own.held.lane for own in chosen}) == count:
                states.append(State(chosen[0], tuple(own.held for own in chosen)))
    return states


def _view_states(owns: tuple[Own, ...], wanted: tuple[Candidate, ...], readers: int) -> list[State]:
    """Views of one layout of the source, or of two if there are readers for both; and conversions of them."""
    states = []
    for count in range(1, min(2, max(readers, 1), len(owns)) + 1):
        for chosen in itertools.combinations(owns, count):
            base = tuple(own.held for own in chosen)
            if len({held.lane for held in base}) == count:
                extras = _conversions(base, wanted, readers)
                states += [State(chosen[0], base, extra) for extra in extras if len(base) + len(extra) <= 4]
    return states


def _pinned_views(
    owns: tuple[Own, ...], pin: Candidate, wanted: tuple[Candidate, ...], readers: int
) -> list[State]:
    """Views that lie as the pin says, and copies that do; no reader takes the view of those itself."""
    extras = _conversions((pin,), wanted, readers)
    return [
        State(own, (own.held,), extra)
        if own.held.layout == pin.layout
        else State(own, (own.held,), (pin, *extra), sealed=True)
        for own in owns
        for extra in extras
    ]
