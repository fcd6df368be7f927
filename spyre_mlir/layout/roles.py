# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Roles of the dims of an operation: reduced, kept, contracted, rows, columns, .. No layouts here."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import replace

from spyre_mlir.records import dataclass
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class Iteration:
    """The iteration of an operation for the stick rules: extents of its dims, the dims of each operand, element types.

    The last operand is the result. ``windows`` are the dims of a window and the dims that it slides along, which
    do not follow from ``present``; only pooling and convolution have windows.
    """

    target: Target
    sizes: tuple[int, ...]
    present: tuple[frozenset[int], ...]
    reduced: frozenset[int]
    dtypes: tuple[str, ...]
    windows: frozenset[int] = frozenset()

    def reordered(self, inputs: Sequence[int]) -> Iteration:
        """Return the iteration with original input ``inputs[k]`` at position ``k``."""
        order = (*inputs, len(self.present) - 1)
        if order == tuple(range(len(order))):
            return self
        return replace(
            self,
            present=tuple(self.present[operand] for operand in order),
            dtypes=tuple(self.dtypes[operand] for operand in order),
        )


class Role(enum.Enum):
    """The role of a dim in an operation."""

    REDUCED = "reduced"
    KEPT = "kept"
    CONTRACTED = "contracted"
    ROW = "row"
    COLUMN = "column"
    BATCH = "batch"
    WINDOW = "window"
    SELECTED = "k"
    NORMALISED = "normalised"
    NONE = "no"


_MEANING: dict[Role, Callable[[Iteration, int], bool]] = {
    Role.REDUCED: lambda it, dim: dim in it.reduced,
    Role.KEPT: lambda it, dim: dim in it.present[-1],
    Role.CONTRACTED: lambda it, dim: (
        dim in it.reduced and dim not in it.windows and dim in it.present[0] & it.present[1]
    ),
    Role.ROW: lambda it, dim: dim in it.present[0] - it.present[1] - it.reduced,
    Role.COLUMN: lambda it, dim: dim in it.present[1] - it.present[0] - it.reduced,
    Role.BATCH: lambda it, dim: dim in (it.present[0] & it.present[1]) - it.reduced,
    Role.WINDOW: lambda it, dim: dim in it.windows,
    Role.SELECTED: lambda it, dim: not any(dim in present for present in it.present[:-1]),
    Role.NORMALISED: lambda it, dim: dim in it.present[0] - it.present[1],
    Role.NONE: lambda it, dim: False,
}


def dims_of(role: Role, iteration: Iteration) -> list[int]:
    """Return all dims of a role, ascending."""
    return [dim for dim in range(len(iteration.sizes)) if is_of(role, iteration, dim)]


def sized_dims_of(role: Role, iteration: Iteration) -> list[int]:
    """Return the dims of a role that have more than one element, ascending."""
    return [dim for dim in dims_of(role, iteration) if iteration.sizes[dim] > 1]


def is_of(role: Role, iteration: Iteration, dim: int) -> bool:
    """Return whether a dim has a role."""
    return _MEANING[role](iteration, dim)
