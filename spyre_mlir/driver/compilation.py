# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``compile``: compile a PyTorch model or an MLIR module to a program, with the options of the caller."""

from __future__ import annotations

import dataclasses
import inspect
import json
import textwrap
import time
import typing
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload

from spyre_mlir.compile_lock import one_at_a_time
from spyre_mlir.cost.bound import ProgramBound
from spyre_mlir.diagnostics import of_remark
from spyre_mlir.dialects import context as new_context
from spyre_mlir.dialects import parsed, sdsc
from spyre_mlir.driver.argument_layouts import choices, lay_out
from spyre_mlir.driver.build import Built, build
from spyre_mlir.driver.dynamic import DynamicProgram
from spyre_mlir.driver.ktir_program import KtirProgram
from spyre_mlir.driver.piecewise import PiecewiseProgram
from spyre_mlir.driver.program import Program, Provenance
from spyre_mlir.driver.program_cache import ModelCache, ProgramCache
from spyre_mlir.driver.program_calls import weights_of
from spyre_mlir.driver.program_findings import Trials, program_findings
from spyre_mlir.driver.program_state import StateRequest
from spyre_mlir.driver.steps_summary import host_work_warning
from spyre_mlir.driver.stored_program import StoredProgram
from spyre_mlir.errors import CompileError, HostWorkWarning, UncapturedError, without_causes
from spyre_mlir.faults import faults_reported
from spyre_mlir.files import read_text
from spyre_mlir.mlir import ir
from spyre_mlir.options import Options, default_of, documentation_of
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.pipelines.passes_by_level import LevelChoice, entries
from spyre_mlir.pipelines.pipeline_options import PipelineOptions
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import WARNING, Remarks
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.target.target import compiling_for, default_target
from spyre_mlir.tensors.device_tensor import DeviceTensor

if TYPE_CHECKING:
    from spyre_mlir.frontend.dynamic_inputs import DynamicMarks
    from spyre_mlir.frontend.importer import Imported


# Options of ``compile`` as types, and as the signature and the documentation that ``help`` shows.
#
# The pipeline options are the fields of ``PipelineOptions``. Type checkers and editors cannot derive keyword arguments
# from a dataclass, so ``PipelineKeywords`` repeats the fields; a test compares the two.

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

#: Line width of the documentation.
_WIDTH = 116


class PipelineKeywords(TypedDict, total=False):
    """Keyword arguments that ``compile`` passes to the pipeline as its options."""

    verify_each: bool
    uneven_splits: bool
    matmul: Literal["cost", "specified"]
    division: str
    joint_division: str
    layout_choice: str
    tiling: str
    cost_model: str | None
    stick_outermost: bool
    argument_layouts: Literal["price", "default"]
    host_padding: Literal["undefined", "zero"]
    lx_planning: bool
    co_optimizing_lx_planning: bool
    co_optimizer: Literal["joint", "strategy-b"]
    layout_solver: str
    lx_frac_avail: float | None
    clone_inputs: bool
    clone_outputs: bool
    reorder: bool
    moves: bool
    double_buffer: bool
    native_windows: bool
    in_place: bool
    lx_ops: tuple[str, ...]
    order_by_size: bool
    bundle_operations: int
    non_terminal: bool
    tile_attention: bool
    skip_masked_tiles: bool
    tile_for_lx: bool
    tile_for_span: bool
    from_level: str
    insert: tuple[str, ...]
    reuse: bool
    use_plan: str | None
    ktir_addresses: bool
    save_plan: str | None


class CompileKeywords(PipelineKeywords, total=False):
    """All options of ``compile`` except ``dynamic``, on which the result type depends."""

    device: str | Path | None
    sencores: int | None
    precision: Literal["device", "strict"]
    numerics: Literal["ieee", "dl16"] | None
    layouts: Mapping[str | int, Any] | None
    plan: Mapping[str, Any] | str | Path | None
    fallback: bool
    autocast: Any
    one_bundle: bool
    target: Literal["bundle", "ktir"]
    cache: bool | None
    passes: Mapping[str, LevelChoice] | Sequence[str] | None
    state: bool | Sequence[str] | Mapping[str, Any] | None


