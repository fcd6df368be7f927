# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on a single design: formats, division, sticks per core, masks, the stick rule of its kind, and relayouts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from math import lcm

from spyre_mlir.bundle.core_slices import holders, iteration_of, lx_bytes, operand_shares, reduced_dims
from spyre_mlir.bundle.model import Design, HeldSlices, Operand
from spyre_mlir.layout.rules import violation
from spyre_mlir.target.formats import FORMATS
from spyre_mlir.target.ops import DEVICE_OPS, NEUTRAL, Kind


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
            yield f"{text} are not a value of the format {constant.data_format}."


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
            yield f"{dim} is padded, but '{design.opcode}' does not have a neutral value."


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
            yield f"The window {window.kernel} of {dim} is divided, or a dim of Tensor0; expected neither."
        if window.has_empty(design.sizes[dim]):
            yield f"A window of {dim} is padding alone; expected an element of Tensor0 in each."


def coverage(design: Design) -> Iterator[str]:
    for dim, size in design.sizes.items():
        slices, share = design.slices[dim], design.shares[dim]
        if not (slices - 1) * share < size <= slices * share:
            text = f"{slices} slices of {share} do not cover the {size} elements of {dim} exactly once"
            yield f"{text}, with something in each slice."


def whole_sticks(design: Design) -> Iterator[str]:
    # The stick dims of operands, with the least common multiple of their stick sizes.
    stick_dims: dict[str, int] = {}
    for operand in design.operands:
        for dim in (operand.stick_dim, *operand.other_elements):
            if operand.scale[dim] == 1:
                stick_dims[dim] = lcm(stick_dims.get(dim, 1), operand.per_stick(dim))
    for dim, lanes in stick_dims.items():
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


def stick_rules(design: Design) -> Iterator[str]:
    """Check a design against the stick rule of its kind in ``layout/rules.py``, and the dims of its operands."""
    op = DEVICE_OPS[design.opcode]
    iteration = iteration_of(design)
    sticks = (
        operand.stick_dim if operand.scale[operand.stick_dim] == 1 else None for operand in design.operands
    )
    stick_dims = [None if stick is None else iteration.labels.index(stick) for stick in sticks]
    problems = [violation(design.opcode, iteration, stick_dims)]
    if op.kind in _DIM_RULES:
        problems += _DIM_RULES[op.kind](design)
    yield from (f"{problem}." for problem in problems if problem is not None)
    # Only the second input of an 8-bit matmul has pairs of the contracted dim in its sticks.
    for i, operand in enumerate(design.operands):
        expected = {"in": 2} if op.multiplies_bytes and i == 1 else {}
        if operand.other_elements != expected:
            text = (
                f"Tensor{i} has {_several(operand.other_elements)} next to {operand.stick_dim} in its stick"
            )
            yield f"{text}; expected {_several(expected)}."


def _several(counts: dict[str, int]) -> str:
    return " and ".join(f"{count} of {dim}" for dim, count in counts.items()) or "nothing"


def _adds_nothing(design: Design) -> Iterator[str]:
    source, output = design.operands[0], design.operands[-1]
    for dim in output.varying:
        if dim not in source.varying and design.sizes[dim] > 1:
            yield f"The output has the dim {dim} but the input does not"


def _matmul(design: Design) -> Iterator[str]:
    for i, absent in enumerate(("out", "mb", "in")):
        if absent in design.operands[i].varying and design.sizes[absent] > 1:
            yield f"Tensor{i} has the dim {absent}; expected an operand without it"


def _convolution(design: Design) -> Iterator[str]:
    source, kernel, output = (set(operand.varying) for operand in design.operands)
    kernels = {window.kernel for window in design.operands[0].windows.values()}
    if kernel - output != {"in", *kernels}:
        text = f"Tensor1 has the dims {sorted(kernel - output)} that the output lacks"
        yield f"{text}; expected in and the dims of the windows"
    if "out" in source or kernel & set(design.operands[0].windows):
        yield "Tensor0 has the dim out, or Tensor1 a dim that windows slide along"
    if output - source != {"out"}:
        yield f"The output has the dims {sorted(output - source)} that Tensor0 lacks; expected out alone"


def _pooling(design: Design) -> Iterator[str]:
    source, output = design.operands[0], design.operands[-1]
    kernels = {window.kernel for window in source.windows.values()}
    if set(source.varying) - set(output.varying) != kernels:
        yield "The output does not have the dims of the input without the dims of the windows"


def _gather(design: Design) -> Iterator[str]:
    index, table, output = design.operands
    positions, looked_up = set(index.listed), set(output.listed)
    rows = set(table.listed) - looked_up
    for i, operand in enumerate((index, table)):
        if operand.memory != "hbm":
            yield f"Tensor{i} is in {operand.memory}; expected an indirect access in device memory"
    if len(rows) != 1 or any(design.slices[dim] > 1 or dim == table.stick_dim for dim in rows):
        text = f"The table has the dims {sorted(rows)} in addition to the dims of the output"
        yield f"{text}; expected one, undivided and outside of the stick, that the positions count"
    # Any operand may have dims of one position.
    counting = {dim for dim, size in design.sizes.items() if size > 1}
    row = set(table.listed) - rows
    if (looked_up - positions) & counting != row & counting or positions & set(table.listed) & counting:
        yield "The output does not have the dims of the positions and of one row of the table"


