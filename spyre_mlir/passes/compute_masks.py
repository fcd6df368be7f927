# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Computes large constant masks from positions, where pointwise operations read them."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.analysis.attention_pattern import known_runs
from spyre_mlir.cost.of_space import pass_cost, wait_cost
from spyre_mlir.dialects.hint_attributes import TILING, hints_in
from spyre_mlir.dialects.structured import Map, Structured, device_op, element_of, shape_of, structured
from spyre_mlir.dialects.targets import target_of
from spyre_mlir.mlir import ir
from spyre_mlir.passes.base import Pass
from spyre_mlir.records import dataclass
from spyre_mlir.rewriting.outlining import default_bytes
from spyre_mlir.rewriting.tensor_builders import constant
from spyre_mlir.target.ops import DEVICE_OPS, Kind
from spyre_mlir.tiling.mask_tiles import RunLengths

#: The largest magnitude of integers that the 16-bit format of the device represents exactly.
_EXACT = 1024
#: The waits for memory that the constants of a computed mask may take, in first bytes of operands.
_WAITS = 4


class _KeyRanges(NamedTuple):
    """A mask of rows by keys: the number ``inside`` at the keys ``first[row]`` to ``last[row] - 1``, else ``outside``.

    A bound that holds for all keys is None.
    """

    first: NDArray[np.int64] | None
    last: NDArray[np.int64] | None
    inside: float
    outside: float

    @classmethod
    def of(cls, runs: RunLengths, keys: int) -> _KeyRanges | None:
        """Return a tensor of two numbers, one of which is one interval of keys in each row; None for other tensors."""
        numbers = np.unique(runs.values)
        if len(numbers) != 2 or np.isnan(numbers).any():
            return None
        array = runs.flat(0, int(runs.ends[-1])).reshape(-1, keys)
        for inside, outside in (numbers, numbers[::-1]):
            found = array == inside
            count, first = found.sum(1), found.argmax(1)
            last = keys - found[:, ::-1].argmax(1)
            filled = count > 0
            if not np.array_equal((last - first)[filled], count[filled]):
                continue
            begins, ends = bool((first[filled] > 0).any()), bool((last[filled] < keys).any())
            # In a row without the number the interval ends before it begins, whichever bound is compared.
            return cls(
                np.where(filled, first, keys) if begins else None,
                np.where(filled, last, 0) if ends or not begins else None,
                float(inside),
                float(outside),
            )
        return None


@dataclass(frozen=True)
class ComputeMasks(Pass):
    """Compute a large constant mask from positions in each pointwise operation that reads it.

    A mask with one interval of keys per row, such as a causal mask or a sliding window, is two comparisons of the
    positions of the keys with a number per row. A pointwise operation computes the mask with its own dims, tile by
    tile in LX, instead of a load of the mask for each tile. Masks of attention stay constants, because tiles that a
    mask hides are skipped there: operations that loops tile already are not changed. A mask whose load takes no longer
    than a few waits for memory stays as well.

    Positions are relative to the middle of the keys, and f32 if they are not exact in the 16-bit format.

    Before, level *device-ops*, with a constant %mask of 2048x2048:
        %s = where3(%mask, %low, %scores)
    After, with %keys of 2048 and %last of 2048x1:
        %m = greaterequal(%keys, %last); %s = where3(%m, %low, %scores)
    """

    name: ClassVar[str] = "compute-masks"

    def run_on(self, func: ir.Operation) -> None:
        intervals: dict[ir.Value, _KeyRanges | None] = {}
        for op in [op_view.operation for op_view in func.regions[0].blocks[0].operations]:
            generic = structured(op)
            if generic is None or TILING in op.attributes or hints_in(op.location) is not None:
                continue
            if generic.reduced or DEVICE_OPS[generic.opcode].kind is not Kind.POINTWISE:
                continue
            for operand, value in enumerate(generic.inputs):
                if not _is_large(op, value):
                    continue
                if value not in intervals:
                    runs = known_runs(value)
                    intervals[value] = None if runs is None else _KeyRanges.of(runs, shape_of(value)[-1])
                interval, dims = intervals[value], _dims(generic, operand)
                if interval is None or dims is None or not _is_expressible(interval, element_of(value)):
                    continue
                with ir.InsertionPoint(op), op.location:
                    _read(op, operand, _computed(generic, interval, *dims, element_of(value)))
                self.remark(op, "rewrite", "its mask is computed from the positions of keys")


