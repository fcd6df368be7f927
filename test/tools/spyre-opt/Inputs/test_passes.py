# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A user's own pass, loaded with --load: it remarks on functions and fails on request."""

from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir, location_of
from spyre_mlir.passes.base import Pass


@dataclass(frozen=True)
class TestVisit(Pass):
    """Remark on every function.

    The function named by ``fail-on`` is an error, ``crash`` is an error of the compiler itself.
    """

    name: ClassVar[str] = "test-visit"
    fail_on: str = ""
    crash: bool = False
    cost: float | None = None

    def run(self, module: ir.Operation) -> None:
        if self.crash:
            raise KeyError("crash")
        for op in module.regions[0].blocks[0].operations:
            self.remark(op, "visited", f"saw @{op.name.value}", before=2, after=self.cost)
            if op.name.value == self.fail_on:
                raise CompileError("This function is not wanted.", location_of(op.location))
