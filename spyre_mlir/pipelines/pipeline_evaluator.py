# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Evaluation of the choices of a pass: the rest of the pipeline that the pass is in, run on a module of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field

from spyre_mlir import problems
from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.analysis.buffer_uses import Usage
from spyre_mlir.analysis.kept_usage import digest_of, usage_kept, usage_of
from spyre_mlir.analysis.program_cost import ProgramCost, cost_of_program
from spyre_mlir.diagnostics import compile_error
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.layout import ViewError
from spyre_mlir.mlir import PassManager, ir
from spyre_mlir.passes.base import Pass, Refusal
from spyre_mlir.passes.convert_sdsc_to_sdscbundle import bundle_of
from spyre_mlir.passes.scratchpad_planning import ScratchpadPlanning
from spyre_mlir.pipelines.spyre import SpyrePipeline
from spyre_mlir.pipelines.text import Pipeline, PipelineStep
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import Remarks
from spyre_mlir.target.target import Target
from spyre_mlir.timeline import timeline
from spyre_mlir.timing import scope

#: The passes before which the scratchpads are planned, and all memory is.
_PLANNED, _PLACED = "place-in-hbm", "convert-sdsc-to-sdscbundle"

#: The levels that say whether the device can run a module, and the pass of the first behind which the forms of
#: operations are those of the program: what is refused there may be a part of a fused operation.
_RUNNABLE, _WHOLE = ("device-ops", "laid-out"), "apply-precision"

#: Costs by the passes that were run and the text of the module, or what stands for it.
Costs = dict[tuple[str, Hashable], ProgramCost | None]


@dataclass(frozen=True)
class PipelineEvaluator:
    """An ``Evaluator`` of the steps behind a pass; evaluators that share ``costs`` evaluate equal modules once."""

    rest: Sequence[PipelineStep]
    costs: Costs = field(default_factory=dict)

    @classmethod
    def of_step(cls, pipeline: Pipeline, index: int, costs: Costs) -> PipelineEvaluator:
        """Return the evaluator for a step of a pipeline.

        A pipeline that ends before the bundle goes on as that of the compiler does, with the options of the pass.
        """
        step, rest = pipeline.steps[index], pipeline.after(index)
        # Costs need placements, and a pipeline that a user wrote may end long before.
        if not any(later.name == _PLACED for later in rest):
            rest = (*rest, *_continued([step, *rest]))
        return cls(rest, costs)

    def behind(self, name: str) -> Pass | None:
        """Return the pass of that name in the rest; None if there is none."""
        return next((step.ours for step in self.rest if step.name == name), None)

    def cost(self, module: ir.Module) -> ProgramCost | None:
        """Evaluate the buffers' places by the cost model; None if the rest refuses the module."""
        passes = list(self._before(_PLANNED))
        key = ",".join(map(str, passes)), str(module)
        # Passes ask for equal groups again and again, as layers of a model are equal.
        if key not in self.costs:
            with scope("trial"), usage_kept():
                refused = self._run(passes, module)
                self.costs[key] = None if refused else cost_of_program(_usage(module))
        return self.costs[key]

    def time(self, module: ir.Module) -> ProgramCost | None:
        """Evaluate the bundle by its timeline; None if the rest refuses the module."""
        passes = list(self._before(_PLACED))
        names = [getattr(pass_, "name", "") for pass_ in passes]
        planning = names.index(ScratchpadPlanning.name) if ScratchpadPlanning.name in names else 0
        with scope("prediction"), usage_kept():
            if self._run(passes[:planning], module):
                return None
            # Passes in a row ask for the program that the one before has chosen.
            digests = tuple(digest_of(func, all_ops(func)) for func in functions(module.operation))
            key = f"{','.join(map(str, passes[planning:]))} and time", digests
            if key not in self.costs:
                self.costs[key] = self._placed_time(passes[planning:], module)
            return self.costs[key]

    def _placed_time(self, passes: Sequence[Pass | PipelineStep], module: ir.Module) -> ProgramCost | None:
        if self._run(passes, module):
            return None
        try:
            with scope("bundle"):
                bundle = bundle_of(module.operation)
        except AlgorithmError:
            raise
        except CompileError:
            return None
        run = timeline(bundle)
        moved = sum(execution.read_bytes + execution.written_bytes for execution in run.executions)
        return ProgramCost(run.total_ns, moved)

    def refusal(self, module: ir.Module) -> Refusal | None:
        """Return the diagnostic of the passes up to layouts; None if the device can run the module."""
        steps = [step for step in self.rest if step.stage in _RUNNABLE]
        whole = next(index for index, step in enumerate(steps) if step.name == _WHOLE)
        # Remarks about a part of the program on trial would contradict those about the program.
        with scope("trial"), Remarks().collecting(), problems.collecting(None):
            for index, step in enumerate(steps):
                error = _failure(_evaluated(step), module)
                if error is not None:
                    is_part = index >= whole and step.stage == _RUNNABLE[0]
                    return Refusal(error.message, error.location, is_part)
        return None

    def _before(self, name: str) -> Iterator[Pass | PipelineStep]:
        """Yield the steps of the rest in front of a pass, as an evaluation runs them."""
        for step in self.rest:
            if step.name == name:
                return
            evaluated = _evaluated(step)
            if evaluated is not None:
                yield evaluated
        raise CompileError(
            f"A pass asks what its choices cost, and '{name}', behind which that is known, does not follow it; "
            "give it a whole pipeline, as 'spyre-opt --dump-pass-pipeline' prints one."
        )

    def _run(self, passes: Sequence[Pass | PipelineStep], module: ir.Module) -> CompileError | None:
        with Remarks().collecting(), problems.collecting(None):
            return next((error for pass_ in passes if (error := _failure(pass_, module)) is not None), None)