@dataclass(frozen=True)
class ProgramOptions(Options):
    """Simple options of ``compile`` that are not pipeline options; they are checked in the same way."""

    numerics: Literal["ieee", "dl16"] | None = None
    fallback: bool = True
    one_bundle: bool = True
    target: Literal["bundle", "ktir"] = "bundle"
    cache: bool | None = None

    @classmethod
    def title(cls) -> str:
        """The owner of the options, as error messages call it."""
        return "function compile"


def with_pipeline_options(function: FunctionT) -> FunctionT:
    """Decorate a function with ``**options``: add each pipeline option to its signature and its documentation."""
    signature = inspect.signature(function)
    *parameters, _ = signature.parameters.values()
    names = {parameter.name for parameter in parameters}
    types = typing.get_type_hints(PipelineOptions)
    passed_on = [field for field in dataclasses.fields(PipelineOptions) if field.name not in names]
    keywords = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default_of(field),
            annotation=inspect.formatannotation(types[field.name]),
        )
        for field in passed_on
    ]
    function.__signature__ = signature.replace(parameters=[*parameters, *keywords])  # type: ignore[attr-defined]
    function.__doc__ = (
        f"{inspect.getdoc(function)}\n\nOptions of the pipeline:\n\n{documentation(passed_on)}\n"
    )
    return function


def documentation(fields: Sequence[dataclasses.Field[Any]]) -> str:
    """Return one paragraph per option, with its name, type, default and documentation."""
    types = typing.get_type_hints(PipelineOptions)
    paragraphs = []
    for field in fields:
        type_ = inspect.formatannotation(types[field.name])
        text = f"{field.name}: {type_} = {default_of(field)!r}: {documentation_of(field)}."
        paragraphs.append(textwrap.fill(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False))
    return "\n".join(paragraphs)


@overload
def compile(
    module_or_mlir: Any,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    dynamic: None = None,
    **options: Unpack[CompileKeywords],
) -> Program: ...


@overload
def compile(
    module_or_mlir: Any,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    dynamic: Mapping[str, Any] | Sequence[Any],
    **options: Unpack[CompileKeywords],
) -> DynamicProgram[Program]: ...


