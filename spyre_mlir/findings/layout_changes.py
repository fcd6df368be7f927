# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes of the layouts of arguments, for those whose readers convert them or reduce along their sticks."""

from __future__ import annotations

import math
from collections.abc import Iterator

from spyre_mlir.bundle.model import KernelArgument
from spyre_mlir.findings.planned import PlannedProgram
from spyre_mlir.findings.remedy import MovedStick, Remedy, Untranspose
from spyre_mlir.report.program_facts import Operation

KIND, TRANSPOSES = "layout of an argument", "transposes"

#: Maximum number of lines that a sentence names.
_LINES = 3

#: Minimum size in bytes of arguments that are tried: smaller ones cost little in any layout.
_LEAST_BYTES = 1 << 15


def argument_layouts(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield the other stick dims of each large argument that is converted, or reduced along its stick."""
    if not program.is_model:
        return
    given = program.options.get("layouts") or {}
    for argument, operations in program.arguments():
        waiting = [
            operation for operation in operations if _converts(operation) or _reduces_sticks(operation)
        ]
        if argument.kind == "constant" or argument.bytes < _LEAST_BYTES or not waiting or argument.source:
            continue
        most = math.fsum(operation.execution.total_ns for operation in waiting)
        on_device = {value.name: value.key for value in program.inputs if value.is_on_device}
        for dim, size in enumerate(argument.host_shape):
            if size == 1 or dim == _stick_dim(argument):
                continue
            about = f"{KIND} {argument.name}", _problem(argument, waiting), _cause(argument, waiting)
            if argument.name in on_device:
                text = f"spyre_mlir.to_device({argument.name}, stick_dims=[{dim}])"
                yield Remedy(*about, text, most, edit=MovedStick(on_device[argument.name], dim))
                continue
            layouts = {**given, argument.name: {"stick_dims": [dim]}}
            text = f"spyre_mlir.compile(model, inputs, layouts={layouts!r})"
            yield Remedy(*about, text, most, {"layouts": layouts})


def transposes(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield the model without the transposes whose results are converted."""
    converting = [
        operation for operation in program.operations if _converts(operation) and operation.origin.file
    ]
    if not program.is_model or not converting:
        return
    lines = {(operation.origin.file, operation.origin.line) for operation in converting}
    most = math.fsum(
        operation.execution.total_ns for operation in program.operations if operation.category == "clone"
    )
    most += math.fsum(operation.execution.total_ns for operation in converting)
    longest = max(converting, key=lambda operation: operation.execution.total_ns)
    runs = sum(operation.runs for operation in converting)
    yield Remedy(
        TRANSPOSES,
        f"Transposes turn sticks at each of {runs:,} runs, {most / 1000:,.1f} us with the copies around them.",
        f"{longest.opcode} gives a reader another dim in the stick than the writer has; through a transpose the dim "
        "in the stick changes each time.",
        f"compute in one order of dims: leave out the transposes in the functions around {_shown(lines)}, and "
        "transpose inputs or weights once, before the call",
        most,
        edit=Untranspose(tuple(sorted(lines))),
    )


def _shown(lines: set[tuple[str, int]]) -> str:
    shown = [f"{file.rpartition('/')[2]}:{line}" for file, line in sorted(lines)]
    return ", ".join(shown[:_LINES]) + (
        f" and {len(shown) - _LINES} more lines" if len(shown) > _LINES else ""
    )


def _converts(operation: Operation) -> bool:
    return operation.execution.is_restickify


def _reduces_sticks(operation: Operation) -> bool:
    """Return whether an operation reduces the stick dim of its first operand."""
    first, *_, last = operation.design.operands
    return operation.category == "reduction" and last.scale.get(first.stick_dim, 1) != 1


def _stick_dim(argument: KernelArgument) -> int:
    """Return the host dim whose elements are adjacent in a stick; -1 if there is none."""
    moves = argument.transfer
    strides = list(moves.host_strides)
    innermost = strides[-1] if strides else 0
    stride = 1
    for dim in reversed(range(len(argument.host_shape))):
        if innermost == stride and argument.host_shape[dim] > 1:
            return dim
        stride *= argument.host_shape[dim]
    return -1


def _problem(argument: KernelArgument, waiting: list[Operation]) -> str:
    words = dict.fromkeys(
        "converted" if _converts(operation) else "reduced along its sticks" for operation in waiting
    )
    return f"The {argument.kind} '{argument.name}' is {' and '.join(words)} at each call."


def _cause(argument: KernelArgument, waiting: list[Operation]) -> str:
    longest = max(waiting, key=lambda operation: operation.execution.total_ns)
    return (
        f"It comes with dim {_stick_dim(argument)} in the stick; the longest of these operations is {longest.opcode}, "
        f"{longest.execution.total_ns / 1000:,.1f} us."
    )
