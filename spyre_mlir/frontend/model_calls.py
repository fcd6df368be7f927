# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A model that runs in pieces: PyTorch functions are recorded, and run when Python needs a number.

The model runs on tensors without data. Before a function that decides a shape or a branch (``nonzero``, ``item``,
``bool``) the recorded piece runs, and PyTorch runs the function on its results. So each piece has static shapes, and
Python loops and branches run as they are in the model.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import sys
import traceback
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol, cast
from unittest import mock

import torch
from torch import Tensor
from torch._C import DispatchKey
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._higher_order_ops import utils as higher_order_utils
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx import Graph, Node
from torch.fx import traceback as fx_traceback
from torch.fx.node import map_aggregate
from torch.nn.modules import module as module_hooks
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from spyre_mlir.errors import CompileError, UncapturedError
from spyre_mlir.frontend.call_objects import Inputs, as_call
from spyre_mlir.frontend.experts import dense_experts
from spyre_mlir.frontend.exported import off_the_device
from spyre_mlir.frontend.graph_edits import argument_key, as_function, is_plain
from spyre_mlir.frontend.hints import dim_sizes, names_of
from spyre_mlir.frontend.locations import model_frames
from spyre_mlir.frontend.meta_tensors import without_log_of_failures
from spyre_mlir.frontend.object_graphs import ObjectState
from spyre_mlir.records import dataclass

#: Functions that do not fail on a tensor without data, but read the data.
_READERS = {
    "__repr__", "__str__", "__format__", "numpy", "__array__", "__dlpack__", "data_ptr", "storage", "untyped_storage",
}  # fmt: skip
#: Functions that change the shape of a tensor in place, but not its data.
_RESHAPED_IN_PLACE = {"t_", "squeeze_", "unsqueeze_", "transpose_", "swapaxes_", "swapdims_"}
#: Functions without arithmetic whose results, or whose result shapes, depend on values.
_SELECTING = {name.strip("_") for name in _READERS} | {
    "allclose", "argwhere", "bool", "bincount", "copy", "equal", "float", "getitem", "index", "int", "is_nonzero",
    "item", "masked_select", "nonzero", "repeat_interleave", "setitem", "tolist", "unique", "unique2",
    "unique_consecutive", "where",
}  # fmt: skip
#: Methods that a user writes in another form.
_SHOWN = {
    "__bool__": "bool()", "__int__": "int()", "__float__": "float()", "__index__": "int()", "__format__": "format()",
    "__getitem__": "an index", "__setitem__": "an assignment to an index",
}  # fmt: skip
#: Checks by which PyTorch's Python functions hand themselves to a mode that records them.
_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


class PieceRunner(Protocol):
    """Runs the pieces of a call, and is notified of functions that PyTorch runs between them."""

    def run_piece(self, piece: ModelPiece) -> Sequence[Tensor]:
        """Return the results of a piece. The piece changes its inputs in place where the model does."""
        ...

    def note_host_call(self, cause: Cause, is_work: bool) -> None:
        """Note a function that PyTorch ran on the host. ``is_work`` is True if the function may compute with floats."""
        ...


