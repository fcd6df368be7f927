# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.autocast("spyre")``: each operation gets the operands that it gets under the autocast of the CPU.

The operations are not listed: an operation that autocast casts on the CPU runs once on tensors without data, for each
combination of types, and the casts that PyTorch makes are repeated on the device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from spyre_mlir.frontend.autocast import cast_types
from spyre_mlir.frontend.graph_edits import overload_of

_KEY = "AutocastPrivateUse1"
_KEYS = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))

_known: dict[Hashable, list[torch.dtype | None]] = {}


def install(library: torch.library.Library) -> torch.library.Library:
    """Register the casts of all operations that autocast casts on the CPU; the caller keeps the result alive."""
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCPU"):
        namespace, _, rest = name.partition("::")
        if namespace == "aten":
            operation = overload_of(rest)
            library.impl(operation, functools.partial(_cast_and_call, operation), _KEY)
    others = torch.library.Library("_", "IMPL")
    others.fallback(torch.library.fallthrough_kernel, _KEY)
    return others


def _cast_and_call(operation: Any, *args: Any, **named: Any) -> Any:
    """Run an operation on its operands, cast as autocast casts them."""
    with torch._C._ExcludeDispatchKeyGuard(_KEYS):
        leaves, tree = pytree.tree_flatten((args, named))
        places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        dtype = torch.get_autocast_dtype("spyre")
        key = operation, dtype, tuple((index, leaves[index].dtype) for index in places)
        if key not in _known:
            _known[key] = _casts(
                functools.partial(_called, operation, leaves, places, tree), leaves, places, dtype
            )
        for index, wanted in zip(places, _known[key], strict=True):
            if wanted is not None:
                leaves[index] = leaves[index].to(wanted)
        args, named = tree.unflatten(leaves)
        return operation(*args, **named)


def _casts(
    call: Callable[[Sequence[Tensor]], Any], leaves: Sequence[Any], places: Sequence[int], dtype: torch.dtype
) -> list[torch.dtype | None]:
    """Types that autocast on the CPU casts the tensors at these places to; None for a tensor that is not cast."""
    with _disable_current_modes(), FakeTensorMode() as mode:
        fake = [_on_the_host(leaves[index]) for index in places]
        return cast_types(call, fake, torch.autocast("cpu", dtype, cache_enabled=False), mode)


def _called(
    operation: Any, leaves: Sequence[Any], places: Sequence[int], tree: Any, tensors: Sequence[Tensor]
) -> Any:
    """Run the operation with other tensors in its arguments."""
    replaced = dict(zip(places, tensors, strict=True))
    args, named = tree.unflatten([replaced.get(index, leaf) for index, leaf in enumerate(leaves)])
    return operation(*args, **named)


def _on_the_host(tensor: Tensor) -> Tensor:
    """CPU tensor of the same type and sizes, made in a mode without data."""
    sizes, strides = (
        [each if isinstance(each, int) else each.node.hint for each in numbers]
        for numbers in (tensor.shape, tensor.stride())
    )
    return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device="cpu")
