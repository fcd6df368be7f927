# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SuperDSC bundles: the data model, the writer, the reader and the validator. Does not depend on MLIR."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spyre_mlir.bundle.folder import read_arrays, read_bundle, write_bundle

__all__ = ["read_arrays", "read_bundle", "write_bundle"]


if not TYPE_CHECKING:
    # A type checker would accept every name of the package.
    def __getattr__(name: str) -> Any:
        # Imported on first use: the compiler needs the model only, and the reader imports all rules of a bundle.
        if name in __all__:
            return getattr(importlib.import_module("spyre_mlir.bundle.folder"), name)
        raise AttributeError(f"module 'spyre_mlir.bundle' has no attribute '{name}'")
