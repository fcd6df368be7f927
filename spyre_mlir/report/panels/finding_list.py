"""What is slow, why, and the change that a trial has shown to help, what saves most first."""

from __future__ import annotations

from html import escape

from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.html import time_text
from spyre_mlir.report.program_facts import ProgramFacts


def panel(facts: ProgramFacts) -> str:
    """A list in order of what is saved; the text of a change can be copied."""
    findings = sorted(facts.findings, key=lambda finding: -finding.saved_us)
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
