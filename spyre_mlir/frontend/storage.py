# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewriting of operations that address the storage of a tensor, before PyTorch makes them functional.

A program has tensors and no storages, so ``as_strided`` becomes one of the tensor that the storage was made for. So
does ``unfold`` where the storage is written: PyTorch takes its gradient for its inverse, and loses what no window has.
Dropout outside training is its operand, to be written through.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import call_before, operands_of
from spyre_mlir.frontend.locations import source_of

aten = torch.ops.aten

#: Outside training their result is their operand, not a copy.
_DROPOUTS = (
    aten.dropout.default, aten.alpha_dropout.default, aten.feature_dropout.default,
    aten.feature_alpha_dropout.default,
)  # fmt: skip


#: Statistics that norms update without a word in their schema, where the operand that comes first is true.
_UNDECLARED_WRITES: dict[Any, tuple[str, tuple[str, ...]]] = {
    aten.batch_norm.default: ("training", ("running_mean", "running_var")),
    aten.native_batch_norm.default: ("training", ("running_mean", "running_var")),
    aten.cudnn_batch_norm.default: ("training", ("running_mean", "running_var")),
    aten.instance_norm.default: ("use_input_stats", ("running_mean", "running_var")),
}  # fmt: skip


def storages_of(node: Node) -> set[int]:
    """Storages of the tensors that a node returns."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return {
        StorageWeakRef(leaf.untyped_storage()).cdata
        for leaf in leaves
        if isinstance(leaf, Tensor) and leaf.layout == torch.strided
    }


def written_by(node: Node) -> Iterator[Node]:
    """Operands that an operation changes in place."""
    if node.target in _UNDECLARED_WRITES:
        condition, names = _UNDECLARED_WRITES[node.target]
        operands = operands_of(node)
        if operands[condition]:
            yield from (operand for name in names if isinstance(operand := operands[name], Node))
        return
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return
    if node.target is torch.ops.aten.detach_.default:
        # It is in place by its name only: what a model makes from numbers passes through it.
        return
    operands = operands_of(node)
    for argument in node.target._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            leaves = pytree.tree_leaves(operands.get(argument.name))
            yield from (leaf for leaf in leaves if isinstance(leaf, Node))


def written_storages(graph: Graph) -> set[int]:
    """Storages that an operation of a graph writes."""
    operands = (operand for node in graph.nodes for operand in written_by(node))
    return {storage for operand in operands for storage in storages_of(operand)}


def address_storages(program: ExportedProgram) -> None:
    """Make ``as_strided``, and ``unfold`` of what is written, address the tensor that their storage was allocated for.

    Dropout outside training is replaced by its operand.

    A storage with a gap, or one whose tensor a broadcast returned, is a ``CompileError``: nothing has its elements.
    """
    graph = program.graph
    written = written_storages(graph)
    first: dict[int, Node] = {}
    for node in list(graph.nodes):
        storages = storages_of(node)
        for storage in storages:
            # Nodes are in order, so the first one with a storage has allocated it.
            first.setdefault(storage, node)
        is_written_window = node.target is aten.unfold.default and storages & written
        if node.target is aten.as_strided.default or is_written_window:
            _address(node, first[next(iter(storages))])
        elif node.target in _DROPOUTS and not node.args[2]:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def _address(node: Node, origin: Node) -> None:
    """Replace a node by a view, with its sizes, strides and offset, of the tensor that has the storage."""
    value, whole = node.meta["val"], origin.meta["val"]
    # Memory order: of dims with one stride, those of size 1 go last.
    order = sorted(range(whole.ndim), key=lambda dim: (-whole.stride(dim), -whole.shape[dim], dim))
    elements = whole.untyped_storage().nbytes() // whole.element_size()
    if not whole.permute(order).is_contiguous() or whole.numel() < _end(value):
        raise CompileError(
            f"{node.target} addresses {_end(value)} of {elements} elements in memory, of which the tensor that the "
            f"program has there, '{origin.name}', is only a part; make that contiguous before.",
            source_of(node),
        )
    if order != list(range(whole.ndim)):
        origin = call_before(node, aten.permute.default, origin, order)
    sizes = (list(value.shape), list(value.stride()), value.storage_offset())
    addressed = call_before(node, aten.as_strided.default, origin, *sizes)
    node.replace_all_uses_with(addressed)
    node.graph.erase_node(node)


def _end(value: Tensor) -> int:
    """Index behind the last element in memory that a tensor has."""
    if not value.numel():
        return 0
    steps = ((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return int(value.storage_offset() + sum(steps) + 1)
