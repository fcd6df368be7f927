# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rewriting of operations that address the storage of a tensor, before PyTorch makes the graph functional.

A program has tensors but not storages, so ``as_strided`` is applied to the tensor for which the storage was allocated.
The same is done for a written view that PyTorch's functional form does not invert exactly: for ``expand`` and
``unfold`` it adds up the changes of all copies of an element, and loses elements that are in no window. Dropout outside
training is replaced by its operand, so that writes reach the operand.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import call_before, operands_of, schema_name
from spyre_mlir.frontend.locations import refusal_at, source_of

aten = torch.ops.aten

#: Views, and operations that may return a view, that PyTorch's functional form inverts exactly (test_storage.py).
EXACT_VIEWS = {
    "alias", "as_strided", "chunk", "contiguous", "detach", "diagonal", "flatten", "hsplit", "mT", "adjoint", "movedim",
    "narrow", "numpy_T", "permute", "reshape", "reshape_as", "select", "slice", "split", "split_with_sizes", "squeeze",
    "swapaxes", "swapdims", "t", "tensor_split", "transpose", "unbind", "unflatten", "unsqueeze", "view", "view_as",
    "vsplit",
}  # fmt: skip

#: Operations that fill with one number, so elements may share memory; the last one not if it is a broadcast.
_FILLS = (aten.zero_.default, aten.fill_.Scalar, aten.fill_.Tensor)

#: Maximum number of view elements that are checked one by one for shared memory.
_MOST_ELEMENTS = 1 << 24

#: Outside training, the result of these operations is the operand itself, not a copy.
_DROPOUTS = (
    aten.dropout.default, aten.alpha_dropout.default, aten.feature_dropout.default,
    aten.feature_alpha_dropout.default,
)  # fmt: skip


#: Statistics that norms update without a declaration in the signature, if the first named operand is true.
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
    """Yield the operands that an operation changes in place."""
    if node.target in _UNDECLARED_WRITES:
        condition, names = _UNDECLARED_WRITES[node.target]
        operands = operands_of(node)
        if operands[condition]:
            yield from (operand for name in names if isinstance(operand := operands[name], Node))
        return
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return
    if node.target is torch.ops.aten.detach_.default:
        # detach_ is in place only by name: tensors that a model makes from numbers pass through it.
        return
    operands = operands_of(node)
    for argument in node.target._schema.arguments:
        if argument.alias_info is not None and argument.alias_info.is_write:
            leaves = pytree.tree_leaves(operands.get(argument.name))
            yield from (leaf for leaf in leaves if isinstance(leaf, Node))


def written_storages(graph: Graph) -> set[int]:
    """Storages that are written by an operation of a graph."""
    operands = (operand for node in graph.nodes for operand in written_by(node))
    return {storage for operand in operands for storage in storages_of(operand)}


def address_storages(program: ExportedProgram) -> None:
    """Make ``as_strided``, and written views, address the tensor for which their storage was allocated.

    Views that PyTorch's functional form inverts exactly are kept. Dropout outside training is replaced by its operand.

    ``CompileError`` for a storage with a gap, or whose tensor is the result of a broadcast: no tensor has all its
    elements. Also for a write whose result depends on the order of elements that share memory.
    """
    graph = program.graph
    first: dict[int, Node] = {}
    for node in list(graph.nodes):
        if node.target is aten.as_strided_copy.default:
            view: Any = call_before(node, aten.as_strided.default, *node.args, **node.kwargs)
            node.target, node.args, node.kwargs = aten.clone.default, (view,), {}
            for storage in storages_of(node):
                first[storage] = node
            node = view
        storages = storages_of(node)
        for storage in storages:
            # Nodes are in order, so the first node with a storage has allocated it.
            first.setdefault(storage, node)
        if node.target is aten.as_strided.default:
            node.replace_all_uses_with(_addressed(node, node, first[next(iter(storages))]))
            graph.erase_node(node)
        elif node.target in _DROPOUTS and not node.args[2]:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        else:
            for operand in list(written_by(node)):
                _write_exactly(node, operand, first)
    graph.eliminate_dead_code()


def own_written_results(graph: Graph, decomposed: Container[Any]) -> None:
    """Copy each result of an operation in ``decomposed`` that is written through a view.

    The form of the operation may return a view with other strides, which ``flatten`` would copy.
    """
    through_views = {
        storage
        for node in graph.nodes
        for operand in written_by(node)
        if getattr(operand.target, "is_view", False)
        for storage in storages_of(operand)
    }
    for node in list(graph.nodes) if through_views else []:
        call = node.args[0] if node.target is operator.getitem else node
        is_result = isinstance(node.meta.get("val"), Tensor) and not getattr(call.target, "is_view", True)
        if is_result and call.target in decomposed and storages_of(node) & through_views:
            copied = call_before(node.next, aten.clone.default, node, memory_format=torch.contiguous_format)
            node.replace_all_uses_with(copied, delete_user_cb=lambda user, copied=copied: user is not copied)


