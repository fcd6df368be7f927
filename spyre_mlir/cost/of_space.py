# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The work of a divided iteration space."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spyre_mlir.cost.cost_model import operation_cost, stream_ns
from spyre_mlir.cost.units import picoseconds
from spyre_mlir.cost.work import OperandWork, OperationDims, OperationWork, product
from spyre_mlir.division.cores import Division, finishers_of
from spyre_mlir.division.ownership import share_bytes, slice_elements
from spyre_mlir.division.relayout import Relayout
from spyre_mlir.division.slices import work_distribution
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import run_bytes_of_tiles
from spyre_mlir.target.ops import KINDS, Kind
from spyre_mlir.target.target import Target


@functools.lru_cache(maxsize=1 << 13)
def operation_work(
    opcode: str,
    space: Space,
    division: Division,
    in_lx: frozenset[int] = frozenset(),
    relayout: Relayout | None = None,
) -> OperationWork:
    """Return the work of one execution; ``in_lx`` are the indices of the operands in LX, the output is the last one.

    A shuffle has a ``relayout``; its operands are always in LX. Raises ``KeyError`` for an opcode that the interface
    does not have, and ``ValueError`` for a shuffle without a relayout or another operation with one.
    """
    if (KINDS[opcode] is Kind.RELAYOUT) != (relayout is not None):
        raise ValueError(f"{opcode} has {'no' if relayout is None else 'a'} relayout.")
    cores = division.cores
    if relayout is not None:
        # Cores that only send also take part.
        in_lx, cores = frozenset(range(len(space.views))), len(relayout.target.owners)
    moved = [hbm_bytes(space, operand, division)[0] for operand in range(len(space.views))]
    shares = division.slice_elements(space.units, space.granules)
    work = _work(opcode, space, division.splits, shares, cores, moved, in_lx, relayout)
    pairs = (
        (pair for group in division.groups for pair in itertools.pairwise(group)) if division.partial else ()
    )
    is_scattered = any(abs(one - other) != 1 for one, other in pairs)
    return replace(work, scattered=True) if is_scattered else work


def even_work(opcode: str, space: Space, splits: Sequence[int]) -> OperationWork:
    """Return the work of one execution with slices that divide the units of the space, all operands in device memory.

    ``splits`` may be arrays, one entry per division; all fields that depend on the division are then arrays too.
    """
    shares = slice_elements(space, splits)
    moved = [share_bytes(space, operand, space.padded) for operand in range(len(space.views))]
    if space.windows:
        # Windows of neighbouring slices overlap, so that several cores load the same rows.
        moved[0] = share_bytes(space, 0, shares) * product(splits, space.present[0])
    return _work(opcode, space, splits, shares, math.prod(splits), moved)


@functools.lru_cache(maxsize=1 << 12)
def dims_of_operation(opcode: str, present: tuple[frozenset[int], ...]) -> OperationDims:
    """Return the dims of an operation by those that its operands have."""
    return OperationDims(KINDS[opcode], present)


def lanes_of(space: Space) -> int:
    """Return the largest number of elements per stick of any operand."""
    # Without a stick dim, a stick holds one element.
    return max((view.elements_per_stick for view in space.views if view.stick_dim is not None), default=1)


