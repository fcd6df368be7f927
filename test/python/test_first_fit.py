"""First fit against the definition: the lowest aligned address that is free over the whole life."""

from __future__ import annotations

import itertools
import random

import pytest

from spyre_mlir.scratchpad import Lifetime, first_fit


def random_buffers(rng: random.Random, count: int, ops: int, longest: int = 10) -> list[Lifetime]:
    starts = [rng.randrange(ops) for _ in range(count)]
    return [Lifetime(rng.randint(1, 5000), start, start + rng.randrange(longest)) for start in starts]


def rounded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def definition(buffers: list[Lifetime], alignment: int) -> list[int]:
    """In order of the first op, each at the lowest of the candidates: 0 and the ends of those alive with it."""
    placed: dict[int, tuple[int, int]] = {}
    for index in sorted(range(len(buffers)), key=lambda index: (buffers[index].first, index)):
        own = buffers[index]
        alive = [
            place for other, place in placed.items()
            if buffers[other].first <= own.last and own.first <= buffers[other].last
        ]  # fmt: skip
        size = rounded(own.size, alignment)
        starts = sorted([0, *(end for _, end in alive)])
        start = next(s for s in starts if all(s + size <= begin or end <= s for begin, end in alive))
        placed[index] = (start, start + size)
    return [placed[index][0] for index in range(len(buffers))]


@pytest.mark.parametrize("seed", range(200))
def test_lowest_free_address(seed):
    """Random lifetimes, many equal: the offsets are those of the definition."""
    rng = random.Random(seed)
    buffers = random_buffers(rng, rng.randrange(60), rng.randint(1, 30), rng.choice((1, 3, 20)))
    alignment = rng.choice((1, 128, 4096))
    offsets, top = first_fit(buffers, alignment)
    assert offsets == definition(buffers, alignment)
    ends = [start + rounded(b.size, alignment) for start, b in zip(offsets, buffers, strict=True)]
    assert top == max(ends, default=0)


@pytest.mark.parametrize("seed", range(50))
def test_no_two_live_buffers_overlap(seed):
    """And offsets are aligned, and the top is at least the bytes alive at any op."""
    rng = random.Random(seed)
    buffers = random_buffers(rng, 200, 100)
    offsets, top = first_fit(buffers, 128)
    assert all(offset % 128 == 0 for offset in offsets)
    for op in range(111):
        alive = sorted(
            (o, o + b.size) for o, b in zip(offsets, buffers, strict=True) if b.first <= op <= b.last
        )
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(alive))
        assert sum(rounded(end - start, 128) for start, end in alive) <= top


def test_ten_thousand_buffers_do_not_overlap():
    """The size of a large model."""
    rng = random.Random(0)
    buffers = random_buffers(rng, 10_000, 10_000)
    offsets, _ = first_fit(buffers, 128)
    by_op: dict[int, list[tuple[int, int]]] = {}
    for offset, buffer in zip(offsets, buffers, strict=True):
        for op in range(buffer.first, buffer.last + 1):
            by_op.setdefault(op, []).append((offset, offset + buffer.size))
    for alive in map(sorted, by_op.values()):
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(alive))


def test_a_life_ends_with_its_last_op():
    """Live from 0 to 1 and from 1 to 2 meet at op 1; from 2 on the place is free."""
    offsets, top = first_fit([Lifetime(100, 0, 1), Lifetime(100, 1, 2), Lifetime(100, 2, 2)], 128)
    assert (offsets, top) == ([0, 128, 0], 256)


def test_holes_join():
    """Two neighbours that died make room for one of their common size, a gap before it for a small one."""
    lives = [Lifetime(128, 0, 0), Lifetime(128, 0, 0), Lifetime(128, 0, 9), Lifetime(256, 1, 9)]
    assert first_fit(lives, 128) == ([0, 128, 256, 0], 384)
    assert first_fit([], 128) == ([], 0)
