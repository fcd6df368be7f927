# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's factories, extended by the layouts of ``to_device`` and by pinned memory of the host.

::

    torch.empty(128, 64, dtype=torch.float16, device="spyre", stick_dims=[0])
    torch.zeros(128, 64, pin_memory=True)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.jit import _builtins
from torch.utils import _device

from spyre_mlir.errors import CompileError

NAME = "spyre"

#: Options of ``Tensor.to`` for the layout.
_OPTIONS = ("stick_dims", "dim_order", "device_layout")

_DENSE = (torch.contiguous_format, torch.preserve_format)

#: Factories that take the shape of another tensor.
_LIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like")


def extend(names: Iterable[str]) -> None:
    """Add the options of layouts and ``pin_memory`` to functions of ``torch``, given by name."""
    # PyTorch applies the default device to a set of functions. Dynamo would collect the set again, from the new
    # functions, and cannot hash the factories of sparse tensors, which it does not trace.
    constructors = _device._device_constructors()
    traced = {each for each in constructors if "sparse" not in each.__name__}
    _device._device_constructors = lambda: traced if torch.compiler.is_dynamo_compiling() else constructors
    for name in (*names, *_LIKE, "tensor"):
        setattr(torch, name, _extended(getattr(torch, name)))


def _extended(factory: Callable[..., Any]) -> Callable[..., Any]:
    """Return a factory with these options."""

    def make(*args: Any, **named: Any) -> Any:
        if "stick_dims" in named or "dim_order" in named or "device_layout" in named:
            return _laid_out(factory, args, named)
        if named.get("pin_memory"):
            return factory(*args, **{**named, "pin_memory": False}).pin_memory()
        return factory(*args, **named)

    # TorchScript knows the functions of PyTorch by identity.
    _builtins._register_builtin(make, _builtins._find_builtin(factory))
    make.__name__ = make.__qualname__ = factory.__name__
    make.__module__, make.__doc__ = "torch", factory.__doc__
    return functools.update_wrapper(make, factory, assigned=())


def _laid_out(factory: Callable[..., Any], args: Any, named: dict[str, Any]) -> Any:
    """Call a factory, and move the tensor to the device in a layout."""
    layout = {option: named.pop(option) for option in _OPTIONS if option in named}
    device, needs_gradient = named.pop("device", None), named.pop("requires_grad", False)
    if device is None and layout.get("device_layout") is not None:
        device = NAME
    elif device is None:
        like = args[0] if factory.__name__ in _LIKE else None
        device = torch.get_default_device() if like is None else like.device
    if torch.device(device).type != NAME:
        raise CompileError(
            f"Stick dims are chosen for a tensor on {NAME}, but torch.{factory.__name__} makes one on {device}; "
            f"give it device='{NAME}'."
        )
    if (memory_format := named.pop("memory_format", None)) not in (None, *_DENSE):
        raise RuntimeError(
            f"Spyre backend only supports contiguous memory format with a layout, not {memory_format}."
        )
    made: Any = factory(*args, device="cpu", **named)
    return made.to(NAME, **layout).requires_grad_(needs_gradient)