@with_pipeline_options
def compile(
    module_or_mlir: Any,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    device: str | Path | None = None,
    sencores: int | None = None,
    precision: Literal["device", "strict"] = "device",
    numerics: Literal["ieee", "dl16"] | None = None,
    layouts: Mapping[str | int, Any] | None = None,
    plan: Mapping[str, Any] | str | Path | None = None,
    fallback: bool = True,
    autocast: Any = None,
    dynamic: Mapping[str, Any] | Sequence[Any] | None = None,
    one_bundle: bool = True,
    target: Literal["bundle", "ktir"] = "bundle",
    cache: bool | None = None,
    passes: Mapping[str, LevelChoice] | Sequence[str] | None = None,
    state: bool | Sequence[str] | Mapping[str, Any] | None = None,
    **pipeline_options: Unpack[PipelineKeywords],
) -> Program | DynamicProgram[Program] | PiecewiseProgram:
    """Compile a ``torch.nn.Module``, a function, an exported program, or MLIR.

    Warnings of passes are issued as Python warnings. ``HostWorkWarning`` is issued if the host runs over 1 % of the
    floating-point operations.

    Args:
        module_or_mlir: A PyTorch model, or a linalg module: its text, the path of an .mlir file, or an ``ir.Module``.
        inputs: Example inputs of a PyTorch model: a tuple, or a mapping for keyword inputs. For a module: arrays or
            device tensors by position. The layout of a ``DeviceTensor`` becomes the layout of the input.
        device: A device file (default: SPYRE_DEVICE, or the packaged one; docs/devices.md).
        sencores: The number of cores that the program may use (default: SENCORES, or all).
        precision: "device" (fp16 islands stay fp16) or "strict" (the types of the linalg).
        numerics: The numerics of the simulator, "ieee" or bit-true "dl16" (the default for programs with bfloat16,
            because IEEE fp16 cannot represent its range).
        layouts: Layouts of inputs, parameters and constants, by name or by the position of an input, and of results, as
            "result0": each a mapping with the ``stick_dims``, ``dim_order`` and ``stick_outermost`` of ``to_device``.
        plan: Fixed decisions of the compiler: a plan file, or the value of ``Program.plan`` (docs/plans.md).
        fallback: Run operations that the device does not support on the host; if False, they are an error
            (docs/host.md).
        autocast: A type (torch.float16, torch.bfloat16, or the name of one) to which a PyTorch model is cast as by
            ``torch.autocast("cpu", ..)``; "dl16" means fp16, with "dl16" as the default of ``numerics``.
        dynamic: The granularity and the largest size in elements of named dims of the inputs, or the
            ``dynamic_shapes`` of ``torch.export``; ``torch._dynamo.mark_dynamic`` on an input has the same effect
            (docs/dynamic.md).
        one_bundle: Use one bundle for all sizes of ``dynamic`` if possible; otherwise one bundle per requested size.
        target: "bundle", or "ktir" for a program in KTIR, which ktir-cpu runs (docs/ktir.md).
        cache: Reuse programs from the cache on disk (default: SPYRE_CACHE, or True; docs/cache.md).
        passes: User-defined passes, keyed by the level after which they run: ``{"laid-out": [MyPass()]}``, as instances
            or as pipeline text (docs/writing-a-pass.md).
        state: The arguments that stay in device memory between calls as ``Program.state``: True for all buffers that
            the model changes, names of arguments, or a mapping from names to tensors, such as the state of another
            program, which is then shared (docs/serving.md).
        **pipeline_options: The options of the pipeline, the fields of ``SpyrePipeline``.

    Returns:
        The program; a ``DynamicProgram`` with ``dynamic``, a ``KtirProgram`` for "ktir", and a ``PiecewiseProgram``
        for a model whose shapes or branches depend on values.

    Raises:
        CompileError: The model, the module or an option is rejected; the message says what to change.
    """
    with one_at_a_time(), without_causes(), faults_reported():
        words = ProgramOptions.of(
            numerics=numerics, fallback=fallback, one_bundle=one_bundle, target=target, cache=cache
        )
        given = {
            "device": device, "sencores": sencores, "precision": precision, "numerics": words.numerics,
            "layouts": layouts, "plan": plan, "fallback": words.fallback, "autocast": autocast,
            "cache": words.cache, "passes": passes, "state": state, **pipeline_options,
        }  # fmt: skip
        is_model = not isinstance(module_or_mlir, ir.Module | str | Path)
        marks = _dynamic_marks(module_or_mlir, inputs, dynamic) if is_model else None
        if dynamic is None and marks is None:
            defaults = {"precision": "device", "fallback": True, "cache": None}
            chosen = {
                name: value
                for name, value in given.items()
                if value is not None and not (name in defaults and value == defaults[name])
            }
            trials = Trials(module_or_mlir, inputs, chosen, is_model, compile)
            program = _program(module_or_mlir, inputs, **given, trials=trials)
            # A ``PiecewiseProgram`` issues the warnings of its pieces when they are compiled.
            if isinstance(program, Program):
                if sentence := host_work_warning(program.steps, program.pass_remarks):
                    warnings.warn(sentence, HostWorkWarning, stacklevel=2)
                _warn_of_passes(program, stacklevel=3)
            if words.target == "ktir":
                if state:
                    raise CompileError(
                        "A program in KTIR has no state; compile it without the option 'state'."
                    )
                return KtirProgram.of(program, addresses=bool(pipeline_options.get("ktir_addresses")))
            return program
        if words.target != "bundle":
            raise CompileError("A program with dynamic dims has no form in KTIR; compile it for one size.")
        if not is_model:
            raise CompileError(
                "Only a PyTorch model has dynamic dims; a module in MLIR has one size of each."
            )
        model, dims, occurrences = marks or (module_or_mlir, dict(dynamic or {}), ())
        symbolic = partial(_program, **given) if words.one_bundle else None
        compiled = partial(compile, **given)
        return DynamicProgram(model, inputs, dims, compiled, symbolic, autocast, occurrences)


