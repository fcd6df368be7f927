# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers: the loops of ``model.Transfer`` on numpy arrays, and conversion of host numbers to device formats.

All transfers of tensors between host and device use this module: the simulator, and ``to_device``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import KernelArgument, Transfer
from spyre_mlir.bundle.regular_files import Header
from spyre_mlir.target.formats import (
    BFLOAT16_MAX,
    DL16,
    FORMATS,
    FP8,
    IEEE,
    INT8,
    INT32,
    TOLERANCE,
    FormatRange,
    Numerics,
    constant_bits,
    constant_value,
    rounded_to_bfloat16,
)

#: For each loop, the first value and the number of values.
Part = tuple[tuple[int, int], ...]

#: The byte in padding that the host does not fill: NaN in every float format.
UNDEFINED_BYTE = 0xFF


#: The numpy types of arrays for the host types that numpy lacks: bits, or numbers.
_ARRAYS = {"bfloat16": ("uint16", "float32"), "float8_e4m3fn": ("uint8",)}


#: A function that copies the elements of the second array into the first array.
Copy = Callable[[NDArray[Any], NDArray[Any]], None]


def lay_out(
    argument: KernelArgument,
    array: NDArray[Any],
    numerics: Numerics,
    image: NDArray[np.uint8],
    copy: Copy = np.copyto,
) -> None:
    """Write the device bytes of an argument into ``image``, which has the size of the argument.

    ``ValueError`` for an array of another type or shape, and for numbers that the format cannot represent.
    """
    if problem := misfit(argument, array) or index_out_of_range(argument, array):
        raise ValueError(problem)
    host = np.ascontiguousarray(to_raw(array, argument.host_dtype, argument.data_format, numerics))
    if not fills_all(argument):
        fill(argument, numerics, image)
    scatter(host, image, 0, argument.transfer, copy)


class OnHost(Protocol):
    """The type and shape of a host array."""

    @property
    def host_dtype(self) -> str: ...

    @property
    def host_shape(self) -> tuple[int, ...]: ...


def misfit(argument: OnHost, array: NDArray[Any] | Header) -> str | None:
    """Describe a wrong type or shape of the array of an argument; None if both are right."""
    allowed = _ARRAYS.get(argument.host_dtype, (argument.host_dtype,))
    if array.dtype.name not in allowed:
        return f"the array is {array.dtype.name}, but the argument is {argument.host_dtype}; cast the array."
    if array.shape != tuple(argument.host_shape):
        shape = list(argument.host_shape)
        return (
            f"the array has shape {list(array.shape)}, but the argument has {shape}; compile for this shape."
        )
    return None


def index_out_of_range(argument: KernelArgument, array: NDArray[Any]) -> str | None:
    """Describe the first out-of-range index in the array of an argument; None if there is none."""
    if argument.index_bounds is None or not array.size:
        return None
    bounds = argument.index_bounds
    outside = (array < bounds.lower) | (array >= bounds.upper)
    if not outside.any():
        return None
    return bounds.out_of_range(int(array[outside].flat[0]))


def fill(argument: KernelArgument, numerics: Numerics, image: NDArray[np.uint8]) -> None:
    """Set all bytes of an argument to its fill value, or to undefined bytes if ``fill`` is None."""
    if argument.fill is None:
        image[...] = UNDEFINED_BYTE
        return
    form = argument.data_format
    fill = np.array(constant_value(constant_bits(argument.fill, form), form))
    image.view(FORMATS[form].raw)[...] = numerics.store(fill, form)


def scatter(
    host: NDArray[Any], buffer: NDArray[Any], address: int, transfer: Transfer, copy: Copy = np.copyto
) -> None:
    """Lay out a dense host array of raw bits in the bytes of ``buffer`` from ``address`` on."""
    for part in filled_parts(transfer):
        copy(*_sides(host, buffer, address, transfer, part))


def gather(
    buffer: NDArray[Any], address: int, host: NDArray[Any], transfer: Transfer, copy: Copy = np.copyto
) -> None:
    """Fill a dense host array of raw bits from the bytes of ``buffer``: the inverse of ``scatter``."""
    for part in filled_parts(transfer):
        device, elements = _sides(host, buffer, address, transfer, part)
        copy(elements, device)


