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

import copy
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch._utils import _rebuild_device_tensor_from_cpu_tensor, _rebuild_parameter
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from spyre_mlir.errors import CompileError
from spyre_mlir.frontend.backward_errors import raised_after_backward
from spyre_mlir.frontend.foreach import is_foreach, one_by_one
from spyre_mlir.frontend.hints import name_tensor_dims, names_of
from spyre_mlir.frontend.operations import in_its_memory
from spyre_mlir.frontend.signature import to_numpy
from spyre_mlir.layout.strided import StridedView
from spyre_mlir.tensors.device_activity import record_copy
from spyre_mlir.tensors.device_tensor import DeviceTensor, eager, to_device
from spyre_mlir.tensors.device_views import ViewStep

NAME = "spyre"

_aten = torch.ops.aten

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

_DATA = cast(Any, torch.Tensor.data)

_ATTENTION = _aten.scaled_dot_product_attention.default

_COPIES = (_aten.copy_.default, _aten._to_copy.default)


class SpyreTensor(torch.Tensor):
    """A tensor on the device: ``device_tensor`` has its storage, layout and view.

    ``of`` is the only constructor. For compilers the class is a wrapper of a tensor without numbers, of which they make
    an abstract tensor on the device ``spyre``; nothing makes a ``SpyreTensor`` from such a tensor.
    """

    device_tensor: DeviceTensor
    _meta: torch.Tensor

    # Operations arrive in __torch_dispatch__, below autograd.
    __torch_function__ = cast(Any, torch._C._disabled_torch_function_impl)

    @classmethod
    def of(cls, tensor: DeviceTensor) -> SpyreTensor:
        """PyTorch's tensor for a ``DeviceTensor``."""
        storage = torch.empty(tensor.storage.layout.shape, dtype=getattr(torch, tensor.dtype), device="meta")
        meta = storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        wrapper = torch.Tensor._make_wrapper_subclass(
            cls, meta.size(), strides=meta.stride(), storage_offset=meta.storage_offset(), dtype=meta.dtype,
            device=torch.device(NAME, 0),
        )  # fmt: skip
        # The storage that PyTorch has of a wrapper has no memory: its address is an error.
        torch._C._set_throw_on_mutable_data_ptr(wrapper)
        wrapper._meta, wrapper.device_tensor = meta, tensor
        return wrapper

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its gradient; an assignment makes the object another tensor."""
        return _DATA.__get__(self)

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        if not isinstance(value, SpyreTensor):
            raise CompileError(
                f"The data of a tensor on {NAME} is a tensor on {NAME}, not one on {value.device}."
            )
        _DATA.__set__(self, value)
        self._meta, self.device_tensor = value._meta, value.device_tensor

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["_meta"], None

    @staticmethod
    def __tensor_unflatten__(
        inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any
    ) -> torch.Tensor:
        """Abstract tensor on the device for a compiler, as PyTorch has them of other devices."""
        meta = inner["_meta"]
        if not isinstance(meta, FakeTensor):
            raise CompileError(
                f"A tensor on {NAME} cannot be made from a tensor without numbers; "
                "call this function of PyTorch on tensors of the host, which .cpu() gives."
            )
        with meta.fake_mode, torch.no_grad():
            fake = torch.empty_strided(size, stride, dtype=meta.dtype, device=NAME)
            offset = meta.storage_offset()
            if not isinstance(offset, int) or offset:
                elements = meta.untyped_storage().nbytes() // meta.itemsize
                whole = torch.empty(elements, dtype=meta.dtype, device=NAME)
                fake.set_(whole.untyped_storage(), offset, size, stride)
        # PyTorch asks a view for the tensors inside of the wrapper.
        cast(Any, fake).__tensor_flatten__ = lambda: ([], None)
        return fake

    def _view_func_unsafe(
        self, new_base: Any, symint_visitor_fn: Any = None, tensor_visitor_fn: Any = None
    ) -> Any:
        """View of another base as the tensor is one of its own, for a compiler that makes the tensor abstract."""
        if symint_visitor_fn is None or not isinstance(symint_visitor_fn(1), int):
            return super()._view_func_unsafe(new_base, symint_visitor_fn, tensor_visitor_fn)
        # A replay of the operations may give other strides to dims of one element.
        return new_base.as_strided(self.size(), self.stride(), self.storage_offset())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        text = repr(self.device_tensor.cpu())[:-1]
        layout = self.device_tensor.storage.layout
        gradient = ", requires_grad=True" if self.requires_grad else ""
        return f"{text}, device='{self.device}', device_size={list(layout.device_size)}{gradient})"

    def __deepcopy__(self, memo: dict[int, Any]) -> SpyreTensor:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only a tensor that is a leaf of the graph of gradients is copied deeply; detach() it."
            )
        tensor = self.device_tensor
        # Views that are copied together share the copy of their storage.
        if id(tensor.storage) not in memo:
            memo[id(tensor.storage)] = replace(tensor.storage, data=tensor.data.copy())
        copied = SpyreTensor.of(DeviceTensor.of(memo[id(tensor.storage)], tensor.strided, tensor.steps))
        memo[id(self)] = copied.requires_grad_(self.requires_grad)
        if self.grad is not None:
            copied.grad = copy.deepcopy(self.grad, memo)
        own = {name: value for name, value in self.__dict__.items() if name not in copied.__dict__}
        vars(copied).update(copy.deepcopy(own, memo))
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Form of ``torch.save``: the numbers on the host, which go to the device when they are loaded."""
        if getattr(self, "_is_param", False):
            return _rebuild_parameter, (self.data, self.requires_grad, OrderedDict())
        form = (self.device_tensor.cpu(), self.dtype, str(self.device), self.requires_grad)
        return _rebuild_device_tensor_from_cpu_tensor, form

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else super().__format__(spec)

    def numpy(self, *, force: bool = False) -> Any:
        """Copy to an array of numpy if ``force`` is True; else a TypeError, for no array is in device memory."""
        if not force:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return self.device_tensor.cpu().numpy()

    def tolist(self) -> Any:
        """Numbers as nested lists, read on the host."""
        return self.cpu().tolist()

    def restickify(self, stick_dims: Sequence[int]) -> SpyreTensor:
        """Copy with other stick dims, computed on the device."""
        return SpyreTensor.of(self.device_tensor.restickify(stick_dims))

    @classmethod
    @raised_after_backward
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if any(issubclass(kind, (FakeTensor, FunctionalTensor)) for kind in types):
            return NotImplemented
        packet = func.overloadpacket
        if packet in _LIKE:
            return _like(func, args, named)
        if func in _COPIES:
            return to_copy(*args, **named) if func is _COPIES[1] else _copy(*args, **named)
        if func is _aten.lift_fresh.default:
            # A tensor of the device is no constant of a trace.
            return args[0]
        if func is _aten._local_scalar_dense.default:
            return host_copy(args[0]).item()
        if func is _aten.equal.default:
            return torch.equal(*map(host_copy, args))
        if func in COMPOSED:
            return COMPOSED[func](*args, **named)
        if is_foreach(func):
            return one_by_one(func, args, named)
        # Composite operations come here whole where autograd is off.
        if (composed := func.decompose(*args, **named)) is not NotImplemented:
            return composed
        if packet in _FILLS:
            return _filled(func, args, named)
        if func.is_view:
            return return_and_correct_aliasing(func, args, named, _viewed(func, args, named))
        if torch.Tag.inplace_view in func.tags:
            return _changed_in_place(func, args, named)
        if func._schema.is_mutable:
            return _in_place(func, args, named)
        return _on_device(eager().run(func, *_operands(func, args, named)))


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor on the host, by no operation of PyTorch: inside of one these have other meanings."""
    if isinstance(tensor, SpyreTensor):
        record_copy(tensor.nbytes, to_device=False)
    return tensor.device_tensor.cpu() if isinstance(tensor, SpyreTensor) else tensor


def attention(*args: Any, **named: Any) -> Any:
    """Attention as one program; for a gradient and a compiler, as matmuls and a softmax, which have gradients."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, named)) if isinstance(leaf, torch.Tensor)]
    wants_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if wants_gradient or not any(isinstance(tensor, SpyreTensor) for tensor in tensors):
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


