# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which buffers to keep in a memory that cannot hold all of them, addresses ignored.

A selection keeps some buffers and spills the others; at every time the load of the kept ones (in-place pairs
shared) is at most the capacity. The least savings that a selection loses are a lower bound for every plan with
one address per buffer. Buffers that are live at no overloaded time are kept.

Where addresses are the problem, conflicts say so: a conflict is a set of buffers that cannot all be kept, whatever else
is spilled. Selecting, packing, and selecting again with the conflict of what could not be packed ends with the
optimum (logic-based Benders decomposition; Hooker and Ottosson, 2003).

Known as the temporal knapsack problem (Bartlett et al., 2005). The search is in
``optimization/temporal_knapsack.py``, the bounds that guide it in ``optimization/lagrange.py``; the problem is made
small first. Times without an end before the next start are no stops. And if i lives whenever j does, is no smaller,
saves no more and is in no in-place pair, then i is spilled before j is: j could have its address.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.branch_and_bound import branch
from spyre_mlir.optimization.lagrange import multipliers
from spyre_mlir.optimization.temporal_knapsack import spilled_items, sweep
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.selection_problem import Group, SelectionProblem
from spyre_mlir.scratchpad.selection_sweep import SelectionSweep

#: Rows times items up to which there is branch and bound; the steps that a node counts for, and how many cells for
#: one more.
_MOST_BRANCHED, _STEPS_OF_NODE, _CELLS_OF_STEP = 1 << 19, 50, 500

#: States of the first sweep, and the factor from one sweep to the next.
_FIRST_WIDTH, _WIDER = 16, 8


@dataclass(frozen=True, eq=False)
class Selection:
    """``selected`` says per buffer whether it stays; it is None if nothing that loses less than ``upper`` was found.

    ``lost`` are the bytes of savings of the spilled buffers (``upper`` if there is none). No selection that
    loses less than ``upper`` loses less than ``bound``. ``steps`` counts states looked at.
    """

    selected: NDArray[np.bool_] | None
    lost: int
    bound: int
    steps: int

    @property
    def exact(self) -> bool:
        """Return whether no selection loses less."""
        return self.bound >= self.lost


def select(
    instance: Instance,
    capacity: int,
    *,
    upper: int | None = None,
    conflicts: Sequence[Collection[int]] = (),
    groups: Sequence[Group] = (),
    budget: int = 200_000,
) -> Selection:
    """The selection that loses least, below ``upper`` bytes and within about ``budget`` steps of search.

    All savings of ``instance`` are positive. No conflict is kept whole. ``upper`` is what is known already: by
    default one more than the loss of everything.
    """
    limit = int(instance.savings.sum()) + sum(group.extra for group in groups) + 1 if upper is None else upper
    overloaded = bool((instance.loads > capacity).any())
    if not overloaded and not conflicts:
        everything = np.ones(len(instance), bool)
        return Selection(everything, 0, 0, 0) if limit > 0 else Selection(None, limit, limit, 0)
    return _solve(SelectionProblem(instance, capacity, conflicts, groups), limit, budget)


def _solve(problem: SelectionProblem, upper: int, budget: int) -> Selection:
    """A narrow sweep; then branch and bound where the rows are few; then wider sweeps, until one is exact."""
    # Losses are sums of savings: they differ by at least the greatest common divisor.
    unit = math.gcd(*problem.savings.tolist(), *(group.extra for group in problem.groups))
    rows = problem.rows()
    duals = multipliers(rows)
    stops = SelectionSweep(problem, duals).stops()
    selected, steps, width = None, 0, _FIRST_WIDTH
    bound = min(_rounded_up(duals.bound, duals.scale * unit) * unit, upper)
    while bound < upper and (steps == 0 or steps * _WIDER <= budget):
        # Only losses below ``upper`` are of interest, and they are less by a whole unit.
        swept = sweep(stops, duals.bound, (upper - unit) * duals.scale, width)
        steps += swept.steps
        if swept.best is not None and swept.best.lost < upper:
            selected, upper = problem.without(spilled_items(swept.best.spilled)), swept.best.lost
        behind = upper if swept.behind is None else _rounded_up(swept.behind, duals.scale * unit) * unit
        bound = min(max(bound, behind), upper)
        cells = len(rows.needs) * len(rows.costs)
        # Once, when the narrow sweep has given an upper bound to prune with.
        if width == _FIRST_WIDTH and bound < upper and cells <= _MOST_BRANCHED:
            per_node = _STEPS_OF_NODE + cells // _CELLS_OF_STEP
            branched = branch(rows, problem.loss, upper, unit, budget // per_node)
            steps += branched.nodes * per_node
            if branched.spilled is not None:
                upper = problem.loss(branched.spilled) or 0
                selected = problem.without(branched.spilled)
            bound = min(max(bound, branched.bound), upper)
        width *= _WIDER
    return Selection(selected, upper, bound, steps)


def _rounded_up(value: int, unit: int) -> int:
    """``value`` in units, rounded up."""
    return -(-value // unit)
