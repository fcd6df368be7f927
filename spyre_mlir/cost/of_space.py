"""The work of a divided iteration space."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.division.cores import Division
from spyre_mlir.division.ownership import share_bytes
from spyre_mlir.division.relayout import Relayout
from spyre_mlir.division.slices import shares_of
from spyre_mlir.division.traffic import hbm_bytes
from spyre_mlir.layout.space import Space
from spyre_mlir.layout.view import BufferView
from spyre_mlir.target.ops import KINDS, Kind


@functools.lru_cache(maxsize=1 << 13)
def operation_work(
    opcode: str,
    space: Space,
    division: Division,
    in_lx: frozenset[int] = frozenset(),
    relayout: Relayout | None = None,
) -> OperationWork:
    """Return the work of one execution; ``in_lx`` are the numbers of the operands in LX, the output is the last.

    A shuffle, whose operands are always there, has a ``relayout``. ``KeyError`` for an opcode that the interface
    does not have, ``ValueError`` for a shuffle without a relayout or for another operation with one.
    """
    if (KINDS[opcode] is Kind.RELAYOUT) != (relayout is not None):
        raise ValueError(f"{opcode} has {'no' if relayout is None else 'a'} relayout.")
    if relayout is not None:
        in_lx = frozenset(range(len(space.views)))
    tile = _tile(KINDS[opcode], space, _elements_of_shares(space, division.splits))
    operands = (
        _operand(space, division.splits, number, hbm_bytes(space, number, division)[0], view.run_bytes(tile))
        for number, view in enumerate(space.views)
    )
    placed = (
        replace(operand, in_lx=True) if index in in_lx else operand for index, operand in enumerate(operands)
    )
    return replace(_work(opcode, space, division.splits, tuple(placed)), relayout=relayout)


def even_work(opcode: str, space: Space, splits: Sequence[int]) -> OperationWork:
    """Return the work of one execution with slices that divide the units of the space, all operands in device memory.

    ``splits`` may be arrays, one entry per division, to see many at once: what depends on them is an array then.
    """
    tile = _tile(KINDS[opcode], space, _elements_of_shares(space, splits))
    undivided = (1,) * len(space.units)
    operands = (
        _operand(space, splits, number, share_bytes(space, number, undivided), _run_bytes(view, tile))
        for number, view in enumerate(space.views)
    )
    return _work(opcode, space, splits, tuple(operands))


def _run_bytes(view: BufferView, tile: Sequence[Any]) -> Any:
    """The runs of a tile, or of each of many where sizes of it are arrays."""
    if not any(isinstance(size, np.ndarray) for size in tile):
        return view.run_bytes(tile)
    # Many divisions share a tile, and a view takes one tile at a time.
    tiles, which = np.unique(np.array(np.broadcast_arrays(*tile)), axis=1, return_inverse=True)
    return np.array([view.run_bytes(shape) for shape in tiles.T.tolist()])[which]


def _work(
    opcode: str, space: Space, splits: Sequence[int], operands: tuple[OperandWork, ...]
) -> OperationWork:
    kind = KINDS[opcode]
    shares = _elements_of_shares(space, splits)
    elements = math.prod(shares)
    on_vector_unit = not kind.on_array and kind is not Kind.RELAYOUT
    return OperationWork(
        space.target,
        opcode,
        math.prod(splits),
        sticks_per_core=-(-elements // _lanes(space)) if on_vector_unit else 0,
        multiply_adds_per_core=elements if kind.on_array else 0,
        rows_per_core=_product(shares, space.present[0] - space.present[1]) if kind.on_array else 0,
        parts=_product(splits, space.reduced),
        outputs_per_core=_product(shares, space.present[-1]),
        results=_product(space.sizes, space.present[-1]),
        broadcast=kind is Kind.POINTWISE and _is_broadcast(space),
        operands=operands,
    )


def _operand(space: Space, splits: Sequence[int], number: int, moved: int, run: int) -> OperandWork:
    writes = number == len(space.views) - 1
    absent = frozenset(range(len(space.sizes))) - space.present[number]
    return OperandWork(
        writes,
        bytes=moved,
        core_bytes=share_bytes(space, number, splits),
        fan_out=1 if writes else _product(splits, absent),
        run_bytes=run,
    )


def _elements_of_shares(space: Space, splits: Sequence[int]) -> tuple[int, ...]:
    """Elements of the largest slice of each dim, padding included."""
    shares = shares_of(space.units, splits)
    return tuple(
        share * (extent // units)
        for share, extent, units in zip(shares, space.padded, space.units, strict=True)
    )


def _tile(kind: Kind, space: Space, shares: Sequence[int]) -> list[int]:
    """Sizes of the tile that a core reads at a time: its share; of a matmul what the array takes.

    That is one matrix of a batch, all rows, and a stick each of the reduced dim and of the columns: the sticks
    of a block follow each other along rows (docs/layouts.md, sticks).
    """
    if kind is not Kind.MATMUL:
        return list(shares)
    first, second = space.present[:2]
    rows = first - second
    batches = (first & second) - space.reduced
    return [
        1 if dim in batches else share if dim in rows else space.granule(dim)
        for dim, share in enumerate(shares)
    ]


def _lanes(space: Space) -> int:
    """Elements per stick of the operand with the most; 1 if no operand has a dim in its stick."""
    return max((view.elements_per_stick for view in space.views if view.stick_dim is not None), default=1)


def _is_broadcast(space: Space) -> bool:
    """Return whether an input lacks a dim of more than one element that the output has."""
    long = frozenset(dim for dim in space.present[-1] if space.sizes[dim] > 1)
    return any(long - dims for dims in space.present[:-1])


def _product(numbers: Sequence[int], dims: Collection[int]) -> int:
    return math.prod(numbers[dim] for dim in dims)
