# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost of an operation in nanoseconds. All passes rank plans by this one model; it does not predict times.

The target of an operation's work names the model. This file has the formulas of the default model, ``analytic``. A
function marked ``replaceable`` calls another model (``replaced_model.py``) if the target names one.

The model chooses layouts (``of_space.py``), splits of a matmul and joint divisions, and gives the times of the
timeline. Fields of a work may be numpy arrays, one entry per division (``even_work``); its costs are then arrays too.

All constants are in ``spyre.toml``, each with its source. The parts of a cost:

compute   multiply-adds / sustained rate of the format * slowdown of rows, twice that if the reduced dim is split,
          slowdown of rows = 1 up to full_rate_rows of a core, then in proportion, at most row_slowdown;
          at least multiply-adds / scattered_sum rate if cores that add up one sum are not neighbours;
          or sticks / rate of the vector unit
stream    of an operand of the vector unit:
              max(bytes / (rate * saturation(cores)), core_bytes / (rate * saturation(1))) * contention * bursts,
              contention = max(1, (fan_out / 8)^0.75)
          of an operand of the array:
              hypot(bytes * waiting / peak, core_bytes / intake) * bursts,
              waiting = max(1, stream_lx_bytes / (fan_out * bytes of LX of the back end))^stream_exponent of an input
          bursts = (1 + overhead / run) / (1 + overhead / burst)
memory    the streams of all operands, and the turnaround of the bus per byte of min(read, written); a restickify
          has its own rate, and takes at least the time of a copy
ring      (parts - 1) * outputs per core * cost of a hop; for a shuffle, the cost of its relayout (``ring_traffic.py``)
overhead  a wait for the first byte of each access to device memory

Compute and memory overlap, but each slows the other: together they take hypot(compute, memory). No rate exceeds its
peak: an operation takes at least the time of its bytes at the memory's peak (``least_ns``, the floor of the timeline)
and of its multiply-adds at the array's peak.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from spyre_mlir.algorithms import register
from spyre_mlir.cost.replaced_model import CostModel, replaceable
from spyre_mlir.cost.ring_traffic import relayout_ns
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.target.target import ANALYTIC, Target


@dataclass(frozen=True)
class OperationCost:
    """Nanoseconds of one execution, by part.

    Attributes:
        compute_ns: Compute time of the busiest core, without waiting for operands.
        memory_ns: Time to move all operands that are not in LX.
        ring_ns: Time of a relayout over the ring, or to add up partial results.
        overhead_ns: Time until the first byte of each access arrives.
    """

    compute_ns: float
    memory_ns: float
    ring_ns: float
    overhead_ns: float

    @property
    def total_ns(self) -> float:
        """Total nanoseconds.

        Compute and memory overlap, because an operation streams its tiles through LX. The ring is used after the
        last product, and the first byte arrives before all work: neither overlaps.
        """
        return overlapped(self.compute_ns, self.memory_ns) + self.ring_ns + self.overhead_ns

    @property
    def serial_ns(self) -> float:
        """The nanoseconds if nothing overlaps."""
        return self.compute_ns + self.memory_ns + self.ring_ns + self.overhead_ns

    @property
    def bound_by(self) -> str:
        """Return the longest part: 'compute', 'memory', 'ring' or 'overhead'; the first one if several are equal."""
        parts = {
            "compute": self.compute_ns,
            "memory": self.memory_ns,
            "ring": self.ring_ns,
            "overhead": self.overhead_ns,
        }
        return max(parts, key=parts.__getitem__)


@dataclass(frozen=True)
class OperationCosts:
    """Costs of consecutive operations. ``lower_ns``: all of them overlap; ``upper_ns``: nothing overlaps."""

    operations: tuple[OperationCost, ...]

    @property
    def total_ns(self) -> float:
        """Sum over operations; within each operation compute and memory overlap."""
        return math.fsum(cost.total_ns for cost in self.operations)

    @property
    def lower_ns(self) -> float:
        """The larger of all compute and all memory time."""
        compute = math.fsum(cost.compute_ns for cost in self.operations)
        return max(compute, math.fsum(cost.memory_ns for cost in self.operations))

    @property
    def upper_ns(self) -> float:
        """Sum of every part of every operation."""
        return math.fsum(cost.serial_ns for cost in self.operations)


def overlapped(compute: Any, memory: Any) -> Any:
    """Return the time of overlapping compute and memory, hypot(compute, memory), of numbers or arrays.

    The result is between the longer of the two and their sum, since each slows the other. The square root is rounded
    alike on all machines; the ``hypot`` of a library may not be.
    """
    square = compute * compute + memory * memory
    return np.sqrt(square) if isinstance(square, np.ndarray) else math.sqrt(square)


