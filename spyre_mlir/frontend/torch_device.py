# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's device "spyre": its tensors wrap a ``DeviceTensor``, and each operation is a compiled program.

::

    x = torch.rand(64, 256, dtype=torch.float16).to("spyre")
    model.to("spyre")
    print(torch.compile(kernel)(x, y))

PyTorch's key for unknown devices, PrivateUse1, is named ``spyre`` when ``spyre_mlir.frontend`` is imported. A tensor is
a wrapper without PyTorch memory; views share the storage of its ``device_tensor``. An in-place operation computes a new
tensor and writes it into that storage. Random numbers are drawn on the host.
"""

from __future__ import annotations

import copy
import functools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._prims_common.wrappers import _maybe_resize_out, _safe_copy_out
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch._utils import _rebuild_device_tensor_from_cpu_tensor, _rebuild_parameter
from torch.autograd import Variable
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from spyre_mlir.dialects.torch_call import COLLECTIVES
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.faults import InternalError
from spyre_mlir.frontend import host_operations, transformer_layers
from spyre_mlir.frontend.device_streams import check_device
from spyre_mlir.frontend.growing_sizes import GrowingSizesError
from spyre_mlir.frontend.hints import name_tensor_dims, names_of
from spyre_mlir.frontend.operations import in_its_memory, memory_of, viewed, write_memory
from spyre_mlir.frontend.storage import shares_memory
from spyre_mlir.frontend.tensor_layouts import SpyreTensorLayout
from spyre_mlir.layout import StickLayout
from spyre_mlir.layout.strided import StridedView
from spyre_mlir.target.element_types import dtype_name
from spyre_mlir.tensors.device_activity import record_copy, record_host
from spyre_mlir.tensors.device_tensor import DeviceTensor, eager, element_type, has_form, in_layout, to_device
from spyre_mlir.tensors.device_views import ViewStep

# Errors of operations on the device inside a backward, which would make PyTorch end the process.
#
# PyTorch leaves a node of a backward through the device guard of ``privateuseone``, which is written in Python, while
# the error of the node is set: the error is lost, or the process aborts. An error of a callback at the end of a
# backward is kept. So the operation returns zeros in place of its results, and a callback raises the error.

#: The number of the current backward outside any backward.
_NO_BACKWARD = -1


def raised_after_backward(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """Make errors of a ``__torch_dispatch__`` inside a backward surface at the caller of the backward."""

    @functools.wraps(dispatch)
    def dispatched(
        cls: Any, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation, which Dynamo does not trace; an error inside a backward is raised at its end."""
        tracer = set_eval_frame(None)
        try:
            return dispatch(cls, func, types, args, kwargs)
        except Exception as error:
            if torch._C._current_graph_task_id() == _NO_BACKWARD or func._schema.is_mutable:
                raise
            # Results of an operation on the device in their shapes and types, filled with 0.
            on_meta = pytree.tree_map_only(torch.Tensor, _on_meta, (args, kwargs or {}))
            results = func(*on_meta[0], **on_meta[1])
            zeros = pytree.tree_map_only(
                torch.Tensor, lambda x: cls.of(to_device(torch.zeros(x.shape, dtype=x.dtype))), results
            )
            kept = error
        finally:
            set_eval_frame(tracer)
        Variable._execution_engine.queue_callback(functools.partial(raise_error, kept))
        return zeros

    return dispatched


def raise_error(error: Exception) -> None:
    """Raise an error, as a callback at the end of a backward."""
    raise error


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


NAME = "spyre"
#: Errors that must not be hidden by running the operation on the host.
_FAULTS = (AlgorithmError, InternalError)

_aten = torch.ops.aten

#: Operations that read only the sizes and strides of a tensor, and run on the host.
_LIKE = {
    _aten.empty_like, _aten.zeros_like, _aten.ones_like, _aten.full_like, _aten.rand_like, _aten.randn_like,
    _aten.randint_like, _aten.new_empty, _aten.new_zeros, _aten.new_ones, _aten.new_full, _aten.new_empty_strided,
}  # fmt: skip

#: Operations that fill a tensor with numbers computed on the host.
_FILLS = {
    _aten.fill_, _aten.zero_, _aten.uniform_, _aten.normal_, _aten.bernoulli_, _aten.random_, _aten.exponential_,
    _aten.log_normal_, _aten.cauchy_, _aten.geometric_,
}  # fmt: skip

