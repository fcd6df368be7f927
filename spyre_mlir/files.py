# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of the user: errors are sentences, and a file is written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from spyre_mlir.errors import CompileError, shown_path

#: Bytes of a text at most: a device such as /dev/zero has no end.
_MAX_BYTES = 1 << 30

#: Characters of a name that the name of its temporary file begins with: a name of the system has 255 bytes at most.
_LONGEST_PREFIX = 50

#: Paths of an open file of a process.
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|\d+)/fd/\d+")


def read_text(path: str, max_bytes: int = _MAX_BYTES) -> str:
    """Read a file in UTF-8 of up to ``max_bytes``, or stdin for ``-``; ``CompileError`` for any other."""
    return decoded(read_bytes(path, max_bytes), path)


def decoded(data: bytes, path: str) -> str:
    """Return the text of a file; ``CompileError`` if it is not in UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, before = data.count(b"\n", 0, error.start) + 1, data.rfind(b"\n", 0, error.start)
        place = f"{path}:{line}:{error.start - before}"
        raise CompileError(f"The byte 0x{data[error.start]:02x} is not text in UTF-8.", place) from None


def read_bytes(path: str, max_bytes: int = _MAX_BYTES) -> bytes:
    """Read a file of up to ``max_bytes``, or stdin for ``-``; ``CompileError`` for any other."""
    require_name(path)
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise CompileError(f"The file {shown_path(path)} has more than {max_bytes} bytes.")
        return data
    except OSError as error:
        raise CompileError(f"The file {shown_path(path)} cannot be read: {error.strerror}.") from None


def is_folder(path: str | Path) -> bool:
    """Return whether there is a folder; ``CompileError`` for one that cannot be asked, as its name is too long."""
    try:
        return Path(path).is_dir()
    except OSError as error:
        raise CompileError(f"The folder cannot be read: {error.strerror}.", str(path)) from None


def write_text(path: str, text: str) -> None:
    """Write a file as ``writing`` does, in UTF-8; ``-`` is stdout."""
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str, data: bytes) -> None:
    """Write a file as ``writing`` does; ``-`` is stdout."""
    with writing(path) as stream:
        stream.write(data)


@contextlib.contextmanager
def writing(path: str) -> Iterator[BinaryIO]:
    """Open a file that is written as a whole: it is as before unless the block ends well. ``-`` is stdout.

    A link stays one, to the file that it leads to; an existing file keeps its permissions. Raises ``CompileError``.
    """
    if path == "-":
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _errors_of_writing(path):
        is_replaced = _require_target(path)
        with _replacing(Path(os.path.realpath(path))) if is_replaced else open(path, "wb") as stream:
            yield stream


def require_writable(path: str) -> str:
    """Return the path of a file to write later; ``CompileError`` if it cannot be written, before work of hours."""
    if path != "-":
        with _errors_of_writing(path):
            _require_target(path)
    return path


def require_name(path: str) -> None:
    """Raise ``CompileError`` for what no file or folder can be called."""
    if not path:
        raise CompileError("The name of a file is empty.")
    if "\0" in path:
        raise CompileError(f"A file cannot be called {shown_path(path)}, which has a NUL character.")


@contextlib.contextmanager
def _errors_of_writing(path: str) -> Iterator[None]:
    require_name(path)
    try:
        yield
    except OSError as error:
        raise CompileError(f"The file {shown_path(path)} cannot be written: {error.strerror}.") from None


def _require_target(path: str) -> bool:
    """Return whether a file is replaced, not written in place as a device or a pipe; ``OSError`` if it is neither."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not os.access(target, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    # What a descriptor of this process is open on must not be replaced, either.
    if _DESCRIPTOR.fullmatch(os.path.abspath(path)) or (target.exists() and not target.is_file()):
        return False
    if not stat.S_ISDIR(target.parent.stat().st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    return True


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    import tempfile  # on use: it imports an eighth of the standard library that a tool imports

    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:_LONGEST_PREFIX]}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        os.chmod(temporary, _mode(target))  # mkstemp gives 0600
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _mode(target: Path) -> int:
    """Return the permissions of a file, or those of a new one."""
    if target.exists():
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)  # the only way to read it
    os.umask(mask)
    return 0o666 & ~mask
