# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registration of the device ``spyre`` with PyTorch: module, factories, ``Tensor.to``, ``torch.load``, accelerator."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
import torch._utils
from torch._C import _autograd
from torch.autograd import Variable, profiler
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils.backend_registration import _DummyDeviceGuard, _DummyPrivateUse1Hook

from spyre_mlir import device_declaration
from spyre_mlir.errors import CompileError
from spyre_mlir.frontend import (
    allocated_memory,
    device_module,
    device_streams,
    layout_factories,
)
from spyre_mlir.frontend.autocast import register_casts
from spyre_mlir.frontend.device_module import Generator
from spyre_mlir.frontend.graph_edits import overload_of
from spyre_mlir.frontend.tensor_layouts import SpyreTensorLayout
from spyre_mlir.frontend.torch_device import (
    COMPOSED,
    NAME,
    SpyreTensor,
    host_copy,
    move,
    move_to_layout,
    raise_error,
    to_copy,
)
from spyre_mlir.tensors.device_activity import Listener, listen, predicted_us
from spyre_mlir.tensors.device_tensor import to_device

#: Operations without tensor arguments, which run on the host.
_FACTORIES = (
    "empty.memory_format", "empty_strided", "zeros", "ones", "full", "arange", "arange.start", "arange.start_step",
    "linspace", "eye", "eye.m", "rand", "rand.generator", "randn", "randn.generator", "randint", "randint.low",
    "randint.generator", "randint.low_generator", "randperm", "randperm.generator", "scalar_tensor", "tril_indices",
    "triu_indices",
)  # fmt: skip


def _factory(operation: Any) -> Callable[..., Any]:
    """Kernel of a factory function: the host runs the function, and the tensor is moved to the device."""

    def make(*args: Any, device: Any = None, pin_memory: Any = None, **named: Any) -> SpyreTensor:
        """Return a new tensor on the device."""
        device_streams.check_device(device)
        made = operation(*args, device="cpu", **named)
        # Uninitialized memory may contain numbers that the device cannot represent.
        return move(made.zero_() if "empty" in str(operation) else made)

    return make


