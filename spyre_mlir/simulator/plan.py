# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A design prepared for runs: boxes per operand and core, reduced dims, constants. Built once per design."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.bundle import rules_design, rules_memory, rules_structure
from spyre_mlir.bundle.model import Design, Operand
from spyre_mlir.records import dataclass
from spyre_mlir.simulator.boxes import Box, StridedWindow, element_strides, make_box, slices_of
from spyre_mlir.simulator.run_outcome import SimulationError
from spyre_mlir.simulator.workers import compiled
from spyre_mlir.target.expressions import SCALARS, evaluate
from spyre_mlir.target.formats import constant_bits, constant_value
from spyre_mlir.target.ops import COMBINE, DEVICE_OPS, DL16, NEUTRAL, DeviceOp, Kind, scalar_expression

# Numpy functions of all device operations, from their expressions in the table of operations.
#
# Operands are float32 (int32 for the integer operations) with one axis per iteration label, of extent 1 where
# an operand does not vary, so that numpy broadcasting matches the device. Sums and products over many elements are
# accumulated in float64, because the order in numpy depends on the shape of a slice, and the result bits must not.
# Long products of 16-bit numbers are the exception (``plan.make_plan``).

Array = NDArray[Any]
Constants = Mapping[str, float]


_FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class Work:
    """Axes and constants that the function of an operation needs in addition to its operands.

    ``reduced`` are the axes that the result lacks; ``varies[k]`` states for each axis whether operand ``k`` has it
    (the result is last). Products are summed in the type ``accumulator``.
    """

    reduced: tuple[int, ...] = ()
    varies: tuple[tuple[bool, ...], ...] = ()
    constants: Constants = field(default_factory=dict)
    accumulator: np.dtype = _FLOAT64


def compute(opcode: str, operands: Sequence[Array], work: Work) -> Array:
    """Return the result of one operation on one core, in the numbers of its operands."""
    op = DEVICE_OPS[opcode]
    if op.kind in (Kind.MATMUL, Kind.CONVOLUTION):
        # Contract the labels that both inputs have and the result lacks; labels of all three are batches.
        # Leading axes before the axes of labels, such as an axis of cores, are broadcast batches.
        has_left, has_right, has_out = work.varies
        axes = range(len(has_out))
        front = operands[0].ndim - len(has_out)
        batch = [a for a in axes if has_left[a] and has_right[a] and has_out[a]]
        rows = [a for a in axes if has_left[a] and not has_right[a]]
        columns = [a for a in axes if has_right[a] and not has_left[a]]
        inner = [a for a in axes if has_left[a] and has_right[a] and not has_out[a]]
        # The last bit of a float32 product depends on the shape, and so on the slices of the cores.
        lhs, rhs = (operand.astype(work.accumulator, copy=False) for operand in operands)
        with np.errstate(all="ignore"):
            product = np.matmul(
                _grouped(lhs, front, batch, rows, inner), _grouped(rhs, front, batch, inner, columns)
            )
        order = [*batch, *rows, *columns, *(a for a in axes if a not in {*batch, *rows, *columns})]
        sizes = [(lhs if has_left[a] else rhs).shape[front + a] if has_out[a] else 1 for a in axes]
        result = product.astype(np.float32, copy=False)
        result = result.reshape(*product.shape[:front], *(sizes[a] for a in order))
        return result.transpose(*range(front), *(front + int(place) for place in np.argsort(order)))
    if op.kind is Kind.GATHER:
        # The positions were checked before.
        return np.take_along_axis(operands[1], operands[0].view(np.int32), work.reduced[0])
    if op.expression is None:
        return operands[0]
    values = dict(zip(op.operands, operands, strict=True)) | dict(work.constants)
    elements = evaluate(scalar_expression(op.expression), values)
    return elements if op.combine is None else _reduced(op.combine, elements, work.reduced)


#: The number of elements from which compiled sums are faster.
_COMPILED = 1 << 16


def _reduced(combine: str, elements: Array, axes: tuple[int, ...]) -> Array:
    function = cast(np.ufunc, SCALARS[combine].compute)
    # Axes with large strides first, because numpy then reduces whole rows.
    order = sorted(axes, key=lambda axis: -abs(elements.strides[axis]))
    with np.errstate(all="ignore"):
        if combine in ("maximum", "minimum"):
            # The function returns one of its operands, so float64 would not change the result.
            total = elements
            for axis in order:
                total = function.reduce(total, axis, keepdims=True)
            if len(order) < 2 or total.all():
                return total
            # The order decides which of two zeros with different signs is chosen: use the order of the labels.
            return function.reduce(np.ascontiguousarray(elements), tuple(sorted(order)), keepdims=True)
        if combine == "add" and elements.dtype == np.float32 and elements.size >= _COMPILED:
            total = compiled().add_along(elements, order[0])
        else:
            total = function.reduce(elements, order[0], keepdims=True, dtype=np.float64) if axes else elements
        for axis in order[1:]:
            total = function.reduce(total, axis, keepdims=True)
        return np.asarray(total, elements.dtype)


