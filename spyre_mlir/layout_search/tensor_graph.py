# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dataflow graph of a program for the layout choice: operations, views, copies, buffers, loops. No IR.

Every node makes one tensor; a tensor is named by the index of its node. Nodes come after their inputs, but for the
values that a loop yields to its next iteration. ``times`` is how often a node runs (the trip counts of the loops
around it).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import field

from spyre_mlir.layout.rules import Iteration
from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.layout.view_transforms import Slice, ViewTransform
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target

#: For each dim of an operand the iteration dim that indexes it; None is the constant 0.
Map = tuple[int | None, ...]


# eq=False: ``signature`` makes one object for equal ones, and the caches keyed by it hash an identity.
@dataclass(frozen=True, eq=False)
class OpSignature:
    """A device operation without its operands: many operations of a program share one object.

    ``maps`` has one entry per operand, the result last. Made by ``signature``.
    """

    opcode: str
    iteration: Iteration
    maps: tuple[Map, ...]


@functools.lru_cache(maxsize=1 << 12)
def signature(
    target: Target,
    opcode: str,
    maps: tuple[Map, ...],
    shapes: tuple[tuple[int, ...], ...],
    dtypes: tuple[str, ...],
    reduced: tuple[int, ...] = (),
    windows: frozenset[int] = frozenset(),
) -> OpSignature:
    """Return the signature of an operation over operands of ``shapes`` and ``dtypes``, the result last."""
    rank = 1 + max((dim for dims in maps for dim in dims if dim is not None), default=-1)
    sizes = [1] * rank
    for dims, shape in zip(maps, shapes, strict=True):
        for dim, size in zip(dims, shape, strict=True):
            if dim is not None:
                sizes[dim] = size
    present = tuple(frozenset(dim for dim in dims if dim is not None) for dims in maps)
    iteration = Iteration(target, tuple(sizes), present, frozenset(reduced), dtypes, windows)
    return OpSignature(opcode, iteration, maps)


class LayoutError(ValueError):
    """A program that no layouts fit; ``node`` is the tensor that shows it."""

    def __init__(self, node: int, reason: str) -> None:
        super().__init__(reason)
        self.node = node


@dataclass
class TensorNode:
    """A tensor. ``pin`` is the layout that the user asks for, ``name`` the tensor's name in messages.

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
        """The tensors that the node reads, by position."""
        return ()


@dataclass
class ArgumentNode(TensorNode):
    """An argument or constant; one that is ``free`` is laid out ahead of time, in several layouts if need be.

    ``layouts`` are all of those layouts, where a plan file says so. One ``by_price`` has one layout, the default or
    another for which the host charges. Slices are inserted into one that is ``updated`` in its own buffer.
    """

    free: bool = False
    by_price: bool = False
    updated: bool = False
    layouts: tuple[StickLayout, ...] = ()


@dataclass
class Compute(TensorNode):
    """A device operation on ``operands``."""

    signature: OpSignature = field(kw_only=True)
    operands: tuple[int, ...] = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The operands."""
        return self.operands


@dataclass
class ViewNode(TensorNode):
    """A view of ``source``: moves nothing."""

    source: int = field(kw_only=True)
    step: ViewTransform = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The source."""
        return (self.source,)


@dataclass
class Copy(TensorNode):
    """A copy into a new buffer; with a pin, the programmer's explicit relayout."""

    source: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The source."""
        return (self.source,)


@dataclass(frozen=True)
class InsertedSlice:
    """A tensor that is inserted into a larger buffer, at the slice ``place`` of it.

    ``out_of_place``: its producer cannot write it there, for others still read that slice, or the tensor, by then.
    ``partial``: the tensor is a buffer that is not written all over yet.
    """

    source: int
    place: Slice
    out_of_place: bool = False
    partial: bool = False


@dataclass
class InsertSliceBuffer(TensorNode):
    """A buffer into which ``parts`` are inserted, in order; a part with no other reader is written in place.

    ``carried``: a loop carries the buffer on, so that its parts alone do not tell which stick is best.
    """

    parts: tuple[InsertedSlice, ...] = field(kw_only=True)
    carried: bool = False

    @property
    def inputs(self) -> tuple[int, ...]:
        """The inserted tensors."""
        return tuple(part.source for part in self.parts)


@dataclass
class IterArg(TensorNode):
    """An iter_arg of a loop: ``initial`` before the loop, ``yielded`` after each iteration.

    ``initial`` is an ``InsertSliceBuffer``. All three have one layout: they are one buffer.
    """

    initial: int = field(kw_only=True)
    yielded: int = field(kw_only=True, default=-1)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The initial and the yielded value."""
        return (self.initial, self.yielded)


@dataclass
class LoopResult(TensorNode):
    """The result of a loop: the buffer of its iter_arg ``carried``, read outside of the loop."""

    carried: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The iter_arg."""
        return (self.carried,)


class Graph:
    """Nodes in program order, for a target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.nodes: list[TensorNode] = []

    def add(self, node: TensorNode) -> int:
        """Append a node and return the name of its tensor."""
        node.from_host = isinstance(node, ArgumentNode) or (
            isinstance(node, ViewNode) and self.nodes[node.source].from_host
        )
        self.nodes.append(node)
        return len(self.nodes) - 1

    def readers(self) -> list[list[tuple[int, int]]]:
        """Return for each tensor the (node, input position) that read it, in program order."""
        readers: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for position, tensor in enumerate(node.inputs):
                readers[tensor].append((index, position))
        return readers


def whole(shape: Sequence[int]) -> Slice:
    """Return the slice that is all of a buffer."""
    return Slice((0,) * len(shape), tuple(shape), (1,) * len(shape))


def in_loop(node: TensorNode) -> bool:
    """Return whether a loop makes a tensor anew in each iteration, or carries it from one to the next."""
    return node.times > 1 and isinstance(node, Compute | IterArg)
