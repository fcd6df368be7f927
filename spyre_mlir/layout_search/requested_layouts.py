# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Requested layouts: what matmuls ask of the tensors that reach them through views and pointwise operations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spyre_mlir.layout.view_transforms import ViewTransform
from spyre_mlir.layout_search.layout_candidates import (
    LayoutCandidate,
    default_candidates,
    distinct,
    image,
    ordered,
)
from spyre_mlir.layout_search.op_layouts import OpLayout
from spyre_mlir.layout_search.producer_candidates import single_stick_dims
from spyre_mlir.layout_search.tensor_graph import Compute, Graph, TensorNode, ViewNode
from spyre_mlir.target.ops import KINDS, Kind

#: Requests of one tensor that are tried, those of its first readers.
_MAX_REQUESTS = 3


def requested_layouts(
    graph: Graph, op_layouts: Sequence[tuple[OpLayout, ...]], stick_outermost: bool
) -> list[tuple[LayoutCandidate, ...]]:
    """Return for each tensor the layouts with which a matmul behind it needs no copy; () for most tensors.

    Batch dims are one in the matmul, and so may be dims that a view merges into a contracted one: they have to be
    neighbours in memory, which no order that follows the dims of the tensor alone may give.
    """
    requests: list[tuple[LayoutCandidate, ...]] = [()] * len(graph.nodes)
    readers = graph.readers()

    def of_reader(node: TensorNode, reader: int, position: int) -> Iterator[LayoutCandidate | None]:
        """Yield the requests of one reader, as layouts of what it reads."""
        other = graph.nodes[reader]
        if isinstance(other, ViewNode):
            for request in requests[reader]:
                yield _before_view(other.step, node, request)
        elif isinstance(other, Compute) and KINDS[other.signature.opcode] is Kind.MATMUL:
            for stick in single_stick_dims(op_layouts[reader], position):
                if stick is not None:
                    target = other.signature.iteration.target
                    yield default_candidates(target, node.shape, node.dtype, stick, stick_outermost)[-1]
        elif isinstance(other, Compute) and KINDS[other.signature.opcode] is Kind.POINTWISE:
            for request in requests[reader]:
                yield _of_operand(other, position, node, request)

    # From the last to the first, so that a request is known before the tensors in front of it are seen.
    for index in reversed(range(len(graph.nodes))):
        node = graph.nodes[index]
        candidates = (
            candidate
            for reader, position in readers[index]
            for candidate in of_reader(node, reader, position)
            if candidate is not None
        )
        requests[index] = distinct(candidates)[:_MAX_REQUESTS]
    return requests


def _before_view(step: ViewTransform, node: TensorNode, request: LayoutCandidate) -> LayoutCandidate | None:
    """Return the layout of the source of a view that gives the view a layout; None if there is none."""
    inverse = step.inverse(node.shape)
    source = None if inverse is None else image(inverse, request)
    if source is None or not source.addressable or source.sticks or source.stick_dim is None:
        return None
    return ordered(request.view.target, node.shape, node.dtype, source.stick_dim, source.order)


def _of_operand(
    operation: Compute, position: int, node: TensorNode, request: LayoutCandidate
) -> LayoutCandidate | None:
    """Return the layout of an operand in the order of the result; None if it does not have all dims of that."""
    dims, result = operation.signature.maps[position], operation.signature.maps[-1]
    if request.stick_dim is None or len(dims) != len(result) or set(dims) != set(result):
        return None
    axis = {dim: number for number, dim in enumerate(dims)}
    order = tuple(axis[result[dim]] for dim in request.order)
    return ordered(request.view.target, node.shape, node.dtype, axis[result[request.stick_dim]], order)
