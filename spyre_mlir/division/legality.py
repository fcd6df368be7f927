# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Legality checks of divisions that users write."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spyre_mlir.division.slices import filled
from spyre_mlir.division.spans import out_of_reach, span_bytes
from spyre_mlir.layout.space import Space


def division_problem(
    space: Space,
    splits: Sequence[int],
    cores: int,
    blocked: frozenset[int] = frozenset(),
    combines: bool = True,
    exempt: frozenset[int] = frozenset(),
) -> str | None:
    """Return why an operation cannot have ``splits`` slices per dim on at most ``cores`` cores; None if it can.

    The last slice of a dim may be smaller. ``blocked`` dims stay whole; ``combines`` says whether partial results of
    the operation can be combined; ``exempt`` operands may span any distance.
    """
    units = space.units
    if len(splits) != len(units):
        return f"the operation has {len(units)} dims, of {list(units)} rows or sticks"
    for dim, (split, count) in enumerate(zip(splits, units, strict=True)):
        problem = _dim_problem(dim, split, count, dim in blocked)
        if problem is not None:
            return problem
    if not space.has_equal_slices(splits):
        return "a dim that follows a run-time size has slices that are not equal at every size"
    if math.prod(splits) > cores:
        return f"it needs {math.prod(splits)} cores, there are {cores}"
    parts = [dim for dim in sorted(space.reduced) if splits[dim] > 1]
    if len(parts) > 1:
        return f"the reduced dims {parts} are both in several slices; at most one may be"
    if parts and not combines:
        return f"dim {parts[0]} is reduced, and partial results of this operation cannot be combined"
    return _span_problem(space, splits, exempt)


def core_order_problem(splits: Sequence[int], order: Sequence[int]) -> str | None:
    """Return why core ids cannot count slices in the given order of dims, the fastest first; None if they can."""
    split = [dim for dim, count in enumerate(splits) if count > 1]
    return (
        None if sorted(order) == split else f"it must name each of the dims in several slices once, {split}"
    )


def _dim_problem(dim: int, split: int, units: int, blocked: bool) -> str | None:
    if split < 1:
        return f"dim {dim} has {split} slices; it has at least 1"
    if split > 1 and blocked:
        return f"dim {dim} has masked padding, so that it stays whole"
    if filled(units, split) != split:
        return f"dim {dim} has {units} rows or sticks, so the last of {split} slices has no work"
    return None


def _span_problem(space: Space, splits: Sequence[int], exempt: frozenset[int]) -> str | None:
    operand = out_of_reach(space, splits, exempt)
    if operand is None:
        return None
    span = span_bytes(space, operand, splits)
    return f"a core would span {span} bytes of operand {operand}; the limit is {space.target.span_bytes}"
