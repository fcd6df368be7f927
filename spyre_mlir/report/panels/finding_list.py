# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel of findings: problem, cause, and the change that a trial has shown to help, most important first."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.html import time_text
from spyre_mlir.report.program_facts import ProgramFacts


def panel(facts: ProgramFacts) -> str:
    """Return the findings of a bundle's program in their order; the text of a change can be copied."""
    return finding_list(facts.findings)


def finding_list(findings: Sequence[ProgramFinding]) -> str:
    """Return findings as an HTML list, in the given order."""
    return f'<ol class="findings">\n{"".join(map(_item, findings))}</ol>'


def _item(finding: ProgramFinding) -> str:
    place = " at ".join(filter(None, (finding.module, finding.location)))
    where = f'<p>In <code class="place">{escape(place)}</code></p>' if place else ""
    saved, before, after = (
        time_text(1000 * microseconds)
        for microseconds in (finding.saved_us, finding.before_us, finding.after_us)
    )
    part = finding.saved_us / finding.before_us if finding.before_us else 0.0
    return "\n".join(
        [
            f"<li><h3>{escape(finding.problem)}</h3>",
            f"<p>{escape(finding.cause)}</p>{where}",
            f'<div class="change"><pre tabindex="0">{escape(finding.change)}</pre>'
            f'<button type="button" class="button copy scripted" hidden="hidden"'
            f' aria-label="copy the change: {escape(finding.problem)}">copy</button></div>',
            f'<p><strong class="saving">saves {saved}, {part:.0%}</strong>: {before} become {after}</p></li>',
            "",
        ]
    )
