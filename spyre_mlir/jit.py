# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The decorator ``njit`` of numba, imported while no thread exports a model (``compile_lock.builtins_kept``)."""

from __future__ import annotations

from spyre_mlir.compile_lock import builtins_kept

with builtins_kept():
    from numba import njit

__all__ = ["njit"]
