# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre.ops.fallbacks``: the warning for operations that the host runs."""

from spyre_mlir.errors import FallbackWarning

__all__ = ["FallbackWarning"]
