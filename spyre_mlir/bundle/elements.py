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
    StickRegion,
    accessed_positions,
    core_region,
    holders,
    memory_counts,
    memory_strides,
    operand_shares,
    operand_splits,
)
from spyre_mlir.bundle.identity_table import IdentityTable
from spyre_mlir.bundle.model import Design, Operand
from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target

_NOBODY = -1

#: Cores that access equal regions, and the writers of their sticks: one axis of cores, then one per dim.
_Group = tuple[list[int], NDArray[np.int32]]


@dataclass(frozen=True)
class OperandAxis:
    """A dim of an operand in LX: sticks between neighbours, capacity of a core in positions, and the slices."""

    dim: str
    stride: int
    count: int
    slices: int

    @property
    def is_unordered(self) -> bool:
        """Return whether LX does not fix the place of the dim in the order: no core has several positions of it."""
        return self.count == 1 and self.slices > 1


@dataclass(frozen=True)
class OperandPlacement:
    """An operand in the LX of the cores: its first stick, and its dims from the innermost on.

    ``regions`` are the sticks that each core accesses, ``slices`` the slice of each dim on each core, and ``begins``
    the first position of the slice; None on cores that hold nothing of the operand.
    """

    start: int
    axes: tuple[OperandAxis, ...]
    regions: tuple[StickRegion | None, ...]
    slices: tuple[tuple[int, ...] | None, ...]
    begins: tuple[tuple[int, ...] | None, ...]
    lx_bytes: int

    @functools.cached_property
    def cores_of(self) -> dict[StickRegion, list[int]]:
        """The cores that access each region."""
        cores: dict[StickRegion, list[int]] = {}
        for core, region in enumerate(self.regions):
            if region is not None and 0 not in region.counts:
                cores.setdefault(region, []).append(core)
        return cores

    def coordinates(self, core: int, sticks: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the coordinates along each axis of some sticks of a core, in positions of full shares."""
        begins, rest, coordinates = self.begins[core], sticks - self.start, []
        assert begins is not None
        for axis, begin in zip(reversed(self.axes), reversed(begins), strict=True):
            # An axis of one position, or with a stride larger than LX, does not show in the address.
            has_several = axis.count > 1 and axis.stride <= self.lx_bytes
            step, rest = np.divmod(rest, axis.stride) if has_several else (np.zeros_like(rest), rest)
            coordinates.append(step + begin)
        return coordinates[::-1]

    def text(self, core: int) -> str:
        """Return the slices of a core as text."""
        pairs = zip(self.axes, self.slices[core] or (), strict=True)
        return ", ".join(f"{axis.dim} {index}" for axis, index in pairs if axis.slices > 1) or "all"


#: Placements of designs by the index of the operand: a program runs one design many times.
_PLACEMENTS: IdentityTable[int, OperandPlacement] = IdentityTable()


def placement(design: Design, index: int) -> OperandPlacement:
    """Return the placement of operand ``index`` in LX; for an input, without sticks of padding only."""
    placements = _PLACEMENTS.entries_of(design)
    if index not in placements:
        placements[index] = _placement(design, index)
    return placements[index]


def _placement(design: Design, index: int) -> OperandPlacement:
    operand = design.operands[index]
    splits = operand_splits(design, operand)
    places = zip(
        operand.dim_order, memory_counts(design, operand), memory_strides(design, operand), strict=True
    )
    axes = tuple(
        OperandAxis(dim, stride, count, splits[dim])
        for dim, count, stride in places
        if operand.scale[dim] == 1
    )
    core_slices, shares = holders(design, operand), operand_shares(design, operand)
    is_input = index < len(design.operands) - 1
    return OperandPlacement(
        operand.start[0] // design.target.stick_bytes,
        axes,
        tuple(
            core_region(design, operand, core, valid=is_input) if core in core_slices else None
            for core in range(design.cores)
        ),
        tuple(
            tuple(core_slices[core][axis.dim] for axis in axes) if core in core_slices else None
            for core in range(design.cores)
        ),
        tuple(
            tuple(_begin(operand, axis, core_slices[core][axis.dim], shares[axis.dim]) for axis in axes)
            if core in core_slices
            else None
            for core in range(design.cores)
        ),
        design.target.lx_bytes,
    )


def _begin(operand: Operand, axis: OperandAxis, slice_index: int, share: int) -> int:
    """Return the first position of a slice along an axis, in full shares; windows may begin before their slice."""
    if axis.dim not in operand.windows:
        return slice_index * axis.count
    return accessed_positions(operand, axis.dim, slice_index * share, 1)[0]


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
        writers = {writer for _, view in groups for writer in _distinct(view)}
        if len(writers) == 1 and writers != {_NOBODY} and is_in_order(self._written[min(writers)], reader):
            return None
        writers -= {_NOBODY}
        # In program order, so that the message is deterministic.
        for writer in sorted(writers):
            key = writer, execute, index
            # Usually one execute wrote everything that is read, and then the answer of the previous iteration holds.
            if len(writers) > 1 or key not in self._known:
                self._known[key] = self._compare(writer, index, reader, groups)
            if self._known[key]:
                return self._known[key]
        return None

    def _groups(self, place: OperandPlacement) -> Iterator[_Group]:
        row, stick = self._writers.strides
        for region, cores in place.cores_of.items():
            steps = zip(region.counts, region.strides, strict=True)
            # The stride of a single position may exceed the array, which numpy rejects.
            strides = (row, *(stride * stick if count > 1 else 0 for count, stride in steps))
            shape = (len(self._writers), *region.counts)
            yield cores, np.ndarray(shape, np.int32, self._writers, place.start * stick, strides)

    def _compare(self, writer: int, index: int, reader: OperandPlacement, groups: list[_Group]) -> str | None:
        written = self._written[writer]
        if written == reader:
            return None
        core = first_difference(written, reader, list(_sticks(writer, reader, groups)))
        if core is None:
            return None
        return (
            f"Core {core} takes what its LX holds of Tensor{index} for the slice {reader.text(core)}, but execute "
            f"{writer} left the slice {written.text(core)} there; expected reader and writer to have the elements of "
            f"the tensor in one order."
        )


def _distinct(view: NDArray[np.int32]) -> set[int]:
    first = view.flat[0]
    return {int(first)} if (view == first).all() else {int(writer) for writer in np.unique(view)}


def _sticks(
    writer: int, reader: OperandPlacement, groups: list[_Group]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield the sticks of each core that a reader accesses and that ``writer`` wrote."""
    for cores, view in groups:
        region = reader.regions[cores[0]]
        assert region is not None
        sticks = _sticks_of(region, reader.start)
        for core, wrote in zip(cores, view, strict=True):
            yield core, sticks[wrote.ravel() == writer]


def _sticks_of(region: StickRegion, start: int) -> NDArray[np.int64]:
    sticks = np.full(1, start, np.int64)
    for count, stride in zip(region.counts, region.strides, strict=True):
        sticks = np.add.outer(sticks, np.arange(count, dtype=np.int64) * stride).ravel()
    return sticks


@functools.lru_cache(maxsize=1024)
def is_in_order(writer: OperandPlacement, reader: OperandPlacement) -> bool:
    """Return whether a reader expects, in all that it accesses, the elements that one writer of all of it wrote."""
    if writer == reader:
        return True
    sticks = [
        (core, _sticks_of(region, reader.start))
        for region, cores in reader.cores_of.items()
        for core in cores
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
    for orders in itertools.product(_orders(writer.axes), _orders(reader.axes)):
        ranks = (
            _rank(place.axes, side, order, len(cores))
            for place, side, order in zip((writer, reader), sides, orders, strict=True)
        )
        disorder = _disorder(*ranks)
        if disorder is None:
            return None
        # The message names the core of the first order, which is the order of the design.
        best = int(cores[disorder]) if best is None else best
    return best


def _orders(axes: tuple[OperandAxis, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the orders of axes, innermost first, that LX does not rule out; the order of the design comes first."""
    free = [index for index, axis in enumerate(axes) if axis.is_unordered]
    fixed = [index for index, axis in enumerate(axes) if not axis.is_unordered]
    yield tuple(range(len(axes)))
    for places in itertools.combinations(range(len(axes)), len(free)):
        unordered, ordered = iter(free), iter(fixed)
        yield tuple(next(unordered) if index in places else next(ordered) for index in range(len(axes)))


def _rank(
    axes: tuple[OperandAxis, ...], coordinates: list[NDArray[np.int64]], order: tuple[int, ...], elements: int
) -> NDArray[np.int64]:
    """Return the index of elements in the order of the whole tensor."""
    rank, step = np.zeros(elements, np.int64), 1
    for axis in order:
        rank = rank + coordinates[axis] * step
        step *= axes[axis].count * axes[axis].slices
    return rank


def _disorder(written: NDArray[np.int64], read: NDArray[np.int64]) -> int | None:
    """Return the first element, in the reader's order, at which the writer's order does not rise, or None."""
    # Stable, so that the first disorder, and so the core in the message, is deterministic.
    order = np.argsort(read, kind="stable")
    steps, read_steps = np.diff(written[order]), np.diff(read[order])
    # Equal ranks of the reader are one element on several cores: the writer must also have one element there.
    wrong = np.where(read_steps > 0, steps <= 0, steps != 0)
    return int(order[1:][np.argmax(wrong)]) if wrong.any() else None
