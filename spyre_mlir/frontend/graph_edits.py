"""Reading and building nodes of a graph of PyTorch operations."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree


def operation_name(node: Node) -> str:
    """The operation of a call without namespace, overload and the mark of those in place; "" for others."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return ""
    return node.target._opname.rstrip("_") if not node.target._opname.startswith("__") else ""


def operands_of(node: Node) -> dict[str, Any]:
    """The operands of a call by their names in the operation's schema."""
    names = (argument.name for argument in cast(torch._ops.OpOverload, node.target)._schema.arguments)
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def call_before(at: Node, target: torch._ops.OpOverload, *args: Any, **named: Any) -> Node:
    """A new operation before ``at``, from its line of the model, with the type of its result."""
    with at.graph.inserting_before(at):
        node = at.graph.call_function(target, args, named)
    node.meta = {key: entry for key, entry in at.meta.items() if key != "tensor_meta"}
    values = map_arg((args, named), lambda source: source.meta["val"])
    leaves = pytree.tree_leaves((values, at.meta["val"]))
    tensor = next(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    with tensor.fake_mode:
        node.meta["val"] = target(*values[0], **values[1])
    return node
