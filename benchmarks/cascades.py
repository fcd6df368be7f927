# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random cascades of reductions at full size: predicted times over their bounds, and wrong numbers at small size."""

from __future__ import annotations

import math
import time
import warnings
from typing import Any

from benchmarks.programs import cascade_programs
from benchmarks.registry import Metrics, Noted, benchmark
from spyre_mlir.errors import CompileError
from spyre_mlir.target.target import default_target

COLUMNS = (
    "predicted_us", "bound_us", "time_over_bound", "time_over_stick_bound", "device_operations", "compile_s",
)  # fmt: skip


@benchmark(wrong=0, not_compiled=0, time_over_bound_geomean=1.5, time_over_bound_max=2.5)
def cascades(first: int = 0, count: int = 200) -> Metrics:
    """Cascades of the seeds from ``first`` on: numbers at small size, and times over bounds at full size on 32 cores.

    The bound is the time of the bytes of all inputs and results or of the needed multiply-adds, whichever is longer,
    both counted by the generator. ``time_over_stick_bound`` counts the whole sticks of inputs and results in their
    default layouts instead of their elements, which is the least that the device moves. Notes describe each program.
    """
    module, metrics, notes = cascade_programs(), dict[str, float](), list[str]()
    wrong = failed = 0
    for seed in range(first, first + count):
        text = f"{seed}: {module.cascade(seed, full=True)}"
        try:
            is_right = _is_right(module.cascade(seed, full=False), module.deviation)
            row = _measured(module.cascade(seed, full=True))
        except CompileError as error:
            failed += 1
            notes.append(f"{text}: {str(error).splitlines()[0][:200]}")
            print(notes[-1], flush=True)
            continue
        wrong += not is_right
        notes.append(f"{text}: {row['time_over_bound']:.2f}{'' if is_right else ', WRONG NUMBERS'}")
        print(notes[-1], flush=True)
        metrics |= {f"seed_{seed}.{column}": value for column, value in row.items()}
    found: dict[str, float] = {"programs": count, "wrong": wrong, "not_compiled": failed}
    for column in ("time_over_bound", "time_over_stick_bound"):
        ratios = [value for key, value in metrics.items() if key.endswith(f".{column}")]
        if ratios:
            found[f"{column}_geomean"] = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
            found[f"{column}_max"] = max(ratios)
    return Noted({**metrics, **found}, notes, COLUMNS)


def _compiled(found: Any) -> Any:
    """Return the program of a cascade."""
    import spyre_mlir
    from spyre_mlir.zoo.blocks import AppliedFunction

    with warnings.catch_warnings(action="ignore"):
        return spyre_mlir.compile(AppliedFunction(found.function), found.inputs())


def _is_right(found: Any, deviation: Any) -> bool:
    """Return whether the simulator has the numbers of PyTorch in f64, within the error of fp16."""
    with warnings.catch_warnings(action="ignore"):
        return deviation(found, _compiled(found)(*found.inputs())) <= 1


def _measured(found: Any) -> dict[str, float]:
    """Return the figures of a cascade by column."""
    target, begun = default_target(), time.process_time()
    program = _compiled(found)
    seconds, figures = time.process_time() - begun, program.metrics()
    products_ns = found.multiply_adds / (target.cores * target.array.multiply_adds_per_ns)
    bound, of_sticks = (
        max(moved / target.one_way_bytes_per_ns, products_ns) / 1000
        for moved in (found.bytes, found.stick_bytes)
    )
    us = figures["predicted_us"]
    values = us, bound, us / bound, us / of_sticks, figures["device_operations"], seconds
    return dict(zip(COLUMNS, values, strict=True))