def program_cost(operations: Sequence[OperationWork]) -> OperationCosts:
    """Return the cost of a program, with its lower and upper bound."""
    return OperationCosts(tuple(map(operation_cost, operations)))


def operation_cost(work: OperationWork) -> OperationCost:
    """Return the cost in nanoseconds of one execution of ``work`` under the cost model of its target."""
    in_memory = [operand for operand in work.operands if not operand.in_lx]
    overhead_ns = len(in_memory) * work.target.hbm_access_ns
    return OperationCost(compute_ns(work), memory_ns(work), ring_ns(work), overhead_ns)


@replaceable
def compute_ns(work: OperationWork) -> float:
    """Return the compute time of the busiest core, without waiting for operands."""
    if not work.on_array:
        return work.sticks_per_core / work.target.vector_sticks_per_ns
    array = work.target.array
    many_rows = _smaller(_larger(1.0, work.rows_per_core / array.full_rate_rows), array.row_slowdown)
    one_corelet = 1 + (array.split_sum_slowdown - 1) * (work.parts > 1)
    rate = multiply_adds_per_ns(work.target, work.opcode)
    compute = many_rows * one_corelet * work.multiply_adds_per_core / rate
    if work.scattered:
        # Each sum waits for its way over the cores between.
        return _larger(compute, work.multiply_adds_per_core / array.scattered_sum_multiply_adds_per_ns)
    return compute


def multiply_adds_per_ns(target: Target, opcode: str) -> float:
    """Return the multiply-adds per nanosecond that a core's array sustains with the data formats of an operation."""
    array, op = target.array, DEVICE_OPS.get(opcode)
    return array.multiply_adds_per_ns * (array.speedup_of(op.formats[0]) if op else 1)


@replaceable
def ring_ns(work: OperationWork) -> float:
    """Return the time of a shuffle, or to add up the partial results of a split reduction hop by hop."""
    if work.relayout is not None:
        return relayout_ns(work.relayout)
    return (work.parts - 1) * work.outputs_per_core * work.target.ring.partial_sum_ns


@replaceable
def memory_ns(work: OperationWork) -> float:
    """Return the time of the streams of all operands, which share one memory, and of the bus turnarounds."""
    moving = [operand for operand in work.operands if not operand.in_lx]
    streams = sum(stream_ns(work, operand) for operand in moving)
    # Their rates were measured with the operation's mix of reads and writes, turnarounds included.
    if work.kind is Kind.REDUCE_STICK or work.broadcast:
        return streams
    read, written = (
        sum(operand.bytes for operand in moving if operand.writes is writes) for writes in (False, True)
    )
    turnaround = _smaller(read, written) * work.target.turnaround_ns_per_byte
    # A restickify takes at least the time of a copy that keeps the stick dim.
    if work.kind is Kind.RESTICKIFY:
        slower = work.target.one_way_bytes_per_ns / work.target.restickify_bytes_per_ns
        return _larger(streams, streams / slower + turnaround)
    return streams + turnaround


def least_ns(work: OperationWork) -> float:
    """Return the time of all bytes of the plan at the memory's peak rate, a lower bound for any program."""
    return (work.read_bytes + work.written_bytes) / work.target.peak_bytes_per_ns


def access_ns(work: OperationWork, operand: OperandWork) -> float:
    """Return the cost of one operand in device memory alone: the separable part of an operation's cost.

    The cost is the wait for the first byte and the stream. It excludes the turnaround, which involves two operands.
    """
    return work.target.hbm_access_ns + stream_ns(work, operand)


def lx_saving_ns(work: OperationWork, operand: OperandWork) -> float:
    """Return the time that an operation saves if an operand is in LX, not in device memory, and all others are in LX.

    If other operands are in device memory it saves more, because less of the stream overlaps with compute.
    """
    compute = compute_ns(work)
    return work.target.hbm_access_ns + overlapped(compute, stream_ns(work, operand)) - compute


@replaceable
def stream_ns(work: OperationWork, operand: OperandWork) -> float:
    """Return the time to move an operand at the rate of its operation, by its run length and contention of cores."""
    if work.on_array:
        # Memory delivers an operand of the array to all cores, and each core takes in its part.
        target, array = work.target, work.target.array
        # Loads wait for capacity in the LX of the back end; cores that share a load each need less of it.
        room = operand.fan_out * max(target.backend_lx_bytes, target.stick_bytes)
        waiting = _larger(1.0, 0 if operand.writes else array.stream_lx_bytes / room) ** array.stream_exponent
        delivered = operand.bytes * waiting / target.peak_bytes_per_ns
        taken_in = operand.core_bytes / array.intake_bytes_per_ns
        return overlapped(delivered, taken_in) * _burst_slowdown(target, _run_bytes(work, operand))
    sharing = work.target.sharing
    contention = _larger(1.0, operand.fan_out / sharing.uncontended_cores) ** sharing.contention_exponent
    return transfer_ns(work.target, operand, work.cores, stream_bytes_per_ns(work), contention)


