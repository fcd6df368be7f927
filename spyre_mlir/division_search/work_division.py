# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Replaceable work division: choose the number of slices of each dim of one operation, from plain data."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from spyre_mlir import problems
from spyre_mlir.algorithms import REGISTRIES, Algorithm, Registry, is_integer, register
from spyre_mlir.cost.cost_model import compute_ns, operation_cost, ring_ns
from spyre_mlir.cost.of_space import even_work
from spyre_mlir.cost.units import PICOSECONDS
from spyre_mlir.division.slices import Splits, checked, legal_splits, work_distribution
from spyre_mlir.division.spans import division_problem, out_of_reach
from spyre_mlir.layout.space import Space
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import COMBINE, DEVICE_OPS


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
    Of equal costs (``by_cost``) the split whose cores read the fewest bytes, then the first in lexicographic order.
    Raises ``ValueError`` if the committed splits need more cores, or if there are no such slices.
    """
    least = checked(space.units, cores, committed)
    splits = reaching_splits(opcode, space, cores, least, blocked, uneven)
    if not splits.size:
        raise ValueError(
            f"No divisors of {list(space.units)} from {list(least)} on fit {cores} cores and the span limit."
        )
    return tuple(splits[:, by_cost(opcode, space, splits)[0]].tolist())


@functools.lru_cache(maxsize=1 << 12)
def cheapest_splits(
    opcode: str, space: Space, cores: int, blocked: frozenset[int] = frozenset(), limit: int = 4
) -> tuple[tuple[int, ...], ...]:
    """Return the ``limit`` splits with the smallest ``split_cost`` within the span limit, the cheapest first.

    Slices are equal, ``blocked`` dims stay whole. Ties are in lexicographic order.
    """
    splits = reaching_splits(opcode, space, cores, (1,) * len(space.units), blocked)
    best = np.argsort(split_cost(opcode, space, splits), kind="stable")[:limit] if splits.size else []
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
    resident = np.zeros(splits.shape[1]) + sum(operand.core_bytes for operand in work.operands)
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


#: Relative difference of the times of two splits up to which another criterion decides between them.
_EQUAL_TIMES = 1.001


@functools.lru_cache(maxsize=1 << 12)
def is_fast_whole(opcode: str, space: Space, splits: tuple[int, ...]) -> bool:
    """Return whether one core with all operands in its LX is as fast as ``splits`` with all in device memory."""
    whole = (1,) * len(splits)
    if space.symbolic or out_of_reach(space, whole, DEVICE_OPS[opcode].indirect) is not None:
        return False
    if (
        sum(operand.core_bytes for operand in even_work(opcode, space, whole).operands)
        > space.target.usable_lx_bytes
    ):
        return False
    columns = np.array([whole, splits]).T
    return bool(_on_chip_cost(opcode, space, columns)[0] <= split_cost(opcode, space, columns)[1])


@functools.lru_cache(maxsize=1 << 12)
def cheaper_splits(
    opcode: str, space: Space, cores: int, splits: tuple[int, ...], blocked: frozenset[int] = frozenset()
) -> tuple[tuple[int, ...], ...]:
    """Return the cheapest splits, with all operands in device memory and with all in LX, that beat ``splits``.

    Any dims may be split, at most one reduced dim among them, evenly or not, on any number of cores up to ``cores``.
    Of equal times in one memory the least time in the other memory comes first, then the fewest cores.
    """
    found = dict[tuple[int, ...], None]()
    present, whole = np.array([splits]).T, (1,) * len(space.units)
    for uneven in (False, True) if space.units and not space.symbolic else ():
        table = _combinable(space, reaching_splits(opcode, space, cores, whole, blocked, uneven))
        if not table.size:
            continue
        used, costs = table.prod(axis=0), [cost(opcode, space, table) for cost in (split_cost, _on_chip_cost)]
        known = [cost(opcode, space, present)[0] for cost in (split_cost, _on_chip_cost)]
        for first, second in ((0, 1), (1, 0)):
            equal = np.flatnonzero(costs[first] <= _EQUAL_TIMES * costs[first].min())
            best = equal[np.lexsort((used[equal], costs[first][equal], costs[second][equal]))[0]]
            if costs[first][best] < known[first]:
                found[tuple(table[:, best].tolist())] = None
    return tuple(found)


def _combinable(space: Space, splits: Splits) -> Splits:
    """Return the splits in which at most one reduced dim is split, so that the ring can add up the parts."""
    return splits[:, (splits[sorted(space.reduced)] > 1).sum(axis=0) <= 1] if space.reduced else splits


def _on_chip_cost(opcode: str, space: Space, splits: Splits) -> NDArray[np.float64]:
    """Return the picoseconds per split with all operands in LX."""
    work = even_work(opcode, space, tuple(splits))
    # An operation without dims has one time for all splits.
    return np.zeros(splits.shape[1]) + np.rint(PICOSECONDS * (compute_ns(work) + ring_ns(work)))


@functools.lru_cache(maxsize=1 << 12)
def by_on_chip_cost(opcode: str, space: Space, splits: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Return the positions of ``splits`` by rising time with all operands in LX; equal times keep their order."""
    if len(splits) < 2 or space.symbolic:
        return tuple(range(len(splits)))
    return tuple(np.argsort(_on_chip_cost(opcode, space, np.array(splits).T), kind="stable").tolist())


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


