# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The forms of a report, chosen by the ending of the file name: HTML, JSON or SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from spyre_mlir.errors import CompileError
from spyre_mlir.report.program_report import ProgramReport
from spyre_mlir.report.steps_page import steps_page


def html(report: ProgramReport) -> str:
    """Return the page of the bundle if the report has only one bundle, else a page with all steps."""
    if len(report.steps) == 1 and report.steps[0].bundle is not None:
        return report.steps[0].page(report.name)
    return steps_page(report)


#: The forms by ending.
FORMS: dict[str, Callable[[ProgramReport], str]] = {
    ".html": html,
    ".json": ProgramReport.json,
    ".svg": ProgramReport.svg,
}


def form_of(path: str | Path, endings: Sequence[str] = tuple(FORMS)) -> str:
    """Return the ending of a report's file; ``CompileError`` if it is not one of ``endings``."""
    for ending in endings:
        if str(path).endswith(ending):
            return ending
    known = f"{', '.join(endings[:-1])} or {endings[-1]}" if len(endings) > 1 else endings[0]
    raise CompileError(f"The name '{path}' of a report must end in {known}.")