def _dynamic_marks(
    model: Any, inputs: Sequence[Any] | Mapping[str, Any], dynamic: Any
) -> DynamicMarks | None:
    """Return the dynamic dims that PyTorch objects declare, in the option or else in the model and its inputs."""
    from spyre_mlir.frontend.dynamic_inputs import marks_of_inputs, marks_of_shapes

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


def _program(
    module_or_mlir: Any,
    inputs: Sequence[Any] | Mapping[str, Any],
    *,
    device: str | Path | None,
    sencores: int | None,
    precision: str,
    numerics: str | None,
    layouts: Mapping[str | int, Any] | None,
    plan: Mapping[str, Any] | str | Path | None,
    fallback: bool,
    autocast: Any,
    cache: bool | None,
    passes: Mapping[str, LevelChoice] | Sequence[str] | None,
    state: bool | Sequence[str] | Mapping[str, Any] | None,
    mark: Callable[[Imported, Collection[str]], None] | None = None,
    trials: Trials | None = None,
    **pipeline_options: Any,
) -> Program | PiecewiseProgram:
    """Compile a model or a module with the options of ``compile``; ``mark`` is called with the imported model."""
    pipeline = SpyrePipeline.of(device=device, sencores=sencores, precision=precision, **pipeline_options)
    pipeline = replace(pipeline, passes=entries(() if passes is None else passes))
    if isinstance(plan, str | Path):
        pipeline, plan = replace(pipeline, use_plan=str(plan)), None
    kept = StateRequest.of(state)
    chosen = kept.with_layouts(choices({} if layouts is None else layouts, pipeline.stick_outermost))
    if autocast == "dl16" and numerics is None:
        numerics = "dl16"
    request = _Choices(pipeline, precision, chosen, numerics, plan, fallback, autocast, kept, mark, trials)
    # The cache is not used with ``mark``, because its changes to the module are not part of the key.
    programs = ProgramCache.open(pipeline, cache) if mark is None else None
    if isinstance(module_or_mlir, ir.Module | str | Path):
        if kept:
            raise CompileError("The option 'state' is for PyTorch models; a module in MLIR has none.")
        if autocast is not None:
            raise CompileError(
                "The option 'autocast' is for PyTorch models; spyre-compile --autocast and the pass "
                "autocast-products cast the products of a module in MLIR."
            )
        return _compiled_mlir(module_or_mlir, inputs, request, programs)
    try:
        return _compiled_model(module_or_mlir, inputs, request, programs)
    except UncapturedError as reason:
        return _in_pieces(module_or_mlir, inputs, replace(request, trials=None), programs, reason)


def _in_pieces(
    model: Any,
    inputs: Sequence[Any] | Mapping[str, Any],
    request: _Choices,
    programs: ProgramCache | None,
    reason: UncapturedError,
) -> PiecewiseProgram:
    """Compile a model piece by piece; raise the ``reason`` why it is not one program if pieces are not allowed."""
    # An exported program is one graph, without Python code that could run between pieces.
    if not request.fallback or not callable(model) or hasattr(model, "graph_signature"):
        raise reason
    if (
        request.chosen
        or request.pipeline.use_plan
        or request.plan is not None
        or request.autocast is not None
        or request.state
    ):
        raise CompileError(
            "The options 'layouts', 'plan', 'autocast' and 'state' are for a model that is one program. "
            f"{reason.message}",
            reason.location,
        ) from reason

    def compiled(function: Callable[..., Any], example: Sequence[Any]) -> Program:
        """Compile a piece and issue the warnings of its passes, but no ``HostWorkWarning``."""
        with one_at_a_time():
            program = _compiled_model(function, example, request, programs)
        _warn_of_passes(program, stacklevel=4)
        return program

    return PiecewiseProgram(model, inputs, compiled, reason)


