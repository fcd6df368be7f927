"""The division of an operation whose cores touch of a buffer what the cores of another operation do."""

from __future__ import annotations

import functools

from spyre_mlir.division.cores import Division, core_order
from spyre_mlir.division.ownership import CoreView, Region, core_view, same_owners
from spyre_mlir.division.parts import why_apart
from spyre_mlir.division.slices import filled
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import BufferView, ViewError

#: Slices per dim, and the order in which core ids count them, the fastest dim first.
Mapping = tuple[tuple[int, ...], tuple[int, ...]]


@functools.lru_cache(maxsize=1 << 12)
def matching_division(space: Space, operand: int, wanted: CoreView, in_parts: bool = False) -> Mapping | None:
    """How to divide ``space`` so that the cores touch of the buffer of an operand what ``wanted`` says.

    ``in_parts``: or what that is a part of on each core, or a part of that. Dims that the operand does not have stay
    whole. None if there is no such division: where cores share a region or have none, or own pieces that are no
    slices of the operation's dims.
    """
    begins = _begins(space.views[operand], len(space.sizes), wanted.regions)
    if begins is None:
        return None
    found = [sorted({own[dim] for own in begins}) for dim in range(len(space.sizes))]
    splits = tuple(len(some) for some in found)
    if any(split > units for split, units in zip(splits, space.units, strict=True)):
        return None
    order = tuple(sorted(core_order(splits, ()), key=lambda dim: _step(begins, dim)))
    mapped = Division.mixed_radix(splits, order)
    if mapped.owners != tuple(tuple(map(list.index, found, own)) for own in begins):
        return None
    found_view = view_of(space, operand, mapped)
    if found_view is None or not (
        same_owners(found_view, wanted) or (in_parts and _contain(found_view, wanted))
    ):
        return None
    return splits, order


def _contain(one: CoreView, other: CoreView) -> bool:
    """Whether what each core touches in one is a part of what it touches in the other, in the same place on each."""
    return why_apart(one, other) is None or why_apart(other, one) is None


@functools.lru_cache(maxsize=1 << 12)
def slicing_alike(
    space: Space, operand: int, other: Space, touched: int, division: Division
) -> Mapping | None:
    """How to divide ``space`` so that its part of a buffer is sliced as another operation's part of it is.

    ``division`` is that of the ``other`` operation, whose operand ``touched`` lies in the buffer. Dims are the same if
    they go on by as many elements. None if the parts have no such dims in common.
    """
    own = {axis.stride: axis.dim for axis in space.views[operand].axes}
    theirs = {axis.dim: axis.stride for axis in other.views[touched].axes}
    dims = {dim: own.get(theirs.get(dim, 0)) for dim, split in enumerate(division.splits) if split > 1}
    splits, slices = [1] * len(space.sizes), [[0] * len(division.owners) for _ in space.sizes]
    for source, dim in dims.items():
        split = division.splits[source]
        if dim is None or split > space.units[dim] or filled(space.units[dim], split) < split:
            return None
        splits[dim], slices[dim] = split, [each[source] for each in division.owners]
    owners = list(zip(*slices, strict=True))
    order = tuple(sorted(core_order(splits, ()), key=lambda dim: _step(owners, dim)))
    mapped = Division.mixed_radix(splits, order)
    return (tuple(splits), order) if list(mapped.owners) == owners else None


def _begins(view: BufferView, rank: int, regions: tuple[Region | None, ...]) -> list[tuple[int, ...]] | None:
    """Where the region of each core begins along each dim, in elements."""
    found = [begin_of(view, rank, region) for region in regions]
    begins = [begin for begin in found if begin is not None]
    return begins if len(begins) == len(found) else None


def begin_of(view: BufferView, rank: int, region: Region | None) -> tuple[int, ...] | None:
    """Where a region begins along each of ``rank`` dims, in elements; None where there is none."""
    if region is None or region.start < view.offset:
        return None
    begin, rest = [0] * rank, region.start - view.offset
    for axis in sorted(view.axes, key=lambda axis: -axis.stride):
        position, rest = divmod(rest, axis.stride)
        begin[axis.dim] += position * axis.divisor
    return tuple(begin)


def _step(begins: list[tuple[int, ...]], dim: int) -> int:
    """How many cores follow each other before the slice of a dim changes; all cores where it never does."""
    return next((core for core, own in enumerate(begins) if own[dim] != begins[0][dim]), len(begins))


def view_of(space: Space, operand: int, division: Division) -> CoreView | None:
    """What the cores touch of an operand, None if that is no region of its buffer."""
    try:
        return core_view(space, operand, division)
    except ViewError:
        return None
