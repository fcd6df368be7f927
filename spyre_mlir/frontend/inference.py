# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Shapes and types of the results of calls, inferred once for equal calls while torch.export traces a model.

torch.export sends each call through PyTorch's dispatcher to a tensor without data. A second call of the same operation
on tensors of equal types, shapes and strides has an equal result, so the call is recorded without dispatch.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack
from torch._dispatch.python import no_python_dispatcher
from torch._ops import OpOverload
from torch._subclasses.fake_impls import fast_detach
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager
from torch.fx import Node
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, get_proxy_slot, set_proxy_slot
from torch.fx.node import map_arg
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from spyre_mlir.frontend.graph_edits import argument_key, tensor_key
from spyre_mlir.records import dataclass

aten = torch.ops.aten


@contextlib.contextmanager
def inferring_once() -> Iterator[None]:
    """Context in which torch.export infers the results of equal calls only once per trace."""
    with mock.patch.object(proxy_tensor, "proxy_call", _Calls(proxy_tensor.proxy_call)):
        yield


@dataclass(frozen=True)
class _TracedTensor:
    """A tensor that a call returns: its type, its place in new memory or in an operand's memory, and its metadata."""

    tensor: FakeTensor
    base: int | None
    tensor_meta: Any

    def fake(self, operands: Sequence[Tensor]) -> FakeTensor:
        """New tensor without data, for a call on these operands."""
        tensor = self.tensor
        with no_python_dispatcher(), in_kernel_invocation_manager(tensor.fake_mode):
            place = tensor.shape, tensor.stride()
            if self.base is None:
                meta = torch.empty_strided(*place, dtype=tensor.dtype, device="meta")
            else:
                meta = aten.as_strided.default(operands[self.base], *place, tensor.storage_offset())
        return FakeTensor(tensor.fake_mode, meta, tensor.fake_device)


@dataclass(frozen=True)
class _TracedCall:
    """A call in a graph, the name that it requests, the nodes of its operands, and its results.

    ``kind`` is the container type of several results, None for one result.
    """

    node: Node
    name: str
    operands: tuple[Node, ...]
    results: tuple[_TracedTensor, ...]
    kind: type | None

    @property
    def length(self) -> int:
        """Number of nodes of the call: the call itself, and one node for each of several results."""
        return 1 if self.kind is None else 1 + len(self.results)


class _Calls:
    """Replacement for ``proxy_call``, which traces a call."""

    def __init__(self, trace: Callable[..., Any]) -> None:
        self.trace = trace
        self.traced: dict[Hashable, _TracedCall] = {}

    def __call__(
        self, mode: ProxyTorchDispatchMode, target: OpOverload, pre_dispatch: bool, args: Any, kwargs: Any
    ) -> Any:
        tracer: Any = mode.tracer
        operands: dict[int, Tensor] = {}
        key = _key(tracer, target, args, kwargs, operands) if pre_dispatch else None
        tensors = list(operands.values())
        if key in self.traced:
            return _repeated(tracer, self.traced[key], tensors)
        before = len(tracer.graph.nodes)
        returned = self.trace(mode, target, pre_dispatch, args, kwargs)
        call = None if key is None else _traced_call(tracer, target, returned, tensors)
        if call is not None and len(tracer.graph.nodes) == before + call.length:
            self.traced[key] = call
        return returned


def _key(
    tracer: Any, target: OpOverload, args: Any, kwargs: Any, operands: dict[int, Tensor]
) -> Hashable | None:
    """Key of a call, whose operands are added to ``operands``; None if the key does not determine the call."""
    # Anything but the trace may record or change the calls of a model.
    is_changed = torch._C._is_any_autocast_enabled() or peek_interpreter_stack() is not None
    if target._schema.is_mutable or is_changed or is_in_torch_dispatch_mode(include_infra_modes=False):
        return None

    def index(tensor: Tensor) -> int:
        operands.setdefault(id(tensor), tensor)
        return list(operands).index(id(tensor))

    call = argument_key(args, Tensor, index), argument_key(kwargs, Tensor, index)
    if not all(_is_known(tensor, tracer) for tensor in operands.values()):
        return None
    storages = [_storage(tensor) for tensor in operands.values()]
    shared = tuple(map(storages.index, storages))
    # Settings that the result of a call depends on, and that a model may change.
    settings = (
        torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(),
        torch._C._get_flash_sdp_enabled(), torch._C._get_mem_efficient_sdp_enabled(), torch._C._get_math_sdp_enabled(),
    )  # fmt: skip
    return tracer, target, *call, shared, *map(tensor_key, operands.values()), *settings


