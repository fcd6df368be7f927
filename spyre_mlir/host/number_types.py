# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Number types of host functions: the storage type of a tensor's elements, and the type of scalar computations.

A scalar of f16, bf16 or f8E4M3FN is a float32 number until it becomes an element of a tensor, so a structured op
rounds once, at its result. bfloat16 and f8E4M3FN, which numpy lacks, are stored as float32 numbers inside a
function, and as bits in uint16 and uint8 outside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.records import dataclass
from spyre_mlir.target.element_types import ELEMENT_TYPES, ElementType
from spyre_mlir.target.formats import decode_fp8, rounded_to_bfloat16


@dataclass(frozen=True)
class NumberType:
    """An element type by its name in MLIR.

    ``host`` is the dtype of arrays outside, ``storage`` the dtype of tensors inside, ``computed`` the dtype of scalars.
    """

    name: str
    host: np.dtype
    storage: np.dtype
    computed: np.dtype

    @property
    def is_float(self) -> bool:
        """Return whether scalars are floating-point numbers."""
        return self.computed.kind == "f"

    @property
    def accumulated(self) -> np.dtype:
        """The type of sums and products over many elements."""
        return np.dtype(np.float64) if self.is_float else self.computed

    def widened(self, elements: NDArray[Any]) -> NDArray[Any]:
        """Return the elements of a tensor as scalars to compute with."""
        return elements.astype(self.computed, copy=False)

    def rounded(self, scalars: NDArray[Any]) -> NDArray[Any]:
        """Return scalars as numbers of this type; scalars of a numpy type are rounded where they are stored."""
        if self.name == "bf16":
            return rounded_to_bfloat16(scalars)
        return decode_fp8(_float8_codes(scalars)) if self.name == "f8E4M3FN" else scalars

    def stored(self, scalars: NDArray[Any]) -> NDArray[Any]:
        """Return scalars as the elements of a tensor."""
        return np.asarray(self.rounded(scalars)).astype(self.storage, copy=False)

    def from_host(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the elements of an array of the type ``host``."""
        if self.name == "bf16":
            return (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return decode_fp8(array) if self.name == "f8E4M3FN" else array

    def to_host(self, elements: NDArray[Any]) -> NDArray[Any]:
        """Return a new dense array of the type ``host``."""
        if self.name == "bf16":
            # Elements are bfloat16 numbers, so the lower half of their bits is 0.
            # An array without dims must not become a scalar.
            return (np.array(elements, order="C").view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        if self.name == "f8E4M3FN":
            return _float8_codes(elements)
        return np.array(elements, dtype=self.host, order="C")


def _number_type(element: ElementType) -> NumberType:
    host, float32 = np.dtype(element.storage), np.dtype(np.float32)
    storage = host if element.is_native else float32
    is_narrow = element.is_float and element.name != "f64"
    return NumberType(element.name, host, storage, float32 if is_narrow else host)


NUMBER_TYPES = {
    name: _number_type(ELEMENT_TYPES[name])
    for name in ("f8E4M3FN", "f16", "bf16", "f32", "f64", "i1", "i8", "i16", "i32", "i64")
}
NUMBER_TYPES["index"] = replace(NUMBER_TYPES["i64"], name="index")


def number_type(type_: ir.Type) -> NumberType:
    """Return the number type of a scalar or of a tensor's elements; ``CompileError`` if the host does not have it."""
    element = str(ir.RankedTensorType(type_).element_type if is_tensor(type_) else type_)
    if element not in NUMBER_TYPES:
        raise CompileError(
            f"The host has no numbers of the type {element}; it has {', '.join(NUMBER_TYPES)}."
        )
    return NUMBER_TYPES[element]


def is_tensor(type_: ir.Type) -> bool:
    """Return whether a type is a ranked tensor."""
    return isinstance(type_, ir.RankedTensorType)


def tensor_shape(type_: ir.Type) -> tuple[int, ...]:
    """Return the static shape of a tensor type; () for a scalar."""
    if not is_tensor(type_):
        return ()
    tensor = ir.RankedTensorType(type_)
    if not tensor.has_static_shape:
        raise CompileError(f"The host computes on tensors of static shape, not on {type_}.")
    return tuple(tensor.shape)


def _float8_codes(numbers: NDArray[Any]) -> NDArray[np.uint8]:
    """Return codes of f8E4M3FN: to nearest, ties to even; overflow gives the largest number, as in PyTorch."""
    magnitude = np.abs(np.asarray(numbers, dtype=np.float64))
    known = decode_fp8(np.arange(127, dtype=np.uint8)).astype(np.float64)
    middles = (known[1:] + known[:-1]) / 2
    code = np.searchsorted(middles, magnitude)
    # searchsorted puts a tie at the lower code; if that code is odd, the tie goes to the next code.
    tie = magnitude == np.append(middles, np.inf)[code]
    code = np.where(np.isnan(magnitude), 127, np.minimum(code + (tie & (code % 2 == 1)), 126))
    return (code | np.signbit(numbers) * 128).astype(np.uint8)
