# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Simulated annealing over the order of placement, after Imanishi and Xu (ISMM 2024)."""

from __future__ import annotations

import math
import random
from typing import ClassVar

from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.fitting import Fitting, by_lifetime, by_size, by_worth
from spyre_mlir.scratchpad.instance import Instance
from spyre_mlir.scratchpad.solver import MemoryPlanSolver, Placement

#: Temperatures at the beginning and the end, as fractions of all savings (or of LOAD).
_HOT, _COLD = 0.0001, 0.000001

#: Steps that an order costs in addition to one step per buffer, roughly in proportion to its time.
_STEPS_OF_ORDER = 50


@dataclass(frozen=True)
class FittedOrder:
    order: list[int]
    addresses: dict[int, int]
    lost: int
    peak: int

    @property
    def cost(self) -> tuple[int, int]:
        """Lost savings, then the peak, in bytes."""
        return self.lost, self.peak


@dataclass(frozen=True)
class AnnealingSolver(MemoryPlanSolver):
    """Change an order and fit again, each buffer in the lowest gap; worse orders are accepted while it is hot.

    The solver minimises the lost savings, then the peak. It starts with the best of three orders, so it is never worse
    than these. It stops when nothing is lost and the peak is LOAD, or after ``steps``: one per buffer of each order,
    and some per order. Random numbers come from ``random.random``, whose sequence Python guarantees for a ``seed``.
    """

    name: ClassVar[str] = "annealing"
    seed: int = 0
    steps: int = 100_000

    def place(self, instance: Instance) -> Placement:
        """Return the addresses of the best order found."""
        fitting, rng = Fitting(instance), random.Random(self.seed)
        first = [_fitted(fitting, order(instance), 0, {}) for order in (by_lifetime, by_size, by_worth)]
        state = best = min(first, key=lambda state: state.cost)
        steps = len(instance) + _STEPS_OF_ORDER
        work = len(first) * steps
        while work < self.steps and best.cost > (0, instance.load):
            # Move one buffer earlier: any buffer, or one that causes the cost (it is lost, or else ends at the peak).
            order, addresses = state.order, state.addresses
            blamed = [index for index in order if index not in addresses]
            if not blamed:
                blamed = [index for index in order if addresses[index] + fitting.sizes[index] == state.peak]
            # Half of the moves are of causes of the cost, half of any buffer, so that every order can be reached.
            movable = blamed if rng.random() < 0.5 else order
            # Not ``choice`` or ``randrange``: Python guarantees equal sequences only for ``random``.
            old = order.index(movable[int(rng.random() * len(movable))])
            to = int(rng.random() * (old + 1))
            moved = [*order[:to], order[old], *order[to:old], *order[old + 1 :]]
            new = _fitted(fitting, moved, to, addresses)
            work += steps
            temperature = _HOT * (_COLD / _HOT) ** (work / self.steps)
            worse = _energy(instance, new) - _energy(instance, state)
            # Worse orders are accepted while it is hot, to leave local minima.
            if worse <= 0 or rng.random() < math.exp(-worse / temperature):
                state = new
            best = min(best, new, key=lambda state: state.cost)
        return Placement(best.addresses, work=work)


def _fitted(fitting: Fitting, order: list[int], same: int, addresses: dict[int, int]) -> FittedOrder:
    """Return the state of an order whose first ``same`` buffers keep their addresses."""
    # Fitting is greedy: the same beginning of an order has the same addresses.
    placed = {index: addresses[index] for index in order[:same] if index in addresses}
    fitted = fitting.fit(order[same:], placed=placed)
    savings, sizes = fitting.savings, fitting.sizes
    lost = sum(savings) - sum(savings[index] for index in fitted)
    return FittedOrder(
        order, fitted, lost, max((address + sizes[index] for index, address in fitted.items()), default=0)
    )


def _energy(instance: Instance, state: FittedOrder) -> float:
    """Return the energy of a state, at most 1 if nothing is lost."""
    if state.lost:
        return 1 + state.lost / int(instance.savings.sum())
    return min(state.peak / instance.load - 1, 1)
