"""Random graphs for the layout choice, and two other ways to choose: by exhaustion, and edge by edge."""

from __future__ import annotations

import itertools
import math
import random

from spyre_mlir.layout.candidates import Candidate, candidate_of, conversion_price, image, plain_candidates
from spyre_mlir.layout.choice import Problem
from spyre_mlir.layout.graph import Assembled, Compute, Copy, Given, Graph, Part, View, signature
from spyre_mlir.layout.operations import transfer_cost
from spyre_mlir.layout.steps import Collapse, Expand, Slice, Transpose
from spyre_mlir.layout.stick_layout import StickLayout

SIZES = (64, 96, 128, 192)


class RandomGraph:
    """A graph of at most ``operations`` device operations, and views between them, over one dtype."""

    def __init__(self, rng: random.Random, operations: int) -> None:
        self.rng = rng
        self.graph = Graph()
        self.tensors: list[int] = []
        sizes = rng.sample(SIZES, 2)
        for _ in range(rng.randint(1, 3)):
            shape = tuple(rng.choice(sizes) for _ in range(rng.choice((1, 2, 2, 2, 3))))
            self._given(shape)
        made = 0
        while made < operations:
            made += self._grow()

    def _given(self, shape: tuple[int, ...]) -> int:
        free = self.rng.random() < 0.3
        pin = None
        if not free and self.rng.random() < 0.3:
            pin = StickLayout.for_tensor(shape, "f16", self.rng.sample(range(len(shape)), len(shape)))
        return self._kept(self.graph.add(Given(shape, "f16", free=free, pin=pin)))

    def _kept(self, tensor: int) -> int:
        self.tensors.append(tensor)
        return tensor

    def _shape(self, tensor: int) -> tuple[int, ...]:
        return self.graph.nodes[tensor].shape

    def _grow(self) -> int:
        source = self.rng.choice([tensor for tensor in self.tensors if self._shape(tensor)])
        kind = self.rng.choice(
            (
                "pointwise",
                "pointwise",
                "matmul",
                "matmul",
                "reduce",
                "transpose",
                "slice",
                "collapse",
                "expand",
                "copy",
                "join",
            )
        )
        return getattr(self, "_" + kind)(source)

    def _compute(self, opcode, operands, maps, shape, reduced=()) -> int:
        shapes = (*map(self._shape, operands), shape)
        made = signature(opcode, maps, shapes, ("f16",) * len(shapes), reduced)
        times = self.rng.choice((1, 1, 1, 3))
        self._kept(self.graph.add(Compute(shape, "f16", times, signature=made, operands=tuple(operands))))
        return 1

    def _pointwise(self, source: int) -> int:
        shape = self._shape(source)
        own = tuple(range(len(shape)))
        same = [t for t in self.tensors if self._shape(t) == shape]
        rows = [(t, dim) for t in self.tensors for dim in own if self._shape(t) == (shape[dim],)]
        if rows and len(shape) > 1 and self.rng.random() < 0.5:
            other, dim = self.rng.choice(rows)
            return self._compute("add", (source, other), (own, (dim,), own), shape)
        return self._compute("add", (source, self.rng.choice(same)), (own, own, own), shape)

    def _matmul(self, source: int) -> int:
        shape = self._shape(source)
        if len(shape) < 2:
            return 0
        batch = tuple(range(len(shape) - 2))
        row, inner, column = len(batch), len(batch) + 1, len(batch) + 2
        partners = [t for t in self.tensors if self._shape(t)[:-1] == (*shape[:-2], shape[-1])]
        if not partners:
            other = self._given((*shape[:-2], shape[-1], self.rng.choice(SIZES)))
        else:
            other = self.rng.choice(partners)
        maps = ((*batch, row, inner), (*batch, inner, column), (*batch, row, column))
        result = (*shape[:-1], self._shape(other)[-1])
        return self._compute("batchmatmul", (source, other), maps, result, (inner,))

    def _reduce(self, source: int) -> int:
        shape = self._shape(source)
        dim = self.rng.randrange(len(shape))
        kept = tuple(at for at in range(len(shape)) if at != dim)
        result = tuple(shape[at] for at in kept)
        return self._compute("sum", (source,), (tuple(range(len(shape))), kept), result, (dim,))

    def _view(self, source: int, shape: tuple[int, ...], step) -> int:
        self._kept(self.graph.add(View(shape, "f16", source=source, step=step)))
        return 0

    def _transpose(self, source: int) -> int:
        shape = self._shape(source)
        order = tuple(self.rng.sample(range(len(shape)), len(shape)))
        return self._view(source, tuple(shape[at] for at in order), Transpose(order))

    def _slice(self, source: int) -> int:
        shape = self._shape(source)
        dim = self.rng.randrange(len(shape))
        size = self.rng.choice([s for s in (32, 64) if s < shape[dim]] or [shape[dim]])
        offset = self.rng.choice((0, shape[dim] - size))
        place = _place(shape, dim, offset, size)
        return self._view(source, place.sizes, place)

    def _collapse(self, source: int) -> int:
        shape = self._shape(source)
        if len(shape) != 3:
            return 0
        groups = self.rng.choice((((0, 1), (2,)), ((0,), (1, 2))))
        return self._view(source, tuple(math.prod(shape[d] for d in g) for g in groups), Collapse(groups))

    def _expand(self, source: int) -> int:
        shape = self._shape(source)
        if len(shape) != 2:
            return 0
        dim = self.rng.randrange(2)
        inner = self.rng.choice((32, 64))
        if shape[dim] % inner or shape[dim] == inner:
            return 0
        groups = ((0, 1), (2,)) if dim == 0 else ((0,), (1, 2))
        parts = [shape[dim] // inner, inner]
        whole = (*parts, shape[1]) if dim == 0 else (shape[0], *parts)
        return self._view(source, tuple(whole), Expand(groups, tuple(whole)))

    def _copy(self, source: int) -> int:
        shape = self._shape(source)
        pin = None
        if self.rng.random() < 0.5:
            pin = StickLayout.for_tensor(shape, "f16", self.rng.sample(range(len(shape)), len(shape)))
        self._kept(self.graph.add(Copy(shape, "f16", pin=pin, source=source)))
        return 1

    def _join(self, source: int) -> int:
        shape = self._shape(source)
        dim = self.rng.randrange(len(shape))
        others = [t for t in self.tensors if self._shape(t) == shape]
        whole = tuple(2 * size if at == dim else size for at, size in enumerate(shape))
        parts = tuple(
            Part(tensor, _place(whole, dim, offset, shape[dim]))
            for tensor, offset in ((source, 0), (self.rng.choice(others), shape[dim]))
        )
        self._kept(self.graph.add(Assembled(whole, "f16", parts=parts)))
        return 1


def _place(shape, dim, offset, size) -> Slice:
    sizes = tuple(size if at == dim else extent for at, extent in enumerate(shape))
    return Slice(tuple(offset if at == dim else 0 for at in range(len(shape))), sizes, (1,) * len(shape))


class Exhaustive:
    """All plans of a graph one after the other, in program order; a plan is dropped once it costs too much.

    It shares the candidates and the prices with ``choice.py``, but neither states, tables nor elimination.
    """

    def __init__(self, graph: Graph) -> None:
        self.problem = Problem(graph, stick_outermost=False)
        self.nodes = graph.nodes
        self.readers = graph.readers()
        self.best = math.inf
        self.at_least = [0.0] * (len(self.nodes) + 1)
        for index in reversed(range(len(self.nodes))):
            least = min((self._made(index, own) for own in self._owns(index)), default=0)
            self.at_least[index] = self.at_least[index + 1] + least

    def cost(self) -> float:
        """Effective bytes of the best plan."""
        self._next(0, 0.0, [], [])
        return self.best

    def _owns(self, index: int):
        return () if isinstance(self.nodes[index], View) else self.problem.domains[index].owns

    def _made(self, index: int, own) -> float:
        return 0 if own.way is None else self.nodes[index].times * transfer_cost(own.way, -1, own.held)

    def _next(self, index: int, cost: float, held: list[tuple[Candidate, ...]], owned: list) -> None:
        if cost + self.at_least[index] >= self.best:
            return
        if index == len(self.nodes):
            self.best = cost
            self.where = [(o, h) for o, h in zip(owned, held, strict=True)]
            return
        for own, base, price in self._bases(index, held, owned):
            for extra in self._extras(index, base):
                times = self.nodes[index].times
                made = sum(times * min(conversion_price(b, target) for b in base) for target in extra)
                held.append(base + extra)
                owned.append(own)
                self._next(index + 1, cost + price + made, held, owned)
                held.pop()
                owned.pop()

    def _bases(self, index: int, held, owned):
        """(own, layouts without conversion, cost so far) of one node for what its inputs hold."""
        node = self.nodes[index]
        if isinstance(node, View):
            images = tuple(
                dict.fromkeys(i for h in held[node.source] if (i := image(node.step, h)) is not None)
            )
            return [(None, images, 0.0)] if images else []
        if isinstance(node, Given) and node.free:
            layouts = [own.held for own in self._owns(index)]
            most = min(len(layouts), 4)
            chosen = [c for n in range(1, most + 1) for c in itertools.combinations(layouts, n)]
            return [(None, c, round(sum(x.bytes for x in c) / 1024)) for c in chosen if _one_per_stick(c)]
        found = []
        for own in self._owns(index):
            reads = [self._read(index, at, own, held, owned) for at in range(len(node.inputs))]
            found.append((own, (own.held,), node.times * sum(reads) + self._made(index, own)))
        return found

    def _read(self, index: int, position: int, own, held, owned) -> float:
        node = self.nodes[index]
        there = held[node.inputs[position]]
        if isinstance(node, Compute):
            prices = [transfer_cost(own.way, position, layout) for layout in there]
            return min((price for price in prices if price is not None), default=math.inf)
        if isinstance(node, Copy):
            return min(conversion_price(layout, own.held) for layout in there)
        part = node.parts[position]
        target = image(part.place, own.held)
        maker = self.nodes[part.source]
        alone = isinstance(maker, Compute | Copy) and len(self.readers[part.source]) == 1
        if alone and owned[part.source].held.lane == target.lane:
            return 0
        return min((1 if h.lane == target.lane else 2) * conversion_price(h, target) for h in there)

    def _extras(self, index: int, base):
        node = self.nodes[index]
        if isinstance(node, Given) and node.free:
            return [()]
        wanted = [w for w in self.problem.wanted[index] if w not in base]
        most = len(wanted) if self.readers[index] else 0
        return [c for n in range(most + 1) for c in itertools.combinations(wanted, n)]


def _one_per_stick(chosen) -> bool:
    return len({held.lane for held in chosen}) == len(chosen)
