"""What a split of a matmul costs, and the cheapest one.

The formula is that of upstream's planner (work-division.md, "Matmul split cost"); its constants are in
``spyre.toml``. It ranks splits; it does not predict times.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.division.slices import checked, divisors
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.stick_layout import bytes_of
from spyre_mlir.target.device import device

#: Slices of each dim in every split that is compared: [dims, splits].
Splits = NDArray[np.int64]


@dataclass(frozen=True)
class Matmul:
    """A product ``C[b, m, n] = sum over k of A[b, m, k] W[b, k, n]`` over iteration dims in any order.

    ``sizes`` are padded elements, ``units`` what can be divided. ``present`` are the dims of A, W and C: those
    of A alone are rows (batches too, if they share W), those of W alone columns, those of both batches unless
    ``reduced``.
    """

    sizes: tuple[int, ...]
    units: tuple[int, ...]
    present: tuple[frozenset[int], ...]
    reduced: frozenset[int]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, space: Space) -> Matmul:
        """The product of a space of three operands."""
        dtypes = tuple(view.dtype for view in space.views)
        return cls(space.padded, space.units, space.present, space.reduced, dtypes)

    @property
    def batch(self) -> frozenset[int]:
        return (self.present[0] & self.present[1]) - self.reduced

    @property
    def rows(self) -> frozenset[int]:
        return self.present[0] - self.present[1]

    @property
    def columns(self) -> frozenset[int]:
        return self.present[1] - self.present[0]

    @property
    def shared_weight(self) -> bool:
        """Whether W is the same for all batches."""
        return all(self.sizes[dim] == 1 for dim in self.batch)

    def extent(self, dims: Collection[int]) -> int:
        """Elements of some dims together."""
        return math.prod(self.sizes[dim] for dim in dims)

    def operand_bytes(self, operand: int) -> int:
        return bytes_of(self.extent(self.present[operand]), self.dtypes[operand])


@functools.lru_cache(maxsize=1 << 12)
def cheapest_split(
    matmul: Matmul,
    cores: int,
    committed: tuple[int, ...] | None = None,
    blocked: frozenset[int] = frozenset(),
) -> tuple[int, ...]:
    """The slices per dim of the smallest ``split_cost_us``, together at most ``cores``.

    Slices are divisors of the units and at least what is ``committed``; ``blocked`` dims are not split further.
    Of equal costs the one whose cores read the fewest bytes of A and W, then the first in lexicographic order.
    ``ValueError`` if the committed splits need more cores or no divisor is as large.
    """
    least = checked(matmul.units, cores, committed)
    options = tuple(
        (least[dim],) if dim in blocked else tuple(n for n in divisors(units, cores) if n >= least[dim])
        for dim, units in enumerate(matmul.units)
    )
    splits = _combinations(options, cores)
    if not splits.size:
        raise ValueError(f"No divisors of {list(matmul.units)} from {list(least)} on fit {cores} cores.")
    first, second = (
        matmul.operand_bytes(operand) / _slices(splits, matmul.present[operand]) for operand in range(2)
    )
    best = np.lexsort((first + second, split_cost_us(matmul, splits)))[0]
    return tuple(splits[:, best].tolist())


def split_cost_us(matmul: Matmul, splits: Splits) -> NDArray[np.float64]:
    """Microseconds per split, with (b, m, n, k) the slices of batch, rows, columns and reduction:

    compute  = idle * B M N K / (b m n k) / rate * (2 if k > 1)
               idle = (40 / rows)^(1/4) for rows = M / m per core between 8 and 40, 1 beyond
    memory   = bytes of A, W, C / bandwidth * max(1, (readers / 8)^(3/4))
               readers = max(m, n) of one operand, n where each batch has a W of its own
    partial  = (k - 1) * B M N / (b m n) * price per output and hop
    """
    rates = device().matmul
    m, n, k = (_slices(splits, dims) for dims in (matmul.rows, matmul.columns, matmul.reduced))
    rows = np.clip(matmul.extent(matmul.rows) / m, rates.least_rows, rates.full_rows)
    multiply_adds = math.prod(matmul.sizes) / splits.prod(axis=0)
    compute = (rates.full_rows / rows) ** rates.fill_exponent * multiply_adds / rates.multiply_adds_per_ns
    compute *= np.where(k > 1, rates.split_sum_slowdown, 1)
    readers = np.maximum(m, n) if matmul.shared_weight else n
    contention = np.maximum(1, readers / rates.uncontended_cores) ** rates.contention_exponent
    memory = sum(map(matmul.operand_bytes, range(3))) / rates.bytes_per_ns * contention
    hop = rates.shared_partial_sum_ns if matmul.shared_weight else rates.batched_partial_sum_ns
    outputs = matmul.extent(matmul.present[2]) / _slices(splits, matmul.present[2])
    return (compute + memory + (k - 1) * outputs * hop) / 1000


def _slices(splits: Splits, dims: Collection[int]) -> NDArray[np.int64]:
    """Slices of some dims together, per split."""
    product = np.ones(splits.shape[1], np.int64)
    for dim in dims:
        product *= splits[dim]
    return product


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
