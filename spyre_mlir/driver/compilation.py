# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compilation of a module to a program, and the options and the frame that models share (``spyre_mlir.compile``)."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import textwrap
import typing
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar, Unpack

from spyre_mlir.compile_lock import one_at_a_time
from spyre_mlir.diagnostics import of_remark
from spyre_mlir.dialects import context as new_context
from spyre_mlir.dialects import parsed, sdsc
from spyre_mlir.driver.argument_layouts import choices, lay_out
from spyre_mlir.driver.build import Built, build
from spyre_mlir.driver.checking import require_no_races
from spyre_mlir.driver.ktir_program import KtirProgram
from spyre_mlir.driver.mesh_program import MeshProgram
from spyre_mlir.driver.program import Program, Provenance
from spyre_mlir.driver.program_cache import ProgramCache
from spyre_mlir.driver.program_calls import StateRequest
from spyre_mlir.driver.program_figures import host_work_warning
from spyre_mlir.driver.program_findings import FindingSearch, Trials
from spyre_mlir.driver.stored_program import StoredProgram
from spyre_mlir.errors import (
    CompileError,
    HostWorkWarning,
    PassWarning,
    listed,
    shown_path,
    with_suggestion,
    without_causes,
)
from spyre_mlir.faults import faults_reported
from spyre_mlir.files import read_text, require_mlir
from spyre_mlir.mlir import ir
from spyre_mlir.options import Options, default_of, documentation_of
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.pipelines.pipeline_options import LevelChoice, PipelineOptions, entries
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import WARNING, Remarks
from spyre_mlir.tensors.device_tensor import DeviceTensor

# Options of ``compile`` as types, and as the signature and the documentation that ``help`` shows.
#
# The pipeline options are the fields of ``PipelineOptions``. Type checkers and editors cannot derive keyword arguments
# from a dataclass, so ``PipelineKeywords`` repeats the fields; a test compares the two.

#: Inputs of a model or a module: a tuple, or a mapping for keyword inputs.
Inputs: TypeAlias = Sequence[Any] | Mapping[str, Any]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

#: Line width of the documentation.
_WIDTH = 116


class PipelineKeywords(TypedDict, total=False):
    """Keyword arguments that ``compile`` passes to the pipeline as its options."""

    preset: Literal["", "seed"]
    verify_each: bool
    uneven_splits: bool
    matmul: Literal["cost", "specified"]
    division: str
    joint_division: str | None
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
    bundle_tensors: int
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
    """All options of ``compile`` except ``dynamic`` and ``mesh``, on which the result type depends."""

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
    check: bool
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
    check: bool = False

    @classmethod
    def title(cls) -> str:
        """The owner of the options, as error messages call it."""
        return "function compile"


#: Defaults other than None of the options of ``compile`` that are not pipeline options.
_DEFAULTS = {"precision": "device", "fallback": True, "check": False}

#: Compiles a source with example inputs, the option ``dynamic``, and the other options that are not defaults.
FrontEnd = Callable[[Any, Inputs, Any, ProgramOptions, dict[str, Any]], Any]


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


def compile_with(
    front_end: FrontEnd,
    source: Any,
    inputs: Inputs,
    *,
    numerics: Literal["ieee", "dl16"] | None = None,
    fallback: bool = True,
    dynamic: Mapping[str, Any] | Sequence[Any] | None = None,
    one_bundle: bool = True,
    target: Literal["bundle", "ktir"] = "bundle",
    cache: bool | None = None,
    check: bool = False,
    **options: Any,
) -> Any:
    """Compile a source by its front end, with the options of ``spyre_mlir.compile``.

    Warnings name the line that calls the caller of this function.
    """
    with one_at_a_time(), without_causes(), faults_reported():
        words = ProgramOptions.of(
            numerics=numerics,
            fallback=fallback,
            one_bundle=one_bundle,
            target=target,
            cache=cache,
            check=check,
        )
        options |= {name: getattr(words, name) for name in ("numerics", "fallback", "cache", "check")}
        given = {
            name: value
            for name, value in options.items()
            if value is not None and (name not in _DEFAULTS or value != _DEFAULTS[name])
        }
        program = front_end(source, inputs, dynamic, words, given)
        # A program in pieces or of several sizes issues the warnings of its programs when they are compiled. The ranks
        # of a mesh have the same warnings.
        of_warnings = program.ranks[0] if isinstance(program, MeshProgram) else program
        if isinstance(of_warnings, Program):
            if sentence := host_work_warning(of_warnings.steps, of_warnings.pass_remarks):
                warnings.warn(sentence, HostWorkWarning, stacklevel=3)
            warn_of_passes(of_warnings, stacklevel=4)
        if words.target == "ktir":
            if options.get("state"):
                raise CompileError("A program in KTIR has no state; compile it without the option 'state'.")
            return KtirProgram.of(program, addresses=bool(options.get("ktir_addresses")))
        return program


