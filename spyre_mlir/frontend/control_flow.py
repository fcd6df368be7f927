# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch control flow without subgraphs: both branches of a condition, one iteration of a loop between its marks.

The operations have no side effects, so a branch that is not taken only costs its time; its assertions hold.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from spyre_mlir.errors import UncapturedError
from spyre_mlir.frontend.assertions import CHECK, guard
from spyre_mlir.frontend.locations import refusal_at
from spyre_mlir.frontend.random_numbers import is_random
from spyre_mlir.frontend.tile_loops import BEGIN, END

aten = torch.ops.aten
higher_order = torch.ops.higher_order

#: Metadata key for the data of a placeholder that is a constant.
CONSTANT_DATA = "spyre.constant"


def inline_control_flow(graph_module: GraphModule) -> None:
    """Replace each node that ``is_inlined`` by the operations of its bodies, in place."""
    graph = graph_module.graph
    inlined = [node for node in graph.nodes if is_inlined(node)]
    for node in inlined:
        with graph.inserting_before(node):
            results = _FORMS[node.target](graph_module, node, *node.args)
        for user in list(node.users):
            # The result of a control-flow node is a tuple, so all users of the node are operator.getitem.
            user.replace_all_uses_with(results[user.args[1]], propagate_meta=False)
            graph.erase_node(user)
        graph.erase_node(node)
    if inlined:
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
    """``where(condition, a, b)`` for each result a of one branch and b of the other; both branches are computed."""
    # A condition that torch knows at trace time selects one branch.
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
    """Final carried values and stacked results of a body that runs once for each row of ``scanned``."""
    trips = scanned[0].meta["val"].shape[0]

    def iteration(carried: Sequence[Node], rows: Sequence[Node]) -> list[Node]:
        return inlined_body(graph_module, body, [*carried, *rows, *others])

    if not _is_written_out(graph_module, body):
        return _loop(node, iteration, carried, scanned, trips)
    # Every step is written out, because each step draws random numbers or asserts.
    rows: list[list[Node]] = []
    for row_index in range(trips):
        step = [_add(node, aten.select.int, tensor, 0, row_index) for tensor in scanned]
        results = iteration(carried, step)
        carried, row = results[: len(carried)], results[len(carried) :]
        rows.append([_add(node, aten.unsqueeze.default, tensor, 0) for tensor in row])
    return [*carried, *(_add(node, aten.cat.default, list(parts), 0) for parts in zip(*rows, strict=True))]


