# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``tune``: search for a plan by trials that minimizes the predicted time or another objective (docs/tuning.md)."""

from __future__ import annotations

import hashlib
import json
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Executor
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from spyre_mlir.analysis.aliasing import all_ops, argument_attributes, functions
from spyre_mlir.analysis.core_ownership import Divided
from spyre_mlir.analysis.layout_graph import LayoutGraph
from spyre_mlir.analysis.plan_pins import core_order_of, layout_value
from spyre_mlir.analysis.tile_nests import Nests, Tiled, dim_classes
from spyre_mlir.api import compile
from spyre_mlir.dialects import context, parsed, sdsc
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import work_distribution
from spyre_mlir.division.spans import division_problem
from spyre_mlir.driver.program import Program
from spyre_mlir.driver.program_cache import package_digest
from spyre_mlir.driver.program_figures import host_share
from spyre_mlir.errors import CompileError, Uncached, listed, with_suggestion
from spyre_mlir.experiments.results import imported, written_figure
from spyre_mlir.faults import faults_reported
from spyre_mlir.files import write_text
from spyre_mlir.layout_search.minimum_cost import Problem
from spyre_mlir.mlir import ir
from spyre_mlir.passes.auto_tiling import AutoTiling
from spyre_mlir.passes.joint_planning import JointPlanning
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.pipelines.pipeline_options import PipelineOptions
from spyre_mlir.plans.plan_file import json_text
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.divider import blocked_dims
from spyre_mlir.target.ops import DEVICE_OPS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The space of a tuning: the alternatives to the default plan of a program, as plain data.
#
# The candidates come from the compiler's own searches on the program with default options: the divisions of
# joint-planning, the loops of auto-tiling, the layouts of choose-layouts. Choices are options of ``compile`` and pins
# of a plan file (docs/plans.md), so a point of the space is one call of ``compile``.

#: A choice of a parameter: a JSON value, or a mapping from operations to loops.
Choice = Any

#: Options that change the plan but not the results of a program, with their values other than the default.
OPTIONS: Mapping[str, tuple[Choice, ...]] = {
    "uneven_splits": (True,), "matmul": ("specified",), "co_optimizer": ("strategy-b",), "stick_outermost": (True,),
    "argument_layouts": ("default",), "tile_attention": (False,), "tile_for_lx": (False,), "clone_inputs": (False,),
    "clone_outputs": (False,), "reorder": (False,), "moves": (False,), "double_buffer": (False,),
    "in_place": (False,), "order_by_size": (True,),
}  # fmt: skip

#: Maximum number of alternative tile counts for each loop of the default plan.
_LOOP_CUTS = 6


