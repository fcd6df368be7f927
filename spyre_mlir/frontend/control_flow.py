# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Control flow of torch without subgraphs: both branches of a condition, one iteration of a loop between its marks.

What runs has no side effects, so a branch that is not taken only costs its time; its assertions hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from spyre_mlir.errors import UncapturedError
from spyre_mlir.frontend.assertions import CHECK, guard
from spyre_mlir.frontend.loop_marks import BEGIN, END
from spyre_mlir.frontend.random_numbers import is_random
from spyre_mlir.frontend.refusals import refusal_at
from spyre_mlir.frontend.trip_counts import Number, counters

aten = torch.ops.aten
higher_order = torch.ops.higher_order

#: Data of a placeholder that is a constant, among its metadata.
CONSTANT_DATA = "spyre.constant"


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
    # A condition that torch knows while it traces leaves one branch.
    if not isinstance(condition, Node):
        return inlined_body(graph_module, then if condition else otherwise, operands)
    branches = [
        inlined_body(
            graph_module, body, operands, lambda check, is_taken=is_taken: guard(check, condition, is_taken)
        )
        for body, is_taken in ((then, True), (otherwise, False))
    ]
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
    if _is_written_out(graph_module, body):
        return _unrolled_scan(graph_module, node, body, carried, scanned, others)
    trips = scanned[0].meta["val"].shape[0]

    def iteration(carried: Sequence[Node], rows: Sequence[Node]) -> list[Node]:
        """Results of the body for one row."""
        return inlined_body(graph_module, body, [*carried, *rows, *others])

    return _loop(node, iteration, carried, scanned, trips)


def _map(
    graph_module: GraphModule, node: Node, body: Node, mapped: Sequence[Node], others: Sequence[Node]
) -> list[Node]:
    """Stacked rows of results of a body that runs once for each row of ``mapped``: a scan that carries nothing."""
    return _scan(graph_module, node, body, [], mapped, others)


def _while_loop(
    graph_module: GraphModule,
    node: Node,
    condition: Node,
    body: Node,
    carried: Sequence[Any],
    others: Sequence[Any],
) -> list[Node]:
    """Final carried values of a loop whose counters are known: their values are rows that it scans."""
    test, step = (getattr(graph_module, str(graph.target)) for graph in (condition, body))
    counted = counters(test, step, carried, others, _known(graph_module))
    if counted is None or _is_written_out(graph_module, body):
        raise refusal_at(
            node,
            "How often this loop runs depends on data, or its body draws random numbers or asserts; count in a tensor "
            "that begins as a constant to make it one loop on the device.",
            UncapturedError,
        )
    if not counted.trips:
        return list(carried)
    types = {index: _dtype(operand) for index, operand in enumerate(carried)}
    rows = [_constant_rows(node, values[:-1], types[index]) for index, values in counted.values.items()]

    def iteration(rest: Sequence[Node], rows: Sequence[Node]) -> list[Node]:
        """Next values of what is carried beside the counters."""
        known = dict(zip(counted.values, rows, strict=True))
        remaining = iter(rest)
        operands = [known[index] if index in known else next(remaining) for index in range(len(carried))]
        results = inlined_body(graph_module, body, [*operands, *others])
        return [result for index, result in enumerate(results) if index not in known]

    rest = [operand for index, operand in enumerate(carried) if index not in counted.values]
    finals = iter(_loop(node, iteration, rest, rows, counted.trips))
    return [
        _constant(node, counted.values[index][-1], types[index]) if index in counted.values else next(finals)
        for index in range(len(carried))
    ]


def _loop(
    node: Node,
    iteration: Callable[[Sequence[Node], Sequence[Node]], list[Node]],
    carried: Sequence[Node],
    scanned: Sequence[Node],
    trips: int,
) -> list[Node]:
    """Final carried values and stacked results of a loop between marks.

    An iteration takes what is carried, and a row of each tensor that is ``scanned``.
    """
    ones = [1] * len(scanned)
    begin = _add(node, BEGIN, list(carried), list(scanned), [0] * len(scanned), ones, trips)
    values = _items(begin)
    rows = [_add(node, aten.select.int, tile, 0, 0) for tile in values[len(carried) : -1]]
    results = iteration(values[: len(carried)], rows)
    finals, row_results = results[: len(carried)], results[len(carried) :]
    tiles = [_add(node, aten.unsqueeze.default, tensor, 0) for tensor in row_results]
    return _items(_add(node, END, values[-1], finals, tiles, [0] * len(tiles), trips))