#: Dtypes that are not moved to the device. An operation may return such tensors, which the host computes.
_REFUSED = {torch.float64, torch.complex32, torch.complex64, torch.complex128}

#: Operations whose indices may be host tensors.
_INDEXED = {_aten.index, _aten.index_put, _aten.index_put_, _aten._index_put_impl_}

#: Reasons why the device cannot read an operand: its dtype, or that it has no elements.
_REASONS = ("Numbers of {} in this operand have no form on the device.", "An operand has no elements.")

_DATA = cast(Any, torch.Tensor.data)

_ATTENTION = _aten.scaled_dot_product_attention.default

_COPIES = (_aten.copy_.default, _aten._to_copy.default)


class SpyreTensor(torch.Tensor):
    """A tensor on the device: ``device_tensor`` has its storage, layout and view.

    ``of`` is the only constructor. For compilers the class wraps a tensor without data, from which they make an
    abstract tensor on the device ``spyre``; a ``SpyreTensor`` is never made from such a tensor.
    """

    device_tensor: DeviceTensor
    #: The layout of the storage when the tensor was moved to the device, as it was given and as it is stored.
    given_layout: tuple[StickLayout | None, SpyreTensorLayout] | None = None
    #: Whether ``repr`` shows the sizes of the device dims.
    shows_layout = True
    _meta: torch.Tensor

    # Operations are handled in __torch_dispatch__, below autograd.
    __torch_function__ = cast(Any, torch._C._disabled_torch_function_impl)

    @classmethod
    def of(cls, tensor: DeviceTensor) -> SpyreTensor:
        """Return the PyTorch tensor for a ``DeviceTensor``."""
        storage = torch.empty(tensor.storage.shape, dtype=getattr(torch, tensor.dtype), device="meta")
        meta = storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        wrapper = torch.Tensor._make_wrapper_subclass(
            cls, meta.size(), strides=meta.stride(), storage_offset=meta.storage_offset(), dtype=meta.dtype,
            device=torch.device(NAME, 0), storage_size=storage.untyped_storage().nbytes(),
        )  # fmt: skip
        # PyTorch's storage of a wrapper does not have memory, so reading its address is an error.
        torch._C._set_throw_on_mutable_data_ptr(wrapper)
        wrapper._meta, wrapper.device_tensor = meta, tensor
        return wrapper

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its gradient. Assigning ``data`` makes the object refer to another tensor."""
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
        """Return an abstract tensor on the device for a compiler, as PyTorch makes for other devices."""
        meta = inner["_meta"]
        if not isinstance(meta, FakeTensor):
            raise CompileError(
                f"A tensor on {NAME} cannot be created from a tensor without data; "
                "call this PyTorch function on host tensors, which .cpu() returns."
            )
        with meta.fake_mode, torch.no_grad():
            fake = torch.empty_strided(size, stride, dtype=meta.dtype, device=NAME)
            offset = meta.storage_offset()
            if not isinstance(offset, int) or offset:
                elements = meta.untyped_storage().nbytes() // meta.itemsize
                whole = torch.empty(elements, dtype=meta.dtype, device=NAME)
                fake.set_(whole.untyped_storage(), offset, size, stride)
        # PyTorch asks a view for the tensors inside the wrapper.
        cast(Any, fake).__tensor_flatten__ = lambda: ([], None)
        return fake

    def _view_func_unsafe(
        self, new_base: Any, symint_visitor_fn: Any = None, tensor_visitor_fn: Any = None
    ) -> Any:
        """View ``new_base`` as this tensor views its own base, for a compiler that makes the tensor abstract."""
        if symint_visitor_fn is None or not isinstance(symint_visitor_fn(1), int):
            return super()._view_func_unsafe(new_base, symint_visitor_fn, tensor_visitor_fn)
        # Replaying the operations may give other strides to dims of one element.
        return new_base.as_strided(self.size(), self.stride(), self.storage_offset())

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        text = repr(self.device_tensor.cpu())[:-1]
        form = self.device_tensor.storage.form
        layout = f", device_size={list(form.device_size)}" if form is not None and self.shows_layout else ""
        gradient = ", requires_grad=True" if self.requires_grad else ""
        return f"{text}, device='{self.device}'{layout}{gradient})"

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
        """Form for ``torch.save``: the data on the host, which is moved to the device when it is loaded."""
        if getattr(self, "_is_param", False):
            return _rebuild_parameter, (self.data, self.requires_grad, OrderedDict())
        form = (self.device_tensor.cpu(), self.dtype, str(self.device), self.requires_grad)
        return _rebuild_device_tensor_from_cpu_tensor, form

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else super().__format__(spec)

    def numpy(self, *, force: bool = False) -> Any:
        """Copy to a numpy array if ``force`` is True; otherwise raise TypeError: numpy cannot use device memory."""
        if not force:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return self.device_tensor.cpu().numpy()

    def data_ptr(self) -> int:
        """Number that identifies the memory of the first element; host code must not read it as an address."""
        memory = self.device_tensor.data
        offset = self.device_tensor.storage_offset() * self.itemsize
        return memory.ctypes.data + offset if self.numel() else 0

    def tolist(self) -> Any:
        """Return the data as nested lists, read on the host."""
        return self.cpu().tolist()

    def device_tensor_layout(self) -> SpyreTensorLayout:
        """Return the layout of the storage; ``CompileError`` for a tensor whose storage does not have one."""
        form = self.device_tensor.storage.form
        if self.given_layout is not None and self.given_layout[0] is form:
            return self.given_layout[1]
        return SpyreTensorLayout.of(self.device_tensor.storage.layout, self.dtype)

    def restickify(self, stick_dims: Sequence[int]) -> SpyreTensor:
        """Return a copy with other stick dims, computed on the device."""
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
            # A device tensor is not a constant of a trace.
            return args[0]
        if func is _aten.record_stream.default:
            # All streams are in order.
            return None
        if func is _aten._local_scalar_dense.default:
            return host_copy(args[0]).item()
        if func is _aten.equal.default:
            return torch.equal(*map(host_copy, args))
        if func in COMPOSED:
            return COMPOSED[func](*args, **named)
        if func.namespace in _COLLECTIVES:
            return _collective(func, args, named)
        if is_foreach(func) or func in _LOOPS:
            return one_by_one(func, args, named)
        # If autograd is off, composite operations arrive here undecomposed.
        if (composed := func.decompose(*args, **named)) is not NotImplemented:
            return composed
        if func is _aten.histc.default and not args[0].is_floating_point():
            return histc(*args, **named)
        if packet in _FILLS:
            return on_the_host(func, args, named)
        try:
            if func.is_view:
                return return_and_correct_aliasing(func, args, named, _viewed(func, args, named))
            if torch.Tag.inplace_view in func.tags:
                return _changed_in_place(func, args, named)
            if func._schema.is_mutable:
                return _in_place(func, args, named)
            return _on_device(eager().run(func, *_operands(func, args, named)))
        except _FAULTS:
            raise
        except CompileError as error:
            return on_the_host(func, args, named, error)


#: The libraries of PyTorch's collectives, and the operations of them that do nothing after a collective that waits.
_COLLECTIVES, _WAITS = ("c10d", COLLECTIVES), ("wait_tensor", "_wrap_tensor_autograd")


def _collective(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Run a collective of PyTorch on copies of the tensors on the host, and wait for it."""
    if func._opname in _WAITS:
        return args[0]

    def complete(*args: Any, **named: Any) -> Any:
        """Return the results with their data, so that they can be copied to the device."""
        results = func(*args, **named)
        for leaf in pytree.tree_leaves(results):
            if isinstance(leaf, torch.ScriptObject):
                torch.distributed.Work.unbox(leaf).wait()
        if func.namespace == COLLECTIVES:
            return pytree.tree_map_only(torch.Tensor, torch.ops._c10d_functional.wait_tensor, results)
        return results

    complete.is_view = False  # type: ignore[attr-defined]
    return on_the_host(complete, args, named)


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Copy the tensor to the host without PyTorch operations, which have other meanings inside an operation."""
    if isinstance(tensor, SpyreTensor):
        record_copy(tensor, to_device=False)
    return tensor.device_tensor.cpu() if isinstance(tensor, SpyreTensor) else tensor


def attention(*args: Any, **named: Any) -> Any:
    """Attention as one program; for gradients and compilers, as matmuls and a softmax, which have gradients."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, named)) if isinstance(leaf, torch.Tensor)]
    wants_gradient = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    if wants_gradient or not any(isinstance(tensor, SpyreTensor) for tensor in tensors):
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        operands = dict(zip(names, args, strict=False)) | named
        mask = operands.get("attn_mask")
        if mask is None or mask.dtype != torch.bool:
            with_added_mask = operands
        else:
            numbers = torch.zeros_like(mask, dtype=operands["query"].dtype)
            with_added_mask = {**operands, "attn_mask": numbers.masked_fill(mask.logical_not(), -torch.inf)}
        return _aten._scaled_dot_product_attention_math.default(**with_added_mask)[0]
    try:
        return _on_device(eager().run(_ATTENTION, *_operands(_ATTENTION, args, named)))
    except _FAULTS:
        raise
    except CompileError as error:
        return on_the_host(_ATTENTION, args, named, error)