@dataclass(frozen=True)
class TuningSpace:
    """The choices by subject, without the default, which is the decision of the compiler.

    To narrow a space, remove entries (``dataclasses.replace``).

    Attributes:
        options: Values by the name of an option of ``compile``.
        divisions: Entries such as ``{"slices": [2, 16], "core_order": [0, 1]}``, by operation.
        layouts: Values of the field ``layout``, by argument.
        tilings: Mappings from operations to their field ``tiling``, by the name of a run of operations.
        weights: The fraction of the time, 0 to 1, that each operation takes; the longest operations are tried first.
    """

    options: Mapping[str, Sequence[Choice]] = field(default_factory=dict)
    divisions: Mapping[str, Sequence[Choice]] = field(default_factory=dict)
    layouts: Mapping[str, Sequence[Choice]] = field(default_factory=dict)
    tilings: Mapping[str, Sequence[Choice]] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, program: Program, **compile_options: Any) -> TuningSpace:
        """Return all choices of a compiled program.

        A program with host functions has no plan file, so its space has only options.

        Args:
            program: The program.
            **compile_options: The options with which it was compiled; they are fixed.
        """
        options = {name: values for name, values in OPTIONS.items() if name not in compile_options}
        try:
            plan = program.plan()
        except CompileError:
            return cls(options)
        known = PipelineOptions.__dataclass_fields__
        pipeline = SpyrePipeline.of(
            **{name: value for name, value in compile_options.items() if name in known}
        )
        named, divided = (module_at(program, pipeline, level) for level in ("named", "divided"))
        with named.context:
            layouts, tilings = dict(_layouts(named, pipeline, plan)), dict(_tilings(named, plan))
        with divided.context:
            divisions = dict(_divisions(divided))
        # Operations have equal weights if the executions do not match them.
        times = [each.total_ns for each in program.timeline().executions]
        names = [entry["name"] for entry in plan["operations"]]
        if len(times) != len(names):
            times = [1.0] * len(names)
        whole = sum(times) or 1.0
        weights = {name: time / whole for name, time in zip(names, times, strict=True)}
        return cls(options, divisions, layouts, tilings, weights)

    def parameters(self) -> dict[str, Sequence[Choice]]:
        """Return the choices of all parameters; the name of a parameter is its kind and its subject."""
        kinds = {
            "option": self.options,
            "divide": self.divisions,
            "lay out": self.layouts,
            "tile": self.tilings,
        }
        return {f"{kind} {name}": values for kind, group in kinds.items() for name, values in group.items()}

    def weight(self, parameter: str) -> float:
        """Return the fraction of the time that a parameter affects; 1 for options and layouts."""
        kind, name = _split(parameter)
        if kind == "divide":
            return self.weights.get(name, 0.0)
        if kind == "tile":
            return sum(self.weights.get(member, 0.0) for member in self.tilings[name][0])
        return 1.0

    def call(self, point: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return the options and the plan for a point, the indices of choices by parameter, without defaults.

        Raise ``CompileError`` if two choices tile the same operation.
        """
        options: dict[str, Any] = {}
        arguments: dict[str, Any] = {}
        operations: dict[str, dict[str, Any]] = {}
        parameters = self.parameters()
        for parameter, number in point.items():
            kind, name = _split(parameter)
            choice = parameters[parameter][number]
            if kind == "option":
                options[name] = choice
            elif kind == "lay out":
                arguments[name] = choice
            elif kind == "divide":
                operations.setdefault(name, {}).update(choice)
            else:
                for name, loops in choice.items():
                    pins = operations.setdefault(name, {})
                    if "tiling" in pins:
                        raise CompileError(f"Two choices tile '{name}'.")
                    pins["tiling"] = loops
        plan = {
            "version": 1,
            "arguments": [{"name": name, "layout": layout} for name, layout in arguments.items()],
            "operations": [{"name": name, **pins} for name, pins in operations.items()],
        }
        return options, plan if arguments or operations else None

    def text(self, parameter: str, number: int) -> str:
        """Return the description of a choice."""
        kind, name = _split(parameter)
        choice = self.parameters()[parameter][number]
        if kind != "tile":
            return f"{name}: {choice if isinstance(choice, str) else json.dumps(choice)}"
        loops = next(iter(choice.values()))
        count = f"{loops[0]['tiles']} tiles of dim {loops[0]['dim']}" if loops else "no loop"
        return f"{name}: {count}"


def _split(parameter: str) -> tuple[str, str]:
    kind = next(kind for kind in ("option", "divide", "lay out", "tile") if parameter.startswith(f"{kind} "))
    return kind, parameter[len(kind) + 1 :]


# -- the program at two levels ----------------------------------------------------------------------------


def module_at(program: Program, pipeline: SpyrePipeline, level: str) -> ir.Module:
    """Return the IR of a program at the level *divided*, or after the pass that names its device operations."""
    module = parsed(program.source_text(), context())
    # The plan has no pins, but operations get the names of a plan file, and layers are not merged.
    module.operation.attributes[sdsc.PLAN] = ir.StringAttr.get('{"version": 1}', module.context)
    steps = replace(pipeline, use_plan="").pipeline("divided" if level == "divided" else "tiled")
    if level == "named":
        end = next(index for index, step in enumerate(steps.steps) if step.name == "name-operations")
        steps = replace(steps, steps=steps.steps[: end + 1])
    run_pipeline(module, steps)
    return module


def _divisions(module: ir.Module) -> Iterator[tuple[str, list[Choice]]]:
    """Yield division candidates: of joint-planning (few if neighbours are alike), and along a single dim."""
    cores = target_of(module.operation).cores
    for func in functions(module.operation):
        for user, candidates in JointPlanning().candidates(func):
            name = sdsc.name_of(user.op)
            # An operation inserted by a later pass has no name; its division follows from its neighbours.
            if name is None:
                continue
            pins = [(each.division.splits, core_order_of(each.division)) for each in candidates]
            for splits in _along_one_dim(user, cores):
                pins.append((splits, tuple(dim for dim, count in enumerate(splits) if count > 1)))
            if others := [pin for pin in dict.fromkeys(pins) if pin != pins[0]]:
                yield name, [{"slices": list(slices), "core_order": list(order)} for slices, order in others]


def _along_one_dim(user: Divided, cores: int) -> Iterator[tuple[int, ...]]:
    """Yield the legal divisions along a single output dim, for each output dim."""
    space, every = user.space, range(len(user.space.units))
    for dim in sorted(set(every) - space.reduced):
        splits = work_distribution(space.units, space.reduced, cores, blocked=frozenset(every) - {dim})
        exempt = DEVICE_OPS[user.opcode].indirect
        if division_problem(space, splits, cores, blocked_dims(user.op), exempt=exempt) is None:
            yield splits


def _layouts(
    module: ir.Module, pipeline: SpyrePipeline, plan: Mapping[str, Any]
) -> Iterator[tuple[str, list[Choice]]]:
    """Yield the layouts of arguments that a reader could request, without the layout of the default plan."""
    planned = {entry["name"]: json.dumps(entry.get("layout")) for entry in plan["arguments"]}
    for func in functions(module.operation):
        graph = LayoutGraph(func, by_price=True)
        problem = Problem(graph.graph, pipeline.stick_outermost)
        arguments = zip(func.regions[0].blocks[0].arguments, argument_attributes(func), strict=True)
        for argument, attributes in arguments:
            tensor = graph.tensors[argument]
            candidates = (*problem.domains[tensor].candidates, *problem.reader_candidates[tensor])
            values = {json.dumps(layout_value(candidate.layout)): None for candidate in candidates}
            name = ir.StringAttr(attributes[sdsc.HOST].label).value
            if choices := [json.loads(text) for text in values if text != planned.get(name)]:
                yield name, choices


def _tilings(module: ir.Module, plan: Mapping[str, Any]) -> Iterator[tuple[str, list[Choice]]]:
    """Yield loops for runs of operations that the default plan does not tile, and alternatives for its loops."""
    tiled_names = {entry["name"] for entry in plan["operations"] if entry.get("tiling")}
    for func in functions(module.operation):
        names = {op.results[0]: sdsc.name_of(op) or "" for op in all_ops(func) if sdsc.NAME in op.attributes}
        for number, tilings in enumerate(AutoTiling().candidates(func)):
            choices = [
                {names[result]: [loop.plain() for loop in loops] for result, loops in tiling.items()}
                for tiling in tilings
            ]
            if choices and not tiled_names.intersection(choices[0]):
                members = list(choices[0])
                yield f"{members[0]}..{members[-1]} ({number})", choices
        ops = {names[op.result]: op for op in Nests(func.regions[0].blocks[0]).tiled.values()}
        yield from _other_loops(ops, plan)


def _other_loops(ops: Mapping[str, Tiled], plan: Mapping[str, Any]) -> Iterator[tuple[str, list[Choice]]]:
    """Yield, for the operations of each loop of a plan, other tile counts and the choice without the loop."""
    nests: dict[str, dict[str, dict[str, Any]]] = {}
    for entry in plan["operations"]:
        for loop in entry.get("tiling") or ():
            if entry["name"] in ops:
                nests.setdefault(loop["loop"], {})[entry["name"]] = entry
    for loop, entries in nests.items():
        choices: list[Choice] = [{name: [] for name in entries}]
        for cut in _cuts(loop, [ops[name] for name in entries], list(entries.values())):
            choices.append({
                name: [
                    cut.loop(loop, each["dim"], ops[name].generic.extents[each["dim"]]).plain()
                    if each["loop"] == loop else each
                    for each in entry["tiling"]
                ]
                for name, entry in entries.items()
            })  # fmt: skip
        yield f"loop {loop}", choices


def _cuts(loop: str, run: Sequence[Tiled], entries: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return legal cuts of the dim of a loop around some operations, without the cut of the plan."""
    of_loop = next(each for each in entries[0]["tiling"] if each["loop"] == loop)
    target = target_of(run[0].op)
    for dim_class in dim_classes(run):
        if of_loop["dim"] in dim_class.dims.get(run[0], ()):
            cuts = dim_class.cuts(1, target.loop_iterations, target.cores)
            return [cut for cut in cuts if cut.tiles != of_loop["tiles"]][:_LOOP_CUTS]
    return []


#: The index of a choice by parameter; parameters at their default are omitted.
Point = Mapping[str, int]
#: Function from a seed to a point that is proposed by a model of the trials so far.
Sampler = Callable[[int], Point]

#: The value to minimize: the name of a figure of ``Program.metrics``, or a function of a program.
Objective = str | Callable[[Program], float]

#: Options of ``compile`` that ``tune`` does not support, with the reason.
_NOT_TUNED = {"plan": "tune finds the plan", "dynamic": "tune takes a program of one size"}


@dataclass(frozen=True)
class TuningChange:
    """A choice of the best plan: its description, and the objective of the best plan without the choice."""

    text: str
    without: float | None


@dataclass(frozen=True)
class Tuned:
    """The result of a tuning.

    ``compile(.., plan=plan, **options)`` gives a program as good as ``best``.

    Attributes:
        best: The best program.
        plan: A plan file as data; None for a program without one.
        options: Options of ``compile`` that are needed with the plan, in addition to the options passed to ``tune``.
        objective: The name of the objective.
        default_value: The objective of the default plan.
        value: The objective of the best plan.
        trials: The number of trials.
        changes: The choices that differ from the default; each of them improves the objective.
        refused: The reasons why points were rejected, with the number of points.
        study: The trials with values as a study of Optuna, for its plots.
    """

    best: Program
    plan: Mapping[str, Any] | None
    options: Mapping[str, Any]
    objective: str
    default_value: float
    value: float
    trials: int
    changes: tuple[TuningChange, ...]
    refused: Mapping[str, int]
    study: Any = field(repr=False, compare=False)

    def plot(self, kind: Literal["history", "importance"], path: str | Path | None = None) -> Figure:
        """Draw a plot of Optuna with matplotlib.

        Args:
            kind: "history": the objective of each trial, and the best so far; "importance": the parameters that decide
                the objective, by Optuna's PED-ANOVA.
            path: A file to write the plot to.

        Raises:
            CompileError: A package is missing, or the file cannot be written.
        """
        if kind not in ("history", "importance"):
            raise CompileError(f"A tuning has the plots history and importance, not '{kind}'.")
        optuna = imported("optuna", "tune")
        draw = imported("optuna.visualization.matplotlib", "experiments")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            if kind == "history":
                axes = draw.plot_optimization_history(self.study, target_name=self.objective)
            else:
                # Without a trial that changes a parameter, the plot is empty.
                varied, found = _varied(self.study), dict[str, float]()
                if varied:
                    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
                    found = optuna.importance.get_param_importances(
                        self.study, evaluator=evaluator, params=varied
                    )
                axes = imported("matplotlib.figure", "experiments").Figure(layout="constrained").add_subplot()
                shown = list(found.items())[:_MOST_PARAMETERS][::-1]
                axes.barh([name for name, _ in shown], [value for _, value in shown])
                axes.set_xlabel(f"importance for {self.objective}")
        figure = axes.figure
        return figure if path is None else written_figure(figure, path)

    @property
    def gain(self) -> float:
        """The fraction of the default objective that the best plan saves: 0.1 is 10 %."""
        return 1 - self.value / self.default_value if self.default_value else 0.0

    def save(self, path: str | Path) -> None:
        """Write the plan file, for ``compile(plan=path)`` with ``options``.

        Args:
            path: The file.

        Raises:
            CompileError: The program has no plan file.
        """
        if self.plan is None:
            raise CompileError(
                "This program has no plan file, as part of it runs on the host; give compile the options of the result."
            )
        write_text(str(path), json_text(self.plan) + "\n")

    def summary(self) -> str:
        """Return, as text, the gain, the changes with their effects, and the number of rejected points."""
        lines = [
            f"{self.objective:<14}{self.default_value:,.3f} by default, {self.value:,.3f} tuned: {self.gain:.2%} less",
            f"{'trials':<14}{self.trials}, of which {sum(self.refused.values())} refused",
        ]
        for change in self.changes:
            loss = "not possible" if change.without is None else f"{change.without:,.3f}"
            lines.append(f"{'change':<14}{change.text} (without it {loss})")
        if self.options:
            texts = " ".join(f"{name}={value}" for name, value in self.options.items())
            lines.append(f"{'options':<14}{texts} in addition to the plan file")
        return "\n".join(lines) + "\n"


def tune(
    program: Any,
    inputs: Sequence[Any] | Mapping[str, Any] = (),
    *,
    space: TuningSpace | None = None,
    objective: Objective = "total_us",
    trials: int = 100,
    storage: str | Path | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    workers: int = 1,
    **compile_options: Any,
) -> Tuned:
    """Search for the plan with the least objective, with a limited number of trials; the first is the default plan.

    Equal seeds and numbers of workers give equal results. Points that the compiler rejects are trials without a value.
    Needs the extra ``tune``.

    Args:
        program: A model or a module, as for ``compile``.
        inputs: The inputs, as for ``compile``.
        space: The choices to search, by default all choices of ``TuningSpace.of``.
        objective: A figure of ``Program.metrics``, or a function of a program, such as its time on a card.
        trials: The number of trials, including trials that are in ``storage`` already.
        storage: An SQLite file (or an Optuna URL) for the trials; the same call resumes from it.
        seed: The seed of the search.
        executor: An executor for parallel trials; program, inputs and objective must then be picklable.
        workers: The number of trials that run in parallel on the ``executor``.
        **compile_options: Options of ``compile`` that are fixed in all trials.

    Raises:
        CompileError: The default plan cannot be compiled, or an option is rejected.
    """
    for name, reason in _NOT_TUNED.items():
        if compile_options.pop(name, None) is not None:
            raise CompileError(f"tune has no option '{name}': {reason}.")
    if any(not isinstance(count, int) or count < 1 for count in (trials, workers)):
        raise CompileError(
            f"tune takes at least one trial and one worker, not {trials!r:.40} and {workers!r:.40}."
        )
    # Without the cache on disk: each of the hundred programs is used only once.
    task = _TuningCall(program, inputs, {"cache": False, **compile_options}, objective)
    default = _checked(task.compiled({}, None))
    if isinstance(objective, str):
        task.value(default)  # an unknown figure is an error before trials are stored
        task = replace(task, host_share=host_share(default.steps))
    if space is None:
        space = TuningSpace.of(default, **compile_options)
    sizes = {parameter: len(choices) for parameter, choices in space.parameters().items()}
    name = "spyre-tune"
    if storage is not None:
        # The name identifies everything on which the values and the order of trials depend.
        try:
            code = package_digest()
        except Uncached as reason:
            raise CompileError(f"A program of the tuning {reason}.") from None
        parts = (
            code, default.source_text(), sorted(task.options.items()), space.parameters(), seed,
            task.objective_name,
        )  # fmt: skip
        name = f"{name} {hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}"
    search = _Search(task, space, TrialStore(name, storage, sizes))
    search.run(Proposals(space, trials, seed), trials, executor, workers)
    return search.result(default)


def _checked(program: Any) -> Program:
    if not isinstance(program, Program):
        raise CompileError("tune takes a program that is one graph; this model runs in pieces.")
    return program


@dataclass(frozen=True)
class _TuningCall:
    """The call of ``compile`` and the objective of a tuning, as a value that can be sent to workers."""

    program: Any
    inputs: Any
    options: Mapping[str, Any]
    objective: Objective
    #: The host's share of the floating-point operations that a trial may have, 0 to 1.
    host_share: float = 1.0

    def compiled(self, options: Mapping[str, Any], plan: Mapping[str, Any] | None) -> Any:
        """Compile a point without issuing warnings, because they repeat the warnings of the default."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(self.program, self.inputs, plan=plan, **{**self.options, **options})

    def value(self, program: Program) -> float:
        """Return the objective of a program; raise ``CompileError`` if it is unknown or not finite."""
        if not isinstance(self.objective, str):
            value = self.objective(program)
        elif self.objective in (metrics := program.metrics()):
            value = metrics[self.objective]
        else:
            text = f"There is no figure '{self.objective}'; there are {listed(metrics)}."
            raise CompileError(with_suggestion(text, self.objective, metrics))
        if not math.isfinite(value):
            raise CompileError(f"The objective of a program is {value}; it has to be a finite number.")
        return float(value)

    def evaluate(
        self, options: Mapping[str, Any], plan: Mapping[str, Any] | None
    ) -> tuple[float | None, str]:
        """Return the objective of a point, or None and the reason why the compiler rejects the point."""
        try:
            # A point that causes an internal error must not end the search; the summary counts it.
            with faults_reported(always=True):
                program = self.compiled(options, plan)
        except CompileError as error:
            return None, error.message
        # Most figures are of the device, so work that moves to the host lowers them.
        if isinstance(program, Program) and host_share(program.steps) > self.host_share:
            return None, "the plan moves operations to the host"
        return self.value(program), ""

    @property
    def objective_name(self) -> str:
        """The name of the figure or of the function."""
        if isinstance(self.objective, str):
            return self.objective
        return getattr(self.objective, "__name__", "objective")


class _Search:
    """The trials of a tuning; each point is compiled once."""

    def __init__(self, task: _TuningCall, space: TuningSpace, store: TrialStore) -> None:
        self.task, self.space, self.store = task, space, store
        self.outcomes = {key_of(tried.point): (tried, reason) for tried, reason in store.trials()}

    @property
    def history(self) -> list[Tried]:
        """The trials in order."""
        return [tried for tried, _ in self.outcomes.values()]

    def run(self, proposals: Proposals, trials: int, executor: Executor | None, workers: int) -> None:
        """Try points until the number of trials is reached, or there are no more points."""
        while len(self.outcomes) < trials:
            batch: list[Point] = []
            for _ in range(min(workers if executor else 1, trials - len(self.outcomes))):
                pending = {key_of(point) for point in batch}
                point = proposals.propose(self.history, pending, self.store.sample)
                # The default is tried alone, because all proposals depend on its value.
                if point is None or (batch and not self.outcomes):
                    break
                batch.append(point)
            if not batch:
                return
            for point, (value, reason) in zip(batch, self._evaluated(batch, executor), strict=True):
                self._keep(point, value, reason)

    def value(self, point: Point) -> float | None:
        """Return the value of a point, and try the point if necessary; None if the compiler rejects it."""
        if key_of(point) not in self.outcomes:
            ((value, reason),) = self._evaluated([point], None)
            self._keep(point, value, reason)
        return self.outcomes[key_of(point)][0].value

    def result(self, default: Program) -> Tuned:
        """Return the result: the best point, without changes that do not improve it."""
        default_value = self.value({})
        assert default_value is not None
        valued = [tried for tried in self.history if tried.value is not None]
        point = self._needed(min(valued, key=lambda tried: (tried.value, len(tried.point))).point)
        value = self.value(point)
        assert value is not None
        changes = tuple(
            TuningChange(self.space.text(name, number), self.value(_without(point, name)))
            for name, number in point.items()
        )
        refused: dict[str, int] = {}
        for tried, reason in self.outcomes.values():
            if tried.value is None:
                refused[reason] = refused.get(reason, 0) + 1
        options, plan = self.space.call(point)
        best = _checked(self.task.compiled(options, plan)) if point else default
        plan, options = self._replayed(best, options, plan)
        return Tuned(
            best, plan, options, self.task.objective_name, default_value, value, len(self.outcomes), changes, refused,
            self.store.completed(),
        )  # fmt: skip

    def _needed(self, point: Point) -> Point:
        """Remove the changes from a point that do not improve its value."""
        for name in list(point):
            value, without = self.value(point), self.value(_without(point, name))
            if value is not None and without is not None and without <= value:
                point = _without(point, name)
        return point

    def _replayed(
        self, best: Program, options: dict[str, Any], pins: dict[str, Any] | None
    ) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Return a plan and the options that it needs; prefer the whole plan without options if it is as good."""
        try:
            whole = best.plan()
        except CompileError:
            return pins, options
        # A measured objective differs from run to run, so the predicted times are compared instead.
        task = self.task if isinstance(self.task.objective, str) else replace(self.task, objective="total_us")
        limit = task.value(best)
        for chosen in ({}, options) if options else ({},):
            replayed, _ = task.evaluate(chosen, whole)
            if replayed is not None and replayed <= limit:
                return whole, chosen
        return pins or {"version": 1}, options

    def _evaluated(self, batch: Sequence[Point], executor: Executor | None) -> list[tuple[float | None, str]]:
        calls = [self.space.call(point) for point in batch]
        if executor is None:
            return [self.task.evaluate(*call) for call in calls]
        futures = [executor.submit(self.task.evaluate, *call) for call in calls]
        return [future.result() for future in futures]

    def _keep(self, point: Point, value: float | None, reason: str) -> None:
        self.store.add(point, value, reason)
        self.outcomes[key_of(point)] = Tried(dict(point), value), reason


def _without(point: Point, name: str) -> Point:
    return {key: number for key, number in point.items() if key != name}


# Trials of a tuning as an Optuna study: in memory, or in a database that allows resuming a killed tuning.

#: The value of a parameter at its default.
_DEFAULT = "default"
_REASON, _POINT = "reason", "point"

#: Maximum number of parameters in a plot of importances.
_MOST_PARAMETERS = 12


class TrialStore:
    """The study of one tuning; ``name`` identifies the tuning, so one database can hold many studies.

    ``storage`` is the path of an SQLite file or an Optuna URL, None for memory. Only finished trials are written, so
    a trial that is running when a process ends is repeated. Raise ``CompileError`` if Optuna is not installed, or for
    a file of another kind.
    """

    def __init__(self, name: str, storage: str | Path | None, sizes: Mapping[str, int]) -> None:
        self._optuna = imported("optuna", "tune")
        self._optuna.logging.set_verbosity(self._optuna.logging.WARNING)
        # The choices of a parameter are texts, because the order of numbers would be significant.
        self._distributions = {
            parameter: self._optuna.distributions.CategoricalDistribution([_DEFAULT, *map(str, range(size))])
            for parameter, size in sizes.items()
        }
        url = None if storage is None else str(storage)
        if url is not None and "://" not in url:
            url = f"sqlite:///{url}"
        try:
            self._study = self._optuna.create_study(study_name=name, storage=url, load_if_exists=True)
        # The database library raises different exceptions for a file that is not a database; the file is unchanged.
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise CompileError(
                f"The trials cannot be kept in '{storage}': {first}; give a new path, or a file of an earlier tuning."
            ) from error

    def trials(self) -> list[tuple[Tried, str]]:
        """Return the trials in order, each with the reason for its rejection, or ""."""
        return [
            (Tried(dict(trial.user_attrs[_POINT]), trial.value), trial.user_attrs.get(_REASON, ""))
            for trial in self._study.get_trials(deepcopy=False)
        ]

    def add(self, point: Point, value: float | None, reason: str) -> None:
        """Write a finished trial; a trial without a value is marked as pruned."""
        states = self._optuna.trial.TrialState
        # Parameters at their default are omitted: a large space has hundreds of them.
        chosen = {parameter: str(number) for parameter, number in point.items()}
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=states.PRUNED if value is None else states.COMPLETE,
                value=value,
                params=chosen,
                distributions={parameter: self._distributions[parameter] for parameter in chosen},
                user_attrs={_POINT: dict(point), _REASON: reason},
            )
        )

    def sample(self, seed: int) -> Point:
        """Propose a point with Optuna's TPE sampler, from the trials that have values."""
        optuna = self._optuna
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(seed=seed % (1 << 32), multivariate=True, n_startup_trials=1)
        params = self.completed(sampler).ask(self._distributions).params
        return {parameter: int(number) for parameter, number in params.items() if number != _DEFAULT}

    def completed(self, sampler: Any = None) -> Any:
        """Return a study in memory of the trials with values, each with all parameters."""
        optuna = self._optuna
        study = optuna.create_study(sampler=sampler)
        study.add_trials(
            [
                optuna.trial.create_trial(
                    value=tried.value,
                    params={
                        parameter: str(tried.point.get(parameter, _DEFAULT))
                        for parameter in self._distributions
                    },
                    distributions=self._distributions,
                )
                for tried, _ in self.trials()
                if tried.value is not None
            ]
        )
        return study


