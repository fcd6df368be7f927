# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Transfers: the loops of ``model.Transfer`` on numpy arrays, and conversion of host numbers to device formats.

All transfers of tensors between host and device use this module: the simulator, and ``to_device``.
"""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.json_fields import argument_to_json, load, require_same, write_json
from spyre_mlir.bundle.model import KernelArgument, Transfer
from spyre_mlir.bundle.regular_files import Header, open_regular
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target import formats

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
    numerics: formats.Numerics,
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


def fill(argument: KernelArgument, numerics: formats.Numerics, image: NDArray[np.uint8]) -> None:
    """Set all bytes of an argument to its fill value, or to undefined bytes if ``fill`` is None."""
    if argument.fill is None:
        image[...] = UNDEFINED_BYTE
        return
    form = argument.data_format
    fill = np.array(formats.constant_value(formats.constant_bits(argument.fill, form), form))
    image.view(formats.FORMATS[form].raw)[...] = numerics.store(fill, form)


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
    return expected * formats.FORMATS[argument.data_format].bytes == argument.bytes


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


def to_raw(
    array: NDArray[Any], host_dtype: str, data_format: str, numerics: formats.Numerics
) -> NDArray[Any]:
    """Return the elements of a host array as bits of the device format, in host order.

    bfloat16 is given as bits in uint16 or as float32 numbers, float8_e4m3fn as bits in uint8. ``ValueError`` for
    numbers that the format cannot represent.
    """
    if data_format in (formats.FP8, formats.INT8):
        # 8-bit numbers have the same bits on host and device.
        return array.view(np.uint8)
    if host_dtype == "bfloat16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if data_format == formats.INT32:
        if array.dtype.kind not in "biu":
            raise ValueError(f"{array.dtype.name} values cannot become {formats.INT32}.")
        limits = np.iinfo(np.int32)
        if array.size and (array.min() < limits.min or array.max() > limits.max):
            raise WideIntegersError(
                f"it holds values outside the range of {formats.INT32}, the device's only integer format."
            )
        return numerics.store(array.astype(np.int32), formats.INT32)
    if data_format == formats.DL16 and array.dtype == np.float16:
        return numerics.store_half(array)
    if data_format == formats.DL16 and host_dtype == "bfloat16":
        array = _in_range(array.astype(np.float32), numerics.range)
    return numerics.store(array.astype(np.float32), data_format)


def from_raw(
    raw: NDArray[Any], host_dtype: str, data_format: str, numerics: formats.Numerics
) -> NDArray[Any]:
    """Return device bits as the host type; bfloat16 is returned as the float32 numbers of its rounded values."""
    if numerics.mode == formats.IEEE and (host_dtype, data_format) == ("float16", formats.DL16):
        return raw.view(np.float16)
    if data_format in (formats.FP8, formats.INT8):
        return raw.view(np.int8 if host_dtype == "int8" else np.uint8)
    values = numerics.load_for_host(raw, data_format)
    if host_dtype == "bfloat16":
        values = formats.rounded_to_bfloat16(values)
    elif host_dtype == "bool":
        values = values != 0
    else:
        # A number beyond the host type becomes an infinity, like in a cast on the host.
        with np.errstate(over="ignore", invalid="ignore"):
            values = values.astype(host_dtype)
    # numpy arithmetic turns arrays without dims into scalars.
    return np.asarray(values)


def _in_range(array: NDArray[np.float32], limits: formats.FormatRange) -> NDArray[np.float32]:
    """Return bfloat16 numbers that the device can represent; ``ValueError`` for others.

    The last number of bfloat16, from which masks are made, becomes an infinity. A number may become 0 if it is less
    than a thousandth of the largest number.
    """
    size = np.abs(array)
    lost = (size >= limits.overflow) & (size < formats.BFLOAT16_MAX)
    largest = np.max(size, where=np.isfinite(size), initial=0)
    if largest <= limits.underflow / formats.TOLERANCE:
        lost |= (size > largest * formats.TOLERANCE) & (size <= limits.underflow)
    if lost.any():
        text = f"it holds {array[lost][0]:g}, but the 16 bits of {limits.name} reach from"
        raise ValueError(f"{text} {limits.underflow:.3g} to {limits.largest:.7g}; give it as float32.")
    return np.where(size >= formats.BFLOAT16_MAX, np.copysign(np.float32(np.inf), array), array)


class WideIntegersError(ValueError):
    """Integers that need more than 32 bits."""


# Device images: the device memory contents of weights, laid out once instead of before every run.
#
#     device_weights.npy     the images, one after the other, as uint8
#     device_weights.json    the numerics of the images; for each image, in order, its argument and a checksum
#
# Each image belongs to one argument of ``manifest.json``; a weight that is given in two layouts has two images. Images
# are written one by one, and read as a memory map.

DATA, INDEX = "device_weights.npy", "device_weights.json"


@dataclass(frozen=True)
class Images:
    """The device bytes of arguments by name, for one kind of numerics.

    ``made_of`` are the host arrays that the images were made of; it is empty for images from a file.
    """

    numerics: str = formats.IEEE
    by_name: Mapping[str, NDArray[np.uint8]] = field(default_factory=dict)
    made_of: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def without(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the arrays that these images were not made of.

        An array is the same if it is the same memory with the same type, shape and strides.
        """
        return {
            name: array
            for name, array in arrays.items()
            if name not in self.made_of
            or self.made_of[name].__array_interface__ != np.asarray(array).__array_interface__
        }

    def find(self, argument: KernelArgument, numerics: str) -> NDArray[np.uint8] | None:
        """Return the image of an argument if there is one; ``CompileError`` for an image of other numerics."""
        image = self.by_name.get(argument.name)
        if image is not None and numerics != self.numerics:
            raise CompileError(
                f"The weights are laid out for the numerics '{self.numerics}', so they cannot run with '{numerics}'."
            )
        return image


