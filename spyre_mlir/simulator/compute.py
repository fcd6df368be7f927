# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Numpy functions of all device operations, from their expressions in the table of operations.

Operands are float32 (int32 for the integer operations) with one axis per iteration label, of extent 1 where
an operand does not vary, so that numpy broadcasting matches the device. Sums and products over many elements are
accumulated in float64, because the order in numpy depends on the shape of a slice, and the result bits must not.
Long products of 16-bit numbers are the exception (``plan.make_plan``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from spyre_mlir.records import dataclass
from spyre_mlir.simulator.workers import compiled
from spyre_mlir.target.expressions import SCALARS, evaluate
from spyre_mlir.target.ops import COMBINE, DEVICE_OPS, Kind, scalar_expression

Array = NDArray[Any]
Constants = Mapping[str, float]


_FLOAT64 = np.dtype(np.float64)


@dataclass(frozen=True)
class Work:
    """Axes and constants that the function of an operation needs in addition to its operands.

    ``reduced`` are the axes that the result lacks; ``varies[k]`` states for each axis whether operand ``k`` has it
    (the result is last). Products are summed in the type ``accumulator``.
    """

    reduced: tuple[int, ...] = ()
    varies: tuple[tuple[bool, ...], ...] = ()
    constants: Constants = field(default_factory=dict)
    accumulator: np.dtype = _FLOAT64


def compute(opcode: str, operands: Sequence[Array], work: Work) -> Array:
    """Return the result of one operation on one core, in the numbers of its operands."""
    op = DEVICE_OPS[opcode]
    if op.kind in (Kind.MATMUL, Kind.CONVOLUTION):
        return _matmul(operands, work)
    if op.kind is Kind.GATHER:
        # The positions were checked before.
        return np.take_along_axis(operands[1], operands[0].view(np.int32), work.reduced[0])
    if op.expression is None:
        return operands[0]
    values = dict(zip(op.operands, operands, strict=True)) | dict(work.constants)
    elements = evaluate(scalar_expression(op.expression), values)
    return elements if op.combine is None else _reduced(op.combine, elements, work.reduced)


#: The number of elements from which compiled sums are faster.
_COMPILED = 1 << 16


def _reduced(combine: str, elements: Array, axes: tuple[int, ...]) -> Array:
    function = cast(np.ufunc, SCALARS[combine].compute)
    # Axes with large strides first, because numpy then reduces whole rows.
    order = sorted(axes, key=lambda axis: -abs(elements.strides[axis]))
    with np.errstate(all="ignore"):
        if combine in ("maximum", "minimum"):
            # The function returns one of its operands, so float64 would not change the result.
            total = elements
            for axis in order:
                total = function.reduce(total, axis, keepdims=True)
            if len(order) < 2 or total.all():
                return total
            # The order decides which of two zeros with different signs is chosen: use the order of the labels.
            return function.reduce(np.ascontiguousarray(elements), tuple(sorted(order)), keepdims=True)
        if combine == "add" and elements.dtype == np.float32 and elements.size >= _COMPILED:
            total = compiled().add_along(elements, order[0])
        else:
            total = function.reduce(elements, order[0], keepdims=True, dtype=np.float64) if axes else elements
        for axis in order[1:]:
            total = function.reduce(total, axis, keepdims=True)
        return np.asarray(total, elements.dtype)


def _matmul(operands: Sequence[Array], work: Work) -> Array:
    """Contract the labels that both inputs have and the result lacks; labels of all three are batches.

    Leading axes before the axes of labels, such as an axis of cores, are broadcast batches.
    """
    has_left, has_right, has_out = work.varies
    axes = range(len(has_out))
    front = operands[0].ndim - len(has_out)
    batch = [a for a in axes if has_left[a] and has_right[a] and has_out[a]]
    rows = [a for a in axes if has_left[a] and not has_right[a]]
    columns = [a for a in axes if has_right[a] and not has_left[a]]
    inner = [a for a in axes if has_left[a] and has_right[a] and not has_out[a]]
    # The last bit of a float32 product depends on the shape, and so on the slices of the cores.
    lhs, rhs = (operand.astype(work.accumulator, copy=False) for operand in operands)
    with np.errstate(all="ignore"):
        product = np.matmul(
            _grouped(lhs, front, batch, rows, inner), _grouped(rhs, front, batch, inner, columns)
        )
    order = [*batch, *rows, *columns, *(a for a in axes if a not in {*batch, *rows, *columns})]
    sizes = [(lhs if has_left[a] else rhs).shape[front + a] if has_out[a] else 1 for a in axes]
    result = product.astype(np.float32, copy=False)
    result = result.reshape(*product.shape[:front], *(sizes[a] for a in order))
    return result.transpose(*range(front), *(front + int(place) for place in np.argsort(order)))


def _grouped(array: Array, front: int, *groups: list[int]) -> Array:
    """Return ``array`` with three axes after the ``front`` axes: one per group of axes; other axes have extent 1."""
    order = [axis for group in groups for axis in group]
    rest = [axis for axis in range(array.ndim - front) if axis not in order]
    shape = [math.prod(array.shape[front + axis] for axis in group) for group in groups]
    array = array.transpose(*range(front), *(front + axis for axis in (*order, *rest)))
    return array.reshape(*array.shape[:front], *shape)


def combine_partials(opcode: str, partials: Sequence[Array]) -> Array:
    """Return the value of a reduction that several cores share, combined in the order of their slices."""
    if len(partials) == 1:
        return partials[0]
    function = SCALARS[COMBINE[opcode]].compute
    # Combine in the order of the ring: the order decides the last bit.
    total = partials[0]
    with np.errstate(all="ignore"):
        for partial in partials[1:]:
            total = function(total, partial)
    return total
