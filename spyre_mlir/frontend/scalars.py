# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tensors without dims as tensors of one dim of size 1, for operations along a dim, which PyTorch takes them for.

Decompositions and torch-mlir know the rank of an operand alone, and find no dim 0 in it.
"""

from __future__ import annotations

import operator

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from spyre_mlir.frontend.graph_edits import call_before, metadata_for, schema_name

aten = torch.ops.aten

#: Names of operands that count dims.
_DIMS = ("dim", "dims")
#: Operations along a dim that their schema does not name so, or that work on all of them.
_ALONG_ALL = {"median", "nanmedian"}


def give_scalars_a_dim(graph: Graph) -> None:
    """Compute operations along a dim of tensors without dims on one of size 1, in place."""
    for node in list(graph.nodes):
        if node.op == "call_function" and _has_dim_argument(node):
            _give_a_dim(node)


def _has_dim_argument(node: Node) -> bool:
    """Return whether all tensors that an operation takes and gives have no dim, and it works along one."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.is_view or target._schema.is_mutable:
        return False
    along = any(argument.name in _DIMS for argument in target._schema.arguments)
    if not node.all_input_nodes or not (along or schema_name(node) in _ALONG_ALL):
        return False
    values = [source.meta.get("val") for source in node.all_input_nodes]
    results = node.meta["val"] if isinstance(node.meta["val"], (tuple, list)) else [node.meta["val"]]
    return all(isinstance(value, Tensor) and value.ndim == 0 for value in (*values, *results))


def _give_a_dim(node: Node) -> None:
    """Replace an operation by the one on tensors of one dim, and its results by their only elements."""
    sources = {
        source: call_before(node, aten.reshape.default, source, [1]) for source in node.all_input_nodes
    }
    args = map_arg(node.args, sources.__getitem__)
    kwargs = map_arg(node.kwargs, sources.__getitem__)
    result = call_before(node, node.target, *args, **kwargs)  # type: ignore[arg-type]
    if isinstance(node.meta["val"], Tensor):
        _replace(node, call_before(node, aten.reshape.default, result, []))
        return
    for user in list(node.users):
        index = user.args[1]
        with node.graph.inserting_before(node):
            part = node.graph.call_function(operator.getitem, (result, index))
        part.meta = metadata_for(user, result.meta["val"][index])
        _replace(user, call_before(node, aten.reshape.default, part, []))
    node.graph.erase_node(node)


def _replace(node: Node, value: Node) -> None:
    """Put a value in the place of a node, with its name, which the signature of a program has."""
    name = node.name
    node.replace_all_uses_with(value)
    node.graph.erase_node(node)
    value._rename(name)
