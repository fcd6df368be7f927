# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Files of the user: errors are sentences, and a file is written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from spyre_mlir.errors import CompileError

#: Bytes of a text at most: a device such as /dev/zero has no end.
_MAX_BYTES = 1 << 30


def read_text(path: str, max_bytes: int = _MAX_BYTES) -> str:
    """Read a file in UTF-8 of up to ``max_bytes``, or stdin for ``-``; ``CompileError`` for any other."""
    return decoded(read_bytes(path, max_bytes), path)


def decoded(data: bytes, path: str) -> str:
    """Return the text of a file; ``CompileError`` if it is not in UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise CompileError(f"The file '{path}' is not text in UTF-8.") from None


def read_bytes(path: str, max_bytes: int = _MAX_BYTES) -> bytes:
    """Read a file of up to ``max_bytes``, or stdin for ``-``; ``CompileError`` for any other."""
    require_name(path)
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise CompileError(f"The file '{path}' has more than {max_bytes} bytes.")
        return data
    except OSError as error:
        raise CompileError(f"The file '{path}' cannot be read: {error.strerror}.") from None


def require_name(path: str) -> None:
    """Raise ``CompileError`` for what no file and no folder can be called."""
    if "\0" in path:
        raise CompileError(f"A file cannot be called {path!r}, which has a NUL character.")


def is_folder(path: str | Path) -> bool:
    """Return whether there is a folder; ``CompileError`` for one that cannot be asked, as its name is too long."""
    try:
        return Path(path).is_dir()
    except OSError as error:
        raise CompileError(f"The folder cannot be read: {error.strerror}.", str(path)) from None


def write_text(path: str, text: str) -> None:
    """Write a file as a whole: it has the new text or is as before. ``-`` is stdout. Raises ``CompileError``."""
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str, data: bytes) -> None:
    """Write a file as ``write_text`` does, from bytes."""
    if path == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    require_name(path)
    target = Path(path)
    try:
        if target.exists() and not target.is_file():  # such as /dev/stdout, which must not be replaced
            target.write_bytes(data)
            return
        _replace(target, data)
    except OSError as error:
        raise CompileError(f"The file '{path}' cannot be written: {error.strerror}.") from None


def _replace(target: Path, data: bytes) -> None:
    mask = os.umask(0)  # the only way to read it
    os.umask(mask)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp gives 0600
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
