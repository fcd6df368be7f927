# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The work of an operation, independent of IR and bundles, so that ``cost_model.py`` can compute the cost of both.

``of_space.py`` derives the work from a divided iteration space, also for a design of a bundle (``space_of``). This file
has the rules that follow from the dims of the operands.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from spyre_mlir.division.relayout import Relayout
from spyre_mlir.records import dataclass
from spyre_mlir.target.ops import KINDS, Kind
from spyre_mlir.target.target import Target


@dataclass(frozen=True)
class OperandWork:
    """One access of an operation to a buffer.

    Attributes:
        writes: Whether the access writes the buffer.
        bytes: Bytes of the device buffer that all cores access, padding included; a load that several cores share
            counts once.
        core_bytes: Bytes that the busiest core accesses.
        fan_out: The number of cores that share each load (1: none share).
        run_bytes: Bytes that a core moves contiguously; for a batched matmul, within one matrix.
        in_lx: Whether the buffer is in LX, so that nothing moves through device memory.
        batch_run_bytes: Bytes that a core moves contiguously over all matrices of a batched matmul.
    """

    writes: bool
    bytes: int
    core_bytes: int
    fan_out: int
    run_bytes: int
    in_lx: bool = False
    batch_run_bytes: int = 0

    @property
    def moved_bytes(self) -> int:
        """Bytes that move through device memory under the plan."""
        return 0 if self.in_lx else self.bytes


@dataclass(frozen=True)
class OperationWork:
    """One execution of a divided operation on a target; fields ``..._per_core`` are of the busiest core.

    Attributes:
        target: The device.
        opcode: The name of the device operation.
        cores: The cores that it is divided over.
        sticks_per_core: Sticks that the vector unit processes: points of the iteration space, 64 of a 2-byte stick
            dim at a time; 0 on the array.
        multiply_adds_per_core: Multiply-adds of a matmul, else 0.
        rows_per_core: Rows of the first matrix of a matmul, else 0.
        parts: The number of slices of the reduced dims, whose partial results are added over the ring.
        outputs_per_core: The elements of a core's result.
        results: The elements of the result of all cores.
        broadcast: Whether an operand is repeated along a dim of the result.
        operands: The accesses; the output is the last one.
        relayout: The relayout of a shuffle, which is its only work: both its operands are in LX.
        tile_bytes: Bytes of LX that the back end needs for one matrix of a matmul at a time.
        scattered: Whether cores that add up one sum are not neighbours, as only plans of others have it.
        kind: The kind of the operation, by its ``opcode``.
    """

    target: Target
    opcode: str
    cores: int
    sticks_per_core: int
    multiply_adds_per_core: int
    rows_per_core: int
    parts: int
    outputs_per_core: int
    results: int
    broadcast: bool
    operands: tuple[OperandWork, ...]
    relayout: Relayout | None = None
    tile_bytes: int = 0
    scattered: bool = False

    @property
    def kind(self) -> Kind:
        return KINDS[self.opcode]

    @property
    def on_array(self) -> bool:
        """Return whether the multiply-add array computes the operation, not the vector unit."""
        return self.kind.on_array

    @property
    def read_bytes(self) -> int:
        """Bytes read from device memory under the plan."""
        return sum(operand.moved_bytes for operand in self.operands if not operand.writes)

    @property
    def written_bytes(self) -> int:
        """Bytes written to device memory under the plan."""
        return sum(operand.moved_bytes for operand in self.operands if operand.writes)


#: A number for each dim, or an array of one entry per division.
PerDim = Sequence[Any]


