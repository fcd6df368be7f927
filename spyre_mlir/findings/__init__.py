"""Findings: what makes a program slow, as changes that trials have shown to make it faster."""

from spyre_mlir.findings.change import Batch, Change, Freeze, Halve, ModelEdit, Relayout, Resize, Untranspose
from spyre_mlir.findings.planned import HostWork, PlannedProgram
from spyre_mlir.findings.search import search

__all__ = [
    "Batch", "Change", "Freeze", "Halve", "HostWork", "ModelEdit", "PlannedProgram", "Relayout", "Resize",
    "Untranspose", "search",
]  # fmt: skip
