# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Range checks of the indices that a model takes from its arguments.

The device compares an index with positions, where one that is out of range is at none of them and nothing tells. So the
host knows the range of an argument that is used as an index, and checks the numbers that a call gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch.fx import Graph, Node

from spyre_mlir.bundle.model import IndexBounds
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import call_before, operands_of, operation_name
from spyre_mlir.frontend.index_ranges import REARRANGEMENTS, integer_ranges
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
    """Indices of ``op(x, indices)``, one for each of the first dims, with their ranges; masks are none."""
    operands = operands_of(node)
    for size, index in zip(operands["self"].meta["val"].shape, operands["indices"], strict=False):
        if index is not None and index.meta["val"].dtype not in (torch.bool, torch.uint8):
            yield index, (-size, size)


def _of_table(node: Node) -> Iterator[IndexUse]:
    """Index of ``embedding(weight, indices)``, with its range."""
    operands = operands_of(node)
    yield operands["indices"], (0, operands["weight"].meta["val"].shape[0])


def _of_classes(node: Node) -> Iterator[IndexUse]:
    """Index of ``one_hot(self, num_classes)``, with its range, where the number of classes is known."""
    operands = operands_of(node)
    if operands.get("num_classes", -1) >= 0:
        yield operands["self"], (0, operands["num_classes"])


_USES: dict[str, Callable[[Node], Iterator[IndexUse]]] = {
    **dict.fromkeys(("index", "index_put", "_unsafe_index", "_unsafe_index_put"), _per_dim),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_reduce", "index_select"), _along_dim),
    **dict.fromkeys(("index_add", "index_copy", "index_reduce"), _along_dim),
    "index_fill": lambda node: _along_dim(node, negative=True),
    "embedding": _of_table,
    "one_hot": _of_classes,
}


#: Operations that become comparisons on the device, where a wrong index is at no position.
_COMPARISONS = frozenset(_USES) - {"index", "_unsafe_index", "gather", "index_select", "embedding"}


def _origin(node: Node) -> Node:
    """Node with the same elements as ``node``, as far up as only their order and integer type change."""
    while operation_name(node) in REARRANGEMENTS and not node.meta["val"].dtype.is_floating_point:
        node = cast(Node, node.args[0])
    return node


def index_bounds(graph: Graph) -> dict[str, IndexBounds]:
    """Range that all uses of a placeholder's elements as indices allow, by the name of the placeholder."""
    bounds: dict[str, IndexBounds] = {}
    for node, index, lower, upper in _uses(graph):
        origin = _origin(index)
        # The range is narrowed by each use, but the error names the first operation.
        if origin.op == "placeholder":
            known = bounds.get(origin.name, IndexBounds(lower, upper, f"aten.{operation_name(node)}"))
            narrower = max(lower, known.lower), min(upper, known.upper)
            bounds[origin.name] = IndexBounds(*narrower, known.operation)
    return bounds


def check_computed_indices(graph: Graph) -> None:
    """Make the host look up each index that the model computes and that may be out of range, which checks it.

    The table is that of all positions, so that an index is looked up as itself; integers are for the host.
    """
    ranges = integer_ranges(graph)
    # A list, as look-ups are inserted on the way.
    for node, index, lower, upper in list(_uses(graph)):
        if operation_name(node) not in _COMPARISONS or _origin(index).op == "placeholder":
            continue
        computed = ranges.get(index)
        if computed is not None and lower <= computed.lower and computed.upper < upper:
            continue
        node.replace_input_with(index, _looked_up(node, index, lower, upper))


def _looked_up(node: Node, index: Node, lower: int, upper: int) -> Node:
    """Index of ``node`` that has been looked up among the positions below ``upper``, from the front."""
    position = index
    if lower:
        # The operation takes negative indices, which count from the end.
        is_from_end = call_before(node, aten.lt.Scalar, index, 0)
        position = call_before(
            node, aten.where.self, is_from_end, call_before(node, aten.add.Tensor, index, upper), index
        )
    positions = call_before(node, aten.arange.default, upper)
    # A table of one dim takes an index of one dim.
    flat = call_before(node, aten.reshape.default, position, [-1])
    # Unlike index, gather counts no index from the end.
    checked = call_before(node, aten.gather.default, positions, 0, flat)
    checked = call_before(node, aten.reshape.default, checked, list(index.meta["val"].shape))
    return call_before(node, aten._to_copy.default, checked, dtype=index.meta["val"].dtype)


def _uses(graph: Graph) -> Iterator[tuple[Node, Node, int, int]]:
    """Every operation with one of its indices and the range that it takes, upper end excluded."""
    for node in graph.nodes:
        if node.op == "call_function" and operation_name(node) in _USES:
            for index, (lower, upper) in _USES[operation_name(node)](node):
                yield node, index, lower, upper


def check_known_indices(node: Node, argument: Argument) -> None:
    """Raise ``CompileError`` for a constant or a buffer that is an index out of its range."""
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
