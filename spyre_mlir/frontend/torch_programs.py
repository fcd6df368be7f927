# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The backend of ``torch.compile``, which keeps its programs and writes reports on them."""

from __future__ import annotations

import atexit
import functools
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from typing import Any

from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError, kind_of
from spyre_mlir.frontend import dynamo
from spyre_mlir.frontend.dynamic import DynamicProgram
from spyre_mlir.frontend.dynamo import GraphLabel, graph_breaks
from spyre_mlir.frontend.model_compilation import compile_model
from spyre_mlir.frontend.piecewise import PiecewiseProgram
from spyre_mlir.logs import show_progress
from spyre_mlir.report.report_folder import ReportFolder

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
