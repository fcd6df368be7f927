# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Pinned host memory: the simulator treats all host memory alike, so a pinned tensor is a marked copy."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

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


def install(library: torch.library.Library) -> None:
    """Make PyTorch pin host tensors with these functions."""
    library.impl("_pin_memory", pin_memory, "CPU")
    library.impl("is_pinned", is_pinned, "CPU")
