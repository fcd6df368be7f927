# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decisions about a program in the public form of torch-spyre: hints in the model's source, layouts, configuration.

A hint is a ``spyre_hint`` around statements of the model, or around a call in a statement. ``tiles`` of named dims
express loops, ``work_div`` expresses core divisions. A name applies to every operation that the code computes, so a
hint exists where all these operations agree, with the innermost code first. Sources: "Working set reduction hints" and
the public tests of torch-spyre.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, cast

from spyre_mlir.analysis.plan_pins import planned_function
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.attributes import to_attribute
from spyre_mlir.dialects.hint_attributes import DIM_SIZES, DIMS, hints_attr, with_hints
from spyre_mlir.driver.build import build, plan_text
from spyre_mlir.driver.hint_files import CodeHint, TorchSpyreHints
from spyre_mlir.driver.named_program import NamedOperation, NamedProgram, frames_of, named_program
from spyre_mlir.driver.source_blocks import SourceCall, SourceStatement, call_of, statements_of
from spyre_mlir.errors import listed
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline
from spyre_mlir.plans import PlanFile, PlannedOperation, read_plan
from spyre_mlir.records import dataclass
from spyre_mlir.tiling import Hint
from spyre_mlir.timeline import timeline

#: Fields of torch-spyre's configuration, by the options of the pipeline with the same meaning.
_CONFIG = {
    "sencores": "sencores",
    "lx_planning": "lx_planning",
    "lx_frac_avail": "dxp_lx_frac_avail",
}


def torch_spyre_hints(linalg: ir.Operation, pipeline: SpyrePipeline) -> TorchSpyreHints:
    """Return the decisions about a program, from its linalg; each hint costs a compilation."""
    named, plan = named_program(linalg, pipeline), read_plan(plan_text(linalg, pipeline), "plan")
    planned = {entry.name: entry for entry in plan.operations}
    code = _Code([op for op in named.operations if op.name in planned], planned)
    hints = [*code.tiled(), *code.divided()]
    trial = _Trial(linalg, pipeline, named, planned)
    plain = replace(pipeline, co_optimizing_lx_planning=False)
    known, before = [], trial.us((), plain)
    plain_us = before
    for hint in hints:
        after = trial.us([*known, hint], plain)
        known.append(replace(hint, gain_us=before - after))
        before = after
    defaults = SpyrePipeline()
    return TorchSpyreHints(
        tuple(known),
        named.sizes,
        named.arguments,
        tuple(entry.name for entry in plan.arguments if entry.kind == "input" and entry.source is None),
        {
            entry.name: tuple(entry.layout["dim_order"])
            for entry in plan.arguments
            if entry.source is None and _is_other_order(entry.layout)
        },
        {
            field_: getattr(pipeline, name)
            for name, field_ in _CONFIG.items()
            if getattr(pipeline, name) != getattr(defaults, name)
        },
        (*code.others, *_other_decisions(plan)),
        trial.us(None, pipeline),
        trial.us(known, pipeline),
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
                groups.setdefault(tuple(loop.loop for loop in loops), []).append(op)
        return [hint for loops, group in groups.items() if (hint := self._loop(loops, group)) is not None]

    def _loop(self, loops: tuple[str, ...], group: list[NamedOperation]) -> CodeHint | None:
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
        what = (
            "an online softmax"
            if loops[0].startswith("attention")
            else "loops that no block of code has alone"
        )
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


def _other_decisions(plan: PlanFile) -> list[str]:
    """Return sentences about the decisions that have no public form at all."""
    inserted: dict[str, int] = {}
    for entry in plan.operations:
        if "/" in entry.name:
            kind = entry.name.rpartition("/")[2].partition(".")[0]
            inserted[kind] = inserted.get(kind, 0) + 1
    kinds = {
        "shuffle": "relayouts between core divisions",
        "clone": "copies to another memory",
        "restickify": "conversions of layouts",
    }
    texts = [f"{count} {kinds[kind]}." for kind, count in inserted.items() if kind in kinds]
    in_lx = sum(entry.placement is not None and entry.placement.memory == "lx" for entry in plan.operations)
    ordered = sum(len(entry.core_order or ()) > 1 for entry in plan.operations)
    if in_lx:
        texts.append(f"Addresses of {in_lx} results in LX.")
    if ordered:
        texts.append(f"The order of cores of {ordered} operations.")
    return texts


@dataclass
class _Trial:
    """Compilations of a program with some hints."""

    linalg: ir.Operation
    pipeline: SpyrePipeline
    named: NamedProgram
    planned: Mapping[str, PlannedOperation]

    def us(self, hints: Sequence[CodeHint] | None, pipeline: SpyrePipeline) -> float:
        """Return the predicted time with some hints and without other tiles; with None, of the program itself."""
        module = self.linalg.clone().operation
        if hints is not None:
            pipeline = replace(pipeline, use_plan="")
            with module.context, module.location:
                self._write(module, hints)
        text = str(module.get_asm(enable_debug_info=True))
        bundles = build(ir.Module.parse(text, module.context), pipeline, False).bundles
        return sum(timeline(step.bundle, step.lx_frac_avail).total_ns for step in bundles) / 1000

    def _write(self, module: ir.Operation, hints: Sequence[CodeHint]) -> None:
        """Write the hints to a module: tiles as the frontend writes them, divisions as pins of a plan."""
        tiled = {name for hint in hints if hint.tiles for name in hint.operations}
        divided = {name for hint in hints if hint.work_div for name in hint.operations}
        entries = []
        for op in self.named.operations:
            entry: dict[str, Any] = {"name": op.name}
            if op.name not in tiled:
                entry["tiling"] = []
            if op.name in divided:
                entry["slices"] = list(self.planned[op.name].slices or ())
            entries.append(entry)
        plan = json.dumps({"version": 1, "operations": entries})
        module.attributes[sdsc.PLAN] = ir.StringAttr.get(plan)
        blocks = [hint for hint in hints if hint.tiles]
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