def _is_large(op: ir.Operation, value: ir.Value) -> bool:
    """Return whether the load of a tensor takes longer than a few waits for memory."""
    target = target_of(op)
    size = default_bytes(target, shape_of(value), element_of(value))
    return pass_cost(target, size, size) > _WAITS * wait_cost(target)


def _is_expressible(interval: _KeyRanges, element: str) -> bool:
    """Return whether operations of the type exist: the device selects between numbers of f16, and multiplies f32."""
    numbers = interval.inside, interval.outside
    return element == "f16" or (element == "f32" and 0 in numbers and bool(np.isfinite(numbers).all()))


def _dims(generic: Structured, operand: int) -> tuple[int, int] | None:
    """Return the iteration dims of the rows and keys of an operand; None if it has other dims."""
    value = generic.inputs[operand]
    shape = zip(generic.maps[operand], shape_of(value), strict=True)
    dims = [dim for dim, size in shape if size > 1]
    if len(dims) != 2 or dims[0] is None or dims[1] is None or shape_of(value)[-1] == 1:
        return None
    return dims[0], dims[1]


def _computed(generic: Structured, interval: _KeyRanges, rows: int, keys: int, element: str) -> ir.Value:
    """Build the mask with all dims of an operation."""
    shape, every = generic.extents, tuple(range(len(generic.extents)))
    middle = shape[keys] // 2
    position = "f16" if middle <= _EXACT and element == "f16" else "f32"
    # The comparison of the complement gives 1 outside.
    is_inside = interval.inside != 0

    def build(opcode: str, inputs: list[ir.Value], maps: list[Map], result: str) -> ir.Value:
        return device_op(opcode, inputs, maps, shape, result, location=generic.op.location)

    places = _numbers(np.arange(shape[keys]) - middle, position)
    parts = []
    for bound, opcodes in (
        (interval.first, ("greaterequal", "lesserthan")),
        (interval.last, ("lesserthan", "greaterequal")),
    ):
        if bound is not None:
            numbers = _numbers(bound - middle, position)
            parts.append(build(opcodes[not is_inside], [places, numbers], [(keys,), (rows,)], position))
    mask = parts[0]
    if len(parts) == 2:
        mask = build("mul" if is_inside else "maximum", parts, [every, every], position)
    chosen, other = interval.inside, interval.outside
    if not is_inside:
        chosen, other = other, chosen
    if position != element:
        mask = build("fp32todl16", [mask], [every], "f16")
    if (chosen, other) == (1, 0):
        return mask
    if element == "f32":
        return build("mul", [mask, _numbers(np.array(chosen), element)], [every, ()], element)
    scalars = [_numbers(np.array(number), element) for number in (chosen, other)]
    return build("where3", [mask, *scalars], [every, (), ()], element)


def _numbers(numbers: NDArray[np.generic], element: str) -> ir.Value:
    """Return a constant tensor of f16 or f32."""
    array = np.asarray(numbers, dtype={"f16": np.float16, "f32": np.float32}[element])
    return constant(ir.DenseElementsAttr.get(array, type=ir.Type.parse(element)))


def _read(op: ir.Operation, operand: int, mask: ir.Value) -> None:
    """Let an operation read a mask that has all its dims."""
    maps = list(ir.ArrayAttr(op.attributes["indexing_maps"]))
    maps[operand] = ir.AffineMapAttr.get(ir.AffineMap.get_identity(len(shape_of(mask))))
    op.attributes["indexing_maps"] = ir.ArrayAttr.get(maps)
    op.operands[operand] = mask