@dataclass(frozen=True)
class OperationDims:
    """The dims along which each operand of an operation varies, the output last.

    The table of a gather has the dims of the indices, because the gather moves one row of the table for each index.
    """

    kind: Kind
    present: tuple[frozenset[int], ...]

    @functools.cached_property
    def all(self) -> frozenset[int]:
        """The dims of any operand; a dim in no operand counts copies of the result."""
        return frozenset[int]().union(*self.present)

    @property
    def reduced(self) -> frozenset[int]:
        """The dims that the output does not have."""
        return self.all - self.present[-1]

    @property
    def rows(self) -> frozenset[int]:
        """The dims of a matmul that only its first matrix has."""
        return self.present[0] - self.present[1]

    @functools.cached_property
    def batches(self) -> frozenset[int]:
        """The dims of a matmul that count its matrices; empty for other operations."""
        return frozenset.intersection(*self.present) if self.kind is Kind.MATMUL else frozenset()

    def tile(self, shares: PerDim, granules: PerDim, *, batched: bool = False) -> list[Any]:
        """Return the sizes in elements of the tile that a core with these ``shares`` loads of the operands at once.

        The tile is the core's share; for a gather, one row; for a matmul, one matrix (all matrices if ``batched``),
        with all rows and one granule each of the reduced dim and of the columns, because the sticks of a block follow
        each other along rows (docs/layouts.md, sticks).
        """
        if self.kind is Kind.GATHER:
            return [share if dim in self.present[-1] else 1 for dim, share in enumerate(shares)]
        if self.kind is not Kind.MATMUL:
            return list(shares)
        whole = self.rows | self.batches if batched else self.rows
        return [
            share if dim in whole else 1 if dim in self.batches else granules[dim]
            for dim, share in enumerate(shares)
        ]

    def tile_elements(self, shares: PerDim, lanes: int, most_rows: int) -> Any:
        """Return the elements of a matmul's tiles (both matrices, result) in LX at a time; 0 for other operations.

        A tile has at most ``most_rows`` rows and a stick of columns, with all of the reduced dim.
        """
        if self.kind is not Kind.MATMUL:
            return 0
        rows, depth = np.minimum(product(shares, self.rows), most_rows), product(shares, self.reduced)
        return rows * depth + depth * lanes + rows * lanes

    def arithmetic(self, shares: PerDim, lanes: int) -> dict[str, Any]:
        """Return the ``OperationWork`` fields for the computation on the array or vector unit of a core."""
        elements = product(shares, self.all)
        if self.kind.on_array:
            rows = product(shares, self.rows)
            return {"sticks_per_core": 0, "multiply_adds_per_core": elements, "rows_per_core": rows}
        # A relayout moves bits and computes nothing.
        sticks = 0 if self.kind is Kind.RELAYOUT else -(-elements // lanes)
        return {"sticks_per_core": sticks, "multiply_adds_per_core": 0, "rows_per_core": 0}

    def fan_out(self, operand: int, slices: PerDim, cores: Any) -> Any:
        """Return the number of cores that share each load of an operand; 1 for the output."""
        if operand == len(self.present) - 1:
            return 1
        return cores // product(slices, self.present[operand])

    def is_broadcast(self, sizes: PerDim) -> bool:
        """Return whether an input of a pointwise operation lacks a dim of several elements that the output has."""
        if self.kind is not Kind.POINTWISE:
            return False
        long = {dim for dim in self.present[-1] if sizes[dim] > 1}
        return any(long - dims for dims in self.present[:-1])


def product(numbers: PerDim, dims: Iterable[int]) -> Any:
    """Return the product of the numbers of the given dims."""
    return math.prod(numbers[dim] for dim in dims)


# A lower bound of a program's time on a device. The bound depends on the computation, not on the plan.


@dataclass(frozen=True)
class ProgramBound:
    """Minimal work of a program: logical bytes of its inputs, weights and results, and multiply-adds.

    ``by_format`` maps the data format of the factors to multiply-adds, because the array is faster with some formats.
    """

    read_bytes: int
    written_bytes: int
    by_format: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """The bytes in both directions."""
        return self.read_bytes + self.written_bytes

    @property
    def multiply_adds(self) -> int:
        """The multiply-adds of all formats."""
        return sum(self.by_format.values())

    def ns(self, target: Target) -> float:
        """Return the time of the bytes in one direction or of the multiply-adds on all cores, whichever is longer.

        Both rates come from the device description: ``hbm.one_way_bytes_per_ns`` and
        ``array.multiply_adds_per_ns``.
        """
        array = target.array
        work = sum(count / array.speedup_of(data_format) for data_format, count in self.by_format.items())
        rate = target.cores * array.multiply_adds_per_ns
        return max(self.bytes / target.one_way_bytes_per_ns, work / rate)
