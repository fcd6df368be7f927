# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on a single design: formats, division, sticks per core, masks."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from spyre_mlir.bundle.core_slices import reduced_dims
from spyre_mlir.bundle.model import Design
from spyre_mlir.target.formats import FORMATS
from spyre_mlir.target.ops import DEVICE_OPS, NEUTRAL


def unit(design: Design) -> Iterator[str]:
    expected = DEVICE_OPS[design.opcode].unit
    if design.unit != expected:
        yield f"It runs on the unit {design.unit!r}; expected {expected!r}."


def formats(design: Design) -> Iterator[str]:
    op = DEVICE_OPS[design.opcode]
    source = design.operands[op.first_data].data_format
    for i, operand in enumerate(design.operands):
        allowed = (op.result_format(source),) if i == op.arity else op.formats_of(i, source)
        if operand.data_format not in allowed:
            expected = " or ".join(allowed)
            yield f"Tensor{i} has the format {operand.data_format}; expected {expected}."
    if design.data_format not in (source, op.result_format(source)):
        expected = " or ".join(dict.fromkeys((source, op.result_format(source))))
        yield f"It computes in {design.data_format}; expected {expected}."


def stick_sizes(design: Design) -> Iterator[str]:
    for i, operand in enumerate(design.operands):
        form = FORMATS.get(operand.data_format)
        if form is None:
            continue
        count, expected = operand.elements_per_stick, form.stick_elements(design.target.stick_bytes)
        if count != expected:
            yield f"Tensor{i} has {count} elements per stick; expected {expected} of {form.name}."


def constants(design: Design) -> Iterator[str]:
    names = [constant.name for constant in design.constants]
    for missing in sorted(set(DEVICE_OPS[design.opcode].constants) - set(names)):
        yield f"It has no constant {missing!r}, which the operation needs."
    if len(set(names)) != len(names):
        yield "Two of its constants have the same name."
    for constant in design.constants:
        form = FORMATS.get(constant.data_format)
        if form is None or not 0 <= constant.bits < 1 << 8 * form.bytes:
            text = f"The bits {constant.bits} of the constant {constant.name!r}"
            yield f"{text} are no value of the format {constant.data_format}."


def masks(design: Design) -> Iterator[str]:
    # -1 means no constant, which only a design without masks may have.
    lowest = 0 if design.masks else -1
    if not lowest <= design.mask_constant < len(design.constants):
        index = design.mask_constant
        yield f"Its mask constant is {index}; expected the number of one of its constants."
    for dim, (start, length) in design.masks.items():
        if start < 0 or length < 1 or start + length > design.sizes[dim]:
            limit = f"[0, {design.sizes[dim]})"
            yield f"The mask [{start}, {start + length}) of {dim} is not inside {limit}."


def padding(design: Design) -> Iterator[str]:
    for dim, pad in design.padding.items():
        if not 0 <= pad < design.sizes[dim]:
            size = design.sizes[dim]
            yield f"The padding of {dim} is {pad}; expected less than its size {size}."
    if design.opcode in NEUTRAL:
        return
    for dim in sorted(reduced_dims(design)):
        if design.padding.get(dim):
            yield f"{dim} is padded, but '{design.opcode}' has no value that leaves its result as it is."


def windows(design: Design) -> Iterator[str]:
    """Check that windows slide over the first operand, lie inside of it, and contain an element each."""
    slides = DEVICE_OPS[design.opcode].kind.slides
    for i, operand in enumerate(design.operands):
        is_halo = operand.held is not None and i == len(design.operands) - 1
        if operand.windows and not (slides and i == 0) and not is_halo:
            yield f"Windows slide over Tensor{i}; expected them over Tensor0 of convolutions and poolings."
    if slides and not design.operands[0].windows:
        yield f"No window slides over Tensor0; '{design.opcode}' needs one."
    for dim, window in design.operands[0].windows.items():
        if window.kernel in design.operands[0].dim_order or design.slices[window.kernel] > 1:
            yield f"The window {window.kernel} of {dim} is divided, or a dim of Tensor0; expected it whole and apart."
        if window.has_empty(design.sizes[dim]):
            yield f"A window of {dim} is padding alone; expected an element of Tensor0 in each."


def coverage(design: Design) -> Iterator[str]:
    for dim, size in design.sizes.items():
        slices, share = design.slices[dim], design.shares[dim]
        if not (slices - 1) * share < size <= slices * share:
            text = f"{slices} slices of {share} do not cover the {size} elements of {dim} exactly once"
            yield f"{text}, with something in each slice."


def whole_sticks(design: Design) -> Iterator[str]:
    for dim, lanes in _stick_dims(design).items():
        if design.sizes[dim] % lanes:
            text = f"{dim} is a stick dim of size {design.sizes[dim]}"
            yield f"{text}; expected a padded size, a multiple of {lanes}."
        if design.shares[dim] % lanes:
            text = f"Each core has {design.shares[dim]} elements of the stick dim {dim}"
            yield f"{text}; expected whole sticks of {lanes}."
    for i, operand in enumerate(design.operands):
        for dim, gap in operand.gap.items():
            if gap % operand.per_stick(dim):
                yield f"Tensor{i} has a gap of {gap} on its stick dim; expected whole sticks."


def _stick_dims(design: Design) -> dict[str, int]:
    """Return the dims that are the stick dim of some operand, with the least common multiple of their stick sizes."""
    dims: dict[str, int] = {}
    for operand in design.operands:
        for dim in (operand.stick_dim, *operand.beside):
            if operand.scale[dim] == 1:
                dims[dim] = lcm(dims.get(dim, 1), operand.per_stick(dim))
    return dims
