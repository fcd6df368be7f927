# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Metrics as tables, for a terminal and for docs/benchmarks.md, with the machine that was measured."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from benchmarks.registry import Benchmark, Metrics, Noted

_HEADER = ("metric", "value", "target", "of target")


def machine() -> str:
    """Return a line with the processor, the versions and the date of a measurement."""
    python = f"Python {platform.python_version()}"
    return f"{_processor()}, {os.cpu_count()} cores, {python}, {datetime.date.today().isoformat()}"


def table(benchmark: Benchmark, metrics: Metrics) -> str:
    """Return the metrics as aligned tables of Markdown: first the metrics in columns, then one row per other metric."""
    columns = metrics.columns if isinstance(metrics, Noted) else ()
    cells: dict[str, dict[str, float]] = {}
    rows: list[Sequence[str]] = [_HEADER]
    for name, value in metrics.items():
        row, _, column = name.rpartition(".")
        if column in columns:
            cells.setdefault(row, {})[column] = value
        else:
            rows.append(_row(name, value, benchmark.targets.get(name)))
    tables = [_aligned(rows)] if len(rows) > 1 else []
    if cells:
        shown = ((row, *_cells(values, columns)) for row, values in cells.items())
        tables.insert(0, _aligned([("", *columns), *shown]))
    return "\n\n".join(tables)


def _cells(values: Metrics, columns: Sequence[str]) -> list[str]:
    return [_shown(column, values[column]) if column in values else "" for column in columns]


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, f"| {'-' * widths[0]} | " + " | ".join(f"{'-' * (w - 1)}:" for w in widths[1:]) + " |")
    return "\n".join(lines)


def notes(metrics: Metrics) -> str:
    """Return the notes under a table, as a list; empty without any."""
    return "\n\n" + "\n".join(f"* {note}" for note in metrics.notes) if isinstance(metrics, Noted) else ""


def markdown(tables: Sequence[tuple[Benchmark, str]]) -> str:
    """Return the page of all tables."""
    parts = [
        "# Benchmarks",
        f"Written by `make bench` on: {machine()}. A value is on target up to 100 %.",
        *(f"## {benchmark.name}\n\n{benchmark.summary}\n\n{text}" for benchmark, text in tables),
    ]
    return "\n\n".join(parts) + "\n"


def _row(name: str, value: float, target: float | None) -> tuple[str, ...]:
    if target is None:
        return (name, _shown(name, value), "", "")
    ratio = f"{100 * value / target:.0f} %" if target else ""
    missed = "" if value <= target else " MISSED"
    return (name, _shown(name, value), _shown(name, target), f"{ratio}{missed}")


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(w) if k == 0 else cell.rjust(w)
        for k, (cell, w) in enumerate(zip(row, widths, strict=True))
    )
    return f"| {first} | " + " | ".join(others) + " |"


def _shown(name: str, value: float) -> str:
    if name.endswith("_seconds"):
        return f"{value:.3f} s"
    if name.endswith("_bytes"):
        return f"{value:,.0f}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.2f}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
