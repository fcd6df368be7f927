"""Checks the level *divided*."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spyre_mlir.dialects import sdsc
from spyre_mlir.division.slices import shares_of
from spyre_mlir.layout import BufferView
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import bytes_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes._memory import Memory, body_of, functions, is_compute
from spyre_mlir.passes._terms import fail
from spyre_mlir.passes.base import Pass
from spyre_mlir.target.device import device
from spyre_mlir.target.ops import COMBINE


@dataclass(frozen=True)
class VerifyDivided(Pass):
    """Every op says how it is divided: legal splits, a core map that gives each slice one owner, spans in limit.

    Recomputed from the IR alone: slices of whole sticks, none without work, at most as many as the device has
    cores, the map's values for all cores distinct and in range, partial results of a split reduction combined
    by a declared operation, and no core that addresses more of an HBM tensor than the device can span.
    """

    name: ClassVar[str] = "verify-divided"

    def run(self, module: ir.Operation) -> None:
        for func in functions(module):
            memory = Memory(func)
            for op in body_of(func):
                if is_compute(op):
                    opcode, space, _ = memory.space(op)
                    _check(op, opcode, space)


def _check(op: ir.Operation, opcode: str, space: Space) -> None:
    if sdsc.DIVISION not in op.attributes:
        raise fail(op, "this operation has no sdsc.division")
    division = sdsc.division_of(op)
    splits = division.splits
    if len(splits) != len(space.sizes):
        raise fail(op, f"the division names {len(splits)} dims, the operation has {len(space.sizes)}")
    cores = math.prod(splits)
    if not 1 <= cores <= device().cores:
        raise fail(op, f"the division wants {cores} cores, the device has {device().cores}")
    shares = shares_of(space.units, splits)
    for dim, (split, units) in enumerate(zip(splits, space.units, strict=True)):
        if (split - 1) * shares[dim] >= units:
            raise fail(op, f"dim {dim} has {units} rows or sticks, so the last of {split} slices has no work")
    _check_partial(op, opcode, space, splits)
    owners = set(division.owners)
    legal = all(0 <= slice_ < split for owner in owners for slice_, split in zip(owner, splits, strict=True))
    if len(owners) != cores or not legal:
        raise fail(op, f"the core map does not give each of the {cores} slices one core")
    elements = [
        share * extent // units
        for share, extent, units in zip(shares, space.padded, space.units, strict=True)
    ]
    for index, view in enumerate(space.views):
        span = _span_bytes(view, elements)
        if span > device().span_bytes:
            limit = device().span_bytes
            raise fail(
                op,
                f"a core addresses {span} bytes of operand {index} {list(view.shape)}; the limit is {limit}",
            )


def _check_partial(op: ir.Operation, opcode: str, space: Space, splits: tuple[int, ...]) -> None:
    """A split reduction says how its parts are combined; one dim at most, and none that is masked."""
    parts = [dim for dim in sorted(space.reduced) if splits[dim] > 1]
    given = ir.StringAttr(op.attributes[sdsc.COMBINE]).value if sdsc.COMBINE in op.attributes else None
    if not parts:
        if given is not None:
            raise fail(op, f"no reduction is split, so there is nothing to combine by '{given}'")
        return
    if given is None:
        raise fail(op, f"dim {parts[0]} is reduced and divided, but no one combines the partial results")
    if given != COMBINE[opcode]:
        raise fail(op, f"partial results of '{opcode}' are combined by '{COMBINE[opcode]}', not by '{given}'")
    if len(parts) > 1:
        raise fail(op, f"the reduced dims {parts} are divided; at most one may be")
    if parts[0] in sdsc.masks_of(op):
        raise fail(op, f"dim {parts[0]} is divided, but its mask is for the whole dim")


def _span_bytes(view: BufferView, shares: Sequence[int]) -> int:
    """Bytes from the first to the last element that one core addresses, with so many elements of each dim."""
    reach = view.elements_per_stick
    for axis in view.axes:
        positions = min(axis.size, -(-shares[axis.dim] // axis.divisor))
        reach += (positions - 1) * axis.stride
    return bytes_of(reach, view.dtype)
