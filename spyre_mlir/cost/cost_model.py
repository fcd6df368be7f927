# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cost of an operation, in nanoseconds: one model for every pass, to rank plans, not to predict times.

The target of a work names the model. The formulas here are those of ``analytic``, the default; functions that are
``replaceable`` ask another model (``replaced_model.py``) where the target names one.

Layouts are chosen by it (``of_tensor.py``), splits of a matmul, joint divisions, and the timeline. The numbers
of a work may be numpy arrays, one entry per division (``of_space.py``, ``even_work``): so are its costs then.

All constants are in ``spyre.toml``, each with its source. The parts of a cost:

compute   multiply-adds / sustained rate of the format * slowdown of rows, twice that if the reduced dim is split,
          slowdown of rows = 1 up to full_rate_rows of a core, then in proportion, at most row_slowdown;
          or sticks / rate of the vector unit
stream    of an operand of the vector unit:
              max(bytes / (rate * saturation(cores)), core_bytes / (rate * saturation(1))) * contention * bursts,
              contention = max(1, (fan_out / 8)^0.75)
          of an operand of the array:
              hypot(bytes * waiting / peak, core_bytes / intake) * bursts,
              waiting = max(1, stream_lx_bytes / (fan_out * bytes of LX of the back end))^stream_exponent of an input
          bursts = (1 + overhead / run) / (1 + overhead / burst)
memory    the streams of all operands, and the turnaround of the bus per byte of min(read, written); a restickify
          has its own rate, and is no faster than a copy
ring      (parts - 1) * outputs per core * cost of a hop; of a shuffle that of its relayout (``ring_traffic.py``)
overhead  a wait for the first byte of each access to device memory

Compute and memory overlap, but each slows the other: together they take hypot(compute, memory). No rate is above its
peak: nothing takes less than its bytes at that of the memory (``least_ns``, the floor of the timeline) or its
multiply-adds at that of the array.
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
    """Nanoseconds of one execution, by what takes them.

    Attributes:
        compute_ns: Those of the busiest core, with its operands at hand.
        memory_ns: Those to move all operands that are not in LX.
        ring_ns: Those of a relayout over the ring, or to add up partial results.
        overhead_ns: Those until the first byte of each access.
    """

    compute_ns: float
    memory_ns: float
    ring_ns: float
    overhead_ns: float

    @property
    def total_ns(self) -> float:
        """The nanoseconds of all: compute and memory overlap, as an operation streams its tiles through LX.

        The ring comes after the last product and the first byte before all work, so neither overlaps.
        """
        return overlapped(self.compute_ns, self.memory_ns) + self.ring_ns + self.overhead_ns

    @property
    def serial_ns(self) -> float:
        """The nanoseconds if nothing overlaps."""
        return self.compute_ns + self.memory_ns + self.ring_ns + self.overhead_ns

    @property
    def bound_by(self) -> str:
        """Return the part that takes longest: 'compute', 'memory', 'ring' or 'overhead'; of equals the first."""
        parts = {
            "compute": self.compute_ns,
            "memory": self.memory_ns,
            "ring": self.ring_ns,
            "overhead": self.overhead_ns,
        }
        return max(parts, key=parts.__getitem__)


@dataclass(frozen=True)
class OperationCosts:
    """Operations one after the other. ``lower_ns``: all of them overlapped; ``upper_ns``: nothing overlapped."""

    operations: tuple[OperationCost, ...]

    @property
    def total_ns(self) -> float:
        """Operations follow each other; inside each one compute and memory overlap."""
        return math.fsum(cost.total_ns for cost in self.operations)

    @property
    def lower_ns(self) -> float:
        """The larger of all compute and all memory time."""
        compute = math.fsum(cost.compute_ns for cost in self.operations)
        return max(compute, math.fsum(cost.memory_ns for cost in self.operations))

    @property
    def upper_ns(self) -> float:
        """Every part of every operation after the other."""
        return math.fsum(cost.serial_ns for cost in self.operations)


def overlapped(compute: Any, memory: Any) -> Any:
    """Time of compute and memory that overlap, numbers or arrays: hypot(compute, memory).

    Between the longer of the two and their sum, since each slows the other. A root is rounded alike on any machine,
    which ``hypot`` of a library need not be.
    """
    return _root(compute * compute + memory * memory)


def program_cost(operations: Sequence[OperationWork]) -> OperationCosts:
    """The cost of a program, with its bracket."""
    return OperationCosts(tuple(map(operation_cost, operations)))


