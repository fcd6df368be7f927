# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Families of programs without hand-tuned plans, at full size: predicted times over their bounds."""

from __future__ import annotations

import functools
import gc
import math
import re
import time
import warnings
from collections.abc import Sequence
from typing import Any

from benchmarks.family_figures import FIGURES, Figures
from benchmarks.programs import families as families_module
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.driver.program_figures import FAR, FAR_FROM_BOUND
from spyre_mlir.target.target import default_target

COLUMNS = (
    "predicted_us", "sequential_us", "bound_us", "time_over_bound", "hbm_bytes", "mean_cores", "device_operations",
    "host_operations", "compile_s", "import_s",
)  # fmt: skip

#: Names of the families in the group of a metric.
GROUPS = {"": "", "decode_": "^decode_", "conv_": "resnet|mobilenet|unet|whisper_stem"}

#: The allowed difference between the bound of the compiler and the bound by hand.
AGREES = 0.02


#: Upper limits of metrics, of this benchmark and of plan-quality.
TARGETS = {
    "time_over_bound_geomean": 1.4,
    "decode_time_over_bound_geomean": 1.3,
    "conv_time_over_bound_geomean": 2.5,
    "time_over_bound_max": FAR,
    "not_compiled": 0,
}


@benchmark(compile_s_max=10, **TARGETS)
def families(only: str = "") -> Metrics:
    """Families of programs at full size on 32 cores, compiled one by one: predicted time over what they need.

    ``--only`` is a regular expression of their names. The bound is computed by the compiler from logical bytes and
    needed multiply-adds; notes list differences from the bound by hand. Host operations cost no time here. Notes name
    each program over 3.0 with the operations that take most of its time.
    """
    metrics, notes = all_measured(only)
    return Noted({**metrics, **summary(metrics)}, notes, COLUMNS)


def all_measured(only: str) -> tuple[dict[str, float], list[str]]:
    """Return the figures of families whose names match, and notes; print the line of each as soon as it is measured."""
    metrics: dict[str, float] = {}
    notes: list[str] = []
    print(f"{'':34}" + "".join(f"{column:>18}" for column in COLUMNS), flush=True)
    for name in families_module().FAMILIES:
        if not re.search(only, name):
            continue
        row, told = measured(name)
        metrics |= {f"{name}.{column}": value for column, value in row.items()}
        notes += told
        if row:
            print(f"{name:34}" + "".join(f"{row[column]:>18,.2f}" for column in COLUMNS), flush=True)
        for note in told:
            print(note, flush=True)
    return {**metrics, "not_compiled": sum(": not compiled: " in note for note in notes)}, notes


@functools.cache
def measured(name: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the figures of a family by column, none if it does not compile, and notes; cached in the process."""
    _warm_up()
    model, inputs = families_module().program(name)
    begun = time.perf_counter()
    try:
        with warnings.catch_warnings(action="ignore"):
            import spyre_mlir

            program = spyre_mlir.compile(model, inputs)
        seconds = time.perf_counter() - begun
        figures = program.metrics()
    # A program that is refused or stops with an error must not hide the others.
    except Exception as error:
        return {}, (f"{name}: not compiled: {type(error).__name__}: {_first_line(error)}",)
    row = {
        **figures,
        "time_over_bound": figures["predicted_us"] / figures["bound_us"],
        "hbm_bytes": figures["hbm_read_bytes"] + figures["hbm_written_bytes"],
        "compile_s": seconds - program.import_seconds,
    }
    notes = (*_differences(name, FIGURES[name], program), *_reasons(name, program))
    del program
    gc.collect()
    return {column: row[column] for column in COLUMNS}, notes


def by_hand_us(figures: Figures) -> float:
    """Return the least time of a program in microseconds, from its bytes and multiply-adds by hand."""
    target = default_target()
    rate = target.cores * target.array.multiply_adds_per_ns
    return max(figures.bytes / target.one_way_bytes_per_ns, figures.multiply_adds / rate) / 1000


def summary(metrics: Metrics) -> dict[str, float]:
    """Return geometric means of groups of families, the largest ratio, and the longest compilation."""
    ratios = {
        key.rpartition(".")[0]: value for key, value in metrics.items() if key.endswith(".time_over_bound")
    }
    seconds = [value for key, value in metrics.items() if key.endswith(".compile_s")]
    found: dict[str, float] = {"programs": len(ratios)}
    for group, pattern in GROUPS.items():
        if chosen := [value for name, value in ratios.items() if re.search(pattern, name)]:
            found[f"{group}time_over_bound_geomean"] = _geomean(chosen)
            found[f"{group}time_over_bound_max"] = max(chosen)
    return {**found, "compile_s_max": max(seconds)} if seconds else found


def _geomean(values: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, values)) / len(values))


@functools.cache
def _warm_up() -> None:
    """Import lazy modules, so that the time of the first program does not include them."""
    import torch

    import spyre_mlir

    spyre_mlir.compile(torch.nn.Linear(64, 64).half(), (torch.zeros(2, 64).half(),))


def _differences(name: str, figures: Figures, program: Any) -> list[str]:
    """Return a note for each bound of the compiler that differs from the bound by hand."""
    bound = program.bound()
    pairs = {
        "bytes": (bound.bytes, figures.bytes),
        "multiply-adds": (bound.multiply_adds, figures.multiply_adds),
    }
    return [
        f"{name}: the compiler needs {found:,} {what}, by hand it is {expected:,}"
        for what, (found, expected) in pairs.items()
        if abs(found - expected) > AGREES * expected
    ]


def _reasons(name: str, program: Any) -> list[str]:
    """Return the remarks on the operations that keep a program far over its bound."""
    return [f"{name}: {remark.reason}" for remark in program.remarks if remark.kind == FAR_FROM_BOUND]


def _first_line(error: Exception) -> str:
    return (str(error) or "no message").splitlines()[0][:300]