def laid_out(
    arguments: Sequence[KernelArgument], arrays: Mapping[str, NDArray[Any]], numerics: str = formats.IEEE
) -> Images:
    """Return the images of all arguments whose arrays are given."""
    images = {argument.name: image for argument, image in _images(arguments, arrays, numerics)}
    return Images(numerics, images, dict(arrays))


def has_image(argument: KernelArgument, arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether an argument has an image if the host arrays ``arrays`` are known ahead of time."""
    return argument.kind != "result" and argument.array_name in arrays


def _images(
    arguments: Sequence[KernelArgument], arrays: Mapping[str, NDArray[Any]], numerics: str
) -> Iterator[tuple[KernelArgument, NDArray[np.uint8]]]:
    for argument in arguments:
        if has_image(argument, arrays):
            image = np.empty(argument.bytes, np.uint8)
            try:
                lay_out(argument, arrays[argument.array_name], formats.Numerics(numerics), image)
            except ValueError as error:
                raise CompileError(f"The weight '{argument.name}' cannot be laid out: {error}") from None
            yield argument, image


def write_images(
    folder: Path,
    arguments: Sequence[KernelArgument],
    arrays: Mapping[str, NDArray[Any]],
    numerics: str = formats.IEEE,
) -> None:
    """Write the images of all arguments whose arrays are given; at most one image is in memory at a time."""
    total = sum(argument.bytes for argument in arguments if has_image(argument, arrays))
    entries = []
    with (folder / DATA).open("wb") as stream:
        # The header is written by hand, because the images follow one by one.
        header = {"descr": "|u1", "fortran_order": False, "shape": (total,)}
        np.lib.format.write_array_header_1_0(stream, header)
        for argument, image in _images(arguments, arrays, numerics):
            stream.write(image.data)
            entries.append({"crc32": zlib.crc32(image.data), "argument": argument_to_json(argument)})
    write_json(folder / INDEX, {"numerics": numerics, "images": entries})


def read_images(folder: str | Path, arguments: Sequence[KernelArgument]) -> Images:
    """Return the images in the folder of a bundle with these arguments; empty if there is no such file.

    ``CompileError`` for an image that is damaged, or laid out differently from the current arguments.
    """
    folder = Path(folder)
    if not os.path.lexists(folder / INDEX) and not os.path.lexists(folder / DATA):
        return Images()
    index, path = load(folder / INDEX), folder / DATA
    # Rejects links and devices, which np.load would follow.
    open_regular(path).close()
    try:
        data = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CompileError(f"The file is not a numpy array: {error}.", str(path)) from None
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        raise CompileError("The file does not hold bytes.", str(path))
    numerics = index["numerics"].text()
    if numerics not in formats.MODES:
        index["numerics"].fail(f"must be one of {', '.join(formats.MODES)}")
    by_name = {argument.name: argument for argument in arguments}
    images: dict[str, NDArray[np.uint8]] = {}
    end = 0
    for entry in index["images"].items():
        # The layout of the argument of the bundle must equal the layout of the image.
        name = entry["argument"]["name"]
        argument = by_name.get(name.text())
        if argument is None:
            name.fail("must be an argument of the bundle")
        require_same(entry["argument"], argument_to_json(argument))
        if argument.name in images:
            entry["argument"]["name"].fail("is a duplicate")
        image = data[end : end + argument.bytes]
        end += argument.bytes
        # A checksum against damage, not against forgery: weights are large and crc32 is fast.
        if zlib.crc32(image.data) != entry["crc32"].integer():
            message = f"The image of '{argument.name}' is damaged: its bytes differ from the bytes that were written."
            raise CompileError(message, str(folder / DATA))
        images[argument.name] = image
    if end != data.size:
        raise CompileError(f"The file holds {data.size} bytes, but its images have {end}.", str(path))
    return Images(numerics, images)
