# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Running a pipeline: each pass has its own pass manager, which attributes errors, printouts, times and remarks."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import re
import traceback
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeAlias

from spyre_mlir import logs, passes, problems
from spyre_mlir.analysis.aliasing import all_ops, functions
from spyre_mlir.analysis.kept_usage import digest_of, usage_kept, usage_of
from spyre_mlir.analysis.program_cost import ProgramCost, cost_of_program
from spyre_mlir.analysis.repeated_layers import OperationSequence
from spyre_mlir.bundle.context import Context
from spyre_mlir.bundle.model import LevelLine, Origin
from spyre_mlir.diagnostics import compile_error, error_at, of_remark
from spyre_mlir.dialects.structured import parsed_once
from spyre_mlir.dialects.targets import settle, target_of
from spyre_mlir.errors import AlgorithmError, CompileError
from spyre_mlir.faults import TRIAL, FaultPlace, faults_reported, note_place, note_user
from spyre_mlir.layout import ViewError
from spyre_mlir.mlir import PassManager, ir
from spyre_mlir.passes.base import EvaluatingPass, Pass, Refusal, is_ours
from spyre_mlir.passes.convert_sdsc_to_sdscbundle import bundle_of
from spyre_mlir.passes.fold_repeated_layers import FoldRepeatedLayers
from spyre_mlir.passes.scratchpad_planning import ScratchpadPlanning
from spyre_mlir.passes.unfold_repeated_layers import NotPeriodic, UnfoldRepeatedLayers
from spyre_mlir.pipelines import upstream
from spyre_mlir.pipelines.printing import Observer, Printing
from spyre_mlir.pipelines.spyre import SpyrePipeline
from spyre_mlir.pipelines.text import Pipeline, PipelineStep
from spyre_mlir.records import dataclass
from spyre_mlir.remarks import WARNING, Remarks
from spyre_mlir.target.target import Target
from spyre_mlir.timeline import timeline_of
from spyre_mlir.timeline.of_design import work_of_designs
from spyre_mlir.timing import Timing, entered, scope


class ObservedManager:
    """The pass manager of a step, which calls observers before and after each run."""

    def __init__(self, step: PipelineStep, manager: PassManager, observers: Sequence[Observer]) -> None:
        self._step, self._manager, self._observers = step, manager, observers

    def run(self, operation: ir.Operation) -> None:
        """Run the pass; exceptions of the manager propagate."""
        for observer in self._observers:
            observer.entered(self._step, operation)
        try:
            self._manager.run(operation)
        except Exception:
            for observer in self._observers:
                observer.failed(self._step, operation)
            raise
        for observer in self._observers:
            observer.passed(self._step, operation)


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
        printing: Settings for printing the IR between passes.
        verify_each: Whether upstream's verifier checks the IR after each pass.
        timing: Receives the seconds of each pass.
        remarks: Receives the decisions of the passes.
        levels: Receives the lines of the input and of each kept level, keyed by name.
        observers: Called with the IR between passes.

    Raises:
        CompileError: A pass fails (``InternalError``: by its own fault). User-defined passes raise their own errors.
    """
    operation = module.operation
    if isinstance(pipeline, str):
        pipeline = Pipeline.parse(pipeline)
    # Verifiers and passes in Python need the interpreter lock, so a pool of MLIR threads would only wait for it.
    operation.context.enable_multithreading(False)
    collecting = remarks.collecting() if remarks is not None else contextlib.nullcontext()
    timed = timing.collecting() if timing is not None else contextlib.nullcontext()
    hidden = logs.hidden_progress() if printing and printing.is_wanted else contextlib.nullcontext()
    with operation.context, operation.location, collecting, timed, hidden, parsed_once(), usage_kept():
        # All managers are built before the first pass runs, so that a misspelt option fails while the module is
        # unchanged.
        whole = WholeModule(operation, remarks, levels)
        managers = list(_managers(pipeline, verify_each, printing, whole, operation.name))
        whole.run = partial(_run_between, managers)
        observers = [*observers, *([printing] if printing and printing.is_wanted else [])]
        observed = [(step, ObservedManager(step, manager, observers)) for step, manager in managers]
        # The rest may run in another process, which may have another default target.
        settle(operation)
        if levels is not None:
            levels[INPUT] = level_lines(operation)
        try:
            first = 0
            while True:
                try:
                    _run_steps(observed if observers else managers, first, operation, remarks, whole)
                    break
                # The folded layers cannot be copied or placed, so the steps run again with more layers.
                except NotPeriodic:
                    first = whole.keep_more_layers()
                except CompileError as error:
                    if not whole.is_unfolded or isinstance(error, AlgorithmError):
                        raise
                    first = whole.restore()
        finally:
            # A manager holds its pass in native code, so the garbage collector never frees a cycle through it.
            managers.clear()
            observed.clear()


def _run_between(managers: Managers, begin: int, end: int, operation: ir.Operation) -> None:
    """Run the steps from ``begin`` to ``end`` on another module, and drop the remarks."""
    with Remarks().collecting():
        for step, manager in managers[begin:end]:
            _run(step, manager, operation, None)


def _run_steps(
    managers: Managers, first: int, operation: ir.Operation, remarks: Remarks | None, whole: WholeModule
) -> None:
    """Run the steps from index ``first`` on; ``whole`` keeps the module as it is before ``fold-repeated-layers``."""
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
    """Raise for a pass that does not exist or for options that it does not accept, without running anything."""
    with context:
        list(_managers(pipeline, True, None))


def _managers(
    pipeline: Pipeline,
    verify_each: bool,
    printing: Printing | None,
    whole: WholeModule | None = None,
    anchor: str = _MODULE,
) -> Iterator[tuple[PipelineStep, PassManager]]:
    """Yield the steps, each with its pass manager. An evaluating pass gets an evaluator of the steps after it.

    ``anchor`` is the name of the operation that the passes run on.
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
            # If the anchor is a function, function passes run on the anchor itself, so the nesting is removed.
            anchors = step.anchors[1:] if step.anchors[:1] == (anchor,) else step.anchors
            try:
                upstream.add(manager, replace(step, anchors=anchors).text, step.name)
            except ValueError as error:
                raise CompileError(_upstream_reason(step, str(error)), step.location) from None
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


