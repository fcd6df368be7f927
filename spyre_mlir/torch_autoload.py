# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entry point of the group ``torch.backends``: ``import torch`` names the device, its first use imports the compiler.

PyTorch calls ``torch.spyre._lazy_init`` before it makes the first tensor on the device. Until then ``torch.spyre`` is a
``DeviceModule``, and PyTorch has neither kernels nor hooks of the device.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

import torch
from torch.utils import backend_registration

NAME = "spyre"

#: The entry points of PyTorch's backends. All backends outside PyTorch share one key, and the first one names the key.
_GROUP = "torch.backends"

#: Before the packages of PyTorch itself, whose package for such devices would allocate a storage on the device.
_PRIORITY = 1

#: Prefix of the functions that ``torch.accelerator`` calls, and the function that names the accelerator.
_PREFIX, _CURRENT = "_accelerator_", "_accelerator_getAccelerator"


class DeviceModule(ModuleType):
    """``torch.spyre`` before the first use of the device.

    It answers the calls that ``torch.manual_seed`` and optimizers make in programs of the CPU. Any other attribute is a
    first use.
    """

    def __getattr__(self, name: str) -> Any:
        # The import system reads attributes such as __path__.
        if name.startswith("__"):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        self._lazy_init()
        return getattr(importlib.import_module("spyre_mlir.frontend.device_module"), name)

    @staticmethod
    def _lazy_init() -> None:
        """Import the compiler, which registers the kernels of the device."""
        importlib.import_module("spyre_mlir.frontend")

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Do nothing: the host draws the numbers of the device, and ``torch.manual_seed`` seeds the host as well."""


def autoload() -> None:
    """Name the device, unless another backend is installed."""
    if all(each.module == __name__ for each in entry_points(group=_GROUP)) and declare():
        _defer_accelerator()


def declare() -> bool:
    """Name PyTorch's key and add methods such as ``Tensor.spyre``, once; False if another backend has the key."""
    module = getattr(torch, NAME, None)
    if module is None and torch._C._get_privateuse1_backend_name() == "privateuseone":
        backend_registration.rename_privateuse1_backend(NAME)
        backend_registration.generate_methods_for_privateuse1_backend()
        module = DeviceModule(f"torch.{NAME}", __doc__)
        torch._register_device_module(NAME, module)
        torch.serialization.register_package(_PRIORITY, lambda storage: None, _restored)
    return isinstance(module, DeviceModule)


def _restored(storage: Any, location: str) -> Any:
    """Mark and return a storage that ``torch.load`` reads for the device; None leaves it to other packages."""
    if location.partition(":")[0] != NAME:
        return None
    DeviceModule._lazy_init()
    return importlib.import_module("spyre_mlir.frontend.restored_tensors").marked(storage)


def _defer_accelerator() -> None:
    """Make the calls of ``torch.accelerator`` a first use of the device: PyTorch's functions need hooks."""
    for name in dir(torch._C):
        if name.startswith(_PREFIX) and name != _CURRENT:
            setattr(torch._C, name, _deferred(name, getattr(torch._C, name)))


def _deferred(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that imports the compiler, and then calls the compiler's function or PyTorch's."""

    def first(*args: Any) -> Any:
        DeviceModule._lazy_init()
        if getattr(torch._C, name) is first:
            setattr(torch._C, name, function)
        return getattr(torch._C, name)(*args)

    return first
