# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a pipeline: a pass manager for each pass, so that an error, a printout, a time and a remark belong to one."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeAlias

from spyre_mlir import logs, passes
from spyre_mlir.analysis.kept_usage import usage_kept
from spyre_mlir.bundle.level_lines import LevelLine
from spyre_mlir.diagnostics import compile_error, of_remark
from spyre_mlir.dialects.structured import parsed_once
from spyre_mlir.dialects.targets import settle, target_of
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.faults import faults_reported, note_place, note_user
from spyre_mlir.layout import ViewError
from spyre_mlir.mlir import PassManager, ir
from spyre_mlir.passes.base import EvaluatingPass, is_ours
from spyre_mlir.passes.fold_repeated_layers import FoldRepeatedLayers
from spyre_mlir.passes.unfold_repeated_layers import NotPeriodic, UnfoldRepeatedLayers
from spyre_mlir.pipelines import upstream
from spyre_mlir.pipelines.fault_place import fault_place
from spyre_mlir.pipelines.level_text import INPUT, KEPT, level_lines
from spyre_mlir.pipelines.observed import ObservedManager, Observer
from spyre_mlir.pipelines.pipeline_evaluator import Costs, PipelineEvaluator, no_layout
from spyre_mlir.pipelines.printing import Printing
from spyre_mlir.pipelines.text import Pipeline, PipelineStep
from spyre_mlir.pipelines.whole_module import WholeModule
from spyre_mlir.remarks import WARNING, Remark, Remarks
from spyre_mlir.timing import Timing, entered, scope

_MODULE = "builtin.module"

Managers: TypeAlias = Sequence[tuple[PipelineStep, PassManager | ObservedManager]]


@faults_reported()
def run_pipeline(
    module: ir.Module | ir.Operation | ir.OpView,
    pipeline: Pipeline | str,
    *,
    printing: Printing | None = None,
    verify_each: bool = True,
    timing: Timing | None = None,
    remarks: Remarks | None = None,
    levels: dict[str, Sequence[LevelLine]] | None = None,
    observers: Sequence[Observer] = (),
) -> None:
    """Run the passes on a module in place.

    Args:
        module: The module.
        pipeline: The passes, or their text.
        printing: What is printed of the IR between passes.
        verify_each: Upstream's check of the IR after each pass.
        timing: It gets the seconds of each pass.
        remarks: It gets the decisions of the passes.
        levels: It gets the lines of the input and of each level that is kept, by name.
        observers: They see the IR between passes.

    Raises:
        CompileError: A pass fails; an ``InternalError`` by a fault of it. A user's pass raises whatever it raises.
    """
    operation = module.operation
    if isinstance(pipeline, str):
        pipeline = Pipeline.parse(pipeline)
    # Verifiers and passes in Python need the interpreter lock, which a pool of MLIR threads would wait for.
    operation.context.enable_multithreading(False)
    collecting = remarks.collecting() if remarks is not None else contextlib.nullcontext()
    timed = timing.collecting() if timing is not None else contextlib.nullcontext()
    hidden = logs.hidden_progress() if printing and printing.is_wanted else contextlib.nullcontext()
    with operation.context, operation.location, collecting, timed, hidden, parsed_once(), usage_kept():
        # All managers are built before the first runs: a misspelt option fails while the module is
        # unchanged.
        whole = WholeModule(operation, remarks, levels)
        managers = list(_managers(pipeline, verify_each, printing, whole, operation.name))
        whole.run = partial(_run_between, managers)
        observers = [*observers, *([printing] if printing and printing.is_wanted else [])]
        observed = [(step, ObservedManager(step, manager, observers)) for step, manager in managers]
        # What follows may run in another process, which has another default.
        settle(operation)
        if levels is not None:
            levels[INPUT] = level_lines(operation)
        try:
            _run_folded(observed if observers else managers, operation, remarks, whole)
        finally:
            # A manager holds its pass where Python does not see it, so that a circle with it is never freed.
            managers.clear()
            observed.clear()


def _run_folded(
    managers: Managers,
    operation: ir.Operation,
    remarks: Remarks | None,
    whole: WholeModule,
) -> None:
    """Run the steps; where layers that were left out cannot be copied, or not placed, once more with more layers."""
    first = 0
    while True:
        try:
            return _run_steps(managers, first, operation, remarks, whole)
        except NotPeriodic:
            first = whole.keep_more_layers()
        except CompileError as error:
            if not whole.is_unfolded or isinstance(error, AlgorithmError):
                raise
            first = whole.restore()


def _run_between(
    managers: Managers,
    begin: int,
    end: int,
    operation: ir.Operation,
) -> None:
    """Run the steps from ``begin`` to ``end`` on another module, which nobody is told about."""
    with Remarks().collecting():
        for step, manager in managers[begin:end]:
            _run(step, manager, operation, None)