def inexact_write(graph: Graph) -> Node | None:
    """First in-place write for which PyTorch's functional form computes other numbers; None if there is none."""
    for node in graph.nodes:
        for operand in written_by(node):
            value = operand.meta.get("val")
            if isinstance(value, Tensor) and value.layout == torch.strided:
                (storage,) = storages_of(operand)
                if shares_memory(value) or not _is_exact(operand, storage):
                    return node
    return None


def _write_exactly(node: Node, operand: Node, first: Mapping[int, Node]) -> None:
    """Make an in-place write change its operand as PyTorch does: through a view of the tensor that has the storage."""
    value = operand.meta.get("val")
    if not isinstance(value, Tensor) or value.layout != torch.strided:
        return
    is_shared = shares_memory(value)
    is_fill = node.target in _FILLS[: 2 if _is_broadcast(value) else 3]
    if is_shared and not is_fill:
        raise refusal_at(
            node,
            "It writes to a tensor whose elements share memory, as expanded tensors and overlapping windows have them, "
            "so the result depends on the order of the writes; write to a clone() or to the tensor of the view.",
        )
    (storage,) = storages_of(operand)
    origin = first[storage]
    if (_is_exact(operand, storage) and not is_shared) or origin.meta["val"].dtype != value.dtype:
        return
    if not is_shared:
        node.replace_input_with(operand, _addressed(node, operand, origin))
        return
    # One write is enough for all elements that share memory by a broadcast.
    filled = _addressed(node, operand, origin, [1 if stride == 0 else size for size, stride in _dims(value)])
    call_before(node, cast(Any, node.target), filled, *node.args[1:], **node.kwargs)
    node.replace_all_uses_with(operand)
    node.graph.erase_node(node)


def _is_exact(node: Node, storage: int) -> bool:
    """Return whether a tensor is its storage, or is made from it by views that PyTorch inverts exactly."""
    while True:
        source = next((other for other in node.all_input_nodes if storage in storages_of(other)), None)
        if source is None:
            return True
        is_view = node.target is operator.getitem or schema_name(node) in EXACT_VIEWS
        if not is_view and source not in written_by(node) and not _is_same(node, source):
            return False
        node = source


def _is_same(node: Node, source: Node) -> bool:
    """Return whether two tensors in one storage have the same elements in the same order; ``to`` may return such."""
    values = (node.meta["val"], source.meta["val"])
    if not all(isinstance(value, Tensor) for value in values):
        return False
    one, other = ((x.shape, x.stride(), x.storage_offset(), x.dtype) for x in values)
    return one == other


def _dims(value: Tensor) -> Iterator[tuple[int, int]]:
    """Size and stride of each dim of a tensor."""
    return zip(value.shape, value.stride(), strict=True)


def _is_broadcast(value: Tensor) -> bool:
    """Return whether a tensor is broadcast: several elements along a dim share memory."""
    return any(stride == 0 and size > 1 for size, stride in _dims(value))


def shares_memory(value: Tensor) -> bool:
    """Return whether two elements of a tensor share memory; True if unknown."""
    dims = sorted((stride, size) for size, stride in _dims(value) if size > 1)
    if not value.numel() or value.is_contiguous():
        return False
    extent = 1
    for stride, size in dims:
        if stride < extent:
            break
        extent = stride * (size - 1) + extent
    else:
        return False
    if _is_broadcast(value) or value.numel() > _MOST_ELEMENTS:
        return True
    places = torch.arange(_end(value), device="cpu").as_strided(value.shape, value.stride(), 0)
    return places.unique().numel() < value.numel()


def _addressed(position: Node, node: Node, origin: Node, shape: Sequence[int] | None = None) -> Node:
    """View of the tensor that has the storage, at the memory position of ``node``, built before ``position``."""
    value, whole = node.meta["val"], origin.meta["val"]
    # Memory order: among dims of equal stride, dims of size 1 are last.
    order = sorted(range(whole.ndim), key=lambda dim: (-whole.stride(dim), -whole.shape[dim], dim))
    elements = whole.untyped_storage().nbytes() // whole.element_size()
    if not whole.permute(order).is_contiguous() or whole.numel() < _end(value):
        raise CompileError(
            f"{node.target} addresses {_end(value)} of {elements} elements in memory, but '{origin.name}' is only a "
            "part of this memory; make this tensor contiguous first.",
            source_of(node),
        )
    if order != list(range(whole.ndim)):
        origin = call_before(position, aten.permute.default, origin, order)
    shape = list(shape or value.shape)
    if math.prod(shape) == 1:
        # PyTorch writes through a view of a view, but not of as_strided; torch-mlir's as_strided requires dims.
        flat = call_before(position, aten.view.default, origin, [-1])
        element = call_before(position, aten.select.int, flat, 0, value.storage_offset())
        return call_before(position, aten.view.default, element, shape) if shape else element
    if not whole.ndim:
        return call_before(position, aten.expand.default, origin, shape)
    place = (list(value.stride()), value.storage_offset())
    return call_before(position, aten.as_strided.default, origin, shape, *place)


def _end(value: Tensor) -> int:
    """Index after the last element of a tensor in memory."""
    if not value.numel():
        return 0
    steps = ((size - 1) * stride for size, stride in zip(value.shape, value.stride(), strict=True))
    return int(value.storage_offset() + sum(steps) + 1)
