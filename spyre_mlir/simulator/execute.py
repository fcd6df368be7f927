"""One `sdsc_execute`: every core reads and computes, then every core writes.

Cores run concurrently, so the result may not depend on their order: no core may write what another one
reads or writes in the same operation. Within one core an elementwise operation may work in place.
Of a split reduction the last core of each group has the result; into LX, it alone.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence

import numpy as np

from spyre_mlir.simulator.access import Access, OperandAccesses, resolve
from spyre_mlir.simulator.batch_run import BatchResult, BatchRun
from spyre_mlir.simulator.conflicts import check_conflicts
from spyre_mlir.simulator.core_views import CoreViews
from spyre_mlir.simulator.gather import rows_bytes
from spyre_mlir.simulator.memory import PARTIAL, POISON, POISON_BYTE, AddressRange, AddressSpace, spread
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.ranges import RangeCheck
from spyre_mlir.simulator.ring_transfers import relayout
from spyre_mlir.simulator.statistics import ExecuteStatistics
from spyre_mlir.simulator.workers import run_tasks
from spyre_mlir.target.formats import FORMATS, Numerics
from spyre_mlir.target.ops import Kind


def execute(
    plan: Plan,
    regions: tuple[AddressRange, ...],
    symbols: dict[int, int],
    space: AddressSpace,
    numerics: Numerics,
    statistics: ExecuteStatistics,
    ranges: RangeCheck,
) -> None:
    """Run one operation; ``regions[k]`` is the buffer of operand ``k``, ``symbols`` the addresses bound."""
    *inputs, outputs = resolve(plan, regions, symbols, space)
    statistics.runs += 1
    if plan.op.kind is Kind.RELAYOUT:
        statistics.relayout_bytes += relayout(plan, list(inputs[0]), list(outputs), space)
        return
    writers = {group[-1] for group in plan.groups}
    written = [outputs[core] for core in outputs.boxes if core in writers]
    # The cores of a split reduction add up in the place of the result; in LX each has one.
    used = list(outputs) if outputs.region.lx else written
    check_conflicts(plan, inputs, used)
    ranges.begin()
    run = BatchRun(plan, space, numerics, inputs, ranges, statistics.index)
    # All results before any is written, since the cores run at the same time.
    results = run.results()
    run.look_at(results)
    ranges.finish(plan)
    space.memory(outputs.region).own()
    for access in used:
        if access.core not in writers:
            _leave_part(plan, access, space)
    run_tasks([functools.partial(_write, plan, outputs, result, space) for result in results])
    _count(plan, statistics, inputs, written)


def _write(plan: Plan, outputs: OperandAccesses, result: BatchResult, space: AddressSpace) -> None:
    """Store the valid part; the rest of the sticks becomes poison that nobody may read."""
    cores = [group[-1] for group in result.batch.groups]
    box, split, raw = outputs.boxes[cores[0]], result.batch.split, result.raw.dtype
    memory, tag = space.memory(outputs.region), outputs.region.tag
    places = [space.place(outputs.region, core, outputs.addresses[core]) for core in cores]
    if not box.padded:
        views = CoreViews(memory, split.windows[-1] if split else box.whole, places, raw)
        views.write(result.raw if split else result.raw.reshape(len(cores), *box.whole.shape))
        views.write_tag(tag)
        return
    views = CoreViews(memory, box.whole, places, raw)
    valid = tuple(slice(count) for count in box.valid)
    poison = int.from_bytes(bytes([POISON_BYTE]) * raw.itemsize)
    values = np.full((len(cores), *box.extents), poison, raw)
    values[(slice(None), *valid)] = result.raw.reshape(len(cores), *box.valid)
    tags = np.full(box.extents, spread(POISON, raw))
    tags[valid] = spread(tag, raw)
    views.write(values.reshape(len(cores), *box.whole.shape))
    views.write_tags(tags.reshape(box.whole.shape))


def _leave_part(plan: Plan, access: Access, space: AddressSpace) -> None:
    """A core of a split reduction that does not finish it has nothing there that anybody may read."""
    raw = FORMATS[plan.design.operands[access.operand].data_format].raw
    place = space.place(access.region, access.core, access.address)
    CoreViews(space.memory(access.region), access.box.whole, [place], raw).write_tag(PARTIAL)


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
