# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time to write the page of a program, its size, and the speed of a browser with it."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path

from benchmarks.chain import text
from benchmarks.measure import best, seconds, tool
from benchmarks.programs import programs
from benchmarks.registry import Metrics, benchmark
from benchmarks.timeline import CHAIN, block

#: Script for the page: milliseconds until a change by an expression is drawn and laid out.
_TIMED = (
    "(async () => {{ const begun = performance.now(); {}; await new Promise(requestAnimationFrame);"
    " document.body.offsetHeight; return performance.now() - begun }})()"
)
_SORT = "document.querySelectorAll('#operations-table th button')[5].click()"
_FILTER = (
    "const box = document.querySelector('#operations input'); box.value = '7';"
    " box.dispatchEvent(new Event('input'))"
)
_ZOOM = "document.querySelector('#{}-chart button').click()"
_PAN = "document.querySelector('#{}-chart button[data-do=right]').click()"

#: Interactions with a page of 5000 operations.
_ACTS = {
    "sort": _SORT,
    "filter": _FILTER,
    "timeline_zoom": _ZOOM.format("timeline"),
    "timeline_pan": _PAN.format("timeline"),
    "lx_zoom": _ZOOM.format("lx"),
    "lx_pan": _PAN.format("lx"),
}


@benchmark(
    block_seconds=5, block_bytes=5e6, chain_seconds=5, chain_bytes=5e6, chain_sort_ms=500, chain_filter_ms=500,
    chain_timeline_zoom_ms=100, chain_timeline_pan_ms=100, chain_lx_zoom_ms=100, chain_lx_pan_ms=100,
)  # fmt: skip
def pages() -> Metrics:
    """spyre-report of a Llama-style block (2048 wide, 512 tokens, 32 cores) and of 5000 ops in a row.

    Seconds include the process and the reading of the folder, best of 3; ``in_process`` is the page alone. Headless
    Chromium, if installed, measures the milliseconds.
    """
    import spyre_mlir

    programs()  # finds the folder of the tests
    metrics: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as work:
        for name, program in (("block", block()), ("chain", spyre_mlir.compile(text(CHAIN)))):
            folder, page = Path(work) / name, Path(work) / f"{name}.html"
            program.save(folder)
            metrics[f"{name}_seconds"] = best(lambda: tool("spyre-report", folder, "-o", page).seconds)  # noqa: B023
            metrics[f"{name}_in_process_seconds"] = best(lambda: seconds(lambda: program.report(page)))  # noqa: B023
            metrics[f"{name}_bytes"] = page.stat().st_size
        return {**metrics, **_in_a_browser(Path(work))}


def _in_a_browser(work: Path) -> Metrics:
    browser = importlib.import_module("browser")
    if browser.CHROMIUM is None:
        return {}
    with browser.Browser(work / "profile") as opened:
        loaded = seconds(lambda: opened.open(work / "chain.html"))
        times = {name: opened.evaluate(_TIMED.format(run)) for name, run in _ACTS.items()}
    return {"chain_load_seconds": loaded, **{f"chain_{name}_ms": taken for name, taken in times.items()}}
