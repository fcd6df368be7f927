# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checked accesses of operands on cores: their boxes and addresses, and the errors of a read."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass
from spyre_mlir.simulator.boxes import Box
from spyre_mlir.simulator.memory import NOBODY, PARTIAL, POISON, AddressRange, AddressSpace, tag_pattern
from spyre_mlir.simulator.plan import Plan
from spyre_mlir.simulator.run_outcome import SimulationError
from spyre_mlir.target.formats import FORMATS

#: Explanation appended to a read of memory that no result was written to, by shadow tag.
_LEFT = {
    POISON: " (an earlier operation left padding there)",
    PARTIAL: " (an earlier operation left a part of a sum there)",
}


@dataclass(frozen=True)
class Access:
    """One operand on one core: a box at an address, in a buffer."""

    operand: int
    core: int
    box: Box
    address: int
    region: AddressRange

    @property
    def end(self) -> int:
        return self.address + self.box.span_bytes

    @property
    def key(self) -> tuple[int, int, int]:
        """A key that is equal for cores that load the same elements."""
        return (self.operand, self.address, id(self.box))


@dataclass(frozen=True, eq=False)
class OperandAccesses:
    """One operand on all cores that have a part of it: its box and the address of the box, by core."""

    operand: int
    region: AddressRange
    boxes: Mapping[int, Box]
    addresses: Mapping[int, int]

    def __getitem__(self, core: int) -> Access:
        return Access(self.operand, core, self.boxes[core], self.addresses[core], self.region)

    def __iter__(self) -> Iterator[Access]:
        return (self[core] for core in self.boxes)

    def __len__(self) -> int:
        return len(self.boxes)

    @functools.cached_property
    def span(self) -> tuple[int, int]:
        """The lowest address of all parts, and the address after the last byte."""
        ends = (self.addresses[core] + box.span_bytes for core, box in self.boxes.items())
        return min(self.addresses.values()), max(ends)


def resolve(
    plan: Plan, regions: tuple[AddressRange, ...], symbols: dict[int, int], space: AddressSpace
) -> list[OperandAccesses]:
    """Resolve and check the address of every operand on every core that has a part of it."""
    accesses = []
    for k, (operand, region) in enumerate(zip(plan.design.operands, regions, strict=True)):
        if region.lx != (operand.memory == "lx"):
            text = f"the design has it in {operand.memory}, its buffer is in {'lx' if region.lx else 'hbm'}."
            raise SimulationError("manifest", text, design=plan.design, tensor=region.name)
        unbound = [] if region.lx else [symbol for symbol in operand.start if symbol not in symbols]
        if unbound:
            text = f"symbol {unbound[0]} of its start address is not bound by the bundle."
            raise SimulationError("symbol", text, design=plan.design, tensor=region.name)
        addresses = {
            core: operand.start[core] if region.lx else symbols[operand.start[core]] for core in plan.boxes[k]
        }
        checked = OperandAccesses(k, region, plan.boxes[k], addresses)
        if not _is_inside(plan, checked):
            # Check one access at a time, because the message names the first access that fails.
            for access in checked:
                _check_access(plan, access, space)
        accesses.append(checked)
    return accesses


def _is_inside(plan: Plan, accesses: OperandAccesses) -> bool:
    """Return whether all parts of an operand are in its buffer, aligned, and within the address span of a core."""
    region, target = accesses.region, plan.design.target
    if not len(accesses):
        return True
    unit = target.lx_alignment_bytes if region.lx else target.hbm_alignment_bytes
    low, high = accesses.span
    if low < region.start or region.end < high or any(a % unit for a in accesses.addresses.values()):
        return False
    far = region.lx or accesses.operand in plan.op.indirect
    return far or max(box.span_bytes for box in accesses.boxes.values()) <= target.span_bytes


