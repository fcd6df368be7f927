# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Entry point of the group ``torch.backends``: ``import torch`` names the device, the first use loads the compiler."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import torch

from spyre_mlir import device_declaration

#: The entry points of PyTorch's backends. All backends outside PyTorch share one key, and the first one names the key.
_GROUP = "torch.backends"

#: Prefix of the functions that ``torch.accelerator`` calls, and the function that names the accelerator.
_PREFIX, _CURRENT = "_accelerator_", "_accelerator_getAccelerator"


def autoload() -> None:
    """Name the device, unless another backend is installed."""
    if all(each.module == __name__ for each in entry_points(group=_GROUP)) and device_declaration.declare():
        device_declaration.load = _load
        for name in dir(torch._C):
            if name.startswith(_PREFIX) and name != _CURRENT:
                setattr(torch._C, name, _deferred(name, getattr(torch._C, name)))


def _load() -> Any:
    from spyre_mlir.frontend import device_module

    return device_module


def _deferred(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that imports the compiler, and then calls the compiler's function or PyTorch's."""

    def first(*args: Any) -> Any:
        _load()
        if getattr(torch._C, name) is first:
            setattr(torch._C, name, function)
        return getattr(torch._C, name)(*args)

    return first
