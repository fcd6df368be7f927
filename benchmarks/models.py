# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Whole models on the simulator: device and host operations, traffic, errors and times."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import apart
from benchmarks.programs import deviations
from benchmarks.programs import models as models_module
from benchmarks.registry import Metrics, Noted, benchmark

COLUMNS = (
    "device_operations", "host_operations", "host_work_percent", "bundles", "traffic_over_bound",
    "compile_seconds", "run_seconds", "error_over_allowed",
)  # fmt: skip


#: Upper limits for every model.
WANTED = {"host_work_percent": 5.0, "compile_seconds": 20.0, "run_seconds": 60.0, "error_over_allowed": 1.0}


@benchmark(**{f"largest_{column}": limit for column, limit in WANTED.items()})
def models() -> Metrics:
    """Models of two layers, hidden size 256 and 128 tokens, from PyTorch to numbers on 32 simulated cores.

    Weights are random. Device operations are executions in bundles, host operations are linalg operations;
    ``host_work_percent`` is the host's part of all floating-point work. The bound of traffic is each argument and
    result of each bundle once. Compilation is all of it, in a process that has compiled nothing before. Allowed is
    four times the error of eager fp16 against float32, or the floor of the tests, for each tensor that a model returns
    or changes.
    """
    rows = {name: apart(_run, name) for name in models_module().MODELS}
    metrics = {f"{name}.{column}": value for name, row in rows.items() for column, value in row.items()}
    largest = {f"largest_{column}": max(row[column] for row in rows.values()) for column in WANTED}
    return Noted(metrics | largest, [], COLUMNS)


def _run(name: str) -> dict[str, float]:
    import spyre_mlir

    module, numbers = models_module(), deviations()
    model, inputs = module.model(name, module.FULL)
    begun = time.perf_counter()
    program = spyre_mlir.compile(model, inputs)
    compiled = time.perf_counter()
    numbers.call(program, numbers.copied(inputs))
    run = time.perf_counter()
    errors = numbers.deviations(program, model, inputs)
    return {
        **_work(program.steps),
        "compile_seconds": compiled - begun,
        "run_seconds": run - compiled,
        "error_over_allowed": max(each.error / each.allowed for each in errors),
    }


def _work(steps: Sequence[Any]) -> dict[str, float]:
    """Return the operations on device and host, and the traffic of the bundles."""
    from spyre_mlir.driver.steps import BundleStep

    bundles = [step for step in steps if isinstance(step, BundleStep)]
    host = [step for step in steps if not isinstance(step, BundleStep)]
    facts = [step.facts() for step in bundles]
    host_work = sum(step.float_operations for step in host)
    return {
        "device_operations": sum(each.runs for fact in facts for each in fact.operations),
        "host_operations": sum(step.operations for step in host),
        "host_work_percent": 100 * host_work / sum(step.float_operations for step in steps),
        "bundles": len(bundles),
        "traffic_over_bound": sum(fact.traffic for fact in facts)
        / sum(fact.argument_bytes for fact in facts),
    }
