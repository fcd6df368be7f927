# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's storages on the device, which only a tensor has: to make one alone is an error.

PyTorch has no allocator for the device, and its constructor of storages would end the process.
"""

from __future__ import annotations

from typing import Any, cast

import torch

from spyre_mlir.frontend.torch_device import NAME


def install() -> None:
    """Let the constructor of ``torch.UntypedStorage`` refuse the device."""
    cast(Any, torch.UntypedStorage).__new__ = _new


def _new(kind: Any, *args: Any, device: Any = None, **named: Any) -> torch.UntypedStorage:
    """New storage on another device; ``RuntimeError`` for this one."""
    if device is not None and torch.device(device).type == NAME:
        raise RuntimeError(
            f"A storage on {NAME} belongs to a tensor; torch.empty(size, device='{NAME}').untyped_storage() has one."
        )
    named = named if device is None else {**named, "device": device}
    return cast(Any, torch._C.StorageBase).__new__(kind, *args, **named)