def _sides(
    host: NDArray[Any], buffer: NDArray[Any], address: int, transfer: Transfer, part: Part
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return views of the elements of a part on the device and on the host."""
    device = part_of(buffer, address, host.dtype, transfer.device_strides, part)
    return device, part_of(
        host, transfer.host_offset * host.itemsize, host.dtype, transfer.host_strides, part
    )


def fills_all(argument: KernelArgument) -> bool:
    """Return whether a transfer is one loop nest that writes each device element once."""
    parts = filled_parts(argument.transfer)
    if len(parts) != 1:
        return False
    loops = zip(argument.transfer.device_strides, parts[0], strict=True)
    expected = 1
    for stride, (first, count) in sorted((stride, span) for stride, span in loops if span != (0, 1)):
        if first or stride != expected:
            return False
        expected *= count
    return expected * FORMATS[argument.data_format].bytes == argument.bytes


def filled_parts(transfer: Transfer) -> list[Part]:
    """Return the valid parts that contain an element."""
    return [part for part in valid_parts(transfer) if all(count for _, count in part)]


def same_moves(one: Transfer, other: Transfer) -> bool:
    """Return whether two transfers put each host element at the same place; loops of one iteration do not count."""
    return _essence(one) == _essence(other)


def _essence(transfer: Transfer) -> list[tuple]:
    """Return, for each part, where it begins on host and device, and its loops of more than one iteration."""
    strides = list(zip(transfer.host_strides, transfer.device_strides, strict=True))
    essence = []
    for part in filled_parts(transfer):
        loops = list(zip(part, strides, strict=True))
        host = transfer.host_offset + sum(first * stride for (first, _), (stride, _) in loops)
        device = sum(first * stride for (first, _), (_, stride) in loops)
        turning = sorted((count, *steps) for (_, count), steps in loops if count > 1)
        essence.append((host, device, *turning))
    return sorted(essence)


def valid_parts(transfer: Transfer) -> Iterator[Part]:
    """Yield rectangular parts of the loop nest that together are all positions with a host element."""
    per_bound = [
        list(_within(sorted(zip(weights, loops, strict=True), reverse=True), size, transfer.ranges))
        for loops, weights, size in transfer.bounds
    ]
    for choice in itertools.product(*per_bound):
        part = [(0, count) for count in transfer.ranges]
        for limits in choice:
            for loop, limit in limits.items():
                part[loop] = limit
        yield tuple(part)


def _within(
    loops: list[tuple[int, int]], size: int, ranges: tuple[int, ...]
) -> Iterator[dict[int, tuple[int, int]]]:
    """Yield parts with ``sum(weight * i_loop) < size``, for (weight, loop) pairs from the largest weight on."""
    if not loops:
        if size > 0:
            yield {}
        return
    (weight, loop), *inner = loops
    inner_most = sum(w * (ranges[other] - 1) for w, other in inner)
    # All iterations whose inner iterations are all valid form one part; each other iteration is a separate part.
    whole = min(max((size - 1 - inner_most) // weight + 1, 0), ranges[loop])
    if whole:
        yield {loop: (0, whole), **{other: (0, ranges[other]) for _, other in inner}}
    for i in range(whole, min(ranges[loop], -(-size // weight))):
        for rest in _within(inner, size - i * weight, ranges):
            yield {loop: (i, 1), **rest}


def part_of(
    buffer: NDArray[Any], address: int, raw: np.dtype, strides: tuple[int, ...], part: Part
) -> NDArray[Any]:
    """Return a view of the elements of a part; ``strides`` in elements of type ``raw``, ``address`` in bytes."""
    first = sum(start * stride for (start, _), stride in zip(part, strides, strict=True))
    shape = tuple(count for _, count in part)
    steps = tuple(stride * raw.itemsize for stride in strides)
    return np.ndarray(shape, raw, buffer, address + first * raw.itemsize, steps)


def to_raw(array: NDArray[Any], host_dtype: str, data_format: str, numerics: Numerics) -> NDArray[Any]:
    """Return the elements of a host array as bits of the device format, in host order.

    bfloat16 is given as bits in uint16 or as float32 numbers, float8_e4m3fn as bits in uint8. ``ValueError`` for
    numbers that the format cannot represent.
    """
    if data_format in (FP8, INT8):
        # 8-bit numbers have the same bits on host and device.
        return array.view(np.uint8)
    if host_dtype == "bfloat16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if data_format == INT32:
        if array.dtype.kind not in "biu":
            raise ValueError(f"{array.dtype.name} values cannot become {INT32}.")
        limits = np.iinfo(np.int32)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise WideIntegersError(
                f"it holds values outside the range of {INT32}, the device's only integer format."
            )
        return numerics.store(array.astype(np.int32), INT32)
    if data_format == DL16 and array.dtype == np.float16:
        return numerics.store_half(array)
    if data_format == DL16 and host_dtype == "bfloat16":
        array = _in_range(array.astype(np.float32), numerics.range)
    return numerics.store(array.astype(np.float32), data_format)


def from_raw(raw: NDArray[Any], host_dtype: str, data_format: str, numerics: Numerics) -> NDArray[Any]:
    """Return device bits as the host type; bfloat16 is returned as the float32 numbers of its rounded values."""
    if numerics.mode == IEEE and (host_dtype, data_format) == ("float16", DL16):
        return raw.view(np.float16)
    if data_format in (FP8, INT8):
        return raw.view(np.int8 if host_dtype == "int8" else np.uint8)
    values = numerics.load_for_host(raw, data_format)
    if host_dtype == "bfloat16":
        values = rounded_to_bfloat16(values)
    elif host_dtype == "bool":
        values = values != 0
    else:
        # A number beyond the host type becomes an infinity, like in a cast on the host.
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype(host_dtype)
    # numpy arithmetic turns arrays without dims into scalars.
    return np.asarray(values)


def _in_range(array: NDArray[np.float32], limits: FormatRange) -> NDArray[np.float32]:
    """Return bfloat16 numbers that the device can represent; ``ValueError`` for others.

    The last number of bfloat16, from which masks are made, becomes an infinity. A number may become 0 if it is less
    than a thousandth of the largest number.
    """
    size = np.abs(array)
    lost = (size >= limits.overflow) & (size < BFLOAT16_MAX)
    largest = np.max(size, where=np.isfinite(size), initial=0)
    if largest <= limits.underflow / TOLERANCE:
        lost |= (size > largest * TOLERANCE) & (size <= limits.underflow)
    if lost.any():
        text = f"it holds {array[lost][0]:g}, but the 16 bits of {limits.name} reach from"
        raise ValueError(f"{text} {limits.underflow:.3g} to {limits.largest:.7g}; give it as float32.")
    return np.where(size >= BFLOAT16_MAX, np.copysign(np.float32(np.inf), array), array)


class WideIntegersError(ValueError):
    """Integers that need more than 32 bits."""
