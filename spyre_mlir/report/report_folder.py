# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The folder of SPYRE_REPORT_DIR: a page for each program of ``torch.compile``, and an index of all pages.

    index.html          the graphs with their predicted times, and the graph breaks
    graphs.json         the same as data, to which every process adds
    forward_0_0_1f..    the page of a program, named by its graph, its inputs and its options

Files are replaced atomically, and additions are made under a lock, so any number of processes can share a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spyre_mlir.errors import CompileError
from spyre_mlir.files import read_text, write_text
from spyre_mlir.records import dataclass
from spyre_mlir.report.html import Markup, count, table, time_text
from spyre_mlir.report.program_report import document

#: The environment variable that names the folder.
VARIABLE = "SPYRE_REPORT_DIR"

_DATA, _INDEX, _LOCK = "graphs.json", "index.html", ".lock"

#: The kinds of graphs, in the order in which the graphs of one compilation are listed.
_KINDS = ("graph", "forward", "backward")


@dataclass(frozen=True)
class ReportFolder:
    """A folder of reports; methods raise ``CompileError`` if it cannot be created or written."""

    path: Path

    @classmethod
    def of_environment(cls) -> ReportFolder | None:
        """Return the folder of SPYRE_REPORT_DIR, created if it is missing; None if the variable is not set."""
        name = os.environ.get(VARIABLE)
        if not name:
            return None
        try:
            Path(name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CompileError(
                f"The folder '{name}' of {VARIABLE} cannot be made: {error.strerror}."
            ) from None
        return cls(Path(name))

    def add(self, graphs: Sequence[Mapping[str, Any]], breaks: Sequence[Mapping[str, Any]]) -> None:
        """Add graphs and graph breaks to the data and rewrite the index; graphs of the same names are replaced."""
        with self._locked():
            known = self._read()
            by_name = {graph["name"]: dict(graph) for graph in (*known["graphs"], *graphs)}
            ordered = sorted(by_name.values(), key=_order)
            unique = {json.dumps(entry, sort_keys=True): dict(entry) for entry in (*known["breaks"], *breaks)}
            sorted_breaks = sorted(
                unique.values(), key=lambda entry: (_place(entry["place"]), entry["reason"])
            )
            data = {"graphs": ordered, "breaks": sorted_breaks}
            if data == known:
                return
            write_text(str(self.path / _DATA), json.dumps(data, indent=1) + "\n")
            write_text(str(self.path / _INDEX), graphs_page(ordered, sorted_breaks))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            file = open(self.path / _LOCK, "w")
        except OSError as error:
            raise CompileError(
                f"The folder '{self.path}' of {VARIABLE} cannot be written: {error.strerror}."
            ) from None
        with file:
            # Closing the file releases the lock.
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any]:
        path = self.path / _DATA
        if not path.exists():
            return {"graphs": [], "breaks": []}
        try:
            data = json.loads(read_text(str(path)))
            return {"graphs": list(data["graphs"]), "breaks": list(data["breaks"])}
        except (ValueError, KeyError, TypeError):
            raise CompileError(
                f"The file '{path}' is not a list of graphs; remove it, or set {VARIABLE} to another folder."
            ) from None


def _order(graph: Mapping[str, Any]) -> tuple[Any, ...]:
    numbers = [int(number) for number in graph["compile_id"].split("/") if number.isdigit()]
    return numbers, _KINDS.index(graph["kind"]), graph["name"]


def _place(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdigit() else 0


def graphs_page(graphs: Sequence[Mapping[str, Any]], breaks: Sequence[Mapping[str, Any]]) -> str:
    """Return the index page: a table row with a link for each graph, then the graph breaks with their reasons."""
    total = sum(graph["predicted_us"] for graph in graphs)

    def cells(graph: Mapping[str, Any]) -> tuple[str, ...]:
        name = graph["name"]
        return (
            Markup(f'<a href="{escape(quote(name))}.html">{escape(name)}</a>'),
            ", ".join(filter(None, (graph["function"], graph["place"]))),
            ", ".join(graph["inputs"]),
            f"{graph['operations']:,}",
            f"{graph['host_operations']:,}",
            time_text(1000 * graph["predicted_us"]),
            f"{graph['predicted_us'] / total:.1%}" if total else "",
        )

    heads = ("graph", "begins at", "inputs", "operations", "on the host", "predicted", "share")
    parts = [
        f"<p>{count(len(graphs), 'program')} of torch.compile, {time_text(1000 * total)} predicted on the device "
        f"if each runs once; {count(len(breaks), 'graph break')}.</p>",
        table("graphs", heads, map(cells, graphs), "<<<>>>>"),
        "<h2>Graph breaks</h2>",
        *_break_lines(breaks),
    ]
    return document("Graphs of torch.compile", parts)


def _break_lines(breaks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not breaks:
        yield "<p>None: each function is one graph.</p>"
        return
    yield "<p>At each of these places a graph ends, its results go to the host, and Python runs until the next one.</p>"
    rows = []
    for entry in breaks:
        details = "".join(
            f"<br/>{escape(line.strip())}" for line in entry["details"].splitlines() if line.strip()
        )
        note = f'<span class="note">{details}</span>' if details else ""
        place = ", ".join(filter(None, (entry["function"], entry["place"])))
        code, why = f"<code>{escape(entry['line'])}</code>", f"{escape(entry['reason'])}{note}"
        rows.append((place, Markup(code), Markup(why)))
    yield table("breaks", ("at", "line", "why"), rows, "<<<")