def _run_bytes(work: OperationWork, operand: OperandWork) -> Any:
    """Return the contiguous bytes of the matrices of a batched matmul that the back end loads together."""
    fitting = work.target.array.batch_lx_fraction * work.target.backend_lx_bytes
    together = _larger(1.0, fitting / _larger(work.tile_bytes, 1))
    return _larger(operand.run_bytes, _smaller(operand.batch_run_bytes, operand.run_bytes * together))


def transfer_ns(
    target: Target, operand: OperandWork, cores: int, bytes_per_ns: float, contention: float = 1.0
) -> float:
    """Return the time to move an operand in runs, at a rate that all cores together attain."""
    whole = operand.bytes * contention / saturation(target, cores)
    # A core that shares the memory is not faster than a core alone.
    busiest = operand.core_bytes / saturation(target, 1)
    return _larger(whole, busiest) / bytes_per_ns * _burst_slowdown(target, operand.run_bytes)


@replaceable
def burst_slowdown(work: OperationWork, operand: OperandWork) -> float:
    """Return the ratio of the time to move an operand in its runs to the time in whole bursts."""
    return _burst_slowdown(work.target, _run_bytes(work, operand) if work.on_array else operand.run_bytes)


@register
class AnalyticModel(CostModel):
    """The formulas of this file, with the rates of the device."""

    name: ClassVar[str] = ANALYTIC

    def compute_ns(self, work: OperationWork) -> float:
        return compute_ns.formula(work)

    def memory_ns(self, work: OperationWork) -> float:
        return memory_ns.formula(work)

    def ring_ns(self, work: OperationWork) -> float:
        return ring_ns.formula(work)

    def stream_ns(self, work: OperationWork, operand: OperandWork) -> float:
        return stream_ns.formula(work, operand)

    def burst_slowdown(self, work: OperationWork, operand: OperandWork) -> float:
        return burst_slowdown.formula(work, operand)


def _burst_slowdown(target: Target, run_bytes: Any) -> Any:
    """Return the ratio of the time of a transfer in runs of ``run_bytes`` to the time in whole bursts.

    Device memory moves bursts of at most ``burst_bytes``. A burst costs its bytes and a fixed
    ``burst_overhead_bytes`` (spyre.toml names the measurements that they are fitted to).
    """
    # At least 1 byte: the run of an operand without a run is 0, which cannot divide.
    burst, overhead = target.burst_bytes, target.burst_overhead_bytes
    return _larger(1.0, (1 + overhead / _larger(run_bytes, 1)) / (1 + overhead / burst))


def saturation(target: Target, cores: Any) -> Any:
    """Return the fraction of the bandwidth of all cores that ``cores`` cores attain."""
    return _saturation_of_count(target, cores) if isinstance(cores, int) else _saturation(target, cores)


@functools.lru_cache(maxsize=1 << 10)
def _saturation_of_count(target: Target, cores: int) -> float:
    return _saturation(target, cores)


def _saturation(target: Target, cores: Any) -> Any:
    steps = zip(target.saturation_cores, target.saturation, strict=True)
    # Products instead of conditions, so that ``cores`` may be an array.
    return (
        functools.reduce(_larger, (part * (cores >= least) for least, part in steps)) / target.saturation[-1]
    )


def stream_bytes_per_ns(work: OperationWork) -> float:
    """Return the memory rate for an operation of this kind, with all cores and whole bursts."""
    memory = work.target
    if work.kind is Kind.RESTICKIFY:
        return memory.restickify_bytes_per_ns
    if work.kind is Kind.REDUCE_STICK:
        rows = memory.row_reduction
        decay = math.exp(-work.results / rows.decay_rows)
        return min(memory.one_way_bytes_per_ns, rows.least_bytes_per_ns + rows.more_bytes_per_ns * decay)
    return memory.broadcast_bytes_per_ns if work.broadcast else memory.one_way_bytes_per_ns


def _larger(one: Any, other: Any) -> Any:
    """Return the larger of two numbers, elementwise for arrays."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.maximum(one, other)
    return max(one, other)


def _smaller(one: Any, other: Any) -> Any:
    """Return the smaller of two numbers, elementwise for arrays."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.minimum(one, other)
    return min(one, other)
