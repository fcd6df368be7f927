"""The cheapest split of a matmul, by the cost model."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.cost.model import operation_cost
from spyre_mlir.cost.of_space import even_work
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.division.slices import checked, divisors
from spyre_mlir.layout.space import Space

#: Slices of each dim in every split that is compared: [dims, splits].
Splits = NDArray[np.int64]


@functools.lru_cache(maxsize=1 << 12)
def cheapest_split(
    opcode: str,
    space: Space,
    cores: int,
    committed: tuple[int, ...] | None = None,
    blocked: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """The slices per dim of the smallest ``split_cost``, together at most ``cores``.

    Slices are divisors of the units and at least what is ``committed``; ``blocked`` dims are not split further.
    Of equal costs the one whose cores read the fewest bytes, then the first in lexicographic order.
    ``ValueError`` if the committed splits need more cores or no divisor is as large.
    """
    least = checked(space.units, cores, committed)
    options = tuple(
        (least[dim],) if dim in blocked else tuple(n for n in divisors(units, cores) if n >= least[dim])
        for dim, units in enumerate(space.units)
    )
    splits = _combinations(options, cores)
    if not splits.size:
        raise ValueError(f"No divisors of {list(space.units)} from {list(least)} on fit {cores} cores.")
    reads = (each for each in even_work(opcode, space, tuple(splits)).operands if not each.writes)
    loaded = np.array([each.core_bytes for each in reads]).sum(axis=0)
    best = np.lexsort((loaded, split_cost(opcode, space, splits)))[0]
    return tuple(splits[:, best].tolist())


@functools.lru_cache(maxsize=1 << 12)
def cheapest_splits(
    opcode: str, space: Space, cores: int, blocked: frozenset[int] = frozenset(), most: int = 4
) -> tuple[tuple[int, ...], ...]:
    """The ``most`` splits with the smallest ``split_cost``, the cheapest first.

    Slices are divisors of the units, ``blocked`` dims stay whole. Of equal costs the first in lexicographic order.
    """
    options = tuple(
        (1,) if dim in blocked else divisors(units, cores) for dim, units in enumerate(space.units)
    )
    splits = _combinations(options, cores)
    best = np.argsort(split_cost(opcode, space, splits), kind="stable")[:most]
    return tuple(tuple(splits[:, at].tolist()) for at in best)


def split_cost(opcode: str, space: Space, splits: Splits) -> NDArray[np.float64]:
    """Picoseconds per split if nothing overlaps, with all operands in device memory (``cost/model.py``).

    Not the time with all overlapped: where memory binds, that is the same for few and for many cores, and the
    operations around, whose operands may be on chip, are divided by themselves. ``joint-planning`` adds up the
    same parts.
    """
    return np.rint(PICOSECONDS * operation_cost(even_work(opcode, space, tuple(splits))).serial_ns)


@functools.lru_cache(maxsize=1 << 10)
def _combinations(options: tuple[tuple[int, ...], ...], cores: int) -> Splits:
    """All choices of one option per dim whose product is at most ``cores``, in lexicographic order."""
    rows, used = [], np.ones(1, np.int64)
    for counts in options:
        grown = np.multiply.outer(used, counts)
        before, option = np.nonzero(grown <= cores)
        rows = [*(row[before] for row in rows), np.array(counts)[option]]
        used = grown[before, option]
    chosen = np.array(rows, np.int64)
    chosen.setflags(write=False)
    return chosen
