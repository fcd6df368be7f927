# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a program attains: calls and rows per second, and how much of the card's peaks and cores it uses."""

from __future__ import annotations

import math

from spyre_mlir.bundle.model import Bundle, KernelArgument
from spyre_mlir.cost.cost_model import multiply_adds_per_ns
from spyre_mlir.records import dataclass
from spyre_mlir.timeline.timeline import Execution, Timeline


@dataclass(frozen=True)
class InputRows:
    """The rows of an input in one call: all of its dims but the last."""

    argument: str
    shape: tuple[int, ...]
    count: int


@dataclass(frozen=True)
class Rates:
    """Parts are from 0 to 1, of the arrays of all cores and of the memory's bandwidth in the time of the program.

    ``mean_cores`` is the number of cores of its operations, weighted by their time; ``rows`` is None of a program
    without an input of two dims or more.
    """

    nanoseconds: float
    array_part: float
    memory_part: float
    mean_cores: float
    device_cores: int
    rows: InputRows | None

    @property
    def calls_per_second(self) -> float:
        """How often the program can run in a second, one call behind the other; 0 if it takes no time."""
        return 1e9 / self.nanoseconds if self.nanoseconds else 0.0


def rates(timeline: Timeline, bundle: Bundle) -> Rates:
    """Return the rates of a bundle by its timeline."""
    target, total = timeline.target, timeline.total_ns
    array_ns = math.fsum(map(_least_array_ns, timeline.executions))
    moved = sum(execution.moved_bytes for execution in timeline.executions)
    weighted = math.fsum(execution.work.cores * execution.total_ns for execution in timeline.executions)
    return Rates(
        nanoseconds=total,
        array_part=array_ns / total if total else 0.0,
        memory_part=moved / target.peak_bytes_per_ns / total if total else 0.0,
        mean_cores=weighted / total if total else 0.0,
        device_cores=target.device_cores,
        rows=next(filter(None, map(_rows, bundle.manifest.arguments)), None),
    )


def _least_array_ns(execution: Execution) -> float:
    """The time that the arrays of all cores need for the multiply-adds of an execution, all its runs."""
    if not execution.work.multiply_adds_per_core:
        return 0.0
    target = execution.work.target
    per_ns = 2 * target.device_cores * multiply_adds_per_ns(target, execution.opcode)
    return execution.runs * execution.operations / per_ns


def _rows(argument: KernelArgument) -> InputRows | None:
    shape = argument.host_shape
    if argument.kind != "input" or len(shape) < 2:
        return None
    return InputRows(argument.array_name, shape, math.prod(shape[:-1]))
