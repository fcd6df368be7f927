"""The price of an operation, in nanoseconds: one model for every pass, to rank plans, not to predict times.

All constants are in ``spyre.toml``, each with its source. The parts of a price:

compute   multiply-adds / (sustained rate * fill),  fill = min(1, (rows / full_rows)^fill_exponent),
          twice that if the reduced dim is split; or sticks / rate of the vector unit
stream    of one operand:  max(bytes / (rate * saturation(cores)), core_bytes / (rate * saturation(1)))
          * contention * bursts,  contention = max(1, (fan_out / 8)^0.75),
          bursts = (1 + overhead / run) / (1 + overhead / burst)
memory    the streams of all operands, and the turnaround of the bus per byte of min(read, written)
ring      (parts - 1) * outputs per core * price of a hop
overhead  a wait for the first byte of each access to device memory
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.cost.transfer import effective_bytes
from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.target.device import device
from spyre_mlir.target.ops import Kind


@dataclass(frozen=True)
class OperationCost:
    """Nanoseconds of one execution, by what takes them."""

    compute_ns: float
    memory_ns: float
    ring_ns: float
    overhead_ns: float

    @property
    def total_ns(self) -> float:
        """Compute and memory overlap: an operation streams its tiles through LX while it works on others.

        The ring comes after the last product and the first byte before all work, so neither overlaps.
        """
        return max(self.compute_ns, self.memory_ns) + self.ring_ns + self.overhead_ns

    @property
    def serial_ns(self) -> float:
        """The time if nothing overlaps."""
        return self.compute_ns + self.memory_ns + self.ring_ns + self.overhead_ns

    @property
    def bound_by(self) -> str:
        """What takes longest: 'compute', 'memory', 'ring' or 'overhead'; of equals the first."""
        parts = {
            "compute": self.compute_ns,
            "memory": self.memory_ns,
            "ring": self.ring_ns,
            "overhead": self.overhead_ns,
        }
        return max(parts, key=parts.__getitem__)


@dataclass(frozen=True)
class ProgramCost:
    """Operations one after the other. ``lower_ns``: all of them overlapped; ``upper_ns``: nothing overlapped."""

    operations: tuple[OperationCost, ...]

    @property
    def total_ns(self) -> float:
        """Operations follow each other; inside each one compute and memory overlap."""
        return math.fsum(each.total_ns for each in self.operations)

    @property
    def lower_ns(self) -> float:
        """The larger of all compute and all memory time."""
        compute = math.fsum(each.compute_ns for each in self.operations)
        return max(compute, math.fsum(each.memory_ns for each in self.operations))

    @property
    def upper_ns(self) -> float:
        """Every part of every operation after the other."""
        return math.fsum(each.serial_ns for each in self.operations)


def program_cost(works: Sequence[OperationWork]) -> ProgramCost:
    """The cost of a program, with its bracket."""
    return ProgramCost(tuple(map(operation_cost, works)))


def operation_cost(work: OperationWork) -> OperationCost:
    """The cost of one execution."""
    touched = [each for each in work.operands if not each.in_lx]
    return OperationCost(
        compute_ns(work),
        memory_ns(work),
        ring_ns(work),
        len(touched) * device().hbm_access_ns,
    )


def compute_ns(work: OperationWork) -> float:
    """Time of the busiest core with its operands at hand."""
    array = device().array
    if not work.multiply_adds_per_core:
        return work.sticks_per_core / device().vector_sticks_per_ns
    fill = min(1.0, (work.rows_per_core / array.full_rows) ** array.fill_exponent)
    slowdown = device().matmul.split_sum_slowdown if work.parts > 1 else 1
    return slowdown * work.multiply_adds_per_core / (array.multiply_adds_per_ns * fill)


def ring_ns(work: OperationWork) -> float:
    """Time to add up the partial results of a split reduction, one hop after the other."""
    return (work.parts - 1) * work.outputs_per_core * device().partial_sum_ns


def memory_ns(work: OperationWork) -> float:
    """Time of the streams of all operands, which share one memory, and of its turnarounds."""
    rate = stream_bytes_per_ns(work)
    moving = [each for each in work.operands if not (each.in_lx or each.reused)]
    streams = math.fsum(stream_ns(each, work.cores, rate) for each in moving)
    if _has_own_rate(work):
        return streams
    read, written = (sum(each.bytes for each in moving if each.writes is way) for way in (False, True))
    return streams + min(read, written) * device().turnaround_ns_per_byte


def access_ns(operand: OperandWork, cores: int, bytes_per_ns: float | None = None) -> float:
    """What one operand costs in device memory by itself: the separable part of an operation's price.

    The wait for its first byte and its stream, one way without a rate. What is left out is the turnaround, which
    takes two operands.
    """
    return device().hbm_access_ns + stream_ns(operand, cores, bytes_per_ns or device().one_way_bytes_per_ns)


def stream_ns(operand: OperandWork, cores: int, bytes_per_ns: float) -> float:
    """Time to move an operand at a rate that all cores together attain, in runs and with contention."""
    matmul = device().matmul
    contention = max(1.0, operand.fan_out / matmul.uncontended_cores) ** matmul.contention_exponent
    whole = operand.bytes * contention / saturation(cores)
    busiest = operand.core_bytes / saturation(1)  # no core is faster among others than alone
    return max(whole, busiest) / bytes_per_ns * _bursts(operand)


def _bursts(operand: OperandWork) -> float:
    """How much longer than whole bursts the runs of an operand take."""
    return effective_bytes(operand.bytes, operand.run_bytes) / max(operand.bytes, 1)


def saturation(cores: int) -> float:
    """The part of the bandwidth of all cores that so many attain."""
    memory = device()
    at = bisect.bisect_right(memory.saturation_cores, cores) - 1
    return memory.saturation[at] / memory.saturation[-1]


def stream_bytes_per_ns(work: OperationWork) -> float:
    """What the memory delivers to an operation of this kind, with all cores and in whole bursts."""
    memory = device()
    if work.kind is Kind.RESTICKIFY:
        return memory.restickify_bytes_per_ns
    if work.kind is Kind.REDUCE_STICK:
        rows = memory.row_reduction
        decay = math.exp(-work.results / rows.decay_rows)
        return min(memory.one_way_bytes_per_ns, rows.least_bytes_per_ns + rows.more_bytes_per_ns * decay)
    return memory.broadcast_bytes_per_ns if work.broadcast else memory.one_way_bytes_per_ns


def _has_own_rate(work: OperationWork) -> bool:
    """Whether the rate was measured with its own mix of reads and writes, turnarounds included."""
    return work.kind in (Kind.RESTICKIFY, Kind.REDUCE_STICK) or work.broadcast
