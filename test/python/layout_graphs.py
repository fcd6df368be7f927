# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random graphs for the layout choice, and two other algorithms: exhaustive search, and edge by edge."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence

from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.layout.view_transforms import Collapse, Expand, Slice, Transpose, ViewTransform
from spyre_mlir.layout_search.layout_candidates import (
    LayoutCandidate,
    ProducedLayout,
    candidate_of,
    copying_cost,
    image,
    op_layouts,
    relayout_cost,
    transfer_cost,
)
from spyre_mlir.layout_search.minimum_cost import LayoutPlan, Problem
from spyre_mlir.layout_search.tensor_graph import (
    ArgumentNode,
    Compute,
    Copy,
    Graph,
    InsertedSlice,
    InsertSliceBuffer,
    IterArg,
    LoopResult,
    TensorNode,
    ViewNode,
    signature,
    whole,
)
from spyre_mlir.target.target import default_target

SIZES = (64, 96, 128, 192)
DTYPE = "f16"

#: How often each kind of node grows, of the sum of these numbers; views are not counted as operations.
_KINDS = {
    "pointwise": 4,
    "matmul": 4,
    "reduce": 2,
    "transpose": 2,
    "slice": 2,
    "collapse": 2,
    "expand": 2,
    "copy": 1,
    "join": 2,
    "update": 2,
    "loop": 1,
}