def _upstream_reason(step: PipelineStep, error: str) -> str:
    # An option of a pass may be a pipeline, so the name in the error is not always the name of the step.
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
    """Run one pass and log its remarks; its errors become ``CompileError``, or get a note with their place."""
    known = len(remarks or ())
    try:
        manager.run(operation)
    except ir.MLIRError as error:
        raise compile_error(error, f"The pass '{step}' failed without a diagnostic.") from error
    # Raised by our passes only: a pass needs a layout that the target's sticks cannot represent.
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
        # Tools and ``compile`` show warnings themselves.
        if remark.kind != WARNING:
            topics = (*entered(), remark.pass_name, remark.kind)
            logs.tell(logs.REMARK, of_remark(remark).message, "remarks", topics, remark.op_location)


# The place of a fault in a pass: the operation that the pass was processing.


def fault_place(error: Exception, pass_name: str, module: ir.Operation) -> FaultPlace:
    """Return the place of an exception in a pass: the last operation that a variable of the innermost function holds.

    Modules and functions contain all other operations. They are the place only if no other operation is known.
    """
    operations: list[ir.Operation] = []
    module.walk(lambda op: operations.append(op.operation) or ir.WalkResult.ADVANCE)
    # A variable may hold an operation that was erased, so only operations of the module are accessed.
    named = (op for op in _named_operations(error) for known in operations if known == op)
    found = next((op for op in named if op.name not in ("builtin.module", "func.func")), module)
    place = error_at(found, "")
    kind = "" if found == module else found.name
    return FaultPlace(pass_name, kind, place.location, place.operation, place.module)


