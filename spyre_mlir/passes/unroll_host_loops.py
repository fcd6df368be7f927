# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Unrolls loops that the device cannot run as loops, so that the host runs as few operations as possible."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.loops import LOOP, offsets_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import EvaluatingPass, Evaluator
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import loops_in, operations_run, program_of, unroll


@dataclass(frozen=True)
class UnrollHostLoops(EvaluatingPass):
    """Unroll each ``scf.for`` that the passes of the device refuse.

    ``outline-host-functions`` treats an operation as a unit, so a loop would run on the host with its whole body.
    Loops that would unroll to more than ``most`` operations are kept. In a nest, the outer loop is tried first.

    Before:
        %r = scf.for %i = 0 to 2 iter_args(%a = %x) { %y = sin(%a); yield exp(%y) }
    After:
        %0 = sin(%x); %1 = exp(%0); %2 = sin(%1); %r = exp(%2)
    """

    name: ClassVar[str] = "unroll-host-loops"
    most: int = 4096

    def decide_on(self, func: ir.Operation, evaluator: Evaluator) -> None:
        block = func.regions[0].blocks[0]
        pending = [loop for loop in loops_in(block) if loop.block == block]
        while pending:
            loop = pending.pop(0)
            bounds = [offsets_of(loop.operands[number]) for number in range(3)]
            has_known_bounds = all(bound is not None and bound.count == 1 for bound in bounds)
            if not has_known_bounds or operations_run(loop) > self.most:
                continue
            refusal = evaluator.refusal(program_of([loop]))
            if refusal is not None:
                self.remark(loop, "unrolled", f"the device does not run it as a loop: {refusal.reason}")
                pending = [op for op in unroll(loop) if op.name == LOOP] + pending
