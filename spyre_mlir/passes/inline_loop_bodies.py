# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inlines the functions that are outlined loop bodies back into the loops."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.loop_bodies import inline_bodies


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
        inline_bodies(module)
