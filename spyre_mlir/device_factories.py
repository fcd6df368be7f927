"""Tensors made on the device: ``empty``, ``zeros``, ``full`` and ``arange`` with the layouts of ``to_device``."""

from __future__ import annotations

from typing import Any

import numpy as np

from spyre_mlir.device_tensor import DeviceTensor, dtype_name, element_type, to_device
from spyre_mlir.device_views import sizes_of


def full(size: Any, fill_value: float | bool, *, dtype: Any = None, **layout: Any) -> DeviceTensor:
    """A tensor of one number; ``layout`` is what ``to_device`` takes: ``stick_dims``, ``dim_order``.

    The dtype is that of the number if none is given: bool, int64 or float32.
    """
    sizes = sizes_of(size if isinstance(size, tuple | list) else (size,))
    return to_device(
        np.full(sizes, fill_value, _held(dtype, fill_value)), dtype=_name(dtype, fill_value), **layout
    )


def zeros(*size: Any, dtype: Any = "float32", **layout: Any) -> DeviceTensor:
    """A tensor of zeros; its size is given as numbers or as one sequence."""
    return full(sizes_of(size), 0, dtype=dtype, **layout)


def empty(*size: Any, dtype: Any = "float32", **layout: Any) -> DeviceTensor:
    """A tensor whose numbers nobody may read before they are written."""
    return zeros(*size, dtype=dtype, **layout)


def arange(
    start: float, end: float | None = None, step: float = 1, *, dtype: Any = None, **layout: Any
) -> DeviceTensor:
    """The numbers from ``start`` (0 if only the end is given) to before ``end`` by ``step``; int64, or float32."""
    start, end = (0, start) if end is None else (start, end)
    kind = next((each for each in (start, end, step) if isinstance(each, float)), 0)
    values = np.arange(start, end, step).astype(_held(dtype, kind))
    return to_device(values, dtype=_name(dtype, kind), **layout)


def _name(dtype: Any, number: float | bool) -> str:
    """The name of a dtype, or that of a number of Python."""
    if dtype is not None:
        name = dtype_name(dtype)
        element_type(name)
        return name
    return {bool: "bool", int: "int64"}.get(type(number), "float32")


def _held(dtype: Any, number: float | bool) -> Any:
    """The numpy type that the numbers of a dtype are given in."""
    return {"bfloat16": "float32", "float8_e4m3fn": "uint8"}.get(name := _name(dtype, number), name)