class ModelCalls:
    """Calls of a model; each runs in pieces through a ``PieceRunner``."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self._model = model
        values = [model, getattr(model, "__self__", None)]
        for cell in getattr(model, "__closure__", None) or ():
            with contextlib.suppress(ValueError):  # an empty cell
                values.append(cell.cell_contents)
        #: The modules that the model is, or that a function or a method refers to.
        self._roots = [value for value in values if isinstance(value, torch.nn.Module)]
        self._numbers = ChangingNumbers()

    def call(self, runner: PieceRunner, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Call the model and return its result; in-place changes, new attributes and changed containers are kept."""
        call = [tuple(inputs), dict(named)]
        before = ObjectState([self._model, call])
        try:
            return self._call(runner, call, keep_callers=False)
        except CompileError:
            # Tensors that the model has assigned since the last piece do not have data.
            before.restore()
            raise

    def rehearse(self, runner: PieceRunner, example: Inputs) -> None:
        """Call the model with example inputs; restore the model, the inputs and the random generator afterwards."""
        call = list(as_call(example))
        before = ObjectState([self._model, call])
        with torch.random.fork_rng(devices=[]):
            try:
                self._call(runner, call, keep_callers=True)
            finally:
                before.restore()

    def _call(self, runner: PieceRunner, call: list[Any], keep_callers: bool) -> Any:
        """Call the model. During the call, the objects of its inputs contain the tensors of the call."""
        on_the_device: dict[int, tuple[Any, Any]] = {}

        def on_the_host(leaf: Any) -> Any:
            tensor = off_the_device(leaf)
            if tensor is not leaf:
                on_the_device[id(tensor)] = tensor, leaf
            return tensor

        named = (pair for root in self._roots for pair in (*root.named_parameters(), *root.named_buffers()))
        names = {id(tensor): name for name, tensor in named}
        paths = {id(module): path for root in self._roots for path, module in root.named_modules()}
        recorder = CallRecorder(runner, names, self._numbers, keep_callers)

        def completed(tensor: Any) -> Any:
            """Return the tensor with data for a tensor of the call."""
            tensor = recorder.real(tensor)
            return on_the_device.get(id(tensor), (None, tensor))[1]

        ObjectState([call], code=False).replace(on_the_host)
        result: list[Any] = []
        with torch.no_grad(), dense_experts():
            try:
                result.append(recorder.call(self._model, call, paths))
            except CompileError:
                raise
            # An error of the model; the model may have changed tensors before it.
            except Exception:
                recorder.flush(Cause("an error of the model", ""))
                ObjectState([self._model, call]).replace(completed)
                raise
            ObjectState([self._model, call, result]).replace(completed)
            ObjectState([call, result], code=False).check_hidden()
        return result[0]


