# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The roofline: operations per byte, the rate that this intensity allows, and the attained rate.

An execution counts alone, by the cost model; overlap with its neighbours is part of the timeline. Bytes are bytes that
move, without data that the backend still has. The attainable rate is the smaller of the cores' peak and of intensity
times the memory's bandwidth; the attained rate is at most the attainable rate.
"""

from __future__ import annotations

import math

from spyre_mlir.bundle.model import Bundle
from spyre_mlir.cost.cost_model import multiply_adds_per_ns
from spyre_mlir.records import dataclass
from spyre_mlir.timeline.timeline import Execution, Timeline


@dataclass(frozen=True)
class Roofline:
    """A point below the roofs of the device.

    Attributes:
        name: The execution, or the program.
        operations: Number of operations: two per multiply-add, else one per element slot.
        bytes: Bytes of device memory that move.
        nanoseconds: The time.
        peak_per_ns: Operations per nanosecond at the peak of its cores.
        bytes_per_ns: Bytes per nanosecond of device memory at its peak.
    """

    name: str
    operations: int
    bytes: int
    nanoseconds: float
    peak_per_ns: float
    bytes_per_ns: float

    @property
    def intensity(self) -> float:
        """Operations per byte; infinite if nothing moves."""
        return self.operations / self.bytes if self.bytes else math.inf

    @property
    def attained_per_ns(self) -> float:
        """Operations per nanosecond in the time of the execution or program."""
        return self.operations / self.nanoseconds if self.nanoseconds else 0.0

    @property
    def attainable_per_ns(self) -> float:
        """Operations per nanosecond of the roof above the point."""
        return min(self.peak_per_ns, self.intensity * self.bytes_per_ns)

    @property
    def bound_by(self) -> str:
        """The roof above the point: 'memory' left of the ridge, else 'compute'."""
        return "memory" if self.intensity * self.bytes_per_ns < self.peak_per_ns else "compute"


def rooflines(timeline: Timeline) -> list[Roofline]:
    """Return the rooflines of the executions of a ``timeline``, all runs of each together, in program order."""
    return [of_execution(execution) for execution in timeline.executions]


def of_program(timeline: Timeline) -> Roofline:
    """Return the roofline of all executions together, in the time of the ``timeline``.

    The peak is the rate of all operations if each runs at the peak of its unit; units have different peaks.
    """
    parts = rooflines(timeline)
    operations = sum(part.operations for part in parts)
    least_ns = math.fsum(part.operations / part.peak_per_ns for part in parts)
    return Roofline(
        "program",
        operations,
        sum(part.bytes for part in parts),
        timeline.total_ns,
        # Units have different peaks, so the peak of all is weighted by operations.
        peak_per_ns=operations / least_ns if least_ns else 0.0,
        bytes_per_ns=timeline.target.peak_bytes_per_ns,
    )


def of_execution(execution: Execution) -> Roofline:
    work, target = execution.work, execution.work.target
    # Of one core: of the array if it multiplies, else of the vector unit.
    core_peak = target.vector_sticks_per_ns * execution.lanes
    if work.multiply_adds_per_core:
        core_peak = 2 * multiply_adds_per_ns(target, execution.opcode)
    return Roofline(
        execution.opcode,
        execution.runs * execution.operations,
        execution.moved_bytes,
        execution.alone_ps / 1000,
        peak_per_ns=work.cores * core_peak,
        bytes_per_ns=target.peak_bytes_per_ns,
    )


# Rates that a program attains: calls and rows per second, and its use of the card's peak rates and cores.


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
