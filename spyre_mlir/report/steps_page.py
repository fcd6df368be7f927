# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The page about a program of several steps, in one HTML file: all steps, their timeline, and the page of each bundle.

The page loads nothing from elsewhere. The page of a bundle is in a frame that a script fills when it is opened, so that
a program of many bundles is displayed immediately. The page is also XML, so that tools can read it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from spyre_mlir.errors import listed
from spyre_mlir.records import dataclass
from spyre_mlir.report.html import count, time_text
from spyre_mlir.report.page_data import json_text
from spyre_mlir.report.panels.finding_list import finding_list
from spyre_mlir.report.program_report import Moved, ProgramReport, StepReport

_STYLE = """
:root { color-scheme: light dark; --line: #d9d9d9; --note: #595959; }
@media (prefers-color-scheme: dark) { :root { --line: #4d4d4d; --note: #b0b0b0; } }
body { font: 13px 'DejaVu Sans', Verdana, Arial, sans-serif; margin: 16px 24px 32px; }
h1 { font-size: 17px; margin: 0 0 6px; }
h2 { font-size: 15px; margin: 20px 0 6px; }
p { margin: 6px 0; max-width: 1000px; }
.note { color: var(--note); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 12px; }
th, td { border-bottom: 1px solid var(--line); padding: 3px 14px 3px 0; text-align: left; vertical-align: top; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; padding: 4px 0; }
iframe { width: 100%; height: 88vh; border: 1px solid var(--line); }
"""

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

#: Note about the times of a program with host functions.
_HOST_NOTE = "The time of the host is not predicted: its functions are gaps in the timeline, no part of the times here."


@dataclass(frozen=True)
class FoldedPage:
    """A page inside of another page, initially closed."""

    title: str
    text: str


def document(title: str, parts: Iterable[str], folded: Sequence[FoldedPage] = ()) -> str:
    """Return a page with HTML ``parts``, and other pages in frames below them."""
    lines = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"/><title>{escape(title)}</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        *parts,
        *_frames(folded),
        "</body></html>",
    ]
    return "\n".join(lines) + "\n"


def _frames(folded: Sequence[FoldedPage]) -> Iterator[str]:
    """Yield the frames of pages, their shared texts (once each), and the script that fills the frames."""
    if not folded:
        return
    counts = Counter(text for page in folded for text in set(_SHARED.findall(page.text)))
    is_free = not any(_MARK in page.text for page in folded)
    # In the order of the pages, so that the same pages give the same text.
    in_order = dict.fromkeys(text for page in folded for text in _SHARED.findall(page.text))
    shared = [text for text in in_order if is_free and counts[text] > 1]
    marks = {text: f"{_MARK}{number}{_MARK}" for number, text in enumerate(shared)}
    for page in folded:
        text = _SHARED.sub(lambda match: marks.get(match[0], match[0]), page.text)
        title = escape(page.title)
        yield (
            f"<details><summary>{title}</summary>"
            f"<iframe title=\"{title}\" data-page='{_attribute(text)}'></iframe></details>"
        )
    yield f'<script type="application/json" id="shared">{json_text(shared)}</script>'
    yield f"<script>{_SCRIPT}</script>"


def _attribute(text: str) -> str:
    """Escape a text for an attribute in single quotes, because a page has many double quotes."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;")
    # XML reads a line end in an attribute as a blank, which would no longer end a comment of a script.
    return text.replace("\n", "&#10;").replace("\t", "&#9;")


def steps_page(report: ProgramReport) -> str:
    """Return the page of a program of several steps, or of none."""
    title = f"Report of {report.name}" if report.name else "Report"
    bundles = [step for step in report.steps if step.bundle is not None]
    parts = [*_head(report.steps)]
    if report.findings:
        parts += ["<h2>Findings</h2>", finding_list(report.findings)]
    parts += _reasons(report.reasons)
    if report.segments:
        parts += ["<h2>Timeline</h2>", f'<div class="wide">{report.svg().rstrip()}</div>']
    if report.steps:
        parts += ["<h2>Steps</h2>", *_table(report.steps)]
    if bundles:
        parts.append("<h2>Bundles</h2>")
    folded = [FoldedPage(_title(step), step.page(f"{report.name} {step.name}".strip())) for step in bundles]
    return document(title, parts, folded)


def _head(steps: Sequence[StepReport]) -> Iterator[str]:
    hosts = [step for step in steps if step.bundle is None]
    total = sum(step.picoseconds or 0 for step in steps)
    yield (
        f"<p>{count(len(steps) - len(hosts), 'step')} on the device, {len(hosts)} on the host; "
        f"{time_text(total / 1000)} predicted on the device; each call brings {_bytes(steps, 'to_device')} to the "
        f"device and takes {_bytes(steps, 'to_host')}.</p>"
    )
    if hosts:
        yield f'<p class="note">{_HOST_NOTE}</p>'


def _bytes(steps: Sequence[StepReport], direction: str) -> str:
    return f"{sum(size for step in steps for _, size in getattr(step, direction)):,} bytes"


def _reasons(reasons: Sequence[tuple[str, str]]) -> Iterator[str]:
    if reasons:
        rows = "".join(f"<li>{escape(text)}</li>" for _, text in reasons)
        yield f"<h2>Why the host has work</h2><ul>{rows}</ul>"


#: The columns of the table of steps, and whether they hold numbers.
_COLUMNS = (
    ("step", False), ("where", False), ("operations", True), ("on floats", True), ("predicted", True), ("share", True),
    ("brought to the device", False), ("there already", False), ("taken to the host", False),
)  # fmt: skip


def _table(steps: Sequence[StepReport]) -> Iterator[str]:
    total = sum(step.picoseconds or 0 for step in steps)
    heads = "".join(f"<th{_class(is_number)}>{name}</th>" for name, is_number in _COLUMNS)
    yield f'<div class="wide"><table id="steps"><thead><tr>{heads}</tr></thead><tbody>'
    for step in steps:
        cells = zip(_cells(step, total), _COLUMNS, strict=True)
        row = "".join(f"<td{_class(is_number)}>{escape(cell)}</td>" for cell, (_, is_number) in cells)
        yield f"<tr>{row}</tr>"
    yield "</tbody></table></div>"


def _class(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _cells(step: StepReport, total: int) -> tuple[str, ...]:
    counts = (f"{step.operations:,}", f"{step.float_operations:,}")
    if step.picoseconds is None:
        return step.name, "host", *counts, "not predicted", "", "", "", ""
    times = (time_text(step.picoseconds / 1000), f"{step.picoseconds / max(total, 1):.1%}")
    moved = (_moved(step.to_device), _moved(step.resident), _moved(step.to_host))
    return step.name, "device", *counts, *times, *moved


def _moved(values: Sequence[Moved]) -> str:
    if not values:
        return ""
    return f"{sum(size for _, size in values):,} bytes: {listed(name for name, _ in values)}"


def _title(step: StepReport) -> str:
    return f"{step.name}: {count(step.operations, 'operation')}, {time_text((step.picoseconds or 0) / 1000)}"