#: Relative difference of the costs of two splits that the model does not distinguish.
_SAME_COST = 1.01


def by_cost(opcode: str, space: Space, splits: Splits) -> NDArray[np.int64]:
    """Return the indices of splits by rising cost; of equal costs, the fewest bytes read per core come first.

    Of costs of a product within a percent of the least, the fewest slices of the reduced dim come first: the model does
    not distinguish such costs, and products with more slices were measured to be 28 % slower (41 pairs of splits of
    AdnanHoque/torch-spyre).
    """
    work, cost = even_work(opcode, space, tuple(splits)), split_cost(opcode, space, splits)
    loaded = np.zeros(len(cost)) + sum(operand.core_bytes for operand in work.operands if not operand.writes)
    is_least = cost <= _SAME_COST * cost.min(initial=np.inf)
    parts = np.where(is_least, work.parts if work.on_array else 1, np.inf)
    return np.lexsort((loaded, cost, parts))


def split_cost(opcode: str, space: Space, splits: Splits) -> NDArray[np.float64]:
    """Return the picoseconds per split with all operands in device memory (``cost/cost_model.py``)."""
    cost = operation_cost(even_work(opcode, space, tuple(splits)))
    return np.zeros(splits.shape[1]) + np.rint(PICOSECONDS * cost.total_ns)


@dataclass(frozen=True)
class SplitTable:
    """Legal splits, [splits, dims] in lexicographic order, with their costs.

    ``cost_ns`` is the time of the operation with all operands in device memory, ``read_bytes`` the bytes a core reads.
    """

    splits: NDArray[np.int64]
    cost_ns: NDArray[np.float64]
    read_bytes: NDArray[np.float64]

    @classmethod
    @functools.lru_cache(maxsize=1 << 12)
    def of_space(
        cls,
        opcode: str,
        space: Space,
        cores: int,
        least: tuple[int, ...],
        blocked: frozenset[int],
        uneven: bool,
    ) -> SplitTable:
        """Return the splits of a space with at least the ``least`` slices; at most one reduced dim is split."""
        splits = _combinable(space, reaching_splits(opcode, space, cores, least, blocked, uneven))
        if not splits.size:
            return cls(np.zeros((0, len(least)), np.int64), np.zeros(0), np.zeros(0))
        reads = (
            operand for operand in even_work(opcode, space, tuple(splits)).operands if not operand.writes
        )
        read_bytes = sum(operand.core_bytes for operand in reads)
        cost = split_cost(opcode, space, splits) / PICOSECONDS
        rows, cost = np.ascontiguousarray(splits.T).copy(), cost.copy()
        loaded = np.broadcast_to(read_bytes, cost.shape).astype(float)
        for array in (rows, cost, loaded):
            array.setflags(write=False)
        return cls(rows, cost, loaded)


