"""Divisions that agree: neighbouring operations slice a buffer alike where that keeps it on chip.

Work division looks at one operation at a time, so two of them may want other parts of the buffer between
them, and it has to go through device memory. Here each operation has a few *variants*, its own division and
those that follow its neighbours; each buffer has a *home*, a view that its writer and readers share, or
device memory. The sum of compute and memory time is smallest over both (``layout/elimination.py``): homes make
every cost a table of two variables. Whether all homes fit the scratchpads at once is left to their planner.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.model import access_ns, compute_ns, ring_ns, transfer_ns
from spyre_mlir.cost.of_space import operation_work
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.division.cores import Division
from spyre_mlir.division.matching import Mapping, matching_division, view_of
from spyre_mlir.division.ownership import CoreView, local_bytes, mismatch
from spyre_mlir.division.spans import span_bytes
from spyre_mlir.layout.elimination import Sum
from spyre_mlir.layout.space import Space
from spyre_mlir.target.device import device


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
    """

    accesses: tuple[tuple[int, int], ...]
    given: bool = False
    result: bool = False
    copies: int = 1


@dataclass(frozen=True)
class Home:
    """What each core has of a buffer on chip, and whether a copy of it is in device memory, too."""

    view: CoreView
    copied: bool


@dataclass(frozen=True)
class Variant:
    """A division, and the order of its core ids where it is not the default one."""

    division: Division
    mapping: Mapping | None = None


@dataclass(frozen=True)
class Agreement:
    """The variant of each work; nanoseconds of the sum before and after, and whether none is smaller."""

    variants: tuple[Variant, ...]
    before: float
    after: float
    proven: bool


def agree(works: Sequence[Work], buffers: Sequence[Shared], capacity: int, most: int = 8) -> Agreement:
    """The variants with the smallest sum; each work has at most ``most``, ``capacity`` is that of LX in bytes."""
    variants = _variants(works, buffers, most)
    homes = [_homes(works, variants, buffer, capacity) for buffer in buffers]
    if all(len(some) == 1 for some in variants) or not any(homes):
        return Agreement(tuple(some[0] for some in variants), 0, 0, True)
    total = Sum([len(some) for some in variants] + [len(some) + 1 for some in homes])
    touched = {access for buffer in buffers for access in buffer.accesses}
    for at, work in enumerate(works):
        total.add((at,), _whole([_own_ns(work, at, each.division, touched) for each in variants[at]]))
    for number, (buffer, some) in enumerate(zip(buffers, homes, strict=True)):
        _add_buffer(total, works, variants, buffer, some, len(works) + number)
    start = [0] * len(works) + [len(some) for some in homes]
    found = total.minimize()
    if found.cost == math.inf:
        cost = total.cost(start) / PICOSECONDS
        return Agreement(tuple(some[0] for some in variants), cost, cost, False)
    chosen = tuple(some[state] for some, state in zip(variants, found.states, strict=False))
    before = _without_change(total, homes, len(works))
    return Agreement(chosen, before / PICOSECONDS, found.cost / PICOSECONDS, found.proven)


def _without_change(total: Sum, homes: Sequence[Sequence[Home]], works: int) -> float:
    """The sum with the divisions as they came, each buffer in its best home."""
    fixed = Sum([1] * works + [len(some) + 1 for some in homes])
    for scope, table in total.tables.items():
        index = tuple(slice(0, 1) if variable < works else slice(None) for variable in scope)
        fixed.add(scope, table[index])
    return fixed.minimize().cost


# -- variants -----------------------------------------------------------------------------------------


def _variants(works: Sequence[Work], buffers: Sequence[Shared], most: int) -> list[list[Variant]]:
    """Each work's own division first, then those that give its buffers the views that neighbours have of them."""
    found = [_own(work) for work in works]
    known = [{_plain(each.division) for each in some} for some in found]
    for sweep in (buffers, buffers[::-1], buffers):
        for buffer in sweep:
            _project(works, buffer, found, known, most)
    return found


def _plain(division: Division) -> Division:
    """The splits and owners alone."""
    return Division(division.splits, division.owners)


def _own(work: Work) -> list[Variant]:
    """The division as it is, and without its split reduction, whose result no reader could take from a core."""
    made = [Variant(work.division)]
    if work.fixed:
        return made
    splits = tuple(1 if dim in work.space.reduced else n for dim, n in enumerate(work.division.splits))
    if splits != work.division.splits and not any(work.division.splits[dim] > 1 for dim in work.blocked):
        made.append(Variant(Division.of(splits, work.space.units, work.space.reduced)))
    return made


