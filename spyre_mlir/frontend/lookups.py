"""Folding of embedding lookups whose index is one known number: in BERT, the kind of each token is 0."""

from __future__ import annotations

from typing import cast

import torch
from torch.fx import Graph, Node

from spyre_mlir.frontend.graph_edits import call_before

aten = torch.ops.aten


def fold_uniform_lookups(graph: Graph) -> None:
    """Rewrite embedding(table, full(shape, row)) as expand(slice(table, row), shape): a view instead of a gather.

    Runs after constant folding, which writes a tensor of equal elements as ``aten.full``.
    """
    for node in graph.find_nodes(op="call_function", target=aten.embedding.default):
        table, index = node.args[:2]
        if isinstance(index, Node) and index.target is aten.full.default:
            row = cast(int, index.args[1])
            part = call_before(node, aten.slice.Tensor, table, 0, row, row + 1)
            shape = list(node.meta["val"].shape)
            # A dim of size 1 for each dim of the index, along which expand repeats the row.
            part = call_before(node, aten.view.default, part, [1] * (len(shape) - 1) + shape[-1:])
            node.replace_all_uses_with(call_before(node, aten.expand.default, part, shape))
            graph.erase_node(node)
