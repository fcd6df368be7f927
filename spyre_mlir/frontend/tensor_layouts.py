# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch.spyre.SpyreTensorLayout``: the layout of a tensor in device memory, in the form of torch-spyre.

A layout lists the sizes of the device dims, outermost first, and for each device dim the host elements that one step
advances. The last device dim is a stick. ::

    stl = torch.spyre.SpyreTensorLayout([512, 256], torch.float16)     # sizes [4, 512, 64], steps [64, 256, 1]
    x = torch.rand(512, 256, dtype=torch.float16).to(device_layout=stl)
    x.device_tensor_layout()
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from spyre_mlir.errors import CompileError
from spyre_mlir.layout.requests import LayoutRequest, device_dtype
from spyre_mlir.layout.stick_layout import Digit, StickLayout, elements_per_stick
from spyre_mlir.target.element_types import ELEMENT_TYPES, dtype_name
from spyre_mlir.target.target import default_target
from spyre_mlir.tensors.device_tensor import element_type, has_form


class DataFormats(enum.Enum):
    """Number formats of the device. The value is the MLIR element type in which the device computes."""

    SEN169_FP16 = "f16"
    IEEE_FP32 = "f32"
    SEN143_FP8 = "f8E4M3FN"
    SENINT8 = "i8"
    IEEE_INT32 = "i32"
    INVALID = ""

    def elems_per_stick(self) -> int:
        """Return the elements in a stick; ``CompileError`` for INVALID."""
        if self is DataFormats.INVALID:
            raise CompileError("The format INVALID has no elements; choose a dtype that the device supports.")
        return elements_per_stick(default_target(), self.value)

    def __repr__(self) -> str:
        return f"DataFormats.{self.name}"

    __str__ = __repr__


def get_device_dtype(dtype: torch.dtype) -> DataFormats:
    """Return the format of a dtype on the device; INVALID for a dtype that the device does not support."""
    name = dtype_name(dtype)
    return DataFormats(ELEMENT_TYPES[element_type(name)].device) if has_form(name) else DataFormats.INVALID


def get_elem_in_stick(dtype: torch.dtype) -> int:
    """Return the elements of a dtype in one stick."""
    return get_device_dtype(dtype).elems_per_stick()


class SpyreTensorLayout:
    """Sizes of the device dims, the steps in host elements, and the format of the elements.

    There are three forms of arguments::

        SpyreTensorLayout(sizes, dtype)                          the default layout of a tensor
        SpyreTensorLayout(sizes, strides, dtype, dim_order)      the stick dim last, -1 for a stick-sparse layout
        SpyreTensorLayout(device_size, stride_map, device_dtype)

    A step of -1 or 0 reads no other host elements. ``dim_map``, the host dim of each device dim, is accepted and not
    used, because the steps say the same.
    """

    device_size: list[int]
    stride_map: list[int]
    device_dtype: DataFormats

    def __init__(self, *arguments: Any, **named: Any) -> None:
        named.pop("dim_map", None)
        given = dict(zip(_forms(arguments), arguments, strict=False)) | named
        if given.keys() == {"device_size", "stride_map", "device_dtype"}:
            self.device_size, self.stride_map = list(given["device_size"]), list(given["stride_map"])
            self.device_dtype = given["device_dtype"]
            if len(self.device_size) != len(self.stride_map):
                raise CompileError(
                    f"The layout has {len(self.device_size)} device sizes and {len(self.stride_map)} steps; "
                    "give each device dim a step."
                )
            return
        sizes, dtype = list(given["host_size"]), given["dtype"]
        strides, order = list(given.get("host_strides", _dense(sizes))), given.get("dim_order")
        request = LayoutRequest(dim_order=None if order is None else tuple(order))
        layout = request.layout(default_target(), sizes, element_type(dtype_name(dtype)), "the tensor")
        self.device_size, self.stride_map = list(layout.device_size), _steps(layout, strides)
        self.device_dtype = get_device_dtype(dtype)

    @classmethod
    def of(cls, layout: StickLayout, dtype: torch.dtype) -> SpyreTensorLayout:
        """Return the form of a layout of a dense tensor."""
        return cls(layout.device_size, _steps(layout, _dense(layout.shape)), get_device_dtype(dtype))

    def elems_per_stick(self) -> int:
        """Return the elements in one stick."""
        return self.device_dtype.elems_per_stick()

    def stick_layout(self, tensor: torch.Tensor) -> StickLayout | None:
        """Return the layout of a host tensor; None for a layout that only a transfer can write.

        Such layouts repeat elements, or cut dims into parts of unequal sizes. Raises ``CompileError`` for a layout of
        another format, or with fewer places than the tensor has elements.
        """
        places, expected = math.prod(self.device_size), get_device_dtype(tensor.dtype)
        if expected is not self.device_dtype:
            raise CompileError(
                f"The layout has the format {self.device_dtype}, but {tensor.dtype} is {expected} on the device; "
                "make the layout for the dtype of the tensor."
            )
        if places < tensor.numel():
            raise CompileError(
                f"The layout has {places:,} places for the {tensor.numel():,} elements of the tensor; "
                "make the layout for the shape of the tensor."
            )
        shape, element = tuple(tensor.shape), device_dtype(element_type(dtype_name(tensor.dtype)))
        digits: list[Digit] = []
        for size, step in zip(self.device_size, self.stride_map, strict=True):
            parts = list(_digits(size, step, shape, tensor.stride(), self.elems_per_stick()))
            if math.prod(digit.size(shape) for digit in parts) != size and size != self.elems_per_stick():
                return None
            digits += parts
        layout = StickLayout(default_target(), shape, element, tuple(digits))
        is_same_size = math.prod(layout.device_size) == math.prod(self.device_size)
        return layout if is_same_size and all(_counts(layout, dim) for dim in range(len(shape))) else None

    def _key(self) -> tuple[Any, ...]:
        return tuple(self.device_size), tuple(self.stride_map), self.device_dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpyreTensorLayout) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        # With the space of torch-spyre's text.
        return (
            f"SpyreTensorLayout(device_size={self.device_size}, stride_map ={self.stride_map}, "
            f"device_dtype={self.device_dtype})"
        )