def _is_known(tensor: Any, tracer: Any) -> bool:
    """Return whether a tensor has a node and a known size, and does not have data."""
    if type(tensor) is not FakeTensor or tensor._has_symbolic_sizes_strides:
        return False
    slot = get_proxy_slot(tensor, tracer, None)
    return slot is not None and slot.constant is None


def _node(tensor: Tensor, tracer: Any) -> Node:
    return get_proxy_slot(tensor, tracer).proxy.node


def _storage(tensor: Tensor) -> int:
    """Identity of the memory of a tensor."""
    return StorageWeakRef(tensor.untyped_storage()).cdata


def _traced_call(
    tracer: Any, target: OpOverload, returned: Any, operands: Sequence[Tensor]
) -> _TracedCall | None:
    """Record of a traced call; None unless it is one node whose results are new tensors or views of operands."""
    kind = None if isinstance(returned, Tensor) else type(returned)
    tensors = [returned] if kind is None else returned
    if kind not in (None, tuple, list) or not tensors:
        return None
    storages, results, own = [_storage(operand) for operand in operands], [], set()
    for tensor in tensors:
        if not _is_known(tensor, tracer) or any(tensor is operand for operand in operands):
            return None
        node, storage = _node(tensor, tracer), _storage(tensor)
        base = storages.index(storage) if storage in storages else None
        # Do not keep the tensor itself: PyTorch would copy the result of a factory that has another reference.
        result = _TracedTensor(node.meta["val"], base, node.meta.get("tensor_meta"))
        # An equal tensor can be created, in a new storage or in the storage of an operand.
        if tensor.requires_grad or tensor_key(result.fake(operands)) != tensor_key(tensor):
            return None
        if base is None:
            if _storage(result.tensor) in own:
                return None
            own.add(_storage(result.tensor))
        results.append(result)
    first = _node(tensors[0], tracer)
    call = first if kind is None else first.args[0]
    sources = tuple(_node(operand, tracer) for operand in operands)
    if not isinstance(call, Node) or call.target is not target or len(set(sources)) < len(sources):
        return None
    if set(sources) != set(call.all_input_nodes):
        return None
    name = tracer.graph._target_to_str(target.overloadpacket.__name__)
    return _TracedCall(call, name, sources, tuple(results), kind)


def _repeated(tracer: Any, traced: _TracedCall, operands: Sequence[Tensor]) -> Any:
    """Add a call that equals a traced call to the graph, and return its result."""
    nodes = dict(zip(traced.operands, (_node(operand, tracer) for operand in operands), strict=True))
    args, kwargs = map_arg((traced.node.args, traced.node.kwargs), nodes.__getitem__)
    call = tracer.create_node("call_function", traced.node.target, args, kwargs, traced.name)
    tensors = [result.fake(operands) for result in traced.results]
    if traced.kind is not None:
        call.meta["val"] = traced.kind(fast_detach(tensor.fake_mode, tensor) for tensor in tensors)
    for index, (result, tensor) in enumerate(zip(traced.results, tensors, strict=True)):
        node = call
        if traced.kind is not None:
            node = tracer.create_node("call_function", operator.getitem, (call, index), {})
        # The node and its tensor know each other.
        node.meta["val"] = fast_detach(tensor.fake_mode, tensor)
        node.meta["tensor_meta"] = result.tensor_meta
        set_proxy_slot(tensor, tracer, proxy_tensor._ProxyTensor(tracer.proxy(node), None))
    return tensors[0] if traced.kind is None else traced.kind(tensors)
