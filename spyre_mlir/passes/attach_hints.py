# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Moves hints from attributes into locations, where they survive every rewrite."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.dialects.hint_attributes import HINTS, hints_of, with_hints
from spyre_mlir.mlir import hint_values, ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass

#: The dialects whose attributes have a meaning for the compiler.
_DIALECTS = {"sdsc", "spyre", "stick", "sdscbundle", "ktdp", "linalg", "llvm", "torch"}


@dataclass(frozen=True)
class AttachHints(Pass):
    """Put the attribute ``sdsc.hints`` of every op into its location.

        linalg.matmul {sdsc.hints = [..]} .. loc("a.mlir":3:8)
        -> linalg.matmul .. loc(fused<{sdsc.hints = [..]}>["a.mlir":3:8])

    Passes drop unknown attributes, but a new op keeps the location of the op that it replaces. The frontend writes such
    locations itself. This pass is the first in the pipeline; ``propagate-named-dims`` reads the hints.

    Attributes of unknown dialects, such as ``user.note``, move into locations too, with a remark for each name;
    user-defined passes read them by ``hint_values`` at every level.
    """

    name: ClassVar[str] = "attach-hints"

    def run(self, module: ir.Operation) -> None:
        hinted: list[tuple[ir.Operation, list[str]]] = []
        unknown: set[str] = set()

        def visit(op: ir.Operation) -> ir.WalkResult:
            own = [name for name in op.attributes if "." in name and name.partition(".")[0] not in _DIALECTS]
            if HINTS in op.attributes or own:
                hinted.append((op.operation, own))
            for key in sorted({*hint_values(op.location), *own} - unknown):
                unknown.add(key)
                reason = f"the compiler does not know the key '{key}', which user-defined passes may read"
                self.remark(op.operation, "hint", reason)
            return ir.WalkResult.ADVANCE

        module.walk(visit)
        for op, own in hinted:
            if own:
                values = hint_values(op.location) | {name: op.attributes[name] for name in own}
                hint = ir.DictAttr.get({"hint": ir.DictAttr.get(values, op.context)}, op.context)
                op.location = ir.Location.fused([op.location], hint, op.context)
                for name in own:
                    del op.attributes[name]
            if HINTS not in op.attributes:
                continue
            hints = op.attributes[HINTS]
            if hints_of(hints, op.location):
                op.location = with_hints(op.location, hints)
            del op.attributes[HINTS]