def _lstm_cell(
    input: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor, *biases: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """LSTM cell from its gates: the next hidden state and cell, and the tensors that PyTorch keeps for a gradient."""
    gates = sum((bias for bias in biases if bias is not None), input + hidden)
    update, forget, change, output = gates.chunk(4, 1)
    cell = forget.sigmoid() * cell + update.sigmoid() * change.tanh()
    return output.sigmoid() * cell.tanh(), cell, gates


def _gru_cell(
    input: torch.Tensor, hidden: torch.Tensor, state: torch.Tensor, *biases: torch.Tensor | None
) -> tuple[torch.Tensor, ...]:
    """GRU cell from its gates: the next hidden state, and the tensors that PyTorch keeps for a gradient."""
    inner, outer = (
        (gates if bias is None else gates + bias).chunk(3, 1)
        for gates, bias in zip((input, hidden), biases or (None, None), strict=True)
    )
    reset, update = (inner[0] + outer[0]).sigmoid(), (inner[1] + outer[1]).sigmoid()
    change = (inner[2] + reset * outer[2]).tanh()
    return change + update * (state - change), hidden


def _batch_norm(input: torch.Tensor, *rest: Any) -> tuple[Any, ...]:
    """Batch norm; without elements PyTorch would make statistics in f64, which the device does not support."""
    if input.numel():
        return _aten._batch_norm_impl_index.default.decompose(input, *rest)
    result = input.clone()
    for parameter, apply in zip(rest[:2], (torch.mul, torch.add), strict=True):
        result = result if parameter is None else apply(result, parameter[0])
    return result, *(input.new_zeros(input.shape[1]) for _ in range(2)), input.new_zeros(0), 0


def _tensor_split(tensor: torch.Tensor, indices: torch.Tensor, dim: int = 0) -> Any:
    """Split a tensor at indices; PyTorch itself accepts only indices on the host."""
    split = _aten.tensor_split.indices if indices.dim() else _aten.tensor_split.sections
    return split(tensor, indices.tolist(), dim)


def _ctc_loss(scores: torch.Tensor, targets: torch.Tensor, *rest: Any) -> torch.Tensor:
    """CTC loss with lengths as numbers; PyTorch divides by tensors of lengths, which may be on the host."""
    lengths = [each.tolist() for each in rest[:2]]
    return _aten.ctc_loss.IntList(scores, targets, *lengths, *rest[2:])


def histc(tensor: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """Count numbers in bins; also integers, which PyTorch counts only on devices."""
    if tensor.is_floating_point():
        return _aten.histc.default(tensor, bins, min, max)
    return _aten.histc.default(tensor.float(), bins, min, max).to(tensor.dtype)


def _into_out(func: Any) -> Callable[..., Any]:
    """Form of an operation with ``out=``, which writes the result of the functional operation."""

    def write(*args: Any, out: torch.Tensor, **named: Any) -> torch.Tensor:
        """Write the result into ``out``, resized if it has other sizes."""
        functional, *_ = _functional(func, args, {**named, "out": out})
        made = functional(*args, **named)
        _maybe_resize_out(out, made.shape)
        _safe_copy_out(copy_from=made, copy_to=out)
        return out

    return write


_rank = _aten.linalg_matrix_rank

#: Operations that PyTorch does not decompose on a device, as operations that have gradients. For tensors of a Python
#: class PyTorch does not write a rank into ``out``.
COMPOSED = {
    _ATTENTION: attention,
    _aten._thnn_fused_lstm_cell.default: _lstm_cell,
    _aten._thnn_fused_gru_cell.default: _gru_cell,
    _aten.tensor_split.tensor_indices_or_sections: _tensor_split,
    _aten.ctc_loss.Tensor: _ctc_loss,
    _aten._batch_norm_impl_index.default: _batch_norm,
    **{
        form: _into_out(form)
        for name in _rank.overloads()
        if (form := getattr(_rank, name))._schema.is_mutable
    },
} | transformer_layers.FORMS


def _on_the_host(leaf: Any) -> Any:
    """Argument for an operation that runs on the host: the device ``spyre`` becomes the CPU."""
    if isinstance(leaf, torch.device) and leaf.type == NAME:
        check_device(leaf)
        return torch.device("cpu")
    return leaf


def move(tensor: torch.Tensor, **layout: Any) -> SpyreTensor:
    """Move a host tensor to the device, with the same strides; with a ``layout``, the tensor is dense.

    ``CompileError`` for 64-bit floating-point numbers and complex numbers in a tensor that has dims.
    """
    if tensor.dtype in _REFUSED and tensor.dim():
        element_type(dtype_name(tensor.dtype))
    record_copy(tensor, to_device=True)
    return SpyreTensor.of(to_device(tensor, **layout) if layout else in_its_memory(tensor))


def move_to_layout(tensor: torch.Tensor, stl: SpyreTensorLayout) -> SpyreTensor:
    """Move a host tensor to the device in a layout.

    A layout that only a transfer can write is reported as given, and the simulator stores the tensor in the default
    layout.
    """
    layout = stl.stick_layout(tensor)
    if layout is None:
        moved = move(tensor.contiguous())
    else:
        record_copy(tensor, to_device=True)
        moved = SpyreTensor.of(in_layout(tensor, layout))
    moved.given_layout = moved.device_tensor.storage.form, stl
    return moved


def _like(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Run an operation that reads only the shape of a tensor on the host."""
    source = args[0]
    example = torch.empty_like(source._meta, device="cpu")
    target = named.get("device")
    result = func(example, *args[1:], **{name: _on_the_host(value) for name, value in named.items()})
    if "empty" in str(func):
        result.zero_()
    is_elsewhere = target is not None and torch.device(target).type != NAME
    return result if is_elsewhere else SpyreTensor.of(in_its_memory(result))


def on_the_host(func: Any, args: Any, named: dict[str, Any], error: CompileError | None = None) -> Any:
    """Run an operation with PyTorch's CPU kernel; the ``error`` of its program is reported as a warning."""
    leaves, tree = pytree.tree_flatten((tuple(args), dict(named)))
    if error is not None and any(isinstance(leaf, SpyreTensor) and leaf.numel() for leaf in leaves):
        record_host(func, error.message)
        host_operations.report(func, error.message)
    operands = [
        leaf.device_tensor if isinstance(leaf, SpyreTensor) else _on_the_host(leaf) for leaf in leaves
    ]
    examples = error.examples if isinstance(error, GrowingSizesError) else ()
    host_args, host_named = tree.unflatten(operands)
    results, replaced = host_operations.run(func, host_args, host_named, examples)
    for index, tensor in replaced.items():
        leaves[index].data = SpyreTensor.of(tensor)

    def placed(value: Any) -> Any:
        """Return a result as a PyTorch tensor."""
        if isinstance(value, host_operations.OperandResult):
            return leaves[value.index]
        return SpyreTensor.of(value) if isinstance(value, DeviceTensor) else value

    results = pytree.tree_map(placed, results, is_leaf=lambda x: isinstance(x, host_operations.OperandResult))
    if func.is_view:
        return return_and_correct_aliasing(func, args, named, results)
    return results


def to_copy(
    tensor: torch.Tensor, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **named: Any
) -> Any:
    """Copy with another dtype, in another memory order, or on another device."""
    memory_format = memory_format or torch.preserve_format
    if device is None or torch.device(device).type == NAME:
        check_device(device)
    if not isinstance(tensor, SpyreTensor):
        # PyTorch implements ``.to("spyre")`` by this call.
        host = tensor.to(dtype) if dtype is not None else tensor
        strides = torch.empty_like(host, device="meta", memory_format=memory_format).stride()
        return move(torch.empty_strided(host.shape, strides, dtype=host.dtype).copy_(host))
    if device is not None and torch.device(device).type != NAME:
        return host_copy(tensor).to(device, dtype, memory_format=memory_format)
    func = _aten.clone.default if dtype in (None, tensor.dtype) else _aten._to_copy.default
    converted = {"memory_format": memory_format} | ({} if func is _aten.clone.default else {"dtype": dtype})
    try:
        return _on_device(eager().run(func, *_operands(func, (tensor,), converted)))
    except _FAULTS:
        raise
    except CompileError as error:
        is_stored = tensor.device_tensor.storage.form is None or not has_form(str(dtype or tensor.dtype)[6:])
        return on_the_host(func, (tensor,), converted, None if is_stored else error)


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``copy_`` to or from the device."""
    if not isinstance(target, SpyreTensor):
        return target.copy_(host_copy(source))
    if isinstance(source, SpyreTensor):
        one, other = target.device_tensor, source.device_tensor
        # PyTorch accepts elements that share memory in a copy to itself.
        if one.storage is other.storage and one.strided == other.strided:
            return target
    if _overlap_in_part(target, source):
        return on_the_host(_COPIES[0], (target, source), {})
    _write(target, host_copy(source))
    return target


def _overlap_in_part(target: SpyreTensor, source: Any) -> bool:
    """Return whether two dense views of one storage have some elements in common; PyTorch's kernels raise an error."""
    if (
        not isinstance(source, SpyreTensor)
        or target.device_tensor.storage is not source.device_tensor.storage
    ):
        return False
    views = target.device_tensor.strided, source.device_tensor.strided
    is_dense = all(
        view.end - view.offset == tensor.numel() for view, tensor in zip(views, (target, source), strict=True)
    )
    return is_dense and views[0] != views[1] and max(v.offset for v in views) < min(v.end for v in views)


def _write(target: SpyreTensor, host: torch.Tensor) -> None:
    """Overwrite the data of a tensor in its storage with the data of a host tensor, converted and broadcast."""
    tensor = target.device_tensor
    memory = memory_of(tensor.storage)
    viewed(memory, tensor).copy_(host)
    # The memory of a storage without a layout is the storage itself.
    if tensor.storage.form is not None:
        write_memory(tensor.storage, memory)


def _viewed(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Result of a view operation: the sizes and strides that PyTorch computes, on the same storage."""
    source, *rest = args
    results = func(source._meta, *rest, **named)
    step = ViewStep(str(func).removeprefix("aten."), (*rest, *([named] if named else [])))
    if isinstance(results, torch.Tensor):
        return _view(source, results, step)
    return [_view(source, part, step._replace(number=index)) for index, part in enumerate(results)]


def _view(source: SpyreTensor, meta: torch.Tensor, step: ViewStep) -> SpyreTensor:
    """View of a tensor with the sizes and strides of ``meta``, a tensor without data."""
    if meta.dtype != source.dtype or meta.is_neg() or meta.is_conj():
        raise CompileError(f"The operation reads numbers of {source.dtype} as {meta.dtype}.")
    tensor = source.device_tensor
    strided = StridedView(tuple(meta.shape), meta.stride(), int(meta.storage_offset()))
    # In inference mode, a view of a tensor with a version counter has the counter too.
    with torch.inference_mode(source.is_inference()):
        return SpyreTensor.of(tensor if strided == tensor.strided else tensor.view_as(strided, step))


def _changed_in_place(func: Any, args: Any, named: dict[str, Any]) -> torch.Tensor:
    """Run an operation that makes a tensor a view of itself, or another tensor; data does not move."""
    target, *rest = args
    if func is _aten.set_.source_Tensor and isinstance(rest[0], SpyreTensor):
        target.data = rest[0]
        return target
    view, *_ = _functional(func, args, named)
    if not view.is_view:
        return on_the_host(func, args, named)
    target.data = view(target, *rest, **named)
    return target


def _in_place(func: Any, args: Any, named: dict[str, Any]) -> Any:
    """Run an operation that changes a tensor: write the result of its functional form into the storage."""
    functional, targets, changed, inputs = _functional(func, args, named)
    # The operand ``out`` may be a list of tensors, and an operation of AMP or of an optimizer changes lists of tensors.
    written = pytree.tree_leaves(targets)
    if any(
        _overlap_in_part(target, each) for target in written for each in pytree.tree_leaves((args, named))
    ):
        return on_the_host(func, args, named)
    results = pytree.tree_leaves(eager().run(functional, *_operands(func, changed, inputs)))
    for target, result in zip(written, results, strict=True):
        dtype = getattr(torch, result.dtype)
        is_error = tuple(result.shape) != tuple(target.shape) or not torch.can_cast(dtype, target.dtype)
        if is_error or shares_memory(target._meta):
            # PyTorch resizes some tensors, and has kernels that write to elements that share memory.
            return on_the_host(func, args, named)
    for target, result in zip(written, results, strict=True):
        _write(target, result.cpu())
    returned = tuple(written[: len(func._schema.returns)])
    return returned[0] if len(returned) == 1 else returned or None


def _functional(func: Any, args: Any, named: dict[str, Any]) -> tuple[Any, list[Any], Any, dict[str, Any]]:
    """Functional form of an in-place operation, the tensors that the operation changes, and the form's arguments."""
    arguments = func._schema.arguments
    changed = [
        operand for operand in arguments if operand.alias_info is not None and operand.alias_info.is_write
    ]
    outputs = [operand.name for operand in changed if operand.is_out]
    values = {operand.name: value for operand, value in zip(arguments, args, strict=False)} | named
    targets = [values[operand.name] for operand in changed]
    name = func._schema.name.removeprefix("aten::")
    # ``add_`` has the functional form ``add``; the form of ``add.out`` is another overload of ``add``.
    packet = getattr(_aten, name.removesuffix("_") if not outputs else name, None)
    inputs = [operand for operand in arguments if operand.name not in outputs]
    signature = [(operand.name, str(operand.type)) for operand in inputs]
    for overload in packet.overloads() if packet else ():
        form = getattr(packet, overload)
        candidate = [(operand.name, str(operand.type)) for operand in form._schema.arguments]
        if not form._schema.is_mutable and candidate == signature:
            rest = {key: value for key, value in named.items() if key not in outputs}
            return form, targets, args, rest
    raise CompileError("The operation has no form that changes no operand.")


def as_device_tensor(leaf: Any) -> Any:
    """``DeviceTensor`` of a tensor on the device, with the names of its dims; any other value unchanged."""
    if not isinstance(leaf, SpyreTensor):
        return leaf
    device_tensor = leaf.device_tensor
    if names := names_of(leaf):
        name_tensor_dims(device_tensor, names)
    return device_tensor


def operand(tensor: torch.Tensor) -> DeviceTensor:
    """Input of a compiled graph as a ``DeviceTensor``; a host tensor is moved to the device."""
    return as_device_tensor(to_copy(tensor) if not isinstance(tensor, SpyreTensor) else tensor)


def _operands(func: Any, args: Any, named: dict[str, Any]) -> tuple[Any, Any]:
    """Arguments of a program as device tensors; numbers in host tensors are moved to the device.

    Raises:
        RuntimeError: A host tensor has dims, and is not an index.
        CompileError: The device does not support the operands or the results.
    """
    if torch.Tag.dynamic_output_shape in func.tags:
        raise CompileError("The sizes of its results depend on the values of its operands.")

    def operand(leaf: Any) -> Any:
        """Convert an argument to a device tensor; a host tensor with dims is an error."""
        if isinstance(leaf, SpyreTensor):
            if leaf.device_tensor.storage.form is None or not leaf.numel():
                raise CompileError(_REASONS[not leaf.numel()].format(leaf.dtype))
            return leaf.device_tensor
        if isinstance(leaf, torch.Tensor):
            if leaf.dim() and func.overloadpacket not in _INDEXED:
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"{NAME}:0 and {leaf.device}! ({func})"
                )
            return in_its_memory(leaf)
        return _on_the_host(leaf)

    return pytree.tree_map(operand, (tuple(args), dict(named)))


def _on_device(results: Any) -> Any:
    return pytree.tree_map_only(DeviceTensor, SpyreTensor.of, results)


# Operations on lists of tensors, such as ``_foreach_add``, as PyTorch's operations on each tensor.

_PREFIX = "aten::_foreach_"

#: Operations that PyTorch runs as a loop as well: lengths of sequences and batch sizes stay on the host, and zeros are
#: a part of a larger memory.
_LOOPS = {_aten._pack_padded_sequence.default, _aten._new_zeros_with_same_feature_meta.default}


def is_foreach(operation: Any) -> bool:
    """Return whether an operation takes lists of tensors and treats the tensors one after another."""
    return operation._schema.name.startswith(_PREFIX)


def one_by_one(operation: Any, args: Any, named: dict[str, Any]) -> Any:
    """Run PyTorch's loop over tensors or parts of tensors, which it uses for devices without a kernel."""
    # PyTorch dispatches the operations of the loop by their tensors.
    return operation._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **named)
