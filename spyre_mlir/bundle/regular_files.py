# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reader of files in folders from other writers: only regular files of a bounded size, checked before unpacking.

A name in a bundle must not lead out of its folder, and opening must not block: a fifo, a device or a link is an error.
"""

from __future__ import annotations

import lzma
import math
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.errors import CompileError, shown_path

#: The largest text that is read, twice the size of the program of a bundle of a hundred layers.
TEXT_BYTES = 1 << 26

#: Exceptions from reading a damaged archive of arrays: the exception depends on the place of the damage.
_DAMAGE = (
    OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, SyntaxError, struct.error, zipfile.BadZipFile,
    zlib.error, lzma.LZMAError, tokenize.TokenError,
)  # fmt: skip

#: The largest number of arrays in an archive.
_MOST_ENTRIES = 1 << 16

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class Header(NamedTuple):
    """The type and shape of an array in an archive, read before the array is unpacked."""

    dtype: np.dtype
    shape: tuple[int, ...]


def open_regular(path: str | Path, *, of_user: bool = False) -> BinaryIO:
    """Open a regular file of a bundle, or a file that the user names, which may be a link to a regular file.

    ``CompileError`` with the file name for anything else.
    """
    if "\0" in str(path):
        raise CompileError(f"A file cannot be called {shown_path(path)}, which has a NUL character.")
    try:
        if not of_user and os.path.islink(path):
            raise _unreadable("is a link; expected the file itself inside of the folder.", path, of_user)
        # Non-blocking: opening a fifo would wait for a writer.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags if of_user else flags | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise _unreadable(
            "is not there." if of_user else "is missing from the bundle.", path, of_user
        ) from None
    except OSError as error:
        raise _unreadable(f"cannot be read: {error.strerror}.", path, of_user) from None
    # Checks the open file: the path may point to another file by now.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unreadable("is not a regular file.", path, of_user)
    return os.fdopen(descriptor, "rb")


def _unreadable(problem: str, path: str | Path, of_user: bool) -> CompileError:
    if of_user:
        return CompileError(f"The file {shown_path(path)} {problem}")
    return CompileError(f"The file {problem}", str(path))


def read_text(path: Path, most_bytes: int = TEXT_BYTES) -> str:
    """Return the text of a file of the bundle, of up to ``most_bytes``."""
    with open_regular(path) as stream:
        try:
            # One byte beyond the limit shows that a file is too large without reading all of it.
            data = stream.read(most_bytes + 1)
            if len(data) > most_bytes:
                raise CompileError(f"The file has more than {most_bytes} bytes.", str(path))
            return data.decode("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CompileError(f"The file cannot be read: {error}.", str(path)) from None


def read_stored_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return all arrays of an archive in a bundle; the entries must not be compressed, which bounds their size."""
    with open_regular(path) as stream:
        return _read(stream, path, None)


def read_arrays_like(
    path: str | Path, check: Callable[[Mapping[str, Header]], None]
) -> dict[str, NDArray[Any]]:
    """Return the arrays of an archive from the user; ``check`` raises for headers that must not be unpacked."""
    with open_regular(path, of_user=True) as stream:
        return _read(stream, path, check)


def _read(
    stream: BinaryIO, path: str | Path, check: Callable[[Mapping[str, Header]], None] | None
) -> dict[str, NDArray[Any]]:
    """Return the arrays; without ``check`` the entries must not be compressed."""
    try:
        with zipfile.ZipFile(stream) as archive:
            infos = archive.infolist()
            compressed = check is not None
            if len(infos) > _MOST_ENTRIES:
                raise ValueError(f"it has more than {_MOST_ENTRIES} entries")
            entries: dict[str, zipfile.ZipInfo] = {}
            for info in infos:
                name = info.filename.removesuffix(".npy")
                if name == info.filename or name in entries:
                    raise ValueError(f"its entry {info.filename!r} is not an array, or is a duplicate")
                if not compressed and info.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"its entry {info.filename!r} is compressed")
                entries[name] = info
            headers = {name: _header(archive, entry) for name, entry in entries.items()}
            if check is not None:
                check(headers)
            arrays = {}
            for name, entry in entries.items():
                with archive.open(entry) as member:
                    arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
            return arrays
    except CompileError:
        raise
    except _DAMAGE as error:
        # Messages of numpy may have several lines.
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise _unreadable(
            f"is not an archive of numpy arrays: {reason}; numpy.savez writes one.", path, check is not None
        ) from None


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Header:
    """Return the type and shape of an entry, whose size must match them."""
    with archive.open(entry) as stream:
        read = _HEADERS.get(np.lib.format.read_magic(stream))
        if read is None:
            raise ValueError(f"its entry {entry.filename!r} has a version of the format that is not read")
        shape, _, dtype = read(stream)
        if dtype.hasobject or min(shape, default=0) < 0:
            raise ValueError(
                f"its entry {entry.filename!r} holds Python objects, or a negative number of elements"
            )
        # Checked before reading, so that a header cannot make numpy allocate more than the file holds.
        if stream.tell() + math.prod(shape) * dtype.itemsize != entry.file_size:
            raise ValueError(f"its entry {entry.filename!r} does not have the size that its shape takes")
    return Header(dtype, shape)
