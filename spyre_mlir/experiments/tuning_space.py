# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The space of a tuning: the alternatives to the default plan of a program, as plain data.

The candidates come from the compiler's own searches on the program with default options: the divisions of
joint-planning, the loops of auto-tiling, the layouts of choose-layouts. Choices are options of ``compile`` and pins of
a plan file (docs/plans.md), so a point of the space is one call of ``compile``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from spyre_mlir.analysis.aliasing import all_ops, argument_attributes, functions
from spyre_mlir.analysis.core_ownership import Divided
from spyre_mlir.analysis.layout_graph import LayoutGraph
from spyre_mlir.analysis.plan_pins import core_order_of, layout_value
from spyre_mlir.analysis.tile_nests import Nests, Tiled, dim_classes
from spyre_mlir.dialects import context, parsed, sdsc
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.division import work_distribution
from spyre_mlir.division.spans import division_problem
from spyre_mlir.driver.program import Program
from spyre_mlir.errors import CompileError
from spyre_mlir.layout_search.minimum_cost import Problem
from spyre_mlir.mlir import ir
from spyre_mlir.passes.auto_tiling import AutoTiling
from spyre_mlir.passes.joint_planning import JointPlanning
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.pipelines.pipeline_options import PipelineOptions
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.divider import blocked_dims
from spyre_mlir.target.ops import DEVICE_OPS

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
