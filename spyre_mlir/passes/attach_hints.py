# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves hints from attributes into locations, where they survive every rewrite."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.dialects.hint_attributes import HINTS, hints_of, with_hints
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class AttachHints(Pass):
    """Put the attribute ``sdsc.hints`` of every op into its location.

        linalg.matmul {sdsc.hints = [..]} .. loc("a.mlir":3:8)
        -> linalg.matmul .. loc(fused<{sdsc.hints = [..]}>["a.mlir":3:8])

    Passes drop unknown attributes, but a new op keeps the location of the op that it replaces. The frontend writes such
    locations itself. This pass is the first in the pipeline; ``propagate-named-dims`` reads the hints.
    """

    name: ClassVar[str] = "attach-hints"

    def run(self, module: ir.Operation) -> None:
        hinted: list[ir.Operation] = []

        def visit(op: ir.Operation) -> ir.WalkResult:
            if HINTS in op.attributes:
                hinted.append(op)
            return ir.WalkResult.ADVANCE

        module.walk(visit)
        for op in hinted:
            hints = op.attributes[HINTS]
            if hints_of(hints, op.location):
                op.location = with_hints(op.location, hints)
            del op.attributes[HINTS]