def compile_mlir(
    source: ir.Module | str | Path, inputs: Sequence[Any] = (), **options: Unpack[CompileKeywords]
) -> Program:
    """Compile a module, with the options of ``spyre_mlir.compile``."""
    return compile_with(mlir_program, source, inputs, **options)


def mlir_program(
    source: ir.Module | str | Path,
    inputs: Inputs,
    dynamic: Any,
    words: ProgramOptions,
    options: dict[str, Any],
) -> Program:
    """Front end of modules: compile a module, or read its program from the cache."""
    if dynamic is not None:
        raise CompileError("Only a PyTorch model has dynamic dims; the dims of a module in MLIR are static.")
    checked = CompileOptions.of(Trials(source, lambda: inputs, options, compile_mlir), **options)
    if checked.state:
        raise CompileError("The option 'state' is for PyTorch models; a module in MLIR has none.")
    if checked.autocast is not None:
        raise CompileError(
            "The option 'autocast' is for PyTorch models; spyre-compile --autocast and the pass "
            "autocast-products cast the products of a module in MLIR."
        )
    programs = checked.open_cache()
    laid_out = {
        position: tensor.layout for position, tensor in enumerate(inputs) if isinstance(tensor, DeviceTensor)
    }
    key = "" if programs is None else programs.key(*_text_and_path(source), repr(laid_out), checked.key)
    if programs is not None and (program := programs.serve(key, checked.restored)) is not None:
        return program
    module = _parsed(source)
    lay_out(module, checked.pipeline, laid_out, checked.layouts)
    built, provenance = compiled(module, checked)
    program = Program(built, checked.numerics, provenance=provenance, search=checked.search)
    # The file was read twice and may have changed in between.
    if programs is not None and key == programs.key(*_text_and_path(source), repr(laid_out), checked.key):
        programs.keep(key, lambda: program.stored(key))
    return program


