# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Front end of PyTorch models: one program, a program for each piece of a model, or a program of several sizes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spyre_mlir.compile_lock import one_at_a_time
from spyre_mlir.cost.bound import ProgramBound
from spyre_mlir.dialects import context as new_context
from spyre_mlir.driver.argument_layouts import lay_out
from spyre_mlir.driver.build import Built
from spyre_mlir.driver.compilation import (
    CompileOptions,
    Inputs,
    ProgramOptions,
    compile_with,
    compiled,
    warn_of_passes,
)
from spyre_mlir.driver.program import Program, Provenance
from spyre_mlir.errors import CompileError, UncapturedError
from spyre_mlir.frontend.capture_key import ModelCache
from spyre_mlir.frontend.content_reads import ContentReads
from spyre_mlir.frontend.dynamic import DynamicProgram
from spyre_mlir.frontend.dynamic_inputs import (
    DynamicMarks,
    example_inputs_of,
    marks_of_inputs,
    marks_of_shapes,
)
from spyre_mlir.frontend.importer import capture_torch, import_torch
from spyre_mlir.frontend.meta_tensors import stand_ins
from spyre_mlir.frontend.model_edits import ModelTrials
from spyre_mlir.frontend.piecewise import PiecewiseProgram
from spyre_mlir.target.target import compiling_for, default_target


def compile_model(model: Any, inputs: Inputs = (), **options: Any) -> Any:
    """Compile a model, with the options and the results of ``spyre_mlir.compile``."""
    return compile_with(model_program, model, inputs, **options)


def model_program(
    model: Any,
    inputs: Inputs,
    dynamic: Any,
    words: ProgramOptions,
    options: dict[str, Any],
) -> Program | DynamicProgram[Program] | PiecewiseProgram:
    """Front end of models: compile a model, or read its program from the cache."""
    inputs = inputs or example_inputs_of(model)
    marks = _dynamic_marks(model, inputs, dynamic)
    if dynamic is None and marks is None:
        trials = ModelTrials(model, inputs, options, compile_model)
        return _program(model, inputs, CompileOptions.of(trials, **options))
    if words.target != "bundle":
        raise CompileError("A program with dynamic dims has no form in KTIR; compile it for one size.")
    marked, dims, occurrences = marks or (model, dict(dynamic or {}), ())
    checked = replace(CompileOptions.of(**options), fallback=False)
    symbolic = partial(_symbolic_program, checked) if words.one_bundle else None
    autocast = options.get("autocast")
    return DynamicProgram(
        marked, inputs, dims, partial(compile_model, **options), symbolic, autocast, occurrences
    )


def _dynamic_marks(model: Any, inputs: Inputs, dynamic: Any) -> DynamicMarks | None:
    """Return the dynamic dims that PyTorch objects declare, in the option or else in the model and its inputs."""

    def names_dims(entry: Any) -> bool:
        """Return whether an entry of the option is in the form of ``dynamic_shapes`` of ``torch.export``."""
        dims = (
            entry.values() if isinstance(entry, Mapping) else entry if isinstance(entry, tuple | list) else ()
        )
        return isinstance(entry, Mapping) or any(
            hasattr(dim, "max") and hasattr(dim, "__name__") for dim in dims
        )

    if dynamic is None:
        return marks_of_inputs(model, inputs)
    is_by_name = isinstance(dynamic, Mapping) and not any(map(names_dims, dynamic.values()))
    return None if is_by_name else marks_of_shapes(model, inputs, dynamic)


def _program(model: Any, inputs: Inputs, options: CompileOptions) -> Program | PiecewiseProgram:
    """Compile a model for the shapes of its inputs."""
    try:
        return _compiled_model(model, inputs, options)
    except UncapturedError as reason:
        return _in_pieces(model, inputs, replace(options, trials=None), reason)


def _symbolic_program(
    options: CompileOptions, model: Any, inputs: Any, *, mark: Callable[..., None]
) -> Program | PiecewiseProgram:
    """Compile a model whose sizes ``mark`` makes parameters of the program."""
    return _program(model, inputs, replace(options, mark=mark))


def _in_pieces(
    model: Any,
    inputs: Inputs,
    options: CompileOptions,
    reason: UncapturedError,
) -> PiecewiseProgram:
    """Compile a model piece by piece; raise the ``reason`` why it is not one program if pieces are not allowed."""
    # An exported program is one graph, without Python code that could run between pieces.
    if not options.fallback or not callable(model) or hasattr(model, "graph_signature"):
        raise reason
    if (
        options.layouts
        or options.pipeline.use_plan
        or options.plan is not None
        or options.autocast is not None
        or options.state
    ):
        raise CompileError(
            "The options 'layouts', 'plan', 'autocast' and 'state' are for a model that is one program. "
            f"{reason.message}",
            reason.location,
        ) from reason

    def compiled_piece(function: Callable[..., Any], example: Sequence[Any]) -> Program:
        """Compile a piece and issue the warnings of its passes, but no ``HostWorkWarning``."""
        with one_at_a_time():
            program = _compiled_model(function, example, options)
        warn_of_passes(program, stacklevel=4)
        return program

    return PiecewiseProgram(model, inputs, compiled_piece, reason)


def _compiled_model(model: Any, inputs: Inputs, options: CompileOptions) -> Program:
    """Compile a PyTorch model, or read its program from the cache, with its weights and its state."""
    with stand_ins(model, inputs) as (example, missing):
        program = _without_state(model, example, options)
        if options.state:
            program.state = options.state.tensors(program._built, program.signature, example)
    if missing:
        program.drop_numbers(missing)
    return program


def _without_state(model: Any, inputs: Inputs, options: CompileOptions) -> Program:
    """Compile a PyTorch model, or read its program from the cache, with its weights."""
    begun = time.perf_counter()
    programs = (
        options.open_cache()
    )  # before ``compiling_for``, which changes the settings that the cache notes
    reads, target = ContentReads(), options.pipeline.target_from(default_target())
    with compiling_for(target), reads.collecting():  # layouts that the model requests are created here
        captured = capture_torch(model, inputs, options.autocast)
        entry = ModelCache.open(programs, captured, inputs, options.key)
        if entry is not None:
            program = entry.serve(
                lambda stored, signature: options.restored(
                    stored, signature=signature, arrays=signature.weights()
                )
            )
            if program is not None:
                return program
        imported = import_torch(
            captured,
            inputs,
            context=new_context(),
            precision=options.pipeline.precision,
            state=options.state.given,
        )
        options.state.check(imported.signature)
    import_seconds = time.perf_counter() - begun
    if imported.module is not None:
        if options.mark is not None:
            with compiling_for(target):  # ``mark`` imports the model again
                options.mark(imported, options.state.given)
        lay_out(imported.module, options.pipeline, imported.input_layouts, options.layouts)
        built, provenance = compiled(imported.module, options, imported.signature.updated())
    elif results := [key for key in options.layouts if str(key).startswith("result")]:
        raise CompileError(
            f"There is no '{results[0]}' to lay out: the model computes nothing on the device."
        )
    else:
        built, provenance = Built([], [], [], []), Provenance(bound=ProgramBound(0, 0, {}))
    program = Program(
        built,
        options.numerics,
        arrays=imported.signature.weights(),
        signature=imported.signature,
        provenance=provenance,
        import_seconds=import_seconds,
        search=options.search,
    )
    if entry is not None and imported.module is not None:
        entry.keep(program, imported.signature, reads)
    return program
