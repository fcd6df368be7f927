# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a compiled program says of itself without a run: summary, timeline, figures, and what it needs."""

from __future__ import annotations

import base64
import functools
import importlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.aliasing import argument_attributes, functions
from spyre_mlir.analysis.needed_elements import NeededPart, Needs, bits_of, inserted_box
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.sequence import join
from spyre_mlir.cost.bound import ProgramBound
from spyre_mlir.cost.element_boxes import Box, whole
from spyre_mlir.dialects.sdsc import SOURCE_BYTES
from spyre_mlir.dialects.structured import defining_op, shape_of
from spyre_mlir.driver.build import Built
from spyre_mlir.driver.program_metrics import UNKNOWN, program_metrics
from spyre_mlir.driver.report_files import program_report
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, sequences
from spyre_mlir.driver.steps_summary import summarize_steps
from spyre_mlir.driver.transfers import Transfers
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.faults import entry_points
from spyre_mlir.mlir import indexing_maps, ir
from spyre_mlir.pipelines import run_pipeline
from spyre_mlir.remarks import FINDING, Remark
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.html import count
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.report.program_report import ProgramReport
from spyre_mlir.report.summary import summarize
from spyre_mlir.rewriting.loop_bodies import unroll_loops
from spyre_mlir.simulator import Result
from spyre_mlir.target.element_types import DATA_FORMATS
from spyre_mlir.timeline import Execution, Timeline, timeline
from spyre_mlir.timeline.events import Shares
from spyre_mlir.timeline.roofline import of_execution


