# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The difference of two bundles as one HTML file, for a screen that is 1280 pixels wide.

The page loads nothing from elsewhere and has no script. The page is also XML, so that tools can read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from spyre_mlir.report.bundle_facts import ADDRESS, BufferFacts, OperationFacts
from spyre_mlir.report.difference import Change, Difference, Pair
from spyre_mlir.report.difference_text import (
    NOTES,
    SAME,
    TOLD_OF_BUFFER,
    TOLD_OF_OPERATION,
    DifferingPair,
    fact,
    headline,
    names,
    percent,
    place,
    steps,
    writer,
)

_STYLE = """
body { font: 13px 'DejaVu Sans', Verdana, Arial, sans-serif; color: #1a1a1a; margin: 16px 24px 32px; }
h1 { font-size: 17px; margin: 0 0 6px; }
h2 { font-size: 15px; margin: 20px 0 6px; }
table { border-collapse: collapse; font-size: 12px; max-width: 1230px; }
th, td { padding: 3px 14px 3px 0; text-align: left; vertical-align: top; overflow-wrap: anywhere; }
th { border-bottom: 1px solid #767676; white-space: nowrap; }
tbody { border-bottom: 1px solid #d9d9d9; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.status { border-left: 5px solid; padding-left: 8px; white-space: nowrap; }
.changed { border-left-color: #2171b5; }
.only-in-A { border-left-color: #a50f15; }
.only-in-B { border-left-color: #1b7837; }
p { margin: 6px 0; }
"""

#: The columns of a changed fact.
_CHANGE = ("what", "in A", "in B", "change")


def page(difference: Difference, before: str = "A", after: str = "B") -> str:
    """Return the page as the text of an HTML file; ``before`` and ``after`` name the bundles."""
    title = escape(f"{before} and {after}")
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"/><title>Difference of {title}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>A: {escape(before)}<br/>B: {escape(after)}</h1>",
        "" if difference else f"<p>{SAME}</p>",
        *(f"<p>{escape(note)}</p>" for note in NOTES),
        "<h2>totals</h2>",
        *_changes("totals", difference.totals),
        *_opcodes(difference),
        f"<h2>{headline('operations', difference.operations)}</h2>",
        *_operations(difference.operations),
        f"<h2>{headline('buffers', difference.buffers)}</h2>",
        *_buffers(difference.buffers),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _opcodes(difference: Difference) -> Iterator[str]:
    changes = [change for change in difference.opcodes if change.is_difference]
    yield "<h2>opcodes</h2>" if changes else f"<h2>opcodes: {SAME}</h2>"
    if changes:
        yield from _changes("opcodes", changes)


def _changes(identifier: str, changes: Iterable[Change]) -> Iterator[str]:
    heads = "".join(f'<th class="number">{name}</th>' for name in ("A", "B", "change"))
    yield f'<table id="{identifier}"><thead><tr><th></th>{heads}</tr></thead><tbody>'
    for change in changes:
        cells = (fact(change.before), fact(change.after), percent(change))
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        yield f"<tr><td>{escape(change.what)}</td>{numbers}</tr>"
    yield "</tbody></table>"


def _operations(pairs: Sequence[Pair[OperationFacts]]) -> Iterator[str]:
    differing = [pair for pair in pairs if pair.status != "same"]
    if not differing:
        return
    yield _head("operations", ("", "A", "B", "operation", "source", *_CHANGE))
    for pair in differing:
        cells = (*steps(pair), pair.one.step.opcode, place(pair))
        yield _group(pair, cells, TOLD_OF_OPERATION)
    yield "</table>"


def _buffers(pairs: Sequence[Pair[BufferFacts]]) -> Iterator[str]:
    differing = [pair for pair in pairs if pair.status != "same"]
    if not differing:
        return
    yield _head("buffers", ("", "A", "B", "written by", *_CHANGE))
    for pair in differing:
        yield _group(pair, (*names(pair), writer(pair)), TOLD_OF_BUFFER)
    yield "</table>"


def _head(identifier: str, columns: Sequence[str]) -> str:
    cells = "".join(f"<th>{name}</th>" for name in columns)
    return f'<table id="{identifier}"><thead><tr>{cells}</tr></thead>'


def _group(pair: DifferingPair, cells: Sequence[str], of_one: Sequence[str]) -> str:
    """Return the changes of a pair, a line for each; for an item of one bundle only, the facts ``of_one``."""
    changes = pair.changes or tuple(_alone(pair, what) for what in of_one)
    over = f' rowspan="{len(changes)}"'
    status = f'<td{over} class="status {pair.status.replace(" ", "-")}">{pair.status}</td>'
    lead = status + "".join(f"<td{over}>{escape(cell)}</td>" for cell in cells)
    lines = (f"<td>{escape(change.what)}</td>{_sides(change)}" for change in changes)
    return f"<tbody><tr>{lead}{'</tr><tr>'.join(lines)}</tr></tbody>"


def _alone(pair: DifferingPair, what: str) -> Change:
    value = pair.one.facts[what]
    return Change(what, value, "-") if pair.after is None else Change(what, "-", value)


def _sides(change: Change) -> str:
    """Return the cells of A, B and the growth of a number; an address has no growth."""
    grown = "" if change.what == ADDRESS else percent(change)
    cells = (escape(fact(change.before)), escape(fact(change.after)))
    return "".join(f"<td>{cell}</td>" for cell in (*cells, grown))