def _grouped(array: Array, front: int, *groups: list[int]) -> Array:
    """Return ``array`` with three axes after the ``front`` axes: one per group of axes; other axes have extent 1."""
    order = [axis for group in groups for axis in group]
    rest = [axis for axis in range(array.ndim - front) if axis not in order]
    shape = [math.prod(array.shape[front + axis] for axis in group) for group in groups]
    array = array.transpose(*range(front), *(front + axis for axis in (*order, *rest)))
    return array.reshape(*array.shape[:front], *shape)


def combine_partials(opcode: str, partials: Sequence[Array]) -> Array:
    """Return the value of a reduction that several cores share, combined in the order of their slices."""
    if len(partials) == 1:
        return partials[0]
    function = SCALARS[COMBINE[opcode]].compute
    # Combine in the order of the ring: the order decides the last bit.
    total = partials[0]
    with np.errstate(all="ignore"):
        for partial in partials[1:]:
            total = function(total, partial)
    return total


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
        inputs = [by_core[core] for core in group for by_core in boxes[:-1]]
        masks = [tuple(masked_ranges(design, box)) for box in inputs]
        key = (*(box.geometry for box in inputs), *masks, boxes[-1][group[-1]].geometry)
        # Sliding windows and gather positions depend on the data of the core.
        is_alone = op.kind is Kind.GATHER or any(operand.windows for operand in design.operands)
        by_shape.setdefault((group,) if is_alone else key, []).append(group)
    batches = []
    for equal in by_shape.values():
        split = None if op.kind in _BY_CORE else _split_form(design, boxes, equal[0], work)
        batch_work = _work_of_cores(work, split)
        # The elements that a group processes, or the equivalent by time.
        extents = [by_core[equal[0][-1]].extents for by_core in boxes]
        elements = max(map(math.prod, extents))
        if op.kind.on_array:
            elements = math.prod(map(max, *extents)) // _MULTIPLY_ADDS + 1
        count = max(_CALL_ELEMENTS // elements, 1)
        for begin in range(0, len(equal), count):
            batches.append(CoreBatch(tuple(equal[begin : begin + count]), split, batch_work))
    return tuple(batches)


def single_batch(group: Group, work: Work) -> CoreBatch:
    """Return a batch of a single group, in the form whose errors name the element."""
    return CoreBatch((group,), None, _work_of_cores(work, None))


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
    forms = []
    for window in windows:
        # Each label ``inside`` has two axes, sticks and slots; a label without slots must have one position.
        shape, strides = [], []
        for axis, place in enumerate(window.stick_axes):
            end = place + (2 if axis in window.inside else 1)
            counts, steps = window.shape[place:end], window.strides[place:end]
            if axis in inside and axis not in window.inside:
                if counts != (1,):
                    return None
                counts, steps = (1, 1), (0, 0)
            shape, strides = [*shape, *counts], [*strides, *steps]
        forms.append(StridedWindow(inside, tuple(shape), tuple(strides), window.merged, None))
    if any(len(set(counts) - {1}) > 1 for counts in zip(*(form.shape for form in forms), strict=True)):
        return None
    axes, places = [], itertools.count(1)
    for label in range(len(design.sizes)):
        axes.append(tuple(itertools.islice(places, 2 if label in inside else 1)))
    return SplitForm(tuple(forms), tuple(axes))


def _work_of_cores(work: Work, split: SplitForm | None) -> Work:
    """Return the work of an operation with its axes after the axis of cores."""
    axes = split.axes if split else tuple((axis + 1,) for axis in range(max(work.reduced, default=0) + 1))
    reduced = tuple(axis for label in work.reduced for axis in axes[label])
    return Work(reduced, work.varies, work.constants, work.accumulator)


#: The number of multiply-adds from which an operation sums in float32, which is twice as fast; below, sums are exact.
_FLOAT32_MULTIPLY_ADDS = 1 << 24


@dataclass(frozen=True)
class Plan:
    """A design prepared for runs. ``boxes[k][c]`` is the part of operand ``k`` on core ``c``, for cores that have one.

    Equal boxes are one object. ``groups`` lists the cores that share each part of the result, in the order of their
    partial sums; the last core writes. ``mask_value`` is set if the design has masks. ``neutral`` are the numbers that
    do not change a reduction: in a format without infinity, its last number represents infinity.
    """

    design: Design
    op: DeviceOp
    boxes: tuple[dict[int, Box], ...]
    work: Work
    groups: tuple[tuple[int, ...], ...]
    mask_value: float | None
    neutral: tuple[float, ...]

    @functools.cached_property
    def batches(self) -> tuple[CoreBatch, ...]:
        """The groups, divided into the calls that compute them."""
        return make_batches(self.design, self.op, self.boxes, self.groups, self.work)

    @property
    def elementwise(self) -> bool:
        return self.op.kind.is_elementwise


#: The rules on a design that a run relies on; each rule relies on the rules before it.
_RULES = (
    rules_structure.known_opcode, rules_structure.arity, rules_structure.dims_declared,
    rules_structure.operand_dims, rules_structure.core_mapping, rules_structure.start_addresses,
    rules_design.source_slices, rules_design.lx_to_lx, rules_design.formats, rules_design.stick_sizes,
    rules_design.constants, rules_design.masks, rules_design.windows, rules_design.coverage,
    rules_design.whole_sticks, rules_design.stick_rules, rules_memory.restickify_source,
)  # fmt: skip


def make_plan(design: Design, tensors: tuple[str, ...]) -> Plan:
    """Check a design and lay out its operands; messages name the operands by ``tensors``."""
    for rule in _RULES:
        for sentence in rule(design):
            number = re.match(r"Tensor(\d+)", sentence)
            tensor = None if number is None else tensors[int(number[1])]
            raise SimulationError("design", sentence, design=design, tensor=tensor)
    op, labels = DEVICE_OPS[design.opcode], tuple(design.sizes)
    varying = [frozenset(operand.varying) for operand in design.operands]
    reduced = frozenset().union(*varying[:-1]) - varying[-1]
    # The products of 16-bit numbers are exact in float32; the error of their sum is far below the error of rounding it.
    is_long = math.prod(design.sizes.values()) >= _FLOAT32_MULTIPLY_ADDS
    is_float32 = is_long and op.kind.on_array and op.formats == (DL16,)
    boxes = tuple(_boxes(design, operand, reduced) for operand in design.operands)
    constants = {c.name: constant_value(c.bits, c.data_format) for c in design.constants}
    mask_value, neutral = None, ()
    if design.masks:
        constant = design.constants[design.mask_constant]
        mask_value = constant_value(constant.bits, constant.data_format)
    if design.opcode in NEUTRAL:
        value, form = NEUTRAL[design.opcode], design.operands[0].data_format
        # The last number of a format without infinity represents infinity, so both are neutral.
        neutral = (value, constant_value(constant_bits(value, form), form))
    work = Work(
        reduced=tuple(axis for axis, label in enumerate(labels) if label in reduced),
        varies=tuple(tuple(label in dims for label in labels) for dims in varying),
        constants=constants,
        accumulator=np.dtype(np.float32 if is_float32 else np.float64),
    )
    return Plan(design, op, boxes, work, _groups(design, reduced, varying[-1]), mask_value, neutral)


def _boxes(design: Design, operand: Operand, reduced: frozenset[str]) -> dict[int, Box]:
    varying, strides = frozenset(operand.listed), element_strides(design, operand)
    # Equal boxes are one object, which identifies accesses that share a load (``Access.key``).
    known: dict[tuple[int, ...], Box] = {}
    boxes: dict[int, Box] = {}
    for core in range(design.cores):
        slices = slices_of(design, operand, core)
        if slices is None:
            continue
        key = tuple(slices.get(label, 0) for label in design.sizes if label in varying)
        if key not in known:
            known[key] = make_box(design, operand, core, reduced, varying, strides)
        boxes[core] = known[key]
    return boxes


def _groups(design: Design, reduced: frozenset[str], result: frozenset[str]) -> tuple[tuple[int, ...], ...]:
    """Return the cores by the part of the result they compute; only in a split reduction do cores share a part."""
    if all(design.slices.get(label, 1) == 1 for label in reduced):
        return tuple((core,) for core in range(design.cores))
    groups: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    for core, slices in enumerate(design.core_slices):
        place, part = (
            tuple(slices.get(label, 0) for label in design.sizes if label in dims)
            for dims in (result, reduced)
        )
        groups.setdefault(place, {})[part] = core
    return tuple(tuple(group[part] for part in sorted(group)) for group in groups.values())
