"""The table of operations: each execute of the program text is a row."""

from __future__ import annotations

from spyre_mlir.report.html import Cell, table
from spyre_mlir.report.program_facts import Operation, ProgramFacts

#: Names of columns and whether they hold numbers.
COLUMNS = (
    ("step", True),
    ("operation", False),
    ("cores", True),
    ("slices", False),
    ("runs", True),
    ("time (µs)", True),
    ("bound by", False),
    ("read (bytes)", True),
    ("written (bytes)", True),
    ("traffic (bytes)", True),
    ("spill (bytes)", True),
    ("source", False),
)


def panel(facts: ProgramFacts) -> str:
    """The table with a box to filter it."""
    names, numeric = zip(*COLUMNS, strict=True)
    return "\n".join(
        [
            "<p>Time, traffic and spill are those of all runs; spill is the part of the traffic that goes to and from"
            " buffers that are no arguments and not in LX. A click on the name of a column sorts.</p>",
            '<div class="listing">',
            '<p><label>Filter <input type="search"/></label> <span class="found"></span></p>',
            table("operations-table", names, numeric, map(_row, facts.operations)),
            "</div>",
        ]
    )


def _row(operation: Operation) -> tuple[Cell, ...]:
    return (
        operation.position,
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
