# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Size of the page of a model of many layers, the time to write it, and the time to show it in a browser."""

from __future__ import annotations

import importlib
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.equal_layers import EQUAL
from benchmarks.measure import apart, best
from benchmarks.programs import suite, suite_checks
from benchmarks.registry import Metrics, benchmark

#: Milliseconds from the start of the navigation until the first paint, and until everything is loaded.
_PAINTED = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
_LOADED = "performance.getEntriesByType('navigation')[0].loadEventEnd"


@benchmark(
    layers_12_bytes=1.2e6, layers_12_write_seconds=2, layers_12_first_paint_ms=1000, layers_48_first_paint_ms=2000
)  # fmt: skip
def report_page() -> Metrics:
    """The page of 12 and 48 equal Granite-like layers: bytes, seconds of writing it, milliseconds to its first paint.

    Seconds are processor time of the process that has compiled the model. Headless Chromium, if installed, measures the
    milliseconds, best of 3.
    """
    metrics: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as work:
        for layers in EQUAL:
            page = Path(work) / f"layers_{layers}.html"
            written, seconds = apart(_write, layers, page)
            metrics |= {f"layers_{layers}_bytes": written, f"layers_{layers}_write_seconds": seconds}
            metrics |= {f"layers_{layers}_{name}_ms": taken for name, taken in _shown(page).items()}
    return metrics


def _write(layers: int, page: Path) -> tuple[int, float]:
    """Compile ``layers`` layers at full size and write their page; return its bytes, and the seconds of writing."""
    import spyre_mlir

    member = suite()
    program = spyre_mlir.compile(
        *member.program("layers_12", replace(member.FULL, layers=layers), weights=False)
    )
    begun = time.process_time()
    program.report(page)
    return page.stat().st_size, time.process_time() - begun


def _shown(page: Path) -> Metrics:
    suite_checks()  # finds the folder of the tests
    browser: Any = importlib.import_module("browser")
    if browser.CHROMIUM is None:
        return {}
    with browser.Browser(page.with_suffix(".profile")) as opened:

        def measured(expression: str) -> float:
            opened.open(page)
            opened.settle()
            return opened.evaluate(expression)

        names = {"first_paint": _PAINTED, "load": _LOADED}
        return {
            name: best(lambda expression=expression: measured(expression))
            for name, expression in names.items()
        }
