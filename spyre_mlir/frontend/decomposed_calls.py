# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decomposition of one PyTorch operation as a separate graph, traced once for all equal calls.

Calls are equal if their operation, the metadata of their tensors and their other arguments are equal. PyTorch traces
each call: functionalization above the decompositions, above fake tensors, as in ``run_decompositions``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _compiling_state_context
from torch._functorch._aot_autograd.functional_utils import from_fun, to_fun
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.export._trace import _ignore_backend_decomps
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    get_proxy_slot,
    track_tensor_tree,
)
from torch.utils import _pytree as pytree

from spyre_mlir.frontend.composites import overriding, split_forms
from spyre_mlir.frontend.graph_edits import argument_key, tensor_key
from spyre_mlir.records import dataclass


class NeedsWholeProgramError(Exception):
    """Raised for an operation whose decomposition is not a graph of operations on its operands alone."""


@dataclass(frozen=True)
class _TensorPosition:
    """A tensor argument of a call, by its index among the tensors of the call."""

    index: int


@dataclass(frozen=True)
class DecomposedStep:
    """One operation of a decomposed call: its node, and the name that copies of the node request."""

    node: Node
    name: str


@dataclass(frozen=True)
class DecomposedCall:
    """Operations that a call on ``inputs`` decomposes into; ``result`` has a node for each returned tensor."""

    inputs: tuple[Node, ...]
    steps: tuple[DecomposedStep, ...]
    result: Any


class CallDecomposer:
    """Decompositions of the calls of one program, by a table from operations to functions; use it as a context."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]], mode: FakeTensorMode) -> None:
        implicit, explicit = split_forms(table)
        self._table = cast(dict[OpOverload, Callable[..., Any]], explicit)
        self._decomposed: dict[Hashable, DecomposedCall] = {}
        self._contexts = contextlib.ExitStack()
        # The contexts of run_decompositions.
        self._entered = (
            mode, overriding(implicit), _ignore_backend_decomps(),
            _compiling_state_context(), torch.no_grad(), enable_python_dispatcher(),
        )  # fmt: skip

    def __enter__(self) -> CallDecomposer:
        for context in self._entered:
            self._contexts.enter_context(context)
        return self

    def __exit__(self, *error: object) -> None:
        self._contexts.close()

    def decomposed(self, target: OpOverload, args: Any, kwargs: Any) -> tuple[DecomposedCall, list[Node]]:
        """Return the decomposition of a call on nodes that have values, and the nodes that are its inputs."""
        indices: dict[Node, int] = {}

        def index(node: Node) -> int:
            """Return the index of an operand among the operands of the call."""
            return indices.setdefault(node, len(indices))

        key = (target, argument_key(args, Node, index), argument_key(kwargs, Node, index))
        values = [node.meta["val"] for node in indices]
        if any(value._has_symbolic_sizes_strides for value in values):
            raise NeedsWholeProgramError
        key = (*key, *map(tensor_key, values))
        if key not in self._decomposed:
            call = pytree.tree_map_only(Node, lambda node: _TensorPosition(index(node)), (args, kwargs))
            self._decomposed[key] = self._traced(target, call, values)
        return self._decomposed[key], list(indices)

    def _traced(self, target: OpOverload, call: Any, values: Sequence[Tensor]) -> DecomposedCall:
        """Trace the decomposition of a call whose operands have these values."""
        tracer = PythonKeyTracer()
        tracer.root, tracer.graph, tracer.tensor_attrs = torch.nn.Module(), Graph(), {}
        operands = [value.detach().requires_grad_(value.requires_grad) for value in values]
        for index, operand in enumerate(operands):
            proxy = tracer.create_proxy("placeholder", f"operand_{index}", (), {})
            track_tensor_tree(operand, proxy, constant=None, tracer=tracer)
        with ProxyTorchDispatchMode(tracer, "real", decomposition_table=self._table):
            returned = _functional(target, call, operands)

        def node(tensor: Tensor) -> Node:
            """Node of the graph that computes a tensor; ``NeedsWholeProgramError`` for a constant."""
            slot = get_proxy_slot(tensor, tracer, None)
            if slot is None:
                raise NeedsWholeProgramError
            return slot.proxy.node

        inputs, steps = _split(tracer.graph, len(operands))
        return DecomposedCall(inputs, steps, pytree.tree_map_only(Tensor, node, returned))


def _functional(target: OpOverload, call: Any, operands: Sequence[Tensor]) -> Any:
    """Result of a call in functional form, also for an in-place operation."""
    guard = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))
    with FunctionalTensorMode(pre_dispatch=False, _allow_token_discovery=True), guard:
        functional = [to_fun(operand) for operand in operands]
        args, kwargs = pytree.tree_map_only(_TensorPosition, lambda operand: functional[operand.index], call)
        result = target(*args, **kwargs)
        return pytree.tree_map(from_fun, result)


def _split(graph: Graph, inputs: int) -> tuple[tuple[Node, ...], tuple[DecomposedStep, ...]]:
    """Inputs and steps of a traced graph; ``NeedsWholeProgramError`` if it needs anything else, such as a constant."""
    nodes = list(graph.nodes)
    if any(node.op != "call_function" for node in nodes[inputs:]):
        raise NeedsWholeProgramError
    return tuple(nodes[:inputs]), tuple(DecomposedStep(node, _name(graph, node)) for node in nodes[inputs:])


def _name(graph: Graph, node: Node) -> str:
    """Name that a tracer requests for a node; the graph changes the name if another node has it."""
    target = node.target
    return graph._target_to_str(target.overloadpacket.__name__ if isinstance(target, OpOverload) else target)
