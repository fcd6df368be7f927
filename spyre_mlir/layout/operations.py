"""What a device operation makes of layouts: the forms it has, and what its transfers cost in each."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

from spyre_mlir.cost.of_tensor import pass_cost
from spyre_mlir.layout.candidates import Candidate
from spyre_mlir.layout.graph import Signature
from spyre_mlir.layout.rules import Form, forms, stick_digits
from spyre_mlir.target.ops import DEVICE_OPS, Kind


@dataclass(frozen=True, eq=False)
class Way:
    """A form of an operation, seen from its operands (the result last).

    ``lanes`` are the dims in the stick by the operands' own dims, ``tiles`` what is taken of each operand in
    one piece, in elements per dim of it; ``portions`` are the parts of their bytes that it moves. ``sticks`` are those
    of operands whose sticks hold several dims, () for the others. There is one object per signature and form.
    """

    form: Form
    lanes: tuple[int | None, ...]
    tiles: tuple[tuple[int, ...], ...]
    portions: tuple[Fraction, ...]
    sticks: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def sparse(self) -> bool:
        """Whether no operand has a dim in its stick."""
        return all(lane is None for lane in self.lanes)


@functools.lru_cache(maxsize=1 << 12)
def ways(signature: Signature) -> tuple[Way, ...]:
    """All forms of an operation; empty if it has none."""
    return tuple(_way(signature, form) for form in forms(signature.opcode, signature.iteration))


def _way(signature: Signature, form: Form) -> Way:
    tile = _tile(signature, form)
    return Way(
        form,
        tuple(
            None if lane is None else dims.index(lane)
            for lane, dims in zip(form.lanes, signature.maps, strict=True)
        ),
        tuple(tuple(1 if dim is None else tile[dim] for dim in dims) for dims in signature.maps),
        tuple(_portion(signature, operand) for operand in range(len(signature.maps))),
        tuple(
            tuple((dims.index(dim), count) for dim, count in digits) if len(digits) > 1 else ()
            for digits, dims in zip(stick_digits(signature.iteration, form), signature.maps, strict=True)
        ),
    )


def _portion(signature: Signature, operand: int) -> Fraction:
    """How often an operation moves all of an operand: once, but of a table as many rows as it has positions."""
    if operand != DEVICE_OPS[signature.opcode].table:
        return Fraction(1)
    iteration = signature.iteration
    rows = math.prod(iteration.sizes[dim] for dim in iteration.present[-1] - iteration.present[operand])
    return Fraction(rows, math.prod(iteration.sizes[dim] for dim in iteration.reduced))


def _tile(signature: Signature, form: Form) -> list[int]:
    """What an operation takes in one piece if it may: all of each dim, but of batches one.

    A gather takes one row of its table. A matmul works on one matrix at a time (torch-spyre's measurements of them);
    how other dims are divided over cores is decided later and goes by the layouts.
    """
    iteration = signature.iteration
    tile = list(iteration.sizes)
    if DEVICE_OPS[form.opcode].kind is Kind.GATHER:
        for dim in iteration.reduced:
            tile[dim] = 1
    if DEVICE_OPS[form.opcode].kind is Kind.MATMUL:
        for dim in iteration.present[0] & iteration.present[1] - iteration.reduced:
            tile[dim] = 1
    return tile


@functools.lru_cache(maxsize=1 << 16)
def transfer_cost(way: Way, operand: int, held: Candidate) -> int | None:
    """Picoseconds to move one operand (-1: the result) once; None if it cannot lie like this."""
    if held.lane != way.lanes[operand] or held.sticks != way.sticks[operand] or not held.plain:
        return None
    moved = math.ceil(held.bytes * way.portions[operand])
    return pass_cost(moved, held.view.run_bytes(way.tiles[operand]))