class CallRecorder(TorchFunctionMode):
    """The functions that a model calls, recorded into pieces that ``runner`` runs.

    ``names`` maps identities of parameters and buffers to names. With ``keep_callers`` no tensor of the caller changes.
    """

    def __init__(
        self, runner: PieceRunner, names: dict[int, str], memory: ChangingNumbers, keep_callers: bool
    ) -> None:
        super().__init__()
        self._runner = runner
        self._names = names
        self._memory = memory
        self._storages = CallStorages(keep_callers)
        self._builder = PieceBuilder()
        self._changed: list[CallStorage] = []
        self._places = CallPlaces()

    def call(self, model: Callable[..., Any], inputs: list[Any], paths: dict[int, str]) -> Any:
        """Return the result of a model for its inputs. The objects in it then hold the tensors of the call.

        ``paths`` maps the identities of the model's modules to their names.
        """
        args, kwargs = inputs
        forward = model.forward if isinstance(model, torch.nn.Module) else model
        with contextlib.suppress(ValueError, TypeError):
            arguments = inspect.signature(forward).bind(*args, **kwargs).arguments
            named = {id(value): name for name, value in arguments.items() if isinstance(value, Tensor)}
            self._names = {**named, **self._names}
        ObjectState([inputs], code=False).replace(self._storages.enter)
        args, kwargs = inputs
        # ``torch.cond`` and similar functions are called directly, and not passed to torch.compile.
        direct = mock.patch.object(
            higher_order_utils,
            "_hop_compile_and_call",
            lambda function, args, kwargs=None: function(*args, **(kwargs or {})),
        )
        with self._places.following(paths), direct, self:
            result = model(*args, **kwargs)
        self.flush(Cause("the end of the model", ""))
        return result

    def real(self, value: Any) -> Any:
        """Return the tensor with data for a tensor that stands for it; return any other value unchanged."""
        return self._storages.real(value) if self._storages.is_fake(value) else value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.__iter__:
            with self:
                return iter(args[0].unbind(0))
        if func is Tensor.__setitem__ and any(map(_is_mask, _parts(args[1]))):
            with self:
                return _assign_where(*args)
        if isinstance(func, HigherOrderOperator):
            # Run the eager kernel: Python runs loops and branches on the values of the predicates.
            with self:
                return func.py_kernels[DispatchKey.CompositeExplicitAutograd](*args, **kwargs)
        name = getattr(func, "__name__", str(func))
        args, kwargs = _map((args, kwargs), self._entered)
        values: list[Any] = []
        _map((args, kwargs), values.append)
        # A piece has a key for calls on tensors and on values whose texts distinguish them.
        is_recordable = all(isinstance(value, Tensor) or is_plain(value) for value in values)
        if name in _READERS or "assert" in name or not is_recordable:
            return self._on_host(func, args, kwargs)
        if name in _RESHAPED_IN_PLACE:
            return self._reshape_in_place(name, args, kwargs)
        operands = list(tensors_in((args, kwargs)))
        before = [_state(tensor) for tensor in operands]
        try:
            with self._storages.mode, without_log_of_failures():
                result = func(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException):
            body = _without_dispatch(func)
            if body is None:
                return self._on_host(func, args, kwargs)
            # Only the inner function that decides runs on the host.
            with self._places.inside(), self:
                return body(*args, **kwargs)
        # Any other error on a tensor without data; PyTorch raises an error of the model itself again on the host.
        except Exception:
            return self._on_host(func, args, kwargs)
        changed = []
        for tensor, (version, place) in zip(operands, before, strict=True):
            if _state(tensor)[1] != place:
                raise CompileError(
                    f"The function '{name}' changes the storage or shape of a tensor in place; create a new tensor.",
                    self._places.line(),
                )
            if tensor._version != version:
                changed.append(self._storages.of(tensor))
        # A function may return its operand and change nothing.
        if changed or any(all(one is not other for other in operands) for one in tensors_in(result)):
            return self._record(func, args, kwargs, result, changed)
        return result

    def _entered(self, value: Any) -> Any:
        if not isinstance(value, Tensor) or self._storages.is_fake(value):
            return value
        return self._storages.enter(value)

    def _record(self, func: Any, args: Any, kwargs: Any, result: Any, changed: list[CallStorage]) -> Any:
        """Add a call to this piece; if a storage that changes would be two inputs, to the next piece or to none."""
        if torch.is_autocast_enabled("cpu"):
            raise CompileError(
                "The model enters torch.autocast, which a model in pieces does not support; cast its tensors.",
                self._places.line(),
            )
        operands = list(tensors_in((args, kwargs)))
        if self._has_aliases(operands, changed):
            self.flush(self._cause(func))
            if self._has_aliases(operands, changed):
                return self._on_host(func, args, kwargs)
        for tensor in operands:
            if tensor in self._builder.nodes:
                continue
            storage = self._storages.of(tensor)
            if storage.real is not None:
                self._builder.add_leaf(tensor, self._names.get(id(self._storages.real(tensor)), "x"))
                continue
            # An alias of a result of the piece.
            place = tensor.size(), tensor.stride(), tensor.storage_offset()
            self._builder.add_call(
                torch.as_strided, (storage.base, *place), {}, tensor, self._places.metadata()
            )
            self._storages.add(tensor)
        self._builder.add_call(func, args, kwargs, result, self._places.metadata())
        self._changed += changed
        for tensor in tensors_in(result):
            storage = self._storages.add(tensor)
            if storage.real is None and storage.base is not None and storage.base not in self._builder.nodes:
                self._builder.nodes[storage.base] = self._builder.nodes[tensor]
        return result

    def _has_aliases(self, operands: Sequence[Tensor], changed: Sequence[CallStorage]) -> bool:
        """Return whether a storage that changes would be two inputs of the piece."""
        by_buffer: dict[int, list[Tensor]] = {}
        leaves = [tensor for tensor in operands if tensor not in self._builder.nodes]
        for tensor in (*self._builder.leaves, *leaves):
            group = by_buffer.setdefault(id(self._storages.of(tensor)), [])
            if all(other is not tensor for other in group):
                group.append(tensor)
        return any(len(by_buffer.get(id(storage), ())) > 1 for storage in (*self._changed, *changed))

    def _reshape_in_place(self, name: str, args: Any, kwargs: Any) -> Any:
        """Change in place the shape of a tensor that a piece has made."""
        tensor = args[0]
        if self._storages.is_original(tensor):
            raise CompileError(
                f"The function '{name}' changes the shape of an input or a buffer in place; use '{name[:-1]}'.",
                self._places.line(),
            )
        if self._storages.of(tensor).real is not None:
            self.flush(self._cause(name))
            with self._storages.mode:
                return getattr(Tensor, name)(*args, **kwargs)
        with self:
            view = getattr(Tensor, name[:-1])(*args, **kwargs)
        with self._storages.mode:
            getattr(Tensor, name)(*args, **kwargs)
        self._builder.nodes[tensor] = self._builder.nodes[view]
        return tensor

    def _on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a function in PyTorch, on tensors with data."""
        operands = list(tensors_in((args, kwargs)))
        cause = self._cause(func)
        if operands:
            self.flush(cause)
        self._storages.before_running(operands, ())
        fakes: dict[int, Tensor] = {}

        def real(value: Any) -> Any:
            if not self._storages.is_fake(value):
                return value
            tensor = self._storages.real(value)
            fakes[id(tensor)] = value
            return tensor

        def adopted(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return fakes[id(value)] if id(value) in fakes else self._storages.adopt(value)

        args, kwargs = _map((args, kwargs), real)
        result = func(*args, **kwargs)
        # The host may have changed data that is known without running a piece.
        for tensor in operands:
            if isinstance(tensor, FakeTensor) and tensor.constant is not None:
                self._storages.mode.fake_tensor_converter.invalidate_constant_aliases(tensor.constant)
        if operands:
            # Functions that only select, count or return numbers to Python do not compute.
            is_work = getattr(func, "__name__", str(func)).strip("_") not in _SELECTING
            is_work = is_work and any(tensor.is_floating_point() for tensor in operands)
            self._runner.note_host_call(cause, is_work)
        return _map(result, adopted)

    def flush(self, cause: Cause) -> None:
        """Run the piece recorded so far; its tensors then have data."""
        builder, changed = self._builder, self._changed
        self._builder, self._changed = PieceBuilder(), []
        if not builder.calls:
            return
        filled = []
        for storage in self._storages.pending():
            tensors = [storage.base] if storage.is_covered() else storage.alive()
            filled += [
                (storage, tensor, builder.nodes[tensor]) for tensor in tensors if tensor in builder.nodes
            ]
        if not filled and not changed:
            return
        self._storages.before_running(builder.leaves, changed)
        inputs = [self._storages.real(tensor) for tensor in builder.leaves]
        piece = builder.finish([node for *_, node in filled], inputs, self._memory, cause)
        for (storage, tensor, _), values in zip(filled, self._runner.run_piece(piece), strict=True):
            self._storages.write(storage, tensor, values)
        self._storages.forget_dead()

    def _cause(self, func: Any) -> Cause:
        """A function as a user writes it, and the line that calls it."""
        name = func if isinstance(func, str) else getattr(func, "__name__", str(func))
        return Cause(_SHOWN.get(name, name), self._places.line())


def _parts(index: Any) -> tuple[Any, ...]:
    """The index of each dim; a mask may index several dims."""
    return index if isinstance(index, tuple) else (index,)


def _is_mask(index: Any) -> bool:
    return isinstance(index, Tensor) and index.dtype == torch.bool and index.ndim > 0


def _assign_where(tensor: Tensor, index: Any, value: Any) -> None:
    """Assign ``tensor[index] = value`` where masks in the index are true: one value for all places, or one for each."""
    if not _is_mask(index) or (isinstance(value, Tensor) and value.numel() != 1):
        positions: list[Any] = []
        for part in _parts(index):
            positions += part.nonzero(as_tuple=True) if _is_mask(part) else (part,)
        tensor[tuple(positions)] = value
        return
    mask = index.reshape(*index.shape, *(1,) * (tensor.ndim - index.ndim))
    value = value.reshape(()).to(tensor.dtype) if isinstance(value, Tensor) else value
    tensor.masked_fill_(mask, value)


def _map(value: Any, function: Callable[[Any], Any]) -> Any:
    """Return arguments with each leaf replaced; containers that PyTorch functions accept keep their type."""
    if type(value) is list:
        return [_map(item, function) for item in value]
    if not isinstance(value, tuple):
        return map_aggregate(value, function)
    items = [_map(item, function) for item in value]
    if hasattr(value, "_fields"):
        return type(value)(*items)
    return tuple(items) if type(value) in (tuple, torch.Size) else type(value)(items)


def _state(tensor: Tensor) -> tuple[int, Any]:
    """Version of the data of a tensor, and its place in memory."""
    storage = tensor.untyped_storage()._cdata
    return tensor._version, (storage, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())


def _without_dispatch(func: Any) -> Callable[..., Any] | None:
    """Return a Python function of PyTorch that calls others instead of being recorded; None for other functions."""
    if not isinstance(func, types.FunctionType) or not set(_QUESTIONS) & set(func.__code__.co_names):
        return None
    answers = {name: lambda *_: False for name in _QUESTIONS if name in func.__globals__}
    body = types.FunctionType(
        func.__code__, {**func.__globals__, **answers}, func.__name__, func.__defaults__, func.__closure__
    )
    body.__kwdefaults__ = func.__kwdefaults__
    return body


class CallPlaces:
    """The current place of the model in one of its calls: its line, module and hints."""

    def __init__(self) -> None:
        self._modules: list[tuple[str, type]] = []
        self._outer: list[traceback.StackSummary] = []

    def _frames(self) -> traceback.StackSummary:
        """Frames of the model; inside a PyTorch function whose body is recorded, the frames around the function."""
        frames = model_frames(sys._getframe(1))
        return self._outer[-1] if self._outer and not frames else frames

    def inside(self) -> contextlib.ExitStack:
        """Context in which the body of the current function is recorded."""
        stack = contextlib.ExitStack()
        self._outer.append(self._frames())
        stack.callback(self._outer.pop)
        return stack

    def line(self) -> str:
        """File and line of the model that calls the current function."""
        frames = self._frames()
        return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""

    def metadata(self) -> dict[str, Any]:
        """Metadata of a node for the current call: its lines in the model, its module and the hints that hold there."""
        metadata: dict[str, Any] = {"stack_trace": "".join(self._frames().format())}
        if self._modules:
            metadata["nn_module_stack"] = {path: (path, kind) for path, kind in self._modules}
        if custom := fx_traceback.current_meta.get("custom"):
            metadata["custom"] = dict(custom)
        return metadata

    @contextlib.contextmanager
    def following(self, paths: dict[int, str]) -> Iterator[None]:
        """Context that follows which modules run, by the names in ``paths``."""

        def enter(module: Any, *_: Any) -> None:
            self._modules.append((paths.get(id(module), ""), type(module)))

        def leave(*_: Any) -> None:
            self._modules.pop()

        with (
            module_hooks.register_module_forward_pre_hook(enter),
            module_hooks.register_module_forward_hook(leave, always_call=True),
        ):
            yield


# Storages of the tensors of one call of a model: without data while the model runs, with data after each piece.


@dataclass
class CallStorage:
    """A storage: ``fake`` has no data; ``real`` has it, or is None until the piece that fills the storage has run.

    ``base`` is the tensor that was made with it. ``is_callers`` is True for a storage of the model or its caller.
    """

    fake: torch.UntypedStorage
    real: torch.UntypedStorage | None = None
    is_callers: bool = False
    base: Tensor | None = None
    tensors: list[weakref.ref[Tensor]] = field(default_factory=list)

    def alive(self) -> list[Tensor]:
        """Tensors in the storage that are still referenced."""
        return [tensor for ref in self.tensors if (tensor := ref()) is not None]

    def is_covered(self) -> bool:
        """Return whether ``base`` contains every element of the storage once."""
        base = self.base
        if base is None or base.storage_offset() or base.numel() * base.itemsize != self.fake.nbytes():
            return False
        inner = 1
        for stride, size in sorted(zip(base.stride(), base.shape, strict=True)):
            if size > 1 and stride != inner:
                return False
            inner *= size
        return True

    def view(self, tensor: Tensor) -> Tensor:
        """Return the data of a tensor, as a view of the storage."""
        assert self.real is not None
        alias = torch.empty(0, dtype=tensor.dtype)
        alias.set_(self.real, tensor.storage_offset(), tensor.shape, tensor.stride())
        # These two views set bits of the tensor and do not change its data.
        alias = torch.ops.aten._neg_view.default(alias) if tensor.is_neg() else alias
        return alias.conj() if tensor.is_conj() else alias


class CallStorages:
    """All storages of a call. With ``keep_callers``, copies of the caller's storages are written, not the storages."""

    def __init__(self, keep_callers: bool) -> None:
        self.mode = FakeTensorMode()
        self._keep_callers = keep_callers
        self._by_fake: dict[int, CallStorage] = {}
        self._by_real: dict[int, CallStorage] = {}
        #: Tensors of the caller by identity, with the tensors that stand for them, and the reverse map.
        self._entered: dict[int, tuple[Tensor, Tensor]] = {}
        self._originals: dict[int, Tensor] = {}

    def is_fake(self, value: object) -> bool:
        """Return whether a value stands for a tensor of this call."""
        return isinstance(value, FakeTensor) and value.fake_mode is self.mode

    def enter(self, tensor: Tensor) -> Tensor:
        """Return the tensor that stands for a tensor of the model or its caller."""
        if id(tensor) not in self._entered:
            if isinstance(tensor, FakeTensor):
                raise UncapturedError(
                    "The model uses a tensor of an earlier call that is not an attribute of a module; keep the "
                    "tensor in a buffer."
                )
            if is_functorch_wrapped_tensor(tensor):
                raise UncapturedError(
                    "The model calls torch.func, such as vmap, which a model in pieces does not support."
                )
            fake = self.adopt(tensor, is_callers=True)
            self._entered[id(tensor)] = tensor, fake
            self._originals[id(fake)] = tensor
        return self._entered[id(tensor)][1]

    def adopt(self, tensor: Tensor, is_callers: bool = False) -> Tensor:
        """Return the tensor that stands for a tensor with data, in a storage that may be known already."""
        real = tensor.untyped_storage()
        buffer = self._by_real.get(real._cdata)
        if buffer is None:
            fake = self.mode.from_tensor(tensor, static_shapes=True)
            buffer = self.add(fake)
            buffer.real, buffer.is_callers = real, is_callers
            self._by_real[real._cdata] = buffer
            return fake
        if buffer.is_callers:
            fake = self.mode.from_tensor(tensor, static_shapes=True)
        else:
            # A view of a storage that a piece or the host has made.
            known = next((other for other in buffer.alive() if other.dtype == tensor.dtype), None)
            if known is None:
                raise CompileError(
                    f"A view as {tensor.dtype} of a tensor of another type is not supported here."
                )
            with self.mode:
                fake = known.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
        buffer.tensors.append(weakref.ref(fake))
        return fake

    def add(self, tensor: Tensor) -> CallStorage:
        """Return the storage of a tensor; add it if it is not known."""
        storage = tensor.untyped_storage()
        buffer = self._by_fake.get(storage._cdata)
        if buffer is None:
            buffer = self._by_fake[storage._cdata] = CallStorage(storage)
            # ``detach``, because ``base`` must not keep the tensor itself alive.
            with self.mode:
                buffer.base = tensor.detach()
        if all(other is not tensor for other in buffer.alive()):
            buffer.tensors.append(weakref.ref(tensor))
        return buffer

    def of(self, tensor: Tensor) -> CallStorage:
        """Return the storage of a tensor of this call; ``CompileError`` if no recorded call made the tensor."""
        buffer = self._by_fake.get(tensor.untyped_storage()._cdata)
        if buffer is None:
            raise CompileError(
                "The model has a tensor that was not created by a PyTorch function, so its data is unknown; "
                "compile the parts around it."
            )
        return buffer

    def is_original(self, tensor: Tensor) -> bool:
        """Return whether a tensor stands for a tensor of the model or its caller."""
        return id(tensor) in self._originals

    def real(self, tensor: Tensor) -> Tensor:
        """Return the tensor with data: the caller's own object, or a view of a storage."""
        buffer, original = self.of(tensor), self._originals.get(id(tensor))
        if original is not None and buffer.real is not None:
            if original.untyped_storage()._cdata == buffer.real._cdata:
                return original
        return buffer.view(tensor)

    def before_running(self, operands: Iterable[Tensor], changed: Iterable[CallStorage]) -> None:
        """Copy the caller's storages that may change, if they must be kept.

        Some operations change more than they state, as a batch norm its running mean; so all but parameters are copied.
        """
        if not self._keep_callers:
            return
        others = (self.of(tensor) for tensor in operands if not isinstance(tensor, torch.nn.Parameter))
        for buffer in (*changed, *others):
            if buffer.is_callers and buffer.real is not None:
                buffer.real, buffer.is_callers = buffer.real.clone(), False
                self._by_real[buffer.real._cdata] = buffer

    def write(self, buffer: CallStorage, tensor: Tensor, values: Tensor) -> None:
        """Write the data of a tensor of a storage, which did not have data before."""
        if buffer.real is None:
            buffer.real = torch.UntypedStorage(buffer.fake.nbytes())
        to = buffer.view(tensor)
        # The piece was recorded in another state of PyTorch than the state in which it was compiled.
        if to.dtype != values.dtype or to.shape != values.shape:
            raise CompileError(
                f"A piece of the model gives {values.dtype} {list(values.shape)}, and {to.dtype} {list(to.shape)} when "
                "the model runs; set types in the model where they do not depend on a context."
            )
        for dim, stride in enumerate(to.stride()):
            if not stride and to.shape[dim] > 1:
                to, values = to.narrow(dim, 0, 1), values.narrow(dim, 0, 1)
        to.copy_(values)
        self._by_real[buffer.real._cdata] = buffer

    def pending(self) -> Iterator[CallStorage]:
        """Storages that have tensors but no data yet."""
        for buffer in list(self._by_fake.values()):
            if buffer.real is None and buffer.alive():
                yield buffer

    def forget_dead(self) -> None:
        """Drop the storages whose tensors are no longer referenced."""
        for key, buffer in list(self._by_fake.items()):
            buffer.tensors = [ref for ref in buffer.tensors if ref() is not None]
            if not buffer.tensors:
                del self._by_fake[key]
                if buffer.real is not None:
                    self._by_real.pop(buffer.real._cdata, None)