def _named_operations(error: Exception) -> Iterator[ir.Operation]:
    """Yield the operations in local variables of the functions in an exception's traceback, innermost first."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in reversed(list(frame.f_locals.values())):
            held = getattr(value, "__dict__", {}).get("op", value)
            if isinstance(held, ir.OpView | ir.Operation):
                yield held.operation


# The whole module, kept while a pipeline compiles a copy without the repeated layers.

#: Maximum number of kept layers if plans of fewer layers differ, and minimum ratio of all layers to kept layers.
_MOST_KEPT, _TIMES_KEPT = 5, 3


class WholeModule:
    """The module before ``fold-repeated-layers``, kept because equal layers may turn out to have different plans.

    ``run`` runs the steps of the pipeline from one index up to another on a module.
    """

    run: Callable[[int, int, ir.Operation], None]

    def __init__(
        self, operation: ir.Operation, remarks: Remarks | None, levels: dict[str, Sequence[LevelLine]] | None
    ) -> None:
        self._operation, self._remarks = operation, remarks
        #: The lines of the levels that the module has reached; None if they are not requested.
        self.levels = levels
        self._index = self._known = 0
        self._clone: ir.Operation | None = None
        self._folding = FoldRepeatedLayers()
        #: Whether the folded layers have been restored.
        self.is_unfolded = False

    def keep(self, index: int, folding: FoldRepeatedLayers) -> None:
        """Keep a copy of the module as it is before step ``index``."""
        self._index, self._known, self._folding = index, len(self._remarks or ()), folding
        self._clone = self._operation.clone(ip=False)

    def unfold(self, pass_: UnfoldRepeatedLayers, index: int, operation: ir.Operation) -> None:
        """Run the pass that restores layers, step ``index``, if an earlier pass folded layers."""
        if self._clone is not None:
            self.is_unfolded = pass_.unfold(
                operation, self._clone, self._folding, lambda shift: self._planned(index, shift)
            )

    def _planned(self, index: int, shift: int) -> ir.Operation:
        """Return the module after the steps before ``index``, folded with ``shift``."""
        assert self._clone is not None
        module = self._clone.clone(ip=False)
        with Remarks().collecting():
            replace(self._folding, shift=shift).run(module)
        self.run(self._index + 1, index, module)
        return module

    def keep_more_layers(self) -> int:
        """Restore the module, fold one layer fewer, and return the index of the next step.

        Neighbouring operations influence the plans of the first and last layers. If few layers are kept, no two of them
        may have equal plans; with one more layer, two may. Where folding would save little, the whole module is kept.
        """
        assert self._clone is not None, "no layers are folded"
        folding, clone = replace(self._folding, kept=self._folding.kept + 1), self._clone.clone(ip=False)
        (func,) = functions(clone)
        repetitions = folding.repetitions(func, OperationSequence(func.regions[0].blocks[0]))
        count = max((layers.count for layers in repetitions), default=0)
        if folding.kept > min(_MOST_KEPT, count // _TIMES_KEPT):
            return self.restore()
        self._restore()
        self._clone, self._folding = clone, folding
        folding.run(self._operation)
        return self._index + 1

    def restore(self) -> int:
        """Restore the module, drop the remarks since then, and return the index of the next step."""
        self._restore()
        reason = "equal layers are planned differently, one by one, so all are planned"
        self._folding.remark(functions(self._operation)[0], "layers", reason)
        return self._index + 1

    def _restore(self) -> None:
        assert self._clone is not None, "no layers are folded"
        self.is_unfolded = False
        body = self._operation.regions[0].blocks[0]
        for op in reversed(list(body.operations)):
            op.operation.erase()
        for op in list(self._clone.regions[0].blocks[0].operations):
            body.append(op)
        for name in list(self._operation.attributes):
            del self._operation.attributes[name]
        for name in self._clone.attributes:
            self._operation.attributes[name] = self._clone.attributes[name]
        if self._remarks is not None:
            del self._remarks[self._known :]


# The lines of a module at a level: its operations without their regions, shortened, each with its origin.

#: The name of the input's level, and the names of the other levels whose lines are kept.
INPUT, KEPT = "input", ("device-ops", "placed")

#: Maximum characters of a line, and maximum numbers of a constant that are printed.
_CHARACTERS, _NUMBERS = 160, 8

#: Prefixes of lines that are omitted because they do not show how an operation is lowered.
_PLAIN = ("arith.constant", "tensor.empty", "func.", "return", "linalg.yield", "module", "}", "^")

_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)')
_NOTE = r'{} = "([^"]*)"'

#: Shortenings of long lines: the maps of a generic op, which follow from its dims; the history; all of a layout but its
#: dims. Attributes are moved before the types, so that the types are cut off first.
_LONG = (
    (re.compile(r"\{indexing_maps = \[.*?\], iterator_types = \[[^]]*\]\} "), ""),
    (re.compile(r"sdsc\.history = \[\[.*?\]\],? ?"), ""),
    (re.compile(r"(linalg\.generic) (ins.*?) attrs = +(\{.*\})"), r"\1 \3 \2"),
    (re.compile(r"(linalg\.generic) \{(.*?)sdsc\.op = #sdsc\.op<(\"[^\"]*\")[^>]*>(?:, )?"), r"\1 \3 {\2"),
    (re.compile(r"#stick\.layout<affine_map<\([^)]*\) -> \(([^>]*)\)>>"), r"#stick.layout<\1>"),
)


@dataclass
class _Head:
    """The first line of an operation, its indentation, and the operations in its regions."""

    indent: int
    text: str
    inside: list[str] = field(default_factory=list)

    @property
    def is_computing(self) -> bool:
        """Return whether the regions are part of the computation of this operation; not so for loops and functions."""
        return not _name(self.text).startswith(("scf.", "func.", "module"))


def level_lines(operation: ir.Operation) -> tuple[LevelLine, ...]:
    """Return the lines of a module."""
    # The module is printed at once: printing a single operation numbers all values of its function.
    text = operation.get_asm(enable_debug_info=True, use_local_scope=True, large_elements_limit=_NUMBERS)
    return tuple(_lines(text.split("\n")))


def _lines(texts: list[str]) -> Iterator[LevelLine]:
    """Yield the operations. The location of an operation with regions is on the line where its regions end."""
    heads = list[_Head]()
    for text in texts:
        body, has_location, location = text.partition(" loc(") if text.endswith(")") else (text, "", "")
        body = body.rstrip()
        indent, body = len(body) - len(body.lstrip()), body.strip()
        is_end = bool(heads) and heads[-1].indent == indent and body.startswith("}")
        head = heads.pop() if is_end else _Head(indent, body)
        if not has_location:
            if body.endswith("{"):
                heads.append(head)
            continue
        outer = next((outer for outer in heads if outer.is_computing), None)
        if _name(head.text).startswith(_PLAIN):
            continue
        if outer is not None:
            outer.inside.append(_name(head.text).split(" ")[0])
        else:
            yield LevelLine(_origin(location[:-1]), _short(head))


def _name(head: str) -> str:
    return head.partition(" = ")[2] if head.startswith("%") else head


def _short(head: _Head) -> str:
    text = head.text.removesuffix("{").rstrip()
    for pattern, shorter in _LONG:
        text = pattern.sub(shorter, text)
    text = text.replace(" {}", "").replace("  ", " ")
    if head.inside and "sdsc.op" not in head.text:
        text = text.replace(" ins", f" {{{', '.join(head.inside)}}} ins", 1)
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]} …"


def _origin(location: str) -> Origin:
    """Return the origin of a location as text: the innermost place comes first."""
    place = _PLACE.search(location)
    file, line, column = (place[1], int(place[2]), int(place[3])) if place else ("", 0, 0)
    aten, module = (re.search(_NOTE.format(name), location) for name in ("aten", "module"))
    return Origin(file, line, column, aten[1] if aten else "", module[1] if module else "")


# Evaluation of a pass's choices: the passes after it in the pipeline are run on a separate module.

#: The passes before which the scratchpads are planned, and before which all memory is planned.
_PLANNED, _PLACED = "place-in-hbm", "convert-sdsc-to-sdscbundle"

#: The levels that decide whether the device can run a module. From the given pass of the first level on, a refused
#: operation may still run as a part of a fused operation.
_RUNNABLE, _WHOLE = ("device-ops", "laid-out"), "apply-precision"

#: Costs, keyed by the passes that were run and by the text of the module, or a digest of it.
Costs = dict[tuple[str, Hashable], ProgramCost | None]


@dataclass(frozen=True)
class PipelineEvaluator:
    """An ``Evaluator`` of the steps after a pass; evaluators that share ``costs`` evaluate equal modules once."""

    rest: Sequence[PipelineStep]
    costs: Costs = field(default_factory=dict)

    @classmethod
    def of_step(cls, pipeline: Pipeline, index: int, costs: Costs) -> PipelineEvaluator:
        """Return the evaluator for a step of a pipeline.

        A pipeline that ends before the bundle is continued by the compiler's pipeline, with the options of the pass.
        """
        step, rest = pipeline.steps[index], pipeline.after(index)
        # Costs need placements, but a user-defined pipeline may end long before the placed level.
        if not any(later.name == _PLACED for later in rest):
            rest = (*rest, *_continued([step, *rest]))
        return cls(rest, costs)

    def behind(self, name: str) -> Pass | None:
        """Return the pass named ``name`` among the steps after this pass; None if there is none."""
        return next((step.ours for step in self.rest if step.name == name), None)

    def cost(self, module: ir.Module) -> ProgramCost | None:
        """Evaluate the placements of buffers with the cost model; None if the remaining passes refuse the module."""
        passes = list(self._before(_PLANNED))
        key = ",".join(map(str, passes)), str(module)
        # Passes evaluate equal groups repeatedly because the layers of a model are equal.
        if key not in self.costs:
            with scope("trial"), usage_kept():
                if self._run(passes, module):
                    self.costs[key] = None
                else:
                    (func,) = functions(module.operation)
                    self.costs[key] = cost_of_program(usage_of(func))
        return self.costs[key]

    def time(self, module: ir.Module) -> ProgramCost | None:
        """Evaluate the bundle by its timeline; None if the remaining passes refuse the module."""
        passes = list(self._before(_PLACED))
        names = [getattr(pass_, "name", "") for pass_ in passes]
        planning = names.index(ScratchpadPlanning.name) if ScratchpadPlanning.name in names else 0
        with scope("prediction"), usage_kept():
            if self._run(passes[:planning], module):
                return None
            # A pass often evaluates the program that the previous pass has chosen.
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
        run = timeline_of(Context(bundle), work_of_designs(bundle))
        moved = sum(execution.read_bytes + execution.written_bytes for execution in run.executions)
        return ProgramCost(run.total_ns, moved)

    def refusal(self, module: ir.Module) -> Refusal | None:
        """Return the diagnostic of the passes up to layouts; None if the device can run the module."""
        steps = [step for step in self.rest if step.stage in _RUNNABLE]
        whole = next(index for index, step in enumerate(steps) if step.name == _WHOLE)
        # Remarks about an evaluated part would contradict the remarks about the program.
        with scope("trial"), Remarks().collecting(), problems.collecting(None):
            for index, step in enumerate(steps):
                error = _failure(_evaluated(step), module)
                if error is not None:
                    is_part = index >= whole and step.stage == _RUNNABLE[0]
                    return Refusal(error.message, error.location, is_part)
        return None

    def _before(self, name: str) -> Iterator[Pass | PipelineStep]:
        """Yield the remaining steps before the pass ``name``, in the form in which an evaluation runs them."""
        for step in self.rest:
            if step.name == name:
                return
            evaluated = _evaluated(step)
            if evaluated is not None:
                yield evaluated
        raise CompileError(
            f"A pass needs the cost of its choices, but the pass '{name}', which determines the cost, does not "
            "follow it; use a whole pipeline, as 'spyre-opt --dump-pass-pipeline' prints it."
        )

    def _run(self, passes: Sequence[Pass | PipelineStep], module: ir.Module) -> CompileError | None:
        with Remarks().collecting(), problems.collecting(None):
            return next((error for pass_ in passes if (error := _failure(pass_, module)) is not None), None)


def _continued(steps: Sequence[PipelineStep]) -> tuple[PipelineStep, ...]:
    """Return the steps of the compiler's pipeline after the last of ``steps`` in it; none if it contains none."""
    known = {option.name for option in dataclasses.fields(SpyrePipeline)}
    # The options that the pass shares with the pipeline keep the user's values.
    options = {name: value for name, value in vars(steps[0].ours).items() if name in known}
    compiler = SpyrePipeline(**options)
    for pipeline in (compiler.pipeline(), compiler.partition()):
        names = [step.name for step in pipeline.steps]
        positions = [names.index(step.name) for step in steps if step.name in names]
        if positions:
            return pipeline.after(max(positions))
    return ()


