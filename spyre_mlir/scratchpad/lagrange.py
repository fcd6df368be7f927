"""Lower bounds of covering problems from linear programming.

Minimise the sum of costs[i] y[i] over y in {0, 1}, where in every row the coefficients of the chosen items reach
at least its need. For all multipliers m >= 0

    sum(m[r] need[r]) + sum(min(0, costs[i] - sum(m[r] coefficient[r, i])))

is a lower bound (Held and Karp, 1971; Fisher, 1981), and the best multipliers are the dual solution of the
linear relaxation. The dual simplex method finds them (Lemke, 1954): it starts at m = 0, the bound rises with
every pivot, and wherever it stops the multipliers are valid. Bounds of variables are flipped on the way (Maros,
2003). It works in floating point, but on single elements and sums in a fixed order, so all machines agree; the
multipliers that leave this file are integers, with which the bound is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.scratchpad.instance import Array

Floats = NDArray[np.float64]

#: What counts as zero, in rows that are scaled to need 1.
_TOLERANCE = 1e-9

#: Rows times items of one linear program. Larger problems are cut into consecutive rows.
_MOST_CELLS = 1 << 18

#: Cells that all pivots of one linear program may touch.
_MOST_WORK = 1 << 28


@dataclass(frozen=True, eq=False)
class Rows:
    """A covering problem as a sparse matrix: entry e says that ``items[e]`` gives row ``rows[e]`` ``coefficients[e]``.

    ``needs`` has an entry per row, ``costs`` one per item, all of them at least 1; no coefficient is above the
    need of its row. All items together reach every need.
    """

    rows: Array
    items: Array
    coefficients: Array
    needs: Array
    costs: Array


@dataclass(frozen=True)
class Multipliers:
    """A lower bound in units of 1 / ``scale``: integers throughout.

    ``of_rows`` are the multipliers, ``reduced`` the costs of the items less what the multipliers pay them,
    ``bound`` the lower bound of all choices. Choosing an item with reduced cost c > 0, or leaving one with
    c < 0, raises the bound by abs(c).
    """

    of_rows: list[int]
    reduced: list[int]
    bound: int
    scale: int


def multipliers(problem: Rows) -> Multipliers:
    """The best multipliers, or good ones where the problem is large.

    A problem that is cut gives each part of its rows the part of an item's cost that its rows have of those of
    the item.
    """
    count = np.bincount(problem.items, minlength=len(problem.costs))
    weights = np.zeros(len(problem.needs))
    for begin, end in _parts(problem):
        inside = np.flatnonzero((problem.rows >= begin) & (problem.rows < end))
        items, columns = np.unique(problem.items[inside], return_inverse=True)
        matrix = np.zeros((end - begin, len(items)))
        rows = problem.rows[inside]
        matrix[rows - begin, columns] = problem.coefficients[inside] / problem.needs[rows]
        here = np.bincount(columns, minlength=len(items))
        weights[begin:end] = _Simplex(matrix, problem.costs[items] * here / count[items]).duals()
    return _exact(problem, weights)


def _parts(problem: Rows) -> list[tuple[int, int]]:
    """Ranges of rows with few cells each."""
    height = len(problem.needs)
    items = max(1, len(np.unique(problem.items)))
    rows = max(1, _MOST_CELLS // items)
    return [(begin, min(begin + rows, height)) for begin in range(0, height, rows)]


def _exact(problem: Rows, weights: Floats) -> Multipliers:
    """The multipliers rounded to integers, and what follows from them without any rounding."""
    largest = np.cumsum(weights)[-1:].sum() + problem.costs.max(initial=0)
    scale = 1 << max(0, min(20, 60 - int(largest).bit_length()))  # products stay below 2 ** 63
    of_rows = np.floor(weights * scale / problem.needs).astype(np.int64)
    reduced = problem.costs * scale
    np.subtract.at(reduced, problem.items, problem.coefficients * of_rows[problem.rows])
    listed = reduced.tolist()
    needed = sum((of_rows * problem.needs).tolist())
    return Multipliers(of_rows.tolist(), listed, needed + sum(cost for cost in listed if cost < 0), scale)


class _Simplex:
    """Minimise ``costs @ y`` over ``matrix @ y >= 1`` and 0 <= y <= 1, by the dual simplex method.

    The dictionary holds the basic variables as functions of the others: basic = constant + table @ nonbasic.
    Variables are the items, then a surplus per row (without upper bound). Nonbasic ones are at a bound;
    ``values`` are those of the basic ones, ``reduced`` the reduced costs of the others.
    """

    def __init__(self, matrix: Floats, costs: Floats) -> None:
        height, width = matrix.shape
        self.table, self.reduced = matrix, costs.astype(np.float64)
        self.upper = np.concatenate((np.ones(width), np.full(height, np.inf)))
        self.outside = np.arange(width)
        self.basic = np.arange(width, width + height)
        self.at_upper = np.zeros(width, bool)
        self.values = np.full(height, -1.0)

    def duals(self) -> Floats:
        """The multipliers of the rows after the last pivot."""
        pivots = _MOST_WORK // max(1, self.table.size)
        for _ in range(min(pivots, 20 * sum(self.table.shape))):
            if not self._pivot():
                break
        height, width = self.table.shape
        found = np.zeros(height)
        surplus = self.outside >= width
        found[self.outside[surplus] - width] = np.maximum(0, self.reduced[surplus])
        return found

    def _pivot(self) -> bool:
        """Whether a basic variable was out of its bounds and has left the basis."""
        below, above = -self.values, self.values - self.upper[self.basic]
        wrong = np.maximum(below, above)
        row = int(np.argmax(wrong))
        if wrong[row] <= _TOLERANCE:
            return False
        rising = below[row] > above[row]
        ranked, slopes = self._candidates(row, rising)
        if not len(ranked):
            return False
        # Each candidate that can be flipped without mending the row is; the one that mends it enters.
        left = wrong[row] - np.cumsum(slopes * self.upper[self.outside[ranked]])
        entering = min(int(np.searchsorted(-left, 0)), len(ranked) - 1)
        self._flip(ranked[:entering])
        self._exchange(row, int(ranked[entering]), 0.0 if rising else float(self.upper[self.basic[row]]))
        return True

    def _candidates(self, row: int, rising: bool) -> tuple[Array, Floats]:
        """Nonbasic variables that can move a basic one, those whose reduced costs reach zero first leading."""
        effect = np.where(self.at_upper, -self.table[row], self.table[row])
        effect = effect if rising else -effect
        able = np.flatnonzero(effect > _TOLERANCE)
        ratios = np.abs(self.reduced[able]) / effect[able]
        ranked = able[np.argsort(ratios, kind="stable")]
        return ranked, effect[ranked]

    def _flip(self, columns: Array) -> None:
        """Moves nonbasic variables from one bound to the other."""
        for column in columns.tolist():
            sign = -1.0 if self.at_upper[column] else 1.0
            self.values += self.table[:, column] * (sign * self.upper[self.outside[column]])
        self.at_upper[columns] ^= True

    def _exchange(self, row: int, column: int, bound: float) -> None:
        """Basic variable ``row`` leaves at ``bound``, nonbasic ``column`` takes its place."""
        pivot = self.table[row, column]
        step = (bound - self.values[row]) / pivot
        entered = (self.upper[self.outside[column]] if self.at_upper[column] else 0.0) + step
        self.values += self.table[:, column] * step
        self.values[row] = entered
        self.at_upper[column] = bound > 0
        self.outside[column], self.basic[row] = self.basic[row], self.outside[column]
        across, down = self.table[row] / -pivot, self.table[:, column].copy()
        across[column] = 1 / pivot
        self.table[:, column] = 0.0
        self.table[row] = 0.0
        down[row] = 1.0
        self.table += np.multiply.outer(down, across)
        price = self.reduced[column]
        self.reduced[column] = 0.0
        self.reduced += price * across
