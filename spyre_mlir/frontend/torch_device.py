# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's device "spyre": its tensors are ``DeviceTensor``, its operations compiled programs of one each.

::

    x = torch.rand(64, 256, dtype=torch.float16).to("spyre")
    model.to("spyre")
    print(torch.compile(kernel)(x, y))

PyTorch's key for devices that it does not know, PrivateUse1, is ``spyre`` once ``spyre_mlir.frontend`` is imported.
A tensor is a wrapper without PyTorch memory; views share the storage of its ``device_tensor``. An operation in
place is computed as a new tensor, which is written into that storage. Random numbers are drawn on the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.backward_errors import raised_after_backward
from spyre_mlir.frontend.graph_edits import overload_of
from spyre_mlir.frontend.hints import name_tensor_dims, names_of
from spyre_mlir.frontend.signature import to_numpy
from spyre_mlir.layout.strided import StridedView
from spyre_mlir.tensors.device_tensor import DeviceTensor, eager, to_device
from spyre_mlir.tensors.device_views import ViewStep

NAME = "spyre"

_aten = torch.ops.aten

#: Operations without a tensor among their arguments, which the host runs.
_FACTORIES = (
    "empty.memory_format", "empty_strided", "zeros", "ones", "full", "arange", "arange.start", "arange.start_step",
    "linspace", "eye", "eye.m", "rand", "rand.generator", "randn", "randn.generator", "randint", "randint.low",
    "randint.generator", "randint.low_generator", "randperm", "randperm.generator", "scalar_tensor", "tril_indices",
    "triu_indices",
)  # fmt: skip

#: Operations that read only the sizes and strides of a tensor, and that the host runs.
_LIKE = {
    _aten.empty_like, _aten.zeros_like, _aten.ones_like, _aten.full_like, _aten.rand_like, _aten.randn_like,
    _aten.randint_like, _aten.new_empty, _aten.new_zeros, _aten.new_ones, _aten.new_full, _aten.new_empty_strided,
}  # fmt: skip

#: Operations that fill a tensor with numbers that the host makes.
_FILLS = {
    _aten.fill_, _aten.zero_, _aten.uniform_, _aten.normal_, _aten.bernoulli_, _aten.random_, _aten.exponential_,
    _aten.log_normal_, _aten.cauchy_, _aten.geometric_,
}  # fmt: skip

_ATTENTION = _aten.scaled_dot_product_attention.default

_COPIES = (_aten.copy_.default, _aten._to_copy.default)


class SpyreTensor(torch.Tensor):
    """A tensor on the device; ``device_tensor`` has its storage, layout and view, None while a compiler traces."""

    device_tensor: DeviceTensor | None
    _meta: torch.Tensor

    # Operations arrive in __torch_dispatch__, below autograd.
    __torch_function__ = cast(Any, torch._C._disabled_torch_function_impl)

    @staticmethod
    def __new__(cls, meta: torch.Tensor, device_tensor: DeviceTensor | None = None) -> SpyreTensor:
        wrapper = torch.Tensor._make_wrapper_subclass(
            cls, meta.size(), strides=meta.stride(), storage_offset=meta.storage_offset(), dtype=meta.dtype,
            device=torch.device(NAME, 0),
        )  # fmt: skip
        wrapper._meta, wrapper.device_tensor = meta, device_tensor
        return wrapper

    @classmethod
    def of(cls, tensor: DeviceTensor) -> SpyreTensor:
        """PyTorch's tensor for a ``DeviceTensor``."""
        storage = torch.empty(tensor.storage.layout.shape, dtype=getattr(torch, tensor.dtype), device="meta")
        return cls(storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()), tensor)

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["_meta"], None

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any
    ) -> SpyreTensor:
        return SpyreTensor(inner["_meta"])

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        if self.device_tensor is None:
            return f"SpyreTensor(shape={list(self.shape)}, dtype={self.dtype})"
        text = repr(self.device_tensor.cpu())[:-1]
        layout = self.device_tensor.storage.layout
        gradient = ", requires_grad=True" if self.requires_grad else ""
        return f"{text}, device='{self.device}', device_size={list(layout.device_size)}{gradient})"

    def tolist(self) -> Any:
        """Numbers as nested lists, read on the host."""
        return self.cpu().tolist()

    def restickify(self, stick_dims: Sequence[int]) -> SpyreTensor:
        """Copy with other stick dims, computed on the device."""
        return SpyreTensor.of(_device_tensor(self).restickify(stick_dims))

    @classmethod
    @raised_after_backward
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if any(_is_abstract(leaf) for leaf in pytree.tree_leaves((args, named))):
            return _abstract(func, args, named)
        packet = func.overloadpacket
        if packet in _LIKE:
            return _like(func, args, named)
        if func in _COPIES:
            return _to_copy(*args, **named) if func is _COPIES[1] else _copy(*args, **named)
        if func is _aten.lift_fresh.default:
            # A tensor of the device is no constant of a trace.
            return args[0]
        if func is _aten._local_scalar_dense.default:
            return _host(args[0]).item()
        if func is _aten.equal.default:
            return torch.equal(*map(_host, args))
        if func is _ATTENTION:
            return _attention(*args, **named)
        # Composite operations come here whole where autograd is off.
        if (composed := func.decompose(*args, **named)) is not NotImplemented:
            return composed
        if packet in _FILLS:
            return _filled(func, args, named)
        if func.is_view:
            return return_and_correct_aliasing(func, args, named, _viewed(func, args, named))
        if func._schema.is_mutable:
            return _in_place(func, args, named)
        return _on_device(eager().run(func, *_operands(func, args, named)))


