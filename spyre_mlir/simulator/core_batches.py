# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Groups of cores with equal shapes: one call computes a group on arrays with a leading axis of cores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from spyre_mlir.bundle.model import Design
from spyre_mlir.records import dataclass
from spyre_mlir.simulator.boxes import Box, StridedWindow
from spyre_mlir.simulator.compute import Work
from spyre_mlir.target.ops import DeviceOp, Kind

#: Elements per call: as many as stay in the caches between the steps of a call.
_CALL_ELEMENTS = 1 << 20
#: Multiply-adds that take as long as one element.
_MULTIPLY_ADDS = 64

#: Cores that share a part of the result; the last core writes it.
Group = tuple[int, ...]
#: An axis, and the first and last (exclusive) position that a mask covers.
MaskedRange = tuple[int, int, int]

#: Operations that are computed core by core, because a batch of cores is not one larger operation.
_BY_CORE = (Kind.MATMUL, Kind.CONVOLUTION, Kind.GATHER)


@dataclass(frozen=True)
class SplitForm:
    """Windows of all operands (the result is last) in which every label in a stick is split into sticks and slots.

    Elements are then read, computed and written in memory order. ``axes`` lists the axes of each label, after the
    axis of cores.
    """

    windows: tuple[StridedWindow, ...]
    axes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CoreBatch:
    """Groups of cores whose operands have equal shapes, and the form in which they are computed in one call."""

    groups: tuple[Group, ...]
    split: SplitForm | None
    work: Work


def masked_ranges(design: Design, box: Box) -> list[MaskedRange]:
    """Return the coordinates that masks cover, in the part of a box that is read."""
    ranges = []
    for axis, label in enumerate(design.sizes):
        if label not in design.masks or not box.varies[axis]:
            continue
        start, length = design.masks[label]
        first = max(start - box.origin[axis], 0)
        last = min(start + length - box.origin[axis], box.extents[axis])
        if first < last:
            ranges.append((axis, first, last))
    return ranges


def make_batches(
    design: Design, op: DeviceOp, boxes: Sequence[Mapping[int, Box]], groups: Sequence[Group], work: Work
) -> tuple[CoreBatch, ...]:
    """Return batches of the groups of a design, each small enough for one call."""
    by_shape: dict[tuple, list[Group]] = {}
    for group in groups:
        by_shape.setdefault(_shape_key(design, op, boxes, group), []).append(group)
    batches = []
    for equal in by_shape.values():
        split = None if op.kind in _BY_CORE else _split_form(design, boxes, equal[0], work)
        batch_work = _work_of_cores(work, split)
        count = max(_CALL_ELEMENTS // _call_elements(op, boxes, equal[0]), 1)
        for begin in range(0, len(equal), count):
            batches.append(CoreBatch(tuple(equal[begin : begin + count]), split, batch_work))
    return tuple(batches)


def single_batch(group: Group, work: Work) -> CoreBatch:
    """Return a batch of a single group, in the form whose errors name the element."""
    return CoreBatch((group,), None, _work_of_cores(work, None))


def _shape_key(design: Design, op: DeviceOp, boxes: Sequence[Mapping[int, Box]], group: Group) -> tuple:
    # Sliding windows and gather positions depend on the data of the core.
    if op.kind is Kind.GATHER or any(operand.windows for operand in design.operands):
        return (group,)
    inputs = [by_core[core] for core in group for by_core in boxes[:-1]]
    masks = [tuple(masked_ranges(design, box)) for box in inputs]
    return (*(box.geometry for box in inputs), *masks, boxes[-1][group[-1]].geometry)


def _call_elements(op: DeviceOp, boxes: Sequence[Mapping[int, Box]], group: Group) -> int:
    """Return the number of elements that a group processes, or the equivalent by time."""
    extents = [by_core[group[-1]].extents for by_core in boxes]
    if op.kind.on_array:
        return math.prod(map(max, *extents)) // _MULTIPLY_ADDS + 1
    return max(map(math.prod, extents))


def _split_form(
    design: Design, boxes: Sequence[Mapping[int, Box]], group: Group, work: Work
) -> SplitForm | None:
    """Return the split form of a group; None if the shapes of its operands do not match in split form."""
    inputs = [by_core[group[0]] for by_core in boxes[:-1]]
    output = boxes[-1][group[-1]]
    # Padding checks and masks work along labels.
    padded = any(box.valid[axis] != box.extents[axis] for box in inputs for axis in work.reduced)
    if design.masks or padded or any(operand.windows for operand in design.operands):
        return None
    # The last core of a split reduction may have a smaller slice than the others.
    if any(by_core[core].geometry != by_core[group[0]].geometry for by_core in boxes[:-1] for core in group):
        return None
    result = output.read_window if output.padded else output.whole
    windows = [*(box.read_window for box in inputs), result]
    if any(window.trim is not None for window in windows):
        return None
    inside = tuple(sorted({axis for window in windows for axis in window.inside}))
    split = [_with_axes(window, inside) for window in windows]
    if any(window is None for window in split):
        return None
    forms = tuple(window for window in split if window is not None)
    if any(len(set(counts) - {1}) > 1 for counts in zip(*(form.shape for form in forms), strict=True)):
        return None
    return SplitForm(forms, _axes_of_labels(len(design.sizes), inside))


def _with_axes(window: StridedWindow, inside: tuple[int, ...]) -> StridedWindow | None:
    """Return a window with labels ``inside`` split in sticks and slots; None if a label without slots has size > 1."""
    shape, strides, place = [], [], 0
    for axis in range(len(window.merged)):
        width = 2 if axis in window.inside else 1
        counts, steps = window.shape[place : place + width], window.strides[place : place + width]
        place += width
        if axis in inside and width == 1:
            if counts != (1,):
                return None
            counts, steps = (1, 1), (0, 0)
        shape, strides = [*shape, *counts], [*strides, *steps]
    return StridedWindow(inside, tuple(shape), tuple(strides), window.merged, None)


def _axes_of_labels(labels: int, inside: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    axes, place = [], 1
    for label in range(labels):
        width = 2 if label in inside else 1
        axes.append(tuple(range(place, place + width)))
        place += width
    return tuple(axes)


def _work_of_cores(work: Work, split: SplitForm | None) -> Work:
    """Return the work of an operation with its axes after the axis of cores."""
    axes = split.axes if split else tuple((axis + 1,) for axis in range(max(work.reduced, default=0) + 1))
    reduced = tuple(axis for label in work.reduced for axis in axes[label])
    return Work(reduced, work.varies, work.constants, work.accumulator)


def merged_shape(split: SplitForm, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the split form, with the axis of cores, merged to one axis for each label."""
    return tuple(math.prod(shape[axis] for axis in axes) for axes in split.axes)
