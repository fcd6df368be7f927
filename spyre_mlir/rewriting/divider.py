# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Work division helpers for passes: the dims that may be split, and the recording of divisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spyre_mlir.analysis.core_ownership import Divided
from spyre_mlir.analysis.plan_pins import pins_of, refused
from spyre_mlir.dialects import sdsc
from spyre_mlir.dialects.structured import structured
from spyre_mlir.division import Division
from spyre_mlir.division.cores import core_order, core_steps
from spyre_mlir.division.relayout import Digit
from spyre_mlir.division.slices import shares_of
from spyre_mlir.division.spans import core_order_problem, division_problem
from spyre_mlir.division_search.division_candidates import DividedOp
from spyre_mlir.layout.space import Space
from spyre_mlir.mlir import ir
from spyre_mlir.target.ops import COMBINE, DEVICE_OPS


def blocked_dims(op: ir.Operation) -> frozenset[int]:
    """Return the iteration dims that cannot be split: the contracted dims of a matmul without partial sums.

    Dims with masked padding can be split, because a mask has coordinates of the whole dim.
    """
    described = DEVICE_OPS.get(sdsc.opcode_of(op) or "")
    generic = structured(op) if described is not None and described.whole_sums else None
    return frozenset(generic.reduced if generic else ())


def pinned_division(
    op: ir.Operation, opcode: str, space: Space, cores: int
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the slices and the core order that a plan file pins; ``CompileError`` if they are impossible."""
    pins = pins_of(op)
    assert pins.slices is not None
    exempt = DEVICE_OPS[opcode].indirect
    reason = division_problem(space, pins.slices, cores, blocked_dims(op), opcode in COMBINE, exempt)
    if reason is not None:
        raise refused(op, f"slices {list(pins.slices)}", reason)
    if pins.core_order is None:
        return pins.slices, None
    reason = core_order_problem(pins.slices, pins.core_order)
    if reason is not None:
        raise refused(op, f"core_order {list(pins.core_order)}", reason)
    # Dims in one slice do not have a digit of the core id, so their place in the order does not matter.
    whole = (dim for dim, count in enumerate(pins.slices) if count == 1)
    return pins.slices, (*pins.core_order, *whole)


def work_of(user: Divided) -> DividedOp:
    """Return a divided op as an input of the division search, with fixed dims if a plan file pins the slices."""
    pins = pins_of(user.op)
    fixed_dims = blocked_dims(user.op) if pins.slices is None else frozenset(range(len(user.space.units)))
    return DividedOp(
        user.opcode, user.space, user.division, fixed_dims, user.executions, pins.core_order is not None
    )


def committed_splits(op: ir.Operation) -> tuple[int, ...] | None:
    """Return the splits that an earlier pass recorded; None if there are none."""
    return sdsc.division_of(op).splits if sdsc.DIVISION in op.attributes else None


class Divider:
    """Record divisions on ops, with one attribute for equal divisions."""

    def __init__(self) -> None:
        self._cache: dict[tuple[tuple[int, ...], tuple[int, ...]], ir.Attribute] = {}

    def divide(
        self,
        op: ir.Operation,
        opcode: str,
        space: Space,
        splits: tuple[int, ...],
        order: Sequence[int] | None = None,
    ) -> Division:
        """Record the slices of an op, and the combination of partial results if a reduction is split.

        Core ids count slices in ``order``, the fastest dim first; the default is ``core_order``.
        """
        order = core_order(splits, space.reduced) if order is None else tuple(order)
        key = (splits, order)
        if key not in self._cache:
            self._cache[key] = sdsc.division_attr(splits, core_map(splits, order))
        op.attributes[sdsc.DIVISION] = self._cache[key]
        division = replace(
            Division.mixed_radix(splits, order), shares=shares_of(space.units, splits), reduced=space.reduced
        )
        if division.partial:
            op.attributes[sdsc.COMBINE] = ir.StringAttr.get(COMBINE[opcode])
        elif sdsc.COMBINE in op.attributes:
            del op.attributes[sdsc.COMBINE]
        return division


def core_map(splits: Sequence[int], order: Sequence[int]) -> ir.AffineMap:
    """Return the map ``(core) -> slices`` in mixed radix, the first dim of ``order`` fastest."""
    steps = core_steps(splits, order)
    return digits_map(
        [((step, split),) if split > 1 else () for step, split in zip(steps, splits, strict=True)]
    )


def digits_map(dims: Sequence[Sequence[Digit]]) -> ir.AffineMap:
    """Return the map ``(core) -> slices``: each slice is a mixed-radix number of core id digits, the first fastest."""
    core: ir.AffineExpr = ir.AffineDimExpr.get(0)
    numbers = []
    for digits in dims:
        total, weight = None, 1
        for step, count in digits:
            digit = ir.AffineExpr.get_mod(ir.AffineExpr.get_floor_div(core, step), count)
            total = digit if total is None else total + digit * weight
            weight *= count
        numbers.append(ir.AffineConstantExpr.get(0) if total is None else total)
    return ir.AffineMap.get(1, 0, numbers)
