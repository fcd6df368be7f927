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
from collections.abc import Iterator, Sequence

from spyre_mlir.division.slices import checked, filled, legal_splits, shares_of
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import bytes_of
from spyre_mlir.layout.view import Axis, BufferView


class SpanError(ValueError):
    """Error if no legal splits keep ``operand`` within the limit; the text is a sentence."""

    def __init__(self, operand: int, text: str) -> None:
        super().__init__(text)
        self.operand = operand


def span_bytes(space: Space, operand: int, splits: Sequence[int]) -> int:
    """Return the maximum number of bytes of an operand from the first to the last stick that one core accesses."""
    view, shares = space.views[operand], _share_elements(space, splits)
    steps = sum((_positions(view, axis, shares[axis.dim]) - 1) * axis.stride for axis in view.axes)
    return bytes_of(steps + view.elements_per_stick, view.dtype)


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
    candidates = list(_candidates(space, cores, least, blocked))
    fitting = [splits for splits in candidates if out_of_reach(space, splits, exempt, limit) is None]
    legal = [splits for splits in fitting if len(_parts(space, splits)) <= 1]
    # Use the fewest cores: work distribution assigns the others.
    if legal:
        return min(legal, key=lambda splits: (math.prod(splits), *(-span for span in _spans(space, splits))))
    if fitting:
        raise _two_reductions(space, min(fitting, key=math.prod), limit, least, exempt)
    raise _too_large(space, candidates or [least], cores, limit, blocked, exempt)


def _candidates(
    space: Space, cores: int, least: tuple[int, ...], blocked: frozenset[int]
) -> Iterator[tuple[int, ...]]:
    splits = legal_splits(space.units, cores, least, blocked)
    return (tuple(row) for row in splits.T.tolist())


def _spans(space: Space, splits: Sequence[int]) -> tuple[int, ...]:
    return tuple(span_bytes(space, operand, splits) for operand in range(len(space.views)))


def _parts(space: Space, splits: Sequence[int]) -> list[int]:
    """Return the reduction dims in several slices."""
    return [dim for dim in sorted(space.reduced) if splits[dim] > 1]


def _share_elements(space: Space, splits: Sequence[int]) -> tuple[int, ...]:
    return tuple(
        share * extent // units
        for share, extent, units in zip(
            shares_of(space.units, splits), space.padded, space.units, strict=True
        )
    )


def _positions(view: BufferView, axis: Axis, share: int) -> int:
    """Return the maximum number of positions of an axis from the first to the last that ``share`` elements access."""
    room = axis.divisor * axis.size
    if room < view.shape[axis.dim] and room % share:
        return axis.size  # a share may wrap from the last position to the first
    before = axis.divisor - math.gcd(axis.divisor, share)
    return min(axis.size, (before + share - 1) // axis.divisor + 1)


def _two_reductions(
    space: Space, splits: tuple[int, ...], limit: int, least: tuple[int, ...], exempt: frozenset[int]
) -> SpanError:
    parts, operand = _parts(space, splits), out_of_reach(space, least, exempt, limit) or 0
    return SpanError(
        operand,
        f"It fits the span limit of {limit} bytes only if reduction dims {parts} are split"
        f" {[splits[dim] for dim in parts]} times; at most one reduction dim may be.",
    )


def _too_large(
    space: Space,
    candidates: Sequence[tuple[int, ...]],
    cores: int,
    limit: int,
    blocked: frozenset[int],
    exempt: frozenset[int],
) -> SpanError:
    """Return the error for the candidate with the smallest largest span."""
    operands = [operand for operand in range(len(space.views)) if operand not in exempt]
    span, operand, splits = min(
        # Negative, so that ties name the first operand.
        (*max((span_bytes(space, index, splits), -index) for index in operands), splits)
        for splits in candidates
    )
    whole = f"; dims {sorted(blocked)} must stay whole" if blocked else ""
    return SpanError(
        -operand,
        f"It cannot be split legally: one core still spans {span} bytes, the limit is {limit}{whole}, with"
        f" {list(splits)} slices of {list(space.units)} sticks or rows on at most {cores} cores.",
    )


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
