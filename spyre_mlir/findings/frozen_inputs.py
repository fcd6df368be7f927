# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Inputs that may become buffers of the model, above all masks: a plan can then see the values that they hide."""

from __future__ import annotations

import math
from collections.abc import Iterator

from spyre_mlir.findings.planned import ExampleInput, PlannedProgram
from spyre_mlir.findings.remedy import Freeze, Remedy

KIND = "mask from the host"

#: Minimum number of elements of a mask along each of its dims.
_LEAST = 16


def masks_from_the_host(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield each mask among the inputs as a buffer."""
    if not program.is_model:
        return
    for value in program.inputs:
        reading = [
            operation
            for argument, operations in program.arguments()
            if argument.array_name == value.name
            for operation in operations
        ]
        if not _is_mask(value) or len(program.inputs) == 1 or not reading:
            continue
        attention = math.fsum(
            operation.execution.total_ns for operation in program.operations if operation.category == "matmul"
        )
        most = math.fsum(operation.execution.total_ns for operation in reading) + attention / 2
        yield Remedy(
            KIND,
            f"The mask '{value.name}' comes from the host at each call and is read as any tensor is.",
            "Its numbers are unknown when the plan is made, so what it hides is computed too.",
            f"self.register_buffer('{value.name}', {value.name}), or is_causal=True where it is the causal mask",
            most,
            edit=Freeze((value.key,)),
        )


def _is_mask(value: ExampleInput) -> bool:
    """Return whether an input is a mask of attention by its name or type, with many keys for many queries."""
    if len(value.shape) < 2 or min(value.shape[-2:]) < _LEAST:
        return False
    return value.dtype == "bool" or "mask" in value.name
