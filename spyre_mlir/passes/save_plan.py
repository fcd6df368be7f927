# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the decisions of the compiler to a plan file, which can be edited and applied."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.plan_pins import current_plan, planned_function
from spyre_mlir.dialects import sdsc
from spyre_mlir.files import write_text
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class SavePlan(Pass):
    """Write a plan file: layout, division and placement of each operation, as far as they are decided.

    ``file`` is overwritten (``-`` is stdout). Without it the plan is stored as the attribute ``sdsc.plan`` of the
    module, which ``apply-plan`` also accepts. Nothing else is changed. ``docs/plans.md`` describes the format.

    Before: ``name-operations``, at any level from *device ops* to *placed*.
    """

    name: ClassVar[str] = "save-plan"
    is_evaluated: ClassVar[bool] = False
    file: str = ""

    def run(self, module: ir.Operation) -> None:
        text = current_plan(planned_function(module)).text()
        if self.file:
            write_text(self.file, text)
        else:
            module.attributes[sdsc.PLAN] = ir.StringAttr.get(text, module.context)
