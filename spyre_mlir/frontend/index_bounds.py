# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Range checks of the indices that a model takes from its arguments.

The device compares an index with positions. An index out of range equals none of them, and no error is reported. So the
host knows the range of each argument that is used as an index, and checks the numbers that a call passes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import torch
from torch.fx import Graph, Node

from spyre_mlir.analysis.integer_ranges import Interval
from spyre_mlir.bundle.model import IndexBounds
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import call_before, operands_of, operation_name
from spyre_mlir.frontend.locations import source_of
from spyre_mlir.frontend.signature import Argument

aten = torch.ops.aten

#: An index operand of an operation and its range, upper end excluded.
IndexUse = tuple[Node, tuple[int, int]]


def _along_dim(node: Node, negative: bool = False) -> Iterator[IndexUse]:
    """Index of ``op(x, dim, index)``, with its range."""
    operands = operands_of(node)
    shape = operands["self"].meta["val"].shape
    size = shape[operands["dim"]] if shape else 1
    yield operands["index"], (-size if negative else 0, size)


def _per_dim(node: Node) -> Iterator[IndexUse]:
    """Indices of ``op(x, indices)``, one for each of the first dims, with their ranges; masks are skipped."""
    operands = operands_of(node)
    for size, index in zip(operands["self"].meta["val"].shape, operands["indices"], strict=False):
        if index is not None and index.meta["val"].dtype not in (torch.bool, torch.uint8):
            yield index, (-size, size)


def _of_table_or_classes(node: Node) -> Iterator[IndexUse]:
    """Index of ``embedding(weight, indices)`` or ``one_hot(self, num_classes)``, if the number of classes is known."""
    operands = operands_of(node)
    if "weight" in operands:
        yield operands["indices"], (0, operands["weight"].meta["val"].shape[0])
    elif operands.get("num_classes", -1) >= 0:
        yield operands["self"], (0, operands["num_classes"])


_USES: dict[str, Callable[[Node], Iterator[IndexUse]]] = {
    **dict.fromkeys(("index", "index_put", "_unsafe_index", "_unsafe_index_put"), _per_dim),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_reduce", "index_select"), _along_dim),
    **dict.fromkeys(("index_add", "index_copy", "index_reduce"), _along_dim),
    "index_fill": lambda node: _along_dim(node, negative=True),
    "embedding": _of_table_or_classes,
    "one_hot": _of_table_or_classes,
}


#: Operations that become comparisons on the device, where an invalid index matches no position.
_COMPARISONS = frozenset(_USES) - {"index", "_unsafe_index", "gather", "index_select", "embedding"}


def _origin(node: Node) -> Node:
    """First node with the same elements as ``node``, up to their order and integer type."""
    while operation_name(node) in REARRANGEMENTS and not node.meta["val"].dtype.is_floating_point:
        node = cast(Node, node.args[0])
    return node


def index_bounds(graph: Graph) -> dict[str, IndexBounds]:
    """Range allowed by all uses of a placeholder's elements as indices, by the name of the placeholder."""
    bounds: dict[str, IndexBounds] = {}
    for node, index, lower, upper in _uses(graph):
        origin = _origin(index)
        # Each use narrows the range, but the error names the first operation.
        if origin.op == "placeholder":
            known = bounds.get(origin.name, IndexBounds(lower, upper, f"aten.{operation_name(node)}"))
            narrower = max(lower, known.lower), min(upper, known.upper)
            bounds[origin.name] = IndexBounds(*narrower, known.operation)
    return bounds


def check_computed_indices(graph: Graph) -> None:
    """Make the host look up, and thereby check, each index that the model computes and that may be out of range.

    The table contains all positions, so that an index maps to itself; integer operations run on the host.
    """
    #: Ranges of the elements of the nodes that the analysis can bound.
    ranges: dict[Node, Interval] = {}
    for node in graph.nodes:
        if node.op == "call_function" and (computed := _range(node, ranges)) is not None:
            ranges[node] = computed
    # A list, because look-ups are inserted during the iteration.
    for node, index, lower, upper in list(_uses(graph)):
        if operation_name(node) not in _COMPARISONS or _origin(index).op == "placeholder":
            continue
        computed = ranges.get(index)
        if computed is not None and lower <= computed.lower and computed.upper < upper:
            continue
        position = index
        if lower:
            # The operation accepts negative indices, which count from the end; gather does not.
            is_from_end = call_before(node, aten.lt.Scalar, index, 0)
            from_start = call_before(node, aten.add.Tensor, index, upper)
            position = call_before(node, aten.where.self, is_from_end, from_start, index)
        positions = call_before(node, aten.arange.default, upper)
        # A table of one dim requires an index of one dim.
        flat = call_before(node, aten.reshape.default, position, [-1])
        checked = call_before(node, aten.gather.default, positions, 0, flat)
        checked = call_before(node, aten.reshape.default, checked, list(index.meta["val"].shape))
        checked = call_before(node, aten._to_copy.default, checked, dtype=index.meta["val"].dtype)
        node.replace_input_with(index, checked)