@entry_points
class ProgramFigures:
    """The steps of a program and what they say; attributes are explained at ``Program``, which sets them."""

    _built: Built
    steps: Sequence[Step]
    arrays: dict[str, NDArray[Any]]
    compile_seconds: float
    import_seconds: float
    _source: tuple[ir.Operation, Mapping[int, str]] | None = None
    _source_text: str = ""
    _bound: ProgramBound | None = None
    _rebuild: Callable[[], ir.Module] | None = None
    _search: Callable[[Any], tuple[ProgramFinding, ...]] | None = None

    @property
    def bundles(self) -> list[BundleStep]:
        """The steps that run on the device, in order."""
        return [step for step in self.steps if isinstance(step, BundleStep)]

    @property
    def is_one_bundle(self) -> bool:
        """True if the device runs the whole program."""
        return len(self.steps) == 1 and len(self.bundles) == 1

    @property
    def _only(self) -> BundleStep:
        if not self.is_one_bundle:
            names = listed(step.name for step in self.steps)
            raise CompileError(f"This program is not one bundle; its steps, program.steps, are: {names}.")
        return self.bundles[0]

    @property
    def bundle(self) -> Bundle:
        """The bundle of a program that is one; ``CompileError`` for others."""
        return self._only.bundle

    @property
    def module(self) -> ir.Module:
        """The IR at the bundle level of a program that is one bundle; ``CompileError`` without."""
        step = self._only
        if step.module is None and self._rebuild is not None:
            step.module = self._rebuild()
        if step.module is None:
            raise CompileError("A program that was read from a folder has no IR.")
        return step.module

    def set_rebuild(self, rebuild: Callable[[], ir.Module], source_text: str) -> None:
        """Set what makes the IR of a stored program, which has none, when it is asked for, and the linalg it is of."""
        self._rebuild, self._source_text = rebuild, source_text

    def set_search(self, search: Callable[[Any], tuple[ProgramFinding, ...]]) -> None:
        """Set what makes the findings of this program, when they are asked for."""
        self._search = search

    @property
    def lx_frac_avail(self) -> float | None:
        """The part of LX that the program may not use; None for that of the device."""
        return self.bundles[0].lx_frac_avail if self.bundles else None

    @property
    def last_run(self) -> Result | None:
        """Result of the last call, with what it moved, of a program that is one bundle; None before."""
        return self._only.last_run

    @last_run.setter
    def last_run(self, result: Result) -> None:
        self._only.last_run = result

    def transfers(self) -> list[Transfers]:
        """Return what each step brings to the device and takes from it at each call; weights and state are there."""
        # That module is about programs, so this one cannot import it by name.
        state = importlib.import_module("spyre_mlir.driver.program_state").resident_state(self)
        return self._built.transfers(state)

    def facts(self) -> ProgramFacts:
        """Return the numbers in the summary and the page of ``report``, of a program that is one bundle."""
        return replace(self._only.facts(), remarks=tuple(self.remarks))

    def metrics(self) -> dict[str, float]:
        """Return the figures of the plan as plain numbers by stable names, which docs/cost.md lists; no run is needed.

        The bound and the seconds of a program that was read from a folder are ``UNKNOWN``, -1.
        """
        bound = self.bound()
        seconds = (UNKNOWN, UNKNOWN) if bound is None else (self.compile_seconds, self.import_seconds)
        return program_metrics(self.steps, self.timelines, bound, seconds)

    def bound(self) -> ProgramBound | None:
        """Return the least bytes and multiply-adds that the program needs, whatever its plan; None if it was read."""
        if self._bound is None and self._source is not None:
            source, updates = self._source
            self._bound = program_bound(source, self.arrays, updates)
        return self._bound

    def set_source(self, source: ir.Operation | None, updates: Mapping[int, str] | None = None) -> None:
        """Set the linalg that ``bound`` is computed from, None if nothing is; ``updates`` are as it takes them."""
        if source is None:
            self.set_bound(ProgramBound(0, 0, {}))
        else:
            self._source = source, updates or {}

    def source_text(self) -> str:
        """Return the text of the linalg that was set, with its locations; empty if none was."""
        if self._source is None:
            return self._source_text
        return str(self._source[0].get_asm(enable_debug_info=True))

    def drop_ir(self) -> None:
        """Give up the IR and what is made of it: the plan, the bound and the findings; the text of the linalg stays."""
        self._source_text, self._source = self.source_text(), None
        self._rebuild = self._search = None
        for step in self.bundles:
            step.module = None

    def set_bound(self, bound: ProgramBound) -> None:
        """Set the bound of a program whose linalg is not at hand, or is none."""
        self._bound = bound

    @property
    def pass_remarks(self) -> Sequence[Remark]:
        """Decisions of all passes."""
        return self._built.remarks

    @functools.cached_property
    def remarks(self) -> list[Remark]:
        """Decisions of all passes, and what takes the time of a program that is far from its bound.

        That needs a timeline, so compiling leaves it to the first who asks; ``arrays`` have to be complete. Findings
        are remarks of their own, ``finding_remarks``: they need trials.
        """
        bound = self.bound()
        remark = bound and bound_remark(self.timelines, bound)
        return [*self.pass_remarks, *((remark,) if remark else ())]

    def summary(self, *, findings: bool = True) -> str:
        """Return one page: findings, operations, cores, traffic, LX, spills with reasons, predicted and compile time.

        It needs no run; after one it compares the traffic of the last run with the planned one. A program of several
        steps has a page about them before those of its bundles.

        Args:
            findings: Say what is slow and what to change, by trials, which take about the time of as many compilations.
        """
        shown = self.findings if findings else ()
        if not self.is_one_bundle:
            return summarize_steps(self.steps, self.transfers(), self.remarks, self.compile_seconds, shown)
        statistics = self.last_run and self.last_run.statistics
        return summarize(self.facts(), self.compile_seconds, statistics, shown)

    def timeline(self) -> Timeline:
        """Return the time of each engine by a simulation of the device; to rank plans, not to predict times.

        Of a program that is one bundle, or a sequence of them: the starts of bundles cost nothing here.
        """
        is_one = not any(isinstance(step, HostStep) for step in self.steps) and len(self.timelines) == 1
        return self.timelines[0] if is_one else timeline(self.bundle, self.lx_frac_avail)

    @functools.cached_property
    def findings(self) -> tuple[ProgramFinding, ...]:
        """What makes the program slow, with changes that make it faster by the timeline, the largest saving first.

        Each change was tried: the program was compiled again with it, at most ten times, when this is first asked for.
        A program that was read from a folder, or that is a part of a model in pieces, has none.
        """
        return self._search(self) if self._search is not None and self.bundles else ()

    @property
    def finding_remarks(self) -> list[Remark]:
        """The findings as remarks of kind ``finding``, with the microseconds before and after."""
        return [
            Remark(
                "findings", finding.location, "", FINDING, f"{finding.problem} {finding.change}",
                finding.before_us, finding.after_us, finding.module,
            )
            for finding in self.findings
        ]  # fmt: skip

    def __repr__(self) -> str:
        return f"<spyre_mlir.Program: {self._described()}>"

    def _described(self) -> str:
        """Describe the program in one line: steps, operations, predicted time."""
        bundles, hosts = len(self.bundles), len(self.steps) - len(self.bundles)
        if not self.steps:
            return "nothing runs on the device"
        steps = count(bundles, "bundle") + (f", {count(hosts, 'function')} of the host" if hosts else "")
        operations = sum(len(line.executions) for line in self.timelines)
        time_us = sum(line.total_ns for line in self.timelines) / 1000
        return f"{steps}, {count(operations, 'operation')}, {time_us:,.1f} us predicted"

    def _repr_html_(self) -> str:
        """Return the summary and the timeline, for notebooks."""
        return notebook_html(self._described(), self.summary(findings=False), self.as_report("").svg())

    def as_report(self, name: str, *, findings: bool = False) -> ProgramReport:
        """Return the data of ``report``; ``name`` is in its titles, ``findings`` need trials."""
        shown = self.findings if findings else ()
        facts = [step.facts() if isinstance(step, BundleStep) else None for step in self.steps]
        if self.is_one_bundle:
            facts = [replace(self.facts(), findings=shown)]
        return program_report(
            name, self.steps, facts, self.transfers(), self.timelines, self.metrics(), self.remarks, shown
        )

    @functools.cached_property
    def timelines(self) -> list[Timeline]:
        """The timeline of each sequence of bundles, in order."""
        return [
            timeline(join([step.bundle for step in unit]), unit[0].lx_frac_avail)
            for unit in sequences(self.steps)
            if not isinstance(unit, HostStep)
        ]


