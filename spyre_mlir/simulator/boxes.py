# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Elements of operands in memory: from a design to strided windows, per core.

Every array here has one axis per iteration label, in the order of ``Design.sizes``; a label along which
an operand does not vary has extent 1. In memory a label in the stick takes two axes, sticks and element slots, which
a window splits and merges.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle.model import Design, Operand
from spyre_mlir.records import dataclass
from spyre_mlir.target.formats import FORMATS


def offsets_of(axes: Iterable[tuple[int, int]]) -> NDArray[np.int64]:
    """Return the offset of each position of axes of (count, stride), with the last axis innermost."""
    offsets = np.zeros(1, np.int64)
    for count, stride in axes:
        offsets = np.add.outer(offsets, np.arange(count, dtype=np.int64) * stride).ravel()
    return offsets


@dataclass(frozen=True, eq=False)
class StridedWindow:
    """A rectangular part of an operand in memory, relative to the address of its first element.

    ``shape`` and ``strides`` (bytes) have each label in the stick (the axes ``inside``) split in two: sticks and slots.
    ``merged`` is the shape with one axis per label, of which ``trim`` keeps the positions to read.
    """

    inside: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    merged: tuple[int, ...]
    trim: tuple[slice, ...] | None

    @functools.cached_property
    def stick_axes(self) -> tuple[int, ...]:
        """The axes of the split shape that advance from stick to stick."""
        axes: list[int] = []
        place = 0
        for axis in range(len(self.merged)):
            axes.append(place)
            place += 2 if axis in self.inside else 1
        return tuple(axes)

    def bytes_in_stick(self, raw: np.dtype) -> int | None:
        """Return the leading bytes of each stick with elements of one label; None if a stick has several labels."""
        if len(self.inside) != 1:
            return None
        return self.shape[self.stick_axes[self.inside[0]] + 1] * raw.itemsize

    @functools.cached_property
    def count_of_sticks(self) -> tuple[int, ...]:
        """The number of sticks along each axis."""
        return tuple(self.shape[axis] for axis in self.stick_axes)

    @functools.cached_property
    def stride_of_sticks(self) -> tuple[int, ...]:
        """The bytes from one stick to the next along each axis."""
        return tuple(self.strides[axis] for axis in self.stick_axes)

    def address_of(self, position: tuple[int, ...], address: int) -> int:
        """Return the address of one position of the merged array."""
        split: list[int] = []
        for axis, index in enumerate(position):
            split += divmod(index, self.shape[len(split) + 1]) if axis in self.inside else (index,)
        return address + sum(p * s for p, s in zip(split, self.strides, strict=True))


@dataclass(frozen=True, eq=False)
class Box:
    """The part of one operand that one core accesses: whole sticks, padding included.

    ``origin`` is the coordinate of its first position per label, ``extents`` its size (elements),
    ``valid`` the number of leading positions that are not padding; ``varies`` is True if the operand has the label.
    ``whole`` covers all element slots of all sticks, ``read_window`` the elements that the operation reads.
    """

    origin: tuple[int, ...]
    extents: tuple[int, ...]
    valid: tuple[int, ...]
    varies: tuple[bool, ...]
    whole: StridedWindow
    read_window: StridedWindow
    span_bytes: int
    accessed_bytes: int
    stick_bytes: int

    @property
    def padded(self) -> bool:
        return self.valid != self.extents

    @functools.cached_property
    def is_sparse(self) -> bool:
        """Return whether all padding of the box is inside of its sticks, after the valid first slots of each stick."""
        return (
            self.read_window.trim is None
            and len(self.whole.inside) == 1
            and self.whole.count_of_sticks == self.read_window.count_of_sticks
            and self.whole.count_of_sticks[self.whole.inside[0]] == 1
            and self.read_window.merged == self.valid
        )

    @functools.cached_property
    def geometry(self) -> tuple[tuple[int, ...], ...]:
        """Everything but the origin: boxes of equal geometry are accessed together, each at its own address."""
        whole, read = self.whole, self.read_window
        return (self.extents, self.valid, whole.shape, whole.strides, read.shape, read.strides, read.inside)

    @functools.cached_property
    def stick_offsets(self) -> NDArray[np.int64]:
        """The byte offsets of the sticks of the box from the first stick, sorted."""
        axes = zip(self.whole.shape, self.whole.strides, strict=True)
        return np.sort(offsets_of((count, stride) for count, stride in axes if stride >= self.stick_bytes))

    def same_place(self, other: Box) -> bool:
        """Return whether both boxes have equal offsets; slot 0 of a sparse stick represents all its slots."""
        mine, theirs = self.whole, other.whole
        if mine.shape != theirs.shape:
            return False
        steps = zip(mine.shape, mine.strides, theirs.strides, strict=True)
        varying = zip(self.extents, self.varies, other.varies, strict=True)
        return all(count == 1 or a == b for columns in (steps, varying) for count, a, b in columns)


