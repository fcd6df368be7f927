# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The report of a program of any number of steps: its data, and its forms HTML, JSON and SVG.

The HTML page loads nothing from elsewhere. The page of a bundle is in a frame that a script fills when it is opened, so
that a program of many bundles is displayed immediately. The page is also XML, so that tools can read it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import Any

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.errors import CompileError, listed
from spyre_mlir.records import dataclass
from spyre_mlir.report.findings import ProgramFinding, finding_list
from spyre_mlir.report.html import count, shell, table, time_text
from spyre_mlir.report.page import page
from spyre_mlir.report.page_data import json_text, page_data
from spyre_mlir.report.program_facts import ProgramFacts
from spyre_mlir.report.timeline_picture import Segment, picture

#: A value that moves between host and device: its name and its bytes.
Moved = tuple[str, int]


@dataclass(frozen=True)
class StepReport:
    """A step: its work, and the values that a call moves for it.

    ``resident`` values are already in device memory. ``picoseconds`` is the step's part of the predicted time.
    ``facts`` and ``bundle`` are the data of its page; a host function does not have them.
    """

    name: str
    operations: int
    float_operations: int
    to_device: tuple[Moved, ...] = ()
    resident: tuple[Moved, ...] = ()
    to_host: tuple[Moved, ...] = ()
    picoseconds: int | None = None
    facts: ProgramFacts | None = None
    bundle: Bundle | None = None

    def page(self, name: str) -> str:
        """Return the page of a bundle; empty for a host function."""
        if self.facts is None or self.bundle is None:
            return ""
        return page(self.facts, self.bundle, name)

    def plain(self) -> dict[str, Any]:
        """Return the numbers of the step, and for a bundle the data of its page, as JSON values."""
        plain: dict[str, Any] = {
            "name": self.name,
            "where": "device" if self.bundle else "host",
            "operations": self.operations,
            "float_operations": self.float_operations,
        }
        if self.facts is None or self.bundle is None:
            return plain
        moved = {
            f"{direction}_bytes": {name: size for name, size in getattr(self, direction)}
            for direction in ("to_device", "resident", "to_host")
        }
        times = {"predicted_us": (self.picoseconds or 0) / 1e6}
        return {**plain, **times, **moved, "page": page_data(self.facts, self.bundle)}


@dataclass(frozen=True)
class ProgramReport:
    """The steps of a program, its time as ``segments``, its ``metrics`` by name, general ``reasons``, and findings."""

    name: str
    steps: tuple[StepReport, ...]
    segments: tuple[Segment, ...]
    metrics: Mapping[str, float]
    reasons: tuple[tuple[str, str], ...] = ()
    findings: tuple[ProgramFinding, ...] = ()

    @property
    def picoseconds(self) -> int:
        """Predicted time of all steps on the device."""
        return sum(step.picoseconds or 0 for step in self.steps)

    @property
    def headline(self) -> str:
        """Number of operations and predicted time in a few words."""
        operations = sum(step.operations for step in self.steps if step.bundle)
        hosts = sum(step.bundle is None for step in self.steps)
        on_host = f", {count(hosts, 'function')} of the host" if hosts else ""
        return f"{count(operations, 'operation')}{on_host}, {time_text(self.picoseconds / 1000)}"

    def html(self) -> str:
        """Return the page of the bundle if the report has only one bundle, else a page with all steps."""
        if len(self.steps) == 1 and self.steps[0].bundle is not None:
            return self.steps[0].page(self.name)
        bundles = [step for step in self.steps if step.bundle is not None]
        parts = list(_head(self))
        if self.findings:
            parts += ["<h2>Findings</h2>", finding_list(self.findings)]
        if self.reasons:
            rows = "".join(f"<li>{escape(text)}</li>" for _, text in self.reasons)
            parts.append(f"<h2>Why the host has work</h2><ul>{rows}</ul>")
        if self.segments:
            parts += ["<h2>Timeline</h2>", f'<div class="wide">{self.svg().rstrip()}</div>']
        if self.steps:
            rows = [_cells(step, self.picoseconds) for step in self.steps]
            parts += ["<h2>Steps</h2>", table("steps", _COLUMNS, rows, _SIDES)]
        if bundles:
            parts.append("<h2>Bundles</h2>")
        folded = [FoldedPage(_title(step), step.page(f"{self.name} {step.name}".strip())) for step in bundles]
        return document(f"Report of {self.name}" if self.name else "Report", parts, folded)

    def json(self) -> str:
        """Return metrics, steps and the data of their pages as JSON text."""
        plain = {
            "name": self.name,
            "metrics": dict(self.metrics),
            "findings": [asdict(finding) for finding in self.findings],
            "steps": [step.plain() for step in self.steps],
        }
        return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def svg(self) -> str:
        """Return the timeline of all steps."""
        return picture(self.segments, self.name)


