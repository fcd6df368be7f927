"""The page about a compiled program, in one file of HTML, for a screen that is 1280 pixels wide.

Nothing is loaded from elsewhere. The page is XML too, so that tools can read it; without its script all but the
choices, the order of tables and the keys in pictures is there.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape

from spyre_mlir.report.page_parts import SCRIPT, STYLE
from spyre_mlir.report.panels import (
    division,
    graph,
    lx,
    operations,
    passes,
    remarks,
    roofline,
    summary,
    timeline,
)
from spyre_mlir.report.program_facts import ProgramFacts

Panel = Callable[[ProgramFacts], str]

#: Identifier, heading and panel, in the order of the page.
PANELS: tuple[tuple[str, str, Panel], ...] = (
    ("summary", "Summary", summary.panel),
    ("graph", "Program graph", graph.panel),
    ("division", "Division map", division.panel),
    ("lx", "LX map", lx.panel),
    ("timeline", "Timeline", timeline.panel),
    ("roofline", "Roofline", roofline.panel),
    ("operations", "Operations", operations.panel),
    ("remarks", "Remarks", remarks.panel),
    ("passes", "Compile time per pass", passes.panel),
)


def page(facts: ProgramFacts, name: str = "") -> str:
    """The page as the text of an HTML file. ``name`` is the program's. The panel of passes needs their times."""
    title = escape(f"Report of {name}" if name else "Report")
    panels = [each for each in PANELS if each[0] != "passes" or facts.passes]
    links = "".join(f'<a href="#{identifier}">{heading}</a>' for identifier, heading, _ in panels)
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>',
        f"<style>{STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        f"<nav>{links}</nav>",
        *(
            f'<section id="{identifier}"><h2>{heading}</h2>\n{panel(facts)}\n</section>'
            for identifier, heading, panel in panels
        ),
        '<p id="details" role="status" hidden="hidden"></p>',
        f"<script>{SCRIPT}</script>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"
