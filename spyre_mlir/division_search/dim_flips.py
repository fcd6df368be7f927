# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The variants of strategy B: an operation's only split, moved to another dim of its result."""

from __future__ import annotations

from spyre_mlir.division.cores import Division
from spyre_mlir.division.legality import division_problem
from spyre_mlir.division.matching import view_of
from spyre_mlir.layout.space import Space

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
