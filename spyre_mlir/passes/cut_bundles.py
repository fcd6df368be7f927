# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divides a function into bundles that run one after the other."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions, is_compute
from spyre_mlir.analysis.loops import LOOP, body_block, nested_ops, put_in_bundle
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class CutBundles(Pass):
    """Number the bundles of a function. Each bundle has at most ``operations`` operations, but a loop is never cut.

    On placed operations the plan is kept, and buffers in LX stay there across cuts: the bundles are
    non-terminal. On divided operations, before clones are made, ``scratchpad-planning`` keeps nothing in LX across a
    cut: ``clone-outputs`` saves data and ``clone-inputs`` restores it, each if that pays; these copies do not count.

    Before:
        %0 = max(%x); %1 = sub(%x, %0); %2 = exp(%1)
    After, with ``operations=2``:
        %0 = max(%x) {sdsc.bundle = 0}; %1 = sub(%x, %0) {sdsc.bundle = 0}; %2 = exp(%1) {sdsc.bundle = 1}
    """

    name: ClassVar[str] = "cut-bundles"
    operations: int = 1

    def run(self, module: ir.Operation) -> None:
        if self.operations < 1:
            raise CompileError(f"A bundle has at least 1 operation, not {self.operations}.")
        for func in functions(module):
            number, filled = 0, 0
            for op in (op_view.operation for op_view in func.regions[0].blocks[0].operations):
                # A loop longer than the limit is a separate bundle: its iterations cannot be in two bundles.
                inner = nested_ops(body_block(op)) if op.name == LOOP else [op]
                operations = sum(map(is_compute, inner))
                if not operations:
                    continue
                if filled and filled + operations > self.operations:
                    number, filled = number + 1, 0
                filled += operations
                put_in_bundle(op, number)
            text = f"{number + 1} of at most {self.operations} operations"
            self.remark(func, "bundles", text, after=number + 1)
