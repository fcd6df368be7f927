# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The suite at full size on the simulator, byte by byte, with all checks."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.measure import apart, peak_bytes
from benchmarks.programs import suite, suite_checks
from benchmarks.registry import Metrics, Noted, benchmark

#: The allowed error of a result, as a multiple of the error of PyTorch in fp16.
FACTOR = 4

COLUMNS = ("compile_seconds", "run_seconds", "peak_gb", "largest_error", "error_over_allowed")


@benchmark(largest_error_over_allowed=1)
def suite_runs() -> Metrics:
    """The suite at full size on 32 simulated cores: seconds, memory, and the largest error against float32.

    Weights and inputs are random. Any finding of the validator, of ``verify_each`` or of the simulator stops it, and
    so does traffic that differs from the plan. Errors are relative to the largest value; allowed is four times the
    error of PyTorch in fp16, or the floor of the tests. The error of the suite is the largest of all programs.
    """
    metrics: dict[str, float] = {}
    for name in suite().SUITE:
        metrics |= {f"{name}.{key}": value for key, value in apart(_run, name).items()}
    errors = [value for key, value in metrics.items() if key.endswith(".error_over_allowed")]
    return Noted({**metrics, "largest_error_over_allowed": max(errors)}, [], COLUMNS)


def _run(name: str) -> dict[str, float]:
    import torch

    import spyre_mlir
    from spyre_mlir.bundle.validate import validate

    module, checks = suite(), suite_checks()
    model, inputs = module.program(name, module.FULL)
    begun = time.perf_counter()
    program = spyre_mlir.compile(model, inputs, verify_each=True)
    compiled = time.perf_counter() - begun
    if findings := validate(program.bundle):
        raise AssertionError(f"{name}: {findings[0]}")
    begun = time.perf_counter()
    result = program(*inputs)
    run = time.perf_counter() - begun
    checks.check_traffic(program)
    peak = peak_bytes()
    del program
    with torch.no_grad():
        own, exact = _results(model, inputs)
    largest = exact.abs().max().item()
    errors = [(each.float() - exact).abs().max().item() / largest for each in (result, own)]
    return {
        "compile_seconds": compiled,
        "run_seconds": run,
        "peak_gb": peak / 1e9,
        "largest_error": errors[0],
        "error_over_allowed": errors[0] / max(FACTOR * errors[1], checks.floor(name)),
    }


def _results(model: Any, inputs: Sequence[Any]) -> tuple[Any, Any]:
    """Return results in fp16 and in float32; only one layer of a sequence at a time is in float32."""
    from torch import nn

    own, exact = tuple(inputs), tuple(each.float() for each in inputs)
    for layer in model if isinstance(model, nn.Sequential) else (model,):
        own, exact = (layer(*own),), (copy.deepcopy(layer).float()(*exact),)
    return own[0], exact[0]
