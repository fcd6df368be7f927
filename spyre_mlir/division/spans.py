# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The memory span of one core in each operand, and the splits that keep spans within the limit.

A core addresses a tensor from one base and reaches a limited distance: ``span_bytes`` of ``spyre.toml``, for plans and
for checks. "Work Division Planning" has a rounder limit, 256 MiB, and counts a device dim as a whole if a core has
several of its positions. Here a span is the distance that the core reaches. So a span less than 4 KiB below 256 MiB
may need more slices here, and a span that a second dim shortens may need fewer.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from spyre_mlir.division.slices import checked, filled, legal_splits, shares_of
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import bytes_of


class SpanError(ValueError):
    """Error if no legal splits keep ``operand`` within the limit; the text is a sentence."""

    def __init__(self, operand: int, text: str) -> None:
        super().__init__(text)
        self.operand = operand


def span_bytes(space: Space, operand: int, splits: Sequence[int]) -> int:
    """Return the maximum number of bytes of an operand from the first to the last stick that one core accesses."""
    view, shares, last = space.views[operand], shares_of(space.units, splits), 0
    for axis in view.axes:
        share = shares[axis.dim] * space.padded[axis.dim] // space.units[axis.dim]
        room = axis.divisor * axis.size
        # The maximum number of positions of the axis from the first to the last that a share accesses.
        before = axis.divisor - math.gcd(axis.divisor, share)
        positions = min(axis.size, (before + share - 1) // axis.divisor + 1)
        if room < view.shape[axis.dim] and room % share:
            positions = axis.size  # a share may wrap from the last position to the first
        last += (positions - 1) * axis.stride
    return bytes_of(last + view.elements_per_stick, view.dtype)


def out_of_reach(
    space: Space, splits: Sequence[int], exempt: frozenset[int] = frozenset(), limit_bytes: int | None = None
) -> int | None:
    """Return the first operand of which a core would span more than the limit; None if there is none.

    The default limit comes from the device description. ``exempt`` operands, which are accessed indirectly, may span
    any distance.
    """
    limit = space.target.span_bytes if limit_bytes is None else limit_bytes
    operands = (operand for operand in range(len(space.views)) if operand not in exempt)
    return next((operand for operand in operands if span_bytes(space, operand, splits) > limit), None)


@functools.lru_cache(maxsize=1 << 12)
def required_splits(
    space: Space,
    cores: int,
    limit_bytes: int | None = None,
    committed: tuple[int, ...] | None = None,
    blocked: frozenset[int] = frozenset(),
    exempt: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """Return the fewest slices per dim with which no core spans more than ``limit_bytes`` of any operand.

    Slice counts are divisors of the units, at least the committed splits, with a product of at most ``cores``; at most
    one reduction dim is split. Of those with which all operands fit together (their order does not matter), the result
    has the fewest cores, then the largest spans, compared operand by operand.

    The default limit comes from the device description. ``blocked`` dims keep their committed splits; ``exempt``
    operands may span any distance.

    Raises ``SpanError`` if an operand does not fit, or if more than one reduction dim would have to be split.
    """
    limit = space.target.span_bytes if limit_bytes is None else limit_bytes
    least = checked(space.units, cores, committed)
    # Most operations fit without further splits, and need no list of candidates.
    if out_of_reach(space, least, exempt, limit) is None and len(_parts(space, least)) <= 1:
        return least
    candidates = [tuple(row) for row in legal_splits(space.units, cores, least, blocked).T.tolist()]
    fitting = [splits for splits in candidates if out_of_reach(space, splits, exempt, limit) is None]
    legal = [splits for splits in fitting if len(_parts(space, splits)) <= 1]
    operands = range(len(space.views))
    if legal:
        # Use the fewest cores: work distribution assigns the others.
        return min(
            legal,
            key=lambda splits: (math.prod(splits), *(-span_bytes(space, each, splits) for each in operands)),
        )
    if fitting:
        splits = min(fitting, key=math.prod)
        parts = _parts(space, splits)
        raise SpanError(
            out_of_reach(space, least, exempt, limit) or 0,
            f"It fits the span limit of {limit} bytes only if reduction dims {parts} are split"
            f" {[splits[dim] for dim in parts]} times; at most one reduction dim may be.",
        )
    # Name the candidate with the smallest largest span; the operand is negative, so that ties name the first one.
    limited = [operand for operand in operands if operand not in exempt]
    span, operand, splits = min(
        (*max((span_bytes(space, index, splits), -index) for index in limited), splits)
        for splits in candidates or [least]
    )
    whole = f"; dims {sorted(blocked)} must stay whole" if blocked else ""
    raise SpanError(
        -operand,
        f"It cannot be split legally: one core still spans {span} bytes, the limit is {limit}{whole}, with"
        f" {list(splits)} slices of {list(space.units)} sticks or rows on at most {cores} cores.",
    )


def _parts(space: Space, splits: Sequence[int]) -> list[int]:
    """Return the reduction dims in several slices."""
    return [dim for dim in sorted(space.reduced) if splits[dim] > 1]


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
        if split < 1:
            return f"dim {dim} has {split} slices; it has at least 1"
        if split > 1 and dim in blocked:
            return f"dim {dim} stays whole, because the operation does not form partial sums"
        if filled(count, split) != split:
            return f"dim {dim} has {count} rows or sticks, so the last of {split} slices has no work"
    if not space.has_equal_slices(splits):
        return "a dim that follows a run-time size has slices that are not equal at every size"
    if math.prod(splits) > cores:
        return f"it needs {math.prod(splits)} cores, there are {cores}"
    parts = _parts(space, splits)
    if len(parts) > 1:
        return f"the reduced dims {parts} are both in several slices; at most one may be"
    if parts and not combines:
        return f"dim {parts[0]} is reduced, and partial results of this operation cannot be combined"
    operand = out_of_reach(space, splits, exempt)
    if operand is None:
        return None
    span = span_bytes(space, operand, splits)
    return f"a core would span {span} bytes of operand {operand}; the limit is {space.target.span_bytes}"


def core_order_problem(splits: Sequence[int], order: Sequence[int]) -> str | None:
    """Return why core ids cannot count slices in the given order of dims, the fastest first; None if they can."""
    split = [dim for dim, count in enumerate(splits) if count > 1]
    if sorted(order) == split:
        return None
    return f"it must name each of the dims in several slices once, {split}"
