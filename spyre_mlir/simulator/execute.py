# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One `sdsc_execute`: every core reads, computes and writes.

Cores run concurrently, so the result may not depend on their order: no core may write what another one
reads or writes in the same operation. Within one core an elementwise operation may work in place.
Of a split reduction the last core of each group has the result; into LX, it alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence

from spyre_mlir.simulator.access import Access, OperandAccesses, resolve
from spyre_mlir.simulator.batch_run import BatchRun
from spyre_mlir.simulator.conflicts import check_conflicts
from spyre_mlir.simulator.gather import rows_bytes
from spyre_mlir.simulator.memory import AddressRange, AddressSpace
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.ranges import RangeCheck
from spyre_mlir.simulator.result_writer import ResultWriter
from spyre_mlir.simulator.ring_transfers import relayout, relayout_again
from spyre_mlir.simulator.statistics import ExecuteStatistics
from spyre_mlir.target.formats import Numerics
from spyre_mlir.target.ops import Kind

#: What repeats the operations of a run, in order.
Recording = list[Callable[[], None]]


def execute(
    plan: Plan,
    regions: tuple[AddressRange, ...],
    symbols: dict[int, int],
    space: AddressSpace,
    numerics: Numerics,
    statistics: ExecuteStatistics,
    ranges: RangeCheck,
    recording: Recording | None = None,
) -> None:
    """Run one operation; ``regions[k]`` is the buffer of operand ``k``, ``symbols`` the addresses bound.

    What repeats the operation on the same memory is added to a ``recording``.
    """
    *inputs, outputs = resolve(plan, regions, symbols, space)
    statistics.runs += 1
    if plan.op.kind is Kind.RELAYOUT:
        statistics.relayout_bytes += relayout(plan, list(inputs[0]), list(outputs), space)
        if recording is not None:
            recording.append(relayout_again(plan, list(inputs[0]), list(outputs), space))
        return
    writers = {group[-1] for group in plan.groups}
    written = [outputs[core] for core in outputs.boxes if core in writers]
    # The cores of a split reduction add up in the place of the result; in LX each has one.
    used = list(outputs) if outputs.region.lx else written
    check_conflicts(plan, inputs, used)
    ranges.begin()
    writer = ResultWriter(plan, space, outputs)
    for access in used:
        if access.core not in writers:
            writer.leave_part(access)
    batches = BatchRun(plan, space, numerics, inputs, writer, ranges, statistics.index)
    if recording is not None:
        batches.keep()
        recording.append(functools.partial(_repeat, batches, ranges, plan))
    batches.run()
    ranges.finish(plan)
    _count(plan, statistics, inputs, written)


def _repeat(batches: BatchRun, ranges: RangeCheck, plan: Plan) -> None:
    """Run the batches of an operation again, on what their memory holds now."""
    ranges.begin()
    batches.run()
    ranges.finish(plan)


def _count(
    plan: Plan, statistics: ExecuteStatistics, inputs: Sequence[OperandAccesses], written: Sequence[Access]
) -> None:
    loads = [_load(plan, inputs, access) for operand in inputs if not operand.region.lx for access in operand]
    statistics.read_bytes += sum(dict(loads).values())
    statistics.core_read_bytes += sum(moved for _, moved in loads)
    statistics.write_bytes += sum(access.box.accessed_bytes for access in written if not access.region.lx)


def _load(plan: Plan, inputs: Sequence[OperandAccesses], access: Access) -> tuple[Hashable, int]:
    """Return a key, equal for cores that share a load, and the bytes of the load: of a table the rows that are read."""
    if plan.op.index is None or access.operand != plan.op.table:
        return access.key, access.box.accessed_bytes
    positions = inputs[plan.op.index][access.core]
    return (access.key, positions.key), rows_bytes(plan, positions, access)
