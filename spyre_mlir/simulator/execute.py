"""One `sdsc_execute`: every core reads and computes, then every core writes.

Cores run concurrently, so the result may not depend on their order: no core may write what another one
reads or writes in the same operation. Within one core an elementwise operation may work in place.
Of a split reduction the last core of each group has the result; into LX, it alone.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.access import Access, access_error, bad_read, element_text, resolve
from spyre_mlir.simulator.boxes import Box
from spyre_mlir.simulator.compute import Work, combine_partials, compute
from spyre_mlir.simulator.conflicts import check_conflicts
from spyre_mlir.simulator.gather import check_positions, rows_bytes
from spyre_mlir.simulator.memory import HOST, PARTIAL, POISON, POISON_BYTE, AddressRange, AddressSpace, spread
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.ranges import RangeCheck, check_integers
from spyre_mlir.simulator.ring_transfers import relayout
from spyre_mlir.simulator.simulation_error import SimulationError
from spyre_mlir.simulator.statistics import ExecuteStatistics
from spyre_mlir.simulator.window_view import slid
from spyre_mlir.target.formats import BIT_TRUE, FORMATS, IEEE, Numerics, all_numbers, lookup
from spyre_mlir.target.ops import DL16, FP8, INT8, Kind


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
        statistics.relayout_bytes += relayout(plan, inputs[0], outputs, space)
        return
    writers = {group[-1] for group in plan.groups}
    written = [access for access in outputs if access.core in writers]
    # The cores of a split reduction add up in the place of the result; in LX each has one.
    used = outputs if outputs[0].region.lx else written
    check_conflicts(plan, [access for operand in inputs for access in operand], used)
    ranges.begin()
    runner = _Runner(plan, space, numerics, inputs, ranges, statistics.index)
    # All results before any is written, since the cores run at the same time.
    results = [(outputs[group[-1]], runner.result(group)) for group in plan.groups]
    ranges.finish(plan)
    for access in used:
        if access.core not in writers:
            _leave_part(plan, access, space)
    for access, raw in results:
        _write(access, raw, space)
    _count(plan, statistics, inputs, written)


class _Runner:
    """Computes results; numbers that several cores load from HBM are converted once."""

    def __init__(
        self,
        plan: Plan,
        space: AddressSpace,
        numerics: Numerics,
        inputs: list[list[Access]],
        ranges: RangeCheck,
        index: int,
    ) -> None:
        self._plan, self._space, self._numerics, self._inputs = plan, space, numerics, inputs
        self._ranges, self._index = ranges, index
        # In DL16 the operands are looked at for infinities, which it has not (``RangeCheck.computed``).
        self._is_tabulated = numerics.mode == IEEE and _has_table(plan)
        hbm = (access.key for operand in inputs for access in operand if not access.region.lx)
        self._shared = {key for key, count in Counter(hbm).items() if count > 1}
        self._cache: dict[tuple[int, int, int], NDArray] = {}

    def result(self, group: tuple[int, ...]) -> NDArray:
        """Raw bits of the valid part of the result that the cores of ``group`` make together."""
        plan = self._plan
        shape = plan.boxes[-1][group[-1]].valid
        form = plan.design.operands[-1].data_format
        # A slice of padding alone computes nothing.
        if 0 in shape:
            return np.zeros(shape, FORMATS[form].raw)
        partials = [self._partial(core) for core in group]
        total = combine_partials(plan.op.name, partials)
        if plan.op.formats[0] in (INT8, FP8) and self._numerics.mode == IEEE:
            _check_sum(plan, total, group[-1])
        # Bits as they are: conversion to numbers and back would change NaN.
        if plan.op.is_copy:
            return np.broadcast_to(total, shape)
        if form == DL16:
            # A function, since the operands are needed for the rare overflow only.
            self._ranges.stored(plan, self._index, total, lambda: self._operands(group[-1]))
        return np.broadcast_to(self._numerics.store(total, form), shape)

    def _operands(self, core: int) -> list[NDArray]:
        return [self._numbers(operand[core]) for operand in self._inputs]

    def _partial(self, core: int) -> NDArray:
        if self._is_tabulated:
            table = _results(self._plan.op.name, tuple(self._plan.work.constants.items()))
            return lookup(table, self._bits(self._inputs[0][core], []))
        operands = self._operands(core)
        if self._plan.op.kind is Kind.GATHER:
            check_positions(self._plan, [operand[core] for operand in self._inputs], operands)
        if self._plan.op.name == "fp32toint32":
            check_integers(self._plan, core, operands[0])
        result = compute(self._plan.op.name, operands, self._plan.work)
        self._ranges.computed(self._plan, operands, result)
        return result

    def _numbers(self, access: Access) -> NDArray:
        if access.key in self._cache:
            return self._cache[access.key]
        numbers = self._read(access)
        # Others load these numbers too; all others would only fill the cache.
        if access.key in self._shared:
            self._cache[access.key] = numbers
        return numbers

    def _read(self, access: Access) -> NDArray:
        """Read the numbers of an operand, for copies its bits, with masked positions replaced."""
        plan, masked = self._plan, _masked_parts(self._plan, access.box)
        form = plan.design.operands[access.operand].data_format
        raw = self._bits(access, masked)
        copies = plan.op.is_copy
        numbers = raw if copies else self._numerics.load(raw, form)
        if masked:
            assert plan.mask_value is not None
            fill = self._numerics.store(np.array(plan.mask_value), form) if copies else plan.mask_value
            numbers = numbers.copy()
            for part in masked:
                numbers[part] = fill
        _check_padding(plan, access, numbers)
        windows = plan.design.operands[access.operand].windows
        return slid(plan, access, numbers) if windows else numbers

    def _bits(self, access: Access, masked: list[tuple[slice, ...]]) -> NDArray:
        """Read the bits of an operand, which somebody wrote but where ``masked``."""
        memory = self._space.memory(access.region, access.core)
        raw_type = FORMATS[self._plan.design.operands[access.operand].data_format].raw
        tags = access.box.read_window.read(memory.shadow, access.address, raw_type)
        _check_tags(self._plan, access, tags, masked, self._space)
        return access.box.read_window.read(memory.data, access.address, raw_type)


def _has_table(plan: Plan) -> bool:
    """Return whether each element of the result is a function of one 16-bit code, without masks."""
    op, form = plan.op, plan.design.operands[0].data_format
    return (
        op.kind is Kind.POINTWISE
        and op.arity == 1
        and not op.is_copy
        and form == DL16
        and not plan.design.masks
    )


@functools.lru_cache(maxsize=64)
def _results(opcode: str, constants: tuple[tuple[str, float], ...]) -> NDArray:
    """Table of the float32 results of an operation for all codes of IEEE fp16."""
    return compute(opcode, [all_numbers(IEEE)], Work(constants=dict(constants)))


def _check_sum(plan: Plan, total: NDArray, core: int) -> None:
    """Sums of 8-bit products that are scaled afterwards: DL16 holds them, IEEE fp16 in its place does not."""
    largest = float(np.abs(total[np.isfinite(total)]).max(initial=0))
    if largest > float(np.finfo(np.float16).max):
        text = f"a sum of {largest:.0f} has no place in IEEE fp16; run with the numerics '{BIT_TRUE}'."
        raise SimulationError("range", text, design=plan.design, core=core)


def _masked_parts(plan: Plan, box: Box) -> list[tuple[slice, ...]]:
    """Index expressions, in the wanted part of a box, of the coordinates that masks cover."""
    parts = []
    for axis, label in enumerate(plan.design.sizes):
        if label not in plan.design.masks or not box.varies[axis]:
            continue
        start, length = plan.design.masks[label]
        first = max(start - box.origin[axis], 0)
        last = min(start + length - box.origin[axis], box.extents[axis])
        if first < last:
            parts.append((slice(None),) * axis + (slice(first, last),))
    return parts


def _check_tags(
    plan: Plan, access: Access, tags: NDArray, masked: list[tuple[slice, ...]], space: AddressSpace
) -> None:
    """Every element must have been written, last through this buffer or by the host."""
    good = tags == spread(access.region.tag, tags.dtype)
    if good.all():
        return
    # Second, since most reads are of what an operation wrote.
    good |= tags == spread(HOST, tags.dtype)
    for part in masked:
        good[part] = True
    if good.all():
        return
    position = tuple(int(i) for i in np.argwhere(~good)[0])
    raise bad_read(plan, access, int(tags[position]), position, space)


def _check_padding(plan: Plan, access: Access, numbers: NDArray) -> None:
    """Padding of a reduced dim reads as the neutral value: another one would change the result."""
    box = access.box
    for axis in plan.work.reduced:
        valid, extent = box.valid[axis], box.extents[axis]
        if not box.varies[axis] or valid == extent:
            continue
        wrong = ~np.isin(numbers[(slice(None),) * axis + (slice(valid, extent),)], plan.neutral)
        if not wrong.any():
            continue
        position = [int(i) for i in np.argwhere(wrong)[0]]
        position[axis] += valid
        text = (
            f"{element_text(plan, box, position)} is padding of dim '{tuple(plan.design.sizes)[axis]}' and reads as "
            f"{numbers[tuple(position)]}, but '{plan.op.name}' needs {plan.neutral[0]} there."
        )
        raise access_error(
            plan, access, "padding", text, box.read_window.address_of(tuple(position), access.address)
        )


def _write(access: Access, raw: NDArray, space: AddressSpace) -> None:
    """Store the valid part; the rest of the sticks becomes poison that nobody may read."""
    box, memory, raw_type = access.box, space.memory(access.region, access.core), raw.dtype
    data = box.whole.view(memory.data, access.address, raw_type)
    shadow = box.whole.view(memory.shadow, access.address, raw_type)
    tag = spread(access.region.tag, raw_type)
    if not box.padded:
        data[...] = raw.reshape(data.shape)
        shadow[...] = tag
        return
    poison = int.from_bytes(bytes([POISON_BYTE]) * raw_type.itemsize)
    values = np.full(box.extents, poison, raw_type)
    tags = np.full(box.extents, spread(POISON, raw_type))
    valid = tuple(slice(count) for count in box.valid)
    values[valid] = raw
    tags[valid] = tag
    data[...] = values.reshape(data.shape)
    shadow[...] = tags.reshape(shadow.shape)


def _leave_part(plan: Plan, access: Access, space: AddressSpace) -> None:
    """A core of a split reduction that does not finish it has nothing there that anybody may read."""
    raw_type = FORMATS[plan.design.operands[access.operand].data_format].raw
    shadow = access.box.whole.view(space.memory(access.region, access.core).shadow, access.address, raw_type)
    shadow[...] = spread(PARTIAL, raw_type)


def _count(
    plan: Plan, statistics: ExecuteStatistics, inputs: list[list[Access]], written: list[Access]
) -> None:
    loads = [_load(plan, inputs, access) for operand in inputs for access in operand if not access.region.lx]
    statistics.read_bytes += sum(dict(loads).values())
    statistics.core_read_bytes += sum(moved for _, moved in loads)
    statistics.write_bytes += sum(access.box.accessed_bytes for access in written if not access.region.lx)


def _load(plan: Plan, inputs: list[list[Access]], access: Access) -> tuple[Hashable, int]:
    """Return a key, equal for cores that share a load, and the bytes of the load: of a table the rows that are read."""
    if plan.op.index is None or access.operand != plan.op.table:
        return access.key, access.box.accessed_bytes
    positions = inputs[plan.op.index][access.core]
    return (access.key, positions.key), rows_bytes(plan, positions, access)
