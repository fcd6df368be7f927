# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A design prepared for runs: boxes per operand and core, reduced dims, constants. Built once per design."""

from __future__ import annotations

import functools
import math

import numpy as np

from spyre_mlir.bundle.model import Design
from spyre_mlir.records import dataclass
from spyre_mlir.simulator.boxes import Box, element_strides, make_box, operand_labels, slices_of
from spyre_mlir.simulator.compute import Work
from spyre_mlir.simulator.core_batches import CoreBatch, make_batches
from spyre_mlir.simulator.simulation_error import SimulationError
from spyre_mlir.target.formats import constant_bits, constant_value
from spyre_mlir.target.ops import DEVICE_OPS, DL16, INT32, NEUTRAL, DeviceOp, Kind

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


def make_plan(design: Design, tensors: tuple[str, ...]) -> Plan:
    """Check a design and lay out its operands; messages name the operands by ``tensors``."""
    op = _checked_op(design)
    _check_held(design, op)
    varying = [operand_labels(design, o, t) for o, t in zip(design.operands, tensors, strict=True)]
    _check_formats(design, op)
    _check_windows(design, op)
    varying[0] |= {window.kernel for window in design.operands[0].windows.values()}
    result = varying[-1]
    reduced = frozenset().union(*varying[:-1]) - result
    _check_reduced(design, op, varying[:-1], reduced)
    _check_relayout(design, op, varying)
    labels = tuple(design.sizes)
    return Plan(
        design=design,
        op=op,
        boxes=tuple(_boxes(design, k, tensor, reduced) for k, tensor in enumerate(tensors)),
        work=Work(
            reduced=tuple(axis for axis, label in enumerate(labels) if label in reduced),
            varies=tuple(tuple(label in dims for label in labels) for dims in varying),
            constants=_constants(design, op),
            accumulator=_accumulator(design, op),
        ),
        groups=_groups(design, reduced, result),
        mask_value=_mask_value(design),
        neutral=_neutral(design),
    )


def _accumulator(design: Design, op: DeviceOp) -> np.dtype:
    """Return the type in which a product is summed: float32 for a long product that is then rounded to 16 bits."""
    # The products of 16-bit numbers are exact in float32; the error of their sum is far below the error of rounding it.
    is_long = math.prod(design.sizes.values()) >= _FLOAT32_MULTIPLY_ADDS
    return np.dtype(np.float32 if is_long and op.kind.on_array and op.formats == (DL16,) else np.float64)


def _checked_op(design: Design) -> DeviceOp:
    op = DEVICE_OPS.get(design.opcode)
    if op is None:
        raise SimulationError("design", f"'{design.opcode}' is no known device operation.", design=design)
    if len(design.operands) != op.arity + 1:
        text = f"'{op.name}' takes {op.arity} inputs and one output, not {len(design.operands)} operands."
        raise SimulationError("design", text, design=design)
    if not 1 <= design.cores <= design.target.cores:
        text = f"it uses {design.cores} cores; 1 to {design.target.cores} are possible."
        raise SimulationError("design", text, design=design)
    for operand in design.operands:
        if len(operand.start) != design.cores:
            text = f"an operand has {len(operand.start)} start addresses for {design.cores} cores."
            raise SimulationError("design", text, design=design)
    if op.kind.takes_sticks_apart and design.cores > 1 and design.operands[0].memory == "lx":
        text = f"'{op.name}' on {design.cores} cores reads device memory, not LX."
        raise SimulationError("design", text, design=design)
    for label, (start, length) in design.masks.items():
        if label not in design.sizes or start < 0 or length < 0 or start + length > design.sizes[label]:
            text = f"the mask [{start}, {start + length}) is outside dim '{label}'."
            raise SimulationError("design", text, design=design)
    return op


def _check_formats(design: Design, op: DeviceOp) -> None:
    *sources, target = (operand.data_format for operand in design.operands)
    if op.index is not None and sources.pop(op.index) != INT32:
        raise SimulationError("design", f"'{op.name}' takes its positions as {INT32}.", design=design)
    # Copies move the bits of any format.
    known = set(sources) <= set(op.formats) or op.is_copy
    if not known or len(set(sources)) > 1:
        text = f"'{op.name}' cannot take {' and '.join(sources)}."
        raise SimulationError("design", text, design=design)
    if target != op.result_format(sources[0]):
        text = (
            f"'{op.name}' of {sources[0]} gives {op.result_format(sources[0])}, but the output is {target}."
        )
        raise SimulationError("design", text, design=design)


def _check_reduced(
    design: Design, op: DeviceOp, inputs: list[frozenset[str]], reduced: frozenset[str]
) -> None:
    if op.kind is Kind.GATHER and (
        len(reduced) != 1 or any(design.slices.get(label, 1) > 1 for label in reduced)
    ):
        text = f"the positions of '{op.name}' count one dim of its table, undivided, not {sorted(reduced)}."
        raise SimulationError("design", text, design=design)
    if reduced and not op.kind.reduces:
        text = f"the output of '{op.name}' lacks dim '{min(reduced)}' of its inputs, but nothing is reduced."
        raise SimulationError("design", text, design=design)
    lone = [label for label in sorted(reduced) if any(label not in labels for labels in inputs)]
    if op.kind in (Kind.MATMUL, Kind.CONVOLUTION) and lone:
        text = f"dim '{lone[0]}' is contracted but only one input has it."
        raise SimulationError("design", text, design=design)


