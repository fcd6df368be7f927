# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A wrong pass: it swaps the operands of differences."""

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass


@dataclass(frozen=True)
class TestSwap(Pass):
    """Swap the inputs of each structured operation of two inputs."""

    name: ClassVar[str] = "test-swap"

    def run(self, module: ir.Operation) -> None:
        for op in [op for op in all_ops(functions(module)[0]) if op.name == "linalg.generic"]:
            if len(op.operands) == 3:
                op.operands[0], op.operands[1] = op.operands[1], op.operands[0]
