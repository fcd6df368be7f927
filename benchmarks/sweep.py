# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sweeps of experiments: the speedup of two workers, and the continuation of a killed sweep."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import ROOT
from benchmarks.programs import suite
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.experiments import Results

PROGRAMS = ("softmax", "layer_norm", "mlp", "attention_512")
LX_BYTES = (1 << 18, 1 << 19, 1 << 20, 1 << 21)
CORES = (8, 32)

#: Numbers of rows after which a worker is killed, and then the sweep.
_ROWS_BEFORE_WORKER, _ROWS_BEFORE_SWEEP = 40, 90


@benchmark(two_workers_to_one=1 / 1.8, differing_rows=0, computed_twice=0)
def sweep() -> Metrics:
    """Points per second of 4 models with all solvers, 4 sizes of LX and 2 numbers of cores, by one and two workers.

    ``two_workers_to_one`` is the ratio of their seconds. During the sweep of two workers, first a worker and then the
    sweep is killed and continued. The notes are the settings in which solvers differ.
    """
    with tempfile.TemporaryDirectory() as folder:
        one, one_seconds = _timed(Path(folder) / "one.sqlite", 1)
        two, two_seconds = _timed(Path(folder) / "two.sqlite", 2)
        killed = Path(folder) / "killed.sqlite"
        rows_before = _killed(killed)
        resumed = points(killed, 2)
    rows = one.to_csv(times=False)
    metrics = {
        "points": len(one),
        "points_per_second": len(one) / two_seconds,
        "two_workers_to_one": two_seconds / one_seconds,
        "resumed_rows": rows_before,
        "computed_twice": rows_before + resumed.computed - len(one),
        "differing_rows": sum(rows != other.to_csv(times=False) for other in (two, resumed)),
        **_settings(one),
    }
    return Noted(metrics, list(_differences(one)))


def program(name: str) -> tuple[Any, Any]:
    """Return a program of the suite, which workers import."""
    return suite().program(name, suite().FULL, weights=False)


def points(store: Path, workers: int) -> Results:
    """Return the rows of the sweep."""
    from spyre_mlir.experiments import sweep as run
    from spyre_mlir.scratchpad.solvers import SOLVERS

    programs = {name: f"benchmarks.sweep:program({name!r})" for name in PROGRAMS}
    fields = {"device.lx.bytes": LX_BYTES}
    return run(
        programs, store=store, workers=workers, layout_solver=list(SOLVERS), sencores=CORES, axes=fields
    )


def _timed(store: Path, workers: int) -> tuple[Results, float]:
    begun = time.perf_counter()
    return points(store, workers), time.perf_counter() - begun


def _killed(store: Path) -> int:
    """Kill a worker of a sweep, and then the sweep; return the number of its rows."""
    code = f"from pathlib import Path; from benchmarks.sweep import points; points(Path({str(store)!r}), 2)"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    _wait_for(store, _ROWS_BEFORE_WORKER)
    os.kill(next(_children(process.pid)), signal.SIGKILL)
    _wait_for(store, _ROWS_BEFORE_SWEEP)
    process.kill()
    process.wait()
    return _count(store)


def _children(parent: int) -> Iterator[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    for child in children.split() or _of_threads(parent):
        yield int(child)


def _of_threads(parent: int) -> list[str]:
    """Return processes that the threads of a process started."""
    tasks = Path(f"/proc/{parent}/task").iterdir()
    return [child for task in tasks for child in (task / "children").read_text().split()]


def _wait_for(store: Path, count: int) -> None:
    while _count(store) < count:
        time.sleep(0.1)


def _count(store: Path) -> int:
    # Before the first row there is no file, or one without a table.
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=60)) as connection,
    ):
        return connection.execute("SELECT COUNT(*) FROM results").fetchone()[0]
    return 0


def _by_setting(results: Results) -> dict[str, dict[str, float]]:
    """Return predicted times by solver, of each program, size of LX and number of cores."""
    settings: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for row in results:
        setting = f"{row['program']}, {row['device.lx.bytes'] >> 10} KiB, {row['sencores']} cores"
        settings[setting][row["layout_solver"]] = row.get("predicted_us", 0.0)
    return settings


def _settings(results: Results) -> dict[str, float]:
    settings = _by_setting(results).values()
    return {
        "settings": len(settings),
        "settings_where_solvers_differ": sum(len(set(x.values())) > 1 for x in settings),
    }


def _differences(results: Results) -> Iterator[str]:
    for setting, times in _by_setting(results).items():
        best, worst = (choose(times, key=lambda name: times[name]) for choose in (min, max))
        if times[best] < times[worst]:
            ratio = times["portfolio"] / times[best]
            shown = (f"{name} {times[name]:,.1f} us" for name in (best, worst))
            yield f"{setting}: {', '.join(shown)}, portfolio {ratio:.3f} of the best"
