# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A trace of a card joined with the predicted times of a bundle by debug handles.

A trace of ``torch.profiler`` has one event for each step of a kernel: its name is ``sdsc_fused_.._<hash>#<step>`` or
``spyre_kernel_v1_.._<key>#<step>``, and its arguments are ``provenance_key`` and ``debug_handles``, the ids of the
``debug_handle_`` of all designs of the kernel (torch-spyre #3354). The step is the position of a command in the kernel,
which no design is known for, so the steps of a kernel are one time. Kernels that share a handle, and operations that
share one, are compared together. A kernel that ran several times counts with its median.
"""

from __future__ import annotations

import csv
import io
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from spyre_mlir.bundle.json_fields import Field, parse_json
from spyre_mlir.errors import CompileError, counted
from spyre_mlir.records import dataclass
from spyre_mlir.report.program_facts import Operation
from spyre_mlir.tables import aligned
from spyre_mlir.target.ops import Kind

_STEP = re.compile(r"(.+)#(\d+)")
#: The columns of a table of ``spyre-calibrate``.
_CALIBRATION = (
    "source,lx_backend_fraction,cores_b,cores_m,cores_n,cores_k,B,M,N,K,measured_us".split(",")
)  # fmt: skip


@dataclass(frozen=True)
class KernelTime:
    """A kernel of a trace: its name without the step, its handles, its median time, and its first run's bars."""

    name: str
    handles: tuple[str, ...]
    measured_us: float
    bars: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class MeasuredGroup:
    """Kernels and the operations that their handles name, which share no handle with others."""

    kernels: tuple[KernelTime, ...]
    operations: tuple[Operation, ...]

    @property
    def measured_us(self) -> float:
        return sum(kernel.measured_us for kernel in self.kernels)

    @property
    def predicted_us(self) -> float:
        return sum(map(_predicted_us, self.operations))

    @property
    def ratio(self) -> float:
        """The predicted time divided by the measured time."""
        return self.predicted_us / self.measured_us


def _predicted_us(operation: Operation) -> float:
    return operation.execution.shares.total / 1e6


def read_trace(text: str, path: str) -> list[KernelTime]:
    """Return the kernels of a trace in the order of their first run.

    Args:
        text: The JSON of the trace.
        path: The file of the trace, for errors.

    Raises:
        CompileError: The text is not a trace, no event has debug handles, or a step of a kernel is missing.
    """
    root = parse_json(text, path, "trace")
    events = root["traceEvents"].items() if isinstance(root.value, dict) and "traceEvents" in root else None
    if events is None:
        raise CompileError("The file has no traceEvents, so it is not a trace of torch.profiler.", path)
    steps: dict[tuple[str, str], dict[int, list[tuple[float, float]]]] = {}
    handles: dict[tuple[str, str], tuple[str, ...]] = {}
    for event in events:
        details = event.value.get("args") if isinstance(event.value, dict) else None
        if not isinstance(details, dict) or "debug_handles" not in details or event.value.get("ph") != "X":
            continue
        name = event["name"].text()
        match = _STEP.fullmatch(name)
        key = match[1] if match else name, event["args"]["provenance_key"].text()
        named = event["args"]["debug_handles"].texts()
        if handles.setdefault(key, named) != named:
            event["args"]["debug_handles"].fail(f"differs from the handles of other events of '{key[0]}'")
        time = _number(event["ts"]), _number(event["dur"])
        steps.setdefault(key, {}).setdefault(int(match[2]) if match else 0, []).append(time)
    if not steps:
        raise CompileError(
            "No event of the trace has debug_handles; expected a trace of torch.profiler with kernels of Spyre.",
            path,
        )
    return [_kernel(name, handles[name, key], runs, path) for (name, key), runs in steps.items()]


def _number(field: Field) -> float:
    if isinstance(field.value, bool) or not isinstance(field.value, int | float) or not field.value >= 0:
        field.fail("is not a time of 0 or more microseconds")
    return float(field.value)


def _kernel(
    name: str, handles: tuple[str, ...], runs: dict[int, list[tuple[float, float]]], path: str
) -> KernelTime:
    counts = Counter(map(len, runs.values()))
    if len(counts) > 1:
        most = max(counts)
        step, times = next((step, times) for step, times in sorted(runs.items()) if len(times) < most)
        raise CompileError(
            f"The trace is truncated: step {step} of '{name}' has {counted(len(times), 'event')}, other steps have"
            f" {most}.",
            path,
        )
    bars = tuple((f"{name}#{step}", *times[0]) for step, times in sorted(runs.items()))
    total = sum(statistics.median(length for _, length in times) for times in runs.values())
    return KernelTime(name, handles, total, bars)


def joined(kernels: Sequence[KernelTime], operations: Sequence[Operation], path: str) -> list[MeasuredGroup]:
    """Return the groups of kernels and operations; ``CompileError`` for a handle that the bundle does not have."""
    ids = {operation.design.debug.id for operation in operations if operation.design.debug is not None}
    if not ids:
        raise CompileError("The designs of the bundle have no debug handles to join with.", path)
    groups: list[set[str]] = []
    for kernel in kernels:
        foreign = [handle for handle in kernel.handles if handle not in ids]
        if foreign or not kernel.handles:
            text = f"names the debug handle '{foreign[0]}'" if foreign else "names no debug handle"
            raise CompileError(f"The kernel '{kernel.name}' {text}, which no design of the bundle has.", path)
        together = set(kernel.handles).union(*(group for group in groups if group & set(kernel.handles)))
        groups = [*(group for group in groups if not group & together), together]
    found = [
        MeasuredGroup(
            tuple(kernel for kernel in kernels if kernel.handles[0] in group),
            tuple(operation for operation in operations if _handle(operation) in group),
        )
        for group in groups
    ]
    for group in found:
        if not group.measured_us > 0:
            raise CompileError(f"The kernel '{group.kernels[0].name}' has no time.", path)
    return sorted(found, key=lambda group: group.operations[0].position)


def _handle(operation: Operation) -> str | None:
    return operation.design.debug and operation.design.debug.id


def comparison_lines(groups: Sequence[MeasuredGroup], operations: Sequence[Operation]) -> list[str]:
    """Return the tables of predicted over measured times: by operation or kernel, and by module."""
    rows: list[tuple[str, ...]] = [
        ("operations", "kernels", "predicted us", "measured us", "predicted / measured")
    ]
    for group in groups:
        names = ", ".join(operation.opcode for operation in group.operations)
        numbers = dict.fromkeys(
            str(operation.position) for operation in (group.operations[0], group.operations[-1])
        )
        steps = " .. ".join(numbers)
        rows.append(
            (f"{steps}: {names}", str(len(group.kernels)), *_times(group.predicted_us, group.measured_us))
        )
    modules: dict[str, list[float]] = {}
    for group in groups:
        for operation in group.operations:
            times = modules.setdefault(operation.origin.module or "(model)", [0.0, 0.0])
            # The measured time of a group is divided as the predicted one.
            times[0] += _predicted_us(operation)
            times[1] += _predicted_us(operation) / group.ratio
    table: list[tuple[str, ...]] = [("module", "predicted us", "measured us", "predicted / measured")]
    table += [(name, *_times(*times)) for name, times in modules.items()]
    measured = {operation.position for group in groups for operation in group.operations}
    kernels = sum(len(group.kernels) for group in groups)
    missing = len({operation.position for operation in operations} - measured)
    total = _times(sum(group.predicted_us for group in groups), sum(group.measured_us for group in groups))
    return [
        *aligned(rows, "<>>>>"), "", *aligned(table, "<>>>"), "",
        f"{counted(kernels, 'kernel')} joined; {counted(missing, 'operation')} without a measured time",
        f"predicted {total[0]} us, measured {total[1]} us, predicted / measured {total[2]}",
    ]  # fmt: skip


def _times(predicted: float, measured: float) -> tuple[str, str, str]:
    return f"{predicted:,.1f}", f"{measured:,.1f}", f"{predicted / measured:.2f}" if measured else "-"


def measured_bars(groups: Sequence[MeasuredGroup]) -> Iterator[tuple[str, float, float, dict[str, Any]]]:
    """Yield name, begin and length (microseconds) and details of the kernels, the first kernel at 0."""
    bars = [(bar, group) for group in groups for kernel in group.kernels for bar in kernel.bars]
    first = min((begin for (_, begin, _), _ in bars), default=0.0)
    for (name, begin, length), group in sorted(bars, key=lambda each: each[0][1]):
        yield (
            name,
            begin - first,
            length,
            {"predicted us": group.predicted_us, "measured us": group.measured_us},
        )


def calibration_table(groups: Sequence[MeasuredGroup], source: str) -> str:
    """Return the matmuls that were measured alone as a table of ``spyre-calibrate``."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(_CALIBRATION)
    for group in groups:
        operation = group.operations[0]
        if len(group.operations) == 1 and operation.execution.work.kind is Kind.MATMUL:
            design = operation.design
            first, second, result = (set(operand.listed) for operand in design.operands)
            batch = first & second & result
            roles = (batch, (first & result) - batch, (second & result) - batch, (first & second) - batch)
            slices, sizes = (
                [math.prod(numbers[dim] for dim in dims) for dims in roles]
                for numbers in (design.slices, design.sizes)
            )
            fraction = design.target.lx_backend_fraction
            writer.writerow([source, f"{fraction:g}", *slices, *sizes, f"{group.measured_us:.3f}"])
    return output.getvalue()
