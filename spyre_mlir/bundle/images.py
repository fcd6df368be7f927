# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Device images: the device memory contents of weights, laid out once instead of before every run.

    device_weights.npy     the images, one after the other, as uint8
    device_weights.json    the numerics of the images; for each image, in order, its argument and a checksum

Each image belongs to one argument of ``manifest.json``; a weight that is given in two layouts has two images. Images
are written one by one, and read as a memory map.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.json_fields import argument_to_json, load, require_same, write_json
from spyre_mlir.bundle.model import KernelArgument
from spyre_mlir.bundle.regular_files import open_regular
from spyre_mlir.bundle.transfer import lay_out
from spyre_mlir.errors import CompileError
from spyre_mlir.records import dataclass
from spyre_mlir.target.formats import IEEE, MODES, Numerics

DATA, INDEX = "device_weights.npy", "device_weights.json"


@dataclass(frozen=True)
class Images:
    """The device bytes of arguments by name, for one kind of numerics.

    ``made_of`` are the host arrays that the images were made of; it is empty for images from a file.
    """

    numerics: str = IEEE
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
    arguments: Sequence[KernelArgument], arrays: Mapping[str, NDArray[Any]], numerics: str = IEEE
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
                lay_out(argument, arrays[argument.array_name], Numerics(numerics), image)
            except ValueError as error:
                raise CompileError(f"The weight '{argument.name}' cannot be laid out: {error}") from None
            yield argument, image


def write_images(
    folder: Path,
    arguments: Sequence[KernelArgument],
    arrays: Mapping[str, NDArray[Any]],
    numerics: str = IEEE,
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
    index, data = load(folder / INDEX), _mapped(folder / DATA)
    numerics = index["numerics"].text()
    if numerics not in MODES:
        index["numerics"].fail(f"must be one of {', '.join(MODES)}")
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
        raise CompileError(
            f"The file holds {data.size} bytes, but its images have {end}.", str(folder / DATA)
        )
    return Images(numerics, images)


def _mapped(path: Path) -> NDArray[np.uint8]:
    # Rejects links and devices, which np.load would follow.
    open_regular(path).close()
    try:
        data = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise CompileError(f"The file is not a numpy array: {error}.", str(path)) from None
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 1:
        raise CompileError("The file does not hold bytes.", str(path))
    return data
