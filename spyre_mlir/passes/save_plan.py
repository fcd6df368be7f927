# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes what the compiler decided to a file that can be edited and given back."""

from __future__ import annotations

from typing import ClassVar

from spyre_mlir.analysis.plan_facts import current_plan, planned_function
from spyre_mlir.dialects import sdsc
from spyre_mlir.files import write_text
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass


@dataclass(frozen=True)
class SavePlan(Pass):
    """Write a plan file: layout, division and placement of every operation, as far as they are decided.

    ``file`` is written as a whole (``-`` is stdout); without it the text is the attribute ``sdsc.plan`` of the
    module, which ``apply-plan`` takes, too. Changes nothing else. ``docs/plans.md`` is the manual of the format.

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
