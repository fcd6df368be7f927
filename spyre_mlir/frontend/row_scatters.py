# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Scatters of whole rows, each at one position of an index that is repeated for all its elements, as ``index_copy``."""

from __future__ import annotations

from typing import cast

import torch
from torch.fx import Graph, Node

from spyre_mlir.frontend.graph_edits import call_before, operands_of

aten = torch.ops.aten

_COPIES = {
    aten.scatter.src: aten.index_copy.default,
    aten.scatter_.src: aten.index_copy_.default,
}


def copy_scattered_rows(graph: Graph) -> None:
    """Rewrite scatter(x, dim, expand(index), rows) as index_copy(x, dim, index, rows), with one index per row.

    Before decomposition, which compares the elements of an index.
    """
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _COPIES:
            continue
        operands = operands_of(node)
        index = _index_of_rows(operands["self"], operands["dim"], operands["index"], operands["src"])
        if index is None:
            continue
        flat = call_before(node, aten.reshape.default, index, [-1])
        node.target = _COPIES[node.target]
        node.args = (operands["self"], operands["dim"], flat, operands["src"])
        node.kwargs = {}


def _index_of_rows(x: Node, dim: int, index: Node, rows: Node) -> Node | None:
    """Return what an index repeats for all elements of each row; None for another index."""
    if index.op != "call_function" or index.target not in (aten.expand.default, aten.expand_as.default):
        return None
    source = cast(Node, index.args[0])
    shapes = [list(node.meta["val"].shape) for node in (x, index, rows, source)]
    shape, repeated, values, single = shapes
    if not shape or values != repeated or len(repeated) != len(shape):
        return None
    dim %= len(shape)
    single = [1] * (len(shape) - len(single)) + single
    is_whole = all(size == shape[d] for d, size in enumerate(repeated) if d != dim)
    is_single = all(size == 1 for d, size in enumerate(single) if d != dim) and single[dim] == repeated[dim]
    return source if is_whole and is_single else None