# What a notebook shows of a program: HTML among other cells, without styles or identifiers of a page.


def notebook_html(title: str, summary: str, picture: str = "") -> str:
    """Return a title, the text of a summary that opens, and a picture in SVG, which is an image of its own."""
    parts = [
        f"<div><b>spyre_mlir.Program</b>: {escape(title)}",
        '<details open="open"><summary>summary</summary>'
        f'<pre style="max-height: 30em; overflow: auto">{escape(summary)}</pre></details>',
    ]
    if picture:
        data = base64.b64encode(picture.encode("utf-8")).decode("ascii")
        parts.append(
            f'<img style="max-width: 100%" alt="Timeline of the program" src="data:image/svg+xml;base64,{data}"/>'
        )
    return "\n".join([*parts, "</div>"])


# What takes the time of a program that is far from the least that it needs, as a remark.

#: Times its bound that a program may take without a remark.
FAR = 3.0

#: The kind of the remark.
FAR_FROM_BOUND = "far from bound"

#: Operation names that a remark tells the time of, those of the most time.
_NAMED = 3


def bound_remark(timelines: Sequence[Timeline], bound: ProgramBound) -> Remark | None:
    """Return a remark on a program of these timelines, with the operations of the most time and what each waits for.

    None for a program that takes at most ``FAR`` times its bound, or that has no bound.
    """
    if not timelines:
        return None
    needed_ns, total_ns = bound.ns(timelines[0].target), math.fsum(line.total_ns for line in timelines)
    if not needed_ns or total_ns <= FAR * needed_ns:
        return None
    bytes_ = sum(line.read_bytes + line.written_bytes for line in timelines)
    reason = (
        f"{total_ns / 1000:,.1f} us are {total_ns / needed_ns:.1f} times the {needed_ns / 1000:,.1f} us of what the "
        f"program needs, {bound.bytes:,} bytes and {bound.multiply_adds:,} multiply-adds; {bytes_:,} bytes move; "
        f"the most time: {', '.join(_largest(timelines))}"
    )
    return Remark("program-bound", "", "", FAR_FROM_BOUND, reason)


