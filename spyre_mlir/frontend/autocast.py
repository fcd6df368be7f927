# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch autocast as casts in the graph: each operation gets the operands that it has under ``torch.autocast``.

A captured graph contains the operations that the model calls, above autocast: the types of the results are right, but
the casts of the operands are missing. ``write_casts`` gets the casts from PyTorch: every operation runs once under
autocast on tensors without data, so the lists of operations are PyTorch's own lists for the CPU.

    linear(x: f32, w: f32) : f16  ->  linear(to_f16(x), to_f16(w)) : f16
    einsum("ij,jk->ik", x, y) : f16  ->  the operations it decomposes into, where a product is cast

A region of the model with its own autocast is inlined with the casts of that autocast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.control_flow import inlined_body, is_inlined
from spyre_mlir.frontend.graph_edits import argument_key, copy_calls, metadata_for, overload_of, tensor_key
from spyre_mlir.frontend.locations import refusal_at

_DEVICE = "cpu"
_REGION = torch.ops.higher_order.wrap_with_autocast
_SHORT = (torch.float16, torch.bfloat16)
_CAST = torch.ops.aten._to_copy.default

#: Names of the types that an autocast casts to; DL16 is the device's own form of fp16.
_DTYPES = {
    "float16": torch.float16, "fp16": torch.float16, "dl16": torch.float16,
    "bfloat16": torch.bfloat16, "bf16": torch.bfloat16,
}  # fmt: skip


def autocast_dtype(option: torch.dtype | str | None) -> torch.dtype | None:
    """Type that an option names; without an option, the type of the caller's ``torch.autocast``, or None."""
    if option is None:
        return torch.get_autocast_dtype(_DEVICE) if torch.is_autocast_enabled(_DEVICE) else None
    dtype = _DTYPES.get(str(option).removeprefix("torch."))
    if dtype is None:
        raise CompileError(
            f"The option 'autocast' takes torch.float16 or torch.bfloat16, not {option!r}; "
            "as text it is float16, fp16, dl16, bfloat16 or bf16."
        )
    return dtype


def autocasting(dtype: torch.dtype | None) -> torch.autocast:
    """Context of an autocast to ``dtype``; without a dtype, autocast is off. Casts are not cached."""
    return torch.autocast(_DEVICE, dtype, enabled=dtype is not None, cache_enabled=False)


def write_casts(program: ExportedProgram, dtype: torch.dtype | None) -> None:
    """Insert the casts of an autocast to ``dtype`` into a program that was captured under the autocast, in place."""
    if dtype is None and not any(
        # Control flow may contain a region of autocast in its body.
        node.target is _REGION or is_inlined(node)
        for node in program.graph.nodes
    ):
        return
    _Casts(autocasting(dtype), program.graph_signature.replace_all_uses).write(program.graph_module)
    program.graph_module.recompile()


def cast_types(
    call: Callable[[Sequence[Tensor]], Any],
    values: Sequence[Tensor],
    autocast: torch.autocast,
    mode: FakeTensorMode,
) -> list[torch.dtype | None]:
    """Types that an autocast casts the operands of a call to; None for an operand that keeps its type.

    An operation may cast operands itself, and only autocast makes a float32 shorter. Operands that autocast does not
    shorten become float32, or the type of the widest operand; nothing more is cast in the latter case.
    """

    def recorded(tensors: list[Tensor]) -> list[torch.dtype | None]:
        with mode, torch.no_grad(), autocast, _Record(tensors) as record:
            call(tensors)
        return record.casts

    short = autocast.fast_dtype
    with mode:
        wide = [value.float() if value.dtype in _SHORT else value for value in values]
    casts = recorded(wide)
    if short in casts:
        return [
            short if dtype == short and value.dtype != short else None
            for dtype, value in zip(casts, values, strict=True)
        ]
    return [dtype if dtype == torch.float32 else None for dtype in recorded(list(values))]


