# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backend of ``torch.compile``, which keeps its programs and writes reports on them."""

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

from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError, kind_of
from spyre_mlir.files import read_text, write_text
from spyre_mlir.frontend import dynamo
from spyre_mlir.frontend.dynamic import DynamicProgram
from spyre_mlir.frontend.dynamo import GraphLabel, graph_breaks
from spyre_mlir.frontend.model_compilation import compile_model
from spyre_mlir.frontend.piecewise import PiecewiseProgram
from spyre_mlir.logs import show_progress
from spyre_mlir.records import dataclass
from spyre_mlir.report.html import Markup, count, table, time_text
from spyre_mlir.report.program_report import document

AnyProgram = Program | PiecewiseProgram | DynamicProgram[Program]

#: The number of most recent programs that are kept.
MOST_PROGRAMS = 64


class TorchBackend:
    """The backend of ``torch.compile``: each graph of the model is a program on the simulator.

    ``torch.compile(model, backend=spyre_mlir.torch_backend, options={"sencores": 8})`` takes the options of
    ``spyre_mlir.compile``. A graph that cannot be compiled raises ``CompileError`` when it is called.

    With ``SPYRE_REPORT_DIR=DIR`` in the environment each program has a page in the folder DIR, whose ``index.html``
    lists the graphs and the graph breaks.

    Args:
        compile: The function that compiles a graph, with the arguments of ``spyre_mlir.compile``.

    Attributes:
        programs: The last 64 compiled programs, in order: forward and backward graphs, one for each combination of
            shapes. Use ``programs[-1].summary()`` and ``.report("x.html")`` to inspect a graph, and
            ``programs.clear()`` to free the memory.
        on_program: A function that is called with each program.
        defaults: A function that returns options of ``spyre_mlir.compile`` for graphs without other options.
    """

    def __init__(self, compile: Callable[..., Any]) -> None:
        self.programs: list[AnyProgram] = []
        self.defaults: Callable[[], Mapping[str, Any]] = dict
        self.on_program: Callable[[AnyProgram], None] | None = None
        self.__module__, self.__name__ = "spyre_mlir", "torch_backend"
        self._compile = compile
        self._lock = threading.Lock()

    def __call__(
        self,
        graph: Any,
        example_inputs: Sequence[Any],
        *,
        options: Mapping[str, Any] | None = None,
        mode: str = "default",
    ) -> Callable[..., Any]:
        """Return a callable for a Dynamo graph, which compiles its programs when it is called.

        Args:
            graph: The graph, a ``torch.fx.GraphModule``.
            example_inputs: The inputs of the graph, with shapes and types.
            options: Options of ``spyre_mlir.compile``.
            mode: The ``mode`` of ``torch.compile``, which must be the default.
        """
        if mode != "default":
            text = "The backend has no modes; remove mode={!r}, or give options such as options={{'sencores': 8}}."
            return partial(dynamo.refuse, CompileError(text.format(mode)))
        if options is not None and not isinstance(options, Mapping):
            text = f"The options of torch.compile are a mapping such as {{'sencores': 8}}, not {kind_of(options)}."
            return partial(dynamo.refuse, CompileError(text))
        compile_options = {**self.defaults(), **(options or {})}
        autocast = compile_options.pop("autocast", None)
        keep = partial(self._keep, repr(sorted(compile_options.items(), key=repr)))
        return dynamo.compiled(
            graph, example_inputs, partial(self._compile, **compile_options), autocast, keep
        )

    def backend_ctx_ctor(self) -> AbstractContextManager[Any]:
        """Context in which Dynamo calls and traces models for this backend."""
        return dynamo.tracing()

    def __reduce__(self) -> str:
        # A copy is the same object, as for a function, because copying a compiled model also copies its backend.
        return self.__name__

    def __repr__(self) -> str:
        return f"<spyre_mlir.torch_backend, with {len(self.programs)} programs>"

    def _keep(self, options: str, label: GraphLabel, program: AnyProgram) -> None:
        if isinstance(program, Program):
            program.release_inputs()
        with self._lock:
            self.programs.append(program)
            del self.programs[:-MOST_PROGRAMS]
        if self.on_program is not None:
            self.on_program(program)
        if (folder := ReportFolder.of_environment()) is None:
            return
        # The page of the program, and its line in the index, with the graph breaks so far.
        name = label.name(options)
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
    """Register, once per process, that graph breaks after the last graph are added to the index at exit."""
    atexit.register(lambda: folder.add([], _breaks()))


torch_backend: TorchBackend = TorchBackend(compile_model)
"""The backend of ``torch.compile``, whose class, ``TorchBackend``, is its manual."""


# The folder of SPYRE_REPORT_DIR: a page for each program of ``torch.compile``, and an index of all pages.
#
#     index.html          the graphs with their predicted times, and the graph breaks
#     graphs.json         the same as data, to which every process adds
#     forward_0_0_1f..    the page of a program, named by its graph, its inputs and its options
#
# Files are replaced atomically, and additions are made under a lock, so any number of processes can share a folder.


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
