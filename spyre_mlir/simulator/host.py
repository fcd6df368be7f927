# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers between host arrays and simulated HBM, checked byte by byte."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import KernelArgument
from spyre_mlir.bundle.transfer import (
    Part,
    WideIntegersError,
    filled_parts,
    fills_all,
    from_raw,
    gather,
    lay_out,
    misfit,
    part_of,
)
from spyre_mlir.simulator.memory import HOST, NOBODY, POISON, Memory, is_partial, spread, stick_tag
from spyre_mlir.simulator.simulation_error import IntegerRangeError, SimulationError
from spyre_mlir.simulator.workers import copy_array
from spyre_mlir.target.formats import FORMATS, Numerics

#: Types of the host that numpy does not know.
_OWN_DTYPES = ("bfloat16", "float8_e4m3fn")


def check_form(argument: KernelArgument) -> None:
    """The type, the format and the loops of an argument are such that it can be moved at all."""
    if argument.data_format not in FORMATS:
        text = f"its data format '{argument.data_format}' is unknown."
        raise SimulationError("argument", text, tensor=argument.name)
    try:
        is_type = argument.host_dtype in _OWN_DTYPES or np.dtype(argument.host_dtype).kind in "biuf"
    # np.dtype raises for a name that it does not know.
    except TypeError:
        is_type = False
    if not is_type:
        text = f"its type on the host, '{argument.host_dtype}', is unknown."
        raise SimulationError("argument", text, tensor=argument.name)
    transfer, loops = argument.transfer, len(argument.transfer.ranges)
    good = len(transfer.host_strides) == len(transfer.device_strides) == loops and all(
        len(inside) == len(weights) and set(inside) <= set(range(loops)) and min((1, *weights)) > 0
        for inside, weights, _ in transfer.bounds
    )
    if not good or min((0, *argument.host_shape, *argument.device_size, argument.bytes)) < 0:
        text = (
            "its transfer does not have two strides for each loop, a bound no weights, or a size is negative."
        )
        raise SimulationError("transfer", text, tensor=argument.name)


def load_argument(
    memory: Memory, address: int, argument: KernelArgument, array: NDArray[Any], numerics: Numerics
) -> None:
    """Lay out a host array at ``address``; all other bytes of the argument become the fill value.

    Without one they hold what nobody may read.
    """
    check_array(argument, array)
    parts = _checked_parts(argument)
    try:
        lay_out(argument, array, numerics, _bytes_of(memory, address, argument), copy_array)
    except WideIntegersError as error:
        raise IntegerRangeError("argument", str(error), tensor=argument.name) from None
    except ValueError as error:
        raise SimulationError("argument", str(error), tensor=argument.name) from None
    _tag(memory, address, argument, parts)


def load_image(memory: Memory, address: int, argument: KernelArgument, image: NDArray[np.uint8]) -> None:
    """Put at ``address`` what ``load_argument`` would make there, laid out ahead of time.

    An image of the whole memory is not copied: the memory becomes it.
    """
    if image.dtype != np.uint8 or image.shape != (argument.bytes,):
        text = f"its image holds {image.size} elements of {image.dtype}, but it has {argument.bytes} bytes."
        raise SimulationError("argument", text, tensor=argument.name)
    parts = _checked_parts(argument)
    if image.size == memory.data.size:
        memory.data = image.view()
        memory.data.flags.writeable = False
    else:
        _bytes_of(memory, address, argument)[...] = image
    _tag(memory, address, argument, parts)


def _bytes_of(memory: Memory, address: int, argument: KernelArgument) -> NDArray[np.uint8]:
    memory.own()
    return memory.data[address : address + argument.bytes]


