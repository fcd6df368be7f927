# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Normal form of a graph for torch-mlir: non-negative dims and indices, tensors with elements and dims, wide integers.

torch-mlir aborts on other operands, or does not lower them. Further rewrites make scatters and lookups cheaper.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import Graph, Node
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import call_before, dtype_of, metadata_for, operands_of, schema_name
from spyre_mlir.frontend.locations import source_of
from spyre_mlir.frontend.pointwise import within

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
        if not isinstance(node.target, OpOverload) or node.target in _NEW_DIM:
            continue
        sources = (source.meta.get("val") for source in node.all_input_nodes)
        rank = next((value.ndim for value in sources if isinstance(value, Tensor)), 0)
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
        indices = []
        for index, size in zip(node.args[1], node.args[0].meta["val"].shape, strict=False):
            # A mask is not an index.
            if index is not None and index.meta["val"].dtype not in (torch.bool, torch.uint8):
                index = _position(node, index, size)
            indices.append(index)
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


def _position(node: Node, index: Node, size: int) -> Node:
    """Index of ``node`` plus size if the index is from -size to -1, else the index itself."""

    def call(operation: OpOverload, *operands: Any) -> Node:
        with node.graph.inserting_before(node):
            new = node.graph.call_function(operation, operands)
        values = pytree.tree_map_only(Node, lambda operand: operand.meta["val"], operands)
        new.meta = metadata_for(index, operation(*values))
        return new

    is_negative = call(aten.lt.Scalar, index, 0)
    # An index below -size stays negative, so that the check at run time finds it.
    is_position = call(aten.ge.Scalar, index, -size)
    counts = call(aten.logical_and.default, is_negative, is_position)
    return call(aten.where.self, counts, call(aten.add.Tensor, index, size), index)


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


