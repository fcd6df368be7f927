# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The work of a divided iteration space."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from spyre_mlir.cost.work import OperationDims, OperationWork, product, work_of
from spyre_mlir.division.cores import Division
from spyre_mlir.division.ownership import share_bytes
from spyre_mlir.division.relayout import Relayout
from spyre_mlir.division.slices import shares_of
from spyre_mlir.division.traffic import hbm_bytes
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import BufferView, run_bytes_of_tiles
from spyre_mlir.target.ops import KINDS, Kind


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
    return _work(opcode, space, division.splits, cores, moved, in_lx, relayout)


def even_work(opcode: str, space: Space, splits: Sequence[int]) -> OperationWork:
    """Return the work of one execution with slices that divide the units of the space, all operands in device memory.

    ``splits`` may be arrays, one entry per division; all fields that depend on the division are then arrays too.
    """
    undivided = (1,) * len(space.units)
    moved = [share_bytes(space, operand, undivided) for operand in range(len(space.views))]
    if space.windows:
        # Windows of neighbouring slices overlap, so that several cores load the same rows.
        moved[0] = share_bytes(space, 0, splits) * product(splits, space.present[0])
    return _work(opcode, space, splits, math.prod(splits), moved)


@functools.lru_cache(maxsize=1 << 12)
def _operation_dims(kind: Kind, present: tuple[frozenset[int], ...]) -> OperationDims[int]:
    return OperationDims(kind, present)


def _work(
    opcode: str,
    space: Space,
    splits: Sequence[int],
    cores: int,
    moved: Sequence[int],
    in_lx: Collection[int] = (),
    relayout: Relayout | None = None,
) -> OperationWork:
    """Return the work of an operation with ``splits`` slices per dim on ``cores`` cores, for the cost model."""
    footprints = [space.footprint(operand) for operand in range(len(space.views))]

    def run_bytes(tile: dict[int, Any]) -> list[Any]:
        sizes = list(tile.values())
        return [_run_bytes(view, space.accessed(operand, sizes)) for operand, view in enumerate(footprints)]

    shares = map(operator.mul, shares_of(space.units, splits), space.granules)
    lanes = [view.elements_per_stick for view in space.views if view.stick_dim is not None]
    return work_of(
        space.target,
        opcode,
        _operation_dims(KINDS[opcode], space.present),
        cores=cores,
        slices=splits,
        shares=dict(enumerate(shares)),
        granules=space.granules,
        sizes=space.sizes,
        # Without a stick dim, a stick holds one element.
        lanes=max(lanes, default=1),
        moved_bytes=moved,
        core_bytes=[share_bytes(space, operand, splits) for operand in range(len(space.views))],
        run_bytes=run_bytes,
        in_lx=in_lx,
        relayout=relayout,
    )


def _run_bytes(view: BufferView, tile: Sequence[Any]) -> Any:
    """Return the run of a tile in bytes; an array of runs if sizes of the tile are arrays."""
    if not any(isinstance(size, np.ndarray) for size in tile):
        return view.run_bytes(tile)
    return run_bytes_of_tiles(view, np.array(np.broadcast_arrays(*tile)))
