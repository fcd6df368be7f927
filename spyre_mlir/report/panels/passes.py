# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Panel of the time of each compiler pass."""

from __future__ import annotations

from spyre_mlir.report.html import WIDTH, figure
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.report.svg import Page

_NAMES, _ROW = 290, 20
_PLOT = WIDTH - _NAMES - 160


def panel(facts: ProgramFacts) -> str:
    """Return a bar for each pass, in pass order."""
    total = sum(seconds for _, seconds in facts.passes)
    longest = max(seconds for _, seconds in facts.passes)
    page = Page()
    for number, (name, seconds) in enumerate(facts.passes):
        top = number * _ROW + 4
        page.text(_NAMES, top + 13, name.partition("{")[0], anchor="end")
        width = max(seconds / (longest or 1) * _PLOT, 0.5)
        page.rectangle("time", _NAMES + 10, top + 3, width, _ROW - 8)
        page.text(_NAMES + 16 + width, top + 13, f"{1000 * seconds:,.1f} ms, {seconds / (total or 1):.0%}")
    return f"<p>{total:.2f} seconds in all passes.</p>{figure(page, 'Compile time per pass')}"
