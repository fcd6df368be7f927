"""Arithmetic on 8-bit integers in 32 bits: torch-mlir ends the process on some of it (a byte times a number)."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

_NARROW = (torch.int8, torch.uint8)
_CAST = torch.ops.prims.convert_element_type.default


def widen_narrow_integers(graph: Graph) -> None:
    """Compute pointwise operations with a result of 8 bits in int32, which is cut down to 8 bits afterwards.

    The last 8 bits of sums, differences and products are the same; quotients and comparisons of 8-bit numbers do not
    overflow.
    """
    for node in list(graph.nodes):
        if _is_narrow(node):
            _widen(graph, node)


def _is_narrow(node: Node) -> bool:
    if (
        node.op != "call_function"
        or node.target is _CAST
        or not isinstance(node.target, torch._ops.OpOverload)
    ):
        return False
    result = node.meta.get("val")
    is_narrow = isinstance(result, torch.Tensor) and result.dtype in _NARROW
    return is_narrow and torch.Tag.pointwise in node.target.tags and "dtype" not in node.kwargs


def _widen(graph: Graph, node: Node) -> None:
    narrow = node.meta["val"].dtype
    with graph.inserting_before(node):
        wide = {
            source: _cast(graph, source, torch.int32) for source in node.all_input_nodes if _is_8_bit(source)
        }
    node.args = torch.fx.node.map_arg(node.args, lambda source: wide.get(source, source))
    node.meta = _meta(node, torch.int32)
    with graph.inserting_after(node):
        back = _cast(graph, node, narrow)
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)


def _is_8_bit(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in _NARROW


def _cast(graph: Graph, node: Node, dtype: torch.dtype) -> Node:
    made = graph.call_function(_CAST, (node, dtype))
    made.meta = _meta(node, dtype)
    return made


def _meta(node: Node, dtype: torch.dtype) -> dict[str, Any]:
    """What is known of a node, for a result of another type."""
    kept = {key: value for key, value in node.meta.items() if key != "tensor_meta"}
    return {**kept, "val": node.meta["val"].to(dtype)}
