# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Normal form of operands for torch-mlir's passes: non-negative dims and indices, and tensors with elements.

torch-mlir aborts on other operands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import call_before, metadata_for, operands_of, schema_name
from spyre_mlir.frontend.locations import source_of

aten = torch.ops.aten

_DIMS = {"dim", "dims", "dim0", "dim1", "dim2"}
#: Operations whose dim refers to the result, which has another rank.
_NEW_DIM = (aten.unsqueeze.default, aten.stack.default)
#: Operations that decompose into ``index_put`` but do not accept negative indices.
_WITHOUT_NEGATIVE_INDICES = ("aten.index_add.default", "aten.index_copy.default")
#: Names of operations that write nothing if their source or their index has no elements.
_WRITES = {
    "index_put", "index_add", "index_copy", "index_fill", "scatter", "scatter_add", "scatter_reduce", "index_reduce",
    "masked_scatter", "slice_scatter", "select_scatter", "put", "_unsafe_index_put",
}  # fmt: skip


def count_dims_from_the_front(graph: Graph) -> None:
    """Replace each negative dim of an operation by the equivalent non-negative dim."""
    for node in graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload) or node.target in _NEW_DIM:
            continue
        rank = _rank(node)
        for number, argument in enumerate(node.target._schema.arguments):
            if argument.name not in _DIMS or not rank:
                continue
            if number < len(node.args):
                node.update_arg(number, _from_the_front(node.args[number], rank))
            elif argument.name in node.kwargs:
                node.update_kwarg(argument.name, _from_the_front(node.kwargs[argument.name], rank))


def count_indices_from_the_front(graph: Graph) -> None:
    """Replace each negative index of ``index_put`` by the equivalent index; other operations do not accept any."""
    for node in graph.find_nodes(op="call_function", target=aten.index_put.default):
        if str(node.meta.get("original_aten")) in _WITHOUT_NEGATIVE_INDICES:
            continue
        shape = node.args[0].meta["val"].shape
        with graph.inserting_before(node):
            indices = [
                index and _position(graph, index, size)
                for index, size in zip(node.args[1], shape, strict=False)
            ]
        node.update_arg(1, indices)


def convert_copied_values(graph: Graph) -> None:
    """Convert the value that ``copy_`` writes to the type and shape of the tensor that it writes to.

    If a whole buffer is written, PyTorch's decomposition replaces the copy by the value itself.
    """
    for node in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target, source, *_ = operands_of(node).values()
        written, value = target.meta["val"], source.meta["val"]
        converted = source
        if value.dtype != written.dtype:
            converted = call_before(node, aten._to_copy.default, converted, dtype=written.dtype)
        if value.shape != written.shape:
            converted = call_before(node, aten.expand.default, converted, list(written.shape))
        if converted is not source:
            node.replace_input_with(source, converted)


def compare_with_itself(graph: Graph) -> None:
    """Rewrite ``x == x``, which torch-mlir folds to true, as ``x >= x``: both are false if x is NaN."""
    for node in graph.find_nodes(op="call_function", target=aten.eq.Tensor):
        if node.args[0] is node.args[1]:
            node.target = aten.ge.Tensor


def _position(graph: Graph, index: Node, size: int) -> Node:
    """Index plus size if the index is from -size to -1, else the index itself."""
    # A mask, not an index.
    if index.meta["val"].dtype in (torch.bool, torch.uint8):
        return index

    def call(operation: torch._ops.OpOverload, *operands: Any) -> Node:
        """Return a new operation with the metadata of the index."""
        node = graph.call_function(operation, operands)
        values = pytree.tree_map_only(Node, lambda operand: operand.meta["val"], operands)
        node.meta = metadata_for(index, operation(*values))
        return node

    is_negative = call(aten.lt.Scalar, index, 0)
    # An index below -size stays negative, so that the check at run time finds it.
    is_position = call(aten.ge.Scalar, index, -size)
    counts = call(aten.logical_and.default, is_negative, is_position)
    return call(aten.where.self, counts, call(aten.add.Tensor, index, size), index)


def _rank(node: Node) -> int:
    """Rank of the first tensor operand of an operation; 0 if it does not have one."""
    sources = (source.meta.get("val") for source in node.all_input_nodes)
    return next((value.ndim for value in sources if isinstance(value, Tensor)), 0)


def _from_the_front(dims: Any, rank: int) -> Any:
    """Return a dim, or a list of dims, as non-negative numbers."""
    if isinstance(dims, int):
        return dims + rank if dims < 0 else dims
    return [_from_the_front(dim, rank) for dim in dims] if isinstance(dims, (list, tuple)) else dims


def is_empty(node: Node) -> bool:
    """Return whether a node is a tensor without elements."""
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.numel() == 0


def drop_empty_operands(graph: Graph, known: Mapping[Node, Any]) -> None:
    """Remove operations that write no element; folding has evaluated all nodes that depend on empty tensors alone.

    Raises ``CompileError`` for another operation that has elements and an operand without elements.
    """
    for node in list(graph.nodes):
        empty = [source for source in node.all_input_nodes if is_empty(source)]
        if node.op != "call_function" or not empty or node in known:
            continue
        written = pytree.tree_leaves(node.args)[0]
        if schema_name(node) not in _WRITES or is_empty(written):
            message = f"{node.target} of a tensor without elements is not supported."
            raise CompileError(message, source_of(node))
        node.replace_all_uses_with(written)
        graph.erase_node(node)
