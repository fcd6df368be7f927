# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The linear relaxation of covering problems, by the dual simplex method (Lemke, 1954).

Minimise ``costs @ y`` over ``matrix @ y >= 1`` and lower <= y <= upper. Since no cost is below zero, the method starts
at y = 0, and the bound rises with every pivot; so the duals are valid whenever the method stops. A pivot flips
variables from bound to bound as long as flipping alone helps (Maros, 2003). Narrower bounds keep the duals valid: a
node of a branch and bound continues from the final state of its parent.

All arithmetic is on single elements in a fixed order, without library sums, so that all machines agree to the bit.
"""

from __future__ import annotations

import copy

import numpy as np

from spyre_mlir.optimization.arrays import Array, Floats

#: Tolerance for zero, in rows that are scaled to need 1.
_TOLERANCE = 1e-9

#: Maximum number of cells that all pivots of one run change.
_MOST_WORK = 1 << 28


class Simplex:
    """The dictionary: basic variables as functions of the others, basic = constant + table @ nonbasic.

    Variables are the items, then a surplus per row, which has no upper bound. Nonbasic variables are at a bound.
    ``values`` are the values of the basic variables, ``reduced`` the reduced costs of the nonbasic variables.
    """

    def __init__(self, matrix: Floats, costs: Floats) -> None:
        height, width = matrix.shape
        self.table, self.reduced = matrix.copy(), costs.copy()
        self.lower = np.zeros(width + height)
        self.upper = np.concatenate((np.ones(width), np.full(height, np.inf)))
        self.outside = np.arange(width)
        self.basic = np.arange(width, width + height)
        self.at_upper = np.zeros(width, bool)
        self.values = np.full(height, -1.0)

    def copy(self) -> Simplex:
        """Return an independent copy of the dictionary."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, value.copy())
        return other

    def fix(self, item: int, value: float) -> None:
        """Fix the value of an item. The next ``run`` makes the solution feasible again."""
        # For a basic item the bounds are enough: the next pivot finds its value out of bounds.
        for column in np.flatnonzero(self.outside == item).tolist():
            self.values += self.table[:, column] * (value - self._nonbasic()[column])
        self.lower[item] = self.upper[item] = value

    def run(self) -> None:
        """Pivot until the solution is optimal or the work limit is reached."""
        pivots = _MOST_WORK // max(1, self.table.size)
        for _ in range(min(pivots, 20 * sum(self.table.shape))):
            if not self._pivot():
                return

    def duals(self) -> Floats:
        """Return the multipliers of the rows."""
        height, width = self.table.shape
        multipliers = np.zeros(height)
        surplus = self.outside >= width
        multipliers[self.outside[surplus] - width] = np.maximum(0, self.reduced[surplus])
        return multipliers

    def solution(self) -> Floats:
        """Return the values of the items."""
        values = np.zeros(len(self.lower))
        values[self.outside] = self._nonbasic()
        values[self.basic] = self.values
        return values[: self.table.shape[1]]

    def _nonbasic(self) -> Floats:
        return np.where(self.at_upper, self.upper[self.outside], self.lower[self.outside])

    def _pivot(self) -> bool:
        """Exchange a basic variable that is out of its bounds; return whether there was one."""
        low, high = self.lower[self.basic], self.upper[self.basic]
        below, above = low - self.values, self.values - high
        wrong = np.maximum(below, above)
        row = int(np.argmax(wrong))
        if wrong[row] <= _TOLERANCE:
            return False
        rising = bool(below[row] > above[row])
        ranked, slopes = self._candidates(row, rising)
        if not len(ranked):
            return False
        # Flip each candidate whose flip does not make the row feasible; the first candidate that does enters the basis.
        ranges = self.upper[self.outside[ranked]] - self.lower[self.outside[ranked]]
        shortfall = wrong[row] - np.cumsum(slopes * ranges)
        entering = min(int(np.searchsorted(-shortfall, 0)), len(ranked) - 1)
        columns = ranked[:entering]
        for column, reach in zip(columns.tolist(), ranges[:entering].tolist(), strict=True):
            self.values += self.table[:, column] * (-reach if self.at_upper[column] else reach)
        self.at_upper[columns] ^= True
        # Replace basic variable `row`, which leaves at `bound`, by nonbasic variable `column`.
        column = int(ranked[entering])
        bound = float(low[row] if rising else high[row])
        at_upper = not rising
        step = (bound - self.values[row]) / self.table[row, column]
        entered = self._nonbasic()[column] + step
        self.values += self.table[:, column] * step
        self.values[row] = entered
        self.at_upper[column] = at_upper
        self.outside[column], self.basic[row] = self.basic[row], self.outside[column]
        across, down = self.table[row] / -self.table[row, column], self.table[:, column].copy()
        across[column] = 1 / self.table[row, column]
        self.table[:, column] = 0.0
        self.table[row] = 0.0
        down[row] = 1.0
        # An outer product has one product per cell, so the order of sums cannot depend on a library.
        self.table += np.multiply.outer(down, across)
        price = self.reduced[column]
        self.reduced[column] = 0.0
        self.reduced += price * across
        return True

    def _candidates(self, row: int, rising: bool) -> tuple[Array, Floats]:
        """Return the nonbasic variables that can move a basic one, in the order their reduced costs reach zero."""
        effect = np.where(self.at_upper == rising, -self.table[row], self.table[row])
        free = self.upper[self.outside] > self.lower[self.outside]
        eligible = np.flatnonzero((effect > _TOLERANCE) & free)
        ratios = np.abs(self.reduced[eligible]) / effect[eligible]
        ranked = eligible[np.argsort(ratios, kind="stable")]
        return ranked, effect[ranked]