def _is_abstract(leaf: Any) -> bool:
    """Return whether a value is a tensor without numbers, as a compiler traces it."""
    return isinstance(leaf, SpyreTensor) and leaf.device_tensor is None


def _device_tensor(tensor: SpyreTensor) -> DeviceTensor:
    """The ``DeviceTensor`` behind a tensor; ``CompileError`` for a tensor without numbers."""
    if tensor.device_tensor is None:
        raise CompileError("A tensor that a compiler traces has no numbers.")
    return tensor.device_tensor


def _host(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the host, by no operation of PyTorch: inside of one these have other meanings."""
    return _device_tensor(tensor).cpu() if isinstance(tensor, SpyreTensor) else tensor


def _attention(*args: Any, **named: Any) -> Any:
    """Attention as one program; for a gradient, as matmuls and a softmax, which have gradients."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, named)) if isinstance(leaf, torch.Tensor)]
    if any(map(_is_abstract, tensors)):
        return _abstract(_ATTENTION, args, named)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        operands = dict(zip(names, args, strict=False)) | named
        return _aten._scaled_dot_product_attention_math.default(**_with_added_mask(operands))[0]
    return _on_device(eager().run(_ATTENTION, *_operands(_ATTENTION, args, named)))


def _with_added_mask(operands: dict[str, Any]) -> dict[str, Any]:
    """Operands of attention whose boolean mask is one of numbers, which attention as matmuls adds to the scores."""
    mask = operands.get("attn_mask")
    if mask is None or mask.dtype != torch.bool:
        return operands
    numbers = torch.zeros_like(mask, dtype=operands["query"].dtype)
    return {**operands, "attn_mask": numbers.masked_fill(mask.logical_not(), -torch.inf)}


def _abstract(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Operation on tensors without numbers; its results are on the device, unless it sends them to another."""

    def meta(leaf: Any) -> Any:
        """Argument with the device "meta" in place of the device ``spyre``."""
        if isinstance(leaf, SpyreTensor):
            return leaf._meta
        if isinstance(leaf, torch.Tensor) and leaf.device.type == NAME:
            return torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device="meta")
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf

    target = named.get("device")
    meta_args, meta_named = pytree.tree_map(meta, (args, named))
    results = func(*meta_args, **meta_named)
    if target is not None and target.type != NAME:
        return torch.empty_strided(results.size(), results.stride(), dtype=results.dtype, device=target)
    results = pytree.tree_map_only(torch.Tensor, SpyreTensor, results)
    if func.is_view or func._schema.is_mutable:
        return return_and_correct_aliasing(func, args, named, results)
    return results


def _on_the_host(leaf: Any) -> Any:
    """Argument of an operation that runs on the host: the device ``spyre`` becomes the CPU."""
    if isinstance(leaf, torch.device) and leaf.type == NAME:
        return torch.device("cpu")
    return leaf


def _move(tensor: torch.Tensor, **layout: Any) -> SpyreTensor:
    """Tensor of the host on the device, with its strides as PyTorch gives them to a copy."""
    # A storage is dense in the order of its dims, so a permuted tensor is a view of a permuted storage.
    order = sorted(range(tensor.dim()), key=lambda dim: (-tensor.stride(dim), tensor.shape[dim] == 1))
    if layout or order == list(range(tensor.dim())):
        return SpyreTensor.of(to_device(tensor, **layout))
    stored = to_device(tensor.permute(order))
    return SpyreTensor.of(stored.permute([order.index(dim) for dim in range(tensor.dim())]))


def _like(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Operation that reads only the shape of a tensor, run on the host."""
    source = args[0]
    example = torch.empty_like(source._meta, device="cpu")
    target = named.get("device")
    result = func(example, *args[1:], **{name: _on_the_host(value) for name, value in named.items()})
    return result if target is not None and target.type != NAME else _move(result)


def _to_copy(tensor: torch.Tensor, *, dtype: Any = None, device: Any = None, **named: Any) -> Any:
    """Copy of another dtype, or on another device."""
    if not isinstance(tensor, SpyreTensor):
        # PyTorch's way of ``.to("spyre")``.
        return _move(tensor.to(dtype) if dtype is not None else tensor)
    source = _device_tensor(tensor)
    if device is not None and torch.device(device).type != NAME:
        host = source.cpu()
        return host.to(device, dtype) if dtype is not None else host.to(device)
    if dtype in (None, tensor.dtype):
        return _on_device(eager().run(_aten.clone.default, (source,), {}))
    return _on_device(eager().run(_aten._to_copy.default, (source,), {"dtype": dtype}))


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``copy_`` from or to the device."""
    host = _host(source)
    if not isinstance(target, SpyreTensor):
        return target.copy_(host)
    _write(target, host)
    return target


def _write(target: SpyreTensor, host: torch.Tensor) -> None:
    """Replace the numbers of a tensor, in its storage, by those of one on the host, converted and broadcast."""
    tensor = _device_tensor(target)
    values = host.to(target.dtype).expand(target.shape)
    numbers = values.float().numpy() if values.dtype == torch.bfloat16 else to_numpy(values.contiguous())
    tensor.write(numbers)


def _filled(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Operation that fills a tensor, run on the host and written into the storage."""
    target, *rest = args
    # Drawn on the host, so that a seed gives the same numbers as on the CPU.
    example = torch.empty(target.shape, dtype=target.dtype)
    rest = [_host(value) if isinstance(value, torch.Tensor) else value for value in rest]
    _write(target, func(example, *rest, **named))
    return target


def _viewed(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Result of a view operation: the sizes and strides that PyTorch computes, on the same storage."""
    source, *rest = args
    tensor = _device_tensor(source)
    results = func(source._meta, *rest, **named)
    step = ViewStep(str(func).removeprefix("aten."), (*rest, *([named] if named else [])))
    if isinstance(results, torch.Tensor):
        return SpyreTensor(results, _view(tensor, results, step))
    return [
        SpyreTensor(part, _view(tensor, part, step._replace(number=index)))
        for index, part in enumerate(results)
    ]


def _view(tensor: DeviceTensor, meta: torch.Tensor, step: ViewStep) -> DeviceTensor:
    strided = StridedView(tuple(meta.shape), meta.stride(), int(meta.storage_offset()))
    return tensor if strided == tensor.strided else tensor.view_as(strided, step)


def _in_place(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Operation that changes a tensor: the result of its functional form is written into the storage."""
    functional, targets, args, named = _functional(func, args, named)
    results = eager().run(functional, *_operands(func, args, named))
    results = list(results) if isinstance(results, tuple | list) else [results]
    for target, result in zip(targets, results, strict=True):
        host = result.cpu()
        if tuple(host.shape) != tuple(target.shape):
            raise RuntimeError(
                f"{func} makes a tensor of {list(host.shape)}, which cannot be written into one of "
                f"{list(target.shape)} on {NAME}."
            )
        _copy(target, host)
    return targets[0] if len(targets) == 1 else tuple(targets)


def _functional(func: Any, args: Any, named: dict[str, Any]) -> tuple[Any, list[Any], Any, dict[str, Any]]:
    """Functional form of an operation in place, the tensors that the operation changes, and the form's arguments."""
    arguments = func._schema.arguments
    changed = [
        operand for operand in arguments if operand.alias_info is not None and operand.alias_info.is_write
    ]
    outputs = [operand.name for operand in changed if operand.is_out]
    values = {operand.name: value for operand, value in zip(arguments, args, strict=False)} | named
    targets = [values[operand.name] for operand in changed]
    name = func._schema.name.removeprefix("aten::")
    # ``add_`` has the form ``add``; ``add.out`` has another overload of ``add``.
    packet = getattr(_aten, name.removesuffix("_") if not outputs else name, None)
    inputs = [operand for operand in arguments if operand.name not in outputs]
    signature = [(operand.name, str(operand.type)) for operand in inputs]
    for overload in packet.overloads() if packet else ():
        form = getattr(packet, overload)
        candidate = [(operand.name, str(operand.type)) for operand in form._schema.arguments]
        if not form._schema.is_mutable and candidate == signature:
            rest = {key: value for key, value in named.items() if key not in outputs}
            return form, targets, args, rest
    raise CompileError(f"{func} changes a tensor on {NAME} in a way that has no functional form.")


def as_device_tensor(leaf: Any) -> Any:
    """``DeviceTensor`` of a tensor on the device, with the names of its dims; any other value unchanged."""
    if not isinstance(leaf, SpyreTensor):
        return leaf
    device_tensor = _device_tensor(leaf)
    if names := names_of(leaf):
        name_tensor_dims(device_tensor, names)
    return device_tensor


def operand(tensor: torch.Tensor) -> DeviceTensor:
    """Input of a compiled graph as a ``DeviceTensor``; one of the host is moved."""
    return as_device_tensor(tensor) if isinstance(tensor, SpyreTensor) else to_device(tensor)


def _operands(func: Any, args: Any, named: dict[str, Any]) -> tuple[Any, Any]:
    """Arguments of a program: tensors of the device, and numbers of the host as such tensors."""

    def operand(leaf: Any) -> Any:
        """Argument as a tensor of the device; a tensor of the host with dims is an error."""
        if isinstance(leaf, SpyreTensor):
            return _device_tensor(leaf)
        if isinstance(leaf, torch.Tensor):
            if leaf.dim():
                raise RuntimeError(
                    f"{func} expects all tensors on one device, but found {NAME}:0 and {leaf.device}."
                )
            return to_device(leaf)
        return _on_the_host(leaf)

    return pytree.tree_map(operand, (tuple(args), dict(named)))


def _on_device(results: Any) -> Any:
    return pytree.tree_map_only(DeviceTensor, SpyreTensor.of, results)


# -- registration ---------------------------------------------------------------------------------------------


class _Module:
    """``torch.spyre``, the module that PyTorch asks about the device: there is one, always available."""

    def is_initialized(self) -> bool:
        """Return True: there is nothing to initialize."""
        return True

    def is_available(self) -> bool:
        """Return True: programs run on the simulator."""
        return True

    def current_device(self) -> int:
        """Index of the only device."""
        return 0

    def device_count(self) -> int:
        """Number of devices."""
        return 1

    def synchronize(self, device: Any = None) -> None:
        """Do nothing: a program has run when its call returns."""

    def manual_seed(self, seed: int) -> None:
        """Do nothing: the host draws random numbers."""

    manual_seed_all = manual_seed

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        """State of the host's generator, which draws for the device."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        """Set the state of the host's generator."""
        torch.set_rng_state(state)

    def _is_in_bad_fork(self) -> bool:
        return False


def _factory(operation: Any) -> Callable[..., Any]:
    """Kernel of a factory function: the host runs it, and the tensor is moved."""

    def make(*args: Any, device: Any = None, pin_memory: Any = None, **named: Any) -> SpyreTensor:
        """New tensor on the device."""
        return _move(operation(*args, device="cpu", **named))

    return make


def _extended_to(move: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.Tensor.to`` with the layouts of ``to_device``, for tensors that go to the device, as in RFC 0047."""

    @functools.wraps(move)
    def to(
        self: torch.Tensor, *args: Any, stick_dims: Any = None, dim_order: Any = None, **named: Any
    ) -> torch.Tensor:
        """Tensor in another type or on another device."""
        if stick_dims is None and dim_order is None:
            return move(self, *args, **named)
        moved = move(self, *args, **named)
        if not isinstance(moved, SpyreTensor):
            raise CompileError(
                "Stick dims are chosen for the way to the device: only a tensor that goes to 'spyre' takes them."
            )
        source = _device_tensor(moved) if isinstance(self, SpyreTensor) else _host(moved)
        return SpyreTensor.of(to_device(source, stick_dims=stick_dims, dim_order=dim_order))

    return to


_libraries: list[torch.library.Library] = []


def register() -> None:
    """Make ``spyre`` a device of PyTorch, once; another device of the same key stays what it is."""
    if _libraries or torch._C._get_privateuse1_backend_name() not in ("privateuseone", NAME):
        return
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    library = torch.library.Library("aten", "IMPL")
    for name in _FACTORIES:
        library.impl(name, _factory(overload_of(name)), "PrivateUse1")
    library.impl("_to_copy", _to_copy, "PrivateUse1")
    library.impl("scaled_dot_product_attention", _attention, "AutogradPrivateUse1")
    # A library that is collected takes its kernels back.
    _libraries.append(library)
    torch.Tensor.to = _extended_to(torch.Tensor.to)
