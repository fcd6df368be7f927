# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package ``torch_spyre``: names of its public interface, on the simulated device."""

from __future__ import annotations

import torch

from spyre_mlir.frontend import device_registration


def _autoload() -> None:
    """Register the device, as PyTorch's autoload of backends does."""
    device_registration.register()


def is_available() -> bool:
    """Return True: programs run on the simulator."""
    return torch.get_device_module("spyre").is_available()


_autoload()
