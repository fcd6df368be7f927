# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rules on a relayout over the ring: the slices of its source on the cores, and the addresses."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from spyre_mlir.bundle.core_slices import holders, lx_bytes, operand_shares
from spyre_mlir.bundle.model import Design, HeldSlices, Operand
from spyre_mlir.target.ops import DEVICE_OPS, Kind


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
    for what, named in (("", distribution.slices), *_by_core(distribution)):
        if named.keys() != dims:
            yield f"has slices{what} of {_list(named)}; expected those of its dims, {_list(dims)}"
    if min(distribution.slices.values(), default=1) < 1:
        yield f"has {min(distribution.slices.values())} slices of a dim; expected at least 1"
    if len(distribution.core_slices) != design.cores:
        yield f"has the slices of {len(distribution.core_slices)} cores; expected those of {design.cores}"
    for what, slices in _by_core(distribution):
        for dim, index in slices.items():
            if not 0 <= index < distribution.slices.get(dim, 1):
                limit = distribution.slices.get(dim, 1)
                yield f"has{what} the slice {index} of {dim}; expected 0 to {limit - 1}"


def _by_core(distribution: HeldSlices) -> Iterator[tuple[str, dict[str, int]]]:
    for core, slices in enumerate(distribution.core_slices):
        if slices is not None:
            yield f" on core {core}", slices


def relayout(design: Design) -> Iterator[str]:
    """Check that a relayout goes from LX to LX, moves all data, and computes nothing."""
    if not is_relayout(design):
        return
    for i, operand in enumerate(design.operands):
        if operand.memory != "lx":
            yield f"Tensor{i} is in {operand.memory}; expected the source and the result of a relayout in lx."
    if design.masks or design.constants:
        yield "It has masks or constants; expected none, a relayout moves the bits as they are."
    yield from _not_held(design, design.operands[0])
    yield from _other_result(design, design.operands[-1])


def _other_result(design: Design, result: Operand) -> Iterator[str]:
    """Check that the slices of the design equal the slices of the result, and that some core gets one."""
    assert result.held is not None
    index = len(design.operands) - 1
    received = holders(design, result)
    if not received:
        yield f"No core gets a slice of Tensor{index}; expected one that does."
    for dim, slices in result.held.slices.items():
        if slices != design.slices[dim]:
            text = f"Tensor{index} has {slices} slices of {dim}, the relayout {design.slices[dim]}"
            yield f"{text}; expected the relayout to have those of its result."
    for core, slices in received.items():
        if any(slices[dim] != design.core_slices[core][dim] for dim in result.held.slices):
            yield f"Core {core} gets another slice of Tensor{index} than the relayout says."


def _not_held(design: Design, source: Operand) -> Iterator[str]:
    """Check that every slice is not empty and that some core holds it."""
    assert source.held is not None
    shares = operand_shares(design, source)
    for dim, slices in source.held.slices.items():
        if (slices - 1) * shares[dim] >= design.sizes[dim]:
            text = (
                f"{slices} slices of {shares[dim]} of Tensor0 do not cover the {design.sizes[dim]} elements"
            )
            # One message is enough: slices that no core holds follow from this.
            yield f"{text} of {dim} with something in each slice."
            return
    dims = sorted(source.held.slices)
    present = {tuple(core_slices[dim] for dim in dims) for core_slices in holders(design, source).values()}
    for slice_ in itertools.product(*(range(source.held.slices[dim]) for dim in dims)):
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
        yield f"{text}; expected source and result of a relayout to be apart."


def _list(dims: Iterable[str]) -> str:
    return ", ".join(sorted(dims)) or "none"
