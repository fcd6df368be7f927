# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.accelerator``, and ``torch.Generator``, ``torch.Stream`` and ``torch.Event`` of the device.

PyTorch makes these objects in C++, from hooks that a device written in Python cannot set. So the functions that
``torch.accelerator`` calls are replaced by the functions of ``torch.spyre``, and the three classes return the classes
of this package for the device ``spyre``. Objects of other devices do not change.
"""

from __future__ import annotations

from typing import Any

import torch

from spyre_mlir.frontend import allocated_memory, device_module, device_streams
from spyre_mlir.frontend.device_generators import Generator
from spyre_mlir.frontend.device_streams import NAME, DeviceEvent, Stream

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


def install() -> None:
    """Register the device with ``torch.accelerator`` and with the three classes."""
    for name, function in _FUNCTIONS.items():
        setattr(torch._C, name, function)
    torch.Generator = _of_any_device(torch.Generator, Generator, "cpu")
    torch.Stream = _of_any_device(torch.Stream, Stream, NAME)
    torch.Event = _of_any_device(torch.Event, DeviceEvent, NAME)


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
