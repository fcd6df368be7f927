# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Interval analysis of the integers that a model computes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import torch
from torch.fx import Graph, Node

from spyre_mlir.frontend.graph_edits import operands_of, operation_name

#: Operations whose result has all elements of their first operand and no others.
REARRANGEMENTS = frozenset(
    "_to_copy _unsafe_view alias clone contiguous detach detach_ expand flatten lift_fresh_copy permute reshape "
    "squeeze t to transpose unflatten unsqueeze view view_as".split()
)


#: Operations whose second result is where the elements of the first one were along a dim.
_WITH_POSITIONS = frozenset("topk sort max min kthvalue mode median cummax cummin".split())


class Interval(NamedTuple):
    """Closed interval of integers, from ``lower`` to ``upper``."""

    lower: int
    upper: int


Ranges = Mapping[Node, Interval]


def integer_ranges(graph: Graph) -> dict[Node, Interval]:
    """Ranges of the elements of nodes, where the analysis knows them."""
    ranges: dict[Node, Interval] = {}
    for node in graph.nodes:
        computed = _range(node, ranges) if node.op == "call_function" else None
        if computed is not None:
            ranges[node] = computed
    return ranges


def _range(node: Node, ranges: Ranges) -> Interval | None:
    """Range of a node's elements from those of its operands; None if it is not known."""
    if node.target is operator.getitem:
        source, number = cast(Node, node.args[0]), node.args[1]
        is_position = number == 1 and operation_name(source) in _WITH_POSITIONS
        return _of_dim(source, ranges) if is_position else None
    if not _is_integer(node):
        return None
    if node.meta["val"].dtype == torch.bool:
        return Interval(0, 1)
    name = operation_name(node)
    if name in REARRANGEMENTS:
        return _of(node.args[0], ranges) if _is_integer(node.args[0]) else None
    rule = _RULES.get(name)
    return None if rule is None else rule(node, ranges)


def _of(value: object, ranges: Ranges) -> Interval | None:
    """Range of an operand, which is a node or a number; None if it is not known."""
    if isinstance(value, bool | int):
        return Interval(int(value), int(value))
    return ranges.get(value) if isinstance(value, Node) else None


def _is_integer(value: object) -> bool:
    """Return whether a value is a node of an integer or boolean tensor."""
    tensor = value.meta.get("val") if isinstance(value, Node) else None
    return isinstance(tensor, torch.Tensor) and not (tensor.is_floating_point() or tensor.is_complex())


def _sum(node: Node, ranges: Ranges, sign: int = 1) -> Interval | None:
    """Range of ``add``, or with a ``sign`` of -1 of ``sub``."""
    lhs, rhs = (_of(operand, ranges) for operand in node.args[:2])
    if lhs is None or rhs is None or node.kwargs.get("alpha", 1) != 1:
        return None
    least, greatest = sorted((sign * rhs.lower, sign * rhs.upper))
    return Interval(lhs.lower + least, lhs.upper + greatest)


def _product(node: Node, ranges: Ranges) -> Interval | None:
    """Range of ``mul``: its ends are products of ends."""
    lhs, rhs = (_of(operand, ranges) for operand in node.args[:2])
    if lhs is None or rhs is None:
        return None
    ends = [one * other for one in lhs for other in rhs]
    return Interval(min(ends), max(ends))


def _remainder(node: Node, ranges: Ranges) -> Interval | None:
    """Range of ``remainder`` by a positive divisor, whose sign the result has."""
    divisor = _of(node.args[1], ranges)
    return Interval(0, divisor.upper - 1) if divisor is not None and divisor.lower > 0 else None


def _clamped(node: Node, ranges: Ranges) -> Interval | None:
    """Range of ``clamp``, from its limits or those of its operand."""
    operands = operands_of(node)
    lower, upper = _of(operands.get("min"), ranges), _of(operands.get("max"), ranges)
    source = _of(node.args[0], ranges)
    least = lower or source
    greatest = upper or source
    return (
        None
        if least is None or greatest is None or least.lower > greatest.upper
        else Interval(least[0], greatest[1])
    )


def _selected(node: Node, ranges: Ranges) -> Interval | None:
    """Range of ``where``: of both operands."""
    one, other = (_of(operand, ranges) for operand in node.args[1:3])
    return None if one is None or other is None else Interval(min(one[0], other[0]), max(one[1], other[1]))


def _positions(node: Node, ranges: Ranges) -> Interval | None:
    """Range of ``arange``."""
    operands = operands_of(node)
    start, end, step = operands.get("start", 0), operands["end"], operands.get("step", 1)
    if not all(isinstance(number, int) for number in (start, end, step)):
        return None
    # The end is excluded, and a step may jump over the last positions before it.
    last = start + step * (math.ceil((end - start) / step) - 1)
    return Interval(min(start, last), max(start, last))


def _of_dim(node: Node, ranges: Ranges) -> Interval | None:
    """Range of the position of an element along a dim, or in all of the tensor."""
    operands = operands_of(node)
    # Without a dim these take the last one, the others the flattened tensor.
    default = -1 if operation_name(node) in ("topk", "sort", "argsort", "kthvalue", "mode") else None
    shape, dim = operands["self"].meta["val"].shape, operands.get("dim", default)
    return Interval(0, (math.prod(shape) if dim is None else shape[dim] if shape else 1) - 1)


_RULES: dict[str, Callable[[Node, Ranges], Interval | None]] = {
    "add": _sum,
    "sub": lambda node, ranges: _sum(node, ranges, -1),
    "mul": _product,
    "remainder": _remainder,
    "clamp": _clamped,
    "where": _selected,
    "arange": _positions,
    "argmax": _of_dim,
    "argmin": _of_dim,
    "argsort": _of_dim,
    "full": lambda node, ranges: _of(node.args[1], ranges),
    "full_like": lambda node, ranges: _of(node.args[1], ranges),
    "zeros": lambda node, ranges: Interval(0, 0),
    "zeros_like": lambda node, ranges: Interval(0, 0),
    "ones": lambda node, ranges: Interval(1, 1),
    "ones_like": lambda node, ranges: Interval(1, 1),
}
