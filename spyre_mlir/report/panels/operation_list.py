"""The table of operations: each execute of the program text is a row."""

from __future__ import annotations

from spyre_mlir.report.html import FILTER, MORE, Cell, Column, Steps, table
from spyre_mlir.report.program_facts import Operation, ProgramFacts

COLUMNS = (
    Column("step", 4.5, is_number=True),
    Column("operation", 12),
    Column("cores", 5, is_number=True),
    Column("slices", 18),
    Column("runs", 4.5, is_number=True),
    Column("time (µs)", 7.5, is_number=True),
    Column("bound by", 7),
    Column("read (B)", 7.75, is_number=True),
    Column("written (B)", 7.75, is_number=True),
    Column("traffic (B)", 7.75, is_number=True),
    Column("spill (B)", 7.75, is_number=True),
    Column("source", 10.5),
)


def panel(facts: ProgramFacts) -> str:
    """The table with a box to filter it."""
    return "\n".join(
        [
            "<p>Time (microseconds), traffic and spill (bytes) are those of all runs; spill is the part of the traffic"
            " that goes to and from buffers that are no arguments and not in LX. A click on the name of a column"
            " sorts, one on a row shows the operation.</p>",
            '<div class="listing">',
            f'<p class="scripted" hidden="hidden">{FILTER}</p>',
            table("operations-table", COLUMNS, map(_row, facts.operations), of_operations=True),
            MORE,
            "</div>",
        ]
    )


def _row(operation: Operation) -> tuple[Cell, ...]:
    return (
        Steps((operation.position,)),
        operation.opcode,
        operation.cores,
        operation.slices,
        operation.runs,
        operation.execution.total_ns / 1000,
        operation.execution.bound_by,
        operation.read_bytes,
        operation.written_bytes,
        operation.read_bytes + operation.written_bytes,
        operation.spilled_bytes,
        operation.source,
    )