class _Casts:
    """Casts of one autocast. ``renamed(old, new)`` is called when the node ``new`` replaces the node ``old``."""

    def __init__(
        self, autocast: torch.autocast, renamed: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        self._autocast = autocast
        self._renamed = renamed
        self._known: dict[Hashable, Any] = {}

    def write(self, module: GraphModule) -> None:
        """Insert the casts into the graph of a module."""
        for node in list(module.graph.nodes):
            if node.target is _REGION:
                self._inline_region(module, node)
            elif is_inlined(node):
                for body in node.all_input_nodes:
                    inner = getattr(module, str(body.target)) if body.op == "get_attr" else None
                    if isinstance(inner, GraphModule):
                        self.write(inner)
            elif self._autocast._enabled and isinstance(node.target, OpOverload):
                self._cast_operands(node)

    def _inline_region(self, module: GraphModule, node: Node) -> None:
        """Replace a region with its own autocast by the operations of the region and their casts."""
        device, dtype, enabled, _, body, *operands = cast(Sequence[Any], node.args)
        own = torch.autocast(device, dtype, enabled, False) if device == _DEVICE else self._autocast
        _Casts(own, self._renamed).write(getattr(module, str(body.target)))
        with module.graph.inserting_before(node):
            results = inlined_body(module, body, operands)
        # A region returns a tuple, so all its users are operator.getitem.
        for user in list(node.users):
            self._replace(user, results[cast(int, user.args[1])])
        module.graph.erase_node(node)
        module.graph.erase_node(body)
        # Other unnamed submodules stay: bodies of control flow may have nested bodies.
        module.delete_submodule(str(body.target))

    def _cast_operands(self, node: Node) -> None:
        """Cast the operands of a call as autocast does, or expand the call if autocast casts inside it.

        Only operations on floats are cast, that are listed or decompose into others.
        """
        target, operands = cast(OpOverload, node.target), list(node.all_input_nodes)
        values: list[Any] = [operand.meta.get("val") for operand in operands]
        results = pytree.tree_leaves(node.meta.get("val"))
        if not all(isinstance(value, FakeTensor) for value in (*results, *values)):
            return
        is_composite = _has_kernel(target, "CompositeImplicitAutograd") and not target.is_view
        if not (_has_kernel(target) or is_composite) or not any(map(torch.is_floating_point, values)):
            return
        numbers = {operand: number for number, operand in enumerate(operands)}
        key = (
            target, argument_key(node.args, Node, numbers.__getitem__),
            argument_key(node.kwargs, Node, numbers.__getitem__), *map(tensor_key, values),
        )  # fmt: skip
        if key not in self._known:
            self._known[key] = self._needed(node, operands)
        needed = self._known[key]
        if isinstance(needed, GraphModule):
            self._expand(node, needed, operands)
            return
        for operand, value, dtype in zip(operands, values, needed, strict=True):
            if dtype is not None:
                with node.graph.inserting_before(node):
                    added = node.graph.call_function(_CAST, (operand,), {"dtype": dtype})
                with value.fake_mode:
                    added.meta = metadata_for(node, value.to(dtype))
                node.replace_input_with(operand, added)

    def _needed(self, node: Node, operands: list[Node]) -> Sequence[torch.dtype | None] | GraphModule:
        """Types that autocast casts the operands of a call to, or the graph of the parts of the call."""
        values = [operand.meta["val"] for operand in operands]
        mode = values[0].fake_mode

        def call(tensors: Sequence[Tensor]) -> Any:
            replaced = dict(zip(operands, tensors, strict=True))
            args, kwargs = map_arg((node.args, node.kwargs), replaced.__getitem__)
            return cast(Callable[..., Any], node.target)(*args, **kwargs)

        if _has_kernel(cast(OpOverload, node.target)):
            return cast_types(call, values, self._autocast, mode)
        recorded = []
        for autocast in (self._autocast, autocasting(None)):
            with mode, torch.no_grad(), autocast, _Record(values) as record:
                call(values)
            recorded.append(record.calls)
        if recorded[0] == recorded[1]:
            return [None] * len(operands)
        with mode, torch.no_grad(), self._autocast:
            parts = make_fx(lambda *tensors: call(tensors))(*values)
        if any(part.op == "get_attr" for part in parts.graph.nodes):
            raise refusal_at(
                node, "Autocast decomposes it into operations on constants; call these operations directly."
            )
        return parts

    def _expand(self, node: Node, parts: GraphModule, operands: list[Node]) -> None:
        """Replace a call by the operations that it decomposes into."""
        results = copy_calls(node, parts.graph, operands)
        if isinstance(results, Node):
            self._replace(node, results)
            return
        for user in list(node.users):
            self._replace(user, results[user.args[1]])
        node.graph.erase_node(node)

    def _replace(self, old: Node, new: Node) -> None:
        """Replace one node by another, also among the outputs of the program."""
        old.replace_all_uses_with(new, propagate_meta=False)
        self._renamed(old.name, new.name)
        old.graph.erase_node(old)


def _has_kernel(operation: OpOverload, key: str = "AutocastCPU") -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), key)