def operation_cost(work: OperationWork) -> OperationCost:
    """Return the cost of one execution, in nanoseconds, of a ``work`` by the cost model of its target."""
    in_memory = [operand for operand in work.operands if not operand.in_lx]
    return OperationCost(
        compute_ns(work),
        memory_ns(work),
        ring_ns(work),
        len(in_memory) * work.target.hbm_access_ns,
    )


@replaceable
def compute_ns(work: OperationWork) -> float:
    """Time of the busiest core with its operands at hand."""
    if not work.on_array:
        return work.sticks_per_core / work.target.vector_sticks_per_ns
    array = work.target.array
    many_rows = _smaller(_larger(1.0, work.rows_per_core / array.full_rate_rows), array.row_slowdown)
    one_corelet = 1 + (array.split_sum_slowdown - 1) * (work.parts > 1)
    return (
        many_rows * one_corelet * work.multiply_adds_per_core / multiply_adds_per_ns(work.target, work.opcode)
    )


def multiply_adds_per_ns(target: Target, opcode: str) -> float:
    """Multiply-adds per nanosecond that the array of a core sustains with the formats of an operation."""
    array, op = target.array, DEVICE_OPS.get(opcode)
    return array.multiply_adds_per_ns * (array.speedup_of(op.formats[0]) if op else 1)


@replaceable
def ring_ns(work: OperationWork) -> float:
    """Time of a shuffle, or to add up the partial results of a split reduction, one hop after the other."""
    if work.relayout is not None:
        return relayout_ns(work.relayout)
    return (work.parts - 1) * work.outputs_per_core * work.target.ring.partial_sum_ns


@replaceable
def memory_ns(work: OperationWork) -> float:
    """Time of the streams of all operands, which share one memory, and of its turnarounds."""
    moving = [operand for operand in work.operands if not operand.in_lx]
    streams = sum(stream_ns(work, operand) for operand in moving)
    if _has_own_rate(work):
        return streams
    read, written = (
        sum(operand.bytes for operand in moving if operand.writes is writes) for writes in (False, True)
    )
    turnaround = _smaller(read, written) * work.target.turnaround_ns_per_byte
    # A restickify is no faster than a copy that leaves the stick as it is.
    if work.kind is Kind.RESTICKIFY:
        slower = work.target.one_way_bytes_per_ns / work.target.restickify_bytes_per_ns
        return _larger(streams, streams / slower + turnaround)
    return streams + turnaround


def least_ns(work: OperationWork) -> float:
    """Time of all bytes of the plan at the peak of the memory, which no program undercuts."""
    return (work.read_bytes + work.written_bytes) / work.target.peak_bytes_per_ns


@register
class AnalyticModel(CostModel):
    """The formulas of this file, with the rates of the device."""

    name: ClassVar[str] = ANALYTIC

    def compute_ns(self, work: OperationWork) -> float:
        """Return the formula's time of the busiest core."""
        return compute_ns.formula(work)

    def memory_ns(self, work: OperationWork) -> float:
        """Return the formula's time of all streams and turnarounds."""
        return memory_ns.formula(work)

    def ring_ns(self, work: OperationWork) -> float:
        """Return the formula's time of the ring."""
        return ring_ns.formula(work)

    def stream_ns(self, work: OperationWork, operand: OperandWork) -> float:
        """Return the formula's time of one stream."""
        return stream_ns.formula(work, operand)

    def burst_slowdown(self, work: OperationWork, operand: OperandWork) -> float:
        """Return the formula's ratio of short runs to whole bursts."""
        return burst_slowdown.formula(work, operand)


def access_ns(work: OperationWork, operand: OperandWork) -> float:
    """Cost of one operand in device memory by itself: the separable part of an operation's cost.

    The wait for its first byte and its stream. What is left out is the turnaround, which takes two operands.
    """
    return work.target.hbm_access_ns + stream_ns(work, operand)


def lx_saving_ns(work: OperationWork, operand: OperandWork) -> float:
    """Time that an operation saves with an operand in LX in place of device memory, all others being in LX.

    Where others are in device memory it saves more, the less of the stream is hidden behind compute.
    """
    compute = compute_ns(work)
    return work.target.hbm_access_ns + overlapped(compute, stream_ns(work, operand)) - compute


@replaceable
def stream_ns(work: OperationWork, operand: OperandWork) -> float:
    """Time to move an operand at the rate of its operation, in runs and beside what other cores load."""
    if work.on_array:
        return _array_stream_ns(work, operand)
    sharing = work.target.sharing
    contention = _larger(1.0, operand.fan_out / sharing.uncontended_cores) ** sharing.contention_exponent
    return transfer_ns(work.target, operand, work.cores, stream_bytes_per_ns(work), contention)