def _varied(study: Any) -> list[str]:
    """Return the parameters that have two values in the trials of a study."""
    values: dict[str, set[str]] = {}
    for trial in study.trials:
        for name, value in trial.params.items():
            values.setdefault(name, set()).add(value)
    return [name for name, found in values.items() if len(found) > 1]


# The order in which a tuning tries the points of a space, as a function of the seed and of the trials so far.
#
# The first point is the default. Up to half of the trials are then single changes: one change of each parameter,
# the changes of the longest operations first, before the second change of any parameter. Combinations follow: first the
# changes that improve the default, added one by one to the best point, then alternating random changes of the best
# point and proposals of Optuna's sampler.

#: Maximum fraction of the trials that are single changes.
_SINGLES = 0.5
#: Number of random draws before a space counts as exhausted, and maximum number of changes in a draw.
_DRAWS, _MOST_CHANGES = 200, 4


def key_of(point: Point) -> tuple[tuple[str, int], ...]:
    """Return a hashable key that is equal for equal points."""
    return tuple(sorted(point.items()))


@dataclass(frozen=True)
class Tried:
    """A point that was tried, and its value; None if the compiler rejected it."""

    point: Point
    value: float | None


class Proposals:
    """The proposals of one tuning, for a total number of ``trials``."""

    def __init__(self, space: TuningSpace, trials: int, seed: int) -> None:
        self.space, self.trials, self.seed = space, trials, seed
        self._sizes = {name: len(choices) for name, choices in space.parameters().items()}
        self._singles = list(self._single_changes())

    def propose(self, history: Sequence[Tried], pending: Set[tuple], sampler: Sampler) -> Point | None:
        """Return a point that is neither in the history nor pending; None if none was found."""
        count = len(history) + len(pending)
        known = {key_of(tried.point) for tried in history} | pending
        if not known:
            return {}
        for candidates in self._by_phase(history, count, sampler):
            for point in candidates:
                if key_of(point) not in known and self._is_possible(point):
                    return point
        return None

    def _is_possible(self, point: Point) -> bool:
        """Return whether a point is a valid call of ``compile``: two choices must not tile the same operation."""
        try:
            self.space.call(point)
        except CompileError:
            return False
        return True

    def _by_phase(self, history: Sequence[Tried], count: int, sampler: Sampler) -> Iterator[Iterator[Point]]:
        if count < max(2, self.trials * _SINGLES):
            yield iter(self._singles)
        yield self._additions(history)
        if count % 2:
            yield iter([sampler(self.seed * 1_000_003 + count)])
        yield self._mutations(history, count)
        yield iter(self._singles)

    def _single_changes(self) -> Iterator[Point]:
        """Yield all points with one change: the first choice of each parameter by weight, then the second, etc."""
        by_weight = sorted(self._sizes, key=self.space.weight, reverse=True)
        for number in range(max(self._sizes.values(), default=0)):
            yield from ({name: number} for name in by_weight if number < self._sizes[name])

    def _additions(self, history: Sequence[Tried]) -> Iterator[Point]:
        """Yield the best point with one more change that by itself improves the default, the largest gain first."""
        if not (valued := [tried for tried in history if tried.value is not None]):
            return
        default = next((tried.value for tried in valued if not tried.point), None)
        best = _best(valued)
        gains = [
            tried for tried in valued
            if len(tried.point) == 1 and default is not None and _value(tried) < default
        ]  # fmt: skip
        for tried in sorted(gains, key=_value):
            yield {**best.point, **tried.point}

    def _mutations(self, history: Sequence[Tried], count: int) -> Iterator[Point]:
        """Yield the best point with random parameters set to a random choice or the default: first one, then more."""
        valued = [tried for tried in history if tried.value is not None]
        names = list(self._sizes)
        if not valued or not names:
            return
        best, generator = _best(valued), random.Random(f"{self.seed} {count}")
        weights = [self.space.weight(name) + 1 / len(names) for name in names]
        for draw in range(_DRAWS):
            point = dict(best.point)
            for name in generator.choices(names, weights, k=1 + draw * _MOST_CHANGES // _DRAWS):
                point[name] = generator.randrange(-1, self._sizes[name])
            yield {name: number for name, number in point.items() if number >= 0}


def _value(tried: Tried) -> float:
    assert tried.value is not None
    return tried.value


def _best(valued: Sequence[Tried]) -> Tried:
    """Return the trial with the least value; ties are broken by the fewest changes, then by order."""
    return min(valued, key=lambda tried: (_value(tried), len(tried.point)))