def _project(
    works: Sequence[Work],
    buffer: Shared,
    found: list[list[Variant]],
    known: list[set[Division]],
    most: int,
) -> None:
    """Every variant of every access of a buffer gives one to each other access."""
    views = dict.fromkeys(
        view
        for at, operand in buffer.accesses
        for variant in found[at]
        if (view := _view(works[at], operand, variant)) is not None
    )
    for at, operand in buffer.accesses:
        work = works[at]
        if work.fixed:
            continue
        kept = tuple((dim, work.division.splits[dim]) for dim in sorted(work.blocked))
        for view in views:
            if len(found[at]) >= most:
                break
            variant = _following(work.space, operand, view, kept)
            if variant is not None and variant.division not in known[at]:
                known[at].add(variant.division)
                found[at].append(variant)


@functools.lru_cache(maxsize=1 << 13)
def _following(
    space: Space, operand: int, view: CoreView, kept: tuple[tuple[int, int], ...]
) -> Variant | None:
    """The variant with which an operand has a view; ``kept`` are dims with the slices that they must have."""
    mapping = matching_division(space, operand, view)
    if mapping is None:
        return None
    splits, order = mapping
    if any(splits[dim] != split for dim, split in kept):
        return None
    if sum(splits[dim] > 1 for dim in space.reduced) > 1:
        return None
    if any(span_bytes(space, each, splits) > device().span_bytes for each in range(len(space.views))):
        return None
    return Variant(Division.mixed_radix(splits, order), mapping)


def _view(work: Work, operand: int, variant: Variant) -> CoreView | None:
    view = view_of(work.space, operand, variant.division)
    return None if view is None or view.partial else view


# -- costs --------------------------------------------------------------------------------------------


def _homes(
    works: Sequence[Work], variants: Sequence[Sequence[Variant]], buffer: Shared, capacity: int
) -> list[Home]:
    """The views that a buffer can be on chip with: those of its writer, or of any reader of a given one."""
    accesses = buffer.accesses if buffer.given else buffer.accesses[:1]
    views: dict[CoreView, None] = {}
    for at, operand in accesses:
        for variant in variants[at]:
            view = _view(works[at], operand, variant)
            if view is not None and local_bytes(works[at].space, operand, variant.division) <= capacity:
                views[view] = None
    own = [view for view in views if len(set(view.regions)) == len(view.regions)]
    kinds = (True,) if buffer.given or buffer.result else (False, True)
    return [Home(view, copied) for view in own for copied in kinds]


def _own_ns(work: Work, at: int, division: Division, touched: set[tuple[int, int]]) -> float:
    """Compute time, and memory time of the operands that are in device memory in any case."""
    done = operation_work(work.opcode, work.space, division)
    alone = (operand for operand in range(len(done.operands)) if (at, operand) not in touched)
    once = compute_ns(done) + ring_ns(done)
    return work.executions * once + sum(_access_ns(work, operand, division) for operand in alone)


def _access_ns(work: Work, operand: int, division: Division) -> float:
    """What an operand costs in device memory, in all executions."""
    done = operation_work(work.opcode, work.space, division)
    return work.executions * access_ns(done, done.operands[operand])


def _copy_ns(work: Work, operand: int, division: Division, home: Home) -> float:
    """What a copy of the buffer of an operand costs that the cores of a home move."""
    touched = operation_work(work.opcode, work.space, division).operands[operand]
    cores = len(home.view.regions)
    moved = replace(touched, core_bytes=touched.bytes // cores)
    return device().hbm_access_ns + transfer_ns(moved, cores, device().one_way_bytes_per_ns)


def _add_buffer(
    total: Sum,
    works: Sequence[Work],
    variants: Sequence[Sequence[Variant]],
    buffer: Shared,
    homes: Sequence[Home],
    variable: int,
) -> None:
    """A table for each access and the home: nothing where they agree, else device memory or impossible."""
    for at, operand in buffer.accesses:
        work = works[at]
        writes = not buffer.given and operand == len(work.space.views) - 1
        table = np.empty((len(variants[at]), len(homes) + 1))
        for row, variant in enumerate(variants[at]):
            moved = _access_ns(work, operand, variant.division)
            view = _view(work, operand, variant)
            table[row, -1] = moved
            for column, home in enumerate(homes):
                apart = moved if home.copied and not writes else math.inf
                table[row, column] = 0 if view is not None and mismatch(home.view, view) is None else apart
        total.add((at, variable), _whole(table))
    at, operand = buffer.accesses[0]
    first = works[at], operand, variants[at][0].division
    copies = [buffer.copies * _copy_ns(*first, home) if home.copied else 0.0 for home in homes]
    total.add((variable,), _whole([*copies, 0.0]))


def _whole(costs: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
    """Nanoseconds as whole picoseconds: their sums are exact in any order, so equal ones are equal."""
    return np.rint(np.asarray(costs) * PICOSECONDS)