# A piece of a model: the PyTorch calls between two points at which Python needs numbers, as a graph and its key.
#
# Equal calls on tensors of equal types are one program. A number in a call is part of the key, but a number that has
# changed between calls and only scales or shifts is an input: a tensor without dims.


#: Functions that accept a tensor without dims wherever they accept a number, with the same result.
_ARITHMETIC = {
    "add", "radd", "iadd", "sub", "rsub", "isub", "subtract", "mul", "rmul", "imul", "multiply", "div", "divide",
    "truediv", "rtruediv", "itruediv", "true_divide", "gt", "ge", "lt", "le", "eq", "ne",
}  # fmt: skip
#: Range of numbers that all float formats represent, including the device's, and of integers exact in float16.
_LEAST, _MOST, _MOST_INTEGER = 2**-14, 65504, 2048
#: Placeholder for a number in a key.
_NUMBER = "number"


@dataclass(frozen=True)
class Cause:
    """Reason why a piece ends: the operation whose result Python needs, and its line in the model."""

    operation: str
    location: str

    def __str__(self) -> str:
        return f"{self.operation} ({self.location})" if self.location else self.operation


@dataclass(frozen=True)
class ModelPiece:
    """A function of tensors, called with ``inputs``; ``key`` is equal for pieces that one program computes."""

    function: Callable[..., tuple[Tensor, ...]]
    inputs: list[Tensor]
    key: Hashable
    cause: Cause
    calls: int