def _largest(timelines: Sequence[Timeline]) -> list[str]:
    """The operation names of the most time, each with its time and what that goes into."""
    by_opcode: dict[str, list[Execution]] = {}
    for line in timelines:
        for execution in line.executions:
            by_opcode.setdefault(execution.opcode, []).append(execution)
    # Of equal times the first in the program: sorting keeps the order.
    groups = sorted(by_opcode.values(), key=lambda group: -math.fsum(one.total_ns for one in group))
    return [_text(group) for group in groups[:_NAMED]]


def _text(executions: Sequence[Execution]) -> str:
    shares = Shares()
    for execution in executions:
        shares = shares.plus(execution.shares)
    return f"{executions[0].opcode} {shares.total / 1e6:,.1f} us ({_cause(executions, shares)})"


def _cause(executions: Sequence[Execution], shares: Shares) -> str:
    """What most of the time of the executions goes into, with the rate that they attain alone."""
    part = shares.bound_by
    if part == "overhead":
        return f"overhead of {shares.runs:,} runs"
    alone_ns = math.fsum(execution.alone_ps for execution in executions) / 1000
    if part == "memory" and alone_ns:
        return f"memory at {sum(execution.moved_bytes for execution in executions) / alone_ns:.0f} GB/s"
    if part == "compute" and alone_ns:
        cores = math.fsum(one.work.cores * one.alone_ps for one in executions) / (1000 * alone_ns)
        lines = [of_execution(execution) for execution in executions]
        peak = math.fsum(line.peak_per_ns * line.nanoseconds for line in lines)
        attained = sum(line.operations for line in lines) / peak if peak else 0.0
        return f"compute on {cores:.0f} cores at {attained:.0%} of their peak"
    return part


# The least bytes and multiply-adds of a program, from the linalg that it was before any plan.

#: Matmuls of the types that the device multiplies, all structured ops as generic ones, and what no argument reaches as
#: constants.
_NORMAL_FORM = "narrow-matmuls,linalg-generalize-named-ops,canonicalize,cse,fold-constants"

#: Operations that the iterations of a loop may be when it is written out.
_MOST_UNROLLED = 1 << 14

#: Elements of the data of a model, such as positions, up to which what is computed from them is looked at.
_LARGEST_TABLE = 1 << 20


def program_bound(
    source: ir.Operation, arrays: Mapping[str, NDArray[Any]], updates: Mapping[int, str] | None = None
) -> ProgramBound:
    """Return what a module of linalg needs, whose constant arguments have these arrays.

    ``updates`` are the results that are new values of arguments in place, by the names of these: of such a result only
    what the program changes is written. What only the run knows counts as nothing.
    """
    module = source.clone().operation
    # Slices at known offsets say what is needed; loops of more iterations count as nothing.
    unroll_loops(functions(module)[0], _MOST_UNROLLED)
    run_pipeline(module, _NORMAL_FORM)
    block = functions(module)[0].regions[0].blocks[0]
    arguments = dict(zip(block.arguments, argument_attributes(functions(module)[0]), strict=True))
    by_name = {_name(attributes): value for value, attributes in arguments.items()}
    needs = Needs(_constants(block, arguments, arrays))
    needed: dict[ir.Value, NeededPart] = {}
    for index, value in enumerate(list(block.operations)[-1].operation.operands):
        needed[value] = _written(value, by_name.get((updates or {}).get(index, "")))
    needs.of_block(block, needed)
    read = sum(
        _read_bytes(value, needs.needs[value], attributes)
        for value, attributes in arguments.items()
        if value in needs.needs
    )
    written = sum(need.count() * _element_bytes(value) for value, need in needed.items())
    by_format: Counter[str] = Counter()
    for element, number in needs.multiply_adds.items():
        by_format[DATA_FORMATS.get(element, DATA_FORMATS["f16"])] += number
    return ProgramBound(read, written, by_format)


