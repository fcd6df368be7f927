# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.spyre.set_downcast_warning``: warnings for integers of 64 bits that are moved to the device."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from spyre_mlir.tensors.device_activity import Listener, listen

_TEXT = (
    "The device does not support int64: its integers have 32 bits. The simulated device keeps the numbers; a card does "
    "not keep numbers beyond 32 bits."
)


class DowncastListener(Listener):
    """Warns, if enabled, when a tensor of 64-bit integers is copied to the device."""

    is_enabled = True

    def on_copy(self, tensor: Any, to_device: bool) -> None:
        """Warn about a copy to the device."""
        if to_device and self.is_enabled and tensor.dtype == torch.int64:
            warnings.warn(_TEXT, UserWarning, stacklevel=2)


def install() -> None:
    """Add ``get_downcast_warning`` and ``set_downcast_warning`` to ``torch.spyre``; the warning is enabled."""
    device, listener = torch.get_device_module("spyre"), DowncastListener()

    def get_downcast_warning() -> bool:
        """Return whether the warning is enabled."""
        return listener.is_enabled

    def set_downcast_warning(enabled: bool) -> None:
        """Enable or disable the warning."""
        listener.is_enabled = enabled

    device.get_downcast_warning, device.set_downcast_warning = get_downcast_warning, set_downcast_warning
    listen(listener)
