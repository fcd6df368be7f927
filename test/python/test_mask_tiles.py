# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks as runs of equal numbers: the classes of their tiles equal a check of each element."""

from __future__ import annotations

import numpy as np
import pytest

from spyre_mlir.tiling.mask_tiles import MaskTiles, RunLengths, TileClass

ROWS, KEYS = 60, 90

MASKS = {
    "causal": lambda i, j: j <= i,
    "window": lambda i, j: (j <= i) & (j > i - 17),
    "prefix": lambda i, j: (j <= i) | (j < 13),
    "blind rows": lambda i, j: (j <= i) & (i > 20),
    "nothing": lambda i, j: (i < 0) & (j < 0),
}


def masked(name: str) -> MaskTiles:
    array = MASKS[name](np.arange(ROWS)[:, None], np.arange(KEYS)[None])
    runs = RunLengths.of(array.astype(np.float16), ROWS * 8)
    assert runs is not None
    assert np.array_equal(runs.flat(0, ROWS * KEYS).reshape(ROWS, KEYS), array)
    return MaskTiles(runs, lambda values: values == 0, lambda values: values == 1)


@pytest.mark.parametrize("name", MASKS)
def test_classes_are_those_of_all_elements(name):
    """A row that hides all keys hides none: its weights depend on every score."""
    mask, rng = masked(name), np.random.default_rng(0)
    for _ in range(200):
        first, begin = rng.integers(ROWS), rng.integers(KEYS)
        rows = int(first), int(rng.integers(first + 1, ROWS + 1))
        keys = int(begin), int(rng.integers(begin + 1, KEYS + 1))
        tile = mask.tile(rows, keys)
        is_blind = (mask.tile(rows, (0, KEYS)) == 0).all(axis=1).any()
        expected = TileClass.MIXED
        if (tile == 1).all():
            expected = TileClass.NEUTRAL
        elif (tile == 0).all() and not is_blind:
            expected = TileClass.HIDDEN
        assert mask.classify(rows, keys) is expected


def test_share_of_a_causal_mask():
    """Three of three by three tiles are masked."""
    runs = RunLengths.of(np.tri(90, dtype=np.float32), 1000)
    assert runs is not None
    mask = MaskTiles(runs, lambda values: values == 0, lambda values: values == 1)
    tiles = [(0, 30), (30, 60), (60, 90)]
    assert mask.share(tiles, tiles) == pytest.approx(6 / 9)


def test_the_share_counts_the_tiles_that_are_not_hidden():
    """Tiles of unequal sizes, and row 5, which hides all keys and so counts as a row that hides none."""
    numbers = np.tri(12, 8, dtype=np.float32)
    numbers[5] = 0
    runs = RunLengths.of(numbers, 1000)
    assert runs is not None
    mask = MaskTiles(runs, lambda values: values == 0, lambda values: values == 1)
    rows, keys = [(0, 2), (2, 5), (5, 12)], [(0, 3), (3, 7), (7, 8)]
    seen = sum(
        (below - above) * (right - left)
        for above, below in rows
        for left, right in keys
        if mask.classify((above, below), (left, right)) is not TileClass.HIDDEN
    )
    assert seen < 12 * 8
    assert mask.share(rows, keys) == seen / (12 * 8)


def test_too_many_runs():
    assert RunLengths.of(np.arange(100, dtype=np.float32).reshape(10, 10), 50) is None


def test_infinities_and_bits_are_kept():
    """Runs are of equal bits: infinities, and two zeros."""
    array = np.array([[0.0, -0.0, -np.inf, -np.inf]], np.float16)
    runs = RunLengths.of(array, 10)
    assert runs is not None and list(runs.ends) == [1, 2, 4]
    assert list(runs.flat(1, 4)) == [0.0, -np.inf, -np.inf]
