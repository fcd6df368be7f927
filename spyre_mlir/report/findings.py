# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A finding: a reason why a program is slow, with a change that a trial has shown to make it faster."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from html import escape

from spyre_mlir.records import dataclass
from spyre_mlir.report.html import time_text

#: Maximum number of characters of a line of text.
_WIDTH = 96


@dataclass(frozen=True)
class ProgramFinding:
    """A problem of a program, its cause and place, and a change with the time that it saves.

    Attributes:
        problem: The problem, as a sentence.
        cause: The cause of the problem, as a sentence.
        module: The path in the model, such as ``layers.3.attn``; empty if it is unknown.
        location: The line of the source, ``model.py:12:5``; empty if it is unknown.
        change: Text to copy: an option of ``compile``, or the line of the model to change.
        before_us: The predicted microseconds of the whole program without the change.
        after_us: The predicted microseconds of the whole program with the change.
    """

    problem: str
    cause: str
    module: str
    location: str
    change: str
    before_us: float
    after_us: float

    @property
    def saved_us(self) -> float:
        """The microseconds that the change saves."""
        return self.before_us - self.after_us


def finding_rows(findings: Sequence[ProgramFinding], untried: str = "") -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each line of a summary about the findings, in the given order.

    ``untried`` describes changes that were not tried, or whose trials saved nothing.
    """

    def lines(name: str, text: str) -> Iterator[tuple[str, str]]:
        # Words are not broken, so that a change can be copied.
        lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
        yield from zip((name, *[""] * len(lines)), lines, strict=False)

    if untried:
        yield from lines("findings", untried)
    for number, finding in enumerate(findings, 1):
        yield from lines(f"finding {number}", finding.problem)
        yield from lines("  cause", finding.cause)
        places = (f"in {finding.module}" if finding.module else "", finding.location.rpartition("/")[2])
        if where := ", ".join(filter(None, places)):
            yield "  where", where
        yield from lines("  change", finding.change)
        share = finding.saved_us / finding.before_us
        yield "  saves", f"{finding.before_us:,.1f} -> {finding.after_us:,.1f} us, {share:.1%}, by a trial"


def finding_list(findings: Sequence[ProgramFinding]) -> str:
    """Return findings as an HTML list, in the given order; the text of a change can be copied."""
    return f'<ol class="findings">\n{"".join(map(_item, findings))}</ol>'


def _item(finding: ProgramFinding) -> str:
    place = " at ".join(filter(None, (finding.module, finding.location)))
    where = f'<p>In <code class="place">{escape(place)}</code></p>' if place else ""
    times = (finding.saved_us, finding.before_us, finding.after_us)
    saved, before, after = (time_text(1000 * microseconds) for microseconds in times)
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
