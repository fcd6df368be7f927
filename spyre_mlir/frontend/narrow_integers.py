# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arithmetic on 8-bit integers in 32 bits: torch-mlir aborts on some of it, such as matmuls of bytes."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree

from spyre_mlir.frontend.graph_edits import dtype_of, metadata_for
from spyre_mlir.frontend.pointwise import within

_NARROW = (torch.int8, torch.uint8)
_INTEGERS = (*_NARROW, torch.int16, torch.int32)
#: Operations that move unsigned bytes without interpreting them.
_MOVES = {
    "aten::cat", "aten::slice", "aten::view", "aten::reshape", "aten::expand", "aten::permute", "aten::select",
    "aten::unsqueeze", "aten::squeeze", "aten::clone", "aten::alias", "aten::flip", "aten::transpose", "aten::t",
    "prims::convert_element_type", "aten::_to_copy", "aten::_assert_tensor_metadata",
}  # fmt: skip
#: Operations whose result is the last 8 bits of a 32-bit sum of products.
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
_CAST = torch.ops.prims.convert_element_type.default
_CASTS = ("prims::convert_element_type", "aten::_to_copy")


def widen_narrow_integers(graph: Graph) -> None:
    """Convert numbers to the integer types of the tensors that they are combined with, and 8 bits to 32 bits.

    Compute matmuls and pointwise operations on 8-bit integers in int32, and truncate 8-bit results. The last 8 bits of
    sums, differences and products are the same; quotients and comparisons of 8-bit numbers do not overflow. torch-mlir
    reads unsigned bytes as signed bytes, and int32 distinguishes the two, so every operation that interprets unsigned
    bytes is computed in int32, including casts from floats to unsigned bytes.
    """
    for node in list(graph.nodes):
        if _is_pointwise(node):
            _narrow_operands(graph, node)
        if node.target in _PRODUCTS or _is_pointwise(node):
            _widen(graph, node)
        elif _is_float_to_bytes(node):
            with graph.inserting_before(node):
                node.replace_input_with(source := node.all_input_nodes[0], _cast(graph, source, torch.int32))
        elif isinstance(node.target, torch._ops.OpOverload):
            _widen_operation(graph, node)


def _is_float_to_bytes(node: Node) -> bool:
    """Return whether a node casts floats to unsigned bytes: it casts through int32, because 8-bit casts are signed."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.name not in _CASTS:
        return False
    return dtype_of(node) == torch.uint8 and node.all_input_nodes[0].meta["val"].is_floating_point()


def _widen_operation(graph: Graph, node: Node) -> None:
    """Compute an operation that interprets bytes in int32, and truncate its 8-bit results.

    These are all operations on unsigned bytes except moves, and reductions of signed bytes.
    """
    assert isinstance(node.target, torch._ops.OpOverload)
    read = _NARROW if torch.Tag.reduction in node.target.tags else (torch.uint8,)
    narrow = [source for source in node.all_input_nodes if dtype_of(source) in read]
    if not narrow or node.target._schema.name in _MOVES:
        return
    # For unsigned bytes, the results of PyTorch's any and all are bytes.
    dtype = torch.bool if node.target._schema.name in ("aten::any", "aten::all") else torch.int32
    with graph.inserting_before(node):
        wide = {source: _cast(graph, source, dtype) for source in narrow}
    node.args = map_arg(node.args, lambda source: wide.get(source, source))
    node.kwargs = map_arg(node.kwargs, lambda source: wide.get(source, source))
    if node.kwargs.get("dtype") in read:
        node.update_kwarg("dtype", torch.int32)
    is_list = not isinstance(node.meta["val"], torch.Tensor)
    for result in list(node.users) if is_list else [node]:
        if dtype_of(result) in read:
            _cut_down(graph, result, dtype)
    if is_list:
        values = node.meta["val"]
        node.meta = metadata_for(
            node,
            pytree.tree_map_only(torch.Tensor, lambda x: x.to(torch.int32) if x.dtype in read else x, values),
        )


def _cut_down(graph: Graph, node: Node, dtype: torch.dtype = torch.int32) -> None:
    """Compute an 8-bit node in another type, and let its readers read the last 8 bits of the result."""
    narrow = node.meta["val"].dtype
    node.meta = metadata_for(node, node.meta["val"].to(dtype))
    with graph.inserting_after(node):
        back = _cast(graph, node, narrow)
    # The cast itself reads the wide result.
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)


def _is_pointwise(node: Node) -> bool:
    """Return whether a node computes elementwise, in the type of its operands."""
    if (
        node.op != "call_function"
        or node.target is _CAST
        or not isinstance(node.target, torch._ops.OpOverload)
    ):
        return False
    if node.target._schema.name in _MOVES:
        return False
    return torch.Tag.pointwise in node.target.tags and "dtype" not in node.kwargs


def _narrow_operands(graph: Graph, node: Node) -> None:
    """Convert the operands of an operation, including numbers, to the integer type that PyTorch computes in."""
    values = {source: source.meta["val"] for source in node.all_input_nodes if dtype_of(source) is not None}
    tensors = {source: x for source, x in values.items() if x.dtype != torch.bool}
    # PyTorch's rule: tensors without dims determine the type only if there are no other tensors.
    dtypes = [x.dtype for x in tensors.values() if x.ndim] or [x.dtype for x in tensors.values()]
    common = functools.reduce(torch.promote_types, dtypes, torch.bool)
    if common not in _INTEGERS or dtype_of(node) not in (common, torch.bool):
        return
    with graph.inserting_before(node):
        cast = {source: _cast(graph, source, common) for source, x in tensors.items() if x.dtype != common}

    def narrow(argument: Any) -> Any:
        """Return an operand in the common type."""
        if isinstance(argument, Node):
            return cast.get(argument, argument)
        is_number = isinstance(argument, int) and not isinstance(argument, bool)
        return within(argument, common) if is_number else argument

    node.args = map_aggregate(node.args, narrow)
    node.kwargs = map_aggregate(node.kwargs, narrow)


def _widen(graph: Graph, node: Node) -> None:
    """Compute an operation on 8-bit integers in int32."""
    with graph.inserting_before(node):
        wide = {
            source: _cast(graph, source, torch.int32) for source in node.all_input_nodes if _is_8_bit(source)
        }
    node.args = map_arg(node.args, lambda source: wide.get(source, source))
    if not _is_8_bit(node):
        return
    _cut_down(graph, node)


def _is_8_bit(node: Node) -> bool:
    return dtype_of(node) in _NARROW


def _cast(graph: Graph, node: Node, dtype: torch.dtype) -> Node:
    cast = graph.call_function(_CAST, (node, dtype))
    cast.meta = metadata_for(node, node.meta["val"].to(dtype))
    return cast
