# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The division with which an operation accesses a buffer on each core as another operation does."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence

from spyre_mlir.division.cores import Division, core_order
from spyre_mlir.division.ownership import CoreRegion, CoreView, core_view, is_accessible, same_owners
from spyre_mlir.division.slices import filled
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import BufferView, ViewError

#: Slices per dim, and the order in which core ids count them, the fastest dim first.
Mapping = tuple[tuple[int, ...], tuple[int, ...]]


@functools.lru_cache(maxsize=1 << 12)
def matching_division(space: Space, operand: int, view: CoreView, in_parts: bool = False) -> Mapping | None:
    """Return the mapping of ``space`` with which the cores access ``view`` of the buffer of an operand.

    With ``in_parts``, the accessed regions may also be subviews of ``view`` or contain it, on each core. Dims that the
    operand does not have stay whole. None if there is no such division: cores share a region or have none, or own
    regions that are not slices of the operation's dims.
    """
    begins_or_none = begins_of(space.footprint(operand), len(space.sizes), view.regions)
    begins = [begin for begin in begins_or_none if begin is not None]
    if len(begins) < len(begins_or_none):
        return None
    starts = [sorted({begin[dim] for begin in begins}) for dim in range(len(space.sizes))]
    # A slice is identified by its begin: the number of different begins is the number of slices.
    splits = tuple(len(starts_of_dim) for starts_of_dim in starts)
    if any(split > units for split, units in zip(splits, space.units, strict=True)):
        return None
    mapping = _mapping(space, splits, [tuple(map(list.index, starts, begin)) for begin in begins])
    mapped_view = None if mapping is None else view_of(space, operand, Division.mixed_radix(*mapping))
    if mapped_view is None:
        return None
    pairs = ((mapped_view, view), (view, mapped_view)) if in_parts else ()
    is_part = any(is_accessible(whole, part) for whole, part in pairs)
    return mapping if same_owners(mapped_view, view) or is_part else None


@functools.lru_cache(maxsize=1 << 12)
def same_slices(
    space: Space, operand: int, other: Space, other_operand: int, division: Division
) -> Mapping | None:
    """Return the mapping of ``space`` that slices its part of a buffer as another operation slices its own part.

    ``division`` belongs to the operation of space ``other``, whose operand ``other_operand`` is in the buffer. Dims
    with equal strides correspond. None if a split dim has no corresponding dim.
    """
    dim_of_stride = {axis.stride: axis.dim for axis in space.views[operand].axes}
    stride_of_dim = {axis.dim: axis.stride for axis in other.views[other_operand].axes}
    dims = {
        dim: dim_of_stride.get(stride_of_dim.get(dim, 0))
        for dim, split in enumerate(division.splits)
        if split > 1
    }
    splits, slices = [1] * len(space.sizes), [[0] * len(division.owners) for _ in space.sizes]
    for source, dim in dims.items():
        split = division.splits[source]
        # A shorter dim may not fill this number of slices.
        if dim is None or split > space.units[dim] or filled(space.units[dim], split) < split:
            return None
        splits[dim], slices[dim] = split, [owner[source] for owner in division.owners]
    return _mapping(space, tuple(splits), list(zip(*slices, strict=True)))


def begins_of(
    view: BufferView, rank: int, regions: Iterable[CoreRegion | None]
) -> list[tuple[int, ...] | None]:
    """Return where each region begins along each of ``rank`` dims, in elements; None for a core without a region."""
    # By falling stride: the remainder of a division belongs to the smaller strides.
    axes = [(axis.stride, axis.dim, axis.divisor) for axis in view.axes]
    axes.sort(key=operator.itemgetter(0), reverse=True)
    begins: list[tuple[int, ...] | None] = []
    for region in regions:
        if region is None or region.start < view.offset:
            begins.append(None)
            continue
        begin, rest = [0] * rank, region.start - view.offset
        for stride, dim, divisor in axes:
            position, rest = divmod(rest, stride)
            begin[dim] += position * divisor
        begins.append(tuple(begin))
    return begins


def _mapping(space: Space, splits: tuple[int, ...], owners: Sequence[tuple[int, ...]]) -> Mapping | None:
    """Return the mapping in which core ids count slices to these ``owners``; None if they cannot.

    The order of dims is free, but along a dim core ids count slices upwards: IR has no other mappings.
    """
    if not space.has_equal_slices(splits):
        return None

    def step(dim: int) -> int:
        """Return the number of cores before the slice of a dim changes; all cores if it never changes."""
        changed = (core for core, slices in enumerate(owners) if slices[dim] != owners[0][dim])
        return next(changed, len(owners))

    order = tuple(sorted(core_order(splits, ()), key=step))
    return (splits, order) if Division.mixed_radix(splits, order).owners == tuple(owners) else None


def view_of(space: Space, operand: int, division: Division) -> CoreView | None:
    """Return the view of an operand that the cores access; None if a core's part is not a region of the buffer."""
    try:
        return core_view(space, operand, division)
    except ViewError:
        return None
