# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Findings: reasons why a program is slow, with changes that trials have shown to make it faster."""

from spyre_mlir.findings.search import (
    Batch,
    Freeze,
    Halve,
    HostWork,
    ModelEdit,
    MovedStick,
    PlannedProgram,
    Remedy,
    Resize,
    Untranspose,
    remedies,
    search,
)

__all__ = [
    "Batch",
    "Freeze",
    "Halve",
    "HostWork",
    "ModelEdit",
    "MovedStick",
    "PlannedProgram",
    "Remedy",
    "Resize",
    "Untranspose",
    "remedies",
    "search",
]  # fmt: skip
