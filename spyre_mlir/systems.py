# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Differences between operating systems (docs/systems.md)."""

from __future__ import annotations

import os


def require_posix() -> None:
    """Raise ``ImportError`` on Windows, which does not have the limits and locks that the compiler needs."""
    if os.name != "posix":
        raise ImportError("spyre-mlir runs on Linux and macOS; on Windows it runs in WSL (docs/systems.md).")


def processor_count() -> int:
    """Return the number of processors this process may use; all processors if that is unknown, as on macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