def _tag(memory: Memory, address: int, argument: KernelArgument, parts: list[Part]) -> None:
    """Says that the host wrote an argument: its elements, and all of it if it writes the padding."""
    raw, end, unit = FORMATS[argument.data_format].raw, address + argument.bytes, memory.stick_bytes
    if argument.fill is not None or fills_all(argument):
        if address % unit == 0 and end % unit == 0:
            memory.stick_tags[address // unit : end // unit] = stick_tag(HOST, raw)
        else:
            memory.shadow_of(address, end)[address:end].view(raw)[...] = spread(HOST, raw)
        return
    shadow = memory.shadow_of(address, end)
    shadow[address:end] = NOBODY
    for part in parts:
        part_of(shadow, address, raw, argument.transfer.device_strides, part)[...] = spread(HOST, raw)
    if address % unit == 0 and end % unit == 0:
        _tag_whole_sticks(memory, address, end)


def _tag_whole_sticks(memory: Memory, begin: int, end: int) -> None:
    """Give a stick all of which the host wrote a tag of its own, as most have between those with padding."""
    unit = memory.stick_bytes
    tags = memory.shadow_of(0, 0)[begin:end].view(np.uint16).reshape(-1, unit // 2)
    whole = (tags[:, :1] != NOBODY)[:, 0] & (tags == tags[:, :1]).all(axis=1)
    memory.stick_tags[begin // unit : end // unit] = np.where(whole, tags[:, 0], 0)


def read_argument(memory: Memory, address: int, argument: KernelArgument, numerics: Numerics) -> NDArray[Any]:
    """The host array of a result; bytes that nobody wrote, or that are padding, are an error."""
    raw, end = FORMATS[argument.data_format].raw, address + argument.bytes
    parts = _checked_parts(argument)
    sticks = slice(address // memory.stick_bytes, -(-end // memory.stick_bytes))
    # Sticks that were written as a whole need no look at their elements.
    tags = memory.stick_tags[sticks]
    if not ((tags != NOBODY) & (tags != stick_tag(POISON, raw)) & ~is_partial(tags)).all():
        shadow = memory.shadow_of(address, end)
        for part in parts:
            tags = part_of(shadow, address, raw, argument.transfer.device_strides, part)
            wrong = (tags == spread(NOBODY, raw)) | (tags == spread(POISON, raw))
            if wrong.any():
                raise _unwritten(
                    argument, memory.base + address, np.argwhere(wrong)[0], part, int(wrong.sum())
                )
    host = np.zeros(argument.host_shape, raw)
    gather(memory.data, address, host, argument.transfer, copy_array)
    return from_raw(host, argument.host_dtype, argument.data_format, numerics)


def _checked_parts(argument: KernelArgument) -> list[Part]:
    """The valid parts, after checking that they stay inside the host array and the device bytes."""
    transfer = argument.transfer
    parts = filled_parts(transfer)
    device_elements = argument.bytes // FORMATS[argument.data_format].bytes
    limits = (
        ("host array", transfer.host_offset, transfer.host_strides, math.prod(argument.host_shape)),
        ("device bytes", 0, transfer.device_strides, device_elements),
    )
    for what, first, strides, size in limits:
        for part in parts:
            steps = zip(part, strides, strict=True)
            last = first + sum((start + count - 1) * stride for (start, count), stride in steps)
            if last >= size or min((first, *strides)) < 0:
                text = f"its transfer touches element {last} of {size} in the {what}."
                raise SimulationError("transfer", text, tensor=argument.name)
    return parts


def check_array(argument: KernelArgument, array: NDArray[Any]) -> None:
    if problem := misfit(argument, array):
        raise SimulationError("argument", problem, tensor=argument.name)


def _unwritten(
    argument: KernelArgument, address: int, position: NDArray[Any], part: Part, count: int
) -> SimulationError:
    indices = [start + int(p) for (start, _), p in zip(part, position, strict=True)]
    strides = zip(indices, argument.transfer.device_strides, strict=True)
    where = address + FORMATS[argument.data_format].bytes * sum(i * s for i, s in strides)
    text = f"{count} elements of this result were never written, the first at host element " + str(
        sum(i * s for i, s in zip(indices, argument.transfer.host_strides, strict=True))
    )
    return SimulationError("unwritten-result", text + ".", tensor=argument.name, address=where)
