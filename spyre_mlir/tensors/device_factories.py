# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Factories of device tensors: ``empty``, ``zeros``, ``full`` and ``arange``, with the layouts of ``to_device``."""

from __future__ import annotations

from typing import Any, SupportsFloat

import numpy as np

from spyre_mlir.errors import CompileError
from spyre_mlir.target.element_types import dtype_name
from spyre_mlir.tensors.device_tensor import DeviceTensor, element_type, to_device
from spyre_mlir.tensors.device_views import sizes_of


def full(size: Any, fill_value: float | bool, *, dtype: Any = None, **layout: Any) -> DeviceTensor:
    """Create a tensor whose elements are all the same number.

    Args:
        size: The elements of each dim, as a sequence, or one number.
        fill_value: The number.
        dtype: The host dtype; by default bool, int64 or float32, depending on the type of the number.
        **layout: The options of ``to_device``, such as ``stick_dims``.

    Raises:
        CompileError: As for ``to_device``, or a size or the number is invalid.
    """
    sizes = sizes_of(size if isinstance(size, tuple | list) else (size,))
    if min(sizes, default=0) < 0:
        raise CompileError(f"A tensor has no negative sizes, as {sizes} are.")
    if not isinstance(fill_value, SupportsFloat):
        raise CompileError(f"A tensor is filled with a number, not with {fill_value!r}.")
    return to_device(
        np.full(sizes, fill_value, _numpy_type(dtype, fill_value)), dtype=_name(dtype, fill_value), **layout
    )


def zeros(*size: Any, dtype: Any = "float32", **layout: Any) -> DeviceTensor:
    """Create a tensor of zeros.

    Args:
        *size: The elements of each dim, as numbers or as one sequence.
        dtype: The host dtype.
        **layout: The options of ``to_device``, such as ``stick_dims``.

    Raises:
        CompileError: As for ``to_device``, or a size is invalid.
    """
    return full(sizes_of(size), 0, dtype=dtype, **layout)


def empty(*size: Any, dtype: Any = "float32", **layout: Any) -> DeviceTensor:
    """Create a tensor whose elements are undefined until they are written; currently they are zeros.

    Args:
        *size: The elements of each dim, as numbers or as one sequence.
        dtype: The host dtype.
        **layout: The options of ``to_device``, such as ``stick_dims``.

    Raises:
        CompileError: As for ``to_device``, or a size is invalid.
    """
    return zeros(*size, dtype=dtype, **layout)


def arange(
    start: float, end: float | None = None, step: float = 1, *, dtype: Any = None, **layout: Any
) -> DeviceTensor:
    """Create a tensor of the numbers from ``start`` up to, but not including, ``end``.

    Args:
        start: The first number; without ``end``, the numbers start at 0 and ``start`` is the end.
        end: The exclusive upper bound.
        step: The difference between consecutive numbers.
        dtype: The host dtype; by default int64, or float32 if ``start``, ``end`` or ``step`` is a float.
        **layout: The options of ``to_device``, such as ``stick_dims``.

    Raises:
        CompileError: As for ``to_device``, or the step is 0.
    """
    start, end = (0, start) if end is None else (start, end)
    if step == 0:
        raise CompileError("The step of arange is 0.")
    # One float among the three makes all numbers floats, as in PyTorch.
    number = next((bound for bound in (start, end, step) if isinstance(bound, float)), 0)
    values = np.arange(start, end, step).astype(_numpy_type(dtype, number))
    return to_device(values, dtype=_name(dtype, number), **layout)


def _name(dtype: Any, number: float | bool) -> str:
    """Return the name of a dtype; by default, the name of the dtype for a Python number."""
    if dtype is not None:
        name = dtype_name(dtype)
        element_type(name)
        return name
    return {bool: "bool", int: "int64"}.get(type(number), "float32")


def _numpy_type(dtype: Any, number: float | bool) -> Any:
    """Return the numpy type of arrays from which ``to_device`` creates a tensor of a dtype."""
    return {"bfloat16": "float32", "float8_e4m3fn": "uint8"}.get(name := _name(dtype, number), name)