class _NumberOperand(NamedTuple):
    """A number among the arguments of a call that may become an input."""

    node: Node
    position: int
    value: float
    dtype: torch.dtype


@dataclass
class ChangingNumbers:
    """Memory of the numbers in pieces that differ only in numbers, from one call of a model to the next."""

    _values: dict[Hashable, list[float]] = field(default_factory=dict)
    _changing: dict[Hashable, set[int]] = field(default_factory=dict)

    def changing(self, key: Hashable, values: Sequence[float]) -> set[int]:
        """Indices of the numbers that have had several values in pieces with this key."""
        before = self._values.setdefault(key, list(values))
        positions = self._changing.setdefault(key, set())
        positions |= {index for index, value in enumerate(values) if repr(value) != repr(before[index])}
        return positions


class PieceBuilder:
    """Graph of the calls of a piece, whose tensors have no data (``FakeTensor``) until the piece has run.

    ``leaves`` are the tensors that the piece reads and does not compute, in the order of its inputs.
    """

    def __init__(self) -> None:
        self._graph = Graph()
        self._names: set[str] = set()
        self._keys: list[Hashable] = []
        self._order: dict[Node, int] = {}
        self._numbers: list[_NumberOperand] = []
        self.nodes: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.leaves: list[Tensor] = []
        self.calls = 0

    def add_leaf(self, tensor: Tensor, name: str) -> None:
        """Make a tensor an input of the piece, unless it is already an input or a result."""
        if tensor in self.nodes:
            return
        node = self.nodes[tensor] = self._placeholder(name)
        self.leaves.append(tensor)
        bits = isinstance(tensor, torch.nn.Parameter), tensor.is_conj(), tensor.is_neg()
        self._add(node, ("input", (tensor.dtype, tuple(tensor.shape), tensor.stride(), *bits)))

    def _placeholder(self, name: str) -> Node:
        """New input after all others; its name is a Python identifier and differs from all other names."""
        base = "".join(letter if letter.isalnum() else "_" for letter in name) or "x"
        base = f"x{base}" if base[0].isdigit() else base
        unique, count = base, 1
        while unique in self._names:
            unique, count = f"{base}_{count}", count + 1
        self._names.add(unique)
        placeholders = self._graph.find_nodes(op="placeholder")
        with self._graph.inserting_after(placeholders[-1] if placeholders else self._graph._root):
            return self._graph.placeholder(unique)

    def add_call(
        self, function: Callable[..., Any], args: Any, kwargs: Any, result: Any, metadata: dict[str, Any]
    ) -> None:
        """Append a call; its operands are leaves or results of the piece."""
        self.calls += 1
        operands = list(tensors_in((args, kwargs)))

        def node_of(value: Any) -> Any:
            return self.nodes[value] if isinstance(value, Tensor) else value

        args, kwargs = (map_aggregate(value, node_of) for value in (args, kwargs))
        node = self._graph.call_function(function, args, kwargs)
        node.meta = dict(metadata)
        numbers = list(_numbers_of(node, operands))
        shown = list(args)
        for number in numbers:
            shown[number.position] = _NUMBER
        self._numbers += numbers
        order = self._order.__getitem__
        self._add(
            node, (function, argument_key(tuple(shown), Node, order), argument_key(kwargs, Node, order))
        )
        self._bind_results(result, node)

    def finish(
        self, results: Sequence[Node], inputs: Sequence[Tensor], memory: ChangingNumbers, cause: Cause
    ) -> ModelPiece:
        """Return the piece with these results, called with the tensors that the leaves stand for."""
        key = (*self._keys, tuple(self._order[node] for node in results), tuple(dim_sizes().items()))
        values = [number.value for number in self._numbers]
        changing = memory.changing(key, values)
        fixed = [repr(value) for index, value in enumerate(values) if index not in changing]
        operands = list(inputs)
        for number in (self._numbers[index] for index in sorted(changing)):
            # The number becomes an input, a tensor without dims.
            args = list(number.node.args)
            args[number.position] = self._placeholder(f"number_{len(operands)}")
            number.node.args = tuple(args)
            operands.append(torch.tensor(number.value, dtype=number.dtype))
        self._graph.output(tuple(results))
        key = (key, tuple(sorted(changing)), tuple(fixed), tuple(names_of(tensor) for tensor in inputs))
        return ModelPiece(as_function(torch.nn.Module(), self._graph), operands, key, cause, self.calls)

    def _add(self, node: Node, key: Hashable) -> None:
        self._order[node] = len(self._order)
        self._keys.append(key)

    def _bind_results(self, result: Any, node: Node) -> None:
        """Map the tensors of a result to the nodes that compute them."""
        if isinstance(result, Tensor):
            if result not in self.nodes:
                self.nodes[result] = node
            return
        if isinstance(result, dict):
            items: Iterable[tuple[Any, Any]] = result.items()
        else:
            items = enumerate(result) if isinstance(result, (tuple, list)) else ()
        for index, item in items:
            if next(tensors_in(item), None) is not None:
                part = self._graph.call_function(operator.getitem, (node, index))
                part.meta = dict(node.meta)
                self._add(part, ("item", self._order[node], index))
                self._bind_results(item, part)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in the arguments or the result of a call."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from (tensor for item in value.values() for tensor in tensors_in(item))
    elif isinstance(value, (tuple, list)):
        yield from (tensor for item in value for tensor in tensors_in(item))
    elif isinstance(value, slice):
        yield from tensors_in((value.start, value.stop, value.step))


def _numbers_of(node: Node, operands: Sequence[Tensor]) -> Iterator[_NumberOperand]:
    """Yield the number, if any, in an arithmetic call on a tensor of numbers, if every format represents the number.

    An integer tensor, such as positions, is combined with an integer of the same type.
    """
    name = getattr(node.target, "__name__", "").strip("_")
    if name not in _ARITHMETIC or len(node.args) != 2 or node.kwargs or len(operands) != 1:
        return
    (tensor,) = operands
    if tensor.dtype == torch.bool or tensor.is_complex() or not tensor.ndim:
        return
    for position, value in enumerate(cast(Sequence[Any], node.args)):
        if not tensor.dtype.is_floating_point:
            if type(value) is int and abs(value) <= torch.iinfo(tensor.dtype).max:
                yield _NumberOperand(node, position, value, tensor.dtype)
            continue
        if type(value) is int:
            is_represented = abs(value) <= _MOST_INTEGER
        else:
            is_represented = type(value) is float and (value == 0 or _LEAST <= abs(value) <= _MOST)
        if is_represented:
            dtype = torch.float64 if tensor.dtype == torch.float64 else torch.float32
            yield _NumberOperand(node, position, value, dtype)
