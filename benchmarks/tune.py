# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plans found by tuning, compared with plans of the compiler: the time that searches of the compiler miss."""

from __future__ import annotations

import time

from benchmarks.measure import apart
from benchmarks.registry import Metrics, Noted, benchmark

PROGRAMS = ("softmax", "mlp", "attention_512", "layer_64", "conv_block")

COLUMNS = ("default_us", "tuned_us", "gain_percent", "refused", "cpu_seconds")


@benchmark(programs_worse=0)
def tune(only: str = "", trials: str = "100") -> Metrics:
    """Programs of the suite at full size, each tuned with ``--trials`` for the least predicted time on 32 cores.

    A point of the space changes options, divisions, loops and layouts of arguments (docs/tuning.md). Gains are
    fractions of the default time; notes name the changes that the best plan needs, with the time without each, and the
    reasons of refused points. A change that gains in several programs is a weakness of the compiler's own choice.
    """
    metrics: dict[str, float] = {}
    notes: list[str] = []
    for name in only.split(",") if only else PROGRAMS:
        row, told = apart(_tuned, name, int(trials))
        metrics |= {f"{name}.{column}": value for column, value in row.items()}
        notes += told
        print(f"{name}: {row}", *told, sep="\n", flush=True)
    worse = sum(
        metrics[f"{name}.tuned_us"] > value
        for key, value in metrics.items()
        if key.endswith(".default_us") and (name := key.rpartition(".")[0])
    )
    return Noted({**metrics, "programs_worse": worse}, notes, COLUMNS)


def _tuned(name: str, trials: int) -> tuple[dict[str, float], list[str]]:
    """Return the figures of a program by column, and notes."""
    from spyre_mlir import zoo
    from spyre_mlir.experiments.tuning import tune as tuned

    begun = time.process_time()
    result = tuned(*zoo.load(f"suite/{name}", weights=False), trials=trials)
    row = {
        "default_us": result.default_value,
        "tuned_us": result.value,
        "gain_percent": 100 * result.gain,
        "refused": sum(result.refused.values()),
        "cpu_seconds": time.process_time() - begun,
    }
    notes = [f"{name}: {change.text}: without it {change.without}" for change in result.changes]
    if result.options:
        notes.append(f"{name}: the plan file needs {dict(result.options)}")
    reasons = sorted(result.refused.items(), key=lambda pair: -pair[1])
    return row, [*notes, *(f"{name}: {count} refused: {reason}" for reason, count in reasons[:3])]
