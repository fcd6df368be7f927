# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plan files: what the compiler decided about a program, to be read, edited and given back."""

from spyre_mlir.plans.plan_file import PlanFile, PlannedArgument, PlannedOperation, PlannedPlacement
from spyre_mlir.plans.reading import read_plan

__all__ = ["PlanFile", "PlannedArgument", "PlannedOperation", "PlannedPlacement", "read_plan"]
