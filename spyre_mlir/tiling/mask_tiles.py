# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Masks of attention as runs of equal numbers, and which of their tiles hide all keys, some, or none."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass

#: Bounds of a tile along one dim: its first index, and the one behind its last.
Range = tuple[int, int]

#: Which of some numbers have a property.
Predicate = Callable[[NDArray[np.float32]], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class RunLengths:
    """A tensor as runs of equal elements in row-major order: run ``k`` is of ``values[k]`` and ends at ``ends[k]``."""

    shape: tuple[int, ...]
    ends: NDArray[np.int32]
    values: NDArray[np.float32]

    @classmethod
    def of(cls, array: NDArray[Any], most: int) -> RunLengths | None:
        """Encode an array; None where it has more than ``most`` runs."""
        flat = array.reshape(-1)
        # As bits: two NaNs are equal, and the two zeros are not.
        bits = flat.view(f"u{flat.itemsize}")
        changes = np.flatnonzero(bits[1:] != bits[:-1])
        if len(changes) >= most or flat.size >= 1 << 31:
            return None
        ends = np.append(changes + 1, flat.size).astype(np.int32)
        with np.errstate(over="ignore"):
            return cls(tuple(array.shape), ends, flat[ends - 1].astype(np.float32))

    def flat(self, first: int, last: int) -> NDArray[np.float32]:
        """Return the elements from index ``first`` up to ``last``."""
        begin, end = np.searchsorted(self.ends, [first, last - 1], side="right")
        ends = np.clip(self.ends[begin : end + 1], first, last)
        return np.repeat(self.values[begin : end + 1], np.diff(ends, prepend=first))

    def counts(self, predicate: Predicate, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many elements before each index have a property; only values of runs are looked at."""
        has, starts, before = _counted(self, predicate)
        run = np.minimum(np.searchsorted(self.ends, indices, side="right"), len(self.ends) - 1)
        return before[run] + (indices - starts[run]) * has[run]


# Tiles are asked for two properties, one after the other.
@functools.lru_cache(maxsize=4)
def _counted(
    runs: RunLengths, predicate: Predicate
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Return of each run whether it has a property, its start, and how many elements before it have the property."""
    has = predicate(runs.values)
    starts = np.concatenate([[0], runs.ends[:-1]]).astype(np.int64)
    return has, starts, np.concatenate([[0], np.cumsum((runs.ends - starts) * has)])


# The tiles of a band are asked for one after the other; more bands are only memory.
@functools.lru_cache(maxsize=2)
def _band(runs: RunLengths, rows: Range) -> NDArray[np.float32]:
    """Return rows of a tensor, not to be written to."""
    keys = runs.shape[-1]
    return runs.flat(rows[0] * keys, rows[1] * keys).reshape(-1, keys)


class TileClass(enum.Enum):
    """What a mask does to a tile of scores: hides all keys, changes nothing, or anything else."""

    HIDDEN = enum.auto()
    NEUTRAL = enum.auto()
    MIXED = enum.auto()


@dataclass(frozen=True, eq=False)
class MaskTiles:
    """A mask of rows by keys, the same for all heads, and what it does to tiles of scores.

    ``is_hidden`` and ``is_neutral`` say of numbers of the mask whether they hide a score, and whether they leave it as
    it is. A row that hides all keys counts as one that hides none: its weights depend on every score.
    """

    runs: RunLengths
    is_hidden: Predicate
    is_neutral: Predicate

    @property
    def rows(self) -> int:
        return math.prod(self.runs.shape[:-1])

    @property
    def keys(self) -> int:
        return self.runs.shape[-1]

    def tile(self, rows: Range, keys: Range) -> NDArray[np.float32]:
        """Return the elements of a tile."""
        return _band(self.runs, rows)[:, slice(*keys)]

    def classify(self, rows: Range, keys: Range) -> TileClass:
        """Return what the mask does to a tile."""
        elements = (rows[1] - rows[0]) * (keys[1] - keys[0])
        if not self.hides_row[slice(*rows)].any() and self._count(self.is_hidden, rows, keys) == elements:
            return TileClass.HIDDEN
        is_neutral = self._count(self.is_neutral, rows, keys) == elements
        return TileClass.NEUTRAL if is_neutral else TileClass.MIXED

    def share(self, rows: Sequence[Range], keys: Sequence[Range]) -> float:
        """Return the share of the scores that are in tiles of which the mask does not hide all."""
        seen = sum(
            (tile_rows[1] - tile_rows[0]) * (tile_keys[1] - tile_keys[0])
            for tile_rows in rows
            for tile_keys in keys
            if self.classify(tile_rows, tile_keys) is not TileClass.HIDDEN
        )
        return seen / (self.rows * self.keys)

    def _count(self, predicate: Predicate, rows: Range, keys: Range) -> int:
        return int(self._by_row(predicate, rows, keys).sum())

    def _by_row(self, predicate: Predicate, rows: Range, keys: Range) -> NDArray[np.int64]:
        first = np.arange(*rows, dtype=np.int64) * self.keys
        end, begin = (self.runs.counts(predicate, first + key) for key in reversed(keys))
        return end - begin

    @cached_property
    def hides_row(self) -> NDArray[np.bool_]:
        """Whether a row hides all keys."""
        return self._by_row(self.is_hidden, (0, self.rows), (0, self.keys)) == self.keys
