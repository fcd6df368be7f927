# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``torch_spyre._inductor.errors``: the error of a model that the compiler rejects."""

from spyre_mlir.errors import CompileError as Unsupported

__all__ = ["Unsupported"]