def _check_access(plan: Plan, access: Access, space: AddressSpace) -> None:
    region, address = access.region, access.address
    target = plan.design.target
    unit = target.lx_alignment_bytes if region.lx else target.hbm_alignment_bytes
    if region.start <= address and access.end <= region.end and address % unit == 0:
        # Each row of an indirect access has its own address, so the span limit does not apply.
        far = access.operand in plan.op.indirect
        if region.lx or far or access.box.span_bytes <= target.span_bytes:
            return
        text = f"it spans {access.box.span_bytes} bytes, but a core can address {target.span_bytes}."
        raise access_error(plan, access, "span", text)
    if address % unit:
        raise access_error(plan, access, "alignment", f"its start is not a multiple of {unit} bytes.")
    inside = (
        f"it covers [{address:#x}, {access.end:#x}), but its buffer is [{region.start:#x}, {region.end:#x})."
    )
    if region.lx and access.end > space.lx_limit_bytes:
        raise access_error(plan, access, "lx-capacity", f"{inside} LX ends at {space.lx_limit_bytes:#x}.")
    raise access_error(plan, access, "out-of-bounds", inside)


def element_text(plan: Plan, box: Box, position: Sequence[int]) -> str:
    """Return an element of a box as text, by its coordinates in the whole operation."""
    coordinates = [
        (label, box.origin[a] + position[a]) for a, label in enumerate(plan.design.sizes) if box.varies[a]
    ]
    return "its element " + ", ".join(f"{label} {i}" for label, i in coordinates)


def bad_read(
    plan: Plan, access: Access, pattern: int, position: tuple[int, ...], space: AddressSpace
) -> SimulationError:
    """Return the error of reading an element that has the shadow ``pattern``."""
    design, box = plan.design, access.box
    address = box.whole.address_of(position, access.address)
    element = element_text(plan, box, position)
    width = FORMATS[design.operands[access.operand].data_format].bytes
    tag = pattern & 0xFFFF
    # Different tags in one element do not identify a writer: the element counts as never written.
    if pattern == tag_pattern(tag, width) and tag not in (NOBODY, POISON, PARTIAL):
        text = f"{element} is read after its bytes were overwritten through {space.owner(tag)}."
        return access_error(plan, access, "stale", text, address)
    for axis, (label, size) in enumerate(design.sizes.items()):
        end = size - design.padding.get(label, 0)
        if box.varies[axis] and box.origin[axis] + position[axis] >= end:
            text = f"{element} is undefined padding of dim '{label}' that reaches the result."
            return access_error(plan, access, "padding", text, address)
    text = f"{element} is read but was never written{_LEFT.get(tag, '')}."
    return access_error(plan, access, "uninitialised", text, address)


def access_error(
    plan: Plan, access: Access, kind: str, text: str, address: int | None = None
) -> SimulationError:
    return SimulationError(
        kind,
        text,
        design=plan.design,
        tensor=access.region.name,
        core=access.core,
        address=access.address if address is None else address,
    )


def check_positions(plan: Plan, accesses: Sequence[Access], operands: Sequence[NDArray[Any]]) -> None:
    """Check that every position is a row of the table; the error names the first core and position that is not."""
    assert plan.op.index is not None and plan.op.table is not None
    positions = operands[plan.op.index].view(np.int32)
    access, rows = accesses[plan.op.index], _rows(plan, operands[plan.op.table].shape)
    wrong = (positions < 0) | (positions >= rows)
    if not wrong.any():
        return
    position = tuple(int(i) for i in np.argwhere(wrong)[0])
    text = (
        f"{element_text(plan, access.box, position)} is {positions[position]}, but the table has {rows} rows."
    )
    raise access_error(plan, access, "position", text, access.box.whole.address_of(position, access.address))


def rows_bytes(plan: Plan, positions: Access, table: Access) -> int:
    """Return the bytes of the rows that a core reads of a table."""
    # Rows have equal sizes; a row is moved once for each position that names it.
    return table.box.accessed_bytes // _rows(plan, table.box.extents) * math.prod(positions.box.valid)


def _rows(plan: Plan, extents: Sequence[int]) -> int:
    """Return the number of rows of a table: the extent of the dim that the result lacks."""
    return extents[plan.work.reduced[0]]
