# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optional packages that only some experiments need (extras)."""

from __future__ import annotations

import importlib
from typing import Any

from spyre_mlir.errors import CompileError


def imported(package: str, extra: str) -> Any:
    """Import a module of an optional package; raise ``CompileError``, which names the extra, if it is missing."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise CompileError(
            f"This needs {package.partition('.')[0]}, which is not installed: pip install 'spyre-mlir[{extra}]'."
        ) from None