#: The forms of a report by the ending of its file.
FORMS: dict[str, Callable[[ProgramReport], str]] = {
    ".html": ProgramReport.html,
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


# -- page of steps -----------------------------------------------------------------------------------------


def _head(report: ProgramReport) -> Iterator[str]:
    """Yield the paragraphs at the top of the page about a program of several steps."""
    hosts = sum(step.bundle is None for step in report.steps)
    brought, taken = (
        sum(size for step in report.steps for _, size in getattr(step, direction))
        for direction in ("to_device", "to_host")
    )
    yield (
        f"<p>{count(len(report.steps) - hosts, 'step')} on the device, {hosts} on the host; "
        f"{time_text(report.picoseconds / 1000)} predicted on the device; each call copies {brought:,} bytes to the "
        f"device and {taken:,} bytes to the host.</p>"
    )
    if hosts:
        yield (
            '<p class="note">The time of the host is not predicted: host functions are gaps in the timeline, and the'
            " times here do not include them.</p>"
        )


#: The columns of the table of steps, and their sides.
_COLUMNS, _SIDES = (
    ("step", "where", "operations", "on floats", "predicted", "share", "brought to the device", "there already",
     "taken to the host"),
    "<<>>>><<<",
)  # fmt: skip


def _cells(step: StepReport, total: int) -> tuple[str, ...]:
    counts = (f"{step.operations:,}", f"{step.float_operations:,}")
    if step.picoseconds is None:
        return step.name, "host", *counts, "not predicted", "", "", "", ""
    times = (time_text(step.picoseconds / 1000), f"{step.picoseconds / max(total, 1):.1%}")
    moved = (
        f"{sum(size for _, size in values):,} bytes: {listed(name for name, _ in values)}" if values else ""
        for values in (step.to_device, step.resident, step.to_host)
    )
    return step.name, "device", *counts, *times, *moved


def _title(step: StepReport) -> str:
    return f"{step.name}: {count(step.operations, 'operation')}, {time_text((step.picoseconds or 0) / 1000)}"


# -- pages inside of a page --------------------------------------------------------------------------------

#: Placeholder of a shared text in a page, followed by the number of the text: a private-use character.
_MARK = "\ue000"

#: Texts that all pages share: styles and scripts.
_SHARED = re.compile(r"<style>.*?</style>|<script>.*?</script>", re.DOTALL)

#: Script that fills a frame when it is opened for the first time. It has no character that XML would escape.
_SCRIPT = r"""
const shared = JSON.parse(document.getElementById("shared").textContent);
for (const details of document.querySelectorAll("details"))
  details.addEventListener("toggle", function () {
    const frame = details.querySelector("iframe");
    if (!details.open || frame.dataset.page === undefined) return;
    frame.srcdoc = frame.dataset.page.replace(/\ue000(\d+)\ue000/g, function (_, number) { return shared[number]; });
    delete frame.dataset.page;
  });
"""


@dataclass(frozen=True)
class FoldedPage:
    """A page inside of another page, initially closed."""

    title: str
    text: str


def document(title: str, parts: Iterable[str], folded: Sequence[FoldedPage] = ()) -> str:
    """Return a page with HTML ``parts``, and other pages in frames below them."""
    return shell(title, [f"<h1>{escape(title)}</h1>", *parts, *_frames(folded)])


def _frames(folded: Sequence[FoldedPage]) -> Iterator[str]:
    """Yield the frames of pages, their shared texts (once each), and the script that fills the frames."""
    if not folded:
        return
    counts = Counter(text for each in folded for text in set(_SHARED.findall(each.text)))
    is_free = not any(_MARK in each.text for each in folded)
    # The order of the pages makes the text deterministic.
    in_order = dict.fromkeys(text for each in folded for text in _SHARED.findall(each.text))
    shared = [text for text in in_order if is_free and counts[text] > 1]
    marks = {text: f"{_MARK}{number}{_MARK}" for number, text in enumerate(shared)}
    for each in folded:
        text = _SHARED.sub(lambda match: marks.get(match[0], match[0]), each.text)
        # For an attribute in single quotes, because a page has many double quotes.
        text = text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")
        # XML reads a line end in an attribute as a blank, which would no longer end a comment of a script.
        text = text.replace("\n", "&#10;").replace("\t", "&#9;")
        title = escape(each.title)
        yield (
            f"<details><summary>{title}</summary>"
            f"<iframe title=\"{title}\" data-page='{text}'></iframe></details>"
        )
    yield f'<script type="application/json" id="shared">{json_text(shared)}</script>'
    yield f"<script>{_SCRIPT}</script>"
