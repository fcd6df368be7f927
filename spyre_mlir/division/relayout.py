# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Relayout of a buffer in LX to other cores than those that hold it: the parts of each core before and after. No IR.

The ring moves the buffer from one *distribution* to another, an LX relayout of the "LX Relayout SHUFFLE Contract":
all-to-all if each core ends up with a different part, all-gather if the cores of a group end up with the same part.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from spyre_mlir.division.cores import Division, finishers_of
from spyre_mlir.division.matching import begins_of
from spyre_mlir.division.ownership import CoreView, core_view
from spyre_mlir.division.slices import shares_of
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import BufferView, ViewError
from spyre_mlir.records import dataclass
from spyre_mlir.target.sliding import Sliding
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class Distribution:
    """Slices per dim of a buffer, and for each core the slice of each dim that its LX holds.

    Several cores may hold the same slices.

    Attributes:
        splits: The slices of each dim.
        owners: For each core the index of its slice of each dim; None for a core that holds nothing.
        halos: For each dim the part of the neighbours' slices that a core holds, or None; empty if no dim has a halo.
    """

    splits: tuple[int, ...]
    owners: tuple[tuple[int, ...] | None, ...]
    halos: tuple[Sliding | None, ...] = ()

    def on(self, cores: int) -> Distribution:
        """Return the distribution over ``cores`` cores; additional cores hold nothing."""
        missing = cores - len(self.owners)
        return replace(self, owners=self.owners + (None,) * missing) if missing > 0 else self


@dataclass(frozen=True)
class Relayout:
    """The change of a buffer from one distribution to another.

    A position of the dims is one stick; a dim without sticks has one position. Slice ``s`` of a dim covers the units
    ``[s * share, min((s + 1) * share, units))`` with ``share = ceil(units / splits)``. In the LX of a core the sticks
    of its slices are contiguous, with whole shares.

    Attributes:
        units: The sticks along each dim.
        order: The order of the dims in LX, the innermost first.
        source: The distribution before.
        target: The distribution after.
        device: The target that has the ring.
    """

    units: tuple[int, ...]
    order: tuple[int, ...]
    source: Distribution
    target: Distribution
    device: Target

    def __post_init__(self) -> None:
        missing = next((dim for dim in range(len(self.units)) if dim not in self.order), None)
        if missing is not None:
            raise ValueError(f"dim {missing} of the buffer has no place in the order of LX")


def relayout(space: Space, written: CoreView, division: Division) -> Relayout | None:
    """Return the relayout of a buffer in LX from its ``written`` distribution to the cores of a copy.

    ``space`` and ``division`` belong to the copy, whose source and target are two views of one buffer's layout. Dims
    in neither view are copies. Both distributions are over the cores that have something before or after. None if the
    parts of the cores are not slices of the copy's dims, or if no core holds some stick.
    """
    source = distribution_of(space, 0, written)
    if source is None:
        return None
    dims = tuple(sorted(space.present[1]))
    owners = _owners_of(division, dims)
    halos = tuple(dict(space.halos).get(dim) for dim in dims) if space.halos else ()
    target = Distribution(tuple(division.splits[dim] for dim in dims), owners, halos)
    cores, units = max(len(source.owners), len(owners)), tuple(space.positions[dim] for dim in dims)
    return Relayout(units, _order(space.views[1], dims), source.on(cores), target.on(cores), space.target)


@functools.lru_cache(maxsize=1 << 10)
def _owners_of(division: Division, dims: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return for each core its slices of the given dims."""
    return tuple(tuple(slices[dim] for dim in dims) for slices in division.owners)


@functools.lru_cache(maxsize=1 << 13)
def distribution_of(space: Space, operand: int, view: CoreView) -> Distribution | None:
    """Return the distribution of an operand's buffer over the cores, in slices of the operand's dims.

    None if the regions of the cores are not such slices, or if they do not cover the whole buffer.
    """
    dims = sorted(space.present[operand])
    begins = begins_of(space.views[operand], len(space.sizes), view.regions)
    begins_in_lx = [begin for begin in begins if begin is not None]
    if view.partial or not begins_in_lx:
        return None
    starts = {dim: sorted({begin[dim] for begin in begins_in_lx}) for dim in dims}
    splits = tuple(len(starts[dim]) if dim in starts else 1 for dim in range(len(space.sizes)))
    if any(split > units for split, units in zip(splits, space.units, strict=True)):
        return None
    owners = tuple(
        tuple(starts[dim].index(slices[dim]) if dim in starts else 0 for dim in range(len(splits)))
        for slices in (begin or begins_in_lx[0] for begin in begins)
    )
    # Begins do not determine the extent of regions: check that the division gives the same regions.
    try:
        divided = core_view(space, operand, Division(splits, owners))
    except ViewError:
        return None
    pairs = zip(view.regions, divided.regions, strict=True)
    if any(region is not None and region != other for region, other in pairs) or divided.image != view.image:
        return None
    owned = tuple(
        None if begin is None else tuple(slices[dim] for dim in dims)
        for begin, slices in zip(begins, owners, strict=True)
    )
    distribution = Distribution(tuple(splits[dim] for dim in dims), owned)
    return distribution if _is_whole(distribution, [space.units[dim] for dim in dims]) else None


def held_view(space: Space, operand: int, division: Division) -> CoreView:
    """Return the view that the cores have in LX after an operation; after a split reduction, only finishing cores.

    Raises ``ViewError`` if a dim lies in several axes and the slices do not fall on their boundaries.
    """
    view = core_view(space, operand, division)
    if not view.partial:
        return view
    finishers = frozenset(finishers_of(division, space.reduced))
    regions = tuple(region if core in finishers else None for core, region in enumerate(view.regions))
    return CoreView(regions, False, view.slices, view.image)


def _order(view: BufferView, dims: Sequence[int]) -> tuple[int, ...]:
    """Return the dims of a buffer by rising stride, as indices into ``dims``; dims without a stride are outermost."""
    by_stride = [axis.dim for axis in sorted(view.axes, key=lambda axis: axis.stride)]
    order = dict.fromkeys([*by_stride, *dims])
    return tuple(list(dims).index(dim) for dim in order)


def _is_whole(distribution: Distribution, units: Sequence[int]) -> bool:
    """Return whether the cores together hold all slices."""
    filled = 1
    for count, share in zip(units, shares_of(units, distribution.splits), strict=True):
        filled *= -(-count // share)
    return len({slices for slices in distribution.owners if slices is not None}) == filled
