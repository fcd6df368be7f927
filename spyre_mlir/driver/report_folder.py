# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The folder of SPYRE_REPORT_DIR: a page for each program of torch.compile, and an index of all.

    index.html          the graphs with their predicted times, and the graph breaks
    graphs.json         the same as data, to which every process adds
    forward_0_0_1f..    the page of a program, named by its graph, its inputs and its options

Files are replaced as a whole, and what processes add is added under a lock, so any number of them share a folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spyre_mlir.errors import CompileError
from spyre_mlir.files import read_text, write_text
from spyre_mlir.records import dataclass
from spyre_mlir.report.graphs_page import graphs_page

#: The variable of the environment that names the folder.
VARIABLE = "SPYRE_REPORT_DIR"

_DATA, _INDEX, _LOCK = "graphs.json", "index.html", ".lock"

#: Order of the graphs of one compilation.
_KINDS = ("graph", "forward", "backward")


@dataclass(frozen=True)
class ReportFolder:
    """A folder of reports; ``CompileError`` where it cannot be made or written."""

    path: Path

    @classmethod
    def of_environment(cls) -> ReportFolder | None:
        """Return the folder of SPYRE_REPORT_DIR, which is made if it is missing; None without the variable."""
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
        """Add graphs, in place of those of the same names, and graph breaks to the data, and write the index anew."""
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
            # Closing the file gives the lock back.
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
                f"The file '{path}' is no list of graphs; remove it, or give {VARIABLE} another folder."
            ) from None


def _order(graph: Mapping[str, Any]) -> tuple[Any, ...]:
    numbers = [int(number) for number in graph["compile_id"].split("/") if number.isdigit()]
    return numbers, _KINDS.index(graph["kind"]), graph["name"]


def _place(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line) if line.isdigit() else 0
