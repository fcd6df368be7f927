# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Parts of what cores hold in LX: against the place of every stick, counted one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from spyre_mlir.division import CoreView, Division, core_view
from spyre_mlir.division.ownership import subview_mismatch, subview_of
from spyre_mlir.division.slices import filled, shares_of
from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.space import Space
from spyre_mlir.target.target import default_target

STICK = 64


def copy_of(view: BufferView) -> Space:
    """Return a copy of a view into a separate buffer."""
    made = BufferView.of(StickLayout.for_tensor(default_target(), view.shape, "f16"))
    every = frozenset(range(len(view.shape)))
    return Space(view.shape, (view, made), (every, every))


def positions(space: Space, division: Division, core: int, full: bool = False) -> Iterator[tuple[int, ...]]:
    """The positions of a core's slice, in sticks of the last dim; of a ``full`` share if it is a smaller one."""
    shares = shares_of(space.units, division.splits)
    ranges = []
    for dim, share in enumerate(shares):
        begin = division.owners[core][dim] * share
        end = begin + share if full else min(begin + share, space.units[dim])
        ranges.append(range(begin, end))
    return itertools.product(*ranges)


def stick_of(view: BufferView, position: Sequence[int]) -> int:
    """The element of the buffer at which a stick begins."""
    elements = [at * (STICK if dim == view.stick_dim else 1) for dim, at in enumerate(position)]
    return view.offset + sum(
        elements[axis.dim] // axis.divisor % axis.size * axis.stride for axis in view.axes
    )


def lx_of(space: Space, division: Division, core: int) -> dict[int, int]:
    """The number in LX of each stick that a core holds of the buffer, by strides of a full share."""
    view, shares = space.views[0], shares_of(space.units, division.splits)
    dims = sorted(
        (axis.dim for axis in view.axes), key=lambda dim: -next(a.stride for a in view.axes if a.dim == dim)
    )
    found = {}
    begin = [own * share for own, share in zip(division.owners[core], shares, strict=True)]
    for position in positions(space, division, core):
        number = 0
        for dim in dims:
            number = number * shares[dim] + position[dim] - begin[dim]
        found[stick_of(view, position)] = number
    return found


def constant_offset(
    held: Space, held_division: Division, touched: Space, division: Division
) -> tuple[int, dict[int, int]] | None:
    """Return the only LX offset that suits all cores, and the strides of its dims; None without one.

    A design describes strides by gaps of whole steps, so each stride is a multiple of the next smaller one.
    """
    offsets, strides = set(), dict[int, set[int]]()
    for core in range(division.cores):
        lx = lx_of(held, held_division, core)
        own = [stick_of(touched.views[0], each) for each in positions(touched, division, core)]
        if not set(own) <= set(lx):
            return None
        numbers = dict(zip(positions(touched, division, core), (lx[stick] for stick in own), strict=True))
        first = min(numbers)
        offsets.add(numbers[first])
        for dim in range(len(first)):
            line = sorted(
                each for each in numbers if all(each[k] == first[k] for k in range(len(first)) if k != dim)
            )
            for one, next_ in itertools.pairwise(line):
                strides.setdefault(dim, set()).add(numbers[next_] - numbers[one])
    if len(offsets) > 1 or any(len(steps) > 1 for steps in strides.values()):
        return None
    by_dim = {dim: steps.pop() for dim, steps in strides.items()}
    if any(outer % inner for inner, outer in itertools.pairwise(sorted(by_dim.values()))):
        return None
    return offsets.pop(), by_dim


def random_division(rng: random.Random, space: Space, like: Division | None) -> Division:
    """Any division in which every slice has work, often with the slices of another one."""
    if like is not None and rng.random() < 0.7:
        if all(filled(units, split) == split for units, split in zip(space.units, like.splits, strict=True)):
            return Division(like.splits, like.owners)
    while True:
        splits = tuple(rng.choice((1, 1, 2, 3, 4)) for _ in space.units)
        if all(filled(units, split) == split for units, split in zip(space.units, splits, strict=True)):
            order = rng.sample(range(len(splits)), len(splits))
            return Division.mixed_radix(splits, order)