def _while_loop(
    graph_module: GraphModule,
    node: Node,
    condition: Node,
    body: Node,
    carried: Sequence[Any],
    others: Sequence[Any],
) -> list[Node]:
    """Final carried values of a loop whose counters are known: the loop scans the values of the counters as rows."""
    test, step = (getattr(graph_module, str(graph.target)) for graph in (condition, body))
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    known = {each: each.meta[CONSTANT_DATA] for each in placeholders if CONSTANT_DATA in each.meta}
    counters = _counters(test, step, carried, others, known)
    if counters is None or _is_written_out(graph_module, body):
        raise refusal_at(
            node,
            "How often this loop runs depends on data, or its body draws random numbers or asserts; count in a tensor "
            "that begins as a constant to make it one loop on the device.",
            UncapturedError,
        )
    trips, values = counters
    if not trips:
        return list(carried)

    def constant(index: int, value: Number, *shape: int) -> Node:
        """A known number of a counter, in its type; folding turns it into data."""
        first = carried[index].meta["val"] if isinstance(carried[index], Node) else carried[index]
        dtype = first.dtype if isinstance(first, Tensor) else torch.tensor(first).dtype
        return _add(node, aten.full.default, list(shape), value, dtype=dtype)

    rows = [
        _add(node, aten.cat.default, [constant(index, value, 1) for value in numbers[:-1]], 0)
        for index, numbers in values.items()
    ]

    def iteration(rest: Sequence[Node], rows: Sequence[Node]) -> list[Node]:
        """Return the next carried values, except the counters."""
        known = dict(zip(values, rows, strict=True))
        remaining = iter(rest)
        operands = [known[index] if index in known else next(remaining) for index in range(len(carried))]
        results = inlined_body(graph_module, body, [*operands, *others])
        return [result for index, result in enumerate(results) if index not in known]

    rest = [operand for index, operand in enumerate(carried) if index not in values]
    finals = iter(_loop(node, iteration, rest, rows, trips))
    return [
        constant(index, values[index][-1]) if index in values else next(finals)
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

    An iteration takes the carried values, and a row of each tensor in ``scanned``.
    """
    ones = [1] * len(scanned)
    begin = _add(node, BEGIN, list(carried), list(scanned), [0] * len(scanned), ones, trips)
    values = _items(begin)
    rows = [_add(node, aten.select.int, tile, 0, 0) for tile in values[len(carried) : -1]]
    results = iteration(values[: len(carried)], rows)
    finals, row_results = results[: len(carried)], results[len(carried) :]
    tiles = [_add(node, aten.unsqueeze.default, tensor, 0) for tensor in row_results]
    return _items(_add(node, END, values[-1], finals, tiles, [0] * len(tiles), trips))


def _is_written_out(graph_module: GraphModule, body: Node) -> bool:
    """Return whether a body or a nested body draws random numbers or asserts, which loops on the device cannot."""
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


def _items(node: Node) -> list[Node]:
    """The tensors of a node whose result is a list of tensors."""
    items = []
    for index, tensor in enumerate(node.meta["val"]):
        item = node.graph.call_function(operator.getitem, (node, index))
        item.meta = {**node.meta, "val": tensor}
        items.append(item)
    return items


_FORMS: dict[Any, Callable[..., list[Node]]] = {
    higher_order.cond: _condition,
    higher_order.scan: _scan,
    # A scan without carried values.
    higher_order.map_impl: lambda graph_module, node, body, mapped, others: _scan(
        graph_module, node, body, [], mapped, others
    ),
    higher_order.while_loop: _while_loop,
}


def inlined_body(
    graph_module: GraphModule,
    body: Node,
    operands: Iterable[Node],
    guarded: Callable[[Node], None] | None = None,
) -> list[Node]:
    """Copy the operations of a body to the insertion point, and return its results.

    ``guarded`` is called with each copied assertion.
    """
    inner = getattr(graph_module, str(body.target))
    # Innermost bodies first, so that the copied operations do not contain control flow.
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
    """New operation with the metadata of ``like``, including its source location."""
    values: Sequence[Any] = pytree.tree_map_only(Node, lambda node: node.meta["val"], args)
    added = like.graph.call_function(operation, args, kwargs)
    mode = next(
        leaf.fake_mode for leaf in pytree.tree_leaves(like.meta["val"]) if isinstance(leaf, FakeTensor)
    )
    # The mode also gives an operation without operands a result without data.
    with mode:
        added.meta = {**like.meta, "val": operation(*values, **kwargs)}
    return added


# Counters of a while loop, and therefore its trip count, if they do not depend on data.

#: The maximum trip count of a loop in a bundle.
MOST_TRIPS = 65535

Number = int | float | bool


class UnknownError(Exception):
    """Raised for a number that depends on data."""


def _counters(
    condition: GraphModule,
    body: GraphModule,
    carried: Sequence[Any],
    others: Sequence[Any],
    known: Mapping[Node, Any],
) -> tuple[int, dict[int, list[Number]]] | None:
    """The trip count of a loop, and the values of its counters before each trip and at the end, by index.

    Counters are scalars that the condition reads, whose first values are known numbers, and whose next values depend on
    counters alone. ``known`` contains the values of placeholders. None if the trip count depends on data.
    """
    operands = [*carried, *others]
    test, steps = _outputs(condition)[0], _outputs(body)
    # The operands that the condition depends on, in any trip.
    needed: set[int] = set()
    pending = _operands_behind(condition, test)
    while pending:
        index = pending.pop()
        if index not in needed:
            needed.add(index)
            if index < len(carried):
                pending |= _operands_behind(body, steps[index])

    def evaluated(graph_module: GraphModule, output: Any, values: Mapping[int, Number]) -> Number:
        placeholders = enumerate(graph_module.graph.find_nodes(op="placeholder"))
        return _number(
            output, {node: _typed(node, values[index]) for index, node in placeholders if index in values}
        )

    try:
        values = {index: _number(operands[index], known) for index in sorted(needed)}
        history = {index: [value] for index, value in values.items() if index < len(carried)}
        for trips in range(MOST_TRIPS + 1):
            if not evaluated(condition, test, values):
                return trips, history
            values = values | {index: evaluated(body, steps[index], values) for index in history}
            for index, numbers in history.items():
                numbers.append(values[index])
    except UnknownError:
        pass
    return None


def _outputs(graph_module: GraphModule) -> Sequence[Any]:
    output = next(iter(graph_module.graph.find_nodes(op="output"))).args[0]
    return output if isinstance(output, (tuple, list)) else (output,)


def _operands_behind(graph_module: GraphModule, output: Any) -> set[int]:
    """Indices of the placeholders that an output depends on."""
    positions = {node: index for index, node in enumerate(graph_module.graph.find_nodes(op="placeholder"))}
    pending, seen = [output], set[Node]()
    while pending:
        node = pending.pop()
        if isinstance(node, Node) and node not in seen:
            seen.add(node)
            pending += node.all_input_nodes
    return {positions[node] for node in seen if node in positions}


def _number(value: Any, known: Mapping[Node, Any]) -> Number:
    """The number of a node or a literal; ``UnknownError`` if it is not a number or depends on data."""
    with unset_fake_temporarily(), torch.no_grad():
        result = _value(value, dict(known))
    if isinstance(result, Tensor) and result.ndim == 0:
        return result.item()
    if isinstance(result, int | float):
        return result
    raise UnknownError


def _value(node: Any, known: dict[Node, Any]) -> Any:
    if not isinstance(node, Node):
        return node
    if node not in known:
        if node.op != "call_function" or not callable(node.target):
            raise UnknownError
        if isinstance(node.target, torch._ops.OpOverload) and (
            torch.Tag.nondeterministic_seeded in node.target.tags
        ):
            raise UnknownError
        args, kwargs = map_arg((node.args, node.kwargs), lambda source: _value(source, known))
        known[node] = _typed(node, node.target(*args, **kwargs))
    return known[node]


def _typed(node: Node, value: Any) -> Any:
    """Convert a Python number to a tensor of the node's type, so that arithmetic equals the arithmetic of the loop."""
    expected = node.meta.get("val")
    if isinstance(expected, Tensor) and not isinstance(value, Tensor):
        return torch.tensor(value, dtype=expected.dtype)
    return value
