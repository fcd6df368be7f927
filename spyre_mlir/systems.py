# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What differs from system to system (docs/systems.md)."""

from __future__ import annotations

import os


def require_posix() -> None:
    """Raise ``ImportError`` on Windows, which has none of the limits and locks that the compiler needs."""
    if os.name != "posix":
        raise ImportError("spyre-mlir runs on Linux and macOS; on Windows it runs in WSL (docs/systems.md).")


def processor_count() -> int:
    """Return the number of processors that this process may use; of all where the system does not tell, as macOS."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