#: Rules on the dims of operands, in addition to the stick rule.
_DIM_RULES: dict[Kind, Callable[[Design], Iterator[str]]] = {
    Kind.REDUCE_STICK: _adds_nothing,
    Kind.REDUCE_OTHER: _adds_nothing,
    Kind.RESTICKIFY: _adds_nothing,
    Kind.RELAYOUT: _adds_nothing,
    Kind.MATMUL: _matmul,
    Kind.CONVOLUTION: _convolution,
    Kind.POOLING: _pooling,
    Kind.GATHER: _gather,
}


def is_relayout(design: Design) -> bool:
    """Return whether a design redistributes a tensor over the LX of the cores."""
    return design.opcode in DEVICE_OPS and DEVICE_OPS[design.opcode].kind is Kind.RELAYOUT


def source_slices(design: Design) -> Iterator[str]:
    """Check that exactly the operands of a relayout have their own slices, and that the slices are well-formed."""
    for i, operand in enumerate(design.operands):
        if operand.held is None and is_relayout(design):
            yield f"Tensor{i} does not say what each core holds of it; expected slices of its own."
        elif operand.held is not None and not is_relayout(design):
            yield f"Tensor{i} has slices of its own; expected them only of the operands of a relayout."
        elif operand.held is not None:
            for problem in _malformed(design, operand, operand.held):
                yield f"Tensor{i} {problem}."


def _malformed(design: Design, operand: Operand, distribution: HeldSlices) -> Iterator[str]:
    dims = {dim for dim, scale in operand.scale.items() if scale == 1}
    by_core = [
        (f" on core {core}", slices)
        for core, slices in enumerate(distribution.core_slices)
        if slices is not None
    ]
    for what, named in (("", distribution.slices), *by_core):
        if named.keys() != dims:
            yield f"has slices{what} of {_list(named)}; expected slices of its dims, {_list(dims)}"
    if min(distribution.slices.values(), default=1) < 1:
        yield f"has {min(distribution.slices.values())} slices of a dim; expected at least 1"
    if len(distribution.core_slices) != design.cores:
        yield f"has the slices of {len(distribution.core_slices)} cores; expected the slices of {design.cores}"
    for what, slices in by_core:
        for dim, index in slices.items():
            if not 0 <= index < distribution.slices.get(dim, 1):
                limit = distribution.slices.get(dim, 1)
                yield f"has{what} the slice {index} of {dim}; expected 0 to {limit - 1}"


def lx_to_lx(design: Design) -> Iterator[str]:
    """Check that a relayout goes from LX to LX, and computes nothing."""
    for i, operand in enumerate(design.operands if is_relayout(design) else ()):
        if operand.memory != "lx":
            yield f"Tensor{i} is in {operand.memory}; expected the source and the result of a relayout in lx."
    if is_relayout(design) and (design.masks or design.constants):
        yield "It has masks or constants; expected none, a relayout moves the bits as they are."


def relayout(design: Design) -> Iterator[str]:
    """Check that a relayout goes from LX to LX, moves all data, and computes nothing."""
    if not is_relayout(design):
        return
    yield from lx_to_lx(design)
    source, result, index = design.operands[0], design.operands[-1], len(design.operands) - 1
    assert source.held is not None and result.held is not None
    yield from _not_held(design, source, source.held)
    # The slices of the design equal the slices of the result.
    received = holders(design, result)
    if not received:
        yield f"No core gets a slice of Tensor{index}; expected one that does."
    for dim, slices in result.held.slices.items():
        if slices != design.slices[dim]:
            text = f"Tensor{index} has {slices} slices of {dim}, the relayout {design.slices[dim]}"
            yield f"{text}; expected the relayout to have the slices of its result."
    for core, slices in received.items():
        if any(slices[dim] != design.core_slices[core][dim] for dim in result.held.slices):
            yield f"Core {core} gets another slice of Tensor{index} than the relayout says."


def _not_held(design: Design, source: Operand, held: HeldSlices) -> Iterator[str]:
    """Check that every slice is not empty and that some core holds it."""
    shares = operand_shares(design, source)
    for dim, slices in held.slices.items():
        if (slices - 1) * shares[dim] >= design.sizes[dim]:
            text = (
                f"{slices} slices of {shares[dim]} of Tensor0 do not cover the {design.sizes[dim]} elements"
            )
            # One message is enough: slices that no core holds follow from this.
            yield f"{text} of {dim} with something in each slice."
            return
    dims = sorted(held.slices)
    present = {tuple(core_slices[dim] for dim in dims) for core_slices in holders(design, source).values()}
    for slice_ in itertools.product(*(range(held.slices[dim]) for dim in dims)):
        if slice_ not in present:
            text = ", ".join(f"{dim} {index}" for dim, index in zip(dims, slice_, strict=True))
            yield f"No core holds the slice {text} of Tensor0."
            return


def disjoint(design: Design) -> Iterator[str]:
    """Check that source and result of a relayout are disjoint: a core may write before another core has read."""
    if not is_relayout(design):
        return
    source, result = (
        (operand.start[0], operand.start[0] + lx_bytes(design, operand)) for operand in design.operands
    )
    if source[0] < result[1] and result[0] < source[1]:
        text = (
            f"Tensor0 at [{source[0]}, {source[1]}) of lx and Tensor1 at [{result[0]}, {result[1]}) overlap"
        )
        yield f"{text}; expected source and result of a relayout to be disjoint."


def _list(dims: Iterable[str]) -> str:
    return ", ".join(sorted(dims)) or "none"
