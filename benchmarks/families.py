"""Families of programs that nobody tuned plans for, at full size: predicted times over an honest bound."""

from __future__ import annotations

import gc
import math
import re
import time
import warnings
from typing import Any

from benchmarks.programs import families as families_module
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.driver.steps import BundleStep

COLUMNS = (
    "predicted_us", "bound_us", "ratio", "hbm_bytes", "mean_cores", "device_operations", "host_operations",
    "compile_s", "import_s",
)  # fmt: skip

#: Bytes per nanosecond of device memory, and multiply-adds of 32 cores, that no program exceeds for long.
BYTES_PER_NS, MULTIPLY_ADDS_PER_NS = 150, 32 * 1140


@benchmark(not_compiled=0, compile_s_max=10)
def families(only: str = "") -> Metrics:
    """Families of programs at full size on 32 cores, compiled one by one: predicted time over an honest bound.

    ``--only`` is a regular expression of their names. The bound is the larger of the logical bytes at 150 GB/s and
    the needed multiply-adds at 1140 per ns and core, both by hand. What the host does costs no time here.
    """
    metrics: dict[str, float] = {}
    notes: list[str] = []
    chosen = {name: each for name, each in families_module().all_families().items() if re.search(only, name)}
    _warm_up()
    print(f"{'':34}" + "".join(f"{column:>18}" for column in COLUMNS), flush=True)
    for name, family in chosen.items():
        try:
            row = _row(family)
        # One program that is refused or stops with an error must not hide the others.
        except Exception as error:
            notes.append(f"{name}: {type(error).__name__}: {_first_line(error)}")
            print(notes[-1], flush=True)
            continue
        metrics |= {f"{name}.{column}": value for column, value in row.items()}
        print(f"{name:34}" + "".join(f"{row[column]:>18,.2f}" for column in COLUMNS), flush=True)
        gc.collect()
    return Noted({**metrics, **_whole(metrics), "not_compiled": len(notes)}, notes, COLUMNS)


def bound_ns(family: Any) -> float:
    """The least time of a program, from its bytes and multiply-adds by hand."""
    return max(family.bytes / BYTES_PER_NS, family.multiply_adds / MULTIPLY_ADDS_PER_NS)


def _warm_up() -> None:
    """Import what is imported late, so that the first program does not pay for it."""
    import torch

    import spyre_mlir

    spyre_mlir.compile(torch.nn.Linear(64, 64).half(), (torch.zeros(2, 64).half(),))


def _row(family: Any) -> dict[str, float]:
    import spyre_mlir

    model, inputs = family.program()
    begun = time.perf_counter()
    with warnings.catch_warnings(action="ignore"):
        program = spyre_mlir.compile(model, inputs)
    seconds = time.perf_counter() - begun
    facts = [step.facts() for step in program.bundles]
    operations = [operation for each in facts for operation in each.operations]
    operations_ns = math.fsum(each.execution.total_ns for each in operations)
    predicted_ns = math.fsum(each.timeline.total_ns for each in facts)
    return {
        "predicted_us": predicted_ns / 1000,
        "bound_us": bound_ns(family) / 1000,
        "ratio": predicted_ns / bound_ns(family),
        "hbm_bytes": sum(each.traffic for each in facts),
        "mean_cores": math.fsum(each.cores * each.execution.total_ns for each in operations)
        / max(operations_ns, 1e-9),
        "device_operations": len(operations),
        "host_operations": sum(step.operations for step in program.steps if not isinstance(step, BundleStep)),
        "compile_s": seconds - program.import_seconds,
        "import_s": program.import_seconds,
    }


def _whole(metrics: Metrics) -> dict[str, float]:
    """What counts of all that were compiled."""
    ratios = [value for key, value in metrics.items() if key.endswith(".ratio")]
    seconds = [value for key, value in metrics.items() if key.endswith(".compile_s")]
    if not ratios:
        return {}
    geomean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return {
        "programs": len(ratios), "ratio_geomean": geomean, "ratio_max": max(ratios), "compile_s_max": max(seconds),
    }  # fmt: skip


def _first_line(error: Exception) -> str:
    return (str(error) or "no message").splitlines()[0][:300]
