# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.dtype_ops``: the device operations that convert between dtypes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from spyre_mlir.target.element_types import cast_between
from spyre_mlir.torch_spyre.public._C import DataFormats, get_device_dtype
from spyre_mlir.torch_spyre.public._inductor.constants import IDENTITY_OP

_DTYPES = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn)


def _operator(source: torch.dtype, target: torch.dtype) -> str | None:
    """Return the operation of one conversion; None if the device does not have one, or scales the numbers."""
    formats = get_device_dtype(source), get_device_dtype(target)
    if source == target or formats[0] is formats[1]:
        return IDENTITY_OP if source != target else None
    if torch.bool in (source, target) or formats[1] is DataFormats.SEN143_FP8:
        return None
    try:
        return cast_between(formats[0].value, formats[1].value)
    except KeyError:
        return None


_OPERATORS = {
    (source, target): operator
    for source in _DTYPES
    for target in _DTYPES
    if (operator := _operator(source, target)) is not None
}


class DtypeOpTable:
    """Conversions between dtypes of floating-point numbers and booleans, and their device operations."""

    @classmethod
    def get_operator(cls, src_dtype: torch.dtype, dst_dtype: torch.dtype) -> str | None:
        """Return the operation that converts one dtype to another; None if the device does not have one."""
        return _OPERATORS.get((src_dtype, dst_dtype))

    @classmethod
    def get_table(cls) -> Mapping[tuple[torch.dtype, torch.dtype], str]:
        """Return the operations by pairs of dtypes."""
        return _OPERATORS

    @classmethod
    def get_dtype_pairs(cls) -> list[tuple[torch.dtype, torch.dtype]]:
        """Return the pairs of dtypes that the device converts with one operation."""
        return list(_OPERATORS)
