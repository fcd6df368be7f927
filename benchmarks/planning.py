# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Planning of the scratchpads for the programs of the tests: savings and compile time."""

from __future__ import annotations

import math
from typing import Any

from benchmarks.chain import text
from benchmarks.layouts import parsed, seconds_of_passes
from benchmarks.programs import CHOSEN, programs
from benchmarks.registry import Metrics, Noted, benchmark

PASS = "scratchpad-planning"

CHAIN = 1000


@benchmark(**{"slowest_program_ms": 50, "share_percent": 20, "chain_seconds": 2, "chain_share_percent": 20})
def planning() -> Metrics:
    """Traffic of device memory over bytes of the arguments, with LX and without; time of ``scratchpad-planning``.

    The ratios are geometric means over all programs, on 32 cores; the notes have a few programs. The share is a share
    of the pipelines of all programs; the chain has 1000 pointwise operations.
    """
    found = {name: _Planned(name) for name in programs()}
    seconds = [each.seconds for each in found.values()]
    chain = seconds_of_passes(lambda: parsed(text(CHAIN)))
    metrics = {
        "programs": len(found),
        "traffic_over_arguments.without_lx": _geomean([each.before for each in found.values()]),
        "traffic_over_arguments.with_lx": _geomean([each.after for each in found.values()]),
        "programs_at_the_minimum": sum(each.after <= 1 for each in found.values()),
        "plans_not_proven": sum(not each.proven for each in found.values()),
        "slowest_program_ms": 1000 * max(seconds),
        "share_percent": 100 * sum(seconds) / sum(each.pipeline for each in found.values()),
        "chain_seconds": chain[PASS],
        "chain_share_percent": 100 * chain[PASS] / sum(chain.values()),
    }
    return Noted(metrics, [f"{name}: {found[name]}" for name in CHOSEN])


class _Planned:
    """A program compiled twice: traffic over the bytes of its arguments, and the shorter times in seconds."""

    def __init__(self, name: str) -> None:
        from spyre_mlir import dialects
        from spyre_mlir.frontend import import_torch
        from spyre_mlir.lowering.export import export

        model, inputs = programs()[name]()
        module: Any = import_torch(model, inputs, context=dialects.context()).module
        again = parsed(str(module))
        remarks, *times = _compiled(module)
        bundle, _ = export(module)
        least = sum(each.bytes for each in bundle.manifest.arguments)
        (plan,) = [each for each in remarks if each.pass_name == PASS and each.kind == "plan"]
        self.before, self.after = (plan.before or 0) / least, (plan.after or 0) / least
        self.reason = plan.reason
        self.proven = plan.data.after == plan.data.least
        _, *others = _compiled(again)
        self.seconds, self.pipeline = map(min, zip(times, others, strict=True))

    def __str__(self) -> str:
        return f"{self.before:.2f} to {self.after:.2f} times the arguments; {self.reason}"


def _compiled(module: Any) -> tuple[Any, float, float]:
    """Return the remarks of a compilation, the seconds of the pass and of all passes."""
    from spyre_mlir.pipelines import SpyrePipeline, Timing, run_pipeline
    from spyre_mlir.remarks import Remarks

    remarks, timing = Remarks(), Timing()
    run_pipeline(module, SpyrePipeline().pipeline(), timing=timing, remarks=remarks)
    planning_seconds = sum(seconds for each, seconds in timing if each.startswith(PASS))
    return remarks, planning_seconds, sum(seconds for _, seconds in timing)


def _geomean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