def _uses(graph: Graph) -> Iterator[tuple[Node, Node, int, int]]:
    """Every operation with each of its indices and the range that it accepts, upper end excluded."""
    for node in graph.nodes:
        if node.op == "call_function" and operation_name(node) in _USES:
            for index, (lower, upper) in _USES[operation_name(node)](node):
                yield node, index, lower, upper


def check_known_indices(node: Node, argument: Argument) -> None:
    """Raise ``CompileError`` for a constant or a buffer that contains an index out of its range."""
    bounds, tensor = argument.index_bounds, argument.tensor
    if bounds is None or tensor is None:
        return
    outside = tensor[(tensor < bounds.lower) | (tensor >= bounds.upper)]
    if outside.numel():
        raise CompileError(
            f"'{argument.name}' holds {int(outside[0])}, but it is an index of {bounds.operation}, which takes "
            f"{bounds.lower} to {bounds.upper - 1}.",
            source_of(next(iter(node.users), node)),
        )


# Interval analysis of the integers that a model computes.

#: Operations whose result contains exactly the elements of their first operand.
REARRANGEMENTS = frozenset(
    "_to_copy _unsafe_view alias clone contiguous detach detach_ expand flatten lift_fresh_copy permute reshape "
    "squeeze t to transpose unflatten unsqueeze view view_as".split()
)


#: Operations whose second result contains the positions of the first result's elements along a dim.
_WITH_POSITIONS = frozenset("topk sort max min kthvalue mode median cummax cummin".split())


def _range(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of a node's elements from the ranges of its operands; None if unknown."""
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


def _of(value: object, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of an operand, which is a node or a number; None if unknown."""
    if isinstance(value, bool | int):
        return Interval(int(value), int(value))
    return ranges.get(value) if isinstance(value, Node) else None


def _is_integer(value: object) -> bool:
    """Return whether a value is a node of an integer or boolean tensor."""
    tensor = value.meta.get("val") if isinstance(value, Node) else None
    return isinstance(tensor, torch.Tensor) and not (tensor.is_floating_point() or tensor.is_complex())


def _sum(node: Node, ranges: Mapping[Node, Interval], sign: int = 1) -> Interval | None:
    """Range of ``add``; with a ``sign`` of -1 the range of ``sub``."""
    lhs, rhs = (_of(operand, ranges) for operand in node.args[:2])
    if lhs is None or rhs is None or node.kwargs.get("alpha", 1) != 1:
        return None
    return Interval.sum(lhs, rhs) if sign > 0 else Interval.difference(lhs, rhs)


def _of_operands(
    combine: Callable[..., Interval | None], first: int, last: int
) -> Callable[[Node, Mapping[Node, Interval]], Interval | None]:
    """Range of an operation from the known ranges of its operands ``first`` up to ``last``."""

    def rule(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
        operands = [_of(operand, ranges) for operand in node.args[first:last]]
        return None if None in operands else combine(*operands)

    return rule


def _clamped(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of ``clamp``, from its limits or from the range of its operand."""
    operands, source = operands_of(node), _of(node.args[0], ranges)
    least = _of(operands.get("min"), ranges) or source
    greatest = _of(operands.get("max"), ranges) or source
    if least is None or greatest is None or least.lower > greatest.upper:
        return None
    return Interval(least.lower, greatest.upper)


def _positions(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of ``arange``."""
    operands = operands_of(node)
    start, end, step = operands.get("start", 0), operands["end"], operands.get("step", 1)
    if not all(isinstance(number, int) for number in (start, end, step)):
        return None
    # The end is excluded, and a step may skip the last positions before the end.
    last = start + step * (math.ceil((end - start) / step) - 1)
    return Interval(min(start, last), max(start, last))


def _of_dim(node: Node, ranges: Mapping[Node, Interval]) -> Interval | None:
    """Range of the position of an element along a dim, or in the whole tensor."""
    operands = operands_of(node)
    # The default dim of these operations is the last dim; other operations flatten the tensor.
    default = -1 if operation_name(node) in ("topk", "sort", "argsort", "kthvalue", "mode") else None
    shape, dim = operands["self"].meta["val"].shape, operands.get("dim", default)
    return Interval(0, (math.prod(shape) if dim is None else shape[dim] if shape else 1) - 1)


_RULES: dict[str, Callable[[Node, Mapping[Node, Interval]], Interval | None]] = {
    "add": _sum,
    "sub": lambda node, ranges: _sum(node, ranges, -1),
    "mul": _of_operands(Interval.product, 0, 2),
    # The result has the sign of the divisor.
    "remainder": _of_operands(
        lambda divisor: Interval(0, divisor.upper - 1) if divisor.lower > 0 else None, 1, 2
    ),
    "clamp": _clamped,
    "where": _of_operands(Interval.union, 1, 3),
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
