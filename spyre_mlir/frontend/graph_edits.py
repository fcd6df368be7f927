# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reading and building nodes of an FX graph of PyTorch operations."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Hashable, Iterable
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Graph, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

#: Types of arguments that are compared by their text, because 1, 1.0 and True are equal.
_PLAIN = (
    bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(None), type(...),
)  # fmt: skip


def argument_key(
    argument: Any, operand_type: type | tuple[type, ...], operand_key: Callable[[Any], Hashable]
) -> Hashable:
    """Key of an argument of a call; equal arguments have equal keys. ``operand_key`` gives the keys of operands.

    An argument of a type that operations do not take is equal only to itself.
    """
    if isinstance(argument, operand_type):
        return operand_type, operand_key(argument)
    if isinstance(argument, dict):
        return dict, *(
            (name, argument_key(value, operand_type, operand_key)) for name, value in argument.items()
        )
    if isinstance(argument, (tuple, list)):
        # FX has its own lists and tuples.
        kind = tuple if isinstance(argument, tuple) else list
        return kind, *(argument_key(value, operand_type, operand_key) for value in argument)
    if isinstance(argument, slice):
        bounds = argument.start, argument.stop, argument.step
        return slice, *(argument_key(value, operand_type, operand_key) for value in bounds)
    return type(argument), repr(argument) if is_plain(argument) else id(argument)


def is_plain(argument: Any) -> bool:
    """Return whether the text of an argument distinguishes it from other arguments of its type."""
    return type(argument) in _PLAIN


def tensor_key(tensor: torch.Tensor) -> Hashable:
    """Key of a tensor of known size without data: everything that an operation can depend on."""
    # The storage of an input that is a view has a symbolic size, which cannot be a key.
    size = str(tensor.untyped_storage().nbytes())
    layout = tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), size
    return tensor.dtype, tensor.device, *layout, tensor.requires_grad, tensor.is_conj(), tensor.is_neg()


def call_key(target: Any, args: Any, kwargs: Any) -> Hashable:
    """Key of a call on nodes or on tensors; calls of one operation that differ only in data have equal keys."""

    def key(value: Any) -> Hashable:
        """Key of an operand: shapes and types of its tensors."""
        leaves = pytree.tree_leaves(value.meta.get("val") if isinstance(value, Node) else value)
        return tuple(
            (str(leaf.dtype), tuple(map(str, leaf.shape)))
            for leaf in leaves
            if isinstance(leaf, torch.Tensor)
        )

    operands = (Node, torch.Tensor)
    return target, argument_key(args, operands, key), argument_key(kwargs, operands, key)


def operation_name(node: Node) -> str:
    """Name of the called ATen operation without namespace, overload and in-place underscore; "" for other nodes."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target.namespace != "aten":
        return ""
    return node.target._opname.rstrip("_") if not node.target._opname.startswith("__") else ""


def schema_name(node: Node) -> str:
    """Name of the called operation in its schema, without the namespace ``aten``; "" for other nodes."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return ""
    return node.target._schema.name.removeprefix("aten::")


def overload_of(name: str) -> Any:
    """ATen overload for a name such as ``add.Tensor``; without an overload name, the default overload."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def dtype_of(node: Node) -> torch.dtype | None:
    """Element type of the tensor that a node computes; None for another value."""
    value = node.meta.get("val")
    return value.dtype if isinstance(value, torch.Tensor) else None


def metadata_for(node: Node, value: Any) -> dict[str, Any]:
    """Metadata of a node for a node with the fake ``value``, without ``tensor_meta``, which describes the old value."""
    return {key: entry for key, entry in node.meta.items() if key != "tensor_meta"} | {"val": value}


def operands_of(node: Node) -> dict[str, Any]:
    """Operands of a call by their names in the operation's schema."""
    names = (argument.name for argument in cast(torch._ops.OpOverload, node.target)._schema.arguments)
    return {**dict(zip(names, node.args, strict=False)), **node.kwargs}


def call_before(position: Node, target: torch._ops.OpOverload, *args: Any, **named: Any) -> Node:
    """New operation before the node ``position``, with the source line of ``position`` and the type of its result."""
    with position.graph.inserting_before(position):
        node = position.graph.call_function(target, args, named)
    values = map_arg((args, named), lambda source: source.meta["val"])
    # An operation without tensors, such as an assertion on a number, uses the mode of the rest of its graph.
    others = (other.meta.get("val") for other in position.graph.nodes)
    leaves = itertools.chain(pytree.tree_leaves((values, position.meta.get("val"))), others)
    tensor = next(leaf for leaf in leaves if isinstance(leaf, FakeTensor))
    # Shapes are computed on fake tensors of the mode that the graph was traced in.
    with tensor.fake_mode:
        node.meta = metadata_for(position, target(*values[0], **values[1]))
    return node


def copy_calls(position: Node, graph: Graph, operands: Iterable[Node]) -> Any:
    """Copy the calls of a traced graph before the node ``position``, with its source line; return the results."""
    copies = dict(zip(graph.find_nodes(op="placeholder"), operands, strict=True))
    with position.graph.inserting_before(position):
        for node in graph.nodes:
            if node.op not in ("placeholder", "output"):
                copies[node] = position.graph.node_copy(node, copies.__getitem__)
                copies[node].meta = metadata_for(position, node.meta["val"])
    return map_arg(graph.output_node().args[0], copies.__getitem__)


def as_function(
    module: torch.nn.Module, graph: Graph, readable: Callable[[str], str] = str
) -> Callable[..., Any]:
    """Return a graph on the attributes of ``module`` as a function with a parameter for each input.

    ``readable`` returns the name of a parameter for the name of an input.
    """

    def replay(*inputs: Any) -> Any:
        """Run the graph node by node, so that the called operations keep the metadata of the nodes."""
        return Interpreter(module, graph=graph).run(*inputs)

    names = [readable(str(node.target)) for node in graph.find_nodes(op="placeholder")]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    replay.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])
    return replay
