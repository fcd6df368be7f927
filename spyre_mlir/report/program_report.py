# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The data of a report about a program of any number of steps, and its JSON and SVG forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.records import dataclass
from spyre_mlir.report.findings import ProgramFinding
from spyre_mlir.report.html import count, time_text
from spyre_mlir.report.page import page
from spyre_mlir.report.page_data import page_data
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
    def headline(self) -> str:
        """Number of operations and predicted time in a few words."""
        operations = sum(step.operations for step in self.steps if step.bundle)
        hosts = sum(step.bundle is None for step in self.steps)
        on_host = f", {count(hosts, 'function')} of the host" if hosts else ""
        time = sum(step.picoseconds or 0 for step in self.steps)
        return f"{count(operations, 'operation')}{on_host}, {time_text(time / 1000)}"

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