def _extended_to(convert: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.Tensor.to`` with the layouts of ``to_device``, as in RFC 0047, and with a ``SpyreTensorLayout``."""

    @functools.wraps(convert)
    def to(
        self: torch.Tensor,
        *args: Any,
        stick_dims: Any = None,
        dim_order: Any = None,
        device_layout: SpyreTensorLayout | None = None,
        **named: Any,
    ) -> torch.Tensor:
        """Return the tensor in another type or on another device."""
        if device_layout is not None:
            return move_to_layout(host_copy(convert(self, *args, **named)), device_layout)
        if stick_dims is None and dim_order is None:
            return convert(self, *args, **named)
        moved = convert(self, *args, **named)
        if not isinstance(moved, SpyreTensor):
            raise CompileError(
                "Stick dims require a tensor on the device; convert the tensor with .to('spyre')."
            )
        source = moved.device_tensor if isinstance(self, SpyreTensor) else host_copy(moved)
        return SpyreTensor.of(to_device(source, stick_dims=stick_dims, dim_order=dim_order))

    return to


_libraries: list[torch.library.Library] = []


def register() -> None:
    """Make ``spyre`` a device of PyTorch, once; another backend that already uses the key is left unchanged."""
    if _libraries or not device_declaration.declare():
        return
    device_declaration.load = lambda: device_module
    hooks = cast(Any, torch._C)._acc
    hooks.register_python_privateuseone_hook(_DummyPrivateUse1Hook())
    hooks.register_python_privateuseone_device_guard(_DummyDeviceGuard())
    sys.modules[f"torch.{NAME}"] = device_module
    setattr(torch, NAME, device_module)
    for name, function in _FUNCTIONS.items():
        setattr(torch._C, name, function)
    torch.Generator = _of_any_device(torch.Generator, Generator, "cpu")
    torch.Stream = _of_any_device(torch.Stream, device_streams.Stream, NAME)
    torch.Event = _of_any_device(torch.Event, device_streams.DeviceEvent, NAME)
    cast(Any, torch.UntypedStorage).__new__ = _new
    _move_loaded_tensors()
    install_profiling()
    library = torch.library.Library("aten", "IMPL")
    for name in _FACTORIES:
        library.impl(name, _factory(overload_of(name)), "PrivateUse1")
    # Forward-mode derivatives start from zeros that PyTorch does not store on the CPU.
    library.impl("_efficientzerotensor", _factory(overload_of("zeros")), "PrivateUse1")
    library.impl("_to_copy", to_copy, "PrivateUse1")
    for operation, form in COMPOSED.items():
        library.impl(operation, form, "AutogradPrivateUse1")
    library.impl("_pin_memory", pin_memory, "CPU")
    library.impl("is_pinned", is_pinned, "CPU")
    # A library that is garbage-collected unregisters its kernels.
    _libraries.extend((library, register_casts(library)))
    torch.Tensor.to = _extended_to(torch.Tensor.to)
    torch.nn.Module._apply = _swapping_apply(torch.nn.Module._apply)
    torch.utils.swap_tensors = _swapped_contents(torch.utils.swap_tensors)
    layout_factories.extend({name.partition(".")[0] for name in _FACTORIES})


# PyTorch storages on the device. Each belongs to a tensor: creating a storage alone is an error.
#
# PyTorch does not have an allocator for the device, and its constructor of storages would end the process.


def _new(kind: Any, *args: Any, device: Any = None, **named: Any) -> torch.UntypedStorage:
    """New storage on another device; ``RuntimeError`` for ``spyre``."""
    if device is not None and torch.device(device).type == NAME:
        raise RuntimeError(
            f"A storage on {NAME} belongs to a tensor; torch.empty(size, device='{NAME}').untyped_storage() has one."
        )
    named = named if device is None else {**named, "device": device}
    return cast(Any, torch._C.StorageBase).__new__(kind, *args, **named)


# Parameters of modules that move to the device, from it, or change their type on it.
#
# For its own devices PyTorch gives a parameter other data. A tensor on ``spyre`` is another Python class, so the two
# tensors swap their contents, and all references to the parameter follow: tied weights, optimizers, Dynamo.


def _swapping_apply(apply: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.nn.Module._apply`` that keeps parameters which leave the device, too."""

    @functools.wraps(apply)
    def swapping(self: torch.nn.Module, *args: Any, **named: Any) -> torch.nn.Module:
        """Convert the parameters and the buffers of a module."""
        swaps = torch.__future__.get_swap_module_params_on_conversion()
        if swaps or not any(isinstance(value, SpyreTensor) for value in self._parameters.values()):
            return apply(self, *args, **named)
        torch.__future__.set_swap_module_params_on_conversion(True)
        try:
            return apply(self, *args, **named)
        finally:
            torch.__future__.set_swap_module_params_on_conversion(swaps)

    return swapping


def _swapped_contents(swap: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.utils.swap_tensors`` that accepts a tensor of the device which a graph of gradients refers to.

    The graph keeps the tensor that it has read. As the parameter is another tensor then, a backward is an error.
    """

    @functools.wraps(swap)
    def swapped(one: torch.Tensor, other: torch.Tensor) -> None:
        """Swap the contents of two tensors."""
        if one is other:
            return
        if not isinstance(one, SpyreTensor) and not isinstance(other, SpyreTensor):
            swap(one, other)
            return
        for tensor in (one, other):
            if tensor.requires_grad and tensor.is_leaf:
                torch.autograd.graph.get_gradient_edge(tensor).node.register_prehook(_refuse_gradient)
        for name in ("__class__", "__dict__"):
            kept = getattr(one, name)
            setattr(one, name, getattr(other, name))
            setattr(other, name, kept)
        torch._C._swap_tensor_impl(one, other)

    return swapped


def _refuse_gradient(_: Any) -> None:
    """Make a backward through a tensor that has moved an error, at the end of the backward."""
    error = RuntimeError(
        "The backward needs a parameter that has moved to another device or type since the forward; "
        "move the model before the forward, or after the backward."
    )
    # An error on the device inside the backward would end the process, see torch_device.py.
    Variable._execution_engine.queue_callback(functools.partial(raise_error, error))


# Pinned host memory: the simulator treats all host memory alike, so a pinned tensor is a marked copy.

#: The pinned storages, keyed by the address of PyTorch's object.
_pinned: dict[int, StorageWeakRef] = {}


def pin_memory(tensor: torch.Tensor, device: Any = None) -> torch.Tensor:
    """Return a copy of a tensor in pinned memory."""
    copied = tensor.clone()
    storage = copied.untyped_storage()
    for address in [address for address, reference in _pinned.items() if reference.expired()]:
        del _pinned[address]
    _pinned[storage._cdata] = StorageWeakRef(storage)
    return copied


def is_pinned(tensor: torch.Tensor, device: Any = None) -> bool:
    """Return whether a tensor is in pinned memory."""
    reference = _pinned.get(tensor.untyped_storage()._cdata)
    return reference is not None and not reference.expired()


# ``torch.load`` to the device: storages are read on the host, and tensors built from them are moved.
#
# A PyTorch storage consists of bytes at an address, and the device has no addresses. So ``torch.load`` with
# ``map_location="spyre"`` marks the host storage, and each tensor built from a marked storage is moved to the device.


def _move_loaded_tensors() -> None:
    """Make ``torch.load`` create tensors on the device."""
    rebuild = torch._utils._rebuild_tensor

    def rebuild_and_move(storage: Any, *geometry: Any) -> torch.Tensor:
        """Build a tensor of a storage; move it to the device if the storage is marked."""
        tensor = rebuild(storage, *geometry)
        return (
            tensor.to(NAME) if getattr(storage._untyped_storage, device_declaration.MARK, False) else tensor
        )

    torch._utils._rebuild_tensor = rebuild_and_move


# ``torch.accelerator``, and ``torch.Generator``, ``torch.Stream`` and ``torch.Event`` of the device.
#
# PyTorch makes these objects in C++, from hooks that a device written in Python cannot set. So the functions that
# ``torch.accelerator`` calls are replaced by the functions of ``torch.spyre``, and the three classes return the classes
# of this package for the device ``spyre``. Objects of other devices do not change.

#: Functions that ``torch.accelerator`` calls for the memory and the streams of the only accelerator.
_FUNCTIONS = {
    "_accelerator_isAllocatorInitialized": lambda: True,
    "_accelerator_emptyCache": allocated_memory.empty_cache,
    "_accelerator_emptyHostCache": allocated_memory.empty_cache,
    "_accelerator_getDeviceStats": allocated_memory.memory_stats,
    "_accelerator_resetPeakStats": allocated_memory.reset_peak_memory_stats,
    "_accelerator_resetAccumulatedStats": allocated_memory.reset_accumulated_memory_stats,
    "_accelerator_getMemoryInfo": allocated_memory.mem_get_info,
    "_accelerator_synchronizeDevice": device_module.synchronize,
    "_accelerator_setDeviceIndex": device_module.set_device,
    "_accelerator_getStream": device_streams.current_stream,
    "_accelerator_setStream": device_streams.set_stream,
}


def _is_public(cls: type) -> bool:
    return "_ours" in vars(cls)


def _of_any_device(base: Any, ours: Any, default: str) -> Any:
    """Return a class like ``base`` that makes an ``ours`` for the device; ``default`` is used without a device."""
    kind: Any = type(base)

    class OfAnyDevice(kind):
        """Type of the class: instances and subclasses of ``base`` count as instances and subclasses of the class."""

        def __instancecheck__(self, value: Any) -> bool:
            return isinstance(value, base) if _is_public(self) else kind.__instancecheck__(self, value)

        def __subclasscheck__(self, other: type) -> bool:
            return issubclass(other, base) if _is_public(self) else kind.__subclasscheck__(self, other)

    def new(cls: Any, *args: Any, **named: Any) -> Any:
        device = args[0] if args else named.get("device", default)
        if not _is_public(cls):
            return base.__new__(cls, *args, **named)
        if "device_type" in named:
            return base(*args, **named)
        chosen = torch.device(default if device is None else device)
        return (ours if chosen.type == NAME else base)(*args, **named)

    body = {"__new__": new, "__doc__": base.__doc__, "__module__": "torch", "_ours": ours}
    return OfAnyDevice(base.__name__, (base,), body)


# ``torch.profiler`` with the programs of the device: a range for each run, with its predicted time on the device.
#
# PyTorch reads the times of a device from C++. So each program that runs while a profiler is active becomes a range
# named ``spyre::aten.add.Tensor 1.973 us``. With ``ProfilerActivity.PrivateUse1`` the tables count that time as device
# time, and an exported trace shows it in a separate row.

_RANGE = re.compile(rf"{NAME}::(?P<operation>.*) (?P<us>[0-9.]+) us")


class ProfilerRanges(Listener):
    """Writer of a range for each program that runs while a profiler is active."""

    def on_device(self, operation: str, program: Any) -> None:
        if _autograd._profiler_enabled():
            with torch.profiler.record_function(f"{NAME}::{operation} {predicted_us(program):.3f} us"):
                pass


def install_profiling() -> None:
    """Make all PyTorch profilers see the programs of the device."""
    listen(ProfilerRanges())
    kind: Any = profiler.profile
    kind._parse_kineto_results = _with_device_times(kind._parse_kineto_results)
    kind.export_chrome_trace = _with_device_row(kind.export_chrome_trace)


def _with_device_times(parse: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``parse`` so that the ranges of programs have a time on the device."""

    @functools.wraps(parse)
    def parsed(self: Any, *args: Any, **named: Any) -> Any:
        events = parse(self, *args, **named)
        for event in events if self.use_device == NAME else ():
            if found := _RANGE.fullmatch(event.name):
                event.append_kernel(found["operation"], 0, float(found["us"]))
                # The host event carries the device time, because no device event exists for it.
                event.is_legacy = True
        return events

    return parsed


def _with_device_row(export: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``export`` so that the trace has a row with the programs, if the profiler uses the device."""

    @functools.wraps(export)
    def exported(self: Any, path: str, *args: Any, **named: Any) -> Any:
        result = export(self, path, *args, **named)
        if self.use_device == NAME:
            trace = json.loads(Path(path).read_text(encoding="utf-8"))
            trace["traceEvents"] += [row for event in trace["traceEvents"] if (row := _device_event(event))]
            Path(path).write_text(json.dumps(trace), encoding="utf-8")
        return result

    return exported


def _device_event(event: dict[str, Any]) -> dict[str, Any] | None:
    """Device event for the range of a program; None for other events."""
    found = _RANGE.fullmatch(str(event.get("name")))
    if found is None or event.get("ph") != "X":
        return None
    us = float(found["us"])
    place = {"pid": f"{NAME}:0", "tid": "predicted", "ts": event["ts"], "dur": us}
    return {"ph": "X", "cat": "kernel", "name": found["operation"], **place, "args": {"predicted_us": us}}
