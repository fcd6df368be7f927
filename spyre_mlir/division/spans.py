"""How much memory one core spans of each operand, and the splits that keep it within the limit.

A core addresses a tensor from one base, and only so far from it (``spyre.toml``, ``span_bytes``). This is the plan of
"Work Division Planning", ``must_split_vars``; what a core really reaches is checked on the final IR.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

from spyre_mlir.division.slices import checked, divisors, shares_of
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import bytes_of
from spyre_mlir.layout.view import Axis, BufferView
from spyre_mlir.target.device import device


class SpanError(ValueError):
    """No legal splits keep ``operand`` within the limit; the text is a sentence."""

    def __init__(self, operand: int, text: str) -> None:
        super().__init__(text)
        self.operand = operand


def span_bytes(space: Space, operand: int, splits: Sequence[int]) -> int:
    """Bytes of an operand that one core spans.

    Device dims are walked outer to inner: the first one of which a core has more than one position gives
    positions * product of the inner sizes * bytes, as in "Work Division Planning"; one stick if there is none.
    """
    view, shares = space.views[operand], _share_elements(space, splits)
    for axes in _device_dims(view):
        steps = sum((_positions(view, axis, shares[axis.dim]) - 1) * axis.stride for axis in axes)
        if steps:
            return bytes_of(steps + axes[-1].stride, view.dtype)
    return device().stick_bytes


@functools.lru_cache(maxsize=1 << 12)
def required_splits(
    space: Space,
    cores: int,
    limit_bytes: int | None = None,
    committed: tuple[int, ...] | None = None,
    blocked: frozenset[int] = frozenset(),
    exempt: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """The fewest slices per dim with which no core spans more than ``limit_bytes`` of any operand.

    Operand by operand, device dims outer to inner: of the slice counts of the dims that feed a device dim
    (divisors of their units, at least what is committed, together at most ``cores``) those that fit the limit
    with the fewest cores, then with the largest span; if none fits, those with the smallest span, and on to
    the next device dim. What one operand needs is committed for the next.

    The limit is that of the device description unless given. ``blocked`` dims are not split beyond what is
    committed; ``exempt`` operands (those that are accessed indirectly) may span any distance.

    ``SpanError`` if an operand does not fit, or if more than one reduction dim would have to be split.
    """
    limit = device().planning_span_bytes if limit_bytes is None else limit_bytes
    splits = checked(space.units, cores, committed)
    for operand in range(len(space.views)):
        if operand in exempt:
            continue
        splits = _fitted(space, operand, splits, cores, limit, blocked)
        span = span_bytes(space, operand, splits)
        if span > limit:
            raise SpanError(operand, _too_large(space, operand, span, splits, cores, limit, blocked))
        parts = [dim for dim in sorted(space.reduced) if splits[dim] > 1]
        if len(parts) > 1:
            raise SpanError(
                operand,
                f"{_named(space, operand)} fits the span limit of {limit} bytes only if reduction dims {parts}"
                f" are split {[splits[dim] for dim in parts]} times; at most one reduction dim may be.",
            )
    return splits


def _fitted(
    space: Space, operand: int, splits: tuple[int, ...], cores: int, limit: int, blocked: frozenset[int]
) -> tuple[int, ...]:
    """The splits after an operand took what it needs; it may still not fit."""
    for axes in _device_dims(space.views[operand]):
        if span_bytes(space, operand, splits) <= limit:
            break
        dims = sorted({axis.dim for axis in axes} - blocked)
        counts = [[n for n in divisors(space.units[dim], cores) if n >= splits[dim]] for dim in dims]
        trials = [_replaced(splits, dims, chosen) for chosen in itertools.product(*counts)]
        trials = [trial for trial in trials if math.prod(trial) <= cores]
        if not trials:
            break
        splits = min(trials, key=lambda trial: _preference(span_bytes(space, operand, trial), trial, limit))
    return splits


def _preference(span: int, splits: tuple[int, ...], limit: int) -> tuple[int, int, int]:
    """Smaller is better: what fits with few cores, then with a large span; else what spans least."""
    if span <= limit:
        return (0, math.prod(splits), -span)
    return (1, span, math.prod(splits))


def _replaced(splits: tuple[int, ...], dims: Sequence[int], chosen: Sequence[int]) -> tuple[int, ...]:
    changed = dict(zip(dims, chosen, strict=True))
    return tuple(changed.get(dim, split) for dim, split in enumerate(splits))


def _share_elements(space: Space, splits: Sequence[int]) -> tuple[int, ...]:
    return tuple(
        share * extent // units
        for share, extent, units in zip(
            shares_of(space.units, splits), space.padded, space.units, strict=True
        )
    )


@functools.lru_cache(maxsize=1 << 14)
def _device_dims(view: BufferView) -> tuple[tuple[Axis, ...], ...]:
    """The axes outer to inner; several that run through the same positions (windows) are one device dim."""
    groups: list[tuple[Axis, ...]] = []
    for axis in view.axes:
        if groups and axis.stride * axis.size > groups[-1][-1].stride:
            groups[-1] += (axis,)
        else:
            groups.append((axis,))
    return tuple(groups)


def _positions(view: BufferView, axis: Axis, share: int) -> int:
    """Positions of an axis from the first to the last that ``share`` elements of its dim touch, at most."""
    room = axis.divisor * axis.size
    if room < view.shape[axis.dim] and room % share:
        return axis.size  # a share may go beyond the last position and on from the first
    before = axis.divisor - math.gcd(axis.divisor, share)
    return min(axis.size, (before + share - 1) // axis.divisor + 1)


def _named(space: Space, operand: int) -> str:
    view = space.views[operand]
    sizes = [space.sizes[dim] for dim in sorted(space.present[operand])]
    return f"Operand {operand} of sizes {sizes} ({view.dtype})"


def _too_large(
    space: Space,
    operand: int,
    span: int,
    splits: tuple[int, ...],
    cores: int,
    limit: int,
    blocked: frozenset[int],
) -> str:
    whole = f"; dims {sorted(blocked)} must stay whole" if blocked else ""
    return (
        f"{_named(space, operand)} cannot be split legally: with {list(splits)} slices of {list(space.units)}"
        f" sticks or rows on at most {cores} cores one core still spans {span} bytes, the limit is {limit}{whole}."
    )
