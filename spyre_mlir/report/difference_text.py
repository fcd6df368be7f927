# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The difference of two bundles for the terminal: totals, then one line for each item that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from spyre_mlir.report.bundle_facts import (
    ADDRESS,
    BYTES,
    CORES,
    ITERATIONS,
    MEMORY,
    READ,
    TIME,
    WRITTEN,
    BufferFacts,
    Fact,
    OperationFacts,
)
from spyre_mlir.report.difference import Change, Difference, Pair

SAME = "no difference"
#: Explanations of the tables.
NOTES = (
    "Slices are their number x their size, dims of a layout innermost first.",
    "Bytes of device memory are padded and count what a run moves, a load that several cores share once.",
    "Bytes of a buffer in LX are those of one core.",
    "Times are those of the timeline: that of an operation is its part of the program's.",
)

DifferingPair = Pair[OperationFacts] | Pair[BufferFacts]

#: Facts that are reported for an operation or buffer that only one bundle has.
TOLD_OF_OPERATION, TOLD_OF_BUFFER = (CORES, ITERATIONS, READ, WRITTEN, TIME), (MEMORY, ADDRESS, BYTES)
_STATUSES = ("same", "changed", "only in A", "only in B")


def text(difference: Difference, before: str = "A", after: str = "B") -> str:
    """Return the difference as lines of text; ``before`` and ``after`` name the bundles."""
    sections = [
        [f"A: {before}", f"B: {after}"],
        _changes_table(difference.totals),
        _opcodes(difference),
        [headline("operations", difference.operations), *_operations(difference)],
        [headline("buffers", difference.buffers), *_buffers(difference)],
        NOTES if difference else (),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _changes_table(changes: Sequence[Change]) -> list[str]:
    rows = [("", "A", "B", "change")]
    rows += [(change.what, fact(change.before), fact(change.after), percent(change)) for change in changes]
    return _table(rows, "<>>>")


def _opcodes(difference: Difference) -> list[str]:
    changes = [change for change in difference.opcodes if change.is_difference]
    return ["opcodes:", *_changes_table(changes)] if changes else [f"opcodes: {SAME}"]


def _operations(difference: Difference) -> list[str]:
    rows = [
        (pair.status, *steps(pair), pair.one.step.opcode, place(pair), _description(pair, TOLD_OF_OPERATION))
        for pair in difference.operations
        if pair.status != "same"
    ]
    return _table([("", "A", "B", "operation", "source", ""), *rows], "<>><<<") if rows else []


def _buffers(difference: Difference) -> list[str]:
    rows = [
        (pair.status, *names(pair), writer(pair), _description(pair, TOLD_OF_BUFFER))
        for pair in difference.buffers
        if pair.status != "same"
    ]
    return _table([("", "A", "B", "written by", ""), *rows], "<<<<<") if rows else []


def _description(pair: DifferingPair, of_one: Sequence[str]) -> str:
    """Format the changes of a pair; for an item that only one bundle has, its nonempty facts among ``of_one``."""
    if pair.status == "changed":
        return "; ".join(
            f"{change.what} {fact(change.before)} -> {fact(change.after)}" for change in pair.changes
        )
    facts = ((what, pair.one.facts[what]) for what in of_one)
    return "; ".join(f"{what} {fact(value)}" for what, value in facts if value != "")


# -- texts, also for the page ------------------------------------------------------------------------------


def headline(what: str, pairs: Sequence[Pair]) -> str:
    """Return the numbers of equal, changed, and one-sided pairs as a line."""
    counts = Counter(pair.status for pair in pairs)
    if counts.keys() <= {"same"}:
        return f"{what}: {SAME}"
    return f"{what}: " + ", ".join(f"{counts[status]:,} {status}" for status in _STATUSES if counts[status])


def steps(pair: Pair[OperationFacts]) -> tuple[str, str]:
    """Return the position of an operation in A and in B."""
    before, after = (
        "-" if operation is None else str(operation.step.position) for operation in (pair.before, pair.after)
    )
    return before, after


def names(pair: Pair[BufferFacts]) -> tuple[str, str]:
    """Return the name of a buffer in A and in B."""
    before, after = ("-" if buffer is None else buffer.name for buffer in (pair.before, pair.after))
    return before, after


def place(pair: Pair[OperationFacts]) -> str:
    """Return the source line and module of an operation, for both bundles if they differ."""
    known = [_place(operation) for operation in (pair.before, pair.after) if operation is not None]
    return " / ".join(dict.fromkeys(filter(None, known)))


def _place(operation: OperationFacts) -> str:
    module = f"in {operation.module}" if operation.module else ""
    return " ".join(filter(None, (operation.source, module)))


def writer(pair: Pair[BufferFacts]) -> str:
    """Return the operation that writes a buffer, for both bundles if it differs; the host for an input."""
    opcodes = [
        buffer.writer.opcode for buffer in (pair.before, pair.after) if buffer is not None and buffer.writer
    ]
    return " / ".join(dict.fromkeys(opcodes)) or "the host"


def fact(value: Fact) -> str:
    """Format a fact: numbers with separators, floats with three decimals."""
    if isinstance(value, str):
        return value or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def percent(change: Change) -> str:
    """Return the growth of a number as text."""
    if not change.is_difference:
        return "same"
    return "" if change.percent is None else f"{change.percent:+,.1f} %"


def _table(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Format columns as wide as their widest cell, aligned left (<) or right (>); the last column is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0 if sides[-1] == "<" else widths[-1]
    cells = (
        (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in rows
    )
    return ["  ".join(row).rstrip() for row in cells]
