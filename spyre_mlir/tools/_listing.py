# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Listings of spyre-opt: passes with their options, algorithms by the option that names them, and dialects."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

from spyre_mlir import dialects as our_dialects
from spyre_mlir import logs
from spyre_mlir import passes as our_passes
from spyre_mlir.algorithms import REGISTRIES, place_of_class
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, upstream
from spyre_mlir.tables import aligned


def passes(name: str = "") -> str:
    """List our passes (name, first sentence, options with defaults), then upstream's; for a ``name``, its manual.

    The name ``spyre-pipeline`` lists the passes of the pipeline in execution order, with the level that they produce.
    """
    if name == "spyre-pipeline":
        known = our_passes.load_all()
        rows = [
            (level, str(step), _first_line(known.get(step.name)))
            for level, pipeline in SpyrePipeline().stages()
            for step in pipeline.steps
        ]
        return "\n".join([*aligned(rows, "<<<"), ""])
    known = our_passes.load_all()
    if name and name not in known:
        upstream.require(name, tuple(known))
        return f"{upstream.nested(name, f'{name}{{{upstream.options(name)}}}')}\n\nA pass of MLIR.\n"
    if name:
        options = known[name].describe()
        return f"{name}{{{options}}}\n\n{inspect.getdoc(known[name])}\n"
    width = max(map(len, known), default=0)
    lines = []
    for flag, pass_ in known.items():
        options = pass_.describe()
        lines.append(f"--{flag:{width}}  {_first_line(pass_)}")
        lines += [f"  {'':{width}}    {options}"] if options else []
    return "\n".join([*lines, "", "of MLIR:", *_upstream_passes()]) + "\n"


def _upstream_passes() -> Iterator[str]:
    with ir.Context():
        for name in upstream.names():
            # A pass on functions is shown nested in func.func, as in a pipeline.
            nested, options = upstream.nested(name, name), upstream.options(name)
            yield f"--{name}" + (f"  {nested}" if nested != name else "")
            if options:
                yield f"    {options}"


def _first_line(pass_: type[our_passes.Pass] | None) -> str:
    if pass_ is None:
        return "(of MLIR)"
    return next(iter((inspect.getdoc(pass_) or "").splitlines()), "")


def plugins() -> str:
    """List the algorithms of each option, with the file or the package that defines each, and mark the defaults."""
    rows = []
    for option, registry in REGISTRIES.items():
        packages = registry.packages()
        for name in registry.names():
            cls = registry.classes.get(name)
            origin = packages.get(name) or (place_of_class(cls) if cls and cls.is_foreign() else "built in")
            default = ", the default" if name == registry.default else ""
            rows.append((option.replace("_", "-"), name, origin + default))
    return "\n".join([*aligned(rows, "<<<"), ""])


def dialects() -> str:
    """List our dialects with the first line of their manuals, then the names of upstream's dialects."""
    lines = []
    for dialect in our_dialects.DIALECTS:
        manual = inspect.getdoc(sys.modules[dialect.__module__]) or ""
        lines.append(f"{dialect.DIALECT_NAMESPACE:12}{manual.splitlines()[0] if manual else ''}")
    return "\n".join(lines) + f"\nupstream: {_upstream_dialects()}\n"


def _upstream_dialects() -> str:
    """Return the names of upstream's dialects, read from a diagnostic."""
    # The bindings do not list dialects, but the note on an unknown dialect names all of them.
    with ir.Context():
        try:
            ir.Module.parse("unknown.op")
        except ir.MLIRError as error:
            notes = " ".join(str(note.message) for note in error.error_diagnostics[0].notes)
            return notes.partition("Available dialects: ")[2].partition(";")[0].strip()
    return ""


def candidates(source: str, pipeline: SpyrePipeline, name: str) -> str:
    """List the divisions, tilings and argument layouts of an operation, with the figures of the whole program.

    ``name`` is a name of the plan file, such as ``exp.0``, or an opcode, which stands for its longest operation.
    """
    # On use: the other listings need no compilation.
    from spyre_mlir.api import compile
    from spyre_mlir.experiments.tuning import TuningSpace

    chosen = pipeline.changed()
    program = compile(source, cache=False, **chosen)
    space = TuningSpace.of(program, **chosen)
    known = [each for each in space.weights if each == name or each.rpartition(".")[0] == name]
    if not known:
        raise CompileError(f"The program has no operation '{name}'; it has {listed(space.weights, name)}.")
    operation = max(known, key=lambda each: space.weights[each])
    position = list(space.weights).index(operation)
    read = program.facts().operations[position].buffers
    rows: list[tuple[str, ...]] = [
        ("choice", "HBM bytes", "us"),
        (f"{operation}: as compiled", *_figures(program)),
    ]
    for parameter, values in space.parameters().items():
        for number, value in enumerate(values):
            is_tiling = parameter.startswith("tile ") and operation in value
            of_argument = parameter.startswith("lay out ") and parameter.removeprefix("lay out ") in read
            if not (is_tiling or of_argument or parameter == f"divide {operation}"):
                continue
            text = space.text(parameter, number)
            logs.show_progress(f"candidates: {text}")
            options, plan = space.call({parameter: number})
            try:
                figures = _figures(compile(source, plan=plan, cache=False, **{**chosen, **options}))
            except CompileError as error:
                figures = ("refused", error.message)
            rows.append((text, *figures))
    logs.clear_progress()
    return "\n".join([*aligned(rows, "<>>"), ""])


def _figures(program: Any) -> tuple[str, str]:
    metrics = program.metrics()
    return f"{metrics['hbm_read_bytes'] + metrics['hbm_written_bytes']:,}", f"{metrics['predicted_us']:,.2f}"
