# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Packages that only some experiments need: extras of the package."""

from __future__ import annotations

import importlib
from typing import Any

from spyre_mlir.errors import CompileError


def imported(package: str, extra: str) -> Any:
    """Import a module of another package; ``CompileError`` names the extra that installs it."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError:
        raise CompileError(
            f"This needs {package.partition('.')[0]}, which is not installed: pip install 'spyre-mlir[{extra}]'."
        ) from None
