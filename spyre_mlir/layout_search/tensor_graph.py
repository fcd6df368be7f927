# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The dataflow graph of a program for the layout choice: operations, views, copies, buffers, loops. No IR.

Every node defines one tensor, which is named by the index of the node. Nodes come after their inputs, except for
values that a loop yields to its next iteration. ``times`` is the number of executions of a node (the product of the
trip counts of the loops around it).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import field

from spyre_mlir.layout.rules import Iteration
from spyre_mlir.layout.stick_layout import StickLayout
from spyre_mlir.layout.view_transforms import Slice, ViewTransform
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target

#: For each dim of an operand the iteration dim that indexes this dim; None is the constant 0.
Map = tuple[int | None, ...]


# eq=False: ``signature`` creates one object for equal signatures, so caches can use its identity as the key.
@dataclass(frozen=True, eq=False)
class OpSignature:
    """A device operation without its operands: many operations of a program share one object.

    ``maps`` has one entry per operand, the result last. Created by ``signature``.
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
    """No layouts fit the program; ``node`` is the tensor at which the error is reported."""

    def __init__(self, node: int, reason: str) -> None:
        super().__init__(reason)
        self.node = node


@dataclass
class TensorNode:
    """A tensor. ``pin`` is the layout that the user requests, ``name`` the name of the tensor in messages.

    ``from_host``, set by ``Graph.add``, is true for an argument or constant and for a view of one.
    """

    shape: tuple[int, ...]
    dtype: str
    times: int = 1
    pin: StickLayout | None = None
    name: str = ""
    from_host: bool = field(default=False, init=False)

    @property
    def inputs(self) -> tuple[int, ...]:
        """The tensors that the node reads, by input position."""
        return ()


@dataclass
class ArgumentNode(TensorNode):
    """An argument or constant; a ``free`` one is laid out ahead of time, in several layouts if needed.

    ``layouts`` are all layouts of a ``free`` one if a plan file names them. An argument ``by_price`` has one layout:
    the default, or another at a cost for the host. An ``updated`` one is the buffer into which slices are inserted.
    """

    free: bool = False
    by_price: bool = False
    updated: bool = False
    layouts: tuple[StickLayout, ...] = ()


@dataclass
class Compute(TensorNode):
    """A device operation on ``operands``; ``may_stay``: its result may stay in LX, because only operations read it."""

    signature: OpSignature = field(kw_only=True)
    operands: tuple[int, ...] = field(kw_only=True)
    may_stay: bool = False

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.operands


@dataclass
class ViewNode(TensorNode):
    """A view of ``source``, without data movement."""

    source: int = field(kw_only=True)
    step: ViewTransform = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.source,)


@dataclass
class Copy(TensorNode):
    """A copy into a new buffer; with a pin, an explicit user-defined relayout."""

    source: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.source,)


@dataclass(frozen=True)
class InsertedSlice:
    """A tensor that is inserted into a larger buffer, at slice ``place`` of the buffer.

    ``out_of_place``: its producer cannot write it there, because other operations still read the slice or the tensor.
    ``partial``: the tensor is a buffer that is not completely written yet.
    """

    source: int
    place: Slice
    out_of_place: bool = False
    partial: bool = False


@dataclass
class InsertSliceBuffer(TensorNode):
    """A buffer into which ``parts`` are inserted, in order; a part with no other reader is written in place.

    ``carried``: a loop carries the buffer, so that the best stick dim does not follow from the parts alone.
    """

    parts: tuple[InsertedSlice, ...] = field(kw_only=True)
    carried: bool = False

    @property
    def inputs(self) -> tuple[int, ...]:
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
        return (self.initial, self.yielded)


@dataclass
class LoopResult(TensorNode):
    """The result of a loop: the buffer of its iter_arg ``carried``, read outside the loop."""

    carried: int = field(kw_only=True)

    @property
    def inputs(self) -> tuple[int, ...]:
        return (self.carried,)


class Graph:
    """Nodes in program order, for a target. ``ineligible``: orders of operands, by node, that it must not have."""

    def __init__(self, target: Target, ineligible: Mapping[int, tuple[int, ...]] | None = None) -> None:
        self.target, self.ineligible = target, ineligible or {}
        self.nodes: list[TensorNode] = []

    def add(self, node: TensorNode) -> int:
        """Append a node and return the name of its tensor."""
        node.from_host = isinstance(node, ArgumentNode) or (
            isinstance(node, ViewNode) and self.nodes[node.source].from_host
        )
        self.nodes.append(node)
        return len(self.nodes) - 1

    def readers(self) -> list[list[tuple[int, int]]]:
        """Return for each tensor the (node, input position) pairs that read it, in program order."""
        readers: list[list[tuple[int, int]]] = [[] for _ in self.nodes]
        for index, node in enumerate(self.nodes):
            for position, tensor in enumerate(node.inputs):
                readers[tensor].append((index, position))
        return readers


def whole(shape: Sequence[int]) -> Slice:
    """Return the slice that covers a whole buffer."""
    return Slice((0,) * len(shape), tuple(shape), (1,) * len(shape))


#: A computed tensor that needs at most this part of LX is assumed to stay there, together with other tensors. In a loop
#: more tensors are live together.
_SMALL, _SMALL_IN_LOOP = 1 / 4, 1 / 16


def staying_part(node: TensorNode) -> float:
    """Return the largest part of LX that a tensor may need if it is to stay there; 0 for one in device memory."""
    if node.times > 1 and isinstance(node, Compute | IterArg):
        return _SMALL_IN_LOOP
    return _SMALL if isinstance(node, Compute) and node.may_stay else 0