class RandomGraph:
    """A graph of ``operations`` operations (copies, joins and carried values included) and views between them.

    Some nodes run three times, as in a loop; some have pins; some inputs are weights.
    """

    def __init__(self, seed: int, operations: int) -> None:
        self.rng = random.Random(seed)
        self.graph = Graph(default_target())
        self.times = 1
        sizes = self.rng.sample(SIZES, 2)
        for _ in range(self.rng.randint(1, 3)):
            self._given(tuple(self.rng.choice(sizes) for _ in range(self.rng.choice((1, 2, 2, 2, 3)))))
        while operations > 0:
            self.times = self.rng.choice((1, 1, 1, 3))
            operations -= self._grow()
        self._close_loops()

    def _grow(self) -> int:
        source = self.rng.choice([tensor for tensor in self._tensors() if self._shape(tensor)])
        (kind,) = self.rng.choices(list(_KINDS), list(_KINDS.values()))
        return getattr(self, f"_{kind}")(source, self._shape(source))

    def _tensors(self) -> range:
        return range(len(self.graph.nodes))

    def _shape(self, tensor: int) -> tuple[int, ...]:
        return self.graph.nodes[tensor].shape

    def _like(self, shape: tuple[int, ...]) -> list[int]:
        return [tensor for tensor in self._tensors() if self._shape(tensor) == shape]

    def _pin(self, shape: tuple[int, ...], chance: float) -> StickLayout | None:
        if self.rng.random() >= chance:
            return None
        return StickLayout.for_tensor(
            default_target(), shape, DTYPE, self.rng.sample(range(len(shape)), len(shape))
        )

    def _given(self, shape: tuple[int, ...]) -> int:
        free = self.rng.random() < 0.3
        pin = None if free else self._pin(shape, 0.3)
        return self.graph.add(ArgumentNode(shape, DTYPE, free=free, pin=pin))

    def _compute(self, opcode, operands, maps, shape, reduced=()) -> int:
        shapes = (*map(self._shape, operands), shape)
        made = signature(default_target(), opcode, maps, shapes, (DTYPE,) * len(shapes), reduced)
        pin = self._pin(shape, 0.05)
        if pin is not None and all(
            way.stick_dims[-1] != candidate_of(pin).stick_dim for way in op_layouts(made)
        ):
            pin = None
        self.graph.add(Compute(shape, DTYPE, self.times, pin, signature=made, operands=tuple(operands)))
        return 1

    def _pointwise(self, source: int, shape: tuple[int, ...]) -> int:
        own = tuple(range(len(shape)))
        rows = [(tensor, dim) for dim in own for tensor in self._like((shape[dim],))]
        if rows and len(shape) > 1 and self.rng.random() < 0.5:
            other, dim = self.rng.choice(rows)
            return self._compute("add", (source, other), (own, (dim,), own), shape)
        return self._compute("add", (source, self.rng.choice(self._like(shape))), (own, own, own), shape)

    def _matmul(self, source: int, shape: tuple[int, ...]) -> int:
        if len(shape) < 2:
            return 0
        *batch, _, inner = shape
        partners = [t for t in self._tensors() if self._shape(t)[:-1] == (*batch, inner)]
        other = self.rng.choice(partners or [self._given((*batch, inner, self.rng.choice(SIZES)))])
        dims = tuple(range(len(batch)))
        row, contracted, column = range(len(batch), len(batch) + 3)
        maps = ((*dims, row, contracted), (*dims, contracted, column), (*dims, row, column))
        result = (*shape[:-1], self._shape(other)[-1])
        return self._compute("batchmatmul", (source, other), maps, result, (contracted,))

    def _reduce(self, source: int, shape: tuple[int, ...]) -> int:
        reduced = self.rng.randrange(len(shape))
        kept = tuple(dim for dim in range(len(shape)) if dim != reduced)
        maps = (tuple(range(len(shape))), kept)
        return self._compute("sum", (source,), maps, tuple(shape[dim] for dim in kept), (reduced,))

    def _view(self, source: int, shape: Sequence[int], step: ViewTransform) -> int:
        pin = self._pin(tuple(shape), 0.05)
        self.graph.add(ViewNode(tuple(shape), DTYPE, self.times, pin, source=source, step=step))
        return 0

    def _transpose(self, source: int, shape: tuple[int, ...]) -> int:
        order = tuple(self.rng.sample(range(len(shape)), len(shape)))
        return self._view(source, [shape[dim] for dim in order], Transpose(order))

    def _slice(self, source: int, shape: tuple[int, ...]) -> int:
        dim = self.rng.randrange(len(shape))
        size = self.rng.choice([size for size in (32, 64) if size < shape[dim]] or [shape[dim]])
        place = _place(shape, dim, self.rng.choice((0, shape[dim] - size)), size)
        return self._view(source, place.sizes, place)

    def _collapse(self, source: int, shape: tuple[int, ...]) -> int:
        if len(shape) != 3:
            return 0
        groups = self.rng.choice((((0, 1), (2,)), ((0,), (1, 2))))
        merged = [math.prod(shape[dim] for dim in group) for group in groups]
        return self._view(source, merged, Collapse(groups))

    def _expand(self, source: int, shape: tuple[int, ...]) -> int:
        if len(shape) != 2:
            return 0
        dim, inner = self.rng.randrange(2), self.rng.choice((32, 64))
        if shape[dim] % inner or shape[dim] == inner:
            return 0
        groups = ((0, 1), (2,)) if dim == 0 else ((0,), (1, 2))
        whole = (*shape[:dim], shape[dim] // inner, inner, *shape[dim + 1 :])
        return self._view(source, whole, Expand(groups, whole))

    def _copy(self, source: int, shape: tuple[int, ...]) -> int:
        self.graph.add(Copy(shape, DTYPE, self.times, self._pin(shape, 0.5), source=source))
        return 1

    def _join(self, source: int, shape: tuple[int, ...]) -> int:
        dim, size = (at := self.rng.randrange(len(shape))), shape[at]
        whole = (*shape[:dim], 2 * size, *shape[dim + 1 :])
        other = self.rng.choice(self._like(shape))
        parts = tuple(
            InsertedSlice(t, _place(whole, dim, offset, size)) for t, offset in ((source, 0), (other, size))
        )
        pin = self._pin(whole, 0.1)
        if pin is not None and any(image(part.place, candidate_of(pin)) is None for part in parts):
            pin = None
        self.graph.add(InsertSliceBuffer(whole, DTYPE, self.times, pin, parts=parts))
        return 1

    def _update(self, source: int, shape: tuple[int, ...]) -> int:
        smaller = [t for t in self._tensors() if _within(self._shape(t), shape)]
        other = self.rng.choice(smaller)
        place = Slice((0,) * len(shape), self._shape(other), (1,) * len(shape))
        parts = (InsertedSlice(source, whole(shape), self.rng.random() < 0.3), InsertedSlice(other, place))
        self.graph.add(InsertSliceBuffer(shape, DTYPE, self.times, parts=parts, carried=True))
        return 1

    def _loop(self, source: int, shape: tuple[int, ...]) -> int:
        pin = self._pin(shape, 0.2)
        parts = (InsertedSlice(source, whole(shape)),)
        initial = self.graph.add(InsertSliceBuffer(shape, DTYPE, 1, pin, parts=parts, carried=True))
        self.graph.add(IterArg(shape, DTYPE, 3, pin, initial=initial))
        return 1

    def _close_loops(self) -> None:
        """Close each loop: it yields values of matching shape without a pinned layout, and its results have readers."""
        loops = [(at, node) for at, node in enumerate(self.graph.nodes) if isinstance(node, IterArg)]
        for index, node in loops:
            node.yielded = self.rng.choice([index, *filter(self._is_open, self._like(node.shape))])
        self.times = 1
        for index, node in loops:
            left = self.graph.add(LoopResult(node.shape, DTYPE, carried=index))
            self._pointwise(left, node.shape)

    def _is_open(self, tensor: int) -> bool:
        node = self.graph.nodes[tensor]
        return node.pin is None and not (isinstance(node, InsertSliceBuffer) and not node.carried)


def _within(inner: tuple[int, ...], outer: tuple[int, ...]) -> bool:
    return len(inner) == len(outer) and all(small <= large for small, large in zip(inner, outer, strict=True))


def _place(shape: Sequence[int], dim: int, offset: int, size: int) -> Slice:
    sizes = tuple(size if at == dim else extent for at, extent in enumerate(shape))
    return Slice(tuple(offset if at == dim else 0 for at in range(len(shape))), sizes, (1,) * len(shape))


# -- prices of single steps ---------------------------------------------------------------------------


#: Tensors that are buffers without an operation that makes them.
_BUFFERS = (InsertSliceBuffer, IterArg, LoopResult)


def _made_there(
    graph: Graph, readers: list, node: TensorNode, position: int, made: LayoutCandidate, own: ProducedLayout
) -> bool:
    """Whether a part made like ``made`` is made in its place, or is the very buffer that it is put into.

    An operation makes it there for nobody else, if that has its stick; what is pinned, or is a buffer, has to
    lie like the place altogether.
    """
    if not isinstance(node, InsertSliceBuffer) or node.parts[position].out_of_place:
        return False
    part = node.parts[position]
    source, target = graph.nodes[part.source], image(part.place, own.candidate)
    if isinstance(source, _BUFFERS):
        possible = part.place == whole(node.shape)
    else:
        possible = isinstance(source, Compute | Copy) and len(readers[part.source]) == 1
    if not possible or target is None or target.stick_dim != made.stick_dim:
        return False
    exact = source.pin is not None or isinstance(source, _BUFFERS)
    return not exact or target.layout == made.layout


def _written(node: TensorNode, own: ProducedLayout) -> float:
    """Picoseconds that an operation writes."""
    if own.op_layout is None:
        return 0
    cost = transfer_cost(own.op_layout, -1, own.candidate)
    assert cost is not None, "a result lies in a way that its operation cannot write"
    return node.times * (cost // 4 if _is_small_in_lx(node, own.candidate) else cost)


def _is_small_in_lx(node: TensorNode, held: LayoutCandidate) -> bool:
    """Return whether a computed tensor has at most a quarter of all scratchpads; in a loop, a sixteenth."""
    if node.times > 1 and isinstance(node, Compute | IterArg):
        return held.bytes <= 32 * 1_625_344 / 16
    return isinstance(node, Compute) and node.may_stay and held.bytes <= 32 * 1_625_344 / 4


def _read(
    node: TensorNode, position: int, held: LayoutCandidate, own: ProducedLayout, source: TensorNode
) -> float:
    """Picoseconds to read input ``position`` as ``held``; infinite if the node cannot."""
    if isinstance(node, Compute):
        assert own.op_layout is not None
        cost = transfer_cost(own.op_layout, position, held)
        if cost is None:
            return math.inf
        return node.times * (cost // 4 if _is_small_in_lx(source, held) else cost)
    if isinstance(node, IterArg | LoopResult):
        return 0 if held is own.candidate else math.inf
    if not isinstance(node, InsertSliceBuffer):
        return node.times * copying_cost(held, own.candidate)
    target = image(node.parts[position].place, own.candidate)
    if target is None:
        return math.inf
    at_once = (
        held.stick_dim == target.stick_dim or target is own.candidate
    )  # else converted first, then put there
    return node.times * copying_cost(held, target) * (1 if at_once else 2)


def _memory(layouts: Sequence[LayoutCandidate]) -> int:
    """Return the memory cost of the layouts of a weight: 1/1024 of the time to move them, in whole bursts."""
    return round(
        sum(round(1000 * held.bytes / default_target().one_way_bytes_per_ns) for held in layouts) / 1024
    )


def _shorter_runs(
    node: TensorNode, position: int, source: ProducedLayout | None, own: ProducedLayout
) -> float:
    """Return the picoseconds that writing a slice into its buffer takes longer than writing a separate buffer."""
    assert isinstance(node, InsertSliceBuffer) and source is not None
    target = image(node.parts[position].place, own.candidate)
    if target is None:
        return 0
    if source.op_layout is None:  # a copy, or a buffer of parts
        there, alone = (copying_cost(source.candidate, held) for held in (target, source.candidate))
        return node.times * max(0, there - alone)
    there, alone = (transfer_cost(source.op_layout, -1, held) for held in (target, source.candidate))
    return node.times * max(0, there - alone) if there is not None and alone is not None else 0


def _is_same(node: TensorNode, position: int) -> bool:
    """Return whether a node aliases its input: loop results, and iter_args with their initial value."""
    return isinstance(node, LoopResult) or (isinstance(node, IterArg) and position == 0)


def price(graph: Graph, plan: LayoutPlan) -> float:
    """Return the cost of a plan by its decisions; ``AssertionError`` if no decision makes a layout that is read."""
    readers, total = graph.readers(), 0.0
    for node, decision in zip(graph.nodes, plan.decisions, strict=True):
        state, held = decision.state, [plan.decisions[source].state.available for source in node.inputs]
        assert all(each.source in (*state.base, *state.available) for each in decision.relayouts)
        assert {each.target for each in decision.relayouts} == set(state.converted)
        assert len(set(state.converted)) == len(state.converted)
        total += sum(
            node.times * relayout_cost(c.source, c.target, node.from_host) for c in decision.relayouts
        )
        if isinstance(node, ViewNode):
            for base, read in zip(state.base, decision.reads, strict=True):
                assert read in held[0] and image(node.step, read) is base
            continue
        assert isinstance(node, ArgumentNode) or state.base == (state.produced.candidate,)
        total += (
            _memory(state.base)
            if isinstance(node, ArgumentNode) and node.free
            else _written(node, state.produced)
        )
        for position, source in enumerate(node.inputs):
            read = decision.reads[position]
            assert read in held[position]
            made = plan.decisions[source].state.produced.candidate
            assert decision.in_place[position] == _made_there(
                graph, readers, node, position, made, state.produced
            )
            if decision.in_place[position] or _is_same(node, position):
                assert read is made
                if decision.in_place[position]:
                    source_state = plan.decisions[source].state.produced
                    total += _shorter_runs(node, position, source_state, state.produced)
            else:
                total += _read(node, position, read, state.produced, graph.nodes[source])
    return total


# -- other ways to choose -----------------------------------------------------------------------------

#: Per tensor how it is made (None: not yet, or a view or weight) and the layouts that exist of it.
_There = tuple[tuple[ProducedLayout | None, frozenset[LayoutCandidate]], ...]

_NOTHING: tuple[None, frozenset[LayoutCandidate]] = (None, frozenset())


class Exhaustive:
    """All plans of a graph that cost at most ``limit``, in program order.

    A layout comes to be when its first reader takes it, in every way that it can: by a conversion, as a view,
    as a view of a conversion, .. Plans that leave the same layouts to the same later readers continue as one,
    the cheapest. The candidates and costs come from ``minimum_cost.py``; its states, tables and elimination
    are not used.
    """

    def __init__(self, graph: Graph, limit: float) -> None:
        self.problem = Problem(graph, stick_outermost=False)
        self.graph, self.nodes, self.readers = graph, graph.nodes, graph.readers()
        self.limit = limit
        self.candidates = [domain.candidates for domain in self.problem.domains]
        self.last = self._last_uses()
        self.edges: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            if not isinstance(node, ViewNode):
                for position, source in enumerate(node.inputs):
                    self.edges[max(index, source)].append((index, position))
        least = [self._least(index, node) for index, node in enumerate(self.nodes)]
        self.rest = [*itertools.accumulate(reversed(least), initial=0.0)][::-1]

    def cost(self) -> float:
        """Picoseconds of the cheapest plan; infinite if none costs at most ``limit``."""
        plans: dict[_There, float] = {(_NOTHING,) * len(self.nodes): 0.0}
        for index in range(len(self.nodes)):
            following: dict[_There, float] = {}
            for there, cost in plans.items():
                for made, more in self._made(index, there, self.limit - cost - self.rest[index + 1]):
                    key = self._alive(made, index)
                    if cost + more < following.get(key, math.inf):
                        following[key] = cost + more
            plans = following
        return min(plans.values(), default=math.inf)

    def _last_uses(self) -> list[int]:
        """The last node that reads each tensor, or a view of it."""
        last = list(range(len(self.nodes)))
        for index in reversed(range(len(self.nodes))):
            for reader, _ in self.readers[index]:
                last[index] = max(last[index], reader)
                if isinstance(self.nodes[reader], ViewNode):
                    last[index] = max(last[index], last[reader])
        for index, node in enumerate(self.nodes):
            for source in node.inputs:
                last[index] = max(last[index], source)
        return last

    def _alive(self, there: _There, index: int) -> _There:
        return tuple(each if last > index else _NOTHING for each, last in zip(there, self.last, strict=True))

    def _least(self, index: int, node: TensorNode) -> float:
        """A node costs no less than this, wherever its inputs lie."""
        if isinstance(node, ViewNode | ArgumentNode):
            return 0.0
        return min(self._least_with(index, node, own) for own in self.problem.domains[index].produced)

    def _least_with(self, index: int, node: TensorNode, own: ProducedLayout) -> float:
        total = _written(node, own)
        for position, source in enumerate(node.inputs):
            makers = self.problem.domains[source].produced
            if source > index or any(
                _made_there(self.graph, self.readers, node, position, maker.candidate, own)
                for maker in makers
            ):
                continue
            total += min(
                _read(node, position, held, own, self.nodes[source]) for held in self.candidates[source]
            )
        return total

    def _made(self, index: int, there: _There, budget: float) -> Iterator[tuple[_There, float]]:
        """Yield all ways to make a tensor and to read its inputs, or to read it as an iter_arg."""
        for begun, spent in self._begun(index, there, budget):
            plans = [(begun, spent)]
            for reader, position in self.edges[index]:
                plans = [
                    (later, cost + more)
                    for earlier, cost in plans
                    for later, more in self._taken(reader, position, earlier, budget - cost)
                ]
            yield from plans

    def _begun(self, index: int, there: _There, budget: float) -> Iterator[tuple[_There, float]]:
        """Yield a tensor in each of its own layouts. Views and weights are made when read, or now if never read."""
        node = self.nodes[index]
        if not isinstance(node, ViewNode) and not _is_free(node):
            for own in self.problem.domains[index].produced:
                yield _with(there, index, own.candidate, own), _written(node, own)
        elif self.readers[index] and node.pin is None:
            yield there, 0.0
        else:
            pinned = [held for held in self.candidates[index] if _is_pinned(node, held)]
            for held in pinned or self.candidates[index]:
                yield from self._obtained(index, held, there, budget)

    def _taken(
        self, index: int, position: int, there: _There, budget: float
    ) -> Iterator[tuple[_There, float]]:
        """All ways to read an input."""
        node, own = self.nodes[index], _own(there, index)
        source = node.inputs[position]
        made = there[source][0]
        if made is not None and _made_there(self.graph, self.readers, node, position, made.candidate, own):
            yield there, _shorter_runs(node, position, made, own)
            return
        if _is_same(node, position):
            if _own(there, source).candidate is own.candidate:
                yield there, 0.0
            return
        for held in self.candidates[source]:
            cost = _read(node, position, held, own, self.nodes[source])
            if cost <= budget:
                for later, more in self._obtained(source, held, there, budget - cost):
                    yield later, cost + more

    def _obtained(
        self, tensor: int, held: LayoutCandidate, there: _There, budget: float
    ) -> Iterator[tuple[_There, float]]:
        """All ways to have a tensor in a layout."""
        node, existing = self.nodes[tensor], there[tensor][1]
        if held in existing:
            yield there, 0.0
        elif isinstance(node, ViewNode):
            yield from self._view_obtained(tensor, node, held, there, budget)
        elif _is_free(node):
            if all(held.stick_dim != other.stick_dim for other in existing):
                more = _memory([*existing, held]) - _memory([*existing])
                yield _with(there, tensor, held), more
        elif held in self.problem.reader_candidates[tensor]:
            cost = node.times * relayout_cost(_own(there, tensor).candidate, held, node.from_host)
            if cost <= budget:
                yield _with(there, tensor, held), cost

    def _view_obtained(
        self, tensor: int, node: ViewNode, held: LayoutCandidate, there: _There, budget: float
    ) -> Iterator[tuple[_There, float]]:
        """Yield a view of a layout of its source, or of a conversion of it; with a pin only of the pinned layout."""
        pins = [each for each in self.candidates[tensor] if _is_pinned(node, each)]
        if pins and held not in pins:
            for pin in pins:
                cost = node.times * relayout_cost(pin, held, node.from_host)
                for later, more in self._obtained(tensor, pin, there, budget - cost):
                    yield _with(later, tensor, held), cost + more
            return
        for source in self.candidates[node.source]:
            base = image(node.step, source)
            if base is None or (
                base is not held and held not in (*self.problem.reader_candidates[tensor], *pins)
            ):
                continue
            cost = 0.0 if base is held else node.times * relayout_cost(base, held, node.from_host)
            if cost <= budget:
                for later, more in self._obtained(node.source, source, there, budget - cost):
                    yield _with(later, tensor, held), cost + more


def _is_pinned(node: TensorNode, held: LayoutCandidate) -> bool:
    return node.pin is not None and held.layout == candidate_of(node.pin).layout


def _own(there: _There, tensor: int) -> ProducedLayout:
    """Return the layout in which a tensor was made that is not a view or a weight."""
    own = there[tensor][0]
    assert own is not None
    return own


def _with(there: _There, tensor: int, held: LayoutCandidate, own: ProducedLayout | None = None) -> _There:
    made, existing = there[tensor]
    entry = (own or made, existing | {held})
    return (*there[:tensor], entry, *there[tensor + 1 :])


def _is_free(node: TensorNode) -> bool:
    return isinstance(node, ArgumentNode) and node.free


class EdgeByEdge:
    """Each node in program order takes the layout with the fewest conversions, and converts each input separately."""

    def __init__(self, graph: Graph) -> None:
        self.problem = Problem(graph, stick_outermost=False)
        self.graph, self.nodes, self.readers = graph, graph.nodes, graph.readers()
        self.held: list[tuple[LayoutCandidate, ...]] = [()] * len(self.nodes)
        self.produced: list[ProducedLayout | None] = [None] * len(self.nodes)

    def cost(self) -> float:
        """Return picoseconds of the plan; iter_args are read after all nodes."""
        total = sum(self._made(index, node) for index, node in enumerate(self.nodes))
        for index, node in enumerate(self.nodes):
            if isinstance(node, IterArg):
                own = self.produced[index]
                assert own is not None
                total += sum(self._input(index, 1, own))
        return total

    def _made(self, index: int, node: TensorNode) -> float:
        if isinstance(node, ViewNode):
            return self._viewed(index, node)
        if _is_free(node):
            lanes = {held.stick_dim: held for held in reversed(self.problem.domains[index].candidates)}
            self.held[index] = tuple(lanes.values())
            return _memory(self.held[index])
        found = []
        for own in self.problem.domains[index].produced:
            ready = range(1 if isinstance(node, IterArg) else len(node.inputs))
            reads = [self._input(index, position, own) for position in ready]
            converted, read = sum(each for each, _ in reads), sum(each for _, each in reads)
            found.append((converted, converted + read + _written(node, own), own))
        _, cost, own = min(found, key=lambda each: each[:2])
        self.held[index], self.produced[index] = (own.candidate,), own
        return cost

    def _viewed(self, index: int, node: ViewNode) -> float:
        """Hold views of all layouts of the source, or of a conversion of it, and a copy in the pinned layout."""
        cost, source = 0.0, node.source
        self.held[index] = self._images(node, self.held[source])
        if not self.held[index]:
            legal = [
                held for held in self.problem.reader_candidates[source] if image(node.step, held) is not None
            ]
            held = min(legal, key=lambda held: self._converted(source, held))
            cost = self._converted(source, held)
            self.held[index] = self._images(node, (held,))
        if node.pin is None:
            return cost
        pins = tuple(held for held in self.held[index] if _is_pinned(node, held))
        if not pins:
            cost += self._converted(index, candidate_of(node.pin))
        self.held[index] = pins or (candidate_of(node.pin),)
        return cost

    def _images(self, node: ViewNode, sources: Sequence[LayoutCandidate]) -> tuple[LayoutCandidate, ...]:
        return tuple(made for held in sources if (made := image(node.step, held)) is not None)

    def _converted(self, tensor: int, target: LayoutCandidate) -> float:
        node = self.nodes[tensor]
        costs = (relayout_cost(held, target, node.from_host) for held in self.held[tensor])
        return node.times * min(costs)

    def _input(self, index: int, position: int, own: ProducedLayout) -> tuple[float, float]:
        """Return the cost to convert an input, and the cost to read the result."""
        node = self.nodes[index]
        source = node.inputs[position]
        maker = self.produced[source]
        if maker is not None and _made_there(self.graph, self.readers, node, position, maker.candidate, own):
            return 0.0, 0.0
        as_it_is = [(0.0, _read(node, position, held, own, self.nodes[source])) for held in self.held[source]]
        if _is_same(node, position):
            return as_it_is[0]
        converted = [
            (self._converted(source, held), _read(node, position, held, own, self.nodes[source]))
            for held in self.problem.reader_candidates[source]
        ]
        return min(as_it_is + converted, key=sum)
