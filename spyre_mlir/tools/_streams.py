# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The standard streams of a tool: closed ones, full disks, readers that leave, and locales that are not UTF-8."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence

from spyre_mlir.errors import CompileError

#: What writing to a file that is open fails with; another error of the system is none of stdout.
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def prepare() -> None:
    """Make what tools print UTF-8, as files are; open closed streams: a file opened next would be taken for one."""
    # Reading stdin, or writing stdout, is then an error; what is said on stderr is lost.
    flags = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for name, flag in flags.items():
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, flag), "r" if name == "stdin" else "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def flushed(main: Callable[..., int], argv: Sequence[str] | None) -> int:
    """Run a tool to the end of what it prints, so that an error of that is one of the tool."""
    try:
        try:
            status = main(argv)
        except SystemExit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return status
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        drop_stdout()
        raise CompileError(f"The output cannot be written: {error.strerror}.") from None


def drop_stdout() -> None:
    """Drop what is not written yet: a second error when Python flushes stdout at exit would only be noise."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
