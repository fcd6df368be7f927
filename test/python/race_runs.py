# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs of bundles under schedules: whether there are races, and whether each run has the bytes of the run in order."""

from __future__ import annotations

import itertools
from collections import ChainMap, Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spyre_mlir import CompileError
from spyre_mlir.bundle.memory_order import WALKED_EXECUTES
from spyre_mlir.bundle.model import Bundle
from spyre_mlir.bundle.sequence import join
from spyre_mlir.bundle.validate import races
from spyre_mlir.driver.checking import random_arguments
from spyre_mlir.driver.steps import HostStep, sequences
from spyre_mlir.simulator import BundleCall, Schedule, run_sequence
from spyre_mlir.simulator.run_outcome import SimulationError
from spyre_mlir.simulator.schedule import DMA_EXECUTION_MODES, RANDOM
from spyre_mlir.timeline import timeline

#: The largest number of operations of a bundle that runs under schedules.
MOST_OPERATIONS = 10**12


def schedules(seeds: int, *, is_checked: bool = True) -> list[Schedule]:
    """Return schedules of all modes in turn."""
    modes = itertools.cycle((*DMA_EXECUTION_MODES, RANDOM))
    contents = itertools.cycle(("nan", "zero", "zero", "nan", "nan"))
    return [
        Schedule(mode, seed, content, is_checked)
        for seed, mode, content in zip(range(seeds), modes, contents, strict=False)
    ]


def call(bundle: Bundle, known: Mapping[str, np.ndarray] | None = None) -> BundleCall:
    """Return the bundle with random arrays of its arguments, and ``known`` values of constants."""
    given = [each for each in bundle.manifest.arguments if each.source is None and each.kind != "result"]
    kinds = [each.kind if each.kind == "parameter" else "input" for each in given]
    drawn = random_arguments([replace(each, kind=kind) for each, kind in zip(given, kinds, strict=True)], 3)
    # Handwritten bundles do not have bounds of indices.
    arrays = {name: abs(each) % 16 if each.dtype.kind == "i" else each for name, each in drawn.items()}
    constants = {each.name for each in given if each.kind == "constant"}
    return BundleCall(
        bundle, arrays | {name: (known or {})[name] for name in constants & (known or {}).keys()}
    )


def results(bundle: Bundle | Sequence[BundleCall], schedule: Schedule | None = None) -> bytes:
    """Return the bytes of the results of a run of a bundle on random arrays, or of the calls of a sequence."""
    calls = [call(bundle)] if isinstance(bundle, Bundle) else bundle
    runs = run_sequence(calls, schedule=schedule)
    return b"".join(run.outputs[name].tobytes() for run in runs for name in sorted(run.outputs))


def judged(program: Any, seeds: int) -> Counter[str]:
    """Return the numbers of bundles, races, and of runs of the program's bundles under schedules, and differing runs.

    Bundles that pass data to each other run as one. Bundles that are too large, or whose data the simulator rejects in
    order, do not run.
    """
    counts = Counter[str](bundles=0, races=0, runs=0, differing=0)
    for steps in _sequences(program):
        bundles = [step.bundle for step in steps]
        counts["bundles"] += len(steps)
        counts["races"] += len(races(join(bundles), steps[0].lx_frac_avail))
        if not seeds or any(is_large(bundle) for bundle in bundles):
            continue
        calls = [call(step.bundle, ChainMap(step.arrays, program.arrays)) for step in steps]
        try:
            expected = results(calls)
        except CompileError:
            continue
        for schedule in schedules(seeds):
            counts["runs"] += 1
            try:
                is_same = results(calls, schedule) == expected
            except SimulationError:
                is_same = False
            counts["differing"] += not is_same
    return counts


def _sequences(program: Any) -> Iterator[list[Any]]:
    return (unit for unit in sequences(program.steps) if not isinstance(unit, HostStep))


def is_large(bundle: Bundle) -> bool:
    """Return whether a bundle has more runs than a schedule can order, or would run for hours under ten schedules."""
    found = timeline(bundle)
    operations = sum(each.operations * each.runs for each in found.executions)
    return found.shares.runs > WALKED_EXECUTES or operations > MOST_OPERATIONS