def random_case(seed: int) -> tuple[Space, Division, Space, Division]:
    """A buffer with a division, and a slice of it with one."""
    rng = random.Random(seed)
    shape = (rng.randint(1, 6), rng.randint(2, 9), STICK * rng.randint(1, 4))
    order = rng.sample(range(2), 2)
    whole = BufferView.of(StickLayout.for_tensor(default_target(), shape, "f16", (*order, 2)))
    held = copy_of(whole)
    division = random_division(rng, held, None)
    offsets, sizes, steps = [], [], []
    for dim, extent in enumerate(shape):
        unit = STICK if dim == 2 else 1
        count = rng.choice((extent // unit, rng.randint(1, extent // unit)))
        step = rng.choice((1, 1, 2)) if unit == 1 and 2 * count <= extent else 1
        offsets.append(rng.randint(0, extent // unit - (count - 1) * step - 1) * unit)
        sizes.append(count * unit)
        steps.append(step)
    part = copy_of(whole.slice(offsets, sizes, steps))
    return held, division, part, random_division(rng, part, division)


def views(case: tuple[Space, Division, Space, Division]) -> tuple[CoreView, CoreView]:
    held, division, part, own = case
    return core_view(held, 0, division), core_view(part, 0, own)


@pytest.mark.parametrize("seed", range(400))
def test_a_part_is_where_its_sticks_are(seed):
    """Offset and strides equal the positions of the sticks, and are None exactly where cores differ."""
    case = random_case(seed)
    held, touched = views(case)
    if len(held.regions) != len(touched.regions):
        assert subview_mismatch(held, touched) is not None
        return
    expected = constant_offset(*case)
    assert (subview_mismatch(held, touched) is None) == (expected is not None)
    if expected is None:
        return
    part, (offset, strides) = subview_of(held, touched), expected
    assert part.offset == offset
    found = {axis.dim: axis.stride for axis in case[2].views[0].axes}
    assert {dim: part.stride(found[dim]) for dim in strides} == strides


def test_the_cases_are_of_both_kinds():
    """Some slices can be read in place, at the start and after the start, and some cannot."""
    found = [views(random_case(seed)) for seed in range(400)]
    eligible = [pair for pair in found if subview_mismatch(*pair) is None]
    inside = [pair for pair in eligible if pair[0].regions != pair[1].regions and subview_of(*pair).offset]
    assert len(inside) > 50 and len(found) - len(eligible) > 100


def test_offsets_that_differ_are_told():
    """Core 1 holds rows from 4 on, and the slice that begins at row 1 is one row into what core 0 holds."""
    whole = BufferView.of(StickLayout.for_tensor(default_target(), (8, STICK), "f16"))
    held = copy_of(whole)
    rows = core_view(held, 0, Division.mixed_radix((2, 1)))
    part = copy_of(whole.slice((1, 0), (6, STICK), (1, 1)))
    reason = subview_mismatch(rows, core_view(part, 0, Division.mixed_radix((2, 1))))
    assert "core 1" in str(reason)
    single = copy_of(whole.slice((0, 0), (2, STICK), (5, 1)))
    reason = subview_mismatch(rows, core_view(single, 0, Division.mixed_radix((2, 1))))
    assert str(reason) == (
        "core division mismatch: core 1 accesses its data at an offset of 1 sticks, but core 0 at 0, and an address in"
        " LX is the same on all cores"
    )


def test_copies_are_written_everywhere():
    """Two cores hold the same rows; a writer on one of them leaves old rows on the other."""
    whole = BufferView.of(StickLayout.for_tensor(default_target(), (8, STICK), "f16"))
    twice = copy_of(whole).repeated(2)
    held = core_view(twice, 0, Division.mixed_radix((1, 1, 2)))
    part = copy_of(whole.slice((2, 0), (2, STICK), (1, 1)))
    one_each = core_view(part, 0, Division.mixed_radix((2, 1)))
    assert subview_mismatch(held, one_each) is not None
    both = core_view(part.repeated(2), 0, Division.mixed_radix((1, 1, 2)))
    assert subview_mismatch(held, both, writes=True) is None
