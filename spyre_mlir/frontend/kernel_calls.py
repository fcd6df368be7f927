# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Nodes of a graph as calls of PyTorch's own kernels (``dialects/torch_call.py``), for nodes without a linalg form."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from typing import Any, cast

import torch
from torch.fx import Graph, Node

from spyre_mlir.dialects.torch_call import COLLECTIVES, DTYPE, OPERAND, TorchCall
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.graph_edits import call_key, operands_of
from spyre_mlir.host.torch_kernels import ALLOWED, DTYPES, MODES, is_unsaid, refusal_of
from spyre_mlir.mlir import ir
from spyre_mlir.target.element_types import dtype_name

#: Metadata key of a node that becomes a call of PyTorch's kernel.
KERNEL = "spyre.kernel"


def _is_rounded_down(node: Node) -> bool:
    return node.kwargs.get("rounding_mode") == "floor"


#: Operators that need an exact remainder, with a condition on the call.
_EXACT = {
    torch.ops.aten.fmod.Tensor: lambda node: True,
    torch.ops.aten.fmod.Scalar: lambda node: True,
    torch.ops.aten.div.Tensor_mode: _is_rounded_down,
    torch.ops.aten.div.Scalar_mode: _is_rounded_down,
}


class UnloweredError(CompileError):
    """Raised for operations without a linalg form; ``nodes`` are the names of the nodes that they come from."""

    def __init__(self, message: str, location: str, nodes: frozenset[str]) -> None:
        super().__init__(message, location)
        self.nodes = nodes


def nodes_of(location: ir.Location) -> Iterator[str]:
    """Yield the names of the nodes in the metadata of a location tree."""
    if isinstance(location, ir.FusedLoc):
        metadata = location.metadata and location.metadata.maybe_downcast()
        if isinstance(metadata, ir.DictAttr) and "node" in metadata:
            yield ir.StringAttr(metadata["node"]).value
        for part in location.locations:
            yield from nodes_of(part)
    elif isinstance(location, ir.CallSiteLoc):
        yield from nodes_of(location.callee)
        yield from nodes_of(location.caller)
    elif isinstance(location, ir.NameLoc):
        yield from nodes_of(location.child_loc)


def is_collective(node: Node) -> bool:
    """Return whether a node is an operation of ``_c10d_functional``."""
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == COLLECTIVES


def mark_exact_kernels(graph: Graph) -> None:
    """Mark collectives, and ``fmod`` and floor divisions of numbers with at least 32 bits, as calls of kernels.

    Divisions need the exact remainder. x - y * trunc(x / y) rounds a quotient just below an integer to that integer.
    """
    for node in graph.nodes:
        if is_collective(node):
            node.meta[KERNEL] = True
    for operator_, is_exact in _EXACT.items():
        for node in graph.find_nodes(op="call_function", target=operator_):
            result = node.meta.get("val")
            is_wide = isinstance(result, torch.Tensor) and result.dtype in (torch.float32, torch.float64)
            if is_wide and is_exact(node) and can_be_kernel(node):
                node.meta[KERNEL] = True


def mark_kernels(graph: Graph, names: Collection[str]) -> bool:
    """Mark nodes, and equal calls, as calls of kernels; return whether any node is newly marked."""
    calls = {
        call_key(node.target, node.args, node.kwargs)
        for node in graph.nodes
        if node.name in names and KERNEL not in node.meta and can_be_kernel(node)
    }
    for node in graph.nodes if calls else ():
        if call_key(node.target, node.args, node.kwargs) in calls:
            node.meta[KERNEL] = True
    return bool(calls)


def can_be_kernel(node: Node) -> bool:
    """Return whether a host function can call the operator of a node with its arguments."""
    if not isinstance(node.target, torch._ops.OpOverload) or refusal_of(node.target) is not None:
        return False
    results = kept_results(node)
    tensors = [*(operand.meta.get("val") for operand in node.all_input_nodes), *results.values()]
    if not results or not all(map(_is_plain_tensor, tensors)):
        return False
    try:
        _arguments(node)
    except ValueError:
        return False
    return True


