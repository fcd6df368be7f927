# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Bytes of device memory that the arguments of a function take at least, from their types alone."""

from __future__ import annotations

import math

from spyre_mlir.diagnostics import error_at
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir

#: The device holds wider elements in as many bits.
_MOST_BITS = 16


def require_room(func: ir.Operation) -> None:
    """Raise ``CompileError`` if the arguments of a function at level *linalg* are larger than device memory."""
    arguments = func.regions[0].blocks[0].arguments
    taken = sum(_least_bytes(argument.type) for argument in arguments if _is_read_whole(argument))
    device = target_of(func).hbm_bytes
    if taken > device:
        text = f"arguments take at least {taken} bytes, the device has {device}"
        raise error_at(func, f"{text}: compile fewer layers, or weights of 8 bits")


def _is_read_whole(value: ir.Value) -> bool:
    """Return whether an operation computes with all of a value; of one that is sliced the device gets a part."""
    users = [use.owner.operation for use in value.uses]
    return any(
        _is_read_whole(user.results[0])
        if user.name == "linalg.transpose"
        else user.name.startswith("linalg.")
        for user in users
    )


def _least_bytes(type_: ir.Type) -> int:
    if not isinstance(type_, ir.RankedTensorType) or not type_.has_static_shape:
        return 0
    element = type_.element_type
    if not isinstance(element, ir.FloatType | ir.IntegerType):
        return 0
    return math.prod(type_.shape) * (min(element.width, _MOST_BITS) // 8)
