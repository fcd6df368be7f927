"""The range of the indices that a model takes from its arguments.

The device compares an index with positions, where one that is out of range is at none of them and nothing tells. So the
host knows the range of an argument that is used as an index, and checks the numbers that a call gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from torch.fx import Graph, Node

from spyre_mlir.bundle.model import IndexBounds
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.locations import source_of
from spyre_mlir.frontend.signature import Argument

#: An index operand of an operation and its range, upper end excluded.
IndexUse = tuple[Node, tuple[int, int]]

#: Operations whose result has all elements of their first operand and no others.
_REARRANGEMENTS = frozenset(
    "_to_copy _unsafe_view alias clone contiguous detach detach_ expand flatten lift_fresh_copy permute reshape "
    "squeeze t to transpose unflatten unsqueeze view view_as".split()
)


def _operands(node: Node) -> dict[str, Any]:
    """The operands of a call by their names in the operation's schema."""
    names = (argument.name for argument in cast(torch._ops.OpOverload, node.target)._schema.arguments)
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def _along_dim(node: Node, negative: bool = False) -> Iterator[IndexUse]:
    """The index of ``op(x, dim, index)``."""
    operands = _operands(node)
    shape = operands["self"].meta["val"].shape
    size = shape[operands["dim"]] if shape else 1
    yield operands["index"], (-size if negative else 0, size)


def _per_dim(node: Node) -> Iterator[IndexUse]:
    """The indices of ``op(x, indices)``, one for each of the first dims; masks are none."""
    operands = _operands(node)
    for size, index in zip(operands["self"].meta["val"].shape, operands["indices"], strict=False):
        if index is not None and index.meta["val"].dtype not in (torch.bool, torch.uint8):
            yield index, (-size, size)


def _of_table(node: Node) -> Iterator[IndexUse]:
    operands = _operands(node)
    yield operands["indices"], (0, operands["weight"].meta["val"].shape[0])


def _of_classes(node: Node) -> Iterator[IndexUse]:
    operands = _operands(node)
    if operands.get("num_classes", -1) >= 0:
        yield operands["self"], (0, operands["num_classes"])


_USES: dict[str, Callable[[Node], Iterator[IndexUse]]] = {
    **dict.fromkeys(("index", "index_put", "_unsafe_index", "_unsafe_index_put"), _per_dim),
    **dict.fromkeys(("gather", "scatter", "scatter_add", "scatter_reduce", "index_select"), _along_dim),
    **dict.fromkeys(("index_add", "index_fill", "index_reduce"), _along_dim),
    "index_copy": lambda node: _along_dim(node, negative=True),
    "embedding": _of_table,
    "one_hot": _of_classes,
}


def _name(node: Node) -> str:
    """The operation of a call without namespace, overload and the mark of those in place; "" for others."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return ""
    return node.target._opname.rstrip("_") if not node.target._opname.startswith("__") else ""


def _origin(node: Node) -> Node:
    """What has the same elements as ``node``, as far up as only their order and integer type change."""
    while _name(node) in _REARRANGEMENTS and not node.meta["val"].dtype.is_floating_point:
        node = cast(Node, node.args[0])
    return node


def index_bounds(graph: Graph) -> dict[str, IndexBounds]:
    """By the name of a placeholder, the range that all uses of its elements as indices leave."""
    bounds: dict[str, IndexBounds] = {}
    for node in graph.nodes:
        if node.op != "call_function" or _name(node) not in _USES:
            continue
        for index, (lower, upper) in _USES[_name(node)](node):
            origin = _origin(index)
            if origin.op == "placeholder":
                known = bounds.get(origin.name, IndexBounds(lower, upper, f"aten.{_name(node)}"))
                narrower = max(lower, known.lower), min(upper, known.upper)
                bounds[origin.name] = IndexBounds(*narrower, known.operation)
    return bounds


def check_known_indices(node: Node, argument: Argument) -> None:
    """``CompileError`` for a constant or a buffer that is an index out of its range."""
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
