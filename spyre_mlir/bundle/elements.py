# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Element check for tensors in LX, stick by stick: a core must read the elements that its slices denote.

An LX address does not identify an element of the tensor, but the slices of the writer do: core ``c`` has written the
elements of its slices. The slices of a reader state which elements it expects. Both may describe the tensor by other
dims (a view), and a reader may read a part, so elements are compared by their order in the tensor on the device: over
all that the cores read, in the order of the reader, the order of the writer must rise too. An element that the reader
has on several cores must be one element of the writer.

Device memory does not need this rule: its address identifies the element, and is the same for all cores.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.core_slices import (
    core_region,
    first_positions,
    holders,
    memory_counts,
    operand_axes,
    operand_splits,
)
from spyre_mlir.bundle.model import Design, IdentityTable
from spyre_mlir.division.ownership import CoreRegion
from spyre_mlir.layout.view import Axis
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target

_NOBODY = -1

#: Cores that access equal regions, and the writers of their sticks: one axis of cores, then one per dim.
_Group = tuple[list[int], NDArray[np.int32]]


@dataclass(frozen=True)
class OperandPlacement:
    """An operand in the LX of the cores: its first stick, and its axes from the innermost on.

    ``splits`` are the slices of each axis over the cores, and ``capacities`` the positions of each axis in the LX of a
    core, with gaps. ``regions`` are the sticks that each core accesses, ``slices`` the slice of each dim on each core,
    and ``begins`` the first position of the slice; None on cores that hold nothing of the operand.
    """

    start: int
    elements_per_stick: int
    axes: tuple[Axis[str], ...]
    splits: tuple[int, ...]
    capacities: tuple[int, ...]
    regions: tuple[CoreRegion | None, ...]
    slices: tuple[tuple[int, ...] | None, ...]
    begins: tuple[tuple[int, ...] | None, ...]
    lx_bytes: int

    @functools.cached_property
    def cores_of(self) -> dict[CoreRegion, list[int]]:
        """The cores that access each region."""
        cores: dict[CoreRegion, list[int]] = {}
        for core, region in enumerate(self.regions):
            if region is not None and 0 not in region.counts:
                cores.setdefault(region, []).append(core)
        return cores

    def coordinates(self, core: int, sticks: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the coordinates along each axis of some sticks of a core, in positions of full shares."""
        begins, rest, coordinates = self.begins[core], (sticks - self.start) * self.elements_per_stick, []
        assert begins is not None
        axes = list(zip(self.axes, self.capacities, begins, strict=True))
        for axis, capacity, begin in reversed(axes):
            # An axis of one position, or with a stride larger than LX, does not show in the address.
            has_several = capacity > 1 and axis.stride <= self.lx_bytes
            step, rest = np.divmod(rest, axis.stride) if has_several else (np.zeros_like(rest), rest)
            coordinates.append(step + begin)
        return coordinates[::-1]

    def text(self, core: int) -> str:
        """Return the slices of a core as text."""
        parts = zip(self.axes, self.splits, self.slices[core] or (), strict=True)
        return ", ".join(f"{axis.dim} {index}" for axis, count, index in parts if count > 1) or "all"

    def orders(self) -> Iterator[tuple[int, ...]]:
        """Yield the orders of axes, innermost first, that LX does not rule out; the order of the design comes first.

        LX does not fix the place of a dim in the order if no core has several positions of the dim.
        """
        sizes = enumerate(zip(self.capacities, self.splits, strict=True))
        free = [index for index, (capacity, count) in sizes if capacity == 1 and count > 1]
        fixed = [index for index in range(len(self.axes)) if index not in free]
        yield tuple(range(len(self.axes)))
        for places in itertools.combinations(range(len(self.axes)), len(free)):
            unordered, ordered = iter(free), iter(fixed)
            yield tuple(
                next(unordered) if index in places else next(ordered) for index in range(len(self.axes))
            )


#: Placements of designs by the index of the operand: a program runs one design many times.
_PLACEMENTS: IdentityTable[int, OperandPlacement] = IdentityTable()


def placement(design: Design, index: int) -> OperandPlacement:
    """Return the placement of operand ``index`` in LX; for an input, without sticks of padding only."""
    placements = _PLACEMENTS.entries_of(design)
    if index not in placements:
        operand, is_input = design.operands[index], index < len(design.operands) - 1
        axes, of_cores = operand_axes(design, operand), holders(design, operand)
        regions: list[CoreRegion | None] = [None] * design.cores
        slices: list[tuple[int, ...] | None] = [None] * design.cores
        begins: list[tuple[int, ...] | None] = [None] * design.cores
        for core, core_slices in of_cores.items():
            firsts = first_positions(design, operand, core_slices)
            regions[core] = core_region(design, operand, core, valid=is_input)
            slices[core] = tuple(core_slices[axis.dim] for axis in axes)
            begins[core] = tuple(firsts[axis.dim] for axis in axes)
        splits = operand_splits(design, operand)
        capacities = dict(zip(operand.dim_order, memory_counts(design, operand), strict=True))
        placements[index] = OperandPlacement(
            operand.start[0] // design.target.stick_bytes,
            operand.elements_per_stick,
            axes,
            tuple(splits[axis.dim] for axis in axes),
            tuple(capacities[axis.dim] for axis in axes),
            tuple(regions),
            tuple(slices),
            tuple(begins),
            design.target.lx_bytes,
        )
    return placements[index]


class Elements:
    """The execute that last wrote each stick of the LX of each core, by its index in the program."""

    def __init__(self, target: Target) -> None:
        sticks = -(-target.lx_bytes // target.stick_bytes)
        self._writers = np.full((target.device_cores, sticks), _NOBODY, np.int32)
        self._written: dict[int, OperandPlacement] = {}
        self._known: dict[tuple[int, int, int], str | None] = {}

    def write(self, execute: int, design: Design) -> None:
        """Record the writes of an execute, if its output is in LX."""
        index = len(design.operands) - 1
        if design.operands[index].memory != "lx":
            return
        self._written[execute] = placement(design, index)
        for cores, view in self._groups(self._written[execute]):
            view[cores] = execute

    def problem(self, execute: int, design: Design, index: int) -> str | None:
        """Describe an input that lacks the expected elements; None if it is correct or not in LX."""
        if design.operands[index].memory != "lx":
            return None
        reader = placement(design, index)
        groups = [(cores, view[cores]) for cores, view in self._groups(reader)]
        # Usually one execute wrote a region, and a comparison is cheaper than a list of the distinct writers.
        writers = {
            int(writer)
            for _, view in groups
            for writer in (view.flat[:1] if (view == view.flat[0]).all() else np.unique(view))
        }
        if len(writers) == 1 and writers != {_NOBODY} and is_in_order(self._written[min(writers)], reader):
            return None
        writers -= {_NOBODY}
        # Program order makes the message deterministic.
        for writer in sorted(writers):
            key = writer, execute, index
            # Usually one execute wrote everything that is read, and then the answer of the previous iteration holds.
            if len(writers) > 1 or key not in self._known:
                self._known[key] = self._compare(writer, index, reader, groups)
            if self._known[key]:
                return self._known[key]
        return None

    def _groups(self, place: OperandPlacement) -> Iterator[_Group]:
        for region, cores in place.cores_of.items():
            yield cores, region.view(self._writers, place.start)

    def _compare(self, writer: int, index: int, reader: OperandPlacement, groups: list[_Group]) -> str | None:
        written = self._written[writer]
        if written == reader:
            return None
        sticks = [
            (core, region_sticks[wrote.ravel() == writer])
            for cores, view in groups
            if (region := reader.regions[cores[0]]) is not None
            for region_sticks in [region.positions(reader.start)]
            for core, wrote in zip(cores, view, strict=True)
        ]
        core = first_difference(written, reader, sticks)
        if core is None:
            return None
        return (
            f"Core {core} reads Tensor{index} in LX as the slice {reader.text(core)}, but execute "
            f"{writer} wrote the slice {written.text(core)} there; expected reader and writer to have the elements of "
            "the tensor in the same order."
        )


@functools.lru_cache(maxsize=1024)
def is_in_order(writer: OperandPlacement, reader: OperandPlacement) -> bool:
    """Return whether a reader expects, in all that it accesses, the elements that one writer of all of it wrote."""
    if writer == reader:
        return True
    sticks = [
        (core, region.positions(reader.start)) for region, cores in reader.cores_of.items() for core in cores
    ]
    return first_difference(writer, reader, sticks) is None


def first_difference(
    writer: OperandPlacement, reader: OperandPlacement, sticks: Sequence[tuple[int, NDArray[np.int64]]]
) -> int | None:
    """Return the first core that reads some of its ``sticks`` as other elements than were written there, or None."""
    cores = np.repeat([core for core, _ in sticks], [len(indices) for _, indices in sticks])
    sides = []
    for place in (writer, reader):
        by_core = [place.coordinates(core, indices) for core, indices in sticks]
        sides.append([np.concatenate(axis) for axis in zip(*by_core, strict=True)])
    best: int | None = None
    for orders in itertools.product(writer.orders(), reader.orders()):
        ranks = []
        for place, side, order in zip((writer, reader), sides, orders, strict=True):
            # The index of each element in the order of the whole tensor.
            rank, step = np.zeros(len(cores), np.int64), 1
            for index in order:
                rank = rank + side[index] * step
                step *= place.capacities[index] * place.splits[index]
            ranks.append(rank)
        written, read = ranks
        # Stable, so that the first disorder, and so the core in the message, is deterministic.
        by_reader = np.argsort(read, kind="stable")
        steps, read_steps = np.diff(written[by_reader]), np.diff(read[by_reader])
        # Equal ranks of the reader are one element on several cores: the writer must also have one element there.
        wrong = np.where(read_steps > 0, steps <= 0, steps != 0)
        if not wrong.any():
            return None
        # The message names the core of the first order, which is the order of the design.
        best = int(cores[by_reader[1:][np.argmax(wrong)]]) if best is None else best
    return best
