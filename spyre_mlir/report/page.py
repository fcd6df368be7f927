# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page about a compiled program, in one HTML file.

The page supports windows from 380 pixels on, and the light or dark mode of the system. It loads nothing from elsewhere.
It is also XML, so that tools can read it; without its script it has the numbers, graph, roofline and tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from importlib import resources

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.report.page_data import json_text, page_data
from spyre_mlir.report.panels import division, graph, lx, passes, provenance
from spyre_mlir.report.panels import finding_list as findings
from spyre_mlir.report.panels import module_list as modules
from spyre_mlir.report.panels import operation_list as operations
from spyre_mlir.report.panels import remark_list as remarks
from spyre_mlir.report.panels import ring_diagram as ring
from spyre_mlir.report.panels import roofline_diagram as roofline
from spyre_mlir.report.panels import summary_table as summary
from spyre_mlir.report.panels import timeline_diagram as timeline
from spyre_mlir.report.program_facts import ProgramFacts

Panel = Callable[[ProgramFacts], str]

#: Identifier, heading and panel, in the order of the page.
PANELS: tuple[tuple[str, str, Panel], ...] = (
    ("findings", "Findings", findings.panel),
    ("summary", "Summary", summary.panel),
    ("graph", "Program graph", graph.panel),
    ("modules", "Modules", modules.panel),
    ("division", "Division map", division.panel),
    ("lx", "LX map", lx.panel),
    ("timeline", "Timeline", timeline.panel),
    ("ring", "Ring", ring.panel),
    ("roofline", "Roofline", roofline.panel),
    ("operations", "Operations", operations.panel),
    ("provenance", "Provenance", provenance.panel),
    ("remarks", "Remarks", remarks.panel),
    ("passes", "Compile time per pass", passes.panel),
)


#: The scripts of the page, in the order of their dependencies.
_SCRIPTS = (
    "charts.js",
    "modules.js",
    "graph.js",
    "module_table.js",
    "provenance.js",
    "timeline.js",
    "scratchpad.js",
    "page.js",
    "tables.js",
    "pane.js",
)

_NO_CODE = re.compile(r"^ +|^ *//.*\n|^\n", re.MULTILINE)

#: Keys and their actions.
_KEYS = (
    ("/", "filter the table on the screen"),
    ("?", "these keys"),
    ("Tab", "the next table, picture or button"),
    ("↑ ↓ Home End", "in a table the next row, in the graph and the roofline the next item"),
    ("Enter Space", "open the operation of a row or an item; on the name of a column, sort"),
    ("+ - 0", "in the timeline and the LX map: zoom in, out, show all"),
    ("← →", "there: move; in the LX map ↑ ↓ too"),
    ("] [", "in the LX map: stretch and shrink the addresses"),
    ("N P", "there: the next and the previous bar or box"),
    ("Esc", "close the operation, leave a picture, empty a filter"),
)


def page(facts: ProgramFacts, bundle: Bundle, name: str = "") -> str:
    """Return the page of a bundle and its facts as the text of an HTML file. ``name`` is the name of the program.

    A panel is omitted if it would be empty: most panels need an operation, and the panels of findings, modules, pass
    times and ring use need at least one such item. The page has lines of source files if the files can be read.
    """
    title = escape(f"Report of {name}" if name else "Report")
    needed = {
        "findings": facts.findings,
        "modules": any(operation.module for operation in facts.operations),
        "provenance": facts.operations,
        "passes": facts.passes,
        "ring": facts.timeline.links,
    }
    panels = [entry for entry in PANELS if needed.get(entry[0], True)]
    scripts = "\n".join(map(_script, _SCRIPTS))
    links = "".join(f'<a href="#{identifier}">{heading}</a>' for identifier, heading, _ in panels)
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<style>{_resource('page.css')}</style></head><body>",
        f"<header><h1>{title}</h1>",
        f'<nav aria-label="Panels">{links}<button type="button" id="help" class="scripted" hidden="hidden">keys: ?'
        "</button></nav></header>",
        "<main>",
        *(_section(identifier, heading, panel(facts)) for identifier, heading, panel in panels),
        "</main>",
        '<aside id="pane" aria-label="Operation" tabindex="-1" hidden="hidden"></aside>',
        '<p id="details" role="status" hidden="hidden"></p>',
        '<div id="hint" aria-hidden="true" hidden="hidden"></div>',
        _keys(),
        f'<script type="application/json" id="data">{json_text(page_data(facts, bundle))}</script>',
        f"<script>//<![CDATA[\n{{{scripts}}}\n//]]></script>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _section(identifier: str, heading: str, inside: str) -> str:
    named = f'id="{identifier}" aria-labelledby="{identifier}-heading"'
    return f'<section {named}><h2 id="{identifier}-heading">{heading}</h2>\n{inside}\n</section>'


def _keys() -> str:
    rows = "".join(f"<tr><td>{_caps(keys)}</td><td>{escape(meaning)}</td></tr>" for keys, meaning in _KEYS)
    close = '<form method="dialog"><button>close</button></form>'
    return f'<dialog id="keys" aria-label="Keys"><h3>Keys</h3><table><tbody>{rows}</tbody></table>{close}</dialog>'


def _caps(keys: str) -> str:
    return " ".join(f"<kbd>{escape(key)}</kbd>" for key in keys.split())


def _script(name: str) -> str:
    """Return a script without comments and indentation, a third of its size; no script has multi-line strings."""
    return _NO_CODE.sub("", _resource(name))


def _resource(name: str) -> str:
    return resources.files("spyre_mlir.report").joinpath(name).read_text(encoding="utf-8")
