# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A host function of a program: linalg on numpy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.host.host_evaluator import HostEvaluator
from spyre_mlir.mlir import ir

_UNCOUNTED = {"arith.constant", "tensor.empty", "linalg.fill", "func.return"}


class HostFunction:
    """``HostFunction(module)(x, indices) -> [y]``: the function @main of a module.

    Arrays have the types of the simulator: bfloat16 is given as float32 numbers or bits in uint16, and returned as
    bits. Raises ``CompileError`` for an unsupported host function (see host_evaluator.py), and for a call that fails.
    """

    def __init__(self, module: ir.Module) -> None:
        self.module = module
        self._evaluator = HostEvaluator(module)

    def __call__(self, *arrays: NDArray[Any]) -> list[NDArray[Any]]:
        dtypes = self._evaluator.dtypes
        return self._evaluator(*(as_bits(array, dtype) for array, dtype in zip(arrays, dtypes, strict=True)))

    @property
    def counts(self) -> tuple[int, int]:
        """The number of arguments and the number of results."""
        return len(self._evaluator.dtypes), self._evaluator.result_count

    @property
    def operations(self) -> int:
        """The number of ops that compute or move tensors, without constants and empty tensors."""
        body = self.module.body.operations[0].regions[0].blocks[0].operations
        return sum(op.operation.name not in _UNCOUNTED for op in body)

    def text(self) -> str:
        """The text of the module, with its locations."""
        return str(self.module.operation.get_asm(enable_debug_info=True)) + "\n"


def as_bits(array: NDArray[Any], dtype: np.dtype) -> NDArray[Any]:
    """Return a float32 array as bfloat16 bits if ``dtype`` is uint16; the simulator only returns exact numbers."""
    if dtype == np.uint16 and array.dtype == np.float32:
        return np.asarray(np.asarray(array).view(np.uint32) >> np.uint32(16), dtype=np.uint16)
    return np.asarray(array)