def _unrolled_scan(
    graph_module: GraphModule,
    node: Node,
    body: Node,
    carried: Sequence[Node],
    scanned: Sequence[Node],
    others: Sequence[Node],
) -> list[Node]:
    """Results of a scan whose every step is written out: each draws random numbers of its own, or asserts."""
    rows: list[list[Node]] = []
    for row_index in range(scanned[0].meta["val"].shape[0]):
        step = [_add(node, aten.select.int, tensor, 0, row_index) for tensor in scanned]
        results = inlined_body(graph_module, body, [*carried, *step, *others])
        carried, row = results[: len(carried)], results[len(carried) :]
        rows.append([_add(node, aten.unsqueeze.default, tensor, 0) for tensor in row])
    return [*carried, *(_add(node, aten.cat.default, list(parts), 0) for parts in zip(*rows, strict=True))]


def _is_written_out(graph_module: GraphModule, body: Node) -> bool:
    """Return whether a body, or one inside of it, draws random numbers or asserts: loops on the device do neither."""
    inner = getattr(graph_module, str(body.target))
    return any(
        is_random(node)
        or node.target is CHECK
        or (
            node.op == "get_attr"
            and isinstance(getattr(inner, str(node.target)), GraphModule)
            and _is_written_out(inner, node)
        )
        for node in inner.graph.nodes
    )


def _known(graph_module: GraphModule) -> dict[Node, torch.Tensor]:
    """The constants among the placeholders of a graph."""
    return {
        node: node.meta[CONSTANT_DATA]
        for node in graph_module.graph.find_nodes(op="placeholder")
        if CONSTANT_DATA in node.meta
    }


def _dtype(operand: Any) -> torch.dtype:
    value = operand.meta["val"] if isinstance(operand, Node) else operand
    return value.dtype if isinstance(value, torch.Tensor) else torch.tensor(value).dtype


def _constant_rows(node: Node, values: Sequence[Number], dtype: torch.dtype) -> Node:
    """Known numbers as a tensor, which folding makes data."""
    rows = [_add(node, aten.full.default, [1], value, dtype=dtype) for value in values]
    return _add(node, aten.cat.default, rows, 0)


def _constant(node: Node, value: Number, dtype: torch.dtype) -> Node:
    return _add(node, aten.full.default, [], value, dtype=dtype)


def _items(node: Node) -> list[Node]:
    """The tensors of a node that is a list of them."""
    items = []
    for index, tensor in enumerate(node.meta["val"]):
        item = node.graph.call_function(operator.getitem, (node, index))
        item.meta = {**node.meta, "val": tensor}
        items.append(item)
    return items


_FORMS: dict[Any, Callable[..., list[Node]]] = {
    higher_order.cond: _condition,
    higher_order.scan: _scan,
    higher_order.map_impl: _map,
    higher_order.while_loop: _while_loop,
}


def inlined_body(
    graph_module: GraphModule,
    body: Node,
    operands: Iterable[Node],
    guarded: Callable[[Node], None] | None = None,
) -> list[Node]:
    """Copy the operations of a body to the insertion point, and return its results.

    ``guarded`` is called with each assertion among them.
    """
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
            if node.target is CHECK and guarded is not None:
                guarded(copies[node])
    raise AssertionError("A graph ends with its output.")


def _add(like: Node, operation: torch._ops.OpOverload, *args: Any, **kwargs: Any) -> Node:
    """New operation with the metadata of ``like``, its location in the source among them."""
    values: Sequence[Any] = pytree.tree_map_only(Node, lambda node: node.meta["val"], args)
    added = like.graph.call_function(operation, args, kwargs)
    mode = next(
        leaf.fake_mode for leaf in pytree.tree_leaves(like.meta["val"]) if isinstance(leaf, FakeTensor)
    )
    # An operation without operands gives no numbers, either.
    with mode:
        added.meta = {**like.meta, "val": operation(*values, **kwargs)}
    return added