def _array_stream_ns(work: OperationWork, operand: OperandWork) -> Any:
    """Time of an operand of the array: the memory delivers to all cores, and each core takes its part in."""
    target, array = work.target, work.target.array
    # Loads wait for room in the LX of the back end; cores that share a load need less of it each.
    room = operand.fan_out * max(target.backend_lx_bytes, target.stick_bytes)
    waiting = _larger(1.0, 0 if operand.writes else array.stream_lx_bytes / room) ** array.stream_exponent
    delivered = operand.bytes * waiting / target.peak_bytes_per_ns
    taken_in = operand.core_bytes / array.intake_bytes_per_ns
    return overlapped(delivered, taken_in) * _burst_slowdown(target, _run_bytes(work, operand))


def _run_bytes(work: OperationWork, operand: OperandWork) -> Any:
    """Contiguous bytes of as many matrices of a batched matmul as the back end loads together."""
    fitting = work.target.array.batch_lx_fraction * work.target.backend_lx_bytes
    together = _larger(1.0, fitting / _larger(work.tile_bytes, 1))
    return _larger(operand.run_bytes, _smaller(operand.batch_run_bytes, operand.run_bytes * together))


def transfer_ns(
    target: Target, operand: OperandWork, cores: int, bytes_per_ns: float, contention: float = 1.0
) -> float:
    """Time to move an operand in runs, at a rate that all cores together attain."""
    whole = operand.bytes * contention / saturation(target, cores)
    # No core is faster among others than alone.
    busiest = operand.core_bytes / saturation(target, 1)
    return _larger(whole, busiest) / bytes_per_ns * _burst_slowdown(target, operand.run_bytes)


@replaceable
def burst_slowdown(work: OperationWork, operand: OperandWork) -> float:
    """Ratio of the time of an operand in its runs to that in whole bursts."""
    return _burst_slowdown(work.target, _run_bytes(work, operand) if work.on_array else operand.run_bytes)


def _burst_slowdown(target: Target, run_bytes: Any) -> Any:
    """Ratio of the time of a transfer in runs of so many bytes to that in whole bursts.

    Device memory moves bursts of at most ``burst_bytes``; each costs its bytes and a fixed
    ``burst_overhead_bytes`` (spyre.toml says what they are fitted to).
    """
    # At least 1 byte, since an operand without a run has no quotient.
    burst, overhead = target.burst_bytes, target.burst_overhead_bytes
    return _larger(1.0, (1 + overhead / _larger(run_bytes, 1)) / (1 + overhead / burst))


def saturation(target: Target, cores: Any) -> Any:
    """The part of the bandwidth of all cores that so many attain."""
    return _saturation_of_count(target, cores) if isinstance(cores, int) else _saturation(target, cores)


@functools.lru_cache(maxsize=1 << 10)
def _saturation_of_count(target: Target, cores: int) -> float:
    return _saturation(target, cores)


def _saturation(target: Target, cores: Any) -> Any:
    steps = zip(target.saturation_cores, target.saturation, strict=True)
    # Products in place of conditions, so that ``cores`` may be an array.
    return (
        functools.reduce(_larger, (part * (cores >= least) for least, part in steps)) / target.saturation[-1]
    )


def stream_bytes_per_ns(work: OperationWork) -> float:
    """Rate of the memory for an operation of this kind, with all cores and in whole bursts."""
    memory = work.target
    if work.kind is Kind.RESTICKIFY:
        return memory.restickify_bytes_per_ns
    if work.kind is Kind.REDUCE_STICK:
        rows = memory.row_reduction
        decay = math.exp(-work.results / rows.decay_rows)
        return min(memory.one_way_bytes_per_ns, rows.least_bytes_per_ns + rows.more_bytes_per_ns * decay)
    return memory.broadcast_bytes_per_ns if work.broadcast else memory.one_way_bytes_per_ns


def _has_own_rate(work: OperationWork) -> bool:
    """Return whether the rate was measured with its own mix of reads and writes, turnarounds included."""
    return work.kind is Kind.REDUCE_STICK or work.broadcast


def _larger(one: Any, other: Any) -> Any:
    """The larger of two numbers, or of each two entries of arrays."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.maximum(one, other)
    return max(one, other)


def _smaller(one: Any, other: Any) -> Any:
    """The smaller of two numbers, or of each two entries of arrays."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.minimum(one, other)
    return min(one, other)


def _root(number: Any) -> Any:
    return np.sqrt(number) if isinstance(number, np.ndarray) else math.sqrt(number)
