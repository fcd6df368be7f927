# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Iteration spaces for the tests of work division, by hand and at random."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from spyre_mlir.layout import BufferView, StickLayout
from spyre_mlir.layout.space import Space
from spyre_mlir.target.target import default_target


@dataclass(frozen=True)
class Operand:
    """The iteration dims of a tensor, its dim order (default: the last one in the stick) and its type."""

    dims: tuple[int, ...]
    order: tuple[int, ...] | None = None
    dtype: str = "f16"

    def view(self, sizes: Sequence[int]) -> BufferView:
        layout = StickLayout.for_tensor(
            default_target(), [sizes[dim] for dim in self.dims], self.dtype, self.order
        )
        return BufferView.of(layout).rename(self.dims, len(sizes), sizes)


def space_of(sizes: Sequence[int], *operands: Operand) -> Space:
    """Return the space of some tensors, the last one the result; dims missing from the result are reduced."""
    views = tuple(operand.view(sizes) for operand in operands)
    present = tuple(frozenset(operand.dims) for operand in operands)
    return Space(tuple(sizes), views, present, frozenset(range(len(sizes))) - present[-1])


def matmul_of(rows: int, columns: int, depth: int) -> Space:
    """A[m, k] x W[k, n], default layouts; the dims are m, n, k."""
    return space_of((rows, columns, depth), Operand((0, 2)), Operand((2, 1)), Operand((0, 1)))


def random_space(rng: random.Random, sizes: Sequence[int]) -> Space:
    """Two or three tensors over some of the dims in random orders; the result has at least one dim."""
    operands = []
    for _ in range(rng.randint(2, 3)):
        dims = rng.sample(range(len(sizes)), rng.randint(1, len(sizes)))
        order = rng.sample(range(len(dims)), len(dims))
        operands.append(Operand(tuple(dims), tuple(order), rng.choice(("f16", "f16", "f32"))))
    return space_of(sizes, *operands)


def legal_splits(units: Sequence[int], cores: int, uneven: bool = False) -> list[tuple[int, ...]]:
    """All splits into equal slices, or into ones of which the last may be smaller, by trying every number."""

    def is_legal(size: int, count: int) -> bool:
        largest = math.ceil(size / count)
        return (count - 1) * largest < size if uneven else size % count == 0

    counts = [[count for count in range(1, cores + 1) if is_legal(size, count)] for size in units]
    return [splits for splits in itertools.product(*counts) if math.prod(splits) <= cores]
