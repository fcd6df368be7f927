# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Access to user files: errors are ``CompileError`` sentences, and a file is written completely or not at all."""

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

#: Maximum bytes of a file: a device such as /dev/zero has no end.
_MAX_BYTES = 1 << 30

#: Maximum characters of a file name in the name of its temporary file: the system allows names of 255 bytes.
_LONGEST_PREFIX = 50

#: Paths that refer to an open file descriptor.
_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr|fd/\d+)|/proc/(self|\d+)/fd/\d+")


def read_text(path: str, max_bytes: int = _MAX_BYTES) -> str:
    """Read a UTF-8 file of up to ``max_bytes``, or stdin for ``-``; raise ``CompileError`` if that is not possible."""
    return decoded(read_bytes(path, max_bytes), path)


#: What to give instead of a file of a model, by its suffix.
_MODEL_FILES = {
    ".onnx": "spyre_mlir.compile and spyre-compile read it",
    ".pt2": "spyre_mlir.compile reads it",
    ".pt": "create the model, load the weights into it, and give the model",
    ".pth": "create the model, load the weights into it, and give the model",
    ".safetensors": "create the model, load the weights into it, and give the model",
    ".py": "import it in Python, and give the model that it defines to spyre_mlir.compile",
}


def require_mlir(path: str) -> None:
    """Raise ``CompileError`` for a file of a model that is not MLIR, with what to give instead."""
    if remedy := _MODEL_FILES.get(Path(path).suffix.lower()):
        raise CompileError(f"The file {shown_path(path)} is not MLIR; {remedy}.")


def decoded(data: bytes, path: str) -> str:
    """Decode the content of a file; raise ``CompileError`` if it is not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, before = data.count(b"\n", 0, error.start) + 1, data.rfind(b"\n", 0, error.start)
        place = f"{path}:{line}:{error.start - before}"
        raise CompileError(f"The byte 0x{data[error.start]:02x} is not text in UTF-8.", place) from None


def read_bytes(path: str, max_bytes: int = _MAX_BYTES) -> bytes:
    """Read a file of up to ``max_bytes``, or stdin for ``-``; raise ``CompileError`` if that is not possible."""
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
    """Return whether a path is a folder; raise ``CompileError`` if it cannot be examined, e.g. its name is too long."""
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
    """Open a file for atomic replacement: the file changes only if the block succeeds. ``-`` is stdout.

    A symbolic link is kept and its target is replaced; an existing file keeps its permissions. Raises ``CompileError``.
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
    """Check, before long work, that a file can be written later; return its path, or raise ``CompileError``."""
    if path != "-":
        with _errors_of_writing(path):
            _require_target(path)
    return path


def require_name(path: str) -> None:
    """Raise ``CompileError`` for a path that is not a possible name of a file or folder."""
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
    """Return whether a file is replaced, or else written in place (a device, a pipe); ``OSError`` if neither works."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if target.exists() and not os.access(target, os.W_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    # A file that a descriptor of this process refers to must not be replaced either.
    if _DESCRIPTOR.fullmatch(os.path.abspath(path)) or (target.exists() and not target.is_file()):
        return False
    if not stat.S_ISDIR(target.parent.stat().st_mode):
        raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    return True


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[BinaryIO]:
    import tempfile  # on use: it makes up an eighth of a tool's imports from the standard library

    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:_LONGEST_PREFIX]}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        # mkstemp gives 0600; an existing file keeps its permissions, and a new file has the default permissions.
        if target.exists():
            mode = stat.S_IMODE(target.stat().st_mode)
        else:
            mask = os.umask(0)  # the only way to read it
            os.umask(mask)
            mode = 0o666 & ~mask
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
