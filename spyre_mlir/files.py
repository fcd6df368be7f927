"""Text files of the user: read with a sentence about what is wrong, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from spyre_mlir.errors import CompileError

#: Bytes of a text that are read: a device such as /dev/zero has no end.
_MOST_BYTES = 1 << 30


def read_text(path: str, most_bytes: int = _MOST_BYTES) -> str:
    """The text of a file of up to ``most_bytes``, or of stdin for ``-``."""
    if "\0" in path:
        raise CompileError(f"A file cannot be called {path!r}, which has a NUL character.")
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise CompileError(f"The file '{path}' has more than {most_bytes} bytes.")
        return data.decode("utf-8")
    except OSError as error:
        raise CompileError(f"The file '{path}' cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CompileError(f"The file '{path}' is not text in UTF-8.") from None


def write_text(path: str, text: str) -> None:
    """Write a file as a whole: it has the new text or is as before. ``-`` is stdout."""
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
            return
        _replace(target, text)
    except OSError as error:
        raise CompileError(f"The file '{path}' cannot be written: {error.strerror}.") from None


def _replace(target: Path, text: str) -> None:
    mask = os.umask(0)
    os.umask(mask)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