def kept_results(node: Node) -> dict[int, Any]:
    """Results of a node that are read and have elements, by result index."""
    value = node.meta.get("val")
    if not isinstance(value, (tuple, list)):
        return {0: value}
    read = [user.args[1] if user.target is operator.getitem else None for user in node.users]
    return {
        number: result
        for number, result in enumerate(value)
        if (None in read or number in read) and not (isinstance(result, torch.Tensor) and result.numel() == 0)
    }


def _is_plain_tensor(value: Any) -> bool:
    """Return whether a value is a tensor that host functions support."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and dtype_name(value.dtype) in DTYPES
        and all(isinstance(size, int) for size in value.shape)
    )


def _arguments(node: Node) -> tuple[dict[str, Any], list[Node]]:
    """Arguments of a call in the form of a ``TorchCall``, and its operands; ValueError if one cannot be expressed."""
    operands: list[Node] = []

    def plain(value: Any) -> Any:
        """Convert a value; its tensors are added to the operands."""
        if isinstance(value, Node):
            operands.append(value)
            return {OPERAND: len(operands) - 1}
        if isinstance(value, torch.dtype) and dtype_name(value) in DTYPES:
            return {DTYPE: dtype_name(value)}
        if isinstance(value, (tuple, list)):
            return [plain(entry) for entry in value]
        if (
            value is None
            or isinstance(value, (bool, int, float))
            or (isinstance(value, str) and (value in MODES or is_collective(node)))
        ):
            return value
        raise ValueError(f"{value!r} has no form in a call")

    schema = cast(torch._ops.OpOverload, node.target)._schema
    types = {argument.name: argument.real_type for argument in schema.arguments}
    given = operands_of(node)
    # Device, layout and memory format do not matter on the host.
    unchecked = [
        name for name, value in given.items() if is_unsaid(name, types[name]) and isinstance(value, Node)
    ]
    if unchecked:
        raise ValueError(f"'{unchecked[0]}' is not checked by the kernel")
    said = {name: plain(value) for name, value in given.items() if not is_unsaid(name, types[name])}
    return said, operands


def import_kernel_call(node: Node, values: Sequence[ir.Value], types: Sequence[ir.Type]) -> list[ir.Value]:
    """Build the call of a node between casts to and from builtin tensors, at the current insertion point and location.

    ``values`` are the values of ``operands_of_call``, ``types`` the torch-mlir types of ``kept_results``.
    """
    arguments, operands = _arguments(node)
    results = kept_results(node)
    if not is_collective(node):
        ALLOWED.add(str(node.target))
    tensors = [to_builtin(operand, value) for operand, value in zip(operands, values, strict=True)]
    call = TorchCall(
        str(node.target),
        arguments,
        [dtype_name(operand.meta["val"].dtype) for operand in operands],
        [dtype_name(result.dtype) for result in results.values()],
        list(results),
    )
    outputs = call.build(tensors, [builtin_type(result) for result in results.values()])
    return [from_builtin(output, type_) for output, type_ in zip(outputs, types, strict=True)]


def to_builtin(node: Node, value: ir.Value) -> ir.Value:
    """Build the cast of the value of a node from the torch dialect to a builtin tensor."""
    types = [builtin_type(node.meta["val"])]
    return ir.Operation.create("torch_c.to_builtin_tensor", results=types, operands=[value]).result


def from_builtin(value: ir.Value, type_: ir.Type) -> ir.Value:
    """Build the cast of a builtin tensor to a type of the torch dialect."""
    return ir.Operation.create("torch_c.from_builtin_tensor", results=[type_], operands=[value]).result


def operands_of_call(node: Node) -> list[Node]:
    """Operands of the call of a node, in order; an operand that occurs twice is listed twice."""
    return _arguments(node)[1]


def builtin_type(tensor: torch.Tensor) -> ir.Type:
    """MLIR type of a tensor, with signless integers."""
    names = {
        torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.float64: "f64", torch.bool: "i1",
        torch.float8_e4m3fn: "f8E4M3FN",
    }  # fmt: skip
    element = names.get(tensor.dtype) or f"i{8 * tensor.dtype.itemsize}"
    return ir.RankedTensorType.get(list(tensor.shape), ir.Type.parse(element))
