# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lookups that become less work: embeddings by one known number, and gathers behind pointwise operations."""

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


def look_up_before_pointwise(graph: Graph) -> None:
    """Rewrite gather(f(a, b), index) as f(gather(a, index), gather(b, index)), f being a pointwise operation.

    The host looks up single elements. Of log probabilities, as in a cross entropy, these are then those of the logits,
    which it has, and the device neither computes nor writes all others. ``b`` may be the same for all positions.
    """
    gathers = list(graph.find_nodes(op="call_function", target=aten.gather.default))
    while gathers:
        gather = gathers.pop()
        source, dim, index = cast(tuple[Node, int, Node], gather.args[:3])
        if not _selects(index, source, dim) or not _moves(source, dim):
            continue
        operands = [
            call_before(gather, aten.gather.default, operand, dim, index)
            if operand in _whole_operands(source)
            else operand
            for operand in source.args
        ]
        gathers += [
            operand for operand in operands if isinstance(operand, Node) and operand not in source.args
        ]
        operation = cast(torch._ops.OpOverload, source.target)
        gather.replace_all_uses_with(call_before(gather, operation, *operands, **source.kwargs))
        graph.erase_node(gather)


def _moves(source: Node, dim: int) -> bool:
    """Return whether a gather along a dim may come before what it reads, of which something else is there then."""
    if not _is_pointwise(source):
        return False
    shape, whole = source.meta["val"].shape, _whole_operands(source)
    others = (operand for operand in source.all_input_nodes if operand not in whole)
    if not whole or any(_varies_along(operand, dim - len(shape)) for operand in others):
        return False
    return all(
        operand.op == "placeholder" or len(operand.users) > 1 or _moves(operand, dim) for operand in whole
    )


def _whole_operands(node: Node) -> list[Node]:
    """Return the operands that have the shape of the result."""
    shape = node.meta["val"].shape
    return [operand for operand in node.all_input_nodes if operand.meta["val"].shape == shape]


def _varies_along(operand: Node, axis: int) -> bool:
    """Return whether a smaller operand has several positions of an axis, which counts from the last."""
    sizes = operand.meta["val"].shape
    return len(sizes) >= -axis and sizes[axis] != 1


def _is_pointwise(node: Node) -> bool:
    """Return whether a node computes each element of one tensor from those at its place."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or not isinstance(node.meta["val"], torch.Tensor):
        return False
    # Random numbers would be others in another shape.
    return torch.Tag.pointwise in target.tags and torch.Tag.nondeterministic_seeded not in target.tags


def _selects(index: Node, source: Node, dim: int) -> bool:
    """Return whether an index takes fewer positions of ``dim`` than there are, and all of the other dims."""
    sizes, extents = (tuple(node.meta["val"].shape) for node in (index, source))
    return bool(extents) and sizes[dim] < extents[dim] and _without(sizes, dim) == _without(extents, dim)


def _without(sizes: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*sizes[:dim], *sizes[dim + 1 :])