def _counts(layout: StickLayout, dim: int) -> bool:
    """Return whether the digits of a dim count each of its positions once."""
    counted = 1
    for digit in sorted((d for d in layout.digits if d.dim == dim), key=lambda digit: digit.divisor):
        if digit.divisor != counted:
            return False
        counted *= digit.size(layout.shape)
    return counted >= layout.shape[dim]


def _forms(arguments: Sequence[Any]) -> tuple[str, ...]:
    """Return the names of positional arguments of ``SpyreTensorLayout``."""
    if len(arguments) == 3 and isinstance(arguments[2], DataFormats):
        return "device_size", "stride_map", "device_dtype"
    if len(arguments) == 2 and isinstance(arguments[1], torch.dtype):
        return "host_size", "dtype"
    if len(arguments) in (0, 4):
        return ("host_size", "host_strides", "dtype", "dim_order")[: len(arguments)]
    raise TypeError(
        "SpyreTensorLayout takes sizes and a dtype; sizes, strides, a dtype and a dim order; or sizes on the device, "
        "steps and a format."
    )


def _dense(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[dim + 1 :]) for dim in range(len(sizes))]


def _steps(layout: StickLayout, strides: Sequence[int]) -> list[int]:
    """Return the host elements of one step in each device dim; -1 for a device dim without a host dim."""
    return [-1 if digit.dim is None else digit.divisor * strides[digit.dim] for digit in layout.digits]


def _digits(
    size: int, step: int, shape: Sequence[int], strides: Sequence[int], per_stick: int
) -> Iterator[Digit]:
    """Yield the digits of one device dim, outermost first; none for a device dim that they cannot express.

    A device dim that continues from one host dim to the next outer one has a digit in each. A dim of the size
    ``per_stick`` does not continue: the rest of a stick is padding.
    """
    if size == 1 or step <= 0:
        # The count of sticks of a dim that fits one stick has the digit that other layouts have.
        counted = (
            dim for dim in range(len(shape)) if strides[dim] * per_stick == step and shape[dim] <= per_stick
        )
        dim = next(counted, None) if size == 1 else None
        yield Digit(None) if dim is None else Digit(dim, per_stick)
        return
    reached = [dim for dim in range(len(shape)) if strides[dim] <= step and shape[dim] > 1]
    dim = max(reached, key=lambda dim: strides[dim], default=None)
    if dim is None or step % strides[dim]:
        return
    divisor = step // strides[dim]
    count = -(-shape[dim] // divisor)
    outer = next(
        (d for d in range(len(shape)) if strides[d] == strides[dim] * shape[dim] and shape[d] > 1), None
    )
    if size <= count or size == per_stick or outer is None or shape[dim] % divisor or size % count:
        yield Digit(dim, divisor, None if size == count and divisor > 1 else size)
        return
    yield from _digits(size // count, strides[outer], shape, strides, per_stick)
    yield Digit(dim, divisor, count)
