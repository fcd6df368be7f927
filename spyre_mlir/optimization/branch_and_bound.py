# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Branch and bound over the linear relaxation: which items cover all needs at the least cost.

Depth first. Each node solves the relaxation where its parent left it, rounds the solution up and drops what is
not needed (a better choice, now and then), fixes the items whose reduced costs leave no other way, and branches
on the item that the relaxation knows least about. It is strong where many items compete at few stops; over many
stops with few items each the sweep over time is (``temporal_knapsack.py``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.optimization.arrays import Array, Floats
from spyre_mlir.optimization.lagrange import Rows, dense, exact
from spyre_mlir.optimization.simplex import Simplex
from spyre_mlir.records import dataclass

Spilled = NDArray[np.bool_]

#: What the loss of a choice is, or None if it is not allowed.
Loss = Callable[[Spilled], int | None]

#: Values this close to an integer are one.
_INTEGRAL = 1e-6


@dataclass(frozen=True, eq=False)
class Branched:
    """The best choice found, if any is below the limit; no such choice loses less than ``bound``."""

    spilled: Spilled | None
    bound: int
    nodes: int


@dataclass(frozen=True, eq=False)
class RelaxedNode:
    """``choices`` are 1 for spilled, 0 for kept, -1 for open items; ``bound`` that of the parent, scaled to bytes."""

    relaxation: Simplex
    choices: Array
    bound: int


def branch(problem: Rows, loss: Loss, upper: int, unit: int, nodes: int) -> Branched:
    """The choice with the least loss below ``upper``, a multiple of ``unit``, within some nodes.

    The rows must hold for every allowed choice; they need not be all that makes it allowed. ``loss`` is at least
    the sum of the costs.
    """
    return BranchAndBound(problem, loss, upper, unit).run(nodes)


class BranchAndBound:
    def __init__(self, problem: Rows, loss: Loss, upper: int, unit: int) -> None:
        self.problem, self.loss, self.upper, self.unit = problem, loss, upper, unit
        self.matrix = dense(problem)
        self.best: Spilled | None = None

    def run(self, nodes: int) -> Branched:
        """Nodes from a stack, the likelier child of each first."""
        count = len(self.problem.costs)
        # With rows that need 1 one tolerance serves all.
        scaled = self.matrix / self.problem.needs[:, None]
        stack = [RelaxedNode(Simplex(scaled, self.problem.costs.astype(np.float64)), np.full(count, -1), 0)]
        visited = 0
        while stack and visited < nodes:
            node = stack.pop()
            if node.bound < self.upper:
                visited += 1
                stack += self._expand(node)
        return Branched(self.best, min([self.upper, *(node.bound for node in stack)]), visited)

    def _expand(self, node: RelaxedNode) -> list[RelaxedNode]:
        """The children of a node, the likelier one last; none if nothing better can be below it."""
        choices, relaxation = node.choices, node.relaxation
        if not self._can_cover(choices):
            return []
        relaxation.run()
        duals = exact(self.problem, relaxation.duals())
        reduced = np.array(duals.reduced)
        # An item that is fixed against its reduced cost raises the bound by that (``Multipliers``).
        bound = duals.bound + sum(np.maximum(reduced[choices == 1], 0).tolist())
        bound += sum(np.maximum(-reduced[choices == 0], 0).tolist())
        values = relaxation.solution()
        self._offer(self._needed(np.where(choices < 0, values > _INTEGRAL, choices == 1)))
        gap = (self.upper - self.unit) * duals.scale - bound
        if gap < 0:
            return []
        choices = self._fixed(relaxation, choices, reduced, gap)
        if (choices >= 0).all():
            self._offer(choices == 1)
            return []
        item = self._unclear(values, choices, reduced)
        likelier = int(values[item] >= 0.5)
        at_least = -(-bound // (duals.scale * self.unit)) * self.unit
        return [_child(relaxation, choices, item, value, at_least) for value in (1 - likelier, likelier)]

    def _can_cover(self, choices: Array) -> bool:
        return bool((self.matrix[:, choices != 0].sum(axis=1) >= self.problem.needs).all())

    def _offer(self, spilled: Spilled) -> None:
        """Keeps a choice if it is the best one."""
        lost = self.loss(spilled)
        if lost is not None and lost < self.upper:
            self.best, self.upper = spilled, lost

    def _needed(self, spilled: Spilled) -> Spilled:
        """A choice without the items that no row needs, the dearest ones first."""
        needed = spilled.copy()
        surplus = self.matrix[:, spilled].sum(axis=1) - self.problem.needs
        chosen = np.flatnonzero(spilled)
        for item in chosen[np.argsort(-self.problem.costs[chosen], kind="stable")].tolist():
            without = surplus - self.matrix[:, item]
            if (without >= 0).all():
                surplus, needed[item] = without, False
        return needed

    def _fixed(self, relaxation: Simplex, choices: Array, reduced: Array, gap: int) -> Array:
        """The choices, with those made that would raise the bound by more than the gap if made otherwise."""
        decided = np.where(reduced > gap, 0, np.where(-reduced > gap, 1, -1))
        new = (choices < 0) & (decided >= 0)
        for item in np.flatnonzero(new).tolist():
            relaxation.fix(item, float(decided[item]))
        return np.where(new, decided, choices)

    def _unclear(self, values: Floats, choices: Array, reduced: Array) -> int:
        """The open item that is nearest to one half, or if all are integers with the lowest reduced cost."""
        distance = np.where(choices < 0, np.abs(values - 0.5), 1.0)
        item = int(np.argmin(distance))
        if distance[item] < 0.5 - _INTEGRAL:
            return item
        return int(np.argmin(np.where(choices < 0, np.abs(reduced), np.iinfo(np.int64).max)))


def _child(relaxation: Simplex, choices: Array, item: int, value: int, bound: int) -> RelaxedNode:
    relaxation, choices = relaxation.copy(), choices.copy()
    relaxation.fix(item, float(value))
    choices[item] = value
    return RelaxedNode(relaxation, choices, bound)