# Arithmetic on 8-bit integers in 32 bits: torch-mlir aborts on some of it, such as matmuls of bytes.


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
    bytes is computed in int32, including casts from floats to unsigned bytes and reductions of signed bytes.
    """
    for node in list(graph.nodes):
        if not isinstance(node.target, OpOverload):
            continue
        name, tags = node.target._schema.name, node.target.tags
        # Elementwise, in the type of the operands.
        is_pointwise = torch.Tag.pointwise in tags and name not in _MOVES and "dtype" not in node.kwargs
        if is_pointwise:
            _convert_to_common_integer(graph, node)
        read = _NARROW if torch.Tag.reduction in tags else (torch.uint8,)
        if is_pointwise or node.target in _PRODUCTS:
            _widen(graph, node, _NARROW, torch.int32)
        elif name in _CASTS and dtype_of(node) == torch.uint8:
            source = node.all_input_nodes[0]
            if source.meta["val"].is_floating_point():
                with graph.inserting_before(node):
                    node.replace_input_with(source, _cast(graph, source, torch.int32))
        elif name not in _MOVES and any(dtype_of(source) in read for source in node.all_input_nodes):
            # For unsigned bytes, the results of PyTorch's any and all are bytes.
            _widen(graph, node, read, torch.bool if name in ("aten::any", "aten::all") else torch.int32)


def _convert_to_common_integer(graph: Graph, node: Node) -> None:
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

    def convert(argument: Any) -> Any:
        if isinstance(argument, Node):
            return cast.get(argument, argument)
        is_number = isinstance(argument, int) and not isinstance(argument, bool)
        return within(argument, common) if is_number else argument

    node.args, node.kwargs = map_aggregate(node.args, convert), map_aggregate(node.kwargs, convert)


def _widen(graph: Graph, node: Node, narrow: tuple[torch.dtype, ...], dtype: torch.dtype) -> None:
    """Compute an operation on operands of ``narrow`` types in ``dtype``, and truncate its results of these types."""
    with graph.inserting_before(node):
        wide = {
            source: _cast(graph, source, dtype)
            for source in node.all_input_nodes
            if dtype_of(source) in narrow
        }
    node.args = map_arg(node.args, lambda source: wide.get(source, source))
    node.kwargs = map_arg(node.kwargs, lambda source: wide.get(source, source))
    if node.kwargs.get("dtype") in narrow:
        node.update_kwarg("dtype", torch.int32)
    value = node.meta["val"]
    is_tensor = isinstance(value, Tensor)
    for result in [node] if is_tensor else list(node.users):
        if (truncated := dtype_of(result)) in narrow:
            result.meta = metadata_for(result, result.meta["val"].to(dtype))
            with graph.inserting_after(result):
                back = _cast(graph, result, truncated)
            # The cast itself reads the wide result.
            result.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
    if not is_tensor:
        widened = pytree.tree_map_only(Tensor, lambda x: x.to(torch.int32) if x.dtype in narrow else x, value)
        node.meta = metadata_for(node, widened)


def _cast(graph: Graph, node: Node, dtype: torch.dtype) -> Node:
    cast = graph.call_function(_CAST, (node, dtype))
    cast.meta = metadata_for(node, node.meta["val"].to(dtype))
    return cast


# Scatters of whole rows, like ``index_copy``: the index is repeated for all elements of a row.

_COPIES = {
    aten.scatter.src: aten.index_copy.default,
    aten.scatter_.src: aten.index_copy_.default,
}


def copy_scattered_rows(graph: Graph) -> None:
    """Rewrite scatter(x, dim, expand(index), rows) as index_copy(x, dim, index, rows), with one index per row.

    This runs before decomposition, which compares the elements of an index.
    """
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _COPIES:
            continue
        operands = operands_of(node)
        index = _index_of_rows(operands["self"], operands["dim"], operands["index"], operands["src"])
        if index is None:
            continue
        flat = call_before(node, aten.reshape.default, index, [-1])
        node.target = _COPIES[node.target]
        node.args = (operands["self"], operands["dim"], flat, operands["src"])
        node.kwargs = {}


def _index_of_rows(x: Node, dim: int, index: Node, rows: Node) -> Node | None:
    """Return the tensor that an index repeats for all elements of each row; None for another index."""
    if index.op != "call_function" or index.target not in (aten.expand.default, aten.expand_as.default):
        return None
    source = cast(Node, index.args[0])
    shapes = [list(node.meta["val"].shape) for node in (x, index, rows, source)]
    shape, repeated, values, single = shapes
    if not shape or values != repeated or len(repeated) != len(shape):
        return None
    dim %= len(shape)
    single = [1] * (len(shape) - len(single)) + single
    is_whole = all(size == shape[d] for d, size in enumerate(repeated) if d != dim)
    is_single = all(size == 1 for d, size in enumerate(single) if d != dim) and single[dim] == repeated[dim]
    return source if is_whole and is_single else None


# Tensors without dims as tensors of one dim of size 1, for operations along a dim: PyTorch accepts both.
#
# Decompositions and torch-mlir look only at the rank of an operand, and do not find a dim 0 in a scalar.

#: Names of operands that are dims.
_DIM_NAMES = ("dim", "dims")
#: Operations along a dim whose schema does not have such a name, or that reduce all dims.
_ALONG_ALL = {"median", "nanmedian"}


def give_scalars_a_dim(graph: Graph) -> None:
    """Rewrite operations along a dim of tensors without dims to use tensors of one dim of size 1, in place.

    The results of the operations are replaced by their only elements.
    """
    for node in list(graph.nodes):
        if node.op != "call_function" or not _has_dim_argument(node):
            continue
        sources = {
            source: call_before(node, aten.reshape.default, source, [1]) for source in node.all_input_nodes
        }
        args, kwargs = map_arg((node.args, node.kwargs), sources.__getitem__)
        result = call_before(node, node.target, *args, **kwargs)
        if isinstance(node.meta["val"], Tensor):
            _replace(node, call_before(node, aten.reshape.default, result, []))
            continue
        for user in list(node.users):
            index = user.args[1]
            with graph.inserting_before(node):
                part = graph.call_function(operator.getitem, (result, index))
            part.meta = metadata_for(user, result.meta["val"][index])
            _replace(user, call_before(node, aten.reshape.default, part, []))
        graph.erase_node(node)


def _has_dim_argument(node: Node) -> bool:
    """Return whether all operands and results of an operation are without dims, and it works along a dim."""
    target = node.target
    if not isinstance(target, OpOverload) or target.is_view or target._schema.is_mutable:
        return False
    along = any(argument.name in _DIM_NAMES for argument in target._schema.arguments)
    if not node.all_input_nodes or not (along or schema_name(node) in _ALONG_ALL):
        return False
    values = [source.meta.get("val") for source in node.all_input_nodes]
    results = node.meta["val"] if isinstance(node.meta["val"], (tuple, list)) else [node.meta["val"]]
    return all(isinstance(value, Tensor) and value.ndim == 0 for value in (*values, *results))


def _replace(node: Node, value: Node) -> None:
    """Replace a node by a value that takes over the name of the node, to which the signature of a program refers."""
    name = node.name
    node.replace_all_uses_with(value)
    node.graph.erase_node(node)
    value._rename(name)


# Lookups that become cheaper: embeddings by one known number, and gathers of pointwise results.


def fold_uniform_lookups(graph: Graph) -> None:
    """Rewrite embedding(table, full(shape, row)) as expand(slice(table, row), shape): a view instead of a gather.

    This runs after constant folding, which writes a tensor of equal elements as ``aten.full``.
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
    """Rewrite gather(f(a, b), index) as f(gather(a, index), gather(b, index)), where f is a pointwise operation.

    The host looks up single elements. For log probabilities, as in a cross entropy, the host then looks up logits,
    which it has, and the device does not compute and write all others. ``b`` may be the same for all positions.
    """
    gathers = list(graph.find_nodes(op="call_function", target=aten.gather.default))
    while gathers:
        gather = gathers.pop()
        source, dim, index = cast(tuple[Node, int, Node], gather.args[:3])
        sizes, extents = (list(node.meta["val"].shape) for node in (index, source))
        # The index selects fewer positions of the dim than exist, and all positions of the other dims.
        is_smaller = bool(extents) and sizes[dim] < extents[dim]
        if not is_smaller or any(
            sizes[d] != extents[d] for d in range(len(extents)) if d != dim % len(extents)
        ):
            continue
        if not _moves(source, dim):
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
        operation = cast(OpOverload, source.target)
        gather.replace_all_uses_with(call_before(gather, operation, *operands, **source.kwargs))
        graph.erase_node(gather)


