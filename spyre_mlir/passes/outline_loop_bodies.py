# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Outlines the bodies of loops to functions, so that the passes up to *tiled* see straight-line code."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.aliasing import functions
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.loop_bodies import BodyOutliner


@dataclass(frozen=True)
class OutlineLoopBodies(Pass):
    """Outline the body of each ``scf.for`` to a private function; ``inline-loop-bodies`` inlines it again.

    Slices at offsets that depend on the loop variable stay in the loop, and so do inner loops that read the variable.

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