def slices_of(design: Design, operand: Operand, core: int) -> Mapping[str, int] | None:
    """Return the slices that a core has of an operand; None if it has nothing of the operand."""
    return design.core_slices[core] if operand.held is None else operand.held.core_slices[core]


def share_of(design: Design, operand: Operand, label: str) -> int:
    """Return the elements of the largest slice of a dim of an operand: whole sticks along its stick dim."""
    size = design.sizes[label]
    if operand.held is None:
        return design.shares.get(label, size)
    if label not in operand.held.slices:
        return size
    unit = operand.per_stick(label)
    return -(-size // (unit * operand.held.slices[label])) * unit


def slice_range(design: Design, operand: Operand, label: str, core: int) -> tuple[int, int]:
    """Return the first coordinate and the length of a core's slice of a dim."""
    size, share = design.sizes[label], share_of(design, operand, label)
    start = (slices_of(design, operand, core) or {}).get(label, 0) * share
    return start, min(share, size - start)


def make_box(
    design: Design,
    operand: Operand,
    core: int,
    reduced: frozenset[str],
    varying: frozenset[str],
    strides: Mapping[str, int],
) -> Box:
    """Return the box of ``operand`` on ``core``; along the ``reduced`` labels the core also reads padding.

    ``varying`` are the labels of the operand, ``strides`` the result of ``element_strides``.
    """
    bytes_ = FORMATS[operand.data_format].bytes
    labels = tuple(design.sizes)
    origin, extents, valid, read = [], [], [], []
    for label, size in design.sizes.items():
        start, extent, good = 0, 1, 1
        if label in operand.windows:
            start, extent = operand.windows[label].accessed(*slice_range(design, operand, label, core))
            good = extent
        elif label in varying:
            start, extent = slice_range(design, operand, label, core)
            good = min(max(size - design.padding.get(label, 0) - start, 0), extent)
        elif label == operand.stick_dim:
            # One stick, in which only element slot 0 holds a value.
            extent = operand.stick_elements
        origin.append(start)
        extents.append(extent)
        valid.append(good)
        read.append(extent if label in reduced and label in varying else good)
    steps = tuple(strides.get(label, 0) * bytes_ for label in labels)
    # The axes that a stick holds elements of, with their count and the bytes between neighbours.
    slots, stride = {}, bytes_
    for label, count in (*operand.other_elements.items(), (operand.stick_dim, operand.stick_elements)):
        slots[labels.index(label)] = (count, stride)
        stride *= count
    inside = tuple(slots.items())
    whole = _window(tuple(extents), steps, inside)
    span = sum((n - 1) * s for n, s in zip(whole.shape, whole.strides, strict=True)) + bytes_
    return Box(
        origin=tuple(origin),
        extents=tuple(extents),
        valid=tuple(valid),
        varies=tuple(label in varying for label in labels),
        whole=whole,
        read_window=_window(tuple(read), steps, inside),
        span_bytes=span,
        accessed_bytes=math.prod(extents) * bytes_,
        stick_bytes=design.target.stick_bytes,
    )


def element_strides(design: Design, operand: Operand) -> dict[str, int]:
    """Return the stride in elements of each dim that the operand varies along (for the stick dim: from stick to stick).

    In LX the memory holds one core's slice. All cores run one program, so the dims have the size of a full
    share on every core, including the last core, whose slice may be smaller.
    """
    strides: dict[str, int] = {}
    stride = operand.elements_per_stick
    for label in operand.listed:
        strides[label] = stride
        window = operand.windows.get(label)
        size = design.sizes[label] if window is None else window.size
        extent = size
        if operand.memory == "lx":
            share = share_of(design, operand, label)
            extent = min(share, size) if window is None else window.most_accessed(share)
        extent += operand.gap.get(label, 0)
        stride *= extent // operand.per_stick(label)
    return strides


@functools.lru_cache(maxsize=4096)
def _window(
    counts: tuple[int, ...], steps: tuple[int, ...], in_stick: tuple[tuple[int, tuple[int, int]], ...]
) -> StridedWindow:
    """A window of ``counts`` positions per label; a partly needed last stick is read whole, then trimmed.

    It is one object for all cores with slices of one size.
    """
    inside = dict(in_stick)
    shape, strides, merged = [], [], []
    for axis, (count, step) in enumerate(zip(counts, steps, strict=True)):
        # One position has no next one, and its stride may be beyond all memory.
        step = step if count > 1 else 0
        if axis not in inside:
            shape, strides, merged = [*shape, count], [*strides, step], [*merged, count]
            continue
        lanes, stride = inside[axis]
        split = (1, count) if count <= lanes else (-(-count // lanes), lanes)
        shape, strides = [*shape, *split], [*strides, step, stride]
        merged.append(split[0] * split[1])
    trim = None if tuple(merged) == counts else tuple(slice(count) for count in counts)
    return StridedWindow(tuple(sorted(inside)), tuple(shape), tuple(strides), tuple(merged), trim)
