"""The map of the scratchpads, as ``spyre-report --lx`` draws it."""

from __future__ import annotations

from spyre_mlir.report import lx_page
from spyre_mlir.report.html import count
from spyre_mlir.report.program_facts import ProgramFacts

#: The map of more steps would be most of the page.
_LARGEST = 1000


def panel(facts: ProgramFacts) -> str:
    """The map, or for a large program how to get it."""
    if len(facts.map.steps) > _LARGEST:
        return (
            f"<p>The program has {count(len(facts.map.steps), 'step')}; <code>spyre-report --lx DIR -o lx.html</code>"
            " draws their map as a page of its own.</p>"
        )
    return lx_page.content(facts.map)
