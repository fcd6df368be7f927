# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Report files of one program, and of all programs of a model with several sizes or pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from types import MappingProxyType

from spyre_mlir.bundle.model import KernelArgument
from spyre_mlir.driver.program_figures import host_reasons
from spyre_mlir.driver.steps import BundleStep, HostStep, Step, Transfers, sequences
from spyre_mlir.files import write_text
from spyre_mlir.remarks import Remark
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.report.program_report import (
    FORMS,
    FoldedPage,
    Moved,
    ProgramReport,
    StepReport,
    document,
    form_of,
)
from spyre_mlir.report.timeline_picture import DeviceSegment, HostSegment, Segment
from spyre_mlir.timeline import Timeline


def write_report(report: ProgramReport, path: str | Path) -> Path:
    """Write a report atomically to ``path``; the ending of ``path`` selects the format."""
    write_text(str(path), FORMS[form_of(path)](report))
    return Path(path)


def write_page_of_programs(
    path: str | Path, notes: Sequence[str], reports: Sequence[tuple[str, ProgramReport]]
) -> Path:
    """Write one HTML page with the reports of several programs, each with its title, after introductory ``notes``."""
    form_of(path, (".html",))
    parts = [f"<p>{escape(note)}</p>" for note in notes]
    pages = [FoldedPage(f"{title}: {report.headline}", report.html()) for title, report in reports]
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
    """Return the report of a program; ``facts`` has the facts of each step, None for host steps.

    ``timelines`` has one timeline for each sequence of bundles; ``name`` is used in titles.
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
    """Yield host functions and sequences of bundles; ``timelines`` has one timeline for each sequence."""
    rest = iter(timelines)
    for unit in sequences(steps):
        if not isinstance(unit, list):
            yield HostSegment(unit.name, unit.operations if isinstance(unit, HostStep) else None)
            continue
        timeline, position, shares = next(rest), 0, []
        for step in unit:
            count = len(step.bundle.manifest.uses)
            executions = timeline.executions[position : position + count]
            shares.append((step.name, sum(execution.shares.total for execution in executions)))
            position += count
        yield DeviceSegment(tuple(shares), timeline)


def _step(step: Step, facts: ProgramFacts | None, moved: Transfers, shares: Mapping[str, int]) -> StepReport:
    if not isinstance(step, BundleStep) or facts is None:
        operations = step.operations if isinstance(step, HostStep) else 0
        return StepReport(step.name, operations, step.float_operations)
    return StepReport(
        step.name,
        len(facts.operations),
        step.float_operations,
        _moved(moved.to_device),
        _moved(moved.resident),
        _moved(moved.to_host, {argument.name: name for name, argument in step.written}),
        shares[step.name],
        facts,
        step.bundle,
    )


def _moved(
    arguments: Sequence[KernelArgument], names: Mapping[str, str] = MappingProxyType({})
) -> tuple[Moved, ...]:
    return tuple((names.get(argument.name, argument.array_name), argument.bytes) for argument in arguments)
