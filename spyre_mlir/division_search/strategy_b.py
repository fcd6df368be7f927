# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Strategy B: divisions and scratchpads chosen together, by planning every combination.

The co-optimisation of "Scratchpad (LX) optimization", kept to compare with: each operation has few divisions
(``dim_flips``), a leaf is one of them for each, and its score is the number of bytes that are left in device memory
once a solver has planned it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from spyre_mlir.division.cores import Division
from spyre_mlir.division.legality import division_problem
from spyre_mlir.division.matching import view_of
from spyre_mlir.division_search.division_candidates import DividedOp
from spyre_mlir.layout.space import Space
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.solvers import DEFAULT, solver
from spyre_mlir.target.ops import DEVICE_OPS

# The variants of strategy B: an operation's only split, moved to another dim of its result.

#: Variants of an operation, its seed included, as in "Scratchpad (LX) optimization".
DEFAULT_VARIANT_CAP = 6


def dim_flips(
    space: Space,
    seed: Division,
    blocked: frozenset[int] = frozenset(),
    cap: int = DEFAULT_VARIANT_CAP,
    exempt: frozenset[int] = frozenset(),
) -> tuple[Division, ...]:
    """The seed, then its split factor on each other output dim that can have it, by rising dim, ``cap`` in all.

    A dim can have it if the factor divides its rows or whole sticks, it is not ``blocked``, each core stays
    inside the span limit (but for ``exempt`` operands), and what a core touches of every operand is a region
    of its buffer. A seed with several split dims, or a split reduction, or whose split dim is blocked, has no
    other variant.
    """
    split = [dim for dim, slices in enumerate(seed.splits) if slices > 1]
    if len(split) != 1 or split[0] in space.reduced | blocked:
        return (seed,)
    factor, divisions = seed.splits[split[0]], [seed]
    for dim in range(len(seed.splits)):
        if len(divisions) >= cap:
            break
        splits = tuple(factor if other == dim else 1 for other in range(len(seed.splits)))
        # The seed leads the list already.
        if dim in space.reduced or splits == seed.splits:
            continue
        if division_problem(space, splits, factor, blocked, exempt=exempt) is not None:
            continue
        flipped = Division.of(splits, space.units, space.reduced)
        if all(view_of(space, operand, flipped) is not None for operand in range(len(space.views))):
            divisions.append(flipped)
    return tuple(divisions)


Divisions = tuple[Division, ...]


@dataclass(frozen=True)
class Leaf:
    """What planning starts from: the buffers that may be in LX, and the bytes that all others move."""

    buffers: tuple[LifetimeBoundBuffer, ...]
    other_bytes: int


@dataclass(frozen=True)
class CoOptimized:
    """The best leaf: a division per operation, and the bytes left with the seeds and with these.

    ``scored`` of ``leaves`` were looked at; where that is less, an unseen one may leave fewer bytes.
    """

    divisions: Divisions
    before: int
    after: int
    scored: int
    leaves: int


@dataclass(frozen=True)
class StrategyBCoOptimizingAllocator:
    """Depth first over the cross product of all division candidates, without pruning.

    Any solver will do (``layout_solver`` is a name of ``scratchpad/solvers.py``): nothing is assumed about how
    its plans of two leaves compare. An operation has at most ``variant_cap`` candidates. The cross product is
    exponential, so the search ends after ``leaves``, the seeds first, the last operations varied first.
    """

    layout_solver: str = DEFAULT
    variant_cap: int = DEFAULT_VARIANT_CAP
    leaves: int = 512

    def allocate(
        self, operations: Sequence[DividedOp], leaf_of: Callable[[Divisions], Leaf], space: MemorySpace
    ) -> CoOptimized:
        """The leaf with the fewest bytes, of equal ones the earliest.

        ``PlanError`` if there is no such solver, or no leaf to look at.
        """
        if self.leaves < 1 or self.variant_cap < 1:
            raise PlanError("The search needs at least one leaf, and one variant of each operation.")
        variants = [self.variants(work) for work in operations]
        chosen_solver, known = solver(self.layout_solver), dict[tuple[LifetimeBoundBuffer, ...], int]()

        def score(divisions: Divisions) -> int:
            leaf = leaf_of(divisions)
            # Many leaves differ in buffers that are not in LX: equal ones are planned once.
            if leaf.buffers not in known:
                known[leaf.buffers] = chosen_solver.plan(leaf.buffers, space).traffic
            return leaf.other_bytes + known[leaf.buffers]

        everything = math.prod(map(len, variants))
        # The cross product is exponential in the operations.
        leaves = itertools.islice(itertools.product(*variants), self.leaves)
        # The first leaf has the seeds, the divisions as they came.
        best = next(leaves)
        before = after = score(best)
        for divisions in leaves:
            bytes_left = score(divisions)
            if bytes_left < after:
                best, after = divisions, bytes_left
        return CoOptimized(best, before, after, min(everything, self.leaves), everything)

    def variants(self, work: DividedOp) -> Divisions:
        """The divisions to try for an operation, its own one first."""
        if work.fixed:
            return (work.division,)
        exempt = DEVICE_OPS[work.opcode].indirect
        return dim_flips(work.space, work.division, work.blocked, self.variant_cap, exempt)
