"""A program as the layout choice sees it: tensors, the operations that make them, views, copies. No IR.

Every node makes one tensor; a tensor is named by the index of its node. Nodes come after those they read, but
for what a loop carries from one iteration to the next. ``times`` is how often a node runs (the trip counts of
the loops around it).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from spyre_mlir.layout.rules import Iteration
from spyre_mlir.layout.steps import Slice, Step
from spyre_mlir.layout.stick_layout import StickLayout

#: For each dim of an operand the iteration dim that indexes it; None is the constant 0.
Map = tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Signature:
    """A device operation without its operands: many operations of a program share one object.

    ``maps`` has one entry per operand, the result last. Made by ``signature``.
    """

    opcode: str
    iteration: Iteration
    maps: tuple[Map, ...]


@functools.lru_cache(maxsize=1 << 12)
def signature(
    opcode: str,
    maps: tuple[Map, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, ...],
    reduced: tuple[int, ...] = (),
) -> Signature:
    """The signature of an operation over operands of ``shapes`` and ``dtypes``, the result last."""
    rank = 1 + max((dim for dims in maps for dim in dims if dim is not None), default=-1)
    sizes = [1] * rank
    for dims, shape in zip(maps, shapes, strict=True):
        for dim, size in zip(dims, shape, strict=True):
            if dim is not None:
                sizes[dim] = size
    present = tuple(frozenset(dim for dim in dims if dim is not None) for dims in maps)
    return Signature(opcode, Iteration(tuple(sizes), present, frozenset(reduced), dtypes), maps)


@dataclass
class Node:
    """A tensor. ``pin`` is the layout that the user asks for, ``name`` what messages call it.

    ``from_host``, which ``Graph.add`` sets, says that it is an argument or constant, or a view of one.
    """

    shape: tuple[int, ...]
    dtype: str
    times: int = 1
    pin: StickLayout | None = None
    name: str = ""
    from_host: bool = field(default=False, init=False)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tensors that it reads."""
        return ()


@dataclass
class Given(Node):
    """An argument or constant; one that is ``free`` is laid out ahead of time, in several layouts if need be.

    ``layouts`` are all of those layouts, where a plan says so.
    """

    free: bool = False
    layouts: tuple[StickLayout, ...] = ()


@dataclass
class Compute(Node):
    """A device operation on ``operands``."""

    signature: Signature = field(kw_only=True)
    operands: tuple[int, ...] = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.operands


@dataclass
class View(Node):
    """A view of ``source``: moves nothing."""

    source: int = field(kw_only=True)
    step: Step = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.source,)


@dataclass
class Copy(Node):
    """A copy into a buffer of its own; with a pin, the programmer's explicit conversion."""

    source: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.source,)


@dataclass(frozen=True)
class Part:
    """A tensor that is put into a larger buffer, where ``place`` is a slice of that.

    ``apart``: it cannot be made in its place, for the place or the tensor is still read by others then. ``partial``: it
    is a buffer that is not written all over yet.
    """

    source: int
    place: Slice
    apart: bool = False
    partial: bool = False


@dataclass
class Assembled(Node):
    """A buffer that ``parts`` are put into, in order. What is made for one place only is made in place.

    ``carried``: a loop carries or goes on with it, so that it is not known from its parts which stick is best.
    """

    parts: tuple[Part, ...] = field(kw_only=True)
    carried: bool = False

    @property
    def inputs(self) -> tuple[int, ...]:
        return tuple(part.source for part in self.parts)


@dataclass
class Carried(Node):
    """A value in a loop that carries it: ``initial`` before the loop, ``following`` after each iteration.

    ``initial`` is an ``Assembled`` buffer. All three have one layout: they are one buffer.
    """

    initial: int = field(kw_only=True)
    following: int = field(kw_only=True, default=-1)

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.initial, self.following)


@dataclass
class Result(Node):
    """What a loop leaves of a ``carried`` value: the same buffer, read outside of the loop."""

    carried: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.carried,)


class Graph:
    """Nodes in program order."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, node: Node) -> int:
        """Appends a node and gives the name of its tensor."""
        node.from_host = isinstance(node, Given) or (
            isinstance(node, View) and self.nodes[node.source].from_host
        )
        self.nodes.append(node)
        return len(self.nodes) - 1

    def readers(self) -> list[list[tuple[int, int]]]:
        """For each tensor the (node, input position) that read it, in program order."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for position, tensor in enumerate(node.inputs):
                found[tensor].append((index, position))
        return found


def whole(shape: Sequence[int]) -> Slice:
    """The slice that is all of a buffer."""
    return Slice((0,) * len(shape), tuple(shape), (1,) * len(shape))