@dataclass(frozen=True)
class _Choices:
    """The options of a call of ``compile``, parsed; ``plan`` is a mapping, because the pipeline has a plan file."""

    pipeline: SpyrePipeline
    precision: str
    chosen: Mapping[str | int, Any]
    numerics: str | None
    plan: Mapping[str, Any] | None
    fallback: bool
    autocast: Any
    state: StateRequest
    mark: Callable[[Imported, Collection[str]], None] | None = None
    trials: Trials | None = None

    @property
    def key(self) -> str:
        """The text, for the cache key, of the options that affect the program and are not pipeline options."""
        plan = None if self.plan is None else _json(self.plan)
        chosen = sorted(self.chosen.items(), key=repr)
        return repr(
            [self.precision, chosen, plan, self.fallback, str(self.autocast), sorted(self.state.given)]
        )

    def restored(self, stored: StoredProgram, **parts: Any) -> Program:
        """Create a program from its stored form; its IR and its plan are computed on demand."""
        pipeline = self.pipeline if self.plan is None else replace(self.pipeline, use_plan="")
        return Program.restored(
            stored,
            self.numerics,
            build=lambda module: build(module, pipeline, self.fallback),
            plan=partial(_plan_text, pipeline=pipeline),
            restore=self.restore,
            search=self.search,
            **parts,
        )

    @property
    def restore(self) -> Callable[..., Program]:
        """The function that restores a pickled program, which has no findings."""
        return replace(self, trials=None).restored

    @property
    def search(self) -> Callable[[Program], tuple[ProgramFinding, ...]] | None:
        """The function that computes the findings of the program."""
        return None if self.trials is None else partial(program_findings, trials=self.trials)


def _compiled_mlir(
    source: ir.Module | str | Path,
    inputs: Sequence[Any] | Mapping[str, Any],
    request: _Choices,
    programs: ProgramCache | None,
) -> Program:
    """Compile a module, or read its program from the cache."""
    laid_out = {
        position: tensor.layout for position, tensor in enumerate(inputs) if isinstance(tensor, DeviceTensor)
    }
    key = "" if programs is None else programs.key(*_text_and_path(source), repr(laid_out), request.key)
    if programs is not None and (program := programs.serve(key, request.restored)) is not None:
        return program
    module = _parsed(source)
    lay_out(module, request.pipeline, laid_out, request.chosen)
    built, provenance = _compiled(module, request)
    program = Program(built, request.numerics, provenance=provenance, search=request.search)
    # The file was read twice and may have changed in between.
    if programs is not None and key == programs.key(*_text_and_path(source), repr(laid_out), request.key):
        programs.keep(key, lambda: program.stored(key))
    return program


def _text_and_path(source: ir.Module | str | Path) -> tuple[str, str]:
    """Return the text of a module, and the path in its locations."""
    if not isinstance(source, str | Path):
        return str(source.operation.get_asm(enable_debug_info=True)), ""
    return (read_text(str(source)), str(source)) if _is_file(source) else (str(source), "")


def _compiled_model(
    model: Any, inputs: Sequence[Any] | Mapping[str, Any], request: _Choices, programs: ProgramCache | None
) -> Program:
    """Compile a PyTorch model, or read its program from the cache, with its weights and its state."""
    from spyre_mlir.frontend.meta_tensors import stand_ins  # imports torch

    with stand_ins(model, inputs) as (example, missing):
        program = _without_state(model, example, request, programs)
        if request.state:
            program.state = request.state.tensors(program._built, program.signature, example)
    if missing:
        program.drop_numbers(missing)
    return program


