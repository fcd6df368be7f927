# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Strategy B: choose divisions and scratchpad placements together, by planning every combination.

The co-optimisation of "Scratchpad (LX) optimization", kept for comparison. Each operation has few divisions
(``dim_flips``). A leaf is one division for each operation; its score is the number of bytes that remain in device
memory after a solver has planned the leaf.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from spyre_mlir.division.cores import Division
from spyre_mlir.division.matching import view_of
from spyre_mlir.division.spans import division_problem
from spyre_mlir.division_search.division_candidates import DividedOp
from spyre_mlir.layout.space import Space
from spyre_mlir.records import dataclass
from spyre_mlir.scratchpad.buffers import LifetimeBoundBuffer, MemorySpace, PlanError
from spyre_mlir.scratchpad.solvers import DEFAULT, solver
from spyre_mlir.target.ops import DEVICE_OPS

# Division candidates of strategy B: an operation's only split, moved to another dim of its result.

#: Maximum number of candidates of an operation, its seed included, as in "Scratchpad (LX) optimization".
DEFAULT_VARIANT_CAP = 6


def dim_flips(
    space: Space,
    seed: Division,
    blocked: frozenset[int] = frozenset(),
    cap: int = DEFAULT_VARIANT_CAP,
    exempt: frozenset[int] = frozenset(),
) -> tuple[Division, ...]:
    """Return the seed, then its split factor on each other legal output dim, by rising dim, at most ``cap`` in all.

    An output dim is legal if the factor divides its rows or whole sticks, it is not ``blocked``, each core stays
    within the span limit (except for ``exempt`` operands), and each core's part of every operand is a region of the
    buffer. A seed with several split dims, a split reduction or a blocked split dim has no other candidates.
    """
    split = [dim for dim, slices in enumerate(seed.splits) if slices > 1]
    if len(split) != 1 or split[0] in space.reduced | blocked:
        return (seed,)
    factor, divisions = seed.splits[split[0]], [seed]
    for dim in range(len(seed.splits)):
        if len(divisions) >= cap:
            break
        splits = tuple(factor if other == dim else 1 for other in range(len(seed.splits)))
        # The seed is already first in the list.
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
    """Input of planning: the buffers that may be in LX, and the bytes that all other buffers move."""

    buffers: tuple[LifetimeBoundBuffer, ...]
    other_bytes: int


@dataclass(frozen=True)
class CoOptimized:
    """The best leaf: a division per operation, and the remaining bytes with the seeds and with these divisions.

    ``scored`` of ``leaves`` were evaluated; if ``scored`` is smaller, an unseen leaf may leave fewer bytes.
    """

    divisions: Divisions
    before: int
    after: int
    scored: int
    leaves: int


@dataclass(frozen=True)
class StrategyBCoOptimizingAllocator:
    """Depth-first search over the cross product of all division candidates, without pruning.

    Any solver works (``layout_solver`` is a name in ``scratchpad/solvers.py``): the search assumes nothing about how
    its plans of two leaves compare. An operation has at most ``variant_cap`` candidates. The cross product is
    exponential, so the search stops after ``leaves`` leaves; the seeds are first, the last operations vary fastest.
    """

    layout_solver: str = DEFAULT
    variant_cap: int = DEFAULT_VARIANT_CAP
    leaves: int = 512

    def allocate(
        self, operations: Sequence[DividedOp], leaf_of: Callable[[Divisions], Leaf], space: MemorySpace
    ) -> CoOptimized:
        """Return the leaf with the fewest bytes; ties go to the earliest leaf.

        Raises ``PlanError`` if the solver does not exist, or if ``leaves`` or ``variant_cap`` is below 1.
        """
        if self.leaves < 1 or self.variant_cap < 1:
            raise PlanError("The search needs at least one leaf and one candidate of each operation.")
        variants = [self.variants(work) for work in operations]
        chosen_solver, known = solver(self.layout_solver), dict[tuple[LifetimeBoundBuffer, ...], int]()

        def score(divisions: Divisions) -> int:
            leaf = leaf_of(divisions)
            # Many leaves differ only in buffers that are not in LX: equal buffers are planned once.
            if leaf.buffers not in known:
                known[leaf.buffers] = chosen_solver.plan(leaf.buffers, space).traffic
            return leaf.other_bytes + known[leaf.buffers]

        everything = math.prod(map(len, variants))
        # The cross product is exponential in the operations.
        leaves = itertools.islice(itertools.product(*variants), self.leaves)
        # The first leaf has the seeds, the original divisions.
        best = next(leaves)
        before = after = score(best)
        for divisions in leaves:
            bytes_left = score(divisions)
            if bytes_left < after:
                best, after = divisions, bytes_left
        return CoOptimized(best, before, after, min(everything, self.leaves), everything)

    def variants(self, work: DividedOp) -> Divisions:
        """Return the divisions to try for an operation, its original division first."""
        if work.fixed:
            return (work.division,)
        exempt = DEVICE_OPS[work.opcode].indirect
        return dim_flips(work.space, work.division, work.blocked, self.variant_cap, exempt)
