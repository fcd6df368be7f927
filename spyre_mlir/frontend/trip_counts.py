# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counters of a while loop, and so its trip count, where they depend on no data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from spyre_mlir.records import dataclass

#: The trips of one loop that a bundle runs.
MOST_TRIPS = 65535

Number = int | float | bool


class UnknownError(Exception):
    """A number that depends on data."""


@dataclass(frozen=True)
class Counters:
    """The counters of a loop: by their positions in what is carried their values, before each trip and at the end."""

    trips: int
    values: Mapping[int, Sequence[Number]]


def counters(
    condition: GraphModule,
    body: GraphModule,
    carried: Sequence[Any],
    others: Sequence[Any],
    known: Mapping[Node, Any],
) -> Counters | None:
    """The counters that the condition of a loop reads; None where its trip count depends on data.

    They are scalars that begin as known numbers, and whose next values depend on counters alone. ``known`` are the
    values of placeholders.
    """
    operands = [*carried, *others]
    needed = _closed(condition, body, len(carried))
    try:
        values = {index: _number(operands[index], known) for index in sorted(needed)}
        return _run(condition, body, values, len(carried))
    except UnknownError:
        return None


def _closed(condition: GraphModule, body: GraphModule, carried: int) -> set[int]:
    """The operands that a condition depends on, in any trip."""
    needed: set[int] = set()
    pending = _operands_behind(condition, _outputs(condition)[0])
    while pending:
        index = pending.pop()
        if index not in needed:
            needed.add(index)
            if index < carried:
                pending |= _operands_behind(body, _outputs(body)[index])
    return needed


def _run(
    condition: GraphModule, body: GraphModule, values: dict[int, Number], carried: int
) -> Counters | None:
    history: dict[int, list[Number]] = {index: [value] for index, value in values.items() if index < carried}
    for trips in range(MOST_TRIPS + 1):
        if not _evaluated(condition, _outputs(condition)[0], values):
            return Counters(trips, history)
        outputs = _outputs(body)
        values = values | {index: _evaluated(body, outputs[index], values) for index in history}
        for index, numbers in history.items():
            numbers.append(values[index])
    return None


def _outputs(graph_module: GraphModule) -> Sequence[Any]:
    output = next(iter(graph_module.graph.find_nodes(op="output"))).args[0]
    return output if isinstance(output, (tuple, list)) else (output,)


def _operands_behind(graph_module: GraphModule, output: Any) -> set[int]:
    """The placeholders that an output depends on, by their positions."""
    positions = {node: index for index, node in enumerate(graph_module.graph.find_nodes(op="placeholder"))}
    pending, seen = [output], set[Node]()
    while pending:
        node = pending.pop()
        if isinstance(node, Node) and node not in seen:
            seen.add(node)
            pending += node.all_input_nodes
    return {positions[node] for node in seen if node in positions}


def _evaluated(graph_module: GraphModule, output: Any, values: Mapping[int, Number]) -> Number:
    """An output, from the numbers of the placeholders that it depends on."""
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    known = {node: _typed(node, values[index]) for index, node in enumerate(placeholders) if index in values}
    return _number(output, known)


def _number(value: Any, known: Mapping[Node, Any]) -> Number:
    """The number of a node or a literal; ``UnknownError`` if it is none, or depends on data."""
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
    """A number of Python as a tensor of the type of its node: arithmetic is then that of the loop."""
    expected = node.meta.get("val")
    if isinstance(expected, Tensor) and not isinstance(value, Tensor):
        return torch.tensor(value, dtype=expected.dtype)
    return value
