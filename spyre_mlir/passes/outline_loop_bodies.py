# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts the bodies of loops into functions, so that the passes up to *tiled* see straight lines."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.loop_bodies import BodyOutliner


@dataclass(frozen=True)
class OutlineLoopBodies(Pass):
    """Make a private function of what each ``scf.for`` computes; ``inline-loop-bodies`` puts it back.

    Slices at offsets that follow from the variable of a loop stay in the loop, with loops inside that read it.

    Before:
        scf.for %i .. { %x = slice %xs[%i]; %y = exp(%x); insert %y into %ys[%i] }
    After:
        func private @loop_body_0(%x) { return exp(%x) }
        scf.for %i .. { %x = slice %xs[%i]; %y = call @loop_body_0(%x); insert %y into %ys[%i] }
    """

    name: ClassVar[str] = "outline-loop-bodies"

    def run(self, module: ir.Operation) -> None:
        """Rewrite ``module`` in place."""
        count = 0
        for func in functions(module):
            count = BodyOutliner(func, count).run()
