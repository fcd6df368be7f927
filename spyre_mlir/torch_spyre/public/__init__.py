# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package ``torch_spyre``: the names that programs import from it, on the simulated device."""

from __future__ import annotations

import torch

from spyre_mlir.frontend import device_registration
from spyre_mlir.frontend.torch_device import SpyreTensor
from spyre_mlir.torch_spyre import added_operations
from spyre_mlir.torch_spyre.added_operations import install_downcast_warning


def _autoload() -> None:
    """Register the device and its operations, as PyTorch's autoload of backends does."""
    device_registration.register()
    added_operations.install()


def is_available() -> bool:
    """Return True: programs run on the simulator."""
    return torch.get_device_module("spyre").is_available()


_autoload()
install_downcast_warning()
# torch-spyre prints tensors as PyTorch does.
SpyreTensor.shows_layout = False
