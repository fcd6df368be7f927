# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of operations: each execute of the program text is a row."""

from __future__ import annotations

from spyre_mlir.report.html import FILTER, MORE, Cell, Column, Steps, anchor, table
from spyre_mlir.report.program_facts import Operation, ProgramFacts

COLUMNS = (
    Column("step", 4, is_number=True),
    Column("operation", 9.5),
    Column("module", 10),
    Column("shape", 10),
    Column("dtype", 5),
    Column("time (µs)", 6.5, is_number=True, order="descending"),
    Column("share (%)", 5, is_number=True),
    Column("cores", 4, is_number=True),
    Column("slices", 9.5),
    Column("runs", 4, is_number=True),
    Column("bound by", 5.5),
    Column("read (B)", 6.25, is_number=True),
    Column("written (B)", 6.5, is_number=True),
    Column("spill (B)", 5.75, is_number=True),
    Column("source", 8.5),
)


def panel(facts: ProgramFacts) -> str:
    """Return the table, the longest operation first, with a filter box."""
    rows = sorted(facts.operations, key=lambda operation: (-operation.execution.total_ns, operation.position))
    total = max(facts.timeline.total_ns, 1e-9)
    return "\n".join(
        [
            "<p>What takes longest is first; a click on <em>step</em> puts them in the order of the program, one on the"
            " name of another column sorts by it, one on a row shows the operation. Time, bytes read and written and"
            " spill are those of all runs; share is the part of the program's time, spill the part of the bytes that"
            " goes to and from buffers that are no arguments and not in LX.</p>",
            '<div class="listing">',
            f'<p class="scripted" hidden="hidden">{FILTER}</p>',
            table(
                "operations-table",
                COLUMNS,
                (_row(operation, total) for operation in rows),
                (anchor(operation.position) for operation in rows),
                width=1400,
            ),
            MORE,
            "</div>",
        ]
    )


def _row(operation: Operation, total_ns: float) -> tuple[Cell, ...]:
    return (
        Steps((operation.position,)),
        operation.opcode,
        operation.module,
        operation.shape,
        operation.dtype,
        operation.execution.total_ns / 1000,
        f"{100 * operation.execution.total_ns / total_ns:.1f}",
        operation.cores,
        operation.slices,
        operation.runs,
        operation.execution.bound_by,
        operation.read_bytes,
        operation.written_bytes,
        operation.spilled_bytes,
        operation.source,
    )
