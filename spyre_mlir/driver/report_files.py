# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reports about programs as files: of one program, and of the programs of a model in several sizes or pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType

from spyre_mlir.bundle.model import KernelArgument
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, sequences
from spyre_mlir.driver.steps_summary import host_reasons
from spyre_mlir.driver.transfers import Transfers
from spyre_mlir.files import write_text
from spyre_mlir.remarks import Remark
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.report.program_report import Moved, ProgramReport, StepReport
from spyre_mlir.report.report_forms import FORMS, form_of, html
from spyre_mlir.report.steps_page import FoldedPage, document
from spyre_mlir.report.timeline_picture import DeviceSegment, HostSegment, Segment
from spyre_mlir.timeline import Timeline


def write_report(report: ProgramReport, path: str | Path) -> Path:
    """Write a report to exactly ``path``, whole or not at all, in the form of its ending."""
    write_text(str(path), FORMS[form_of(path)](report))
    return Path(path)


def write_page_of_programs(
    path: str | Path, notes: Sequence[str], reports: Sequence[tuple[str, ProgramReport]]
) -> Path:
    """Write one page with those of several programs, each under its title; ``notes`` say what they are of."""
    form_of(path, (".html",))
    parts = [f"<p>{escape(note)}</p>" for note in notes]
    pages = [FoldedPage(f"{title}: {report.headline}", html(report)) for title, report in reports]
    write_text(str(path), document(f"Report of {Path(path).stem}", parts, pages))
    return Path(path)


def program_report(
    name: str,
    steps: Sequence[Step],
    facts: Sequence[ProgramFacts | None],
    moved: Sequence[Transfers],
    timelines: Sequence[Timeline],
    metrics: Mapping[str, float],
    remarks: Sequence[Remark],
    findings: Sequence[ProgramFinding] = (),
) -> ProgramReport:
    """Return the report of a program from what it says of itself; ``facts`` are those of each bundle.

    ``timelines`` are of each sequence of bundles, ``name`` is in titles.
    """
    segments = tuple(_segments(steps, timelines))
    shares = dict(
        pair for segment in segments if isinstance(segment, DeviceSegment) for pair in segment.shares
    )
    reports = (_step(*entry, shares) for entry in zip(steps, facts, moved, strict=True))
    return ProgramReport(
        name, tuple(reports), segments, metrics, tuple(host_reasons(remarks)), tuple(findings)
    )


def _segments(steps: Sequence[Step], timelines: Sequence[Timeline]) -> Iterator[Segment]:
    """Yield functions of the host and sequences of bundles; ``timelines`` are of the latter."""
    rest = iter(timelines)
    for unit in sequences(steps):
        if isinstance(unit, HostStep):
            yield HostSegment(unit.name, unit.operations)
            continue
        timeline, position, shares = next(rest), 0, []
        for step in unit:
            count = len(step.bundle.manifest.uses)
            executions = timeline.executions[position : position + count]
            shares.append((step.name, sum(execution.shares.total for execution in executions)))
            position += count
        yield DeviceSegment(tuple(shares), timeline)


def _step(step: Step, facts: ProgramFacts | None, moved: Transfers, shares: Mapping[str, int]) -> StepReport:
    if isinstance(step, HostStep) or facts is None:
        operations = step.operations if isinstance(step, HostStep) else 0
        return StepReport(step.name, operations, step.float_operations)
    return StepReport(
        step.name,
        len(facts.operations),
        step.float_operations,
        _moved(moved.to_device),
        _moved(moved.resident),
        _moved(moved.to_host, _value_names(step)),
        shares[step.name],
        facts,
        step.bundle,
    )


def _moved(
    arguments: Sequence[KernelArgument], names: Mapping[str, str] = MappingProxyType({})
) -> tuple[Moved, ...]:
    return tuple((names.get(argument.name, argument.array_name), argument.bytes) for argument in arguments)


def _value_names(step: BundleStep) -> Mapping[str, str]:
    """Return the names of values that the results of a bundle are, by the names in its manifest."""
    labels = [argument.name for argument in step.bundle.manifest.arguments if argument.kind == "result"]
    return dict(zip(labels, step.outputs, strict=True))