@dataclass(frozen=True)
class DivisionOfOperation:
    """The division of one operation over cores; an entry per dim of its iteration space.

    Attributes:
        opcode: The name of the device operation.
        units: The rows or sticks of a dim; a slice consists of whole units.
        extents: The elements of a dim.
        reduced: The dims that are summed up; at most one of them may be split.
        committed: The minimum number of slices of a dim.
        blocked: Dims whose number of slices must be ``committed``.
        cores: The maximum product of the slices of all dims.
        uneven: Whether slices may differ in size; none is empty.
        by_cost: Whether to choose by cost: if cores share loads, the rule of thumb (largest dims first) is bad.
        make_table: Makes ``table``.
        find_problem: Returns any other reason why slices are illegal; None for a problem read from a file.
    """

    opcode: str
    units: tuple[int, ...]
    extents: tuple[int, ...]
    reduced: frozenset[int]
    committed: tuple[int, ...]
    blocked: frozenset[int]
    cores: int
    uneven: bool
    by_cost: bool
    make_table: Callable[[], SplitTable] = field(repr=False, compare=False)
    find_problem: Callable[[Sequence[int]], str | None] | None = field(
        default=None, repr=False, compare=False
    )

    @classmethod
    def of_space(
        cls,
        opcode: str,
        space: Space,
        cores: int,
        committed: tuple[int, ...] | None,
        blocked: frozenset[int],
        uneven: bool,
        by_cost: bool,
    ) -> DivisionOfOperation:
        """Return the problem of an operation over a space; ``ValueError`` if committed slices need more cores."""
        least = checked(space.units, cores, committed)
        combines, exempt = opcode in COMBINE, DEVICE_OPS[opcode].indirect
        table = functools.partial(SplitTable.of_space, opcode, space, cores, least, blocked, uneven)
        check = functools.partial(division_problem, space, cores=cores, combines=combines, exempt=exempt)
        sizes = tuple(space.units), tuple(space.sizes), frozenset(space.reduced)
        return cls(opcode, *sizes, least, blocked, cores, uneven, by_cost, table, check)

    @functools.cached_property
    def table(self) -> SplitTable:
        """Table of the legal splits with their costs."""
        return self.make_table()

    @functools.cached_property
    def _row_of(self) -> dict[tuple[int, ...], int]:
        return {tuple(row): index for index, row in enumerate(self.table.splits.tolist())}

    def cost_ns(self, splits: Sequence[int]) -> float:
        """Return the nanoseconds of ``splits`` with operands in device memory; infinite if not in the table."""
        row = self._row_of.get(tuple(splits))
        return math.inf if row is None else float(self.table.cost_ns[row])

    def is_legal(self, splits: Sequence[int]) -> bool:
        """Return whether the operation can have these slices, ``splits`` of each dim."""
        return self.why_illegal(splits) is None

    def why_illegal(self, splits: Sequence[int]) -> str | None:
        """Return why the operation cannot have these slices, ``splits`` of each dim; None if it can."""
        if len(splits) != len(self.units):
            return f"the operation has {len(self.units)} dims"
        for dim, (split, least) in enumerate(zip(splits, self.committed, strict=True)):
            if split < least or (split != least and dim in self.blocked):
                return (
                    f"dim {dim} has {least} slices{'' if dim in self.blocked else ' at least'}, not {split}"
                )
            if not self.uneven and self.units[dim] % split:
                return f"{split} slices of dim {dim} do not divide its {self.units[dim]} units"
        if self.find_problem is not None:
            return self.find_problem(splits)
        return None if tuple(splits) in self._row_of else "they are not among the splits of the problem"


class WorkDivision(Algorithm):
    """Choice of the slices per dim of each operation separately; joint division may change them later."""

    registry: ClassVar[Registry[WorkDivision]] = REGISTRIES["division"]

    @abc.abstractmethod
    def divide(self, problem: DivisionOfOperation) -> Sequence[int]:
        """Return the slices of each dim; their product is at most the number of cores.

        Args:
            problem: The operation, and the constraints of its division.
        """

    def splits(self, problem: DivisionOfOperation) -> tuple[int, ...]:
        """Return the checked answer; ``ValueError`` if there is none."""
        problems.offer("division", problem)
        if not self.is_foreign():
            return tuple(self.divide(problem))
        text = f"'{problem.opcode}' of {list(problem.units)} units on {problem.cores} cores"
        with self.guarded(text):
            splits = self.divide(problem)
        if isinstance(splits, str) or not isinstance(splits, Sequence) or not all(map(is_integer, splits)):
            self.reject(f"it must be a sequence of integers, not {splits!r:.60}", text)
        reason = problem.why_illegal([int(split) for split in splits])
        if reason is not None:
            self.reject(f"{list(splits)}: {reason}", text)
        return tuple(map(int, splits))


@register
class PriorityDivision(WorkDivision):
    """Split the largest output dims first, as in "Work Division Planning"; by cost if cores share operands.

    Ties are decided by the fewest bytes read per core, then by lexicographic order.
    """

    name: ClassVar[str] = "priority"

    def divide(self, problem: DivisionOfOperation) -> tuple[int, ...]:
        """Return the slices of each dim; ``ValueError`` if there are none."""
        if problem.by_cost:
            table = problem.table
            if not len(table.splits):
                units, least = list(problem.units), list(problem.committed)
                raise ValueError(
                    f"No divisors of {units} from {least} on fit {problem.cores} cores and the span limit."
                )
            best = np.lexsort((table.read_bytes, np.rint(PICOSECONDS * table.cost_ns)))[0]
            return tuple(table.splits[best].tolist())
        dims = problem.units, problem.reduced, problem.cores, problem.committed, problem.blocked
        splits = work_distribution(*dims, problem.uneven)
        # The larger slices of an uneven split can have longer spans than the slices of an even split.
        if problem.uneven and not problem.is_legal(splits):
            return work_distribution(*dims)
        return splits
