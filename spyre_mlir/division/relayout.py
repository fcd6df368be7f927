# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Relayout of a buffer in LX to other cores than those that hold it: the parts of each core before and after. No IR.

The ring moves the buffer from one *distribution* to another, an LX relayout of the "LX Relayout SHUFFLE Contract":
all-to-all if each core ends up with a different part, all-gather if the cores of a group end up with the same part.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

from spyre_mlir.division.cores import Division, finishers_of
from spyre_mlir.division.matching import begins_of
from spyre_mlir.division.ownership import CoreRegion, CoreView, core_view, same_owners
from spyre_mlir.division.slices import shares_of
from spyre_mlir.layout.space import Halos, Space, halo_of
from spyre_mlir.layout.view import ViewError
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
    parts of the cores are not slices of the copy's dims in whole sticks, or if no core holds some stick.
    """
    source = distribution_of(space, 0, written)
    if source is None:
        return None
    dims = tuple(sorted(space.present[1]))
    owners = _owners_of(division, dims)
    halos = tuple(dict(space.halos).get(dim) for dim in dims) if space.halos else ()
    target = Distribution(tuple(division.splits[dim] for dim in dims), owners, halos)
    cores, units = max(len(source.owners), len(owners)), tuple(space.positions[dim] for dim in dims)
    # A design counts slices in sticks, and a granule may be several sticks.
    granules = [space.granules[dim] // space.stick_elements[dim] for dim in dims]
    for splits in (source.splits, target.splits):
        shares = zip(
            shares_of(units, splits), shares_of([space.units[dim] for dim in dims], splits), strict=True
        )
        if any(share != count * granule for (share, count), granule in zip(shares, granules, strict=True)):
            return None
    # The dims by rising stride, as indices into ``dims``; dims without a stride are outermost.
    by_stride = [axis.dim for axis in sorted(space.views[1].axes, key=lambda axis: axis.stride)]
    order = tuple(dims.index(dim) for dim in dict.fromkeys([*by_stride, *dims]))
    return Relayout(units, order, source.on(cores), target.on(cores), space.target)


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
    # The cores together have to hold all slices.
    units, filled = [space.units[dim] for dim in dims], 1
    for count, share in zip(units, shares_of(units, distribution.splits), strict=True):
        filled *= -(-count // share)
    return distribution if len(set(owned) - {None}) == filled else None


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


#: A digit of a core id, ``core floordiv step mod count``.
Digit = tuple[int, int]


@dataclass(frozen=True)
class CopyDivision:
    """Slices per dim, the digits of core ids that count them, and the number of ``copies`` (cores with each part).

    If ``copies`` > 1, the copies are the last dim. The slice index of a dim is a mixed-radix number of its digits, the
    first digit fastest. With ``halos``, cores also get the surroundings of their slices, which only the ring can do.
    """

    splits: tuple[int, ...]
    digits: tuple[tuple[Digit, ...], ...]
    copies: int = 1
    halos: Halos = ()

    @functools.cached_property
    def division(self) -> Division:
        """Return the division with the slices of each core."""
        owners = []
        for core in range(math.prod(self.splits)):
            slices = []
            for digits in self.digits:
                number, weight = 0, 1
                for step, count in digits:
                    number += weight * (core // step % count)
                    weight *= count
                slices.append(number)
            owners.append(tuple(slices))
        return Division(self.splits, tuple(owners))


def copy_division(space: Space, view: CoreView) -> CopyDivision | None:
    """Return the division of a copy of a whole buffer, with iteration ``space``, after which the cores have ``view``.

    None if the regions are not slices of the space's dims or not the whole buffer, or if core ids do not count them.
    """
    division = ring_division(space, view)
    return None if division is None or division.halos else division


@functools.lru_cache(maxsize=1 << 13)
def ring_division(space: Space, view: CoreView) -> CopyDivision | None:
    """Return the division of a copy over the ring, whose cores may also have the surroundings of their slices."""
    distribution, halos = distribution_of(space, 0, view), ()
    if distribution is None:
        distribution, halos = _without_halos(space, view)
    if distribution is None or any(slices is None for slices in distribution.owners):
        return None
    owners = [slices for slices in distribution.owners if slices is not None]
    copies, rest = divmod(len(owners), math.prod(distribution.splits))
    # All parts need the same number of copies: digits of core ids cannot express anything else.
    if rest:
        return None
    dims: list[tuple[Digit, ...]] = []
    for dim, split in enumerate(distribution.splits):
        # The step of the digit that counts the slices of a dim is the number of cores until the slice changes.
        changed = (core for core, slices in enumerate(owners) if slices[dim] != owners[0][dim])
        dims.append(() if split == 1 else ((next(changed, len(owners)), split),))
    # The digits that no dim uses, the fastest first, count the copies.
    remaining, weight = list[Digit](), 1
    for step, count in (*sorted(itertools.chain.from_iterable(dims)), (len(owners), 1)):
        # Two dims would use the same digit.
        if step % weight:
            return None
        if step > weight:
            remaining.append((weight, step // weight))
        weight = step * count
    if math.prod(count for _, count in remaining) != copies:
        return None
    copy = CopyDivision(distribution.splits, tuple(dims), halos=halos)
    if copies > 1:
        copy = CopyDivision((*distribution.splits, copies), (*dims, tuple(remaining)), copies, halos)
    # Digits were derived from single cores; the resulting division has to give the whole view, each of the copies on
    # a different core.
    if len(set(copy.division.owners)) != len(copy.division.owners):
        return None
    try:
        copied = replace(space, halos=copy.halos).repeated(copy.copies)
        # The source may be a part of a buffer: readers check where it lies, the copy does not. But a halo widens the
        # region in LX: readers find rows by the steps of the region that a core holds.
        copied_view = core_view(copied, 1 if copy.halos else 0, copy.division)
    except ViewError:
        return None
    has_image = not copy.halos or copied_view.image == view.image
    return copy if same_owners(copied_view, view) and has_image else None


def _without_halos(space: Space, view: CoreView) -> tuple[Distribution | None, Halos]:
    """Return the slices in the middle of the regions of a view, and the halos around these slices.

    The first slice has no halo before it, so its end gives the halo after a slice; the begin of the second slice gives
    the halo before it. The caller has to check that the other slices have the same halos and that none is missing.
    """
    regions = [region for region in view.regions if region is not None]
    ends = [region.start + sum(stride * (count - 1) for stride, count in region.steps) for region in regions]
    # The positions along each dim of the first and the last stick of each region; None before the first element.
    elements = [CoreRegion(element, ()) for element in (*(region.start for region in regions), *ends)]
    positions = begins_of(space.views[1], len(space.sizes), elements)
    inside = [position for position in positions if position is not None]
    if view.partial or len(regions) < len(view.regions) or len(inside) < len(positions):
        return None, ()
    begins, lasts = inside[: len(regions)], inside[len(regions) :]
    halos, starts = [], [sorted(set(starts_of_dim)) for starts_of_dim in zip(*begins, strict=True)]
    for dim, starts_of_dim in enumerate(starts):
        share = -(-space.units[dim] // len(starts_of_dim))
        if len(starts_of_dim) == 1 or space.granules[dim] > 1 or starts_of_dim[0]:
            continue
        behind = max(last[dim] for begin, last in zip(begins, lasts, strict=True) if not begin[dim])
        before, after = share - starts_of_dim[1], behind + 1 - share
        if min(before, after) >= 0 and max(before, after) > 0:
            halos.append((dim, halo_of(before, after, space.units[dim])))
    owners = tuple(tuple(map(list.index, starts, begin)) for begin in begins)
    splits = tuple(map(len, starts))
    return (Distribution(splits, owners) if halos else None), tuple(halos)
