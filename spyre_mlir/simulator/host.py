"""Transfers between host arrays and simulated HBM: the loops of ``model.Transfer``, vectorised."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import Argument, Transfer
from spyre_mlir.simulator.errors import SimulationError
from spyre_mlir.simulator.memory import HOST, NOBODY, POISON, Memory, spread
from spyre_mlir.target.formats import DL16, FORMATS, INT32, Numerics, constant_bits, constant_value

#: Per loop, the first value and the number of values.
Part = tuple[tuple[int, int], ...]


def load_argument(
    memory: Memory, address: int, argument: Argument, array: NDArray, numerics: Numerics
) -> None:
    """Lay out a host array at ``address``; all other bytes of the argument become the fill value."""
    check_array(argument, array)
    host = np.ascontiguousarray(host_to_raw(argument, array, numerics))
    raw = FORMATS[argument.data_format].raw
    fill = constant_value(constant_bits(argument.fill, argument.data_format), argument.data_format)
    count = argument.bytes // raw.itemsize
    np.ndarray(count, raw, memory.data, address)[:] = numerics.store(np.array(fill), argument.data_format)
    np.ndarray(count, raw, memory.shadow, address)[:] = spread(HOST, raw)
    for part in _checked_parts(argument):
        _part(memory.data, address, raw, argument.transfer.device_strides, part)[...] = _part(
            host, 0, raw, argument.transfer.host_strides, part
        )


def read_argument(memory: Memory, address: int, argument: Argument, numerics: Numerics) -> NDArray:
    """The host array of a result; bytes that nobody wrote, or that are padding, are an error."""
    raw = FORMATS[argument.data_format].raw
    host = np.zeros(argument.host_shape, raw)
    for part in _checked_parts(argument):
        device_strides = argument.transfer.device_strides
        tags = _part(memory.shadow, address, raw, device_strides, part)
        wrong = (tags == spread(NOBODY, raw)) | (tags == spread(POISON, raw))
        if wrong.any():
            raise _unwritten(argument, address, np.argwhere(wrong)[0], part, int(wrong.sum()))
        _part(host, 0, raw, argument.transfer.host_strides, part)[...] = _part(
            memory.data, address, raw, device_strides, part
        )
    return raw_to_host(argument, host, numerics)


def host_to_raw(argument: Argument, array: NDArray, numerics: Numerics) -> NDArray:
    """The elements of a host array as bits of the device format, in host order."""
    if argument.host_dtype == "bfloat16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if argument.data_format == INT32:
        return numerics.store(_as_int32(argument, array), INT32)
    if argument.data_format == DL16 and array.dtype == np.float16:
        return numerics.store_half(array)
    return numerics.store(array.astype(np.float32), argument.data_format)


def raw_to_host(argument: Argument, raw: NDArray, numerics: Numerics) -> NDArray:
    """Device bits as the host type; bfloat16 comes back as the float32 numbers of its rounded values."""
    values = numerics.load(raw, argument.data_format)
    if argument.host_dtype == "bfloat16":
        return _rounded_to_bfloat16(values)
    if argument.host_dtype == "bool":
        return values != 0
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(argument.host_dtype)


def valid_parts(transfer: Transfer) -> Iterator[Part]:
    """Rectangular parts of the loop nest that together are all positions with a host element."""
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
    """Parts with ``sum(weight * i_loop) < size``, for (weight, loop) pairs from the largest weight on."""
    if not loops:
        if size > 0:
            yield {}
        return
    (weight, loop), *inner = loops
    inner_most = sum(w * (ranges[other] - 1) for w, other in inner)
    whole = min(max((size - 1 - inner_most) // weight + 1, 0), ranges[loop])
    if whole:
        yield {loop: (0, whole), **{other: (0, ranges[other]) for _, other in inner}}
    for i in range(whole, min(ranges[loop], -(-size // weight))):
        for rest in _within(inner, size - i * weight, ranges):
            yield {loop: (i, 1), **rest}


def _part(buffer: NDArray, address: int, raw: np.dtype, strides: tuple[int, ...], part: Part) -> NDArray:
    first = sum(start * stride for (start, _), stride in zip(part, strides, strict=True))
    shape = tuple(count for _, count in part)
    steps = tuple(stride * raw.itemsize for stride in strides)
    return np.ndarray(shape, raw, buffer, address + first * raw.itemsize, steps)


def _checked_parts(argument: Argument) -> list[Part]:
    """The valid parts, after checking that they stay inside the host array and the device bytes."""
    transfer = argument.transfer
    parts = [part for part in valid_parts(transfer) if all(count for _, count in part)]
    rooms = (
        ("host array", transfer.host_strides, math.prod(argument.host_shape)),
        ("device bytes", transfer.device_strides, argument.bytes // FORMATS[argument.data_format].bytes),
    )
    for what, strides, room in rooms:
        for part in parts:
            last = sum((start + count - 1) * s for (start, count), s in zip(part, strides, strict=True))
            if last >= room or min(strides, default=0) < 0:
                text = f"its transfer touches element {last} of {room} in the {what}."
                raise SimulationError("transfer", text, tensor=argument.name)
    return parts


def check_array(argument: Argument, array: NDArray) -> None:
    allowed = ("uint16", "float32") if argument.host_dtype == "bfloat16" else (argument.host_dtype,)
    if array.dtype.name not in allowed:
        text = f"the array is {array.dtype.name}, but the argument is {argument.host_dtype}."
        raise SimulationError("argument", text, tensor=argument.name)
    if array.shape != tuple(argument.host_shape):
        text = f"the array has shape {list(array.shape)}, but the argument has {list(argument.host_shape)}."
        raise SimulationError("argument", text, tensor=argument.name)


def _as_int32(argument: Argument, array: NDArray) -> NDArray[np.int32]:
    if array.dtype.kind not in "biu":
        text = f"{array.dtype.name} values cannot become {INT32}."
        raise SimulationError("argument", text, tensor=argument.name)
    limits = np.iinfo(np.int32)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        text = f"it holds values outside the range of {INT32}, the device's only integer format."
        raise SimulationError("argument", text, tensor=argument.name)
    return array.astype(np.int32)


def _rounded_to_bfloat16(values: NDArray) -> NDArray[np.float32]:
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    even = (bits >> np.uint32(16)) & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + even) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(values), rounded.view(np.float32), values).astype(np.float32)


def _unwritten(
    argument: Argument, address: int, position: NDArray, part: Part, count: int
) -> SimulationError:
    indices = [start + int(p) for (start, _), p in zip(part, position, strict=True)]
    strides = zip(indices, argument.transfer.device_strides, strict=True)
    where = address + FORMATS[argument.data_format].bytes * sum(i * s for i, s in strides)
    text = f"{count} elements of this result were never written, the first at host element " + str(
        sum(i * s for i, s in zip(indices, argument.transfer.host_strides, strict=True))
    )
    return SimulationError("unwritten-result", text + ".", tensor=argument.name, address=where)
