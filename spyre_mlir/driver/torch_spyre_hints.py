# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decisions about a program in the public form of torch-spyre: hints in the model's source, layouts, configuration.

A hint is a ``spyre_hint`` around statements of the model, or around a call in a statement. ``tiles`` of named dims
express loops, ``work_div`` expresses core divisions. A name applies to every operation that the code computes, so a
hint exists where all these operations agree, with the innermost code first. Sources: "Working set reduction hints" and
the public tests of torch-spyre.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, cast

from spyre_mlir.analysis.aliasing import all_ops, argument_attributes
from spyre_mlir.analysis.plan_pins import planned_function
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.hint_attributes import DIM_SIZES, DIMS, dims_of, hints_attr, with_hints
from spyre_mlir.dialects.structured import shape_of, structured
from spyre_mlir.driver.build import Value, build, plan_text
from spyre_mlir.driver.hint_files import (
    CodeHint,
    SourceCall,
    SourceStatement,
    TorchSpyreHints,
    call_of,
    statements_of,
)
from spyre_mlir.errors import listed
from spyre_mlir.mlir import ir, source_note
from spyre_mlir.passes.propagate_named_dims import NamePropagation, PropagateNamedDims
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.pipelines.text import Pipeline
from spyre_mlir.plans import PlanFile, PlannedArgument, PlannedOperation, read_plan
from spyre_mlir.records import dataclass
from spyre_mlir.tiling import DigitRun, DimDigits, Hint, NamedDim
from spyre_mlir.tiling.names import covered, unnamed, whole
from spyre_mlir.timeline import timeline

# Names for the dims of a program: one name for all dims that the operations of the program iterate over together.
#
# Every dim of an argument starts as one factor with a name of its own. Names propagate through the program by the rules
# for hints. Two operands that name an iteration dim differently unify the names; a view that reads a part of a dim, and
# an operand with smaller factors, split a factor. This is repeated until nothing changes. Parameters whose paths differ
# only in numbers, such as the weights of equal layers, have the same names.


@dataclass(frozen=True)
class NamedOperation:
    """A device operation by its name in plans, with the names of each iteration dim and its source lines.

    If the program has several parts, the name begins with the part.

    ``frames`` are (file, line) pairs of the model's code, the innermost call first. ``module`` is the path of the
    PyTorch module that computes the operation.
    """

    name: str
    dims: tuple[tuple[str, ...], ...]
    frames: tuple[tuple[str, int], ...]
    module: str


@dataclass(frozen=True)
class NamedProgram:
    """A part of a program: the names of the dims of each argument, and the operations in program order.

    ``sizes`` are the sizes of all names of the program.
    """

    sizes: dict[str, int]
    arguments: dict[str, tuple[str, ...]]
    operations: tuple[NamedOperation, ...]