@dataclass(frozen=True)
class CompileOptions:
    """The options of ``compile`` for one program, checked: options of the pipeline, and options of the driver.

    ``plan`` is a mapping, because the pipeline has the path of a plan file. ``mark`` is called with the imported model.
    """

    pipeline: SpyrePipeline
    layouts: Mapping[str | int, Any]
    numerics: str | None
    plan: Mapping[str, Any] | None
    fallback: bool
    autocast: Any
    state: StateRequest
    cache: bool | None
    check: bool
    mark: Callable[[Any, Collection[str]], None] | None = None
    trials: Trials | None = None

    @classmethod
    def of(
        cls,
        trials: Trials | None = None,
        /,
        *,
        numerics: str | None = None,
        layouts: Mapping[str | int, Any] | None = None,
        plan: Mapping[str, Any] | str | Path | None = None,
        fallback: bool = True,
        autocast: Any = None,
        cache: bool | None = None,
        check: bool = False,
        passes: Mapping[str, LevelChoice] | Sequence[str] | None = None,
        state: bool | Sequence[str] | Mapping[str, Any] | None = None,
        **pipeline_options: Any,
    ) -> CompileOptions:
        """Check the options; raise ``CompileError`` for an invalid option."""
        names = typing.get_type_hints(CompileKeywords) | {"dynamic": None, "mesh": None}
        for name in pipeline_options:
            if name.replace("-", "_") not in names:
                sentence = f"The function compile has no option '{name}'; its options: {listed(names, name)}."
                raise CompileError(with_suggestion(sentence, name, names))
        pipeline = SpyrePipeline.of(**pipeline_options)
        pipeline = replace(pipeline, passes=entries(() if passes is None else passes))
        if isinstance(plan, str | Path):
            pipeline, plan = replace(pipeline, use_plan=str(plan)), None
        kept = StateRequest.of(state)
        return cls(
            pipeline,
            layouts=kept.with_layouts(choices({} if layouts is None else layouts, pipeline.stick_outermost)),
            numerics="dl16" if autocast == "dl16" and numerics is None else numerics,
            plan=plan,
            fallback=fallback,
            autocast=autocast,
            state=kept,
            cache=cache,
            check=check,
            trials=trials,
        )

    def open_cache(self) -> ProgramCache | None:
        """Return the cache of programs; None if it is disabled or if ``mark`` is set.

        The changes of ``mark`` to the module are not part of the key.
        """
        return None if self.mark is not None else ProgramCache.open(self.pipeline, self.cache)

    @property
    def key(self) -> str:
        """The text, for the cache key, of the options that affect the program and are not pipeline options."""
        plan = None if self.plan is None else _json(self.plan)
        precision, layouts = self.pipeline.precision, sorted(self.layouts.items(), key=repr)
        return repr([precision, layouts, plan, self.fallback, str(self.autocast), sorted(self.state.given)])

    def restored(self, stored: StoredProgram, **parts: Any) -> Program:
        """Create a program from its stored form; its IR and its plan are computed on demand."""
        if self.check:
            require_no_races(stored.built.steps)
        pipeline = self.pipeline if self.plan is None else replace(self.pipeline, use_plan="")
        return Program.restored(
            stored,
            self.numerics,
            build=lambda module: build(module, pipeline, self.fallback),
            pipeline=pipeline,
            restore=self.restore,
            search=self.search,
            **parts,
        )

    @property
    def restore(self) -> Callable[..., Program]:
        """The function that restores a pickled program, which has no findings."""
        return replace(self, trials=None, check=False).restored

    @property
    def search(self) -> FindingSearch | None:
        """The search for the findings of the program."""
        return None if self.trials is None else FindingSearch(self.trials)


def _text_and_path(source: ir.Module | str | Path) -> tuple[str, str]:
    """Return the text of a module, and the path in its locations."""
    if not isinstance(source, str | Path):
        return str(source.operation.get_asm(enable_debug_info=True)), ""
    return (read_text(str(source)), str(source)) if _is_file(source) else (str(source), "")


def _is_file(source: str | Path) -> bool:
    """Return whether a source is the path of an .mlir file; ``CompileError`` for another file, and for a name."""
    if isinstance(source, Path) or re.fullmatch(r"[^\s(){}]+", source):
        require_mlir(str(source))
        if isinstance(source, str) and not source.endswith(".mlir"):
            if source.startswith("zoo:"):
                raise CompileError(
                    f"{shown_path(source)} is a program of the zoo; give *spyre_mlir.zoo.load({source[4:]!r})."
                )
            raise CompileError(
                f"{shown_path(source)} is neither the text of a module nor the path of an .mlir file; give a PyTorch "
                "model, such as transformers.AutoModel.from_pretrained(..) returns for a name."
            )
        return True
    return "\n" not in source and source.endswith(".mlir")


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


def compiled(
    module: ir.Module, options: CompileOptions, updates: Mapping[int, str] | None = None
) -> tuple[Built, Provenance]:
    """Compile a module in place; return its steps and its linalg, for which ``updates`` is as in ``Provenance``."""
    pipeline = options.pipeline
    if options.plan is not None:
        module.operation.attributes[sdsc.PLAN] = ir.StringAttr.get(_json(options.plan), module.context)
        pipeline = replace(pipeline, use_plan="")
    # Before ``build``, which changes the module, and after the plan is set, because the copy must contain the plan.
    source = module.operation.clone().operation
    built = build(module, pipeline, options.fallback)
    if options.check:
        require_no_races(built.steps)
    return built, Provenance(source, updates=updates or {}, pipeline=pipeline, restore=options.restore)


def _json(plan: Mapping[str, Any]) -> str:
    try:
        return json.dumps(plan)
    except (TypeError, ValueError) as error:
        raise CompileError(f"The plan contains a value that JSON cannot represent: {error}.") from None


def warn_of_passes(program: Program, stacklevel: int) -> None:
    """Issue the warnings of passes as Python warnings."""
    for remark in Remarks(program.pass_remarks).of_kind(WARNING):
        warnings.warn(str(of_remark(remark)), PassWarning, stacklevel=stacklevel)
