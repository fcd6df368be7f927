# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.load`` to the device: storages are read on the host, and tensors made of them are moved.

A storage of PyTorch has bytes at an address, which a device without addresses does not have. So ``torch.load`` with
``map_location="spyre"`` gets the storage of the host with a mark, and each tensor of such a storage goes to the device.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._utils
import torch.serialization

NAME = "spyre"

#: Before the packages of PyTorch itself, of which the one for such devices would allocate a storage there.
_PRIORITY = 1

_MARK = "_goes_to_the_device"


def _tag(storage: Any) -> None:
    """No name for the place of a storage that is saved: storages are saved on the host."""


def _marked(storage: Any, location: str) -> Any:
    """The storage with a mark, if its location is the device; None leaves it to other packages."""
    if location.partition(":")[0] != NAME:
        return None
    setattr(storage, _MARK, True)
    return storage


def install() -> None:
    """Let ``torch.load`` make tensors on the device."""
    torch.serialization.register_package(_PRIORITY, _tag, _marked)
    rebuild = torch._utils._rebuild_tensor

    def rebuild_and_move(storage: Any, *geometry: Any) -> torch.Tensor:
        """Tensor of a storage, on the device if the storage is marked so."""
        tensor = rebuild(storage, *geometry)
        return tensor.to(NAME) if getattr(storage._untyped_storage, _MARK, False) else tensor

    torch._utils._rebuild_tensor = rebuild_and_move
