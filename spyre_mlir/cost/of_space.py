"""The work of a divided iteration space."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Sequence

from spyre_mlir.cost.work import OperandWork, OperationWork
from spyre_mlir.division.cores import Division
from spyre_mlir.division.ownership import local_bytes
from spyre_mlir.division.slices import shares_of
from spyre_mlir.division.traffic import hbm_bytes
from spyre_mlir.layout.space import Space
from spyre_mlir.target.ops import KINDS, Kind


@functools.lru_cache(maxsize=1 << 13)
def operation_work(
    opcode: str, space: Space, division: Division, in_lx: frozenset[int] = frozenset()
) -> OperationWork:
    """What one execution does; ``in_lx`` are the numbers of the operands in LX, the output is the last.

    ``KeyError`` for an opcode that the interface does not have.
    """
    kind = KINDS[opcode]
    shares = _elements_of_shares(space, division)
    elements = math.prod(shares)
    output = len(space.views) - 1
    arithmetic = kind in (Kind.MATMUL, Kind.CONVOLUTION)
    return OperationWork(
        opcode,
        division.cores,
        sticks_per_core=0 if arithmetic else -(-elements // _lanes(space)),
        multiply_adds_per_core=elements if arithmetic else 0,
        rows_per_core=_product(shares, space.present[0] - space.present[1]) if arithmetic else 0,
        parts=_product(division.splits, space.reduced),
        outputs_per_core=_product(shares, space.present[output]),
        results=_product(space.sizes, space.present[output]),
        broadcast=kind is Kind.POINTWISE and _is_broadcast(space),
        operands=tuple(
            _operand(space, division, number, _tile(kind, space, shares), number in in_lx)
            for number in range(output + 1)
        ),
    )


def _operand(space: Space, division: Division, number: int, tile: Sequence[int], in_lx: bool) -> OperandWork:
    writes = number == len(space.views) - 1
    absent = frozenset(range(len(space.sizes))) - space.present[number]
    return OperandWork(
        writes,
        bytes=hbm_bytes(space, number, division)[0],
        core_bytes=local_bytes(space, number, division),
        fan_out=1 if writes else _product(division.splits, absent),
        run_bytes=space.views[number].run_bytes(tile),
        in_lx=in_lx,
    )


def _elements_of_shares(space: Space, division: Division) -> tuple[int, ...]:
    """Elements of the largest slice of each dim, padding included."""
    shares = shares_of(space.units, division.splits)
    return tuple(
        share * (extent // units)
        for share, extent, units in zip(shares, space.padded, space.units, strict=True)
    )


def _tile(kind: Kind, space: Space, shares: Sequence[int]) -> list[int]:
    """What a core takes of the operands in one go: its share; of a matmul what the array takes.

    That is one matrix of a batch, all rows, and a stick each of the reduced dim and of the columns: the sticks
    of a block follow each other along rows (layouts.md, stick rules of matmul).
    """
    if kind is not Kind.MATMUL:
        return list(shares)
    first, second = space.present[:2]
    rows = first - second
    batches = (first & second) - space.reduced
    return [
        1 if dim in batches else share if dim in rows else min(share, space.granule(dim))
        for dim, share in enumerate(shares)
    ]


def _lanes(space: Space) -> int:
    """Elements per stick of the operand with the most; 1 if no operand has a dim in its stick."""
    return max((view.elements_per_stick for view in space.views if view.lane is not None), default=1)


def _is_broadcast(space: Space) -> bool:
    """Whether an input lacks a dim of more than one element that the output has."""
    long = frozenset(dim for dim in space.present[-1] if space.sizes[dim] > 1)
    return any(long - dims for dims in space.present[:-1])


def _product(numbers: Sequence[int], dims: Collection[int]) -> int:
    return math.prod(numbers[dim] for dim in dims)