def _continued(steps: Sequence[PipelineStep]) -> tuple[PipelineStep, ...]:
    """Return the steps of the compiler's pipeline behind the last of ``steps`` that it has; none if it has none."""
    known = {option.name for option in dataclasses.fields(SpyrePipeline)}
    # The options that the pass shares with the pipeline are what the user asked for.
    options = {name: value for name, value in vars(steps[0].ours).items() if name in known}
    compiler = SpyrePipeline(**options)
    for pipeline in (compiler.pipeline(), compiler.partition()):
        names = [step.name for step in pipeline.steps]
        positions = [names.index(step.name) for step in steps if step.name in names]
        if positions:
            return pipeline.after(max(positions))
    return ()


def _evaluated(step: PipelineStep) -> Pass | PipelineStep | None:
    return step if step.ours is None else step.ours.in_evaluation()


def _failure(step: Pass | PipelineStep | None, module: ir.Module) -> CompileError | None:
    """Run a step on a module, and return the error if it refuses the module."""
    if step is None:
        return None
    try:
        with scope(step.name):
            execute(step, module)
    # An evaluation answers for a module, not for a mistake in an algorithm of the user.
    except AlgorithmError:
        raise
    except CompileError as error:
        return error
    return None


def execute(step: Pass | PipelineStep, module: ir.Module) -> None:
    """Run a pass of ours or of upstream on a module in place, without an evaluator; ``CompileError`` if it fails."""
    operation = module.operation
    if isinstance(step, Pass):
        with ir.Location.unknown(operation.context):
            try:
                step.run(operation)
            except ViewError as error:
                raise no_layout(error, target_of(operation)) from None
        return
    context = operation.context
    # A refusal of an evaluation is an answer, not an error for stderr.
    emit, context.emit_error_diagnostics = context.emit_error_diagnostics, False
    try:
        with context:
            PassManager.parse(f"builtin.module({step.text})").run(operation)
    except ir.MLIRError as error:
        raise compile_error(error, "A pass failed without a diagnostic.") from error
    finally:
        context.emit_error_diagnostics = emit


def no_layout(error: ViewError, target: Target) -> CompileError:
    """Return the diagnostic for a layout that a pass needs and the device, of its stick size, does not have."""
    return CompileError(
        f"A tensor cannot lie in sticks of {target.stick_bytes} bytes as an operation wants it: {error}."
    )


def _usage(module: ir.Module) -> Usage:
    (function,) = functions(module.operation)
    return usage_of(function)
