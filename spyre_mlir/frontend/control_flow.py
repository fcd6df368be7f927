"""Control flow of torch as straight lines: both branches of a condition, every step of a scan.

What runs has no side effects, so a branch that is not taken only costs its time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

aten = torch.ops.aten
higher_order = torch.ops.higher_order


def inline_control_flow(graph_module: GraphModule) -> None:
    """Replace each node that ``is_inlined`` by the operations of its bodies, in place."""
    graph = graph_module.graph
    inlined = [node for node in graph.nodes if is_inlined(node)]
    for node in inlined:
        with graph.inserting_before(node):
            results = _FORMS[node.target](graph_module, node, *node.args)
        for user in list(node.users):
            # A node of control flow is a tuple, so all its users are operator.getitem.
            user.replace_all_uses_with(results[user.args[1]], propagate_meta=False)
            graph.erase_node(user)
        graph.erase_node(node)
    if not inlined:
        return
    graph.eliminate_dead_code()
    graph_module.delete_all_unused_submodules()


def is_inlined(node: Node) -> bool:
    """Return whether a node is control flow that becomes straight-line code."""
    return node.target in _FORMS


def _condition(
    graph_module: GraphModule,
    node: Node,
    condition: Any,
    then: Node,
    otherwise: Node,
    operands: Sequence[Node],
) -> list[Node]:
    """``where(condition, a, b)`` for each result a of one branch and b of the other, both of which are computed."""
    branches = [inlined_body(graph_module, body, operands) for body in (then, otherwise)]
    # A condition that torch knows while it traces leaves one branch.
    if not isinstance(condition, Node):
        return branches[0 if condition else 1]
    return [_add(node, aten.where.self, condition, one, other) for one, other in zip(*branches, strict=True)]


def _scan(
    graph_module: GraphModule,
    node: Node,
    body: Node,
    carried: Sequence[Node],
    scanned: Sequence[Node],
    others: Sequence[Node],
) -> list[Node]:
    """Final carried values and stacked rows of results of a body that runs once for each row of ``scanned``."""
    rows: list[list[Node]] = []
    for row_index in range(scanned[0].meta["val"].shape[0]):
        step = [_add(node, aten.select.int, tensor, 0, row_index) for tensor in scanned]
        results = inlined_body(graph_module, body, [*carried, *step, *others])
        carried, row = results[: len(carried)], results[len(carried) :]
        rows.append([_add(node, aten.unsqueeze.default, tensor, 0) for tensor in row])
    return [*carried, *(_add(node, aten.cat.default, list(parts), 0) for parts in zip(*rows, strict=True))]


_FORMS: dict[Any, Callable[..., list[Node]]] = {
    higher_order.cond: _condition,
    higher_order.scan: _scan,
}


def inlined_body(graph_module: GraphModule, body: Node, operands: Iterable[Node]) -> list[Node]:
    """Copy the operations of a body to the insertion point, and return its results."""
    inner = getattr(graph_module, str(body.target))
    # Innermost first: the copies are then of plain operations.
    inline_control_flow(inner)
    remaining = iter(operands)
    copies: dict[Node, Any] = {}
    for node in inner.graph.nodes:
        if node.op == "placeholder":
            copies[node] = next(remaining)
        elif node.op == "output":
            return list(map_arg(node.args[0], copies.__getitem__))
        else:
            copies[node] = graph_module.graph.node_copy(node, copies.__getitem__)
    raise AssertionError("A graph ends with its output.")


def _add(like: Node, operation: torch._ops.OpOverload, *args: Any) -> Node:
    """New operation with the metadata of ``like``, its location in the source among them."""
    values: Sequence[Any] = pytree.tree_map_only(Node, lambda node: node.meta["val"], args)
    added = like.graph.call_function(operation, args)
    added.meta = {**like.meta, "val": operation(*values)}
    return added