def _written(value: ir.Value, argument: ir.Value | None) -> NeededPart:
    """The part of a result that is written: where it is the new value of an argument, what is not as it was."""
    boxes = []
    target = value
    while argument is not None and target != argument:
        replaced = _replaced_part(defining_op(target))
        if replaced is None:
            break
        boxes.append(replaced[0])
        target = replaced[1]
    is_update = argument is not None and target == argument
    return NeededPart(tuple(boxes)) if is_update else NeededPart((whole(shape_of(value)),))


def _replaced_part(op: ir.Operation | None) -> tuple[Box, ir.Value] | None:
    """The part of its result that an op changes, and the operand that has the rest; None for another op."""
    if op is None:
        return None
    if op.name == "tensor.insert_slice":
        box = inserted_box(op)
        return None if box is None else (box, op.operands[1])
    # Where only the run knows the position, new rows are selected in their place: as many as there are.
    body = (
        [view.operation for view in op.regions[0].blocks[0].operations] if op.name == "linalg.generic" else []
    )
    if [inner.name for inner in body] != ["arith.select", "linalg.yield"]:
        return None
    arguments = list(op.regions[0].blocks[0].arguments)
    _, new, old = (arguments.index(value) if value in arguments else None for value in body[0].operands)
    if new is None or old is None or op.operands[old].type != op.results[0].type:
        return None
    sizes = zip(indexing_maps(op)[new].results, shape_of(op.results[0]), strict=False)
    return tuple(range(size if isinstance(e, ir.AffineDimExpr) else 1) for e, size in sizes), op.operands[old]


def _read_bytes(value: ir.Value, need: NeededPart, attributes: Mapping[str, ir.Attribute]) -> int:
    """The logical bytes of an argument, of one that the frontend computed at most those that it is made of."""
    size = need.count() * _element_bytes(value)
    if SOURCE_BYTES not in attributes:
        return size
    whole_size = NeededPart((whole(shape_of(value)),)).count() * _element_bytes(value)
    source = int(ir.IntegerAttr(attributes[SOURCE_BYTES]).value)
    return min(size, size * source // max(whole_size, 1))


def _element_bytes(value: ir.Value) -> int:
    return bits_of(ir.RankedTensorType(value.type).element_type) // 8


def _constants(
    block: ir.Block,
    arguments: Mapping[ir.Value, Mapping[str, ir.Attribute]],
    arrays: Mapping[str, NDArray[Any]],
) -> dict[ir.Value, NDArray[Any]]:
    """The values that are known: dense constants, and arguments of kind constant."""
    values: dict[ir.Value, NDArray[Any]] = {}
    for value, attributes in arguments.items():
        # Large data of the model are weights, no masks.
        is_small = SOURCE_BYTES in attributes or math.prod(shape_of(value)) <= _LARGEST_TABLE
        is_known = _attribute_text(attributes, "spyre.kind") == "constant" and _name(attributes) in arrays
        if is_known and is_small and _is_readable(value):
            values[value] = np.asarray(arrays[_name(attributes)])
    for op in (view.operation for view in block.operations):
        if op.name != "arith.constant" or not isinstance(op.results[0].type, ir.RankedTensorType):
            continue
        attribute = op.attributes["value"]
        if isinstance(attribute, ir.DenseElementsAttr) and _is_readable(op.results[0]):
            values[op.results[0]] = _numbers(attribute, shape_of(op.results[0]))
    return values


def _numbers(attribute: ir.DenseElementsAttr, shape: tuple[int, ...]) -> NDArray[Any]:
    """The values of a constant; one that is the same everywhere has dims of size 1."""
    if not attribute.is_splat:
        return np.array(attribute)
    splat: Any = attribute.get_splat_value()
    return np.full([1] * len(shape), splat.value)


def _is_readable(value: ir.Value) -> bool:
    """Return whether numpy has the element type, as that of masks."""
    return str(ir.RankedTensorType(value.type).element_type) in (
        "i1",
        "i8",
        "i32",
        "i64",
        "f16",
        "f32",
        "f64",
    )


def _name(attributes: Mapping[str, ir.Attribute]) -> str:
    return _attribute_text(attributes, "spyre.name")


def _attribute_text(attributes: Mapping[str, ir.Attribute], name: str) -> str:
    return ir.StringAttr(attributes[name]).value if name in attributes else ""