def _lstm_cell(
    input: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, *biases: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """Cell of an LSTM from its gates: the next hidden state and cell, and what PyTorch keeps for a gradient."""
    gates = sum((bias for bias in biases if bias is not None), input + hidden)
    update, forget, change, output = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + update.sigmoid() * change.tanh()
    return output.sigmoid() * cell.tanh(), cell, gates


def _gru_cell(
    input: torch.Tensor, hidden: torch.Tensor, state: torch.Tensor, *biases: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """Cell of a GRU from its gates: the next hidden state, and what PyTorch keeps for a gradient."""
    inner, outer = (
        (gates if bias is None else gates + bias).chunk(3, 1)
        for gates, bias in zip((input, hidden), biases or (None, None), strict=True)
    )
    reset, update = (inner[0] + outer[0]).sigmoid(), (inner[1] + outer[1]).sigmoid()
    change = (inner[2] + reset * outer[2]).tanh()
    return change + update * (state - change), hidden


#: Operations that PyTorch has whole for a device, as operations with gradients of their own.
COMPOSED = {
    _ATTENTION: attention,
    _aten._thnn_fused_lstm_cell.default: _lstm_cell,
    _aten._thnn_fused_gru_cell.default: _gru_cell,
}


def _on_the_host(leaf: Any) -> Any:
    """Argument of an operation that runs on the host: the device ``spyre`` becomes the CPU."""
    if isinstance(leaf, torch.device) and leaf.type == NAME:
        return torch.device("cpu")
    return leaf


def move(tensor: torch.Tensor, **layout: Any) -> SpyreTensor:
    """Tensor of the host on the device, with the same strides; with a ``layout``, dense."""
    record_copy(tensor.nbytes, to_device=True)
    return SpyreTensor.of(to_device(tensor, **layout) if layout else in_its_memory(tensor))


def _like(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Operation that reads only the shape of a tensor, run on the host."""
    source = args[0]
    example = torch.empty_like(source._meta, device="cpu")
    target = named.get("device")
    result = func(example, *args[1:], **{name: _on_the_host(value) for name, value in named.items()})
    return result if target is not None and target.type != NAME else move(result)


def to_copy(
    tensor: torch.Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **named: Any
) -> Any:
    """Copy of another dtype, in another order of memory, or on another device."""
    memory_format = memory_format or torch.preserve_format
    if not isinstance(tensor, SpyreTensor):
        # PyTorch's way of ``.to("spyre")``.
        host = tensor.to(dtype) if dtype is not None else tensor
        strides = torch.empty_like(host, device="meta", memory_format=memory_format).stride()
        return move(torch.empty_strided(host.shape, strides, dtype=host.dtype).copy_(host))
    source = tensor.device_tensor
    if device is not None and torch.device(device).type != NAME:
        return host_copy(tensor).to(device, dtype, memory_format=memory_format)
    named = {"memory_format": memory_format}
    if dtype in (None, tensor.dtype):
        return _on_device(eager().run(_aten.clone.default, (source,), named))
    return _on_device(eager().run(_aten._to_copy.default, (source,), {"dtype": dtype, **named}))


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``copy_`` from or to the device."""
    host = host_copy(source)
    if not isinstance(target, SpyreTensor):
        return target.copy_(host)
    _write(target, host)
    return target


def _write(target: SpyreTensor, host: torch.Tensor) -> None:
    """Replace the numbers of a tensor, in its storage, by those of one on the host, converted and broadcast."""
    tensor = target.device_tensor
    values = host.to(target.dtype).expand(target.shape)
    numbers = values.float().numpy() if values.dtype == torch.bfloat16 else to_numpy(values.contiguous())
    tensor.write(numbers)


def _filled(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Operation that fills a tensor, run on the host and written into the storage."""
    target, *rest = args
    # Drawn on the host, so that a seed gives the same numbers as on the CPU.
    example = torch.empty(target.shape, dtype=target.dtype)
    rest = [host_copy(value) if isinstance(value, torch.Tensor) else value for value in rest]
    _write(target, func(example, *rest, **named))
    return target


def _viewed(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Result of a view operation: the sizes and strides that PyTorch computes, on the same storage."""
    source, *rest = args
    results = func(source._meta, *rest, **named)
    step = ViewStep(str(func).removeprefix("aten."), (*rest, *([named] if named else [])))
    if isinstance(results, torch.Tensor):
        return _view(source, results, step)
    return [_view(source, part, step._replace(number=index)) for index, part in enumerate(results)]


def _view(source: SpyreTensor, meta: torch.Tensor, step: ViewStep) -> SpyreTensor:
    """View of a tensor with the sizes and strides of one without numbers."""
    if meta.dtype != source.dtype or meta.is_neg():
        raise CompileError(
            f"The device has no view of {source.dtype} that reads its memory as other numbers, as {step.name} does; "
            "do it on the host."
        )
    tensor = source.device_tensor
    strided = StridedView(tuple(meta.shape), meta.stride(), int(meta.storage_offset()))
    return SpyreTensor.of(tensor if strided == tensor.strided else tensor.view_as(strided, step))


def _changed_in_place(func: Any, args: Any, named: dict[str, Any]) -> torch.Tensor:
    """Operation that makes a tensor a view of itself, or another tensor: numbers stay where they are."""
    target, *rest = args
    if func is _aten.set_.source_Tensor and isinstance(rest[0], SpyreTensor):
        target.data = rest[0]
        return target
    view, *_ = _functional(func, args, named)
    if not view.is_view:
        raise CompileError(
            f"{func} changes the memory of a tensor on {NAME}, which is not supported; make a new one."
        )
    target.data = view(target, *rest, **named)
    return target


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
    device_tensor = leaf.device_tensor
    if names := names_of(leaf):
        name_tensor_dims(device_tensor, names)
    return device_tensor


def operand(tensor: torch.Tensor) -> DeviceTensor:
    """Input of a compiled graph as a ``DeviceTensor``; one of the host is moved."""
    return as_device_tensor(to_copy(tensor) if not isinstance(tensor, SpyreTensor) else tensor)


def _operands(func: Any, args: Any, named: dict[str, Any]) -> tuple[Any, Any]:
    """Arguments of a program: tensors of the device, and numbers of the host as such tensors."""

    def operand(leaf: Any) -> Any:
        """Argument as a tensor of the device; a tensor of the host with dims is an error."""
        if isinstance(leaf, SpyreTensor):
            return leaf.device_tensor
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
