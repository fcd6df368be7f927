"""Building nodes of a graph of PyTorch operations."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree


def call_before(at: Node, target: torch._ops.OpOverload, *args: Any, **named: Any) -> Node:
    """A new operation before ``at``, from its line of the model, with the type of its result."""
    with at.graph.inserting_before(at):
        node = at.graph.call_function(target, args, named)
    node.meta = {key: entry for key, entry in at.meta.items() if key != "tensor_meta"}
    values = map_arg((args, named), lambda source: source.meta["val"])
    tensor = next(each for each in pytree.tree_leaves(values) if isinstance(each, torch.Tensor))
    with tensor.fake_mode:
        node.meta["val"] = target(*values[0], **values[1])
    return node