def _moves(source: Node, dim: int) -> bool:
    """Return whether a gather along a dim may move before the pointwise operation that it reads."""
    target, value = source.target, source.meta["val"]
    if not isinstance(target, OpOverload) or not isinstance(value, Tensor):
        return False
    # Random numbers would differ in another shape.
    if torch.Tag.pointwise not in target.tags or torch.Tag.nondeterministic_seeded in target.tags:
        return False
    whole, axis = _whole_operands(source), dim - value.ndim
    for operand in source.all_input_nodes:
        sizes = operand.meta["val"].shape
        # A smaller operand must have one position along the dim.
        if operand not in whole and len(sizes) >= -axis and sizes[axis] != 1:
            return False
    return bool(whole) and all(
        operand.op == "placeholder" or len(operand.users) > 1 or _moves(operand, dim) for operand in whole
    )


def _whole_operands(node: Node) -> list[Node]:
    """Return the operands that have the same shape as the result."""
    shape = node.meta["val"].shape
    return [operand for operand in node.all_input_nodes if operand.meta["val"].shape == shape]


def drop_empty_parts(graph: Graph) -> None:
    """Remove operands without elements from concatenations, such as the first keys of an empty cache."""
    for node in graph.find_nodes(op="call_function", target=aten.cat.default):
        parts = [part for part in cast(Sequence[Node], node.args[0]) if part.meta["val"].numel()]
        if len(parts) == 1:
            node.replace_all_uses_with(parts[0])
        elif parts:
            node.args = (parts, *node.args[1:])
