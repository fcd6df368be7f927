# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Lower bounds of covering problems from linear programming.

Minimise the sum of costs[i] y[i] over y in {0, 1}, where in every row the coefficients of the chosen items reach
at least its need. For all multipliers m >= 0

    sum(m[r] need[r]) + sum(min(0, costs[i] - sum(m[r] coefficient[r, i])))

is a lower bound (Held and Karp, 1971; Fisher, 1981), and the best multipliers are the dual solution of the
linear relaxation (``simplex.py``). They are made integers before they are used: the bound is exact.
"""

from __future__ import annotations

import numpy as np

from spyre_mlir.optimization.arrays import Array, Floats
from spyre_mlir.optimization.simplex import Simplex
from spyre_mlir.records import dataclass

#: Rows times items of one linear program. Larger problems are cut into consecutive rows.
_MOST_CELLS = 1 << 18


@dataclass(frozen=True, eq=False)
class Rows:
    """A covering problem as a sparse matrix: entry e says that ``items[e]`` gives row ``rows[e]`` ``coefficients[e]``.

    ``needs`` has an entry per row, at least 1, ``costs`` one per item, none below 0; no coefficient is above the
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
        relaxation = Simplex(matrix, problem.costs[items] * here / count[items])
        relaxation.run()
        weights[begin:end] = relaxation.duals()
    return exact(problem, weights)


def _parts(problem: Rows) -> list[tuple[int, int]]:
    """Ranges of rows with few cells each."""
    height = len(problem.needs)
    items = max(1, len(np.unique(problem.items)))
    rows = max(1, _MOST_CELLS // items)
    return [(begin, min(begin + rows, height)) for begin in range(0, height, rows)]


def exact(problem: Rows, weights: Floats) -> Multipliers:
    """The multipliers rounded to integers, and what follows from them without any rounding."""
    largest = np.cumsum(weights)[-1:].sum() + problem.costs.max(initial=0)
    scale = 1 << max(0, min(20, 60 - int(largest).bit_length()))  # products stay below 2 ** 63
    # Any multipliers of 0 or more give a bound, so rounding costs sharpness and no validity.
    of_rows = np.floor(weights * scale / problem.needs).astype(np.int64)
    reduced = problem.costs * scale
    np.subtract.at(reduced, problem.items, problem.coefficients * of_rows[problem.rows])
    # Sums are Python's: each product fits 64 bits, all of them together need not.
    listed = reduced.tolist()
    needed = sum((of_rows * problem.needs).tolist())
    return Multipliers(of_rows.tolist(), listed, needed + sum(cost for cost in listed if cost < 0), scale)


def dense(problem: Rows) -> Array:
    """The coefficients as a matrix of rows and items."""
    matrix = np.zeros((len(problem.needs), len(problem.costs)), np.int64)
    matrix[problem.rows, problem.items] = problem.coefficients
    return matrix
