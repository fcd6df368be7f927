# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The cheapest split of a matmul, by the cost model."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.cost_model import compute_ns, operation_cost, ring_ns
from spyre_mlir.cost.of_space import even_work
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.division.slices import Splits, checked, legal_splits
from spyre_mlir.division.spans import out_of_reach
from spyre_mlir.layout.space import Space
from spyre_mlir.target.ops import DEVICE_OPS


@functools.lru_cache(maxsize=1 << 12)
def cheapest_split(
    opcode: str,
    space: Space,
    cores: int,
    committed: tuple[int, ...] | None = None,
    blocked: frozenset[int] = frozenset(),
    uneven: bool = False,
) -> tuple[int, ...]:
    """Return the slices per dim with the smallest ``split_cost`` on at most ``cores`` cores, within the span limit.

    A dim has at least its ``committed`` slices, all equal unless ``uneven``; ``blocked`` dims are not split further.
    Of equal costs the split whose cores read the fewest bytes, then the first in lexicographic order.
    Raises ``ValueError`` if the committed splits need more cores, or if there are no such slices.
    """
    least = checked(space.units, cores, committed)
    splits = reaching_splits(opcode, space, cores, least, blocked, uneven)
    if not splits.size:
        raise ValueError(
            f"No divisors of {list(space.units)} from {list(least)} on fit {cores} cores and what each can span."
        )
    best = by_cost(opcode, space, splits)[0]
    return tuple(splits[:, best].tolist())


@functools.lru_cache(maxsize=1 << 12)
def cheapest_splits(
    opcode: str, space: Space, cores: int, blocked: frozenset[int] = frozenset(), limit: int = 4
) -> tuple[tuple[int, ...], ...]:
    """Return the ``limit`` splits with the smallest ``split_cost`` within the span limit, the cheapest first.

    Slices are equal, ``blocked`` dims stay whole. Ties are in lexicographic order.
    """
    splits = reaching_splits(opcode, space, cores, (1,) * len(space.units), blocked)
    if not splits.size:
        return ()
    best = np.argsort(split_cost(opcode, space, splits), kind="stable")[:limit]
    return tuple(tuple(splits[:, column].tolist()) for column in best)


@functools.lru_cache(maxsize=1 << 12)
def cheapest_on_chip(
    opcode: str, space: Space, cores: int, blocked: frozenset[int] = frozenset(), limit: int = 3
) -> tuple[tuple[int, ...], ...]:
    """Return the ``limit`` splits with which an operation takes least time if all its operands are in LX.

    Of equal times, the fewest operand bytes per core come first, so that fewer bytes are in LX twice.
    """
    splits = reaching_splits(opcode, space, cores, (1,) * len(space.units), blocked)
    if not splits.size:
        return ()
    work = even_work(opcode, space, tuple(splits))
    resident = np.array([operand.core_bytes for operand in work.operands]).sum(axis=0)
    best = np.lexsort((resident, _on_chip_cost(opcode, space, splits)))[:limit]
    return tuple(tuple(splits[:, column].tolist()) for column in best)


@functools.lru_cache(maxsize=1 << 12)
def cheapest_uneven(
    opcode: str, space: Space, cores: int, blocked: frozenset[int] = frozenset()
) -> tuple[tuple[int, ...], ...]:
    """Return the cheapest uneven splits, for operands in device memory and in LX, that beat all equal slices."""
    even, uneven = (
        reaching_splits(opcode, space, cores, (1,) * len(space.units), blocked, is_uneven)
        for is_uneven in (False, True)
    )
    cheaper = []
    for cost in (split_cost, _on_chip_cost) if even.size else ():
        costs = cost(opcode, space, uneven)
        if costs.min() < cost(opcode, space, even).min():
            cheaper.append(tuple(uneven[:, np.argmin(costs)].tolist()))
    return tuple(dict.fromkeys(cheaper))


def _on_chip_cost(opcode: str, space: Space, splits: Splits) -> NDArray[np.float64]:
    """Return the picoseconds per split with all operands in LX."""
    work = even_work(opcode, space, tuple(splits))
    return np.rint(PICOSECONDS * (compute_ns(work) + ring_ns(work)))


def reaching_splits(
    opcode: str,
    space: Space,
    cores: int,
    least: tuple[int, ...],
    blocked: frozenset[int],
    uneven: bool = False,
) -> Splits:
    """Return the legal splits with which no core exceeds the span limit; all splits if one core reaches everything."""
    splits, exempt = legal_splits(space.units, cores, least, blocked, uneven), DEVICE_OPS[opcode].indirect
    # Slicing only shortens spans.
    if out_of_reach(space, (1,) * len(space.units), exempt) is None:
        return splits
    fits = [out_of_reach(space, tuple(row), exempt) is None for row in splits.T.tolist()]
    return splits[:, fits]


def by_cost(opcode: str, space: Space, splits: Splits) -> NDArray[np.int64]:
    """Return the indices of splits by rising cost; of equal costs, the fewest bytes read per core come first."""
    reads = (operand for operand in even_work(opcode, space, tuple(splits)).operands if not operand.writes)
    loaded = np.array([operand.core_bytes for operand in reads]).sum(axis=0)
    return np.lexsort((loaded, split_cost(opcode, space, splits)))


def split_cost(opcode: str, space: Space, splits: Splits) -> NDArray[np.float64]:
    """Return the picoseconds per split with all operands in device memory (``cost/cost_model.py``)."""
    return np.rint(PICOSECONDS * operation_cost(even_work(opcode, space, tuple(splits))).total_ns)
