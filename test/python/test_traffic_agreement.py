# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The traffic of a program is the same number in simulator, plan, timeline, reports and summary."""

from __future__ import annotations

import functools
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass, replace

import bundles
import numpy as np
import pytest
from looped import LOOPED, looped
from programs import PROGRAMS
from test_programs import MOST, imported, on_all_cores, ran
from test_report_page import numbers, operation_rows, parsed
from test_traffic import planned
from two_ops import NAMES, executed, placed

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.dialects import context
from spyre_mlir.mlir import ir
from spyre_mlir.pipelines import SpyrePipeline, run_pipeline
from spyre_mlir.remarks import Remark
from spyre_mlir.report.page import page
from spyre_mlir.report.program_facts import READ, WRITTEN, ProgramFacts, program_facts
from spyre_mlir.report.summary import summarize
from spyre_mlir.simulator import Statistics, run
from spyre_mlir.timeline import timeline


@dataclass(frozen=True)
class Case:
    """A bundle that has run; the IR and the remarks that it was made of, if it was compiled."""

    bundle: Bundle
    statistics: Statistics
    placed: Callable[[], ir.Module] | None = None
    remarks: tuple[Remark, ...] = ()

    @functools.cached_property
    def facts(self) -> ProgramFacts:
        return program_facts(self.bundle, self.remarks)


def _program(name: str) -> Case:
    """Return a program of the list; it is compiled and run once, also for test_programs."""
    ran(name)
    program = on_all_cores(name)
    assert program.last_run is not None
    return Case(program.bundle, program.last_run.statistics, lambda: _placed(name), tuple(program.remarks))


def _placed(name: str) -> ir.Module:
    module = ir.Module.parse(str(imported(name)[2].module), context())
    run_pipeline(module, SpyrePipeline(sencores=MOST).pipeline("placed"))
    return module


def _two_ops(name: str) -> Case:
    """Return a program of a producer and its readers, as in test_two_ops."""
    made = executed(name, MOST, True)
    return Case(made.bundle, made.statistics, lambda: placed(name, MOST, True), made.remarks)


def _looped(name: str) -> Case:
    """Return a program with loops."""
    found = looped(name)
    program = found.program
    assert program.last_run is not None
    return Case(program.bundle, program.last_run.statistics, found.placed, tuple(program.remarks))


def _by_hand(make: Callable[[], Bundle]) -> Case:
    """Return a handwritten program; one of them has a loop."""
    bundle = make()
    arguments = (each for each in bundle.manifest.arguments if each.kind != "result")
    arrays = {each.name: np.ones(each.host_shape, each.host_dtype) for each in arguments}
    return Case(bundle, run(bundle, arrays).statistics)


CASES: dict[str, Callable[[], Case]] = {
    **{name: functools.partial(_program, name) for name in PROGRAMS},
    **{f"{name}, then others": functools.partial(_two_ops, name) for name in NAMES},
    **{f"{name}, looped": functools.partial(_looped, name) for name in LOOPED},
    **{f"{name} by hand": functools.partial(_by_hand, make) for name, make in bundles.GOOD.items()},
}

#: Programs that read only some rows or columns of their input.
READ_IN_PART = ("slice_rows", "slice_columns", "slice_step", "select", "embedding", "index_select")


@functools.cache
def case_of(name: str) -> Case:
    return CASES[name]()


#: Bytes read and written by operations, in program order.
Moved = list[tuple[int, int]]


def simulated(case: Case) -> Moved:
    """Return the bytes that the simulator counted, without access to the plan."""
    found = case.statistics.executes
    return [(found[at].read_bytes, found[at].write_bytes) for at in range(len(case.bundle.manifest.uses))]


def drawn(root: ElementTree.Element) -> Moved:
    """Return the bytes of the operations in the script of a page."""
    (data,) = (json.loads(each.text or "") for each in root.iter("script") if each.get("id") == "data")
    read, written = (data["fields"]["operation"].index(name) for name in ("read", "written"))
    return [(row[read], row[written]) for row in data["operations"]]


def total(moved: Moved) -> tuple[int, int]:
    return sum(read for read, _ in moved), sum(written for _, written in moved)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", CASES)
def test_every_operation_moves_what_is_told(name):
    """The placed IR, the timeline, the facts of spyre-diff, and table and script of the page agree."""
    case = case_of(name)
    expected = simulated(case)
    if case.placed is not None:
        assert [(read, written) for read, _, written in planned(case.placed())] == expected
    assert [(each.read_bytes, each.written_bytes) for each in timeline(case.bundle).executions] == expected
    assert [(each.facts[READ], each.facts[WRITTEN]) for each in case.facts.operations] == expected
    root = parsed(page(case.facts, case.bundle))
    table = operation_rows(root)
    assert list(zip(numbers(table, "read (B)"), numbers(table, "written (B)"), strict=True)) == expected
    assert drawn(root) == expected


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", CASES)
def test_the_whole_moves_what_is_told(name):
    """The remark of the planner, totals and buffers of the facts, the map of LX, and the summary agree."""
    case = case_of(name)
    read, written = total(simulated(case))
    plans = [each for each in case.remarks if (each.pass_name, each.kind) == ("scratchpad-planning", "plan")]
    assert [plan.after for plan in plans] == [read + written] * (case.placed is not None)
    told = case.facts
    assert (told.totals[READ], told.totals[WRITTEN]) == (read, written)
    for what, bytes_ in ((READ, read), (WRITTEN, written)):
        assert sum(int(each.facts[what]) for each in told.buffers) == bytes_
    assert told.map.argument_traffic + told.map.spilled_traffic == read + written
    summary = summarize(case.facts, 0.0, case.statistics)
    assert _number(r"^HBM read +([\d,]+) bytes planned$", summary) == read
    assert _number(r"^HBM written +([\d,]+) bytes planned$", summary) == written
    assert _number(r"^simulated +([\d,]+) bytes read, [\d,]+ bytes written, as planned$", summary) == read


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", CASES)
def test_no_program_moves_less_than_the_lower_bound(name):
    """The bound is each argument once, if all of it is accessed."""
    case = case_of(name)
    least = case.facts.argument_bytes
    arguments = sum(argument.bytes for argument in case.bundle.manifest.arguments)
    assert 0 < least <= min(sum(total(simulated(case))), arguments)
    assert (least < arguments) == (name in READ_IN_PART)


def test_traffic_that_is_not_the_planned_one_is_told_loudly():
    """With the operations that it is about."""
    case = _by_hand(bundles.reduction_bundle)
    first, *others = case.statistics.executes.values()
    wrong = replace(first, read_bytes=first.read_bytes + 128)
    statistics = replace(case.statistics, executes={each.index: each for each in (wrong, *others)})
    summary = summarize(case.facts, 0.0, statistics)
    assert re.search(r"^simulated +NOT AS PLANNED, which is a bug", summary, re.MULTILINE)
    assert f"{wrong.read_bytes:,} bytes read, {wrong.write_bytes:,} bytes written by step 0: exp\n" in summary
    assert "step 1: " not in summary and ", as planned" not in summary


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, text
    return int(found[1].replace(",", ""))
