# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Comparison of solvers of memory plans: hard packings, operator chains, and buffers that do not all fit."""

from __future__ import annotations

import importlib
import math
import sys
from types import ModuleType
from typing import Any

from benchmarks.measure import ROOT, seconds
from benchmarks.registry import Metrics, Noted, benchmark

HEURISTICS = ("greedy", "firstfit", "bestfit", "largest-first")

#: A capacity in bytes that is never reached, so that solvers differ only by their peak.
UNLIMITED = 1 << 60

CHAINS = (1_000, 10_000)

SETS = 1_000


@benchmark(
    **{f"chain_10000.{name}_seconds": 0.5 for name in HEURISTICS},
    **{"chain_1000.portfolio_seconds": 0.1, "chain_10000.portfolio_seconds": 1},
    **{"chain_1000.portfolio_peak_to_load": 1, "chain_10000.portfolio_peak_to_load": 1},
    **{"sets.portfolio_traffic_to_best": 1.0},
)
def solvers() -> Metrics:
    """Seconds and peak / LOAD per instance and solver, and traffic where not everything fits.

    The hard packings have unlimited capacity here, except for ``branch-and-bound`` and ``portfolio``.
    ``traffic_to_best`` is the geometric mean over random sets of the traffic over the traffic of the best solver; the
    notes count the sets where largest-first (order-by-size) has more traffic than first-fit, and where it has less.
    """
    sets, packings = (_of_the_tests(name) for name in ("buffer_sets", "packings"))
    metrics = _hard(packings) if packings.INSTANCES.exists() else {}
    for count in CHAINS:
        for name in (*HEURISTICS, *_loaded(), "portfolio"):
            metrics |= _run(f"chain_{count}", name, sets.chain(count), UNLIMITED, 128)
    traffic, note = _traffic(sets)
    return Noted(metrics | traffic, [note])


def _loaded() -> tuple[str, ...]:
    """Return the solvers of loaded files."""
    from spyre_mlir.scratchpad.solvers import SOLVERS

    return tuple(
        name for name, each in SOLVERS.items() if not each.__module__.startswith("spyre_mlir.scratchpad")
    )


def _hard(packings: ModuleType) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for instance in "ABCDEFGH":
        buffers = packings.hard(instance)
        for name in (*HEURISTICS, *_loaded()):
            metrics |= _run(f"hard_{instance}", name, buffers, UNLIMITED, 1)
        for name in ("branch-and-bound", "portfolio"):
            metrics |= _run(f"hard_{instance}", name, buffers, packings.HARD_CAPACITY, 1)
    return metrics


def _run(label: str, name: str, buffers: Any, capacity: int, alignment: int) -> dict[str, float]:
    """Return the shorter of two runs; a plan that does not place a buffer has no comparable peak."""
    from spyre_mlir.scratchpad import MemorySpace, solver

    plans = []
    taken = [
        seconds(lambda: plans.append(solver(name).plan(buffers, MemorySpace(capacity, alignment))))
        for _ in range(2)
    ]
    plan = plans[0]
    peak = plan.peak / plan.load if not plan.spilled else math.inf
    return {f"{label}.{name}_seconds": min(taken), f"{label}.{name}_peak_to_load": peak}


def _traffic(sets: ModuleType) -> tuple[dict[str, float], str]:
    from spyre_mlir.scratchpad import solver

    names = (*HEURISTICS, *_loaded(), "portfolio")
    ratios: dict[str, list[float]] = {name: [] for name in names}
    more = less = 0
    for seed in range(SETS):
        buffers, space = sets.random_set(seed)
        moved = {name: solver(name).plan(buffers, space).traffic for name in names}
        for name in names:
            ratios[name].append((moved[name] + 1) / (min(moved.values()) + 1))
        more += moved["largest-first"] > moved["firstfit"]
        less += moved["largest-first"] < moved["firstfit"]
    means = {
        f"sets.{name}_traffic_to_best": math.exp(sum(map(math.log, each)) / SETS)
        for name, each in ratios.items()
    }
    return means, f"largest-first moves more than firstfit on {more} of {SETS} random sets, less on {less}"


def _of_the_tests(name: str) -> ModuleType:
    folder = str(ROOT / "test" / "python")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)
