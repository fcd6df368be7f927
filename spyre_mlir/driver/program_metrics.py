# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The figures of a program as plain numbers, to be stored and compared; no run is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_mlir.cost.bound import ProgramBound
from spyre_mlir.driver.steps import BundleStep, HostStep, Step
from spyre_mlir.driver.steps_summary import host_share
from spyre_mlir.target.target import default_target
from spyre_mlir.timeline import Timeline

#: The value of figures that are unknown for a program read from a folder: its bound and its compile times.
UNKNOWN = -1.0

#: The names of the figures, in order.
METRICS = (
    "predicted_us", "bound_us", "bound_bytes", "hbm_read_bytes", "hbm_written_bytes", "mean_cores",
    "device_operations", "host_operations", "host_flop_share", "bundles", "lx_peak_bytes", "compile_s", "import_s",
)  # fmt: skip


def program_metrics(
    steps: Sequence[Step],
    timelines: Sequence[Timeline],
    bound: ProgramBound | None,
    seconds: tuple[float, float],
) -> dict[str, float]:
    """Return the figures by name; ``timelines`` cover all bundles, ``seconds`` are (pipeline, import).

    Times and traffic are for one call, summed over all bundles; host functions take no time here. ``mean_cores`` is
    weighted by time, and ``lx_peak_bytes`` is the maximum over cores and bundles.
    """
    bundles = [step for step in steps if isinstance(step, BundleStep)]
    target = bundles[0].bundle.target if bundles else default_target()
    facts = [step.facts() for step in bundles]
    operations = [operation for each in facts for operation in each.operations]
    device_ns = math.fsum(each.execution.total_ns for each in operations)
    core_ns = math.fsum(each.cores * each.execution.total_ns for each in operations)
    return {
        "predicted_us": math.fsum(each.total_ns for each in timelines) / 1000,
        "bound_us": UNKNOWN if bound is None else bound.ns(target) / 1000,
        "bound_bytes": UNKNOWN if bound is None else bound.bytes,
        "hbm_read_bytes": sum(each.read_bytes for each in timelines),
        "hbm_written_bytes": sum(each.written_bytes for each in timelines),
        "mean_cores": core_ns / device_ns if device_ns else 0.0,
        "device_operations": len(operations),
        "host_operations": sum(step.operations for step in steps if isinstance(step, HostStep)),
        "host_flop_share": host_share(steps),
        "bundles": len(bundles),
        "lx_peak_bytes": max((each.map.peak for each in facts), default=0),
        "compile_s": seconds[0],
        "import_s": seconds[1],
    }
