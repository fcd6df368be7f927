# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inlines the functions that are outlined loop bodies back into the loops."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.analysis.loops import terminator
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import CALL, blocks_of, callee_of, copied


@dataclass(frozen=True)
class InlineLoopBodies(Pass):
    """Inline the private functions that ``outline-loop-bodies`` created.

    Before:
        func private @loop_body_0(%x) { return exp(%x) }
        scf.for %i .. { %x = slice %xs[%i]; %y = call @loop_body_0(%x); insert %y into %ys[%i] }
    After:
        scf.for %i .. { %x = slice %xs[%i]; %y = exp(%x); insert %y into %ys[%i] }
    """

    name: ClassVar[str] = "inline-loop-bodies"

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` in place."""
        bodies = [func for func in functions(module) if "sym_visibility" in func.attributes]
        # In module order: a body comes after the bodies that it calls.
        for func in functions(module) if bodies else ():
            for op in [op.operation for block in blocks_of(func) for op in block.operations]:
                if op.name == CALL and (callee := callee_of(op)) is not None:
                    _inline(op, callee)
        for func in bodies:
            func.erase()


def _inline(call: ir.Operation, callee: ir.Operation) -> None:
    block = callee.regions[0].blocks[0]
    values: dict[ir.Value, ir.Value] = dict(zip(block.arguments, call.operands, strict=True))
    with ir.InsertionPoint(call):
        for op in [op.operation for op in block.operations][:-1]:
            copied(op, values)
    for old, new in zip(call.results, terminator(block).operands, strict=True):
        old.replace_all_uses_with(values[new])
    call.erase()
