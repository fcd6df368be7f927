# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nodes of an FX graph that are views of other nodes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch.fx import Node

from spyre_mlir.frontend.signature import ViewCall

aten = torch.ops.aten


def _is_view(node: Node) -> bool:
    """Return whether a node views its operand; ``as_strided`` views memory, which differs here."""
    if node.target is operator.getitem:
        return _is_view(node.all_input_nodes[0])
    return (
        isinstance(node.target, torch._ops.OpOverload)
        and node.target.is_view
        and node.target is not aten.as_strided.default
    )


def _replayable(target: Callable[..., Any]) -> Callable[..., Any]:
    """Function that returns the view in a call: if the strides differ from the example's, the view may be a copy."""
    return torch.reshape if target is aten.view.default else target


def view_origin(node: Node) -> tuple[Node, tuple[ViewCall, ...]]:
    """Tensor that a node is a view of, or the node itself, and the view transforms from that tensor to the node."""
    steps: list[ViewCall] = []
    while _is_view(node):
        source, *args = node.args
        if not isinstance(source, Node):
            break
        steps.append(
            ViewCall(_replayable(cast(Callable[..., Any], node.target)), tuple(args), dict(node.kwargs))
        )
        node = source
    return node, tuple(reversed(steps))
