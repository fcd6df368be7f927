"""Decomposition of one PyTorch operation as a graph of its own, traced once for all equal calls.

Calls are equal where their operation, the metadata of their tensors and their other arguments are. PyTorch's own
machinery traces each: functionalisation above the decompositions, above fake tensors, as in ``run_decompositions``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._export.utils import _compiling_state_context
from torch._functorch._aot_autograd.functional_utils import from_fun, to_fun
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensorMode
from torch.export._trace import _ignore_backend_decomps
from torch.export.exported_program import (
    _override_composite_implicit_decomp,
    _split_decomp_table_to_cia_and_python_decomp,
)
from torch.fx import Graph, Node
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    get_proxy_slot,
    track_tensor_tree,
)
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from spyre_mlir.frontend.graph_edits import argument_key, tensor_key


class NotExpandedError(Exception):
    """An operation whose decomposition is not a graph of operations on its operands alone."""


@dataclass(frozen=True)
class _Operand:
    """A tensor argument of a call, by its index among the tensors of the call."""

    index: int


@dataclass(frozen=True)
class Step:
    """One operation of an expansion: its node, and the name that its copies ask for."""

    node: Node
    name: str


@dataclass(frozen=True)
class Expansion:
    """Operations that a call decomposes into, on ``inputs``; what it returns, and the new values of its operands.

    A node in ``result`` or ``operands`` is that of a step or one of the inputs.
    """

    inputs: tuple[Node, ...]
    steps: tuple[Step, ...]
    result: Any
    operands: tuple[Node, ...]


class Expander:
    """Expansions of the calls of one program by a table of decompositions, inside of a ``with``."""

    def __init__(self, table: Mapping[Any, Callable], mode: FakeTensorMode) -> None:
        implicit, self._table = _split_decomp_table_to_cia_and_python_decomp(dict(table))
        self._expansions: dict[Hashable, Expansion] = {}
        self._contexts = contextlib.ExitStack()
        # Those of run_decompositions.
        self._entered = (
            mode, _override_composite_implicit_decomp(implicit), _ignore_backend_decomps(),
            _compiling_state_context(), torch.no_grad(), enable_python_dispatcher(),
        )  # fmt: skip

    def __enter__(self) -> Expander:
        for context in self._entered:
            self._contexts.enter_context(context)
        return self

    def __exit__(self, *error: object) -> None:
        self._contexts.close()

    def expansion(self, target: OpOverload, args: Any, kwargs: Any) -> tuple[Expansion, list[Node]]:
        """Expansion of a call on nodes that have values, and the nodes that are its inputs."""
        indices: dict[Node, int] = {}

        def index(node: Node) -> int:
            """Index of an operand among those of the call."""
            return indices.setdefault(node, len(indices))

        key = (target, argument_key(args, Node, index), argument_key(kwargs, Node, index))
        values = [node.meta["val"] for node in indices]
        if any(value._has_symbolic_sizes_strides for value in values):
            raise NotExpandedError
        key = (*key, *map(tensor_key, values))
        if key not in self._expansions:
            call = map_arg((args, kwargs), lambda node: _Operand(index(node)))
            self._expansions[key] = self._traced(target, call, values)
        return self._expansions[key], list(indices)

    def _traced(self, target: OpOverload, call: Any, values: Sequence[Tensor]) -> Expansion:
        """Expansion of a call whose operands have these values."""
        tracer = PythonKeyTracer()
        tracer.root, tracer.graph, tracer.tensor_attrs = torch.nn.Module(), Graph(), {}
        operands = [value.detach().requires_grad_(value.requires_grad) for value in values]
        for index, operand in enumerate(operands):
            proxy = tracer.create_proxy("placeholder", f"operand_{index}", (), {})
            track_tensor_tree(operand, proxy, constant=None, tracer=tracer)
        with ProxyTorchDispatchMode(tracer, "real", decomposition_table=self._table):
            returned = _functional(target, call, operands)

        def node(tensor: Tensor) -> Node:
            """Node of the graph that computes a tensor."""
            return get_proxy_slot(tensor, tracer).proxy.node

        result, written = pytree.tree_map_only(Tensor, node, returned)
        inputs, steps = _split(tracer.graph, len(operands))
        return Expansion(inputs, steps, result, tuple(written))


def _functional(target: OpOverload, call: Any, operands: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
    """Result of a call in functional form, and the new values of its operands."""
    guard = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))
    with FunctionalTensorMode(pre_dispatch=False, _allow_token_discovery=True), guard:
        functional = [to_fun(operand) for operand in operands]
        args, kwargs = pytree.tree_map_only(_Operand, lambda operand: functional[operand.index], call)
        result = target(*args, **kwargs)
        return pytree.tree_map(from_fun, result), [from_fun(tensor) for tensor in functional]


def _split(graph: Graph, inputs: int) -> tuple[tuple[Node, ...], tuple[Step, ...]]:
    """Inputs and steps of a traced graph; ``NotExpandedError`` if it needs anything else, such as a constant."""
    nodes = list(graph.nodes)
    if any(node.op != "call_function" for node in nodes[inputs:]):
        raise NotExpandedError
    return tuple(nodes[:inputs]), tuple(Step(node, _name(graph, node)) for node in nodes[inputs:])


def _name(graph: Graph, node: Node) -> str:
    """Name that a tracer asks for, which the names of other nodes may change."""
    target = node.target
    return graph._target_to_str(target.overloadpacket.__name__ if isinstance(target, OpOverload) else target)
