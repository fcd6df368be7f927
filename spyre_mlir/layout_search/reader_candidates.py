# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reader candidates: the layouts that the readers of a tensor may ask for, to which a relayout may convert it."""

from __future__ import annotations

from collections.abc import Sequence

from spyre_mlir.layout.stick_layout import is_convertible, is_restickified
from spyre_mlir.layout_search.layout_candidates import (
    LayoutCandidate,
    candidate_of,
    default_candidates,
    distinct,
    ordered,
    packed,
    packed_like,
)
from spyre_mlir.layout_search.op_layouts import OpLayout
from spyre_mlir.layout_search.producer_candidates import (
    best_order,
    is_batched,
    single_stick_dims,
    sized,
    viewable,
)
from spyre_mlir.layout_search.tensor_graph import (
    ArgumentNode,
    Compute,
    Copy,
    Graph,
    InsertSliceBuffer,
    IterArg,
    TensorNode,
    ViewNode,
)
from spyre_mlir.target.ops import DEVICE_OPS, KINDS, Kind

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
