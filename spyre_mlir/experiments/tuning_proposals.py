# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The order in which a tuning tries the points of a space, as a function of the seed and of the trials so far.

The first point is the default. Up to half of the trials are then single changes: one change of each parameter, those
of the longest operations first, before the second change of any parameter. Combinations follow: first the changes that
improve the default, added one by one to the best point, then alternating random changes of the best point and proposals
of Optuna's sampler.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from spyre_mlir.errors import CompileError
from spyre_mlir.experiments.tuning_space import TuningSpace
from spyre_mlir.records import dataclass

#: The index of a choice by parameter; parameters at their default are omitted.
Point = Mapping[str, int]
#: Function from a seed to a point that is proposed by a model of the trials so far.
Sampler = Callable[[int], Point]

#: Maximum fraction of the trials that are single changes.
_SINGLES = 0.5
#: Number of random draws before a space counts as exhausted, and maximum number of changes in a draw.
_DRAWS, _MOST_CHANGES = 200, 4


def key_of(point: Point) -> tuple[tuple[str, int], ...]:
    """Return a hashable key that is equal for equal points."""
    return tuple(sorted(point.items()))


@dataclass(frozen=True)
class Tried:
    """A point that was tried, and its value; None if the compiler rejected it."""

    point: Point
    value: float | None


class Proposals:
    """The proposals of one tuning, for a total number of ``trials``."""

    def __init__(self, space: TuningSpace, trials: int, seed: int) -> None:
        self.space, self.trials, self.seed = space, trials, seed
        self._sizes = {name: len(choices) for name, choices in space.parameters().items()}
        self._singles = list(self._single_changes())

    def propose(self, history: Sequence[Tried], pending: Set[tuple], sampler: Sampler) -> Point | None:
        """Return a point that is neither in the history nor pending; None if none was found."""
        count = len(history) + len(pending)
        known = {key_of(tried.point) for tried in history} | pending
        if not known:
            return {}
        for candidates in self._by_phase(history, count, sampler):
            for point in candidates:
                if key_of(point) not in known and self._is_possible(point):
                    return point
        return None

    def _is_possible(self, point: Point) -> bool:
        """Return whether a point is a valid call of ``compile``: two choices must not tile the same operation."""
        try:
            self.space.call(point)
        except CompileError:
            return False
        return True

    def _by_phase(self, history: Sequence[Tried], count: int, sampler: Sampler) -> Iterator[Iterator[Point]]:
        if count < max(2, self.trials * _SINGLES):
            yield iter(self._singles)
        yield self._additions(history)
        if count % 2:
            yield iter([sampler(self.seed * 1_000_003 + count)])
        yield self._mutations(history, count)
        yield iter(self._singles)

    def _single_changes(self) -> Iterator[Point]:
        """Yield all points with one change: the first choice of each parameter by weight, then the second, etc."""
        by_weight = sorted(self._sizes, key=self.space.weight, reverse=True)
        for number in range(max(self._sizes.values(), default=0)):
            yield from ({name: number} for name in by_weight if number < self._sizes[name])

    def _additions(self, history: Sequence[Tried]) -> Iterator[Point]:
        """Yield the best point with one more change that by itself improves the default, the largest gain first."""
        if not (valued := [tried for tried in history if tried.value is not None]):
            return
        default = next((tried.value for tried in valued if not tried.point), None)
        best = _best(valued)
        gains = [
            tried for tried in valued
            if len(tried.point) == 1 and default is not None and _value(tried) < default
        ]  # fmt: skip
        for tried in sorted(gains, key=_value):
            yield {**best.point, **tried.point}

    def _mutations(self, history: Sequence[Tried], count: int) -> Iterator[Point]:
        """Yield the best point with random parameters set to a random choice or the default: first one, then more."""
        valued = [tried for tried in history if tried.value is not None]
        names = list(self._sizes)
        if not valued or not names:
            return
        best, generator = _best(valued), random.Random(f"{self.seed} {count}")
        weights = [self.space.weight(name) + 1 / len(names) for name in names]
        for draw in range(_DRAWS):
            point = dict(best.point)
            for name in generator.choices(names, weights, k=1 + draw * _MOST_CHANGES // _DRAWS):
                point[name] = generator.randrange(-1, self._sizes[name])
            yield {name: number for name, number in point.items() if number >= 0}


def _value(tried: Tried) -> float:
    assert tried.value is not None
    return tried.value


def _best(valued: Sequence[Tried]) -> Tried:
    """Return the trial with the least value; ties are broken by the fewest changes, then by order."""
    return min(valued, key=lambda tried: (_value(tried), len(tried.point)))
