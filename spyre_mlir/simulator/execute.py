"""One `sdsc_execute`: every core reads and computes, then every core writes.

Cores run concurrently, so the result may not depend on their order: no core may write what another one
reads or writes in the same operation. Within one core an elementwise operation may work in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.simulator.compute import COPIES, combine_partials, compute
from spyre_mlir.simulator.conflicts import check_conflicts
from spyre_mlir.simulator.errors import SimulationError
from spyre_mlir.simulator.geometry import Box
from spyre_mlir.simulator.memory import (
    HOST,
    NOBODY,
    POISON,
    POISON_BYTE,
    AddressSpace,
    Region,
    spread,
    tag_pattern,
)
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.statistics import ExecuteStatistics
from spyre_mlir.target.device import device
from spyre_mlir.target.formats import FORMATS, Numerics


@dataclass(frozen=True)
class Access:
    """One operand on one core: a box at an address, in a buffer."""

    operand: int
    core: int
    box: Box
    address: int
    region: Region

    @property
    def end(self) -> int:
        return self.address + self.box.span_bytes

    @property
    def key(self) -> tuple[int, int, int]:
        """Equal for cores that load the same elements."""
        return (self.operand, self.address, id(self.box))


def execute(
    plan: Plan,
    regions: tuple[Region, ...],
    symbols: dict[int, int],
    space: AddressSpace,
    numerics: Numerics,
    statistics: ExecuteStatistics,
) -> None:
    """Run one operation; ``regions[k]`` is the buffer of operand ``k``, ``symbols`` the addresses bound."""
    accesses = _accesses(plan, regions, symbols, space)
    *inputs, outputs = accesses
    writers = {group[-1] for group in plan.groups}
    written = [access for access in outputs if access.core in writers]
    check_conflicts(plan, [access for operand in inputs for access in operand], written)
    runner = _Runner(plan, space, numerics, inputs)
    results = [(outputs[group[-1]], runner.result(group)) for group in plan.groups]
    for access, raw in results:
        _write(access, raw, space)
    _count(statistics, inputs, written)


class _Runner:
    """Computes results; numbers that several cores load from HBM are converted once."""

    def __init__(
        self, plan: Plan, space: AddressSpace, numerics: Numerics, inputs: list[list[Access]]
    ) -> None:
        self._plan, self._space, self._numerics, self._inputs = plan, space, numerics, inputs
        hbm = (access.key for operand in inputs for access in operand if not access.region.lx)
        self._shared = {key for key, count in Counter(hbm).items() if count > 1}
        self._cache: dict[tuple[int, int, int], NDArray] = {}

    def result(self, group: tuple[int, ...]) -> NDArray:
        """Raw bits of the valid part of the result that the cores of ``group`` make together."""
        plan = self._plan
        shape = plan.boxes[-1][group[-1]].valid
        form = plan.design.operands[-1].data_format
        if 0 in shape:
            return np.zeros(shape, FORMATS[form].raw)
        partials = [self._partial(core) for core in group]
        total = combine_partials(plan.op.name, partials)
        raw = total if plan.op.name in COPIES else self._numerics.store(total, form)
        return np.broadcast_to(raw, shape)

    def _partial(self, core: int) -> NDArray:
        operands = [self._numbers(operand[core]) for operand in self._inputs]
        return compute(self._plan.op.name, operands, self._plan.work)

    def _numbers(self, access: Access) -> NDArray:
        if access.key in self._cache:
            return self._cache[access.key]
        numbers = self._read(access)
        if access.key in self._shared:
            self._cache[access.key] = numbers
        return numbers

    def _read(self, access: Access) -> NDArray:
        """What the operation computes with: numbers, or bits for copies; masked positions replaced."""
        plan, memory = self._plan, self._space.memory(access.region, access.core)
        form = plan.design.operands[access.operand].data_format
        raw_type = FORMATS[form].raw
        masked = _masked_parts(plan, access.box)
        tags = access.box.wanted.read(memory.shadow, access.address, raw_type)
        _check_tags(plan, access, tags, masked, self._space)
        raw = access.box.wanted.read(memory.data, access.address, raw_type)
        copies = plan.op.name in COPIES
        numbers = raw if copies else self._numerics.load(raw, form)
        if masked:
            assert plan.mask_value is not None
            fill = self._numerics.store(np.array(plan.mask_value), form) if copies else plan.mask_value
            numbers = numbers.copy()
            for part in masked:
                numbers[part] = fill
        _check_padding(plan, access, numbers)
        return numbers


def _accesses(
    plan: Plan, regions: tuple[Region, ...], symbols: dict[int, int], space: AddressSpace
) -> list[list[Access]]:
    """Resolve and check the address of every operand on every core."""
    accesses = []
    for k, (operand, region) in enumerate(zip(plan.design.operands, regions, strict=True)):
        if region.lx != (operand.memory == "lx"):
            text = f"the design has it in {operand.memory}, its buffer is in {'lx' if region.lx else 'hbm'}."
            raise SimulationError("manifest", text, design=plan.design, tensor=region.name)
        starts = operand.start if region.lx else [_bound(plan, region, s, symbols) for s in operand.start]
        made = [Access(k, core, plan.boxes[k][core], start, region) for core, start in enumerate(starts)]
        for access in made:
            _check_access(plan, access, space)
        accesses.append(made)
    return accesses


def _bound(plan: Plan, region: Region, symbol: int, symbols: dict[int, int]) -> int:
    if symbol not in symbols:
        text = f"symbol {symbol} of its start address is not bound by the bundle."
        raise SimulationError("symbol", text, design=plan.design, tensor=region.name)
    return symbols[symbol]


def _check_access(plan: Plan, access: Access, space: AddressSpace) -> None:
    region, address = access.region, access.address
    unit = device().lx_alignment_bytes if region.lx else device().hbm_alignment_bytes
    if region.start <= address and access.end <= region.end and address % unit == 0:
        if region.lx or access.box.span_bytes <= device().span_bytes:
            return
        text = f"it spans {access.box.span_bytes} bytes, but a core can address {device().span_bytes}."
        raise _error(plan, access, "span", text)
    if address % unit:
        raise _error(plan, access, "alignment", f"its start is no multiple of {unit} bytes.")
    inside = (
        f"it covers [{address:#x}, {access.end:#x}), but its buffer is [{region.start:#x}, {region.end:#x})."
    )
    if region.lx and access.end > space.lx_limit_bytes:
        raise _error(plan, access, "lx-capacity", f"{inside} LX ends at {space.lx_limit_bytes:#x}.")
    raise _error(plan, access, "out-of-bounds", inside)


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
    good |= tags == spread(HOST, tags.dtype)
    for part in masked:
        good[part] = True
    if good.all():
        return
    position = tuple(int(i) for i in np.argwhere(~good)[0])
    kind, text = _bad_read(plan, access, int(tags[position]), position, space)
    address = access.box.wanted.address_of(position, access.address)
    raise _error(plan, access, kind, text, address)


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
            f"{_where(plan, box, position)} is padding of dim '{tuple(plan.design.sizes)[axis]}' and reads as "
            f"{numbers[tuple(position)]}, but '{plan.op.name}' needs {plan.neutral[0]} there."
        )
        raise _error(plan, access, "padding", text, box.wanted.address_of(tuple(position), access.address))


def _where(plan: Plan, box: Box, position: Sequence[int]) -> str:
    """An element of a box in words, by its coordinates in the whole operation."""
    at = [(label, box.origin[a] + position[a]) for a, label in enumerate(plan.design.sizes) if box.varies[a]]
    return "its element " + ", ".join(f"{label} {i}" for label, i in at)


def _bad_read(
    plan: Plan, access: Access, pattern: int, position: tuple[int, ...], space: AddressSpace
) -> tuple[str, str]:
    """Kind and sentence for an element with the wrong tag."""
    design, box = plan.design, access.box
    labels = tuple(design.sizes)
    at = {label: box.origin[a] + position[a] for a, label in enumerate(labels) if box.varies[a]}
    where = _where(plan, box, position)
    width = FORMATS[design.operands[access.operand].data_format].bytes
    tag = pattern & 0xFFFF
    if pattern != tag_pattern(tag, width) or tag in (NOBODY, POISON):
        ends = {label: design.sizes[label] - design.padding.get(label, 0) for label in at}
        padding = [label for label, i in at.items() if i >= ends[label]]
        if padding:
            return "padding", f"{where} is undefined padding of dim '{padding[0]}' that reaches the result."
        source = " (an earlier operation left padding there)" if tag == POISON else ""
        return "uninitialised", f"{where} is read but was never written{source}."
    return "stale", f"{where} is read after its bytes were overwritten through {space.owner(tag)}."


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


def _count(statistics: ExecuteStatistics, inputs: list[list[Access]], written: list[Access]) -> None:
    loads = [access for operand in inputs for access in operand if not access.region.lx]
    distinct = {access.key: access.box.touched_bytes for access in loads}
    statistics.runs += 1
    statistics.read_bytes += sum(distinct.values())
    statistics.core_read_bytes += sum(access.box.touched_bytes for access in loads)
    statistics.write_bytes += sum(access.box.touched_bytes for access in written if not access.region.lx)


def _error(plan: Plan, access: Access, kind: str, text: str, address: int | None = None) -> SimulationError:
    return SimulationError(
        kind,
        text,
        design=plan.design,
        tensor=access.region.name,
        core=access.core,
        address=access.address if address is None else address,
    )
