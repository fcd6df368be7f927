"""Transfers between host arrays and simulated HBM, checked byte by byte."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import Argument
from spyre_mlir.bundle.transfer import Part, filled_parts, from_raw, gather, part_of, scatter, to_raw
from spyre_mlir.simulator.errors import SimulationError
from spyre_mlir.simulator.memory import HOST, NOBODY, POISON, POISON_BYTE, Memory, spread
from spyre_mlir.target.formats import FORMATS, Numerics, constant_bits, constant_value


def load_argument(
    memory: Memory, address: int, argument: Argument, array: NDArray, numerics: Numerics
) -> None:
    """Lay out a host array at ``address``; all other bytes of the argument become the fill value.

    Without one they hold what nobody may read.
    """
    check_array(argument, array)
    host = np.ascontiguousarray(_raw(argument, array, numerics))
    _fill(memory, address, argument, numerics)
    for part in _checked_parts(argument):
        tags = part_of(memory.shadow, address, host.dtype, argument.transfer.device_strides, part)
        tags[...] = spread(HOST, host.dtype)
    scatter(host, memory.data, address, argument.transfer)


def _fill(memory: Memory, address: int, argument: Argument, numerics: Numerics) -> None:
    """Makes all bytes of an argument the fill value, or poison that nobody wrote."""
    if argument.fill is None:
        memory.data[address : address + argument.bytes] = POISON_BYTE
        memory.shadow[address : address + argument.bytes] = NOBODY
        return
    raw = FORMATS[argument.data_format].raw
    fill = constant_value(constant_bits(argument.fill, argument.data_format), argument.data_format)
    count = argument.bytes // raw.itemsize
    np.ndarray(count, raw, memory.data, address)[:] = numerics.store(np.array(fill), argument.data_format)
    np.ndarray(count, raw, memory.shadow, address)[:] = spread(HOST, raw)


def read_argument(memory: Memory, address: int, argument: Argument, numerics: Numerics) -> NDArray:
    """The host array of a result; bytes that nobody wrote, or that are padding, are an error."""
    raw = FORMATS[argument.data_format].raw
    host = np.zeros(argument.host_shape, raw)
    for part in _checked_parts(argument):
        device_strides = argument.transfer.device_strides
        tags = part_of(memory.shadow, address, raw, device_strides, part)
        wrong = (tags == spread(NOBODY, raw)) | (tags == spread(POISON, raw))
        if wrong.any():
            raise _unwritten(argument, address, np.argwhere(wrong)[0], part, int(wrong.sum()))
    gather(memory.data, address, host, argument.transfer)
    return from_raw(host, argument.host_dtype, argument.data_format, numerics)


def _raw(argument: Argument, array: NDArray, numerics: Numerics) -> NDArray:
    try:
        return to_raw(array, argument.host_dtype, argument.data_format, numerics)
    except ValueError as error:
        raise SimulationError("argument", str(error), tensor=argument.name) from None


def _checked_parts(argument: Argument) -> list[Part]:
    """The valid parts, after checking that they stay inside the host array and the device bytes."""
    transfer = argument.transfer
    parts = filled_parts(transfer)
    device_elements = argument.bytes // FORMATS[argument.data_format].bytes
    rooms = (
        ("host array", transfer.host_offset, transfer.host_strides, math.prod(argument.host_shape)),
        ("device bytes", 0, transfer.device_strides, device_elements),
    )
    for what, first, strides, room in rooms:
        for part in parts:
            steps = zip(part, strides, strict=True)
            last = first + sum((start + count - 1) * stride for (start, count), stride in steps)
            if last >= room or min((first, *strides)) < 0:
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