def _evaluated(step: PipelineStep) -> Pass | PipelineStep | None:
    """Return the pass that replaces a step in evaluations; None if evaluations skip the step."""
    return step if step.ours is None else step.ours.in_evaluation()


def _failure(step: Pass | PipelineStep | None, module: ir.Module) -> CompileError | None:
    """Run a step on a module, and return the error if it refuses the module."""
    if step is None:
        return None
    try:
        with scope(step.name):
            execute(step, module)
    # A refusal is a result of the evaluation; an error in a user-defined algorithm is not.
    except AlgorithmError as error:
        if TRIAL not in error.message:
            error.message = f"{error.message.removesuffix('.')} ({TRIAL} '{step.name}')."
        raise
    except CompileError as error:
        return error
    except Exception as error:
        # The pass runner adds the pass that makes the trial.
        error.add_note(f"{TRIAL} '{step.name}'")
        raise
    return None


def execute(step: Pass | PipelineStep, module: ir.Module) -> None:
    """Run a pass (ours or upstream's) on a module in place, without an evaluator; ``CompileError`` if it fails."""
    operation = module.operation
    if isinstance(step, Pass):
        with ir.Location.unknown(operation.context):
            try:
                step.run(operation)
            except ViewError as error:
                raise no_layout(error, target_of(operation)) from None
        return
    context = operation.context
    # A refusal is a result of the evaluation, so it is not printed to stderr.
    emit, context.emit_error_diagnostics = context.emit_error_diagnostics, False
    try:
        with context:
            PassManager.parse(f"builtin.module({step.text})").run(operation)
    except ir.MLIRError as error:
        raise compile_error(error, "A pass failed without a diagnostic.") from error
    finally:
        context.emit_error_diagnostics = emit


def no_layout(error: ViewError, target: Target) -> CompileError:
    """Return the diagnostic for a layout that a pass needs but that is impossible with the device's stick size."""
    return CompileError(
        f"A tensor cannot have the layout that an operation needs in sticks of {target.stick_bytes} bytes: {error}."
    )
