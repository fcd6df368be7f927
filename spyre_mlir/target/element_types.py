# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element types of programs: their names in MLIR and on the host, and the element types that the device uses for them.

The host is numpy and PyTorch. A type that numpy lacks is stored in an unsigned integer of its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, DL16, FP8, FP32, INT8, INT32, Kind


@dataclass(frozen=True)
class ElementType:
    """An element type of MLIR.

    ``host`` is its name in numpy or PyTorch, ``storage`` the numpy type that holds its elements. ``device`` is the
    element type in which the device computes with its numbers, None if the device cannot; ``layout_bits`` is the number
    of bits of an element in a stick, None for a type that layouts do not support.
    """

    name: str
    host: str
    storage: np.dtype | None
    device: str | None = None
    layout_bits: int | None = None

    @property
    def is_float(self) -> bool:
        """Return whether elements are floating-point numbers."""
        return "f" in self.name

    @property
    def is_native(self) -> bool:
        """Return whether numpy computes with this type."""
        return self.storage is not None and self.storage.name == self.host


#: Element types by their MLIR names. fp16, bf16 and booleans all run as DL16; only matmuls read 8-bit types.
ELEMENT_TYPES: dict[str, ElementType] = {
    element.name: element
    for element in (
        ElementType("f16", "float16", np.dtype(np.float16), "f16", 16),
        ElementType("bf16", "bfloat16", np.dtype(np.uint16), "f16", 16),
        ElementType("f32", "float32", np.dtype(np.float32), "f32", 32),
        ElementType("f64", "float64", np.dtype(np.float64)),
        ElementType("i1", "bool", np.dtype(np.bool_), "f16", 16),
        ElementType("i8", "int8", np.dtype(np.int8), "i8", 8),
        ElementType("i16", "int16", np.dtype(np.int16)),
        ElementType("i32", "int32", np.dtype(np.int32), "i32", 32),
        ElementType("i64", "int64", np.dtype(np.int64), "i32"),
        ElementType("f8E4M3FN", "float8_e4m3fn", np.dtype(np.uint8), "f8E4M3FN", 8),
        ElementType("f8E5M2", "float8_e5m2", np.dtype(np.uint8), layout_bits=8),
        ElementType("i4", "int4", None, layout_bits=4),
    )
}

#: Number formats of the device by the element types in which it computes.
DATA_FORMATS = {"f16": DL16, "f32": FP32, "i32": INT32, "i8": INT8, "f8E4M3FN": FP8}

#: Element types that only matmuls read.
ONE_BYTE = frozenset(("i8", "f8E4M3FN"))


def widening_block(shape: Sequence[int], per_stick: int) -> int | None:
    """Return the size of the identity matrix whose product with an int8 tensor is its fp16 form; None if there is none.

    ``per_stick`` is the number of int8 elements in a stick.

    The size is a stick of int8, or the last dim if it is shorter. Parts of the last dim that are not whole sticks would
    need a relayout. An odd last dim would need one too, because a stick holds pairs of the dim. A batched matmul has
    two batch dims, one of which counts the parts.
    """
    if not 2 <= len(shape) <= 3 or shape[-1] % (2 if shape[-1] <= per_stick else per_stick):
        return None
    return min(shape[-1], per_stick)


def cast_between(source: str, target: str) -> str:
    """Return the operation that casts from one device element type to another; ``KeyError`` if there is none."""
    formats = (DATA_FORMATS[source],), DATA_FORMATS[target]
    for op in DEVICE_OPS.values():
        if op.kind is Kind.CAST and (op.formats, op.result) == formats:
            return op.name
    raise KeyError(source, target)


def dtype_name(dtype: Any) -> str:
    """Return the name of an element type, given as a name or as a dtype of numpy or PyTorch."""
    return dtype if isinstance(dtype, str) else getattr(dtype, "__name__", str(dtype)).removeprefix("torch.")
