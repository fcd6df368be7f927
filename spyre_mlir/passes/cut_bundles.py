# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Divides a function into bundles that run one after the other."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import AliasAnalysis, functions, is_compute, is_in_lx
from spyre_mlir.analysis.loops import LOOP, body_block, nested_ops, put_in_bundle
from spyre_mlir.errors import CompileError
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class CutBundles(Pass):
    """Number the bundles of a function; a bundle has limits on its operations and on its tensors in device memory.

    The limits are ``operations`` and ``tensors``; a limit of 0 does not apply. Loops and operations are never cut: one
    that exceeds a limit is a bundle by itself.

    On placed operations the plan is kept, and buffers in LX stay there across cuts: the bundles are
    non-terminal. On divided operations, before clones are made, ``scratchpad-planning`` keeps nothing in LX across a
    cut: ``clone-outputs`` saves data and ``clone-inputs`` restores it, each if that pays; these copies do not count.

    Before:
        %0 = max(%x); %1 = sub(%x, %0); %2 = exp(%1)
    After, with ``operations=2``:
        %0 = max(%x) {sdsc.bundle = 0}; %1 = sub(%x, %0) {sdsc.bundle = 0}; %2 = exp(%1) {sdsc.bundle = 1}
    """

    name: ClassVar[str] = "cut-bundles"
    operations: int = 0
    tensors: int = 0

    def run(self, module: ir.Operation) -> None:
        if self.operations < 0 or self.tensors < 0 or not (self.operations or self.tensors):
            limit = f"{self.tensors} tensors" if self.tensors < 0 else f"{self.operations} operations"
            raise CompileError(f"A bundle has a limit of at least 1 operation or 1 tensor, not of {limit}.")
        for func in functions(module):
            aliases = AliasAnalysis(func)
            number, filled, accessed = 0, 0, set[ir.Value]()
            for op in (op_view.operation for op_view in func.regions[0].blocks[0].operations):
                # A loop longer than the limit is a separate bundle: its iterations cannot be in two bundles.
                inner = nested_ops(body_block(op)) if op.name == LOOP else [op]
                computing = list(filter(is_compute, inner))
                if not computing:
                    continue
                buffers = {
                    aliases.place(value).buffer for each in computing for value in aliases.operands(each)
                }
                tensors = {buffer for buffer in buffers if not is_in_lx(buffer)}
                operations_fit = not self.operations or filled + len(computing) <= self.operations
                tensors_fit = not self.tensors or len(accessed | tensors) <= self.tensors
                if filled and not (operations_fit and tensors_fit):
                    number, filled, accessed = number + 1, 0, set()
                filled += len(computing)
                accessed |= tensors
                put_in_bundle(op, number)
            limits = ((self.operations, "operations"), (self.tensors, "tensors"))
            text = f"{number + 1} of at most " + " and ".join(
                f"{limit} {name}" for limit, name in limits if limit
            )
            self.remark(func, "bundles", text, after=number + 1)