def _run_steps(
    managers: Managers,
    first: int,
    operation: ir.Operation,
    remarks: Remarks | None,
    whole: WholeModule,
) -> None:
    """Run the steps from index ``first`` on; ``whole`` keeps the module in front of the pass that leaves out layers."""
    numbered = itertools.islice(enumerate(managers), first, None)
    for stage, steps in itertools.groupby(numbered, key=lambda entry: entry[1][0].stage):
        with scope(stage, "stages") if stage else contextlib.nullcontext():
            for index, (step, manager) in steps:
                if isinstance(step.ours, FoldRepeatedLayers):
                    whole.keep(index, step.ours)
                with scope(step.name, "passes", str(step), (index + 1, len(managers))):
                    _run(step, manager, operation, remarks)
        if whole.levels is not None and stage in KEPT:
            whole.levels[stage] = level_lines(operation)


def check(pipeline: Pipeline, context: ir.Context) -> None:
    """Raise for a pass that does not exist or options that it does not take, without running anything."""
    with context:
        list(_managers(pipeline, True, None))


def _managers(
    pipeline: Pipeline,
    verify_each: bool,
    printing: Printing | None,
    whole: WholeModule | None = None,
    anchor: str = _MODULE,
) -> Iterator[tuple[PipelineStep, PassManager]]:
    """Yield the steps, each with its pass manager; an evaluating pass gets an evaluator of what follows it.

    ``anchor`` is the name of the operation that they run on.
    """
    costs: Costs = {}
    for index, step in enumerate(pipeline.steps):
        manager = PassManager(anchor)
        manager.enable_verifier(verify_each)
        if step.ours:
            if anchor != _MODULE:
                raise CompileError(
                    f"The pass '{step.name}' runs on a module, not on '{anchor}'.", step.location
                )
            run = _callable(pipeline, index, costs, whole)
            manager.add(run, name=type(step.ours).__name__, argument=str(step.ours))
        else:
            _add_upstream(manager, step, anchor)
        if printing is not None:
            printing.apply(manager, step.name)
        yield step, manager


def _callable(
    pipeline: Pipeline, index: int, costs: Costs, whole: WholeModule | None
) -> Callable[[ir.Operation, object], None]:
    pass_ = pipeline.steps[index].ours
    assert pass_ is not None
    if isinstance(pass_, EvaluatingPass):
        evaluator = PipelineEvaluator.of_step(pipeline, index, costs)
        return lambda operation, _: pass_.decide(operation, evaluator)
    if isinstance(pass_, UnfoldRepeatedLayers) and whole is not None:
        return lambda operation, _: whole.unfold(pass_, index, operation)
    return lambda operation, _: pass_.run(operation)


def _add_upstream(manager: PassManager, step: PipelineStep, anchor: str) -> None:
    # What runs on functions runs on the one function that the input is.
    is_nested = step.text.startswith(f"{anchor}(")
    try:
        upstream.add(manager, step.text[len(anchor) + 1 : -1] if is_nested else step.text, step.name)
    except ValueError as error:
        raise CompileError(_upstream_reason(step, str(error)), step.location) from None


def _upstream_reason(step: PipelineStep, error: str) -> str:
    # A pass may have pipelines of others as options, so the name in the error is not always that of the step.
    unknown = re.search(r"'([^'\n]*)' does not refer to a registered pass", error)
    if unknown:
        return upstream.no_pass(unknown[1], tuple(passes.load_all()))
    refusing = re.search(r"failed to add `([\w-]+)`", error)
    name = refusing[1] if refusing else step.name
    option = re.search(r"no such option (\S+)", error)
    if option:
        return upstream.no_option(name, option[1])
    value = re.search(r"for the --([\w-]+) option: (.*)", error)
    if value:
        return (
            f"The upstream pass '{name}' refuses a value of its option '{value[1]}': {value[2].rstrip('!.')}."
        )
    return f"The upstream pass '{step.text}' is refused: {' '.join(error.split())}."


def _run(
    step: PipelineStep,
    manager: PassManager | ObservedManager,
    operation: ir.Operation,
    remarks: Remarks | None,
) -> None:
    known = len(remarks or ())
    try:
        manager.run(operation)
    except ir.MLIRError as error:
        raise compile_error(error, f"The pass '{step}' failed without a diagnostic.") from error
    # Not of upstream: a pass of ours needs a layout that the target's sticks cannot have.
    except ViewError as error:
        raise no_layout(error, target_of(operation)) from None
    except Exception as error:
        error.add_note(f"while running the pass '{step}'")
        if step.ours is None or is_ours(type(step.ours)):
            note_place(error, fault_place(error, step.name, operation))
        else:
            note_user(error)
        raise
    for remark in (remarks or ())[known:]:
        _log(remark)


def _log(remark: Remark) -> None:
    """Log a decision; tools and ``compile`` show the warnings among them in their own way."""
    if remark.kind != WARNING:
        topics = (*entered(), remark.pass_name, remark.kind)
        logs.tell(logs.REMARK, of_remark(remark).message, "remarks", topics, remark.op_location)