def _check_windows(design: Design, op: DeviceOp) -> None:
    """Check that windows belong to the first operand of operations with windows, and that they are undivided."""
    if design.operands[0].windows and not op.kind.slides:
        raise SimulationError("design", f"no windows slide over what '{op.name}' reads.", design=design)
    for label, window in design.operands[0].windows.items():
        if not {label, window.kernel} <= design.sizes.keys() or design.slices.get(window.kernel, 1) > 1:
            text = f"the window of dim '{label}' is no undivided dim of the design."
            raise SimulationError("geometry", text, design=design)


def _check_held(design: Design, op: DeviceOp) -> None:
    """Check that exactly the operands of a relayout state their distribution over the cores."""
    for k, operand in enumerate(design.operands):
        distribution = operand.held
        if (distribution is not None) != (op.kind is Kind.RELAYOUT):
            text = "slices of its own are those of the operands of a relayout, which need them."
            raise SimulationError("design", f"operand {k}: {text}", design=design)
        if distribution is None:
            continue
        if len(distribution.core_slices) != design.cores:
            text = f"operand {k} lies on {len(distribution.core_slices)} cores, but it uses {design.cores}."
            raise SimulationError("design", text, design=design)
        empty = [label for label, count in distribution.slices.items() if count < 1]
        if empty:
            raise SimulationError("design", f"operand {k} has no slices of dim '{empty[0]}'.", design=design)
        for core, slices in enumerate(distribution.core_slices):
            for label, part in (slices or {}).items():
                if not 0 <= part < distribution.slices.get(label, 0):
                    text = f"slice {part} of dim '{label}' is none of operand {k}."
                    raise SimulationError("design", text, design=design, core=core)


def _check_relayout(design: Design, op: DeviceOp, varying: list[frozenset[str]]) -> None:
    """Check that a relayout goes from LX to LX and keeps dims and sticks."""
    if op.kind is not Kind.RELAYOUT:
        return
    source, target = design.operands
    if {source.memory, target.memory} != {"lx"}:
        raise SimulationError("design", f"'{op.name}' goes from LX to LX, not through HBM.", design=design)
    if varying[0] != varying[1] or source.stick_dim != target.stick_dim:
        raise SimulationError(
            "design", f"'{op.name}' keeps the dims and sticks of its source.", design=design
        )
    if design.masks:
        raise SimulationError(
            "design", f"'{op.name}' moves the bits as they are, without masks.", design=design
        )


def _boxes(design: Design, k: int, tensor: str, reduced: frozenset[str]) -> dict[int, Box]:
    operand = design.operands[k]
    varying = operand_labels(design, operand, tensor)
    strides = element_strides(design, operand, tensor)
    # Equal boxes are one object, which identifies accesses that share a load (``Access.key``).
    known: dict[tuple[int, ...], Box] = {}
    boxes: dict[int, Box] = {}
    for core in range(design.cores):
        slices = slices_of(design, operand, core)
        if slices is None:
            continue
        key = tuple(slices.get(label, 0) for label in design.sizes if label in varying)
        if key not in known:
            known[key] = make_box(design, operand, tensor, core, reduced, varying, strides)
        boxes[core] = known[key]
    return boxes


def _groups(design: Design, reduced: frozenset[str], result: frozenset[str]) -> tuple[tuple[int, ...], ...]:
    """Return the cores by the part of the result they compute; only in a split reduction do cores share a part."""
    if all(design.slices.get(label, 1) == 1 for label in reduced):
        return tuple((core,) for core in range(design.cores))
    result_labels = [label for label in design.sizes if label in result]
    summed = [label for label in design.sizes if label in reduced]
    groups: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
    for core, slices in enumerate(design.core_slices):
        group = groups.setdefault(tuple(slices.get(label, 0) for label in result_labels), {})
        part = tuple(slices.get(label, 0) for label in summed)
        if part in group:
            text = f"it works on the same slice as core {group[part]}."
            raise SimulationError("write-conflict", text, design=design, core=core)
        group[part] = core
    return tuple(tuple(group[part] for part in sorted(group)) for group in groups.values())


def _constants(design: Design, op: DeviceOp) -> dict[str, float]:
    values = {c.name: constant_value(c.bits, c.data_format) for c in design.constants}
    missing = [name for name in op.constants if name not in values]
    if missing:
        raise SimulationError("design", f"'{op.name}' needs the constant '{missing[0]}'.", design=design)
    return values


def _neutral(design: Design) -> tuple[float, ...]:
    if design.opcode not in NEUTRAL:
        return ()
    value, form = NEUTRAL[design.opcode], design.operands[0].data_format
    # In a format without infinity its last number represents infinity, so both are neutral.
    return (value, constant_value(constant_bits(value, form), form))


def _mask_value(design: Design) -> float | None:
    if not design.masks:
        return None
    if not 0 <= design.mask_constant < len(design.constants):
        raise SimulationError("design", "its mask names no constant.", design=design)
    constant = design.constants[design.mask_constant]
    return constant_value(constant.bits, constant.data_format)
