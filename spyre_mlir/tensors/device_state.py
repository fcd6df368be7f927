# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The state of a program: tensors that stay in device memory between calls, by argument name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.errors import CompileError, listed
from spyre_mlir.tensors.device_tensor import DeviceTensor, to_device, to_plain


class DeviceState(Mapping[str, DeviceTensor]):
    """State tensors by name; programs that share a state have the same tensors.

    Read a tensor as ``state[name].numpy()`` or ``.cpu()``, assign an array or a tensor of its shape to ``state[name]``,
    or ``reset()`` all tensors to their initial values. Assigning another shape raises ``CompileError``.
    """

    def __init__(self, tensors: Mapping[str, DeviceTensor] | None = None) -> None:
        """Create a state from ``tensors`` by name, and save their initial values."""
        self._tensors = dict(tensors or {})
        self._initial: dict[str, NDArray[np.uint8]] = {
            name: tensor.data.copy() for name, tensor in self._tensors.items()
        }

    def __getitem__(self, name: str) -> DeviceTensor:
        if name not in self._tensors:
            raise KeyError(self._unknown(name))
        return self._tensors[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self._tensors:
            raise CompileError(self._unknown(name))
        tensor = self._tensors[name]
        to_storage = to_plain if tensor.storage.form is None else to_device
        host = to_storage(
            value.cpu() if isinstance(value, DeviceTensor) else value, dtype=tensor.dtype
        ).numpy()
        if host.shape != tensor.shape:
            raise CompileError(
                f"The state '{name}' has shape {list(tensor.shape)}, so it cannot become {list(host.shape)}."
            )
        tensor.write(host)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        return f"DeviceState({self._tensors!r})"

    def reset(self) -> None:
        """Reset every tensor to its initial value."""
        for name, tensor in self._tensors.items():
            tensor.data[...] = self._initial[name]

    def _unknown(self, name: str) -> str:
        names = listed(self._tensors) if self._tensors else "none"
        return f"There is no state '{name}'; the option 'state' of compile chooses it, and it is {names}."
