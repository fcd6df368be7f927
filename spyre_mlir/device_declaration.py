# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The name of the device in PyTorch, and ``torch.spyre`` before the first use of the device.

PyTorch calls ``torch.spyre._lazy_init`` before it makes the first tensor on the device. Until then ``torch.spyre`` is a
``DeviceModule``, and PyTorch has neither kernels nor hooks of the device.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
import torch.serialization
from torch.utils import backend_registration

NAME = "spyre"

#: Attribute of a storage that ``torch.load`` reads for the device.
MARK = "_goes_to_the_device"

#: Before the packages of PyTorch itself, whose package for such devices would allocate a storage on the device.
_PRIORITY = 1


def load() -> Any:
    """Return the module ``torch.spyre`` of the frontend; whoever declares the device replaces this function."""
    raise RuntimeError("The device is declared and cannot be loaded; import spyre_mlir.frontend.")


class DeviceModule(ModuleType):
    """``torch.spyre`` before the first use of the device.

    It answers the calls that ``torch.manual_seed`` and optimizers make in programs of the CPU. Any other attribute is a
    first use.
    """

    def __getattr__(self, name: str) -> Any:
        # The import system reads attributes such as __path__.
        if name.startswith("__"):
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        return getattr(load(), name)

    @staticmethod
    def _lazy_init() -> None:
        """Import the compiler, which registers the kernels of the device."""
        load()

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Do nothing: the host draws the numbers of the device, and ``torch.manual_seed`` seeds the host as well."""


def declare() -> bool:
    """Name PyTorch's key and add methods such as ``Tensor.spyre``, once; False if another backend has the key."""
    module = getattr(torch, NAME, None)
    if module is None and torch._C._get_privateuse1_backend_name() == "privateuseone":
        backend_registration.rename_privateuse1_backend(NAME)
        backend_registration.generate_methods_for_privateuse1_backend()
        module = DeviceModule(f"torch.{NAME}", __doc__)
        torch._register_device_module(NAME, module)
        torch.serialization.register_package(_PRIORITY, lambda storage: None, _restored)
        if torch.distributed.is_available() and torch.distributed.is_gloo_available():
            torch.distributed.Backend.register_backend(NAME, _process_group, devices=[NAME, "cpu"])
    return isinstance(module, DeviceModule)


def _process_group(store: Any, rank: int, size: int, timeout: Any) -> Any:
    """Create the process group of the backend ``spyre``: cards are simulated on hosts, which communicate over gloo."""
    return torch.distributed.ProcessGroupGloo(store, rank, size, timeout)


def _restored(storage: Any, location: str) -> Any:
    """Mark and return a storage that ``torch.load`` reads for the device; None leaves it to other packages."""
    if location.partition(":")[0] != NAME:
        return None
    load()
    setattr(storage, MARK, True)
    return storage
