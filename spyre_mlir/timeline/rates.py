# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rates that a program attains: calls and rows per second, and its use of the card's peak rates and cores."""

from __future__ import annotations

import math

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.cost.cost_model import multiply_adds_per_ns
from spyre_mlir.records import dataclass
from spyre_mlir.timeline.timeline import Timeline


@dataclass(frozen=True)
class InputRows:
    """The rows of an input in one call: all of its dims but the last."""

    argument: str
    shape: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Rates:
    """Rates of a program. ``array_part`` and ``memory_part`` are used fractions (0 to 1) of the peak rates.

    ``mean_cores`` is the mean number of cores of the operations, weighted by their time; ``rows`` is None for a
    program without an input of at least two dims.
    """

    nanoseconds: float
    array_part: float
    memory_part: float
    mean_cores: float
    device_cores: int
    rows: InputRows | None

    @property
    def calls_per_second(self) -> float:
        """Calls of the program per second, one after another; 0 if it takes no time."""
        return 1e9 / self.nanoseconds if self.nanoseconds else 0.0


def rates(timeline: Timeline, bundle: Bundle) -> Rates:
    """Return the rates of a bundle by its timeline."""
    target, total = timeline.target, timeline.total_ns
    # The time that the arrays of all cores need for the multiply-adds of all runs.
    array_ns = math.fsum(
        execution.runs
        * execution.operations
        / (2 * target.device_cores * multiply_adds_per_ns(execution.work.target, execution.opcode))
        for execution in timeline.executions
        if execution.work.multiply_adds_per_core
    )
    moved = sum(execution.moved_bytes for execution in timeline.executions)
    weighted = math.fsum(execution.work.cores * execution.total_ns for execution in timeline.executions)
    rows = None
    for argument in bundle.manifest.arguments:
        if rows is None and argument.kind == "input" and len(argument.host_shape) >= 2:
            rows = InputRows(argument.array_name, argument.host_shape, math.prod(argument.host_shape[:-1]))
    return Rates(
        nanoseconds=total,
        array_part=array_ns / total if total else 0.0,
        memory_part=moved / target.peak_bytes_per_ns / total if total else 0.0,
        mean_cores=weighted / total if total else 0.0,
        device_cores=target.device_cores,
        rows=rows,
    )
