# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backend of ``torch.compile``, which keeps its programs and writes reports about them."""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from typing import Any

from spyre_mlir.driver.compilation import compile
from spyre_mlir.driver.dynamic import DynamicProgram
from spyre_mlir.driver.piecewise import PiecewiseProgram
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.report_folder import ReportFolder
from spyre_mlir.frontend import dynamo
from spyre_mlir.frontend.graph_labels import GraphLabel, graph_breaks
from spyre_mlir.logs import show_progress

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
