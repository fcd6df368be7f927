# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The op layouts that each operation of a graph may have; the stick-sparse ones only where an input can be sparse."""

from __future__ import annotations

from spyre_mlir.layout.rules import why_no_form
from spyre_mlir.layout_search.layout_candidates import candidate_of
from spyre_mlir.layout_search.op_layouts import OpLayout, op_layouts
from spyre_mlir.layout_search.producer_candidates import sized, uncut
from spyre_mlir.layout_search.tensor_graph import (
    ArgumentNode,
    Compute,
    Graph,
    InsertSliceBuffer,
    IterArg,
    LayoutError,
    LoopResult,
    TensorNode,
)
from spyre_mlir.target.target import Target

#: Whether a tensor may be stick-sparse; None for one that is sparse or dense as its readers like.
_Sparsity = bool | None


def op_layouts_of(graph: Graph) -> list[tuple[OpLayout, ...]]:
    """Return the op layouts to try for each node, () for one that is no operation.

    ``LayoutError`` for an operation without a legal one.
    """
    sparsity: list[_Sparsity] = []
    layouts: list[tuple[OpLayout, ...]] = []
    for index, node in enumerate(graph.nodes):
        legal: tuple[OpLayout, ...] = ()
        if isinstance(node, Compute):
            legal = _legal(index, node, [sparsity[tensor] for tensor in node.operands])
        layouts.append(legal)
        sparsity.append(_sparsity(graph.target, node, sparsity, legal))
    return layouts


def _legal(index: int, node: Compute, operands: list[_Sparsity]) -> tuple[OpLayout, ...]:
    layouts = op_layouts(node.signature)
    if not layouts:
        raise LayoutError(index, why_no_form(node.signature.opcode, node.signature.iteration))
    # All operands sparse moves a whole stick per element: nobody would convert dense inputs to that.
    if any(operands) or (None in operands and False not in operands):
        return layouts
    return tuple(layout for layout in layouts if not layout.sparse) or layouts


def _sparsity(
    target: Target, node: TensorNode, sparsity: list[_Sparsity], legal: tuple[OpLayout, ...]
) -> _Sparsity:
    if not sized(node.shape) or isinstance(node, IterArg | LoopResult):
        return None
    if isinstance(node, ArgumentNode):
        return None if node.free else node.pin is None or candidate_of(node.pin).stick_dim is None
    if isinstance(node, Compute):
        return any(layout.stick_dims[-1] is None for layout in legal)
    if isinstance(node, InsertSliceBuffer):
        return not uncut(target, node)
    source = sparsity[node.inputs[0]]
    return source is None or source
