# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Time of the exact packing of MiniMalloc's hard instances."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from statistics import mean
from types import ModuleType
from typing import Any

from benchmarks.measure import ROOT, seconds
from benchmarks.registry import Metrics, benchmark

#: Rectangles without slack: numbers of buffers per rectangle, (capacity, time steps) per kind, and seeds per kind.
COUNTS = (60, 80, 100, 120)
RECTANGLES = ((1 << 20, 1000), (1024, 200), (64, 60))
SEEDS = 20

BUDGET = 5_000_000


@benchmark(
    **{
        "hard.seconds": 2,
        "hard.most_seconds": 0.5,
        "hard.not_placed": 0,
        "cut.most_seconds": 1,
        "cut.not_placed": 0,
        "jit_seconds": 10,
    }
)
def packing() -> Metrics:
    """Exact packing: MiniMalloc's hard instances at their capacity, and cut rectangles without slack.

    ``jit_seconds`` is the time to compile the search, ``first_use_seconds`` the time to load it from disk.
    """
    sets = _sets()
    metrics: dict[str, float] = {
        "jit_seconds": _jit_seconds(),
        "first_use_seconds": seconds(lambda: _pack(sets.guillotine(8, 0), 1 << 20)),
    }
    if sets.INSTANCES.exists():
        metrics |= _hard(sets)
    return {**metrics, **_cut(sets)}


def _hard(sets: ModuleType) -> Metrics:
    runs = {name: _pack(sets.hard(name), sets.HARD_CAPACITY) for name in "ABCDEFGH"}
    metrics = {}
    for name, (time, nodes, _) in runs.items():
        metrics |= {f"hard.{name}_seconds": time, f"hard.{name}_nodes": nodes}
    metrics["hard.seconds"] = sum(time for time, _, _ in runs.values())
    metrics["hard.most_seconds"] = max(time for time, _, _ in runs.values())
    metrics["hard.not_placed"] = sum(not placed for _, _, placed in runs.values())
    return metrics


def _cut(sets: ModuleType) -> Metrics:
    runs = [
        _pack(sets.guillotine(count, seed, *rectangle), rectangle[0])
        for rectangle in RECTANGLES
        for count in COUNTS
        for seed in range(SEEDS)
    ]
    return {
        "cut.instances": len(runs),
        "cut.mean_seconds": mean(time for time, _, _ in runs),
        "cut.most_seconds": max(time for time, _, _ in runs),
        "cut.most_nodes": max(nodes for _, nodes, _ in runs),
        "cut.not_placed": sum(not placed for _, _, placed in runs),
    }


def _pack(some: Sequence[Any], capacity: int) -> tuple[float, int, bool]:
    """Return seconds, nodes, and whether all buffers are placed."""
    from spyre_mlir.scratchpad.buffers import MemorySpace
    from spyre_mlir.scratchpad.in_place_packing import Packing, pack
    from spyre_mlir.scratchpad.instance import Instance

    instance = Instance.of(some, MemorySpace(capacity, 1))
    found: list[Packing] = []
    time = seconds(lambda: found.append(pack(instance, capacity, BUDGET)))
    return time, found[0].nodes, found[0].offsets is not None


def _jit_seconds() -> float:
    """Return the time of a small packing with an empty cache of numba, less the time with a filled cache."""
    code = "from benchmarks import packing; packing._pack(packing._sets().guillotine(8, 0), 1 << 20)"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", code]
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        first, second = (
            seconds(lambda: subprocess.run(command, cwd=ROOT, env=environment, check=True)) for _ in range(2)
        )
    return first - second


def _sets() -> ModuleType:
    """Return the module of the instances of the tests."""
    folder = str(ROOT / "test" / "python")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module("packings")