def named_programs(
    parts: Mapping[str, ir.Operation], own: Collection[str], pipeline: SpyrePipeline
) -> Iterator[tuple[str, NamedProgram]]:
    """Yield the operations that a plan of each part names before tiling, with names for the dims of the program.

    Only the arguments ``own`` of the program have names, and not values that other parts compute.
    """
    modules, factors = {part: _with_names(linalg, pipeline) for part, linalg in parts.items()}, _Factors()
    funcs = {part: planned_function(module) for part, module in modules.items()}
    while True:
        # A new set of names: a factor that was split has no name any more.
        factors.known.clear()
        found = {part: _Unification(func, factors, own) for part, func in funcs.items()}
        for part, func in funcs.items():
            with func.context, func.location:
                found[part].run(all_ops(func))
        if not factors.has_changed():
            break
    texts = factors.texts()
    sizes = {text: factors.known[name][1] // factors.known[name][2] for name, text in texts.items()}
    for part, func in funcs.items():
        arguments = {
            label: tuple(texts[factors.leader(factor.name)] for factor in factors.of(dims))
            for label, dims in found[part].arguments.items()
        }
        operations = tuple(
            NamedOperation(
                f"{part}{sdsc.name_of(op)}",
                tuple(tuple(texts[factors.leader(name)] for name in dim) for dim in dims_of(op)),
                tuple(frames_of(op.location)),
                source_note(op.location, "module"),
            )
            for op in all_ops(func)
            if DIMS in op.attributes
        )
        yield part, NamedProgram(sizes, arguments, operations)


def _with_names(linalg: ir.Operation, pipeline: SpyrePipeline) -> ir.Operation:
    """Return a copy of a program before tiling, whose operations have the names of a plan."""
    passes = replace(pipeline, save_plan="", use_plan=None).pipeline("tiled")
    # A plan names the operations of each layer, so layers are not folded.
    steps, beyond = (
        tuple(step for step in part if not step.name.endswith("fold-repeated-layers"))
        for part in (passes.steps, passes.beyond)
    )
    end = [step.name for step in steps].index("name-operations") + 1
    module = linalg.clone().operation
    run_pipeline(module, Pipeline(steps[:end], (*steps[end:], *beyond)))
    return module


def frames_of(location: ir.Location) -> Iterator[tuple[str, int]]:
    """Yield the (file, line) pairs of the calls in a location, the innermost first."""
    if isinstance(location, ir.FileLineColLoc):
        yield str(location.filename), location.start_line
    elif isinstance(location, ir.CallSiteLoc):
        yield from frames_of(location.callee)
        yield from frames_of(location.caller)
    elif isinstance(location, ir.NameLoc):
        yield from frames_of(location.child_loc)
    elif isinstance(location, ir.FusedLoc):
        # Fused operations have several locations; messages are about the first, too.
        found = (list(frames_of(part)) for part in location.locations)
        yield from next((frames for frames in found if frames), ())


#: A dim of an argument: the name of the argument with stars for numbers, the number of the dim, and its size.
_Dim = tuple[str, int, int]


@dataclass
class _Factors:
    """Factors of dims, by names: (dim, positions of the factor and all inside it, positions inside it)."""

    cuts: dict[_Dim, set[int]] = field(default_factory=dict)
    known: dict[str, tuple[_Dim, int, int]] = field(default_factory=dict)
    leaders: dict[str, str] = field(default_factory=dict)
    changes: int = 0

    def has_changed(self) -> bool:
        """Return whether a factor was split, or two names were unified, since the last call."""
        changes, self.changes = self.changes, 0
        return changes > 0

    def of(self, dims: Sequence[_Dim]) -> Iterator[NamedDim]:
        """Yield the factors of the dims of an argument, outermost first."""
        for dim in dims:
            bounds = sorted({1, dim[-1], *self.cuts.get(dim, ())}, reverse=True)
            for outer, inner in itertools.pairwise(bounds):
                name = f"{dim[0]}|{dim[1]}|{outer}|{inner}"
                self.known[name] = dim, outer, inner
                yield NamedDim(self.leader(name), outer // inner)

    def leader(self, name: str) -> str:
        """Return the name that stands for a class of unified names."""
        while name in self.leaders:
            name = self.leaders[name]
        return name

    def unify(self, runs: tuple[DigitRun, DigitRun]) -> None:
        """Unify the names of an iteration dim in two operands, or split their factors at the same positions."""
        bounds = [{math.prod(part.size for part in run[at:]) for at in range(len(run))} for run in runs]
        for run, others in zip(runs, reversed(bounds), strict=True):
            inner = 1
            for part in reversed(run):
                for ratio in (bound // inner for bound in others if bound % inner == 0):
                    self.cut(part, ratio)
                inner *= part.size
        for one, other in zip(*runs, strict=False) if bounds[0] == bounds[1] else ():
            names = [self.leader(part.name) for part in (one, other) if part.name is not None]
            if len({*names}) == 2:
                self.leaders[names[1]] = names[0]
                self.changes += 1

    def cut(self, part: DimDigits, ratio: int) -> None:
        """Split a factor, and the factors unified with it, before the position ``ratio`` of some of its digits."""
        divisor = part.divisor * ratio
        if isinstance(part.dim, NamedDim) and ratio <= part.size and 1 < divisor < part.dim.size:
            for name, (dim, outer, inner) in self.known.items():
                if self.leader(name) == part.dim.name and outer // inner % divisor == 0:
                    bounds = self.cuts.setdefault(dim, set())
                    self.changes += inner * divisor not in bounds
                    bounds.add(inner * divisor)

    def texts(self) -> dict[str, str]:
        """Return a short identifier for each class of names: argument and dim, with a number for a factor."""
        texts: dict[str, str] = {}
        for name in dict.fromkeys(map(self.leader, self.known)):
            (label, number, size), outer, inner = self.known[name]
            stem = re.sub(r"\W+", "_", f"{label}_{number}").strip("_")
            texts[name] = stem if (outer, inner) == (size, 1) else f"{stem}_{outer // inner}_{inner}"
        return texts


class _Silent(PropagateNamedDims):
    """The owner of a propagation in which names may contradict each other: they are unified."""

    def warn(self, op: Any, reason: str) -> None:
        pass


class _Unification(NamePropagation):
    """One propagation of all names."""

    def __init__(self, func: ir.Operation, factors: _Factors, own: Collection[str]) -> None:
        super().__init__(_Silent(), func)
        self.factors, self.own = factors, own
        self.arguments: dict[str, list[_Dim]] = {}

    def run(self, ops: Sequence[ir.Operation]) -> None:
        arguments = self.func.regions[0].blocks[0].arguments
        for argument, attributes in zip(arguments, argument_attributes(self.func), strict=True):
            view = sdsc.host_view_of(ir.DictAttr.get(attributes), shape_of(argument))
            source = attributes.get(sdsc.SOURCE)
            label = ir.StringAttr(attributes[sdsc.HOST].label if source is None else source).value
            key = re.sub(r"(?<![^.])\d+(?![^.])", "*", label)
            sizes = enumerate(view.array_shape) if label in self.own else ()
            dims = [(key, number, size) for number, size in sizes if size > 1]
            self.arguments[label] = dims
            if label not in self.own:
                self.names[argument] = tuple(unnamed(size) for size in view.shape)
                continue
            parts = whole(self.factors.of(dims))
            names: list[DigitRun] = []
            for size, (*outer, (_, stride)) in zip(view.shape, view.dims, strict=True):
                names.append(unnamed(size) if outer else covered(parts, size, stride, view.offset))
            self.names[argument] = tuple(names)
        for op in ops:
            self._visit(op)

    def _agreed(self, op: ir.Operation, what: str, candidates: Sequence[DigitRun]) -> DigitRun:
        chosen = super()._agreed(op, what, candidates)
        for run in candidates:
            # Digits that a view or another operand counts are factors of their own.
            for part in run:
                self.factors.cut(part, 1)
                self.factors.cut(part, part.size)
            self.factors.unify((chosen, run))
        return chosen


#: Fields of torch-spyre's configuration, by the options of the pipeline with the same meaning.
_CONFIG = {
    "sencores": "sencores",
    "lx_planning": "lx_planning",
    "lx_frac_avail": "dxp_lx_frac_avail",
}


def torch_spyre_hints(
    modules: Mapping[str, ir.Operation], arguments: Sequence[Value], pipeline: SpyrePipeline
) -> TorchSpyreHints:
    """Return the decisions about a program from the linalg of its parts; each hint costs a compilation.

    ``arguments`` are the arguments of the program, which has one name for equal dims in all parts.
    """
    parts = {f"{name}:" if len(modules) > 1 else "": linalg for name, linalg in modules.items()}
    own = {value.name for value in arguments}
    named = dict(named_programs(parts, own, pipeline))
    plans = {part: read_plan(plan_text(linalg, pipeline), "plan") for part, linalg in parts.items()}
    planned = {f"{part}{entry.name}": entry for part, plan in plans.items() for entry in plan.operations}
    operations = [op for program in named.values() for op in program.operations if op.name in planned]
    code = _Code(operations, planned)
    hints = [*code.tiled(), *code.divided()]
    # The caller gives the arguments of the program the layouts of the plan.
    placed = {
        part: tuple(entry for entry in plan.arguments if entry.source is None and entry.name in own)
        for part, plan in plans.items()
    }
    trials = [_Trial(part, linalg, named[part], planned, placed[part]) for part, linalg in parts.items()]

    def us(hints: Sequence[CodeHint] | None, pipeline: SpyrePipeline) -> float:
        return sum(trial.us(hints, pipeline) for trial in trials)

    plain = replace(pipeline, co_optimizing_lx_planning=False)
    known, before = [], us((), plain)
    plain_us = before
    for hint in hints:
        after = us([*known, hint], plain)
        known.append(replace(hint, gain_us=before - after))
        before = after
    defaults = SpyrePipeline()
    return TorchSpyreHints(
        tuple(known),
        next(iter(named.values())).sizes,
        {label: dims for part in named.values() for label, dims in part.arguments.items() if label in own},
        tuple(value.name for value in arguments if value.kind == "input"),
        {
            entry.name: tuple(entry.layout["dim_order"])
            for entries in placed.values()
            for entry in entries
            if _is_other_order(entry.layout)
        },
        {
            field_: getattr(pipeline, name)
            for name, field_ in _CONFIG.items()
            if getattr(pipeline, name) != getattr(defaults, name)
        },
        (*code.others, *_other_decisions(plans.values())),
        us(None, pipeline),
        us(known, pipeline),
        plain_us,
    )


def _is_other_order(layout: Any) -> bool:
    order = layout.get("dim_order") if isinstance(layout, dict) else None
    return order is not None and list(order) != sorted(order)


@dataclass
class _Code:
    """The code of the operations, and the hints on it; ``others`` are sentences about operations without a hint."""

    operations: Sequence[NamedOperation]
    planned: Mapping[str, PlannedOperation]
    others: list[str] = field(default_factory=list)

    def tiled(self) -> list[CodeHint]:
        """Return a hint for each group of operations in the same loops."""
        groups: dict[tuple[str, ...], list[NamedOperation]] = {}
        for op in self.operations:
            if loops := self.planned[op.name].tiling:
                part = op.name.rpartition(":")[0]
                groups.setdefault((part, *(loop.loop for loop in loops)), []).append(op)
        hints = (self._loop(loops, group) for (_, *loops), group in groups.items())
        return [hint for hint in hints if hint is not None]

    def _loop(self, loops: Sequence[str], group: list[NamedOperation]) -> CodeHint | None:
        """Return the hint for the operations in the same loops; None, with a sentence, if there is none."""
        tiles = [
            {_leading(op, loop.dim): loop.tiles for loop in self.planned[op.name].tiling or ()}
            for op in group
        ]
        places = [{(each.file, each.body): each for each in statements_of(op.frames)} for op in group]
        for key in places[0]:
            if not all(key in place for place in places):
                continue
            first, last = (pick(place[key].index for place in places) for pick in (min, max))
            inside = [
                op
                for op in self.operations
                for each in statements_of(op.frames)
                if (each.file, each.body) == key and first <= each.index <= last
            ]
            names = {name for op in inside if op not in group for dim in op.dims for name in dim}
            if (
                None not in tiles[0]
                and all(each == tiles[0] for each in tiles)
                and not names & tiles[0].keys()
            ):
                chosen = [place[key] for place in places]
                lines = min(each.first for each in chosen), max(each.last for each in chosen)
                operations = tuple(op.name for op in group)
                return CodeHint(key[0], *lines, None, tiles[0], {}, operations)  # type: ignore[arg-type]
        if loops[0].startswith("attention"):
            what = "an online softmax"
        else:
            what = "loops that no block of code has alone"
        self.others.append(f"{_where(group)}: {what} ({listed(loops)}) around {_named(group)}.")
        return None

    def divided(self) -> list[CodeHint]:
        """Return the hints for core divisions, in program order."""
        chosen: dict[SourceCall | SourceStatement, CodeHint] = {}
        covered: dict[SourceCall | SourceStatement, list[NamedOperation]] = {}
        height: dict[SourceCall | SourceStatement, int] = {}
        for op in self.operations:
            call = call_of(op.frames, op.module.rpartition(".")[2])
            statements = enumerate(statements_of(op.frames), 1)
            for index, code in [*([(0, call)] if call else []), *statements]:
                covered.setdefault(code, []).append(op)
                height[code] = max(height.get(code, 0), index)
        pending = {op.name: op for op in self.operations if self.planned[op.name].slices is not None}
        # A whole statement first, so that a hint is around a call only where the statement needs several.
        ordered = sorted(covered, key=height.__getitem__)
        for code in [*(code for code in ordered if height[code] == 1), *ordered]:
            ops = [op for op in covered[code] if op.name in pending]
            counts = self._counts(ops)
            if ops and counts is not None:
                lines = (code.line, code.line) if isinstance(code, SourceCall) else (code.first, code.last)
                call, names = code if isinstance(code, SourceCall) else None, tuple(op.name for op in ops)
                chosen[code] = CodeHint(code.file, *lines, call, {}, counts, names)
                for name in names:
                    del pending[name]
        by_code: dict[tuple[str, int], list[NamedOperation]] = {}
        for op in pending.values():
            by_code.setdefault(op.frames[0] if op.frames else ("", 0), []).append(op)
        for ops in by_code.values():
            divisions = sorted({str(list(self.planned[op.name].slices or ())) for op in ops})
            self.others.append(f"{_where(ops)}: divisions {listed(divisions)} of {_named(ops)}.")
        # One block around adjacent statements with the same hint.
        merged: dict[SourceCall | SourceStatement, CodeHint] = {}
        before: SourceCall | SourceStatement | None = None
        for code in sorted(chosen, key=lambda code: (code.file, chosen[code].first, chosen[code].last)):
            hint = chosen[code]
            if (
                isinstance(code, SourceStatement)
                and isinstance(before, SourceStatement)
                and before.next_to(code)
            ):
                block = merged[before]
                if block.work_div == hint.work_div:
                    del merged[before]
                    operations = block.operations + hint.operations
                    hint = replace(hint, first=block.first, operations=operations)
            merged[code], before = hint, code
        order = {op.name: index for index, op in enumerate(self.operations)}
        return sorted(merged.values(), key=lambda hint: order[hint.operations[0]])

    def _counts(self, ops: Sequence[NamedOperation]) -> dict[str, int] | None:
        """Return the slices by names that divide all operations as planned; None if names cannot express it."""
        counts: dict[str, int] = {}
        for op in ops:
            slices = self.planned[op.name].slices or ()
            if len(slices) != len(op.dims):
                return None
            for dim, count in enumerate(slices):
                name = _leading(op, dim)
                # A name applies to every dim that has it.
                if (name is None and count > 1) or (
                    name is not None and counts.setdefault(name, count) != count
                ):
                    return None
        return counts


def _leading(op: NamedOperation, dim: int) -> str | None:
    """Return the name by which a hint divides a dim."""
    return op.dims[dim][0] if op.dims[dim] else None


def _where(ops: Sequence[NamedOperation]) -> str:
    file, line = ops[0].frames[0] if ops[0].frames else ("unknown source", 0)
    return f"{file}:{line}"


def _named(ops: Sequence[NamedOperation]) -> str:
    return listed(op.name for op in ops)


def _other_decisions(plans: Iterable[PlanFile]) -> list[str]:
    """Return sentences about the decisions that have no public form at all."""
    inserted: dict[str, int] = {}
    operations = [entry for plan in plans for entry in plan.operations]
    for entry in operations:
        if "/" in entry.name:
            kind = entry.name.rpartition("/")[2].partition(".")[0]
            inserted[kind] = inserted.get(kind, 0) + 1
    kinds = {
        "shuffle": "relayouts between core divisions",
        "clone": "copies to another memory",
        "restickify": "conversions of layouts",
    }
    texts = [f"{count} {kinds[kind]}." for kind, count in inserted.items() if kind in kinds]
    in_lx = sum(entry.placement is not None and entry.placement.memory == "lx" for entry in operations)
    ordered = sum(len(entry.core_order or ()) > 1 for entry in operations)
    if in_lx:
        texts.append(f"Addresses of {in_lx} results in LX.")
    if ordered:
        texts.append(f"The order of cores of {ordered} operations.")
    return texts


@dataclass
class _Trial:
    """Compilations of a part of a program with some hints; the arguments ``placed`` have the layouts of the plan."""

    part: str
    linalg: ir.Operation
    named: NamedProgram
    planned: Mapping[str, PlannedOperation]
    placed: tuple[PlannedArgument, ...]

    def us(self, hints: Sequence[CodeHint] | None, pipeline: SpyrePipeline) -> float:
        """Return the predicted time with some hints and without other tiles; with None, of the program itself."""
        module = self.linalg.clone().operation
        if hints is not None:
            pipeline = replace(pipeline, use_plan="")
            with module.context, module.location:
                self._write_tiles(module, [hint for hint in hints if hint.tiles])
                self._write_plan(module, hints, pipeline)
        text = str(module.get_asm(enable_debug_info=True))
        bundles = build(ir.Module.parse(text, module.context), pipeline, False).bundles
        return sum(timeline(step.bundle, step.lx_frac_avail).total_ns for step in bundles) / 1000

    def _write_plan(self, module: ir.Operation, hints: Sequence[CodeHint], pipeline: SpyrePipeline) -> None:
        """Write the divisions of hints to a module as pins of a plan, which gives other operations no tiles."""
        tiled = {name for hint in hints if hint.tiles for name in hint.operations}
        divided = {name for hint in hints if hint.work_div for name in hint.operations}
        known = {(op.name, len(op.dims), op.frames) for op in self.named.operations}
        entries = []
        # Rewritings whose costs are compared depend on the pipeline and on hints, so operations may differ.
        with_names = _with_names(module, pipeline)
        for op in all_ops(planned_function(with_names)):
            if (own := sdsc.name_of(op)) is None or (generic := structured(op)) is None:
                continue
            name, entry = f"{self.part}{own}", dict[str, Any](name=own)
            if name not in tiled:
                entry["tiling"] = []
            if name in divided and (name, len(generic.iterators), tuple(frames_of(op.location))) in known:
                entry["slices"] = list(self.planned[name].slices or ())
            entries.append(entry)
        arguments = [{"name": each.name, "layout": each.layout} for each in self.placed]
        plan = {"version": 1, "arguments": arguments, "operations": entries}
        module.attributes[sdsc.PLAN] = ir.StringAttr.get(json.dumps(plan))

    def _write_tiles(self, module: ir.Operation, blocks: Sequence[CodeHint]) -> None:
        """Write the hints of tiles to a module, as the frontend writes them."""
        if not blocks:
            return
        func = planned_function(module)
        func.attributes[DIM_SIZES] = to_attribute(dict(self.named.sizes))
        arguments = []
        for entry, label in zip(func.attributes["arg_attrs"], self.named.arguments, strict=True):
            attributes = {named.name: named.attr for named in ir.DictAttr(cast(Any, entry))}
            arguments.append(
                ir.DictAttr.get({**attributes, DIMS: to_attribute(list(self.named.arguments[label]))})
            )
        func.attributes["arg_attrs"] = ir.ArrayAttr.get(arguments)

        def visit(op: ir.Operation) -> ir.WalkResult:
            lines = [(each.file, each.first) for each in statements_of(tuple(frames_of(op.location)))]
            found = [
                Hint(number, tuple(hint.tiles.items()))
                for number, hint in enumerate(blocks, 1)
                if any(file == hint.file and hint.first <= line <= hint.last for file, line in lines)
            ]
            if found:
                op.location = with_hints(op.location, hints_attr(found))
            return ir.WalkResult.ADVANCE

        func.walk(visit)
