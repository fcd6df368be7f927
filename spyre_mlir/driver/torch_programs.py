# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backend of ``torch.compile``, which keeps its programs and writes reports about them."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spyre_mlir.driver.compilation import compile
from spyre_mlir.driver.dynamic import DynamicProgram
from spyre_mlir.driver.piecewise import PiecewiseProgram
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError
from spyre_mlir.files import read_text, write_text
from spyre_mlir.frontend import dynamo
from spyre_mlir.frontend.graph_labels import GraphLabel, graph_breaks
from spyre_mlir.logs import show_progress
from spyre_mlir.records import dataclass
from spyre_mlir.report.html import count, time_text
from spyre_mlir.report.steps_page import document

AnyProgram = Program | PiecewiseProgram | DynamicProgram[Program]

#: Programs that are kept; the first goes when there is one more.
MOST_PROGRAMS = 64


class TorchBackend:
    """The backend of ``torch.compile``: each graph of the model is a program on the simulator.

    ``torch.compile(model, backend=spyre_mlir.torch_backend, options={"sencores": 8})``; the options are those of
    ``compile``. What cannot be compiled is a ``CompileError`` of the call.

    With ``SPYRE_REPORT_DIR=DIR`` in the environment each program has a page in the folder DIR, whose ``index.html``
    lists the graphs and the graph breaks.

    Attributes:
        programs: The last 64 that were compiled, in order: forward and backward graphs, one for each combination of
            shapes. ``programs[-1].summary()`` and ``.report("x.html")`` say what became of a graph;
            ``programs.clear()`` lets them go.
    """

    def __init__(self, compile: Callable[..., Any]) -> None:
        self.programs: list[AnyProgram] = []
        self.__module__, self.__name__ = "spyre_mlir", "torch_backend"
        self._compile = compile
        self._lock = threading.Lock()

    def __call__(
        self, graph: Any, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
    ) -> Callable[..., Any]:
        """Return a callable for a graph of Dynamo, whose programs are compiled when it is called.

        Args:
            graph: The graph, a ``torch.fx.GraphModule``.
            example_inputs: Its inputs, with shapes and types.
            options: Options of ``compile``.
        """
        compile_options = dict(options or {})
        autocast = compile_options.pop("autocast", None)
        keep = partial(self._keep, repr(sorted((options or {}).items(), key=repr)))
        return dynamo.compiled(
            graph, example_inputs, partial(self._compile, **compile_options), autocast, keep
        )

    def backend_ctx_ctor(self) -> AbstractContextManager[Any]:
        """Context in which Dynamo calls and traces models for this backend."""
        return dynamo.tracing()

    def __reduce__(self) -> str:
        # Its copy is itself, as that of a function is: that of a compiled model has it.
        return self.__name__

    def __repr__(self) -> str:
        return f"<spyre_mlir.torch_backend, with {len(self.programs)} programs>"

    def _keep(self, options: str, label: GraphLabel, program: AnyProgram) -> None:
        with self._lock:
            self.programs.append(program)
            del self.programs[:-MOST_PROGRAMS]
        if (folder := ReportFolder.of_environment()) is not None:
            _write_report(folder, label, label.name(options), program)


def _write_report(folder: ReportFolder, label: GraphLabel, name: str, program: AnyProgram) -> None:
    """Write the page of a program and add it to the index, with the graph breaks so far."""
    show_progress(f"report {name}")
    program.report(folder.path / f"{name}.html")
    figures = {} if isinstance(program, DynamicProgram) else program.metrics()
    graph = {
        "name": name,
        "kind": label.kind,
        "compile_id": label.compile_id,
        "place": label.place,
        "function": label.function,
        "inputs": list(label.inputs),
        "operations": int(figures.get("device_operations", 0)),
        "host_operations": int(figures.get("host_operations", 0)),
        "predicted_us": figures.get("predicted_us", 0.0),
    }
    folder.add([graph], _breaks())
    _add_breaks_at_exit(folder)


def _breaks() -> list[dict[str, str]]:
    return [asdict(entry) for entry in graph_breaks()]


@functools.cache
def _add_breaks_at_exit(folder: ReportFolder) -> None:
    """Add those behind the last graph too, once in a process."""
    atexit.register(lambda: folder.add([], _breaks()))


torch_backend: TorchBackend = TorchBackend(compile)
"""The backend of ``torch.compile``, whose class, ``TorchBackend``, is its manual."""


# The folder of SPYRE_REPORT_DIR: a page for each program of torch.compile, and an index of all.
#
#     index.html          the graphs with their predicted times, and the graph breaks
#     graphs.json         the same as data, to which every process adds
#     forward_0_0_1f..    the page of a program, named by its graph, its inputs and its options
#
# Files are replaced as a whole, and what processes add is added under a lock, so any number of them share a folder.

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


# The index of a folder of reports about graphs of torch.compile, as HTML, from data that is JSON.

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
        *_break_lines(breaks),
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


def _break_lines(breaks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
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
