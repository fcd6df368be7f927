# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention masks as runs of equal numbers, and the classification of mask tiles that hide all, some or no keys."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass

#: Bounds of a tile along one dim: its first index, and its last index plus 1.
Range = tuple[int, int]

#: A function that returns which numbers of an array have a property.
Predicate = Callable[[NDArray[np.float32]], NDArray[np.bool_]]


@dataclass(frozen=True, eq=False)
class RunLengths:
    """A tensor as row-major runs of equal elements: run ``k`` has value ``values[k]`` and ends before ``ends[k]``."""

    shape: tuple[int, ...]
    ends: NDArray[np.int32]
    values: NDArray[np.float32]

    @classmethod
    def of(cls, array: NDArray[Any], most: int) -> RunLengths | None:
        """Encode an array; return None if it has more than ``most`` runs."""
        flat = array.reshape(-1)
        # Elements are compared as bits, so that two NaNs are equal and the two zeros are not.
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
        """Return the number of elements before each index that have a property, without expanding the runs."""
        has, starts, before = _counted(self, predicate)
        run = np.minimum(np.searchsorted(self.ends, indices, side="right"), len(self.ends) - 1)
        return before[run] + (indices - starts[run]) * has[run]


# Each tile is tested for two properties in turn.
@functools.lru_cache(maxsize=4)
def _counted(
    runs: RunLengths, predicate: Predicate
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Return for each run whether it has a property, its start, and the number of elements before it that have it."""
    has = predicate(runs.values)
    starts = np.concatenate([[0], runs.ends[:-1]]).astype(np.int64)
    return has, starts, np.concatenate([[0], np.cumsum((runs.ends - starts) * has)])


# The tiles of a band are read one after the other, so caching more bands would only cost memory.
@functools.lru_cache(maxsize=2)
def _band(runs: RunLengths, rows: Range) -> NDArray[np.float32]:
    """Return rows of a tensor. The array is cached and must not be modified."""
    keys = runs.shape[-1]
    return runs.flat(rows[0] * keys, rows[1] * keys).reshape(-1, keys)


class TileClass(enum.Enum):
    """The effect of a mask on a tile of scores: it hides all keys, changes nothing, or does anything else."""

    HIDDEN = enum.auto()
    NEUTRAL = enum.auto()
    MIXED = enum.auto()


@dataclass(frozen=True, eq=False)
class MaskTiles:
    """A mask of rows by keys, which is the same for all heads, and its effect on tiles of scores.

    ``is_hidden`` returns which mask values hide a score, ``is_neutral`` which leave a score unchanged. A row that hides
    all keys counts as a row that hides none, because the weights of such a row depend on every score.
    """

    runs: RunLengths
    is_hidden: Predicate
    is_neutral: Predicate

    @property
    def rows(self) -> int:
        """Number of rows of the mask, over all outer dims."""
        return math.prod(self.runs.shape[:-1])

    @property
    def keys(self) -> int:
        return self.runs.shape[-1]

    def tile(self, rows: Range, keys: Range) -> NDArray[np.float32]:
        """Return the elements of a tile."""
        return _band(self.runs, rows)[:, slice(*keys)]

    def classify(self, rows: Range, keys: Range) -> TileClass:
        """Return the effect of the mask on a tile."""
        width = keys[1] - keys[0]
        if (
            not self.hides_row[slice(*rows)].any()
            and (self._by_row(self.is_hidden, rows, keys) == width).all()
        ):
            return TileClass.HIDDEN
        is_neutral = (self._by_row(self.is_neutral, rows, keys) == width).all()
        return TileClass.NEUTRAL if is_neutral else TileClass.MIXED

    def share(self, rows: Sequence[Range], keys: Sequence[Range]) -> float:
        """Return the share of the scores that are in tiles that the mask does not hide completely."""
        seen = 0
        for first, last in keys:
            counts = self._by_row(self.is_hidden, (0, self.rows), (first, last))
            is_hidden = (counts == last - first) & ~self.hides_row
            seen += (last - first) * sum(end - begin for begin, end in rows if not is_hidden[begin:end].all())
        return seen / (self.rows * self.keys)

    def _by_row(self, predicate: Predicate, rows: Range, keys: Range) -> NDArray[np.int64]:
        """Return for each row the number of elements that have a property."""
        first = np.arange(*rows, dtype=np.int64) * self.keys
        end, begin = (self.runs.counts(predicate, first + key) for key in reversed(keys))
        return end - begin

    @functools.cached_property
    def hides_row(self) -> NDArray[np.bool_]:
        """For each row, whether it hides all keys."""
        return self._by_row(self.is_hidden, (0, self.rows), (0, self.keys)) == self.keys
