"""Lower bounds of covering problems: Lagrange multipliers by subgradient ascent.

Minimise the sum of costs[i] y[i] over y in {0, 1}, where in every row the coefficients of the chosen items reach
at least its need. For all multipliers m >= 0

    sum(m[r] need[r]) + sum(min(0, costs[i] - sum(m[r] coefficient[r, i])))

is a lower bound (Held and Karp, 1971; Fisher, 1981). The ascent is in floating point, and only operations that
IEEE 754 defines to the bit are used, so all machines agree; the multipliers that it gives are integers, with
which the bound is exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.scratchpad.instance import Array

#: Steps without a better bound after which the stride is halved.
_PATIENCE = 4

#: Strides below this part of Polyak's end the ascent.
_SHORTEST_STRIDE = 0.02


@dataclass(frozen=True, eq=False)
class Rows:
    """A covering problem as a sparse matrix: entry e says that ``items[e]`` gives row ``rows[e]`` ``coefficients[e]``.

    ``needs`` has an entry per row, ``costs`` one per item, all of them at least 1; no coefficient is above the
    need of its row.
    """

    rows: Array
    items: Array
    coefficients: Array
    needs: Array
    costs: Array


@dataclass(frozen=True)
class Multipliers:
    """A lower bound in units of 1 / ``scale``: integers throughout.

    ``of_rows`` are the multipliers per byte of a row, ``reduced`` the costs of the items less what the
    multipliers pay them, ``bound`` the lower bound of all choices. Choosing an item with reduced cost c > 0, or
    leaving one with c < 0, raises the bound by abs(c).
    """

    of_rows: list[int]
    reduced: list[int]
    bound: int
    scale: int


def multipliers(problem: Rows, upper: int, steps: int) -> Multipliers:
    """Multipliers after at most ``steps`` steps of ascent, fewer once the bound is above ``upper``."""
    weights = _ascent(problem, upper, steps)
    return _exact(problem, weights)


def _ascent(problem: Rows, upper: int, steps: int) -> NDArray[np.float64]:
    """Multipliers of the rows scaled to need 1, by steps of Polyak's length towards ``upper``."""
    rows, items, count = problem.rows, problem.items, len(problem.costs)
    shares = problem.coefficients / problem.needs[rows]
    weights = np.zeros(len(problem.needs))
    best, best_weights, stride, stalled = -math.inf, weights, 1.0, 0
    for _ in range(steps):
        reduced = problem.costs - np.bincount(items, shares * weights[rows], count)
        chosen = reduced < 0
        # fsum rounds once, at the end: no sum depends on the order that a machine adds in.
        value = math.fsum(weights.tolist()) + math.fsum(reduced[chosen].tolist())
        if value > best:
            best, best_weights, stalled = value, weights, 0
        else:
            stalled += 1
        if stalled == _PATIENCE:
            weights, stride, stalled = best_weights, stride / 2, 0
            if stride < _SHORTEST_STRIDE:
                break
            continue
        slope = 1 - np.bincount(rows, shares * chosen[items], len(weights))
        slope[(weights <= 0) & (slope < 0)] = 0
        steepness = math.fsum((slope * slope).tolist())
        if steepness == 0 or best >= upper:
            break
        weights = np.maximum(0, weights + stride * (upper - value) / steepness * slope)
    return best_weights


def _exact(problem: Rows, weights: NDArray[np.float64]) -> Multipliers:
    """The multipliers rounded to integers, and what follows from them without any rounding."""
    largest = math.fsum(weights.tolist()) + float(problem.costs.max(initial=0))
    scale = 1 << max(0, min(20, 60 - int(largest).bit_length()))  # sums stay below 2 ** 63
    of_rows = np.floor(weights * scale / problem.needs).astype(np.int64)
    reduced = problem.costs * scale
    np.subtract.at(reduced, problem.items, problem.coefficients * of_rows[problem.rows])
    listed = reduced.tolist()
    needed = sum((of_rows * problem.needs).tolist())
    return Multipliers(of_rows.tolist(), listed, needed + sum(cost for cost in listed if cost < 0), scale)
