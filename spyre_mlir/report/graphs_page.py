# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The index of a folder of reports about graphs of torch.compile, as HTML, from data that is JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

from spyre_mlir.report.html import count, time_text
from spyre_mlir.report.steps_page import document

#: The columns of the table of graphs, and whether they hold numbers.
_COLUMNS = (
    ("graph", False), ("begins at", False), ("inputs", False), ("operations", True), ("on the host", True),
    ("predicted", True), ("share", True),
)  # fmt: skip


def graphs_page(graphs: Sequence[Mapping[str, Any]], breaks: Sequence[Mapping[str, Any]]) -> str:
    """Return the page: a row with a link for each graph, then the graph breaks with their reasons."""
    total = sum(graph["predicted_us"] for graph in graphs)
    parts = [
        f"<p>{count(len(graphs), 'program')} of torch.compile, {time_text(1000 * total)} predicted on the device "
        f"if each runs once; {count(len(breaks), 'graph break')}.</p>",
        *_graphs(graphs, total),
        "<h2>Graph breaks</h2>",
        *_breaks(breaks),
    ]
    return document("Graphs of torch.compile", parts)


def _graphs(graphs: Sequence[Mapping[str, Any]], total: float) -> Iterator[str]:
    heads = "".join(f"<th{_class(is_number)}>{name}</th>" for name, is_number in _COLUMNS)
    yield f'<div class="wide"><table id="graphs"><thead><tr>{heads}</tr></thead><tbody>'
    for graph in graphs:
        cells = zip(_cells(graph, total), _COLUMNS, strict=True)
        yield f"<tr>{''.join(f'<td{_class(is_number)}>{cell}</td>' for cell, (_, is_number) in cells)}</tr>"
    yield "</tbody></table></div>"


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _cells(graph: Mapping[str, Any], total: float) -> Iterator[str]:
    name = graph["name"]
    yield f'<a href="{escape(quote(name))}.html">{escape(name)}</a>'
    yield escape(", ".join(filter(None, (graph["function"], graph["place"]))))
    yield escape(", ".join(graph["inputs"]))
    yield f"{graph['operations']:,}"
    yield f"{graph['host_operations']:,}"
    yield escape(time_text(1000 * graph["predicted_us"]))
    yield f"{graph['predicted_us'] / total:.1%}" if total else ""


def _breaks(breaks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not breaks:
        yield "<p>None: each function is one graph.</p>"
        return
    yield "<p>At each of these places a graph ends, its results go to the host, and Python runs until the next one.</p>"
    yield '<div class="wide"><table id="breaks"><thead><tr><th>at</th><th>line</th><th>why</th></tr></thead><tbody>'
    for entry in breaks:
        place = ", ".join(filter(None, (entry["function"], entry["place"])))
        details = "".join(
            f"<br/>{escape(line.strip())}" for line in entry["details"].splitlines() if line.strip()
        )
        note = f'<span class="note">{details}</span>' if details else ""
        line = f"<code>{escape(entry['line'])}</code>"
        yield f"<tr><td>{escape(place)}</td><td>{line}</td><td>{escape(entry['reason'])}{note}</td></tr>"
    yield "</tbody></table></div>"