class _Record(TorchDispatchMode):
    """Record of PyTorch below autocast: ``calls`` with the types of their tensors, and ``casts`` of operands."""

    def __init__(self, operands: list[Tensor]) -> None:
        super().__init__()
        self._operands = operands
        self.casts: list[torch.dtype | None] = [None] * len(operands)
        self.calls: list[Hashable] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        leaves = pytree.tree_leaves((args, named))
        self.calls.append((func, *(leaf.dtype for leaf in leaves if isinstance(leaf, Tensor))))
        if func is _CAST:
            for index, operand in enumerate(self._operands):
                if operand is args[0] and self.casts[index] is None:
                    self.casts[index] = named.get("dtype")
        return func(*args, **named)


# ``torch.autocast("spyre")``: each operation gets the operands that it gets under the autocast of the CPU.
#
# The operations are not listed: an operation that autocast casts on the CPU runs once on tensors without data, for each
# combination of types, and the casts that PyTorch makes are repeated on the device.

_KEY = "AutocastPrivateUse1"
_KEYS = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))

_known: dict[Hashable, list[torch.dtype | None]] = {}


def register_casts(library: torch.library.Library) -> torch.library.Library:
    """Register the casts of all operations that autocast casts on the CPU; the caller keeps the result alive."""
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU"):
        namespace, _, rest = name.partition("::")
        if namespace == "aten":
            operation = overload_of(rest)
            library.impl(operation, functools.partial(_cast_and_call, operation), _KEY)
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, _KEY)
    return others


def _cast_and_call(operation: Any, *args: Any, **named: Any) -> Any:
    """Run an operation on its operands, cast as autocast casts them."""
    with torch._C._ExcludeDispatchKeyGuard(_KEYS):
        leaves, tree = pytree.tree_flatten((args, named))
        places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        dtype = torch.get_autocast_dtype("spyre")
        key = operation, dtype, tuple((index, leaves[index].dtype) for index in places)
        if key not in _known:
            _known[key] = _casts(
                functools.partial(_called, operation, leaves, places, tree), leaves, places, dtype
            )
        for index, wanted in zip(places, _known[key], strict=True):
            if wanted is not None:
                leaves[index] = leaves[index].to(wanted)
        args, named = tree.unflatten(leaves)
        return operation(*args, **named)


def _casts(
    call: Callable[[Sequence[Tensor]], Any], leaves: Sequence[Any], places: Sequence[int], dtype: torch.dtype
) -> list[torch.dtype | None]:
    """Types that autocast on the CPU casts the tensors at these places to; None for a tensor that is not cast."""
    with _disable_current_modes(), FakeTensorMode() as mode:
        fake = [_on_the_host(leaves[index]) for index in places]
        return cast_types(call, fake, torch.autocast("cpu", dtype, cache_enabled=False), mode)


def _called(
    operation: Any, leaves: Sequence[Any], places: Sequence[int], tree: Any, tensors: Sequence[Tensor]
) -> Any:
    """Run the operation with other tensors in its arguments."""
    replaced = dict(zip(places, tensors, strict=True))
    args, named = tree.unflatten([replaced.get(index, leaf) for index, leaf in enumerate(leaves)])
    return operation(*args, **named)


def _on_the_host(tensor: Tensor) -> Tensor:
    """CPU tensor of the same type and sizes, made in a mode without data."""
    sizes, strides = (
        [each if isinstance(each, int) else each.node.hint for each in numbers]
        for numbers in (tensor.shape, tensor.stride())
    )
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="cpu")
