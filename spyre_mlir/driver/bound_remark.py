# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What takes the time of a program that is far from the least that it needs, as a remark."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_mlir.cost.bound import ProgramBound
from spyre_mlir.remarks import Remark
from spyre_mlir.timeline import Execution, Timeline
from spyre_mlir.timeline.events import Shares
from spyre_mlir.timeline.roofline import of_execution

#: Times its bound that a program may take without a remark.
FAR = 3.0

#: The kind of the remark.
FAR_FROM_BOUND = "far from bound"

#: Operation names that a remark tells the time of, those of the most time.
_NAMED = 3


def bound_remark(timelines: Sequence[Timeline], bound: ProgramBound) -> Remark | None:
    """Return a remark on a program of these timelines, with the operations of the most time and what each waits for.

    None for a program that takes at most ``FAR`` times its bound, or that has no bound.
    """
    if not timelines:
        return None
    needed_ns, total_ns = bound.ns(timelines[0].target), math.fsum(line.total_ns for line in timelines)
    if not needed_ns or total_ns <= FAR * needed_ns:
        return None
    bytes_ = sum(line.read_bytes + line.written_bytes for line in timelines)
    reason = (
        f"{total_ns / 1000:,.1f} us are {total_ns / needed_ns:.1f} times the {needed_ns / 1000:,.1f} us of what the "
        f"program needs, {bound.bytes:,} bytes and {bound.multiply_adds:,} multiply-adds; {bytes_:,} bytes move; "
        f"the most time: {', '.join(_largest(timelines))}"
    )
    return Remark("program-bound", "", "", FAR_FROM_BOUND, reason)


def _largest(timelines: Sequence[Timeline]) -> list[str]:
    """The operation names of the most time, each with its time and what that goes into."""
    by_opcode: dict[str, list[Execution]] = {}
    for line in timelines:
        for execution in line.executions:
            by_opcode.setdefault(execution.opcode, []).append(execution)
    # Of equal times the first in the program: sorting keeps the order.
    groups = sorted(by_opcode.values(), key=lambda group: -math.fsum(one.total_ns for one in group))
    return [_text(group) for group in groups[:_NAMED]]


def _text(executions: Sequence[Execution]) -> str:
    shares = Shares()
    for execution in executions:
        shares = shares.plus(execution.shares)
    return f"{executions[0].opcode} {shares.total / 1e6:,.1f} us ({_cause(executions, shares)})"


def _cause(executions: Sequence[Execution], shares: Shares) -> str:
    """What most of the time of the executions goes into, with the rate that they attain alone."""
    part = shares.bound_by
    if part == "overhead":
        return f"overhead of {shares.runs:,} runs"
    alone_ns = math.fsum(execution.alone_ps for execution in executions) / 1000
    if part == "memory" and alone_ns:
        return f"memory at {sum(execution.moved_bytes for execution in executions) / alone_ns:.0f} GB/s"
    if part == "compute" and alone_ns:
        cores = math.fsum(one.work.cores * one.alone_ps for one in executions) / (1000 * alone_ns)
        lines = [of_execution(execution) for execution in executions]
        peak = math.fsum(line.peak_per_ns * line.nanoseconds for line in lines)
        attained = sum(line.operations for line in lines) / peak if peak else 0.0
        return f"compute on {cores:.0f} cores at {attained:.0%} of their peak"
    return part
