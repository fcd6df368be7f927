# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plan files: the compiler's decisions about a program, which users can read, edit and give back."""

from spyre_mlir.plans.plan_file import (
    PlanFile,
    PlannedArgument,
    PlannedOperation,
    PlannedPlacement,
    read_plan,
)

__all__ = ["PlanFile", "PlannedArgument", "PlannedOperation", "PlannedPlacement", "read_plan"]
