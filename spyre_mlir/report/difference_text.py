# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The difference of two bundles for the terminal: totals, then one line for each thing that is not the same."""

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
#: What the tables do not say of themselves.
NOTES = (
    "Slices are their number x their size, dims of a layout innermost first.",
    "Bytes of device memory are padded and count what a run moves, a load that several cores share once.",
    "Bytes of a buffer in LX are those of one core.",
    "Times are those of the timeline: that of an operation is its part of the program's.",
)

DifferingPair = Pair[OperationFacts] | Pair[BufferFacts]

#: What is told of an operation or buffer that only one bundle has.
TOLD_OF_OPERATION, TOLD_OF_BUFFER = (CORES, ITERATIONS, READ, WRITTEN, TIME), (MEMORY, ADDRESS, BYTES)
_STATUSES = ("same", "changed", "only in A", "only in B")


def text(difference: Difference, before: str = "A", after: str = "B") -> str:
    """The difference as lines of text; ``before`` and ``after`` name the bundles."""
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
    """The changes of a pair; of a thing that only one bundle has, the facts of these names that are not empty."""
    if pair.status == "changed":
        return "; ".join(
            f"{change.what} {fact(change.before)} -> {fact(change.after)}" for change in pair.changes
        )
    facts = ((what, pair.one.facts[what]) for what in of_one)
    return "; ".join(f"{what} {fact(value)}" for what, value in facts if value != "")


# -- words, for the page too -------------------------------------------------------------------------------


def headline(what: str, pairs: Sequence[Pair]) -> str:
    """Return the numbers of equal, changed, and one-sided pairs as a line."""
    counts = Counter(pair.status for pair in pairs)
    if counts.keys() <= {"same"}:
        return f"{what}: {SAME}"
    return f"{what}: " + ", ".join(f"{counts[status]:,} {status}" for status in _STATUSES if counts[status])


def steps(pair: Pair[OperationFacts]) -> tuple[str, str]:
    """The position of an operation in A and in B."""
    before, after = (
        "-" if operation is None else str(operation.step.position) for operation in (pair.before, pair.after)
    )
    return before, after


def names(pair: Pair[BufferFacts]) -> tuple[str, str]:
    """The name of a buffer in A and in B."""
    before, after = ("-" if buffer is None else buffer.name for buffer in (pair.before, pair.after))
    return before, after


def place(pair: Pair[OperationFacts]) -> str:
    """The line of an operation and its module, both places where they are not the same."""
    known = [_place(operation) for operation in (pair.before, pair.after) if operation is not None]
    return " / ".join(dict.fromkeys(filter(None, known)))


def _place(operation: OperationFacts) -> str:
    module = f"in {operation.module}" if operation.module else ""
    return " ".join(filter(None, (operation.source, module)))


def writer(pair: Pair[BufferFacts]) -> str:
    """The operation that writes a buffer, in A and in B where it is not the same; of an input the host."""
    opcodes = [
        buffer.writer.opcode for buffer in (pair.before, pair.after) if buffer is not None and buffer.writer
    ]
    return " / ".join(dict.fromkeys(opcodes)) or "the host"


def fact(value: Fact) -> str:
    """A fact as text: numbers with separators, floats to a thousandth."""
    if isinstance(value, str):
        return value or "none"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def percent(change: Change) -> str:
    """Return the growth of a number as text."""
    if not change.is_difference:
        return "same"
    return "" if change.percent is None else f"{change.percent:+,.1f} %"


def _table(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Columns as wide as their widest cell, to the left (<) or right (>); the last one as long as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    widths[-1] = 0 if sides[-1] == "<" else widths[-1]
    cells = (
        (f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in rows
    )
    return ["  ".join(row).rstrip() for row in cells]