def _work(
    opcode: str,
    space: Space,
    slices: Sequence[Any],
    shares: Sequence[Any],
    cores: Any,
    moved_bytes: Sequence[Any],
    in_lx: Collection[int] = (),
    relayout: Relayout | None = None,
) -> OperationWork:
    """Return the work on ``cores`` cores with ``slices`` of each dim, the largest of ``shares`` elements.

    ``moved_bytes`` are the bytes of each operand that all cores access.
    """
    dims, lanes, target = dims_of_operation(opcode, space.present), lanes_of(space), space.target
    runs = batch_runs = _run_bytes(space, dims.tile(shares, space.granules))
    # Without batches there is only one matrix.
    if dims.batches:
        batch_runs = _run_bytes(space, dims.tile(shares, space.granules, batched=True))
    output = len(space.views) - 1
    operands = tuple(
        OperandWork(
            writes=operand == output,
            bytes=moved_bytes[operand],
            core_bytes=share_bytes(space, operand, shares),
            fan_out=dims.fan_out(operand, slices, cores),
            run_bytes=runs[operand],
            in_lx=operand in in_lx,
            batch_run_bytes=batch_runs[operand],
        )
        for operand in range(len(space.views))
    )
    return OperationWork(
        target,
        opcode,
        cores,
        **dims.arithmetic(shares, lanes),
        parts=product(slices, dims.reduced),
        outputs_per_core=product(shares, dims.present[-1]),
        results=product(space.sizes, dims.present[-1]),
        broadcast=dims.is_broadcast(space.sizes),
        operands=operands,
        relayout=relayout,
        tile_bytes=dims.tile_elements(shares, lanes, target.array.tile_rows) * (target.stick_bytes // lanes),
    )


def _run_bytes(space: Space, tile: Sequence[Any]) -> list[Any]:
    """Return the run of a tile of each operand in bytes; an array of runs if sizes of the tile are arrays."""
    runs = []
    for operand in range(len(space.views)):
        view, sizes = space.footprint(operand), space.accessed(operand, tile)
        if any(isinstance(size, np.ndarray) for size in sizes):
            runs.append(run_bytes_of_tiles(view, np.array(np.broadcast_arrays(*sizes))))
        else:
            runs.append(view.run_bytes(sizes))
    return runs


# Cost to move and to convert whole tensors, before operations are divided.
#
# Costs are whole picoseconds from ``cost_model.py``.


@functools.cache
def pass_cost(target: Target, moved_bytes: int, run_bytes: int) -> int:
    """Return the cost to move an operand once: its bytes in its runs, with all cores and in one direction.

    The wait for the first byte is excluded: it does not depend on the layout, and an operand in LX does not wait.
    """
    # Reading and writing cost the same, because all bytes go in one direction.
    operand = OperandWork(False, moved_bytes, -(-moved_bytes // target.cores), 1, run_bytes)
    work = OperationWork(
        target, "identity", target.cores, sticks_per_core=0, multiply_adds_per_core=0, rows_per_core=0, parts=1,
        outputs_per_core=0, results=0, broadcast=False, operands=(operand,),
    )  # fmt: skip
    return picoseconds(stream_ns(work, operand))


def wait_cost(target: Target) -> int:
    """Return the cost of the wait for the first byte of an operand in device memory."""
    return picoseconds(target.hbm_access_ns)


def copy_cost(opcode: str, space: Space) -> int:
    """Return the cost of a copy from one layout of a tensor to another, divided as ``work-distribution`` does.

    Both layouts are in device memory, so the copy waits for the first byte of each: it does not pay for few bytes.
    """
    splits = work_distribution(space.units, space.reduced, space.target.cores)
    return picoseconds(operation_cost(even_work(opcode, space, splits)).total_ns)


# Bytes of device memory that one execution of a divided operation moves. No IR.
#
# Bytes are of whole sticks, padding included. Cores that load the same slices share one load (multicast), which counts
# once; the bytes that each core gets are counted in addition. If cores add up parts of a value, one core writes it.


@functools.lru_cache(maxsize=1 << 12)
def hbm_bytes(space: Space, operand: int, division: Division) -> tuple[int, int]:
    """Return the bytes that move for one operand, and the sum of all cores' bytes; the output is the last operand.

    The two differ only if several cores load the same slices.
    """
    dims, view = sorted(space.present[operand]), space.views[operand]
    windows = dict(space.slid(operand)) if operand == 0 else {}
    kernels = {window.kernel for window in space.windows} if operand == 0 else ()
    sticks = []
    for dim, share in enumerate(division.slice_elements(space.units, space.granules)):
        extent, per_stick = space.padded[dim], view.stick_elements(dim)
        ranges = [
            (first, max(0, min(share, extent - first)))
            for first in range(0, share * division.splits[dim], share)
        ]
        if dim in windows:
            ranges = [windows[dim].accessed(*range_) if range_[1] else range_ for range_ in ranges]
        # Positions that windows access are counted with the dim that the windows slide along.
        sticks.append([1] if dim in kernels else [-(-count // per_stick) for _, count in ranges])
    # A division read from IR does not know its reduced dims.
    is_output = operand == len(space.views) - 1
    cores = finishers_of(division, space.reduced) if is_output else range(len(division.owners))
    owned = [tuple(division.owners[core][dim] for dim in dims) for core in cores]
    # Cores with equal slices share one load (multicast).
    of_slices = {
        slices: math.prod(sticks[dim][index] for dim, index in zip(dims, slices, strict=True))
        for slices in set(owned)
    }
    once, per_core = sum(of_slices.values()), sum(of_slices[slices] for slices in owned)
    return once * space.target.stick_bytes, per_core * space.target.stick_bytes
