# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a compiled program says of itself without a run: summary, timeline, figures, and what it needs."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.sequence import join
from spyre_mlir.cost.bound import ProgramBound
from spyre_mlir.driver.bound_remark import bound_remark
from spyre_mlir.driver.build import Built
from spyre_mlir.driver.program_bound import program_bound
from spyre_mlir.driver.program_metrics import UNKNOWN, program_metrics
from spyre_mlir.driver.report_files import program_report
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, sequences
from spyre_mlir.driver.steps_summary import summarize_steps
from spyre_mlir.driver.transfers import Transfers
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.faults import entry_points
from spyre_mlir.mlir import ir
from spyre_mlir.remarks import FINDING, Remark
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.html import count
from spyre_mlir.report.notebook import notebook_html
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.report.program_report import ProgramReport
from spyre_mlir.report.summary import summarize
from spyre_mlir.simulator import Result
from spyre_mlir.timeline import Timeline, timeline


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
