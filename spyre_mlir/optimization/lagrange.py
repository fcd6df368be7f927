# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lower bounds of covering problems from linear programming.

Minimise the sum of costs[i] y[i] over y in {0, 1}, such that in every row the coefficients of the chosen items add up
to at least the row's need. For all multipliers m >= 0

    sum(m[r] need[r]) + sum(min(0, costs[i] - sum(m[r] coefficient[r, i])))

is a lower bound (Held and Karp, 1971; Fisher, 1981), and the best multipliers are the dual solution of the
linear relaxation (``simplex.py``). The multipliers are rounded to integers before use, so the bound is exact.
"""

from __future__ import annotations

import numpy as np

from spyre_mlir.optimization.arrays import Array, Floats
from spyre_mlir.optimization.simplex import Simplex
from spyre_mlir.records import dataclass

#: Maximum number of rows times items of one linear program. Larger problems are cut into consecutive rows.
_MOST_CELLS = 1 << 18


@dataclass(frozen=True, eq=False)
class Rows:
    """A covering problem as a sparse matrix: item ``items[e]`` has ``coefficients[e]`` in row ``rows[e]``.

    ``needs`` has an entry per row, at least 1; ``costs`` has an entry per item, at least 0. A coefficient is at most
    the need of its row. All items together cover every need.
    """

    rows: Array
    items: Array
    coefficients: Array
    needs: Array
    costs: Array


@dataclass(frozen=True)
class Multipliers:
    """A lower bound in units of 1 / ``scale``: integers throughout.

    ``of_rows`` are the multipliers. ``reduced`` are the reduced costs: the costs of the items minus the sum of
    multiplier times coefficient. ``bound`` is the lower bound of all choices. Choosing an item with reduced cost
    c > 0, or omitting one with c < 0, raises the bound by abs(c).
    """

    of_rows: list[int]
    reduced: list[int]
    bound: int
    scale: int


def multipliers(problem: Rows) -> Multipliers:
    """Return the best multipliers, or good ones if the problem is large.

    If the problem is cut, each part gets a fraction of an item's cost: the fraction of the item's rows that are in
    the part.
    """
    count = np.bincount(problem.items, minlength=len(problem.costs))
    weights = np.zeros(len(problem.needs))
    # Ranges of rows with at most ``_MOST_CELLS`` cells each, but at least one row.
    height = len(problem.needs)
    step = max(1, _MOST_CELLS // max(1, len(np.unique(problem.items))))
    for begin in range(0, height, step):
        end = min(begin + step, height)
        inside = np.flatnonzero((problem.rows >= begin) & (problem.rows < end))
        items, columns = np.unique(problem.items[inside], return_inverse=True)
        matrix = np.zeros((end - begin, len(items)))
        rows = problem.rows[inside]
        matrix[rows - begin, columns] = problem.coefficients[inside] / problem.needs[rows]
        here = np.bincount(columns, minlength=len(items))
        relaxation = Simplex(matrix, problem.costs[items] * here / count[items])
        relaxation.run()
        weights[begin:end] = relaxation.duals()
    return exact(problem, weights)


def exact(problem: Rows, weights: Floats) -> Multipliers:
    """Round the multipliers to integers, and compute reduced costs and bound from them without rounding."""
    largest = np.cumsum(weights)[-1:].sum() + problem.costs.max(initial=0)
    scale = 1 << max(0, min(20, 60 - int(largest).bit_length()))  # products stay below 2 ** 63
    # Any multipliers >= 0 give a bound, so rounding makes the bound weaker but not invalid.
    of_rows = np.floor(weights * scale / problem.needs).astype(np.int64)
    reduced = problem.costs * scale
    np.subtract.at(reduced, problem.items, problem.coefficients * of_rows[problem.rows])
    # Add in Python: each product fits 64 bits, but their sum may not.
    listed = reduced.tolist()
    needed = sum((of_rows * problem.needs).tolist())
    return Multipliers(of_rows.tolist(), listed, needed + sum(cost for cost in listed if cost < 0), scale)


def dense(problem: Rows) -> Array:
    """Return the coefficients as a matrix of rows and items."""
    matrix = np.zeros((len(problem.needs), len(problem.costs)), np.int64)
    matrix[problem.rows, problem.items] = problem.coefficients
    return matrix
