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
from torch.utils._python_dispatch import TorchDispatchMode

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.control_flow import inlined_body, is_inlined
from spyre_mlir.frontend.graph_edits import argument_key, metadata_for, tensor_key
from spyre_mlir.frontend.refusals import refusal_at

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
    if dtype is None and not any(_has_regions(node) for node in program.graph.nodes):
        return
    _Casts(autocasting(dtype), program.graph_signature.replace_all_uses).write(program.graph_module)
    program.graph_module.recompile()


def _has_regions(node: Node) -> bool:
    """Return whether a node is a region of autocast, or control flow whose body may contain such a region."""
    return node.target is _REGION or is_inlined(node)


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
                    if body.op == "get_attr" and isinstance(
                        inner := getattr(module, str(body.target)), GraphModule
                    ):
                        self.write(inner)
            elif self._autocast._enabled and isinstance(node.target, OpOverload) and _may_be_cast(node):
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
        # Other unnamed submodules stay: bodies of control flow have bodies of their own.
        module.delete_submodule(str(body.target))

    def _cast_operands(self, node: Node) -> None:
        """Cast the operands of a call as autocast does, or expand the call if autocast casts inside it."""
        operands = list(node.all_input_nodes)
        numbers = {operand: number for number, operand in enumerate(operands)}
        values = [operand.meta["val"] for operand in operands]
        key = (
            node.target, argument_key(node.args, Node, numbers.__getitem__),
            argument_key(node.kwargs, Node, numbers.__getitem__), *map(tensor_key, values),
        )  # fmt: skip
        if key not in self._known:
            self._known[key] = self._needed(node, operands)
        needed = self._known[key]
        if isinstance(needed, GraphModule):
            self._expand(node, needed, operands)
            return
        for operand, dtype in zip(operands, needed, strict=True):
            if dtype is not None:
                node.replace_input_with(operand, _cast_before(node, operand, dtype))

    def _needed(self, node: Node, operands: list[Node]) -> Sequence[torch.dtype | None] | GraphModule:
        """Types that autocast casts the operands of a call to, or the graph of the parts of the call."""
        values = [operand.meta["val"] for operand in operands]
        if _has_kernel(cast(OpOverload, node.target)):
            return self._listed(node, operands, values)
        if (
            self._recorded(node, operands, values).calls
            == _Casts(autocasting(None))._recorded(node, operands, values).calls
        ):
            return [None] * len(operands)

        def function(*tensors: Tensor) -> Any:
            """Call the operation on its operands, in the order of the nodes."""
            return _call(node, dict(zip(operands, tensors, strict=True)))

        with _mode_of(operands), torch.no_grad(), self._autocast:
            parts = make_fx(function)(*values)
        if any(part.op == "get_attr" for part in parts.graph.nodes):
            raise refusal_at(
                node, "Autocast takes it apart into operations on constants; call these themselves."
            )
        return parts

    def _listed(self, node: Node, operands: list[Node], values: list[Tensor]) -> list[torch.dtype | None]:
        """Casts of the operands of a call that is on an autocast list."""

        def call(tensors: Sequence[Tensor]) -> Any:
            return _call(node, dict(zip(operands, tensors, strict=True)))

        return cast_types(call, values, self._autocast, _mode_of(operands))

    def _recorded(self, node: Node, operands: list[Node], values: list[Tensor]) -> _Record:
        """Record what PyTorch does under this autocast in a call on other operands."""
        with _mode_of(operands), torch.no_grad(), self._autocast, _Record(values) as record:
            _call(node, dict(zip(operands, values, strict=True)))
        return record

    def _expand(self, node: Node, parts: GraphModule, operands: list[Node]) -> None:
        """Replace a call by the operations that it decomposes into."""
        copies: dict[Node, Any] = {}
        remaining = iter(operands)
        results: Any = None
        with node.graph.inserting_before(node):
            for part in parts.graph.nodes:
                if part.op == "placeholder":
                    copies[part] = next(remaining)
                elif part.op == "output":
                    results = map_arg(part.args[0], copies.__getitem__)
                else:
                    copies[part] = node.graph.node_copy(part, copies.__getitem__)
                    copies[part].meta = metadata_for(node, part.meta["val"])
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


def _may_be_cast(node: Node) -> bool:
    """Return whether autocast may change an operation on floats: it is listed, or decomposes into others."""
    target = cast(OpOverload, node.target)
    results = pytree.tree_leaves(node.meta.get("val"))
    operands: list[Any] = [operand.meta.get("val") for operand in node.all_input_nodes]
    if not all(isinstance(value, FakeTensor) for value in (*results, *operands)):
        return False
    is_composite = _has_kernel(target, "CompositeImplicitAutograd") and not target.is_view
    return (_has_kernel(target) or is_composite) and any(value.is_floating_point() for value in operands)


def _has_kernel(operation: OpOverload, key: str = "AutocastCPU") -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(operation.name(), key)


def _mode_of(operands: list[Node]) -> FakeTensorMode:
    return operands[0].meta["val"].fake_mode


def _call(node: Node, values: dict[Node, Tensor]) -> Any:
    """Call the operation of a node on other operands."""
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    return cast(Callable[..., Any], node.target)(*args, **kwargs)


def _cast_before(node: Node, operand: Node, dtype: torch.dtype) -> Node:
    """New cast of an operand before a call, with the source line of the call."""
    with node.graph.inserting_before(node):
        added = node.graph.call_function(_CAST, (operand,), {"dtype": dtype})
    value = operand.meta["val"]
    with value.fake_mode:
        added.meta = metadata_for(node, value.to(dtype))
    return added


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
