"""Checks the level *divided*."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import ELEMENT_BYTES
from spyre_mlir.mlir import ir
from spyre_mlir.passes._memory import Memory, body_of, functions, is_compute
from spyre_mlir.passes._terms import fail
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device


@dataclass(frozen=True)
class VerifyDivided(Pass):
    """Every op says how it is divided: legal splits, a core map that gives each slice one owner, spans in limit.

    Recomputed from the IR alone: whole sticks per slice, at most as many slices as the device has cores,
    the map's values for all cores distinct and in range, and no core that addresses more of an HBM tensor
    than the device can span.
    """

    name: ClassVar[str] = "verify-divided"

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            memory = Memory(func)
            for op in body_of(func):
                if is_compute(op):
                    _check(op, memory.space(op)[1])


def _check(op: ir.Operation, space: Space) -> None:
    if sdsc.DIVISION not in op.attributes:
        raise fail(op, "this operation has no sdsc.division")
    division = sdsc.division_of(op)
    splits = division.splits
    if len(splits) != len(space.sizes):
        raise fail(op, f"the division names {len(splits)} dims, the operation has {len(space.sizes)}")
    cores = math.prod(splits)
    if not 1 <= cores <= device().cores:
        raise fail(op, f"the division wants {cores} cores, the device has {device().cores}")
    for dim, (split, units) in enumerate(zip(splits, space.units, strict=True)):
        if units % split:
            raise fail(op, f"dim {dim} has {units} rows or sticks, which {split} slices do not divide")
        if split > 1 and dim in space.reduced:
            raise fail(op, f"dim {dim} is reduced and divided, but no one combines the partial results")
    owners = set(division.owners)
    legal = all(0 <= slice_ < split for owner in owners for slice_, split in zip(owner, splits, strict=True))
    if len(owners) != cores or not legal:
        raise fail(op, f"the core map does not give each of the {cores} slices one core")
    for index, view in enumerate(space.views):
        span = _span_bytes(view, space, splits)
        if span > device().span_bytes:
            limit = device().span_bytes
            raise fail(
                op,
                f"a core addresses {span} bytes of operand {index} {list(view.shape)}; the limit is {limit}",
            )


def _span_bytes(view: BufferView, space: Space, splits: tuple[int, ...]) -> int:
    """Bytes from the first to the last element that one core addresses."""
    reach = view.elements_per_stick
    for axis in view.axes:
        positions = -(-axis.size // splits[axis.dim])
        reach += (positions - 1) * axis.stride
    return reach * ELEMENT_BYTES[view.dtype]