def _without_state(
    model: Any, inputs: Sequence[Any] | Mapping[str, Any], request: _Choices, programs: ProgramCache | None
) -> Program:
    """Compile a PyTorch model, or read its program from the cache, with its weights."""
    # These import torch.
    from spyre_mlir.frontend import capture_torch, import_torch
    from spyre_mlir.frontend.content_reads import ContentReads

    begun = time.perf_counter()
    reads, target = ContentReads(), request.pipeline.target_from(default_target())
    with compiling_for(target), reads.collecting():  # layouts that the model requests are created here
        captured = capture_torch(model, inputs, request.autocast)
        entry = ModelCache.open(programs, captured, inputs, request.key)
        if entry is not None:
            program = entry.serve(
                lambda stored, signature: request.restored(
                    stored, signature=signature, arrays=weights_of(signature)
                )
            )
            if program is not None:
                return program
        imported = import_torch(
            captured, inputs, context=new_context(), precision=request.precision, state=request.state.given
        )
        request.state.check(imported.signature)
    import_seconds = time.perf_counter() - begun
    if imported.module is not None:
        if request.mark is not None:
            with compiling_for(target):  # ``mark`` imports the model again
                request.mark(imported, request.state.given)
        lay_out(imported.module, request.pipeline, imported.input_layouts, request.chosen)
        built, provenance = _compiled(imported.module, request, imported.signature.updated())
    elif results := [key for key in request.chosen if str(key).startswith("result")]:
        raise CompileError(
            f"There is no '{results[0]}' to lay out: the model computes nothing on the device."
        )
    else:
        built, provenance = Built([], [], [], []), Provenance(bound=ProgramBound(0, 0, {}))
    program = Program(
        built,
        request.numerics,
        arrays=weights_of(imported.signature),
        signature=imported.signature,
        provenance=provenance,
        import_seconds=import_seconds,
        search=request.search,
    )
    if entry is not None and imported.module is not None:
        entry.keep(program, imported.signature, reads)
    return program


def _is_file(source: str | Path) -> bool:
    return isinstance(source, Path) or ("\n" not in source and source.endswith(".mlir"))


def _parsed(source: ir.Module | str | Path) -> ir.Module:
    """Parse a module from text or from a file, or copy the caller's module."""
    if not isinstance(source, str | Path):
        # The caller's module is in another context, perhaps without our dialects, so it is copied into ours
        # as text with locations.
        return parsed(str(source.operation.get_asm(enable_debug_info=True)), new_context())
    from spyre_mlir.diagnostics import compile_error

    try:
        if _is_file(source):
            return parsed(read_text(str(source)), new_context(), str(source))
        return parsed(str(source), new_context())
    except ir.MLIRError as error:
        raise compile_error(error, "The module cannot be parsed.") from error


def _compiled(
    module: ir.Module, request: _Choices, updates: Mapping[int, str] | None = None
) -> tuple[Built, Provenance]:
    """Compile a module in place; return its steps and its linalg, for which ``updates`` is as in ``Provenance``."""
    pipeline = request.pipeline
    if request.plan is not None:
        module.operation.attributes[sdsc.PLAN] = ir.StringAttr.get(_json(request.plan), module.context)
        pipeline = replace(pipeline, use_plan="")
    # Before ``build``, which changes the module, and after the plan is set, because the copy must contain the plan.
    source = module.operation.clone().operation
    built = build(module, pipeline, request.fallback)
    plan = partial(_plan_text, pipeline=pipeline)
    return built, Provenance(source, updates=updates or {}, plan=plan, restore=request.restore)


def _json(plan: Mapping[str, Any]) -> str:
    try:
        return json.dumps(plan)
    except (TypeError, ValueError) as error:
        raise CompileError(f"The plan has a value that JSON has not: {error}.") from None


def _warn_of_passes(program: Program, stacklevel: int) -> None:
    """Issue the warnings of passes as Python warnings."""
    for remark in Remarks(program.pass_remarks).of_kind(WARNING):
        warnings.warn(str(of_remark(remark)), stacklevel=stacklevel)


def _plan_text(source: ir.OpView | ir.Operation, pipeline: SpyrePipeline) -> str:
    """Return the text of a program's plan file, by compiling the program again."""
    module = source.operation.clone()
    run_pipeline(module, replace(pipeline, save_plan="").pipeline("placed"))
    return ir.StringAttr(module.operation.attributes[sdsc.PLAN]).value
