# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Changes that give work to idle cores: unequal slices, more rows, more samples in a call."""

from __future__ import annotations

import math
from collections.abc import Iterator

from spyre_mlir.findings.planned import PlannedProgram
from spyre_mlir.findings.remedy import Batch, Remedy, Resize
from spyre_mlir.report.program_facts import Operation

IDLE, FEW, MORE = "idle cores", "few rows", "more samples"

#: Factor by which a trial multiplies the samples of a call.
_TIMES = 8
#: Most samples of a call that a trial multiplies.
_MOST_SAMPLES = 16
#: Besides multiples of the number of cores, trials round a number of rows to multiples of these: the rows of a step
#: of the matrix unit, and the fp16 numbers in a stick.
_STEP, _STICK = 8, 64
#: Maximum number of operations that a sentence names.
_NAMED = 3
#: Rows with which a core's matrix unit attains most of its rate (docs/cost.md).
_FULL_ROWS = 64


def idle_cores(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield unequal slices, and other numbers of rows, for a program whose operations leave cores idle."""
    idle = [operation for operation in program.operations if operation.cores < program.device_cores]
    lost = math.fsum(
        operation.execution.total_ns * (1 - operation.cores / program.device_cores) for operation in idle
    )
    problem = f"{_longest(idle)} {'leaves' if len(idle) == 1 else 'leave'} cores idle."
    cause = f"Slices of equal size do not make {program.device_cores}: {_divided(idle)}."
    if lost and not program.options.get("uneven_splits"):
        text = "spyre_mlir.compile(model, inputs, uneven_splits=True)"
        yield Remedy(IDLE, problem, cause, text, 2 * lost, {"uneven_splits": True})
    if program.is_model:
        yield from _more_rows(program, (problem, cause) if idle else None, lost)


def _more_rows(program: PlannedProgram, idle: tuple[str, str] | None, lost: float) -> Iterator[Remedy]:
    """Yield numbers of rows that divide evenly; ``idle`` are problem and cause if operations leave cores idle."""
    multiples = (_STEP, program.device_cores, _STICK)
    sizes = {size for value in program.inputs for size in value.shape if size > program.device_cores}
    for size in sorted(sizes):
        sized = math.fsum(
            operation.execution.total_ns
            for operation in program.operations
            if any(extent % size == 0 for extent in operation.design.sizes.values())
        )
        for to in sorted({-(-size // multiple) * multiple for multiple in multiples} - {size}):
            text = (
                f"pad the {size} rows of the inputs to {to} and take the first {size} of the results: "
                f"name_tensor_dims(..) and compile(.., dynamic={{'ROWS': ({to}, {to})}}) do, docs/dynamic.md"
            )
            problem, cause = idle or (
                f"{size} rows do not divide into slices of whole steps of the matrix unit.",
                f"The matrix unit takes {_STEP} rows in a step, and a stick has {_STICK} numbers of fp16.",
            )
            yield Remedy(
                IDLE, problem, cause, text, min(2 * lost + 0.05 * sized, sized), edit=Resize(size, to)
            )


def few_samples(program: PlannedProgram) -> Iterator[Remedy]:
    """Yield more samples in a call for a program whose weights or cores wait for rows."""
    counts = {shape[0] for shape in program.result_shapes if shape}
    if not program.is_model or len(counts) != 1 or not 1 <= (count := counts.pop()) <= _MOST_SAMPLES:
        return
    products = [operation for operation in program.operations if operation.category == "matmul"]
    weighted = {
        (operation.name, operation.execution.filename)
        for argument, operations in program.arguments()
        if argument.kind == "parameter"
        for operation in operations
    }
    waiting = [
        operation
        for operation in products
        if operation.execution.bound_by == "memory"
        and (operation.name, operation.execution.filename) in weighted
    ]
    lost = math.fsum(operation.execution.total_ns for operation in waiting)
    overhead = math.fsum(operation.execution.shares.overhead for operation in program.operations) / 1000
    most = (lost + overhead) * (1 - 1 / _TIMES)
    if not waiting:
        return
    longest = max(waiting, key=lambda operation: operation.execution.total_ns)
    problem = (
        f"A call with {count:,} sample{'s' if count > 1 else ''} waits for memory in {len(waiting)} of "
        f"{len(products)} matmuls, {lost / program.ns:.0%} of its time."
    )
    cause = (
        f"Each weight is read for {_rows(longest):,} rows; from about {_FULL_ROWS} rows per core on, computing takes "
        "longer than reading."
    )
    text = f"call the model with {count * _TIMES:,} samples at once; times are of {count:,} of them"
    kind = FEW if _rows(longest) < _FULL_ROWS else MORE
    yield Remedy(kind, problem, cause, text, most, edit=Batch(count, _TIMES), samples=_TIMES)


def _rows(operation: Operation) -> int:
    return operation.design.sizes.get("mb", 1)


def _longest(operations: list[Operation]) -> str:
    """Return the longest operations with their cores, as the subject of a sentence."""
    longest = sorted(operations, key=lambda operation: -operation.execution.total_ns)[:_NAMED]
    names = ", ".join(
        f"{operation.opcode} ({operation.cores} of {_device_cores(operation)} cores)" for operation in longest
    )
    return names + (f" and {len(operations) - _NAMED} more operations" if len(operations) > _NAMED else "")


def _device_cores(operation: Operation) -> int:
    return operation.design.target.device_cores


def _divided(operations: list[Operation]) -> str:
    longest = sorted(operations, key=lambda operation: -operation.execution.total_ns)[:_NAMED]
    return "; ".join(dict.fromkeys(operation.slices or "one core" for operation in longest))
