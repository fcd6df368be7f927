# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel of the decisions of the passes, with a filter by pass and by text."""

from __future__ import annotations

from html import escape

from spyre_mlir.remarks import Remark
from spyre_mlir.report.html import FILTER, MORE, Cell, Column, Steps, table
from spyre_mlir.report.page_data import remark_steps
from spyre_mlir.report.program_facts import ProgramFacts

#: Maximum number of remarks in a page, so that it stays small.
_MOST = 2000

_COLUMNS = (
    Column("pass", 15),
    Column("decision", 8),
    Column("operation", 10),
    Column("reason", 34),
    Column("before", 7.5, is_number=True),
    Column("after", 7.5, is_number=True),
    Column("steps", 8),
    Column("source", 10),
)


def panel(facts: ProgramFacts) -> str:
    """Return the table, or a sentence if there are no remarks."""
    if not facts.remarks:
        return "<p>Nothing is known of the decisions: the folder has no remarks.jsonl, or no pass decided anything.</p>"
    shown = facts.remarks[:_MOST]
    passes = "".join(
        f"<option>{escape(name)}</option>" for name in dict.fromkeys(entry.pass_name for entry in shown)
    )
    left_out = len(facts.remarks) - len(shown)
    return "\n".join(
        [
            "<p>Steps are the operations from the same line of the source, or those of them that the reason begins"
            " with; costs before and after are in the unit of the pass, mostly bytes.</p>",
            f"<p>The first {_MOST:,}; {left_out:,} more are in remarks.jsonl.</p>" if left_out else "",
            '<div class="listing">',
            '<p class="scripted" hidden="hidden">',
            f'<label>Pass <select><option value="">all</option>{passes}</select></label> {FILTER}</p>',
            table("remarks-table", _COLUMNS, map(_row, shown, remark_steps(facts)), width=1250),
            MORE,
            "</div>",
        ]
    )


def _row(remark: Remark, steps: tuple[int, ...]) -> tuple[Cell, ...]:
    costs = ("" if cost is None else f"{cost:,}" for cost in (remark.before, remark.after))
    source = remark.op_location.rpartition("/")[2]
    return remark.pass_name, remark.kind, remark.op_name, remark.reason, *costs, Steps(steps), source
