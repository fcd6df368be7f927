# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.load`` to the device: storages are read on the host, and tensors built from them are moved.

A PyTorch storage consists of bytes at an address, and the device has no addresses. So ``torch.load`` with
``map_location="spyre"`` marks the host storage, and each tensor built from a marked storage is moved to the device.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._utils

NAME = "spyre"

_MARK = "_goes_to_the_device"


def marked(storage: Any) -> Any:
    """Mark a storage whose location is the device, and return it."""
    setattr(storage, _MARK, True)
    return storage


def install() -> None:
    """Make ``torch.load`` create tensors on the device."""
    rebuild = torch._utils._rebuild_tensor

    def rebuild_and_move(storage: Any, *geometry: Any) -> torch.Tensor:
        """Build a tensor of a storage; move it to the device if the storage is marked."""
        tensor = rebuild(storage, *geometry)
        return tensor.to(NAME) if getattr(storage._untyped_storage, _MARK, False) else tensor

    torch._utils._rebuild_tensor = rebuild_and_move
