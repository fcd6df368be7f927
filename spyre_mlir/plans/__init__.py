"""Plan files: what the compiler decided about a program, to be read, edited and given back."""

from spyre_mlir.plans.model import Placement, Plan, PlannedArgument, PlannedOperation
from spyre_mlir.plans.reading import read_plan

__all__ = ["Placement", "Plan", "PlannedArgument", "PlannedOperation", "read_plan"]
