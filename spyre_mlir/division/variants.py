"""The divisions that an operation is tried with: its own, other good ones, and those that follow its neighbours."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spyre_mlir.division.cores import Division, core_order
from spyre_mlir.division.matching import Mapping, matching_division, slicing_alike, view_of
from spyre_mlir.division.matmul import cheapest_splits
from spyre_mlir.division.ownership import CoreView
from spyre_mlir.division.relayout import held_view
from spyre_mlir.division.slices import divisors, filled
from spyre_mlir.division.spans import out_of_reach
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import ViewError
from spyre_mlir.target.ops import DEVICE_OPS, KINDS, Kind


@dataclass(frozen=True)
class Work:
    """A divided operation that runs ``executions`` times; ``blocked`` dims keep their slices.

    ``fixed``: the division is not to be changed.
    """

    opcode: str
    space: Space
    division: Division
    blocked: frozenset[int] = frozenset()
    executions: int = 1
    fixed: bool = False


@dataclass(frozen=True)
class Shared:
    """A buffer that could be on chip. ``accesses`` are (work, operand) in program order.

    The first access of a buffer writes it, unless it is ``given`` by the host. A buffer can be in device memory
    too, for readers that do not agree and for the host if it is a ``result``: then one copy more moves it, which
    runs ``copies`` times.

    ``space`` is that of a copy of the whole buffer; None if the ring cannot copy it. ``values`` tells of each access
    which value of the buffer it takes, by a number, and how often a relayout before it would run; values are copied
    each for itself. The access ``holder`` touches all of the buffer; if it is ``in_parts`` others do not.
    """

    accesses: tuple[tuple[int, int], ...]
    given: bool = False
    result: bool = False
    copies: int = 1
    space: Space | None = None
    values: tuple[tuple[int, int], ...] = ()
    holder: int = 0
    in_parts: bool = False

    def value(self, at: int) -> tuple[int, int]:
        """The value that an access takes, and how often a relayout before it would run."""
        return self.values[at] if self.values else (0, self.copies)

    def share(self, at: int) -> float:
        """How often an access pays for a relayout of its value if all reads of that share it."""
        number, runs = self.value(at)
        reads = range(0 if self.given else 1, len(self.accesses))
        return runs / max(1, sum(self.value(other)[0] == number for other in reads))


@dataclass(frozen=True)
class Variant:
    """A division, and the order of its core ids where it is not the default one."""

    division: Division
    mapping: Mapping | None = None


def variants_of(works: Sequence[Work], buffers: Sequence[Shared], most: int) -> list[tuple[Variant, ...]]:
    """Each work's own division first, then other good ones, then those that give its buffers the views of neighbours.

    Before these, what leaves whole the dims of which a buffer has parts. At most ``most`` per work, half of them left
    to the neighbours, on as many cores as the widest work has.
    """
    cores = max((work.division.cores for work in works), default=1)
    found = [_own(work, cores, -(-most // 2)) for work in works]
    known = [{_plain(each.division) for each in some} for some in found]
    for buffer in buffers:
        if buffer.in_parts:
            _share_whole_dims(works, buffer, cores, found, known, most)
    for sweep in (buffers, buffers[::-1], buffers):
        for buffer in sweep:
            _project(works, buffer, found, known, most)
    return [tuple(some) for some in found]


def read_view(work: Work, operand: int, variant: Variant) -> CoreView | None:
    """What the cores want of an operand; None if that is no region of its buffer."""
    view = view_of(work.space, operand, variant.division)
    return None if view is None or view.partial else view


def left_view(work: Work, variant: Variant) -> CoreView | None:
    """What the cores have of the result when it is done; None if that is no region of its buffer."""
    try:
        return held_view(work.space, len(work.space.views) - 1, variant.division)
    except ViewError:
        return None


def _plain(division: Division) -> Division:
    """The splits and owners alone."""
    return Division(division.splits, division.owners)


def _own(work: Work, cores: int, most: int) -> list[Variant]:
    """The division as it is; without its split reduction, whose result is on few cores; the cheapest of a matmul."""
    made = [Variant(work.division)]
    if work.fixed or any(work.division.splits[dim] > 1 for dim in work.blocked):
        return made
    for splits, order in _others(work, cores):
        if not _in_reach(work.space, splits, DEVICE_OPS[work.opcode].indirect):
            continue
        variant = Variant(_divided(work.space, splits, order), (splits, order))
        if len(made) < most and all(each.division.owners != variant.division.owners for each in made):
            made.append(variant)
    return made


def _others(work: Work, cores: int) -> Iterator[Mapping]:
    """Splits with the order of their core ids, the best ones first."""
    space, own = work.space, work.division.splits
    whole = tuple(1 if dim in space.reduced else n for dim, n in enumerate(own))
    if whole != own:
        yield whole, core_order(whole, space.reduced)
    if KINDS[work.opcode] is Kind.MATMUL:
        found = cheapest_splits(work.opcode, space, cores, work.blocked)
        for splits in dict.fromkeys((own, *found)):
            order = core_order(splits, space.reduced)
            yield splits, order
            yield splits, _columns_first(space, splits, order)


def _columns_first(space: Space, splits: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """The order in which cores that share rows of the first matrix are neighbours on the ring."""
    columns = space.present[1] - space.present[0]
    return tuple(
        sorted(order, key=lambda dim: (dim not in space.reduced or splits[dim] == 1, dim not in columns))
    )


def _divided(space: Space, splits: tuple[int, ...], order: tuple[int, ...]) -> Division:
    made = Division.of(splits, space.units, space.reduced)
    return Division(splits, Division.mixed_radix(splits, order).owners, made.shares, made.reduced)


@functools.lru_cache(maxsize=1 << 13)
def _in_reach(space: Space, splits: tuple[int, ...], exempt: frozenset[int]) -> bool:
    return out_of_reach(space, splits, exempt) is None


def _share_whole_dims(
    works: Sequence[Work],
    buffer: Shared,
    cores: int,
    found: list[list[Variant]],
    known: list[set[Division]],
    most: int,
) -> None:
    """For each access of a buffer a division of those dims alone of which all accesses touch all."""
    dims = [_dims_by_step(works[at].space, operand) for at, operand in buffer.accesses]
    shared, left = {}, cores
    for step in sorted(set.intersection(*(set(own) for own in dims)), reverse=True):
        shared[step] = divisors(step[1], left)[-1]
        left //= shared[step]
    for (at, _), own in zip(buffer.accesses, dims, strict=True):
        work, splits = works[at], [1] * len(works[at].space.sizes)
        for step, split in shared.items():
            splits[own[step]] = split
        order = dict.fromkeys([*(own[step] for step in shared), *range(len(splits))])
        kept = tuple((dim, work.division.splits[dim]) for dim in sorted(work.blocked))
        variant = _following(work.opcode, work.space, (tuple(splits), tuple(order)), kept)
        if work.fixed or variant is None or len(found[at]) >= most or variant.division in known[at]:
            continue
        known[at].add(variant.division)
        found[at].append(variant)


def _dims_by_step(space: Space, operand: int) -> dict[tuple[int, int], int]:
    """The dims of an operand that are not reduced, by their stride in the buffer and how many units they have."""
    axes = (axis for axis in space.views[operand].axes if axis.dim not in space.reduced)
    return {(axis.stride, space.units[axis.dim]): axis.dim for axis in axes}


def _project(
    works: Sequence[Work],
    buffer: Shared,
    found: list[list[Variant]],
    known: list[set[Division]],
    most: int,
) -> None:
    """Every variant of every access of a buffer gives one to each other access that begins where it does.

    Where the buffer is touched in parts, to all others.
    """
    views: dict[CoreView, tuple[Space, int, Division]] = {}
    for at, operand in buffer.accesses:
        for variant in found[at]:
            view = read_view(works[at], operand, variant)
            if view is not None and None not in view.regions:
                views.setdefault(view, (works[at].space, operand, variant.division))
    for at, operand in buffer.accesses:
        work = works[at]
        if work.fixed:
            continue
        kept = tuple((dim, work.division.splits[dim]) for dim in sorted(work.blocked))
        for view, source in views.items():
            if len(found[at]) >= most:
                break
            mapping = None
            if _begin(view) == work.space.views[operand].offset:
                mapping = matching_division(work.space, operand, view, buffer.in_parts)
            if mapping is None and buffer.in_parts:
                mapping = slicing_alike(work.space, operand, *source)
            variant = None if mapping is None else _following(work.opcode, work.space, mapping, kept)
            if variant is not None and variant.division not in known[at]:
                known[at].add(variant.division)
                found[at].append(variant)


def _begin(view: CoreView) -> int:
    """The first element that any core touches; every core has a region.

    Of a buffer that is read in many parts, only the views of one part can be those of an operation.
    """
    return min(region.start for region in view.regions if region is not None)


@functools.lru_cache(maxsize=1 << 13)
def _following(
    opcode: str, space: Space, mapping: Mapping, kept: tuple[tuple[int, int], ...]
) -> Variant | None:
    """The variant with a division; ``kept`` are dims with the slices that they must have."""
    splits, order = mapping
    if any(splits[dim] != split for dim, split in kept):
        return None
    if any(filled(units, split) < split for units, split in zip(space.units, splits, strict=True)):
        return None  # slices of a whole, of which a part does not have so many
    if sum(splits[dim] > 1 for dim in space.reduced) > 1:
        return None
    if not _in_reach(space, splits, DEVICE_OPS[opcode].indirect):
        return None
    return Variant(Division.mixed_radix(splits, order), mapping)
